"""Custom-call targets that XLA defines, and those of JAX that are not LAPACK routines."""

from __future__ import annotations

import functools
from typing import NoReturn

import numpy as np

from hloom.errors import RunError
from hloom.ops.custom_call import (
    CONTROL_DEPENDENCY,
    MARKERS,
    PAD_TO_STATIC,
    REFUSE_SIZES,
    SHARD_MARKERS,
    SLICE_TO_DYNAMIC,
    TOP_K_TARGETS,
    slice_size_rule,
)
from hloom.ops.sort import top_k
from hloom.runtime.custom_calls import lapack
from hloom.runtime.custom_calls.registry import declare_target
from hloom.runtime.custom_calls.signature import CLAUSE, Attribute, Binding, Signature
from hloom.types import PrimitiveType
from hloom.values import Array

_ORDERED = tuple(t for t in PrimitiveType if t.is_array and not t.is_complex)
TOP_K = Signature(
    "x: T[*, n] -> values: T[*, k], indices: s32[*, k]",
    _ORDERED,
    relations=("k <= n",),
    attributes={"largest": Attribute(True)},
    is_dynamic=True,
)

_FACTORED = tuple(getattr(PrimitiveType, name) for name in ("F16", "BF16", "F32", "F64", "C64", "C128"))
_LAPACK = tuple(lapack.TYPES.values())
_ANY = tuple(t for t in PrimitiveType if t.is_array)
_ARITHMETIC = tuple(t for t in _ANY if not t.is_pred)
_EIGH = {
    "lower": Attribute(False),
    "sort": Attribute(False),
    "max_iter": Attribute(range(2**31)),
    "tol": Attribute(0.0),
}


@functools.cache
def declare() -> None:
    """Declares all targets of this module, once."""
    for name in MARKERS:
        declare_target(name, Signature("x: S -> x: S", is_dynamic=True), lambda binding, operand: operand)
    for name in SHARD_MARKERS:
        declare_target(name, Signature("x: _ -> part: _", is_dynamic=True), lambda binding, operand: operand)
    declare_target(CONTROL_DEPENDENCY, Signature("x: _^any ->", is_dynamic=True), lambda binding, *operands: ())
    padded = Signature("x: T[*] -> padded: T[*], sizes: s32[]^rank", _ANY, is_dynamic=True)
    declare_target(PAD_TO_STATIC, padded, _pad_to_static)
    sliced = Signature("x: T[*], sizes: s32[]^rank -> sliced: T[*]", _ANY, is_dynamic=True)
    declare_target(SLICE_TO_DYNAMIC, sliced, _slice_to_dynamic)
    declare_target(REFUSE_SIZES, Signature("size: s32[] -> size: s32[]"), _refuse_sizes)
    for name in TOP_K_TARGETS:
        declare_target(name, TOP_K, _top_k)
    declare_target("AllocateBuffer", Signature("-> buffer: T[*]", _ANY), _allocate)
    declare_linear_algebra()


def declare_linear_algebra() -> None:
    """Declares the targets of XLA's client library, and those of JAX without a LAPACK routine."""
    for name, signature, function in (
        ("Qr", "a: T[*, m, n] -> packed: T[*, m, n], tau: T[*, min(m, n)]", _qr),
        ("LuDecomposition", "a: T[*, m, n] -> lu: T[*, m, n], pivots: s32[*, min(m, n)], permutation: s32[*, m]", _lu),
    ):
        declare_target(name, Signature(signature, _FACTORED), function)
    reflectors = "a: T[*, m, n], tau: T[*, k] -> q: T[*, m, n]"
    product = Signature(reflectors, _FACTORED, relations=("k <= n <= m",))
    declare_target("ProductOfElementaryHouseholderReflectors", product, _householder_product)
    eigen = "a: T[*, n, n] -> v: T[*, n, n], w: real(T)[*, n]"
    declare_target("Eigh", Signature(eigen, _FACTORED, attributes=_EIGH, positional=tuple(_EIGH)), _eigh)
    diagonals = "lower: T[*, n], diagonal: T[*, n], upper: T[*, n], b: T[*, n, k] -> x: T[*, n, k]"
    declare_target("tridiagonal_solve_perturbed_ffi", Signature(diagonals, _LAPACK), _tridiagonal_solve_perturbed)
    rows = "data: T[z], starts: s32[r + 1], columns: s32[z], dense: T[c, *] -> product: T[r, *]"
    sparse = Signature(rows, _ARITHMETIC, relations=("rank <= 1",))
    declare_target("cpu_csr_sparse_dense_ffi", sparse, _csr_times_dense)


