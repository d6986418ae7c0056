"""Kernels of all families, for hloom and XLA alone: `python -m benchmarks.peers --sweep` shows where hloom is slower.

Add a test of the generated kernel for each finding, or, if other peers have the kernel, a row in kernels.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels import Array, Function, Kernel, jnp, lax, nn, random

Arrays = Callable[[np.random.Generator], list[Array]]

SWEPT: dict[str, Kernel] = {}


def add(name: str, arrays: Arrays, function: Function, tolerance: float = 1e-3) -> None:
    SWEPT[name] = Kernel(name, arrays, function, tolerance=tolerance)


def jax() -> Any:
    return importlib.import_module("jax")


def linalg() -> Any:
    return importlib.import_module("jax.scipy.linalg")


def integers(low: int, high: int, *sizes: tuple[int, ...], type: Any = np.int32) -> Arrays:
    return lambda rng: [rng.integers(low, high, size).astype(type) for size in sizes]


def both(*generators: Arrays) -> Arrays:
    return lambda rng: [array for generator in generators for array in generator(rng)]


def gradient(function: Function) -> Function:
    return lambda *x: jax().grad(lambda *y: (function(*y) ** 2).sum())(*x)


# Reductions and normalisations

MIDDLE = random((64, 64, 1024))


def _normalised(x: Array, axis: Any) -> Array:
    centred = x - x.mean(axis, keepdims=True)
    return centred * lax().rsqrt((centred**2).mean(axis, keepdims=True) + 1e-5)


add("softmax along the middle", MIDDLE, lambda x: nn().softmax(x, 1))
add("logsumexp along the middle", MIDDLE, lambda x: nn().logsumexp(x, 1))
add("normalisation along the middle", MIDDLE, lambda x: _normalised(x, 1))
add("batch normalisation", random((16, 56, 56, 64)), lambda x: _normalised(x, (0, 1, 2)))
add("gradient of log-softmax", random((4096, 1000)), gradient(lambda x: nn().log_softmax(x)))
add("largest of columns", random((4096, 4096)), lambda x: x.max(0))
add("layer normalisation bf16", random((4096, 1024), type="bf16"), lambda x: _normalised(x, -1), 2e-2)
add("softmax bf16", random((4096, 1024), type="bf16"), lambda x: nn().softmax(x), 2e-2)
add("variance of all", random((1 << 22,)), lambda x: x.var())

# Rows of a few elements: classes, points, matrices

CLASSES, POINTS = random((65536, 10)), random((1 << 19, 3), (1 << 19, 3))
add("largest of 10 classes", CLASSES, lambda x: x.max(1))
add("places of the largest of 10 classes", CLASSES, lambda x: x.argmax(1))
add("softmax of 10 classes", CLASSES, lambda x: nn().softmax(x))
add("softmax of 100 classes", random((20000, 100)), lambda x: nn().softmax(x))
add("vector products of points", POINTS, lambda x, y: jnp().cross(x, y))
add("lengths of points", random((1 << 20, 3)), lambda x: jnp().linalg.norm(x, axis=1))
add("determinants of 3 x 3", random((100_000, 3, 3)), lambda a: jnp().linalg.det(a))
add("pixel shuffle", random((8, 64, 64, 64)),
    lambda x: x.reshape(8, 64, 64, 4, 4, 4).transpose(0, 1, 3, 2, 4, 5).reshape(8, 256, 256, 4))  # fmt: skip

# Products

for m, k, n in ((16, 1024, 1024), (64, 4096, 4096), (128, 1024, 4096), (512, 3072, 768), (1000, 1000, 10)):
    add(f"product {m} x {k} x {n}", random((m, k), (k, n)), lambda a, b: a @ b)
add("product, left transposed", random((1024, 1024), (1024, 1024)), lambda a, b: a.T @ b)
add("product, right transposed", random((1024, 1024), (1024, 1024)), lambda a, b: a @ b.T)
add("products of 4 x 4", random((20000, 4, 4), (20000, 4, 4)), lambda a, b: a @ b)
add("bilinear form", random((1024, 64), (32, 64, 64), (1024, 64)),
    lambda x, w, y: jnp().einsum("bi,oij,bj->bo", x, w, y))  # fmt: skip
add("product of integers", integers(-9, 9, (512, 512), (512, 512)), lambda a, b: a @ b)
add("product c64", random((512, 512), (512, 512), type="c64"), lambda a, b: a @ b)
add("scores of heads", random((4, 256, 8, 64), (4, 256, 8, 64)), lambda a, b: jnp().einsum("bqhd,bkhd->bhqk", a, b))
add("one-hot product", both(integers(0, 1000, (4096,)), random((1000, 128))), lambda i, w: nn().one_hot(i, 1000) @ w)

# Convolutions and windows

IMAGES = (8, 56, 56, 64)


def _convolution(x: Array, k: Array) -> Array:
    return lax().conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _windows(x: Array, initial: float, reduction: Function, size: int, stride: int) -> Array:
    return lax().reduce_window(x, initial, reduction, (1, size, size, 1), (1, stride, stride, 1), "SAME")


add("convolution f32", random(IMAGES, (3, 3, 64, 64)), _convolution)
add("convolution bf16", random(IMAGES, (3, 3, 64, 64), type="bf16"), _convolution, 2e-2)
add("gradient of a convolution", random((3, 3, 64, 64), (8, 28, 28, 64)), gradient(lambda k, x: _convolution(x, k)))
add("transposed convolution", random((8, 28, 28, 64), (4, 4, 64, 64)),
    lambda x, k: lax().conv_transpose(x, k, (2, 2), "SAME"))  # fmt: skip
add("convolution of sequences", random((32, 1000, 64), (5, 64, 64)),
    lambda x, k: lax().conv_general_dilated(x, k, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")))  # fmt: skip
add("means of windows", random((8, 112, 112, 64)), lambda x: _windows(x, 0.0, lax().add, 3, 2))
add("gradient of largest of windows", random((8, 112, 112, 64)),
    gradient(lambda x: _windows(x, -np.inf, lax().max, 2, 2)))  # fmt: skip
add("resized images", random((8, 128, 128, 3)), lambda x: jax().image.resize(x, (8, 256, 256, 3), "bilinear"))

# Data movement

SQUARE = random((2048, 2048))
add("reversed rows and columns", SQUARE, lambda x: x[::-1, ::-1])
add("rolled", SQUARE, lambda x: jnp().roll(x, (3, 5), (0, 1)))
add("lower triangle", SQUARE, lambda x: jnp().tril(x))
add("padded", random(IMAGES), lambda x: jnp().pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))
add("planes to pixels", random((32, 3, 224, 224)), lambda x: x.transpose(0, 2, 3, 1))
add("pixels to planes", random((32, 224, 224, 3)), lambda x: x.transpose(0, 3, 1, 2))
add("features last", random((16, 64, 56, 56)), lambda x: x.transpose(0, 2, 3, 1))
add("transposes of 128 x 64", random((256, 128, 64)), lambda x: x.swapaxes(1, 2))
add("planes of 8 to pixels", random((16, 8, 128, 128)), lambda x: x.transpose(0, 2, 3, 1))
add("transpose of 131072 x 12", random((131072, 12)), lambda x: x.T)
add("transpose of 131072 x 64", random((131072, 64)), lambda x: x.T)
add("all dimensions in reverse order", random((64, 64, 64, 6)), lambda x: x.transpose())
add("three arrays side by side", random(*[(1 << 20,)] * 3), lambda *x: jnp().stack(x, -1))
add("rows one behind the other", random((2048, 512), (2048, 512)), lambda *x: jnp().concatenate(x, 1))
add("rows by numbers", both(random((50000, 256)), integers(0, 50000, (8192,))), lambda w, i: w[i])
add("rows added by numbers", both(random((8192, 64)), integers(0, 50000, (8192,))),
    lambda u, i: jnp().zeros((50000, 64)).at[i].add(u))  # fmt: skip
add("largest by numbers", both(random((50000,)), integers(0, 50000, (1 << 20,)), random((1 << 20,))),
    lambda w, i, u: w.at[i].max(u))  # fmt: skip
add("sums of 16 by numbers", both(integers(0, 1000, (100_000,)), random((100_000, 16))),
    lambda i, u: jax().ops.segment_sum(u, i, 1000))  # fmt: skip
add("elements by two numbers", both(random((512, 512)), integers(0, 512, (1 << 20,), (1 << 20,))),
    lambda x, i, j: x[i, j])  # fmt: skip
add("columns by numbers", both(random((4096, 1024)), integers(0, 1024, (512,))), lambda x, i: x[:, i])
add("a key of a cache", both(random((32, 1024, 64)), integers(0, 1000, ()), random((32, 1, 64))),
    lambda c, i, u: lax().dynamic_update_slice(c, u, (0, i, 0)))  # fmt: skip
add("counts of numbers", integers(0, 1000, (1 << 20,)), lambda i: jnp().bincount(i, length=1000))

# Sorts and running reductions

add("orders of rows", random((1024, 1024)), lambda x: jnp().argsort(x, 1))
add("medians", random((1024, 1000)), lambda x: jnp().median(x, 1))
add("places in a sorted array", random((100_000,), (100_000,)), lambda a, x: jnp().searchsorted(jnp().sort(a), x))
add("running sums of columns", random((4096, 1024)), lambda x: jnp().cumsum(x, 0))
add("running products of rows", random((1024, 1024)), lambda x: jnp().cumprod(x, 1))

# Elements

LARGE = random((1 << 22,))


def _adam(p: Array, g: Array, m: Array, v: Array) -> Array:
    step = (0.9 * m + 0.1 * g) / (jnp().sqrt(0.999 * abs(v) + 0.001 * g * g) + 1e-8)
    return p - 1e-3 * step


add("erf", LARGE, lambda x: lax().erf(x))
add("log-gamma", random((1 << 20,)), lambda x: lax().lgamma(abs(x) + 1))
add("powers", random((1 << 22,), (1 << 22,)), lambda x, y: abs(x) ** y)
add("angles", random((1 << 22,), (1 << 22,)), lambda x, y: jnp().arctan2(x, y))
add("sines", LARGE, lambda x: jnp().sin(100 * x))
add("quotients of integers", integers(1, 1000, (1 << 22,), (1 << 22,)), lambda x, y: x // y)
add("bytes to numbers", integers(0, 255, (32, 224, 224, 3), type=np.uint8),
    lambda x: (x.astype(np.float32) - 127) / 64)  # fmt: skip
add("gelu bf16", random((4096, 1024), type="bf16"), lambda x: nn().gelu(x), 2e-2)
add("a step of Adam", random(*[(1 << 22,)] * 4), _adam)

# Random numbers, transforms, linear algebra, loops

SEED = integers(0, 9, ())
add("normal numbers", SEED, lambda s: jax().random.normal(jax().random.key(s), (1 << 20,)))
add("permutation", SEED, lambda s: jax().random.permutation(jax().random.key(s), 1 << 18))
add("FFT of a real sequence", random((1 << 20,)), lambda x: jnp().fft.rfft(x))
add("FFT of rows", random((1000, 1000), type="c64"), lambda x: jnp().fft.fft(x))
add("LU 1024", random((1024, 1024)), lambda a: linalg().lu_factor(a)[0], 1e-2)
add("QR 512", random((512, 512)), lambda a: abs(jnp().linalg.qr(a)[1]), 1e-2)
add("singular values 200", random((200, 200)), lambda a: jnp().linalg.svd(a)[1])
add("eigenvalues 256", random((256, 256)), lambda a: jnp().linalg.eigh(a + a.T)[0])
add("inverse 512", random((512, 512)), lambda a: jnp().linalg.inv(a + 64 * jnp().eye(512)))
add("determinants 64 x 32", random((64, 32, 32)), lambda a: jnp().linalg.det(a), 1e-2)
add("scan of 1000 small products", random((8, 8)),
    lambda x: lax().scan(lambda c, _: (jnp().tanh(c @ c) * 0.5, c.sum()), x, None, 1000)[1])  # fmt: skip
