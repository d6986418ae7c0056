"""Reports about the time to compile: unrolled loops, constants that are computed while compiling, long programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.sparse import BCOO

from benchmarks.issues.issue import JAX, XLA, Issue, add


def unrolled(key: Any) -> Any:
    """Sixteen unrolled steps that draw random numbers and mix two arrays."""
    a, b = jnp.eye(2)[jnp.zeros(8, int)], jnp.eye(2)[jnp.ones(8, int)]
    for _ in range(16):
        key, drawn = jax.random.split(key)
        gate = jax.random.uniform(drawn, (8, 1))
        mixed = gate * a + (1 - gate) * b
        a, b = 0.5 * (a + mixed), 0.5 * (b + mixed)
    return a, b


def constant_sums() -> Any:
    return jax.vmap(jax.vmap(jnp.sum))(jnp.zeros((200_000, 10, 10)))


def changed_ones() -> Any:
    return jnp.ones((300, 300, 300)).at[100, 100, 100].set(2)


def sparse_product(x: Any) -> Any:
    """The sum of a product with a sparse identity matrix, whose indices are a constant of the program."""
    size = 1_000_000
    matrix = BCOO(
        (jnp.ones(size), jnp.stack([jnp.arange(size)] * 2, 1)),
        shape=(size, size),
        indices_sorted=True,
    )
    return (matrix @ (jnp.ones(size) / x)).sum()


def ocean(height: Any, u: Any, v: Any, heat: Any) -> Any:
    """Four unrolled steps of a layered ocean: fluxes by slices, limited advection, the boundary conditions of walls."""

    def padded(x: Any) -> Any:
        return jnp.pad(x, ((0, 0), (1, 1), (1, 1)), mode="edge")

    def advected(x: Any, u: Any, v: Any) -> Any:
        x = padded(x)
        for axis, speed in ((1, u), (2, v)):
            before, after = jnp.roll(x, 1, axis), jnp.roll(x, -1, axis)
            limited = jnp.where(
                (after - x) * (x - before) > 0,
                jnp.minimum(abs(after - x), abs(x - before)),
                0.0,
            )
            flux = jnp.where(padded(speed) > 0, x + 0.5 * limited, after - 0.5 * limited) * padded(speed)
            x = x - 0.1 * (flux - jnp.roll(flux, 1, axis))
        return x[:, 1:-1, 1:-1]

    for _ in range(4):
        h = padded(height)
        u, v = (
            u - 0.1 * (h[:, 2:, 1:-1] - h[:, :-2, 1:-1]),
            v - 0.1 * (h[:, 1:-1, 2:] - h[:, 1:-1, :-2]),
        )
        u, v = (
            u.at[:, 0].set(0).at[:, -1].set(0),
            v.at[:, :, 0].set(0).at[:, :, -1].set(0),
        )
        height, heat, u, v = (advected(x, u, v) for x in (height, heat, u, v))
        heat = heat + 0.01 * (jnp.exp(-height) - heat)
    return height, u, v, heat


def tree_of_leaves(leaves: Any) -> Any:
    """A step of Adam's method for 400 small arrays, each an array of its own."""

    def loss(leaves: Any) -> Any:
        return sum(jnp.square(jnp.tanh(leaf)).sum() for leaf in leaves)

    slopes = jax.grad(loss)(leaves)
    return [leaf - 1e-3 * g / (jnp.sqrt(g * g) + 1e-8) for leaf, g in zip(leaves, slopes, strict=True)]


add(
    Issue(
        JAX,
        2777,
        "the time to compile is exponential in the length of an unrolled loop",
        "sixteen unrolled steps with random numbers",
    ),
    lambda key: (key,),
    unrolled,
)
add(
    Issue(
        JAX,
        21300,
        "sums of a constant are computed while compiling, with warnings",
        "sums of a constant array of 200,000 x 10 x 10, f64",
    ),
    lambda key: (),
    constant_sums,
    x64=True,
)
add(
    Issue(
        JAX,
        12789,
        "an update of a constant array is computed while compiling, which takes seconds",
        "an element set in an array of 300 x 300 x 300 ones",
    ),
    lambda key: (),
    changed_ones,
)
add(
    Issue(
        JAX,
        14655,
        "a product with a constant sparse matrix takes a minute to compile",
        "a product with a sparse identity matrix of a million rows",
    ),
    lambda key: (jnp.float32(1.5),),
    sparse_product,
)
add(
    Issue(
        JAX,
        16084,
        "a function of a tree of many leaves takes very long to compile",
        "a step of Adam's method for 400 arrays of 10 numbers",
    ),
    lambda key: (list(jax.random.normal(key, (400, 10))),),
    tree_of_leaves,
)
add(
    Issue(
        XLA,
        23924,
        "an ocean model takes more than two minutes to compile",
        "four unrolled steps of an ocean of 16 layers, 96 x 96",
    ),
    lambda key: tuple(0.1 * jax.random.normal(key, (4, 16, 96, 96))),
    ocean,
)