def _pad_to_static(binding: Binding, operand: Array) -> Array | tuple[Array, ...]:
    padded = np.zeros(binding.results["padded"][1].dimensions, operand.dtype)
    padded[tuple(map(slice, operand.shape))] = operand
    return (padded, *(np.asarray(n, np.int32) for n in operand.shape)) if operand.ndim else padded


def _slice_to_dynamic(binding: Binding, operand: Array, *sizes: Array) -> Array:
    dynamic = binding.results["sliced"][1].dynamic_dimensions
    for d, (size, bound, is_dynamic) in enumerate(zip(sizes, operand.shape, dynamic, strict=True)):
        if not (0 if is_dynamic else bound) <= size <= bound:
            raise RunError(f"{slice_size_rule(d, bound, is_dynamic)}, got {int(size)}")
    return operand[tuple(slice(int(size)) for size in sizes)].copy()


def _refuse_sizes(binding: Binding, size: Array) -> Array:
    raise RunError(f"{binding.config}, got {int(size)}")


def _top_k(binding: Binding, operand: Array) -> tuple[Array, Array]:
    return top_k(operand, binding.sizes["k"], largest=binding.attributes["largest"])


def _allocate(binding: Binding) -> Array:
    shape = binding.results["buffer"][1]
    return np.zeros(shape.dimensions, shape.element_type.dtype)


def _computable(*arrays: Array) -> tuple[Array, ...]:
    """Converts narrow floats to f32, since LAPACK has no routines for them."""
    is_supported = any(arrays[0].dtype == kind.dtype for kind in _LAPACK)
    return arrays if is_supported else tuple(array.astype(np.float32) for array in arrays)


def _qr(binding: Binding, operand: Array) -> tuple[Array, Array]:
    """R on and above the diagonal, reflectors below it, and the factors of the reflectors (LAPACK's geqrf)."""
    (a,) = _computable(operand)
    shapes = [(a.shape, a.dtype), ((*a.shape[:-2], min(a.shape[-2:])), a.dtype)]
    packed, factors = lapack.call("geqrf", (a,), shapes)
    return packed.astype(operand.dtype), factors.astype(operand.dtype)


def _householder_product(binding: Binding, reflectors: Array, factors: Array) -> Array:
    a, tau = _computable(reflectors, factors)
    (q,) = lapack.call("orgqr", (a, tau), [(a.shape, a.dtype)])
    return q.astype(reflectors.dtype)


def _lu(binding: Binding, operand: Array) -> tuple[Array, Array, Array]:
    """L and U in one matrix, the swapped rows, counted from 0, and the resulting permutation."""
    (a,) = _computable(operand)
    *batch, m, n = a.shape
    k = min(m, n)
    shapes = [(a.shape, a.dtype), ((*batch, k), np.int32), (tuple(batch), np.int32)]
    lu, pivots, _ = lapack.call("getrf", (a,), shapes)
    permutation = np.broadcast_to(np.arange(m, dtype=np.int32), (*batch, m)).copy()
    for index in np.ndindex(*batch):
        for row, other in enumerate(pivots[index] - 1):
            permutation[index][[row, other]] = permutation[index][[other, row]]
    return lu.astype(operand.dtype), pivots - 1, permutation


def _eigh(binding: Binding, operand: Array) -> tuple[Array, Array]:
    """Eigenvectors as columns, and eigenvalues in ascending order, which is valid if no order is requested.

    Matrices that are not finite, and those for which LAPACK does not converge, have NaN.
    """
    (a,) = _computable(operand)
    finite = np.asarray(np.isfinite(a).all(axis=(-2, -1)))
    masked = np.where(finite[..., None, None], a, 0).astype(a.dtype)
    real = np.empty(0, a.dtype).real.dtype
    shapes = [(a.shape, a.dtype), (a.shape[:-1], real), (a.shape[:-2], np.int32)]
    config = f"{{uplo = {ord('L' if binding.attributes['lower'] else 'U')} : ui8}}"
    v, w, info = lapack.call("syevd", (masked,), shapes, config)
    is_valid = finite & (info == 0)
    v, w = np.where(is_valid[..., None, None], v, np.nan), np.where(is_valid[..., None], w, np.nan)
    return v.astype(operand.dtype), w.astype(binding.results["w"][1].element_type.dtype)


