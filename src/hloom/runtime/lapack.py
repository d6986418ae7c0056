"""The custom-call targets that JAX's CPU lowering emits, through SciPy's LAPACK: `lapack_sgetrf_ffi` and its kin.

Each function takes logical matrices [.., m, n] (layouts are the caller's business) and gives what LAPACK gives:
pivots count from 1, `info` is an s32 for each matrix of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.errors import RunError
from hloom.ops.linear_algebra import substitute
from hloom.ops.operation import Array
from hloom.ops.sort import top_k
from hloom.runtime.custom_calls import CustomCallSite, register_custom_call

Routine = Callable[..., tuple[Any, ...]]

# (first letter, element type); symmetric routines of complex types have other names.
_LETTERS = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}


@functools.cache
def register() -> None:
    """Registers all targets; once."""
    for letter in _LETTERS:
        complex_type = letter in "cz"
        for name, function in _ROUTINES.items():
            if name in ("orgqr", "ormqr") and complex_type:
                name = "un" + name[2:]
            if name in ("syevd", "sytrd") and complex_type:
                name = "he" + name[2:]
            register_custom_call(f"lapack_{letter}{name}_ffi", _batched(function, letter), wants_site=True)
    register_custom_call("TopK", _top_k, wants_site=True)
    register_custom_call("tridiagonal_solve_perturbed_ffi", _tridiagonal_solve_perturbed)
    for name in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement"):
        register_custom_call(name, lambda operand: operand)


def _batched(function: Routine, letter: str) -> Callable[..., Any]:
    """Runs a routine on each matrix of a batch and stacks what it gives, in the declared element types."""

    def call(site: CustomCallSite, *operands: Array) -> Any:
        shapes = site.shape.elements if site.shape.is_tuple else (site.shape,)
        results = [np.zeros(shape.dimensions, shape.element_type.dtype) for shape in shapes]
        matrix_rank = 2 if function is not _gtsv else 1
        batch = operands[0].shape[: operands[0].ndim - matrix_rank]
        for index in np.ndindex(batch):
            values = function(letter, site, *(operand[index] for operand in operands))
            for result, value in zip(results, values, strict=False):
                result[index] = value
        return tuple(results) if site.shape.is_tuple else results[0]

    return call


def _lapack(letter: str, name: str) -> Any:
    import scipy.linalg.lapack

    routine = getattr(scipy.linalg.lapack, letter + name, None)
    if routine is None:
        raise RunError(f"SciPy has no LAPACK routine {letter}{name}")
    return routine


def _letter(site: CustomCallSite, name: str, default: str) -> str:
    """An attribute that holds a character code, as `uplo = 76 : ui8` does."""
    value = site.attributes.get(name, ord(default))
    return chr(value) if isinstance(value, int) else str(value)


def _potrf(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    factor, info = _lapack(letter, "potrf")(a, lower=_letter(site, "uplo", "L") == "L", clean=0)
    return factor, info


def _getrf(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    if not a.size:
        return a, np.zeros(0, np.int32), 0
    lu, pivots, info = _lapack(letter, "getrf")(a)
    return lu, pivots + 1, info


def _geqrf(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    if not a.size:
        return a, np.zeros(0, a.dtype), 0
    qr, tau, _, info = _lapack(letter, "geqrf")(a)
    return qr, tau, info


def _geqp3(letter: str, site: CustomCallSite, a: Array, pivots: Array) -> tuple[Any, ...]:
    qr, jpvt, tau, _, info = _lapack(letter, "geqp3")(a)
    return qr, jpvt, tau, info


def _orgqr(letter: str, site: CustomCallSite, a: Array, tau: Array) -> tuple[Any, ...]:
    if not a.size:
        return a, 0
    q, _, info = _lapack(letter, "ungqr" if letter in "cz" else "orgqr")(a, tau)
    return q, info


def _ormqr(letter: str, site: CustomCallSite, a: Array, tau: Array, c: Array) -> tuple[Any, ...]:
    routine = _lapack(letter, "unmqr" if letter in "cz" else "ormqr")
    side, trans = _letter(site, "side", "L"), _letter(site, "trans", "N")
    product, _, info = routine(side, trans, a, tau, c, max(1, 64 * max(c.shape)))
    return product, info


def _trsm(letter: str, site: CustomCallSite, a: Array, b: Array) -> tuple[Any, ...]:
    lower, unit = _letter(site, "uplo", "L") == "L", _letter(site, "diag", "N") == "U"
    trans, left = _letter(site, "trans_x", "N"), _letter(site, "side", "L") == "L"
    if trans != "N":
        a, lower = a.T, not lower
        if trans == "C":
            a = a.conj()
    if not left:
        a, b, lower = a.T, b.T, not lower
    x = substitute(a, b, lower, unit)
    return (x if left else x.T,)


def _gesdd(letter: str, site: CustomCallSite, a: Array, name: str = "gesdd") -> tuple[Any, ...]:
    mode = _letter(site, "mode", "A")
    u, s, vt, info = _lapack(letter, name)(a, compute_uv=mode != "N", full_matrices=mode == "A")
    if mode == "N":
        return (
            a,
            s,
            np.zeros(site.shape.elements[2].dimensions[-2:]),
            np.zeros(site.shape.elements[3].dimensions[-2:]),
            info,
        )
    return a, s, u, vt, info


def _gesvd(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    return _gesdd(letter, site, a, "gesvd")


def _syevd(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    routine = _lapack(letter, "heevd" if letter in "cz" else "syevd")
    if not a.size:
        return a, np.zeros(0), 0
    vectors_wanted = _letter(site, "mode", "V") == "V"
    w, v, info = routine(a, compute_v=vectors_wanted, lower=_letter(site, "uplo", "L") == "L")
    return v if vectors_wanted else a, w, info


def _geev(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    left, right = _letter(site, "compute_left", "V") == "V", _letter(site, "compute_right", "V") == "V"
    *w, vl, vr, info = _lapack(letter, "geev")(a, compute_vl=left, compute_vr=right)
    if letter in "sd":
        vl, vr = (_unpack_pairs(w[1], vectors) if wanted else 0 for vectors, wanted in ((vl, left), (vr, right)))
    return (*w, vl if left else 0, vr if right else 0, info)


def _unpack_pairs(imaginary: Array, vectors: Array) -> Array:
    """Complex eigenvectors from LAPACK's real form, in which a conjugate pair shares two columns."""
    result = vectors.astype(np.complex128)
    k = 0
    while k < len(imaginary):
        if imaginary[k] != 0 and k + 1 < len(imaginary):
            result[:, k] = vectors[:, k] + 1j * vectors[:, k + 1]
            result[:, k + 1] = vectors[:, k] - 1j * vectors[:, k + 1]
            k += 2
        else:
            k += 1
    return result


