"""Reports about a few operations on large arrays: sorts, running sums, transforms, convolutions, reductions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.issues.issue import JAX, XLA, Issue, add

normal = jax.random.normal

COMPILED = "XLA calls a library, where hloom compiles a kernel for these sizes."


def roughness(x: Any) -> Any:
    """The sum of squared differences of neighbours along all dimensions, and its gradient."""
    return jax.value_and_grad(lambda x: sum(jnp.square(jnp.diff(x, axis=axis)).sum() for axis in range(x.ndim)))(x)


def filtered(images: Any, response: Any) -> Any:
    return jnp.fft.ifft2(jnp.fft.fft2(images, norm="ortho") * response, norm="ortho")


def sines(x: Any) -> Any:
    for _ in range(20):
        x = jnp.sin(x)
    return x


def attractions(at: Any, sources: Any, masses: Any) -> Any:
    """Forces of 4,000 sources on 4,000 bodies, with the gradient of their sum by the bodies."""

    def forces(at: Any) -> Any:
        apart = sources[None] - at[:, None]
        return (masses[:, None] * apart * ((apart**2).sum(-1, keepdims=True) + 1e-2) ** -1.5).sum(1)

    return forces(at), jax.grad(lambda at: jnp.square(forces(at)).sum())(at)


def depthwise(images: Any, filters: Any) -> Any:
    return jax.lax.conv_general_dilated(
        images,
        filters,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=256,
    )


def solutions(squares: Any, right: Any) -> Any:
    """Solves 86,268 systems of three equations, with the gradient of the sum of the solutions."""

    def total(squares: Any) -> Any:
        solved = jnp.linalg.solve(squares, right)
        return solved.sum(), solved

    return jax.value_and_grad(total, has_aux=True)(squares)


def systems(key: Any) -> Any:
    factors = normal(key, (86_268, 3, 3))
    return factors @ factors.swapaxes(1, 2) + jnp.eye(3), normal(key, (86_268, 3, 1))


def flowing(height: Any, speed: Any) -> Any:
    """Ten steps of a wave on a periodic square, by `roll`."""
    for _ in range(10):
        right, up = (jnp.roll(height, -1, axis) for axis in (0, 1))
        left, down = (jnp.roll(height, 1, axis) for axis in (0, 1))
        speed = speed + 0.1 * (right + left + up + down - 4 * height)
        height = height + 0.1 * speed
    return height, speed


def convolved_twice(x: Any, filters: Any) -> Any:
    return jax.lax.fori_loop(0, 2, lambda _, x: jax.lax.conv(x, filters, (1,), "VALID"), x)


def lower_triangles(rows: Any) -> Any:
    """Writes 1,000 vectors into the lower triangles of matrices."""
    return jnp.zeros((1000, 79, 79)).at[:, *jnp.tril_indices(79)].add(rows)


def sorted_particles(hashes: Any, points: Any, speeds: Any) -> Any:
    order = jnp.argsort(hashes)
    return hashes[order], points[order], speeds[order]


def particles(key: Any) -> Any:
    hashes = jax.random.permutation(key, 200_000) // 2
    return hashes, *normal(key, (2, 200_000, 3))


add(
    Issue(
        JAX,
        10434,
        "`argsort` is 5 to 20 times slower than NumPy's",
        "`argsort` of 100 x 10,000 numbers along the first dimension",
        "hloom compiles a vectorised sort, XLA only the comparison of its one.",
    ),
    lambda key: (jax.random.uniform(key, (100, 10_000)),),
    partial(jnp.argsort, axis=0),
    tolerance=0.0,
)
add(
    Issue(
        JAX,
        27004,
        "half of a particle simulation's time is `argsort`",
        "200,000 particles sorted by a hash: `argsort` and three gathers",
    ),
    particles,
    sorted_particles,
    tolerance=1e-5,
)
add(
    Issue(
        JAX,
        4135,
        "`cumsum` is several times slower than NumPy's",
        "running sums along the first of four dimensions, 20 million f64",
    ),
    lambda key: (jax.random.uniform(key, (360, 160, 120, 3)),),
    partial(jnp.cumsum, axis=0),
    x64=True,
)
add(
    Issue(
        JAX,
        28097,
        "`cumsum` is 4 times slower than a loop, and running reductions without a primitive slower yet",
        "running sums and exclusive-ors of 16,384 x 1,024 integers along the first dimension",
    ),
    lambda key: (jax.random.bits(key, (16_384, 1024)),),
    lambda x: (jnp.cumsum(x, axis=0), jax.lax.associative_scan(jnp.bitwise_xor, x)),
    tolerance=0.0,
)
add(
    Issue(
        JAX,
        25808,
        "`fftn` is slower with the runtime of 0.4.32",
        "`fftn` of 200 x 200 x 200 complex numbers",
        COMPILED,
    ),
    lambda key: (normal(key, (200, 200, 200), jnp.complex64),),
    jnp.fft.fftn,
)
add(
    Issue(
        JAX,
        39081,
        "a batch of FFTs becomes 20 times slower when fused with what is around it",
        "32 images of 576 x 576: FFT, product with a response, inverse FFT",
        COMPILED,
    ),
    lambda key: (
        normal(key, (32, 576, 576), jnp.complex64),
        normal(key, (576, 576), jnp.complex64),
    ),
    filtered,
)
add(
    Issue(
        JAX,
        32707,
        "element-wise functions use 15 to 40 % of the processor's cores",
        "20 sines of 5 million numbers",
        "hloom compiles each of the sines in place; they are rounded correctly but for ties.",
    ),
    lambda key: (normal(key, (5_000_000,)),),
    sines,
)
add(
    Issue(
        JAX,
        37465,
        "squared differences of neighbours take 1.7 times as long as with 0.4.31, since reductions go to a library",
        "squared differences in an array of 256 x 256 x 256, with their gradient",
    ),
    lambda key: (normal(key, (256, 256, 256)),),
    roughness,
)
add(
    Issue(
        JAX,
        36927,
        "many small linear systems take 2.7 times as long with 0.10.0",
        "86,268 systems of three equations, with the gradient",
        "In another run XLA's threads waited for each other in this program until they were stopped.",
    ),
    systems,
    solutions,
    tolerance=2e-2,
)
add(
    Issue(
        JAX,
        23713,
        "a depthwise convolution is much slower than PyTorch's and TensorFlow's",
        "a 3 x 3 depthwise convolution of 256 channels, 124 x 124",
        COMPILED,
    ),
    lambda key: (normal(key, (1, 124, 124, 256)), normal(key, (3, 3, 1, 256))),
    depthwise,
)
add(
    Issue(
        JAX,
        23783,
        "a transposed convolution is far slower than the convolution that it reverses",
        "a transposed convolution of 64 channels, 128 x 128 to 256 x 256",
        COMPILED,
    ),
    lambda key: (normal(key, (1, 128, 128, 64)), normal(key, (4, 4, 64, 64))),
    lambda x, filters: jax.lax.conv_transpose(x, filters, (2, 2), "SAME"),
)
add(
    Issue(
        JAX,
        12868,
        "a convolution in a loop takes 16 s, where outside of it it takes 3 ms",
        "two convolutions of 300 channels in a `fori_loop`",
    ),
    lambda key: (normal(key, (1, 300, 256)), 0.06 * normal(key, (300, 300, 1))),
    convolved_twice,
)
add(
    Issue(
        JAX,
        5227,
        "a two-dimensional convolution is 200 times slower than SciPy's",
        "`jax.scipy.signal.convolve` of two arrays of 300 x 300, f64",
    ),
    lambda key: (normal(key, (300, 300)),),
    lambda x: jax.scipy.signal.convolve(x, x, mode="same"),
    x64=True,
)
add(
    Issue(
        JAX,
        7431,
        "an f16 product of 3,000 x 3,000 hangs",
        "a product of f16 matrices, 1,000 x 1,000",
    ),
    lambda key: (normal(key, (1000, 1000), jnp.float16),),
    lambda x: x @ x.T,
    tolerance=1e-2,
)
add(
    Issue(
        JAX,
        3832,
        "an f64 product is 3 to 4 times slower than NumPy's",
        "a product of f64 matrices, 256 x 256",
        COMPILED,
    ),
    lambda key: tuple(normal(key, (2, 256, 256))),
    jnp.dot,
    x64=True,
)
add(
    Issue(
        JAX,
        25187,
        "a sum along the first dimension is 6 times slower than NumPy's",
        "a sum of 128 x 128 x 128 numbers along the first dimension",
        COMPILED,
    ),
    lambda key: (normal(key, (128, 128, 128)),),
    lambda x: x.sum(0),
)
add(
    Issue(
        JAX,
        695,
        "`scatter_add` of vectors into triangles takes 5 s",
        "1,000 vectors of 3,160 numbers added to the triangles of matrices",
    ),
    lambda key: (normal(key, (1000, 3160)),),
    lower_triangles,
)
add(
    Issue(
        XLA,
        49131,
        "reductions of a function of all pairs write the pairs to memory",
        "gravity between 4,000 and 4,000 bodies, with a gradient",
    ),
    lambda key: (*normal(key, (2, 4000, 3)), jax.random.uniform(key, (4000,))),
    attractions,
    tolerance=1e-2,
)
add(
    Issue(
        XLA,
        18478,
        "element-wise operations with `roll` are slower compiled than not",
        "ten steps of a wave on 1,024 x 1,024 points, by `roll`",
    ),
    lambda key: tuple(normal(key, (2, 1024, 1024))),
    flowing,
)
