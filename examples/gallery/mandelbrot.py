"""The Mandelbrot set: a loop over complex numbers, all points at once.

Each point counts the steps during which z * z + c stays near the origin. The body of the loop is compiled to one
kernel.
"""

import matplotlib.pyplot as plt
import numpy as np

import hloom as hl

HEIGHT, WIDTH, STEPS = 480, 720, 80

b = hl.XlaBuilder("mandelbrot")
c = b.parameter(0, hl.c64[HEIGHT, WIDTH], "c")
zero = b.broadcast(b.constant(np.complex64(0)), [HEIGHT, WIDTH])
counts = b.broadcast(b.constant(np.int32(0)), [HEIGHT, WIDTH])


def step(state):
    k, z, counts, c = (state[i] for i in range(4))
    z = z * z + c
    is_near = state.builder.abs(z) < 2.0  # false for NaN
    return state.builder.tuple(k + 1, z, counts + state.builder.convert_element_type(is_near, "s32"), c)


start = b.tuple(b.constant(np.int32(0)), zero, counts, c)
loop = b.while_(lambda state: state[0] < STEPS, step, start)
run = hl.compile(b.build(loop[2]))

y, x = np.ogrid[1.2 : -1.2 : HEIGHT * 1j, -2.4 : 1.2 : WIDTH * 1j]
plt.imsave("mandelbrot.png", np.sqrt(run((x + y * 1j).astype(np.complex64))), cmap="magma")
