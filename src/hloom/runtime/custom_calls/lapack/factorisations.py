"""LAPACK's factorisations, and solutions of systems: Cholesky, LU, QR, triangular and tridiagonal systems.

Two targets are hloom's own: passes lower several calls to one of them, and compiled programs have loops for them.
"""

from __future__ import annotations

import numpy as np

from hloom.ops.linear_algebra import substitute
from hloom.runtime.custom_calls.lapack.targets import INT, Arguments, Batch, call, target
from hloom.runtime.custom_calls.signature import Binding
from hloom.values import Array


@target("potrf", "a: T[*, n, n] -> factor: T[*, n, n], info: s32[*]", uplo="LU")
def _potrf(b: Batch) -> Arguments:
    """Factorises the transpose, whose other triangle is given: conj(a) = conj(l) conj(l)^H."""
    n, uplo = b.size("n"), b.attributes["uplo"]
    return ("U" if uplo == "L" else "L", n, b.updated("a", "factor"), max(1, n), b.info("factor"))


@target(
    "trsm",
    "a: T[*, p, p], b: T[*, m, n] -> x: T[*, m, n]",
    where={"p": "m if side == 'L' else n"},
    side="LR",
    uplo="LU",
    trans_x="NTC",
    diag="NU",
)
def _trsm(b: Batch) -> Arguments:
    """Solves the transposed equation: op(a) x = b becomes x^T op(a^T) = b^T, with the other side and triangle."""
    side, uplo, *kind = (b.attributes[name] for name in ("side", "uplo", "trans_x", "diag"))
    m, n, order = b.sizes("m n p")
    mirrored = "R" if side == "L" else "L", "U" if uplo == "L" else "L"
    a, x = b.operand("a"), b.updated("b", "x")
    return (*mirrored, *kind, n, m, b.dtype.type(1), a, max(1, order), x, max(1, n))


@target("getrf", "a: T[*, m, n] -> lu: T[*, m, n], pivots: s32[*, min(m, n)], info: s32[*]")
def _getrf(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    return (m, n, b.columns("a", "lu"), max(1, m), b.result("pivots"), b.info())


@target("cholesky", "a: T[*, n, n] -> l: T[*, n, n]", relations=("1 <= n",), symmetric=False, whole=False)
def _cholesky(b: Batch) -> Arguments:
    """Has arguments for hloom alone: whether the mean of a matrix and its transpose is factored, and whether the whole
    factor, instead of its triangle, is NaN if there is none.
    """
    return (np.int32(b.attributes["symmetric"]), np.int32(b.attributes["whole"]))


def cholesky_target(binding: Binding, a: Array) -> Array:
    """Returns the lower factor, with zeros in the other triangle."""
    symmetric, whole = (binding.attributes[name] for name in ("symmetric", "whole"))
    given = (a + np.swapaxes(a, -1, -2)) * a.dtype.type(0.5) if symmetric else a
    factor, info = call("potrf", (given,), [(a.shape, a.dtype), (a.shape[:-2], INT)], f"{{uplo = {ord('L')} : ui8}}")
    triangle = np.tril(np.ones(a.shape[-2:], bool))
    fails = (info != 0)[..., None, None] & (triangle | whole)
    return np.where(fails, np.nan, np.where(triangle, factor, 0)).astype(a.dtype)


MAX_SOLVED = 16
"""Unknowns of the largest systems that are solved without LAPACK."""


@target(
    "gesv",
    "a: T[*, n, n], b: T[*, n, k] -> x: T[*, n, k]",
    relations=(f"1 <= n <= {MAX_SOLVED}", f"1 <= k <= {MAX_SOLVED}"),
)
def _gesv(b: Batch) -> Arguments:
    """Has no arguments: compiled programs solve the systems themselves."""
    return ()


def gesv_target(binding: Binding, a: Array, b: Array) -> Array:
    """Solves a x = b as getrf, laswp and trsm do: unlike LAPACK's routine, also with a pivot of zero, to infinities or
    NaN.
    """
    sizes = a.shape[:-1]
    lu, pivots, _ = call("getrf", (a,), [(a.shape, a.dtype), (sizes, INT), (sizes[:-1], INT)])
    rows = np.broadcast_to(np.arange(sizes[-1], dtype=a.dtype), sizes)
    (order,) = call("laswp", (rows, pivots), [(sizes, a.dtype)])
    x = np.take_along_axis(b, order[..., None].astype(INT), -2)
    return substitute(lu, substitute(lu, x, lower=True, unit_diagonal=True), lower=False, unit_diagonal=False)


@target("laswp", "a: T[*, m], pivots: s32[*, k] -> swapped: T[*, m]", relations=("k <= m",))
def _laswp(b: Batch) -> Arguments:
    """Swaps the elements of a vector: applied to row indices, it gives the permutation of getrf."""
    m, k = b.sizes("m k")
    return (1, b.updated("a", "swapped"), max(1, m), 1, k, b.operand("pivots", bounds=(1, m)), 1)


@target("geqrf", "a: T[*, m, n] -> packed: T[*, m, n], tau: T[*, min(m, n)]")
def _geqrf(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    return (m, n, b.columns("a", "packed"), max(1, m), b.result("tau"), b.work(), b.info())


@target(
    "geqp3",
    "a: T[*, m, n], columns: s32[*, n] -> packed: T[*, m, n], pivots: s32[*, n], tau: T[*, min(m, n)]",
)
def _geqp3(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    pivots, tau = b.updated("columns", "pivots"), b.result("tau")
    return (m, n, b.columns("a", "packed"), max(1, m), pivots, tau, b.work(), *b.real_work(2 * n), b.info())


@target("orgqr", "a: T[*, m, n], tau: T[*, k] -> q: T[*, m, n]", relations=("k <= n <= m",))
def _orgqr(b: Batch) -> Arguments:
    m, n, k = b.sizes("m n k")
    return (m, n, k, b.columns("a", "q"), max(1, m), b.operand("tau"), b.work(), b.info())


@target(
    "ormqr",
    "a: T[*, r, p], tau: T[*, k], c: T[*, m, n] -> product: T[*, m, n]",
    where={"r": "m if left else n"},
    relations=("k <= p", "k <= r"),
    left=True,
    transpose=False,
)
def _ormqr(b: Batch) -> Arguments:
    m, n, k, rows = b.sizes("m n k r")
    adjoint = "C" if b.is_complex else "T"
    kind = ("L" if b.attributes["left"] else "R", adjoint if b.attributes["transpose"] else "N")
    a, c = b.columns("a", None), b.columns("c", "product")
    return (*kind, m, n, k, a, max(1, rows), b.operand("tau"), c, max(1, m), b.work(), b.info())


@target(
    "gtsv",
    "lower: T[*, n], diagonal: T[*, n], upper: T[*, n], b: T[*, n, k]"
    " -> dl: T[*, n], d: T[*, n], du: T[*, n], x: T[*, n, k], info: s32[*]",
)
def _gtsv(b: Batch) -> Arguments:
    """Skips the first element of the lower diagonal, which LAPACK's array does not have."""
    n, right_sides = b.sizes("n k")
    lower, d, upper = b.updated("lower", "dl", offset=1), b.updated("diagonal", "d"), b.updated("upper", "du")
    return (n, right_sides, lower, d, upper, b.columns("b", "x"), max(1, n), b.info())