def _gees(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    vectors_wanted = _letter(site, "mode", "V") == "V"
    schur, sdim, *w, vectors, _, info = _lapack(letter, "gees")(lambda *_: False, a, compute_v=vectors_wanted)
    return (schur, vectors if vectors_wanted else 0, *w, sdim, info)


def _gehrd(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    low, high = site.attributes.get("low", 1), site.attributes.get("high", a.shape[0])
    ht, tau, info = _lapack(letter, "gehrd")(a, lo=low - 1, hi=high - 1)
    return ht, tau, info


def _sytrd(letter: str, site: CustomCallSite, a: Array) -> tuple[Any, ...]:
    routine = _lapack(letter, "hetrd" if letter in "cz" else "sytrd")
    reduced, d, e, tau, info = routine(a, lower=_letter(site, "uplo", "L") == "L")
    return reduced, d, e, tau, info


def _gtsv(letter: str, site: CustomCallSite, dl: Array, d: Array, du: Array, b: Array) -> tuple[Any, ...]:
    du2, d2, du3, x, info = _lapack(letter, "gtsv")(dl[1:], d, du[:-1], b)
    return dl, d2, du, x, info


def _tridiagonal_solve_perturbed(dl: Array, d: Array, du: Array, b: Array) -> Array:
    """Gaussian elimination without pivoting, zero pivots replaced by the least that the type can tell from zero."""
    tiny = np.finfo(d.dtype).eps * np.max(np.abs(np.stack([dl, d, du])), axis=(0, -1), keepdims=False)
    n = d.shape[-1]
    diagonal, right = d.copy(), b.copy()
    for i in range(n):
        if i:
            factor = dl[..., i] / diagonal[..., i - 1]
            diagonal[..., i] -= factor * du[..., i - 1]
            right[..., i, :] -= factor[..., None] * right[..., i - 1, :]
        diagonal[..., i] = np.where(diagonal[..., i] == 0, tiny, diagonal[..., i])
    for i in range(n - 1, -1, -1):
        if i + 1 < n:
            right[..., i, :] -= du[..., i, None] * right[..., i + 1, :]
        right[..., i, :] /= diagonal[..., i, None]
    return right


def _top_k(site: CustomCallSite, operand: Array) -> tuple[Array, Array]:
    return top_k(operand, site.shape.elements[0].dimensions[-1], largest=True)


_ROUTINES: dict[str, Routine] = {
    "potrf": _potrf,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "geqp3": _geqp3,
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "trsm": _trsm,
    "gesdd": _gesdd,
    "gesvd": _gesvd,
    "syevd": _syevd,
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "sytrd": _sytrd,
    "gtsv": _gtsv,
}