def _tridiagonal_solve_perturbed(binding: Binding, lower: Array, diagonal: Array, upper: Array, b: Array) -> Array:
    """Gaussian elimination with pivoting; pivots of zero are replaced by the rounding error of the matrix.

    All matrices of the batch are eliminated together. A row keeps three elements, since a swap adds one to the right of
    the diagonal: `rows[.., i, :]` are those in columns i to i + 2 once row i is done.
    """
    n = diagonal.shape[-1]
    scale = np.max(np.abs(np.stack([lower, diagonal, upper])), axis=(0, -1), initial=0)
    smallest = np.finfo(diagonal.dtype).eps * np.where(scale == 0, 1, scale)
    rows = np.zeros((*diagonal.shape, 3), diagonal.dtype)
    rows[..., 0], rows[..., :-1, 1] = diagonal, upper[..., :-1]
    right = b.copy()
    for i in range(n):
        if i + 1 < n:
            _eliminate(rows, right, lower, i, smallest)
        else:
            rows[..., i, 0] = _not_zero(rows[..., i, 0], smallest)
    for i in range(n - 1, -1, -1):
        for offset in (1, 2):
            if i + offset < n:
                right[..., i, :] -= rows[..., i, offset, None] * right[..., i + offset, :]
        right[..., i, :] /= rows[..., i, 0, None]
    return right


def _eliminate(rows: Array, right: Array, lower: Array, i: int, smallest: Array) -> None:
    """Clears the element below the diagonal in column i, after swapping rows i and i + 1 if that element is larger."""
    here, below = rows[..., i, :].copy(), np.zeros_like(rows[..., i, :])
    below[..., 0], below[..., 1:] = lower[..., i + 1], rows[..., i + 1, :2]
    swap = (np.abs(below[..., 0]) > np.abs(here[..., 0]))[..., None]
    here, below = np.where(swap, below, here), np.where(swap, here, below)
    right_here, right_below = right[..., i, :].copy(), right[..., i + 1, :].copy()
    right[..., i, :] = np.where(swap, right_below, right_here)
    right_below = np.where(swap, right_here, right_below)
    here[..., 0] = _not_zero(here[..., 0], smallest)
    factor = (below[..., 0] / here[..., 0])[..., None]
    rows[..., i, :] = here
    rows[..., i + 1, :2] = below[..., 1:] - factor * here[..., 1:]
    right[..., i + 1, :] = right_below - factor * right[..., i, :]


def _not_zero(pivot: Array, smallest: Array) -> Array:
    return np.where(np.abs(pivot) < smallest, np.where(pivot.real < 0, -smallest, smallest), pivot).astype(pivot.dtype)


def _csr_times_dense(binding: Binding, data: Array, starts: Array, columns: Array, dense: Array) -> Array:
    """Multiplies a matrix in compressed sparse rows by a vector or matrix; in f32 for narrow element types."""
    import scipy.sparse

    rows, inside = binding.sizes["r"], dense.shape[0]
    ends = np.concatenate([[0], starts, [len(data)]])
    if (np.diff(ends) < 0).any():
        _reject_rows(f"starts ascend from 0 to at most {len(data)}, got {_range_of(starts)}")
    first, last = int(starts[0]), int(starts[-1])
    columns = columns[first:last]
    if columns.size and not 0 <= columns.min() <= columns.max() < inside:
        _reject_rows(f"columns are from 0 to {inside - 1}, got {_range_of(columns)}")
    narrow = data.dtype.kind not in "biufc" or (data.dtype.itemsize == 2 and data.dtype.kind == "f")
    wide = np.dtype(np.float32) if narrow else data.dtype
    matrix = scipy.sparse.csr_matrix((data[first:last].astype(wide), columns, starts - first), shape=(rows, inside))
    return (matrix @ dense.astype(wide)).astype(data.dtype)


def _reject_rows(message: str) -> NoReturn:
    raise RunError(f"'cpu_csr_sparse_dense_ffi' [{CLAUSE}]: {message}")


def _range_of(values: Array) -> str:
    """The range of an index array's values, for error messages."""
    return f"values from {values.min()} to {values.max()}" if values.size else "none"
