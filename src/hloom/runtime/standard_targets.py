"""Custom-call targets that XLA itself gives a meaning to, and those of JAX that are no LAPACK."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hloom.errors import RunError
from hloom.ops.custom_call import CONTROL_DEPENDENCY, PAD_TO_STATIC, REFUSE_SIZES, SLICE_TO_DYNAMIC
from hloom.ops.sort import top_k
from hloom.runtime import lapack
from hloom.runtime.custom_calls import CustomCallSite, declare_target
from hloom.values import Array

MARKERS = (
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "xla.sdy.FuncResultSharding",
    "annotate_device_placement",
    "LayoutConstraint",
    "MoveToHost",
    "MoveToDevice",
    "ShardBarrierFrom",
    "ShardBarrierTo",
)
"""Targets that say something about their operand to a compiler, and hand it on."""


TOP_K_TARGETS = frozenset({"TopK", "mhlo.topk"})


@functools.cache
def declare() -> None:
    """Declares all targets of this module; once."""
    for name in MARKERS:
        declare_target(name, lambda operand: operand)
    declare_target(CONTROL_DEPENDENCY, lambda *operands: ())
    declare_target(PAD_TO_STATIC, _pad_to_static, wants_site=True)
    declare_target(SLICE_TO_DYNAMIC, _slice_to_dynamic)
    declare_target(REFUSE_SIZES, _refuse_sizes, wants_site=True)
    for name in TOP_K_TARGETS:
        declare_target(name, _top_k, wants_site=True)
    declare_target("AllocateBuffer", _allocate, wants_site=True)
    declare_target("Qr", _qr)
    declare_target("ProductOfElementaryHouseholderReflectors", _householder_product)
    declare_target("LuDecomposition", _lu)
    declare_target("tridiagonal_solve_perturbed_ffi", _tridiagonal_solve_perturbed)
    declare_target("cpu_csr_sparse_dense_ffi", _csr_times_dense, wants_site=True)


def _pad_to_static(site: CustomCallSite, operand: Array) -> tuple[Array, ...]:
    missing = [(0, bound - n) for bound, n in zip(site.shape.elements[0].dimensions, operand.shape, strict=True)]
    return np.pad(operand, missing), *(np.asarray(n, np.int32) for n in operand.shape)


def _slice_to_dynamic(operand: Array, *sizes: Array) -> Array:
    return operand[tuple(slice(max(int(size), 0)) for size in sizes)].copy()


def _refuse_sizes(site: CustomCallSite, size: Array) -> Array:
    raise RunError(f"{site.backend_config}, got {int(size)}")


def _top_k(site: CustomCallSite, operand: Array) -> tuple[Array, Array]:
    return top_k(operand, site.shape.elements[0].dimensions[-1], largest=site.attributes.get("largest", True))


def _allocate(site: CustomCallSite) -> Array:
    return np.zeros(site.shape.dimensions, site.shape.element_type.dtype)


def _qr(a: Array) -> tuple[Array, Array]:
    """R above and reflectors below the diagonal, and the reflectors' factors (LAPACK's geqrf)."""
    shapes = [(a.shape, a.dtype), ((*a.shape[:-2], min(a.shape[-2:])), a.dtype)]
    packed, factors = lapack.call("geqrf", (a,), shapes)
    return packed, factors


def _householder_product(a: Array, tau: Array) -> Array:
    (q,) = lapack.call("orgqr", (a, tau), [(a.shape, a.dtype)])
    return q


def _lu(a: Array) -> tuple[Array, Array, Array]:
    """L and U in one matrix, the rows that were swapped, counted from 0, and the permutation that they make."""
    *batch, m, n = a.shape
    k = min(m, n)
    shapes = [(a.shape, a.dtype), ((*batch, k), np.int32), (tuple(batch), np.int32)]
    lu, pivots, _ = lapack.call("getrf", (a,), shapes)
    permutation = np.broadcast_to(np.arange(m, dtype=np.int32), (*batch, m)).copy()
    for index in np.ndindex(*batch):
        for row, other in enumerate(pivots[index] - 1):
            permutation[index][[row, other]] = permutation[index][[other, row]]
    return lu, pivots - 1, permutation


def _tridiagonal_solve_perturbed(lower: Array, diagonal: Array, upper: Array, b: Array) -> Array:
    """Gaussian elimination with pivoting; a pivot of zero becomes the least that can be told from zero beside the rest.

    All matrices of the batch go through the elimination together. A row keeps three elements, since a swap brings one
    more to the right of the diagonal: `rows[.., i, :]` are those in columns i to i + 2 once row i is done.
    """
    n = diagonal.shape[-1]
    scale = np.max(np.abs(np.stack([lower, diagonal, upper])), axis=(0, -1), initial=0)
    least = np.finfo(diagonal.dtype).eps * np.where(scale == 0, 1, scale)
    rows = np.zeros((*diagonal.shape, 3), diagonal.dtype)
    rows[..., 0], rows[..., :-1, 1] = diagonal, upper[..., :-1]
    right = b.copy()
    for i in range(n):
        if i + 1 < n:
            _eliminate(rows, right, lower, i, least)
        else:
            rows[..., i, 0] = _not_zero(rows[..., i, 0], least)
    for i in range(n - 1, -1, -1):
        for offset in (1, 2):
            if i + offset < n:
                right[..., i, :] -= rows[..., i, offset, None] * right[..., i + offset, :]
        right[..., i, :] /= rows[..., i, 0, None]
    return right


def _eliminate(rows: Array, right: Array, lower: Array, i: int, least: Array) -> None:
    """Clears the element below the diagonal in column i, after a swap of rows i and i + 1 where it is the larger."""
    here, below = rows[..., i, :].copy(), np.zeros_like(rows[..., i, :])
    below[..., 0], below[..., 1:] = lower[..., i + 1], rows[..., i + 1, :2]
    swap = (np.abs(below[..., 0]) > np.abs(here[..., 0]))[..., None]
    here, below = np.where(swap, below, here), np.where(swap, here, below)
    right_here, right_below = right[..., i, :].copy(), right[..., i + 1, :].copy()
    right[..., i, :] = np.where(swap, right_below, right_here)
    right_below = np.where(swap, right_here, right_below)
    here[..., 0] = _not_zero(here[..., 0], least)
    factor = (below[..., 0] / here[..., 0])[..., None]
    rows[..., i, :] = here
    rows[..., i + 1, :2] = below[..., 1:] - factor * here[..., 1:]
    right[..., i + 1, :] = right_below - factor * right[..., i, :]


def _not_zero(pivot: Array, least: Array) -> Array:
    return np.where(np.abs(pivot) < least, np.where(pivot.real < 0, -least, least), pivot).astype(pivot.dtype)


def _csr_times_dense(site: CustomCallSite, data: Array, starts: Array, columns: Array, dense: Array) -> Any:
    """A matrix in compressed sparse rows times a vector or matrix; in f32 where the elements are narrower floats."""
    import scipy.sparse

    narrow = data.dtype.kind not in "biufc" or (data.dtype.itemsize == 2 and data.dtype.kind == "f")
    wide = np.dtype(np.float32) if narrow else data.dtype
    shape = (len(starts) - 1, dense.shape[0])
    matrix = scipy.sparse.csr_matrix((data.astype(wide), columns, starts), shape=shape)
    return (matrix @ dense.astype(wide)).astype(site.shape.element_type.dtype)
