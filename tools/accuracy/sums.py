"""Errors of sums, products, transforms, factorisations and layers for growing sizes, in machine epsilons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accuracy.sides import HLOOM, XLA

Array = np.ndarray[Any, np.dtype[Any]]
Long = np.longdouble


@dataclass(frozen=True)
class Sum:
    """The error of a computation in units of the machine epsilon, by side."""

    key: str
    """The name, the type and the size."""
    errors: dict[str, float]


@dataclass(frozen=True)
class Computation:
    """A function of JAX, its arguments by size, and the error of its result as a multiple of a natural scale."""

    name: str
    scale: str
    """The quantity by which the error is divided."""
    sizes: tuple[int, ...]
    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator, int], tuple[Array, ...]]
    error: Callable[..., Any]
    """The relative error, from the arguments and results in long double."""


def _normal(*shape: str | int) -> Callable[[np.random.Generator, int], tuple[Array, ...]]:
    """Makes an array of normal random values; "n" in the shape is the size."""
    return lambda random, n: (random.normal(size=[n if size == "n" else int(size) for size in shape]),)


def _two_matrices(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    return random.normal(size=(8, n)), random.normal(size=(n, n))


def _positive_definite(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    a = random.normal(size=(n, n))
    return (a @ a.T / n + np.eye(n),)


def _symmetric(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    a = random.normal(size=(n, n))
    return (a + a.T,)


def _image(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    return random.normal(size=(1, n, n, 64)), random.normal(size=(3, 3, 64, 64))


def _convolve(x: Any, w: Any) -> Any:
    from jax import lax

    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _exact_convolution(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    n = x.shape[1]
    return sum(padded[:, i : i + n, j : j + n] @ w[i, j] for i in range(3) for j in range(3))


def _heads(random: np.random.Generator, n: int) -> tuple[Array, ...]:
    return tuple(random.normal(size=(n, 32)) for _ in "qkv")


def _exact_softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normalised(x: Array) -> Array:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + Long(1e-5))


def _layer_norm(x: Any) -> Any:
    import jax.numpy as jnp

    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _attention(q: Any, k: Any, v: Any) -> Any:
    import jax

    return jax.nn.softmax(q @ k.T / 32**0.5, -1) @ v


def _numpy(name: str) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        import jax.numpy as jnp

        function: Any = jnp
        for part in name.split("."):
            function = getattr(function, part)
        return function(*operands)

    return call


def _softmax(x: Any) -> Any:
    import jax

    return jax.nn.softmax(x)


def _lu(a: Any) -> Any:
    from jax.scipy import linalg

    return linalg.lu(a)


def _norm(a: Array) -> Any:
    return np.sqrt((np.abs(a) ** 2).sum())


def _residual(a: Array, product: Array) -> Any:
    """The backward error of a factorisation, in the Frobenius norm."""
    return _norm(product - a) / _norm(a)


COMPUTATIONS = [
    Computation(
        "sum of positive numbers", "the sum", (1000, 100_000, 10_000_000), _numpy("sum"),
        lambda random, n: (random.uniform(size=n),), lambda x, y: abs(y - x.sum()) / x.sum(),
    ),
    Computation(
        "sum of both signs", "the sum of absolute values", (1000, 100_000, 10_000_000), _numpy("sum"),
        _normal("n"), lambda x, y: abs(y - x.sum()) / np.abs(x).sum(),
    ),
    Computation(
        "running sum", "the sums of absolute values", (1000, 100_000, 1_000_000), _numpy("cumsum"), _normal("n"),
        lambda x, y: np.max(np.abs(y - x.cumsum()) / np.abs(x).cumsum()),
    ),
    Computation(
        "variance", "the variance", (1000, 100_000, 1_000_000), _numpy("var"),
        lambda random, n: (random.normal(size=n) + 10,), lambda x, y: abs(y - x.var()) / x.var(),
    ),
    Computation(
        "matrix product", "the product of absolute values", (64, 256, 1024), _numpy("matmul"), _two_matrices,
        lambda a, b, y: np.max(np.abs(y - a @ b) / (np.abs(a) @ np.abs(b))),
    ),
    Computation(
        "3 x 3 convolution, 64 channels", "the convolution of absolute values", (8, 32), _convolve, _image,
        lambda x, w, y: np.max(
            np.abs(y - _exact_convolution(x, w)) / _exact_convolution(np.abs(x), np.abs(w))
        ),
    ),
    Computation(
        "FFT", "the norm", (1024, 1009, 65536), _numpy("fft.fft"), _normal("n"),
        lambda x, y: _norm(y - _exact_fft(x)) / _norm(y),
    ),
    Computation(
        "Cholesky", "the norm of A", (32, 128), _numpy("linalg.cholesky"), _positive_definite,
        lambda a, lower: _residual(a, lower @ lower.T),
    ),
    Computation(
        "QR", "the norm of A", (32, 128), _numpy("linalg.qr"), _normal("n", "n"),
        lambda a, q, r: _residual(a, q @ r),
    ),
    Computation(
        "LU", "the norm of A", (32, 128), _lu, _normal("n", "n"),
        lambda a, p, lower, upper: _residual(a, p @ (lower @ upper)),
    ),
    Computation(
        "symmetric eigenvalues", "the norm of A", (32, 128), _numpy("linalg.eigh"), _symmetric,
        lambda a, values, vectors: _residual(a, (vectors * values) @ vectors.T),
    ),
    Computation(
        "SVD", "the norm of A", (32, 128), _numpy("linalg.svd"), _normal("n", "n"),
        lambda a, u, s, v: _residual(a, (u * s) @ v),
    ),
    Computation(
        "softmax", "the result", (100, 10_000, 1_000_000), _softmax, _normal("n"),
        lambda x, y: np.max(np.abs(y / _exact_softmax(x) - 1)),
    ),
    Computation(
        "layer norm", "the largest result", (64, 1024, 16384), _layer_norm, _normal(8, "n"),
        lambda x, y: np.max(np.abs(y - _normalised(x))) / np.max(np.abs(y)),
    ),
    Computation(
        "attention", "the largest value", (64, 512, 2048), _attention, _heads,
        lambda q, k, v, y: np.max(np.abs(y[:8] - _exact_softmax(q[:8] @ k.T / Long(32) ** Long(0.5)) @ v))
        / np.max(np.abs(v)),
    ),
]  # fmt: skip
"""The computations; results in several arrays are passed to `error` one after another."""


def _exact_fft(x: Array) -> Array:
    from scipy import fft

    return fft.fft(x)


def measure() -> Iterator[Sum]:
    """Measures every computation for f32 and f64 in each size, on both platforms of JAX."""
    import jax

    for computation in COMPUTATIONS:
        for dtype in (np.float32, np.float64):
            for size in computation.sizes:
                operands = [x.astype(dtype) for x in computation.arguments(np.random.default_rng(size), size)]
                errors = {}
                for side, platform in ((HLOOM, "hloom"), (XLA, "cpu")):
                    device = jax.devices(platform)[0]
                    got = jax.jit(computation.function)(*(jax.device_put(x, device) for x in operands))
                    leaves = [_long(np.asarray(leaf)) for leaf in jax.tree.leaves(got)]
                    error = computation.error(*map(_long, operands), *leaves)
                    errors[side] = float(error / np.finfo(dtype).eps)
                yield Sum(json.dumps([computation.name, np.dtype(dtype).name, size]), errors)


def _long(x: Array) -> Array:
    return x.astype(np.clongdouble if np.iscomplexobj(x) else Long)


def table_of_sums(sums: dict[str, Sum]) -> Iterable[str]:
    """Lines of the page: a row for each computation and size."""
    yield "## Sums, products, factorisations, layers\n"
    yield (
        "The largest error in units of the machine epsilon (2^-23, 2^-52), relative to the second column, for random\n"
        "arguments. A sum in pairs errs by at most log2(n) / 2 of these units, one term after another by n / 2.\n"
    )
    yield "| | relative to | size | f32, hloom | XLA | f64, hloom | XLA |"
    yield "|---|---|---|---|---|---|---|"
    for computation in COMPUTATIONS:
        for size in computation.sizes:
            cells = [computation.name, computation.scale, f"{size:,}"]
            for dtype in ("float32", "float64"):
                measured = sums.get(json.dumps([computation.name, dtype, size]))
                cells += [f"{measured.errors[side]:.2f}" if measured else "" for side in (HLOOM, XLA)]
            yield "| " + " | ".join(cells) + " |"
    yield ""
