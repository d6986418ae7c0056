"""Clouds from noise: random numbers, whose Fourier transform is divided by the frequency.

`rng-bit-generator` gives the same bits for the same state on every machine.
"""

import matplotlib.pyplot as plt
import numpy as np

import hloom as hl

HEIGHT, WIDTH = 360, 640

b = hl.XlaBuilder("clouds")
state = b.parameter(0, hl.u64[2], "state")
damping = b.parameter(1, hl.f32[HEIGHT, WIDTH], "damping")
bits = b.rng_bit_generator("rng_three_fry", state, hl.u32[HEIGHT, WIDTH])[1]
noise = b.convert_element_type(bits, "f32") * 2.0**-32 - 0.5
spectrum = b.fft(b.complex(noise, noise * 0.0), "FFT", [HEIGHT, WIDTH])
smooth = b.complex(b.real(spectrum) * damping, b.imag(spectrum) * damping)
sky = b.real(b.fft(smooth, "IFFT", [HEIGHT, WIDTH]))
run = hl.compile(b.build(sky))

frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None] * HEIGHT / WIDTH * 1.6, np.fft.fftfreq(WIDTH))
damping = 1 / np.maximum(frequency, 1 / WIDTH) ** 1.7
clouds = run(np.uint64([7, 2026]), damping.astype(np.float32))
low, high = np.quantile(clouds, [0.35, 0.995])
plt.imsave("clouds.png", np.clip((clouds - low) / (high - low), 0, 1), cmap="Blues_r")
