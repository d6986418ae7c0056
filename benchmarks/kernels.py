"""Kernels that hloom and its peers compute: their arrays, and the function of each peer.

`jax` is traced, on hloom, on XLA and for IREE; `torch` takes tensors, `numpy` arrays (and may use SciPy).
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hloom.bench.limits import Work

Array = Any
Function = Callable[..., Any]
FLOATS = 4.0
"""Bytes of an f32."""
EXPONENTIAL = 11
"""Additions and multiplications of an exponential: four that reduce the argument, a polynomial, and the scale."""

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "c64": np.complex64}


@dataclass(frozen=True)
class Kernel:
    """A kernel, with the `least` work of a call; None if that is not in terms of f32.

    Results of peers may differ by `tolerance` relative to the largest element.
    """

    name: str
    arrays: Callable[[np.random.Generator], list[Array]]
    jax: Function
    torch: Function | None = None
    numpy: Function | None = None
    least: Work | None = None
    tolerance: float = 1e-4


KERNELS: dict[str, Kernel] = {}


def add(name: str, arrays: Callable[[np.random.Generator], list[Array]], jax: Function, **more: Any) -> None:
    KERNELS[name] = Kernel(name, arrays, jax, **more)


def add_alike(name: str, arrays: Callable[[np.random.Generator], list[Array]], function: Function, **more: Any) -> None:
    """Registers a kernel with one function for all peers."""
    add(name, arrays, function, torch=function, numpy=function, **more)


def random(*shapes: tuple[int, ...], type: str = "f32") -> Callable[[np.random.Generator], list[Array]]:
    """Returns a generator of normal values, or of integers of the whole range for s8."""

    def arrays(rng: np.random.Generator) -> list[Array]:
        if type == "s8":
            return [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
        parts = [rng.standard_normal(shape) for shape in shapes]
        if type == "c64":
            parts = [part + 1j * rng.standard_normal(part.shape) for part in parts]
        return [part.astype(DTYPES[type]) for part in parts]

    return arrays


def jnp() -> Any:
    return importlib.import_module("jax.numpy")


def lax() -> Any:
    return importlib.import_module("jax.lax")


def nn() -> Any:
    return importlib.import_module("jax.nn")


def torch() -> Any:
    return importlib.import_module("torch")


# Products


def _product(type: str, m: int, n: int, k: int) -> None:
    result = np.int32 if type == "s8" else None
    add(
        f"product {type} {m} x {k} x {n}",
        random((m, k), (k, n), type=type),
        lambda a, b: jnp().matmul(a, b, preferred_element_type=result),
        torch=(lambda a, b: torch()._int_mm(a, b)) if type == "s8" else (lambda a, b: a @ b),
        numpy=(lambda a, b: a @ b) if type in ("f32", "f64") else None,
        least=Work(2.0 * m * n * k, reads=FLOATS * (m + n) * k, writes=FLOATS * m * n) if type == "f32" else None,
        tolerance=2e-2 if type == "bf16" else 1e-4,
    )


for size in (64, 256, 500, 1024, 2048):
    _product("f32", size, size, size)
for columns, steps in ((3072, 768), (768, 3072)):
    _product("f32", 512, columns, steps)
for size in (256, 1024):
    _product("bf16", size, size, size)
_product("f64", 1024, 1024, 1024)
_product("s8", 512, 2048, 2048)
add_alike(
    "product of batches 64 x 128 x 128 x 64",
    random((64, 128, 64), (64, 64, 128)),
    lambda a, b: a @ b,
    least=Work(2.0 * 64 * 128 * 128 * 64, reads=64 * FLOATS * 2 * 128 * 64, writes=64 * FLOATS * 128**2),
)
add_alike(
    "matrix times vector 4096",
    random((4096, 4096), (4096,)),
    lambda a, b: a @ b,
    least=Work(reads=FLOATS * 4096**2),
)


def _weights(type: str, rows: int, size: int) -> None:
    """Registers a product with quantised weights, stored with K last, with a scale for each column."""
    dtype = np.dtype({"s8": np.int8, "f8": ml_dtypes.float8_e4m3fn}[type])

    def arrays(rng: np.random.Generator) -> list[Array]:
        weights = rng.integers(-100, 100, (size, size)).astype(dtype)
        return [rng.standard_normal((rows, size), np.float32), weights, rng.random(size, np.float32)]

    add(
        f"weights {type} {rows} x {size} x {size}",
        arrays,
        lambda x, w, scales: x @ (w.astype(x.dtype) * scales[:, None]).T,
        torch=(lambda x, w, scales: torch()._weight_int8pack_mm(x, w, scales)) if type == "s8" else None,
        least=Work(operations=2.0 * rows * size**2, reads=float(size**2)),
    )


GROUP = 32
"""Weights of 4 bits along K that share a scale."""


def _packed_weights(rows: int, size: int) -> None:
    """Registers a product with weights of 4 bits, two in a byte, stored with K last, and scales of groups."""

    def arrays(rng: np.random.Generator) -> list[Array]:
        packed = rng.integers(0, 256, (size, size // 2), np.uint8)
        return [rng.standard_normal((rows, size), np.float32), packed, rng.random((size, size // GROUP), np.float32)]

    def through_jax(x: Array, packed: Array, scales: Array) -> Array:
        codes = jnp().stack([packed & 15, packed >> 4], -1).reshape(size, size // GROUP, GROUP)
        return x @ ((codes.astype(x.dtype) - 8) * scales[:, :, None]).reshape(size, size).T

    @functools.cache
    def in_torchs_order(packed: Array, scales: Array) -> tuple[Array, Array]:
        codes = torch().stack([packed & 15, packed >> 4], -1).reshape(size, size).int()
        zeros = torch().zeros_like(scales)
        return torch()._convert_weight_to_int4pack_for_cpu(codes, 2), torch().stack(
            [scales.T, zeros.T], -1
        ).contiguous()

    def through_torch(x: Array, packed: Array, scales: Array) -> Array:
        weights, scales_and_zeros = in_torchs_order(packed, scales)
        return torch()._weight_int4pack_mm_for_cpu(x, weights, GROUP, scales_and_zeros)

    add(
        f"weights of 4 bits {rows} x {size} x {size}",
        arrays,
        through_jax,
        torch=through_torch,
        least=Work(operations=2.0 * rows * size**2, reads=size**2 * (0.5 + FLOATS / GROUP)),
    )


for kind in ("s8", "f8"):
    for few in (1, 8, 64):
        _weights(kind, few, 4096)
_weights("s8", 1, 8192)
for few in (1, 8):
    _packed_weights(few, 4096)
_packed_weights(1, 8192)
add(
    "product s8 1 x 4096 x 4096",
    random((1, 4096), (4096, 4096), type="s8"),
    lambda a, b: lax().dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=np.int32),
    torch=lambda a, b: torch()._int_mm(a, b.T),
    least=Work(reads=4096.0**2),
)


# Attention


def _attention(length: int, causal: bool) -> None:
    heads = max(1, 4096 // length)
    scores = heads * (length * (length + 1) / 2 if causal else length**2)

    def through_jax(q: Array, k: Array, v: Array) -> Array:
        transposed = [x.swapaxes(1, 2) for x in (q, k, v)]
        attention = nn().dot_product_attention
        return attention(*transposed, is_causal=causal).swapaxes(1, 2)

    add(
        f"{'causal ' if causal else ''}attention, {heads} x {length}",
        random(*[(1, heads, length, 64)] * 3),
        through_jax,
        torch=lambda *x: torch().nn.functional.scaled_dot_product_attention(*x, is_causal=causal),
        least=Work(4.0 * 64 * scores, sums=(EXPONENTIAL + 3) * scores),
    )


for is_causal in (False, True):
    for tokens in (128, 512, 2048, 8192):
        _attention(tokens, is_causal)


def _one_query(type: str, length: int, heads: int) -> None:
    """Registers attention of one token to a cache of narrow numbers, with a scale for each token and head."""
    dtype = np.dtype({"s8": np.int8, "f8": ml_dtypes.float8_e4m3fn}[type])

    def arrays(rng: np.random.Generator) -> list[Array]:
        cache = [rng.integers(-100, 100, (length, heads, 128)).astype(dtype) for _ in range(2)]
        scales = [rng.random((length, heads), np.float32) / 100 for _ in range(2)]
        return [rng.standard_normal((heads, 128), np.float32), *cache, *scales]

    def function(q: Array, k: Array, v: Array, of_k: Array, of_v: Array) -> Array:
        scores = jnp().einsum("hd,shd->hs", q, k.astype(q.dtype) * of_k[:, :, None])
        return jnp().einsum("hs,shd->hd", nn().softmax(scores / 128**0.5), v.astype(q.dtype) * of_v[:, :, None])

    add(
        f"attention of one query to {length} in {type}, {heads} heads",
        arrays,
        function,
        least=Work(reads=2.0 * length * heads * (128 + FLOATS)),
    )


for kind in ("s8", "f8"):
    _one_query(kind, 4096, 32)


# Fourier transforms


def _transform(*sizes: int) -> None:
    count = math.prod(sizes)
    add(
        f"FFT c64 {' x '.join(map(str, sizes))}",
        random(sizes, type="c64"),
        lambda x: jnp().fft.fftn(x),
        torch=lambda x: torch().fft.fftn(x),
        numpy=lambda x: importlib.import_module("scipy.fft").fftn(x, workers=-1),
        least=Work(sums=4 * count * math.log2(count), reads=8 * count, writes=8 * count),
    )


for lengths in ((1 << 10,), (3**7,), (1009,), (1 << 16,), (1 << 20,), (1 << 22,), (1024, 1024), (64, 64, 64)):
    _transform(*lengths)


# Elements, reductions, data movement


def _softmax(x: Array) -> Array:
    return nn().softmax(x)


def _layer_norm(x: Array, a: Array, b: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax().rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * a + b


add(
    "a x + y, 16M",
    random((1 << 24,), (1 << 24,)),
    lambda x, y: 2 * x + y,
    torch=lambda x, y: torch().add(y, x, alpha=2),
    numpy=lambda x, y: 2 * x + y,
    least=Work(reads=2 * FLOATS * (1 << 24), writes=FLOATS * (1 << 24)),
)
add(
    "gelu, 4M",
    random((1 << 22,)),
    lambda x: nn().gelu(x),
    torch=lambda x: torch().nn.functional.gelu(x, approximate="tanh"),
    least=Work(
        sums=(EXPONENTIAL + 8) * (1 << 22), divisions=1 << 22, reads=FLOATS * (1 << 22), writes=FLOATS * (1 << 22)
    ),
)
add(
    "softmax 4096 x 1024",
    random((4096, 1024)),
    _softmax,
    torch=lambda x: torch().softmax(x, -1),
    least=Work(
        sums=(EXPONENTIAL + 3) * (1 << 22), divisions=1 << 22, reads=FLOATS * (1 << 22), writes=FLOATS * (1 << 22)
    ),
)
add(
    "layer normalisation 4096 x 1024",
    random((4096, 1024), (1024,), (1024,)),
    _layer_norm,
    torch=lambda x, a, b: torch().nn.functional.layer_norm(x, (1024,), a, b),
    least=Work(reads=FLOATS * (1 << 22), writes=FLOATS * (1 << 22)),
)
add_alike(
    "sum, 16M",
    random((1 << 24,)),
    lambda x: x.sum(),
    least=Work(reads=FLOATS * (1 << 24)),
)
add_alike(
    "sums of columns 4096 x 4096",
    random((4096, 4096)),
    lambda x: x.sum(0),
    least=Work(reads=FLOATS * (1 << 24)),
)
add_alike(
    "largest of rows 4096 x 4096",
    random((4096, 4096)),
    lambda x: x.argmax(1),
    least=Work(reads=FLOATS * (1 << 24)),
)
add(
    "running sums, 1M",
    random((1 << 20,)),
    lambda x: jnp().cumsum(x),
    torch=lambda x: x.cumsum(0),
    numpy=lambda x: x.cumsum(),
    least=Work(reads=FLOATS * (1 << 20), writes=FLOATS * (1 << 20)),
    tolerance=1e-3,
)
add(
    "transpose 4096 x 4096",
    random((4096, 4096)),
    lambda x: x.T,
    torch=lambda x: x.T.contiguous(),
    numpy=lambda x: np.ascontiguousarray(x.T),
    least=Work(reads=FLOATS * (1 << 24), writes=FLOATS * (1 << 24)),
)
add(
    "sort, 1M",
    random((1 << 20,)),
    lambda x: jnp().sort(x),
    torch=lambda x: x.sort()[0],
    numpy=lambda x: np.sort(x),
)
add(
    "order of a sort, 1M",
    random((1 << 20,)),
    lambda x: jnp().argsort(x),
    torch=lambda x: x.argsort(stable=True),
    numpy=lambda x: x.argsort(kind="stable"),
)
add("top 64 of 1M", random((1 << 20,)), lambda x: lax().top_k(x, 64)[0], torch=lambda x: x.topk(64)[0])


READ_ROWS_BYTES = FLOATS * 200_000 * (64 + 1)
"""Bytes of rows that are read in any order, each time, and of their numbers: the cache of a core holds few of the rows,
and nearly all of them come from farther away as often as they are read."""


def _rows(rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((100_000, 64)).astype(np.float32), rng.integers(0, 100_000, 200_000).astype(np.int32)]


add(
    "rows by their numbers, 200k of 64",
    _rows,
    lambda x, i: x[i],
    torch=lambda x, i: x.index_select(0, i),
    numpy=lambda x, i: x.take(i, 0),
    least=Work(reads=READ_ROWS_BYTES, writes=FLOATS * 200_000 * 64),
)
add(
    "sums by rows' numbers, 200k of 64",
    _rows,
    lambda x, i: jnp().zeros_like(x).at[i].add(x[: len(i) // 2].repeat(2, 0)),
    torch=lambda x, i: torch().zeros_like(x).index_add_(0, i, x[: len(i) // 2].repeat_interleave(2, 0)),
    least=Work(reads=READ_ROWS_BYTES, writes=FLOATS * 100_000 * 64),
)


# Convolutions


def _convolution(channels: int, size: int, groups: int) -> None:
    outputs = 8 * size**2 * channels
    products = 9 if groups > 1 else 4  # of each output: Winograd's method takes 16 for four
    add(
        f"{'depthwise ' if groups > 1 else ''}convolution 8 x {size} x {size} x {channels}, 3 x 3",
        random((8, channels, size, size), (channels, channels // groups, 3, 3)),
        lambda x, k: lax().conv_general_dilated(x, k, (1, 1), "SAME", feature_group_count=groups),
        torch=lambda x, k: torch().nn.functional.conv2d(x, k, padding=1, groups=groups),
        least=Work(2 * outputs * channels // groups * products, reads=FLOATS * outputs, writes=FLOATS * outputs),
    )


_convolution(64, 56, 1)
_convolution(256, 14, 1)
_convolution(64, 56, 64)
add(
    "largest of windows 8 x 64 x 112 x 112, 2 x 2",
    random((8, 64, 112, 112)),
    lambda x: lax().reduce_window(x, -np.inf, lax().max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
    torch=lambda x: torch().nn.functional.max_pool2d(x, 2),
    least=Work(reads=FLOATS * 8 * 64 * 112 * 112, writes=FLOATS * 8 * 64 * 56 * 56),
)


# Linear algebra


def _positive(*sizes: int) -> Callable[[np.random.Generator], list[Array]]:
    def arrays(rng: np.random.Generator) -> list[Array]:
        x = rng.standard_normal(sizes)
        return [(x @ x.swapaxes(-1, -2) / sizes[-1] + np.eye(sizes[-1])).astype(np.float32)]

    return arrays


def _factors(*sizes: int) -> None:
    name, order = " x ".join(map(str, sizes)), sizes[-1]
    count = math.prod(sizes) // order**2
    each = FLOATS * math.prod(sizes)
    add(
        f"Cholesky {name}",
        _positive(*sizes),
        lambda a: jnp().linalg.cholesky(a),
        torch=lambda a: torch().linalg.cholesky(a),
        numpy=lambda a: np.linalg.cholesky(a),
        least=Work(count * order**3 / 3, divisions=count * order, roots=count * order, reads=each, writes=each),
    )
    add(
        f"solve {name}",
        _positive(*sizes),
        lambda a: jnp().linalg.solve(a, a[..., :1]),
        torch=lambda a: torch().linalg.solve(a, a[..., :1]),
        numpy=lambda a: np.linalg.solve(a, a[..., :1]),
        least=Work(count * order**3 * 2 / 3, divisions=count * order, reads=each),
    )


_factors(512, 512)
_factors(10_000, 4, 4)
_factors(1000, 16, 16)
add(
    "distances of 2048 points",
    random((2048, 3)),
    lambda x: jnp().sqrt(((x[:, None] - x[None]) ** 2).sum(-1)),
    torch=lambda x: torch().cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"),
    numpy=lambda x: importlib.import_module("scipy.spatial.distance").cdist(x, x),
    least=Work(roots=2048**2, writes=FLOATS * 2048**2),
)
