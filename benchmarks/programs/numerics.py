"""Numerical kernels that programs spend their time in: integer products, spectra, sparse systems."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.program import add


def integers(key: Any) -> tuple[Any, ...]:
    return tuple(jax.random.randint(key, sizes, -128, 128, jnp.int8) for sizes in ((512, 2048), (2048, 2048)))


def product(a: Any, b: Any) -> Any:
    return jax.lax.dot(a, b, preferred_element_type=jnp.int32)


def spectrogram(sound: Any) -> Any:
    """Windows of 1024 samples, every 256, their spectra in 80 bands."""
    indices = jnp.arange(0, sound.shape[0] - 1024, 256)[:, None] + jnp.arange(1024)
    power = jnp.abs(jnp.fft.rfft(sound[indices] * jnp.hanning(1024))) ** 2
    centres = jnp.geomspace(4, 500, 80)
    bands = jnp.exp(-0.5 * ((jnp.arange(513)[:, None] - centres) / (0.1 * centres)) ** 2)
    return jnp.log(power @ bands + 1e-6)


def poisson(right: Any) -> Any:
    """A hundred steps of conjugate gradients on a five-point grid."""

    def apply(u: Any) -> Any:
        padded = jnp.pad(u, 1)
        return 4 * u - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2]

    def step(_: int, state: Any) -> Any:
        x, r, p, size = state
        ap = apply(p)
        along = size / (p * ap).sum()
        x, r = x + along * p, r - along * ap
        new = (r * r).sum()
        return x, r, r + (new / size) * p, new

    start = (jnp.zeros_like(right), right, right, (right * right).sum())
    return jax.lax.fori_loop(0, 100, step, start)[0]


add("s8 x s8 -> s32 product, 512 x 2048 x 2048", integers, product, tolerance=0.0)
add("spectrogram", lambda key: (jax.random.normal(key, (480_000,)),), spectrogram)
add("conjugate gradients", lambda key: (jax.random.normal(key, (512, 512)),), poisson, tolerance=2e-2)
