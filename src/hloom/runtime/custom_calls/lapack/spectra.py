"""LAPACK's eigenvalues and singular values, and the reductions of matrices that they begin with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hloom.runtime.custom_calls.fortran import ArrayArgument, Workspace, WorkspaceQuery
from hloom.runtime.custom_calls.lapack.targets import INT, Arguments, Batch, call, target
from hloom.runtime.custom_calls.signature import Binding
from hloom.values import Array

_SVD = "a: T[*, m, n] -> left: T[*, m, n], s: real(T)[*, min(m, n)], u: T[*, p, q], vt: T[*, r, c], info: s32[*]"
_SVD_SIZES = (
    "mode == 'N' or (p == m and q == (m if mode == 'A' else min(m, n)))",
    "mode == 'N' or (c == n and r == (n if mode == 'A' else min(m, n)))",
)


@target("gesdd", _SVD, relations=_SVD_SIZES, mode="ASN")
def _gesdd(b: Batch) -> Arguments:
    m, n = b.sizes("m n")
    k, mode = min(m, n), b.attributes["mode"]
    real = 7 * k if mode == "N" else k * max(5 * k + 7, 2 * max(m, n) + 2 * k + 1)
    return (mode, *_svd(b, finite=True), b.work(), *b.real_work(real), Workspace(INT, max(1, 8 * k)), b.info())


@target("gesvd", _SVD, relations=_SVD_SIZES, mode="ASN")
def _gesvd(b: Batch) -> Arguments:
    mode = b.attributes["mode"]
    return (mode, mode, *_svd(b), b.work(), *b.real_work(5 * min(b.sizes("m n"))), b.info())


def _svd(b: Batch, finite: bool = False) -> tuple[int | ArrayArgument | Workspace, ...]:
    """Arguments for tall matrices, for which LAPACK is faster; wide ones are transposed, a^T = (vt)^T s u^T."""
    m, n = b.sizes("m n")
    mode, s = b.attributes["mode"], b.result("s")
    rows, columns = (min(m, n),) * 2 if mode == "S" else (m, n)
    is_tall = m > n
    if mode != "N" and is_tall:
        u, vt = b.columns(None, "u"), b.columns(None, "vt")
    else:
        u, vt = b.result("u"), b.result("vt")
    if is_tall:
        return (m, n, replace(b.columns("a", "left"), finite=finite), m, s, u, m, vt, max(1, columns))
    a = replace(b.updated("a", "left"), finite=finite)
    return (n, m, a, max(1, n), s, vt, max(1, n), u, max(1, rows))


@target(
    "syevd",
    "a: T[*, n, n] -> vectors: T[*, n, n], w: real(T)[*, n], info: s32[*]",
    mode="VN",
    uplo="LU",
)
def _syevd(b: Batch) -> Arguments:
    n, kind = b.size("n"), (b.attributes["mode"], b.attributes["uplo"])
    real = (WorkspaceQuery(b.real_dtype),) if b.is_complex else ()
    a = b.columns("a", "vectors")
    return (*kind, n, a, max(1, n), b.result("w"), b.work(), *real, WorkspaceQuery(INT), b.info())


@target(
    "geev",
    "a: T[*, n, n] -> re: T[*, n], im: T[*, n], left: T[*, n, n], right: T[*, n, n], info: s32[*]",
    "a: T[*, n, n] -> w: T[*, n], left: T[*, n, n], right: T[*, n, n], info: s32[*]",
    compute_left="VN",
    compute_right="VN",
)
def _geev(b: Batch) -> Arguments:
    """Returns eigenvectors in LAPACK's form: a conjugate pair of a real matrix shares two columns, re and im."""
    n = b.size("n")
    wanted = b.attributes["compute_left"], b.attributes["compute_right"]
    left, right = b.columns(None, "left"), b.columns(None, "right")
    vectors = (left, max(1, n), right, max(1, n))
    a = replace(b.columns("a", None), finite=True)
    return (*wanted, n, a, max(1, n), *_eigenvalues(b), *vectors, b.work(), *b.real_work(2 * n), b.info())


def _eigenvalues(b: Batch) -> list[ArrayArgument]:
    """The result for eigenvalues; for real matrices two, the real and the imaginary parts."""
    return [b.result(name) for name in (("w",) if b.is_complex else ("re", "im"))]


def geev_target(letter: str, binding: Binding, a: Array) -> tuple[Array, ...]:
    """Returns what JAX's target for eigenvectors does, which are complex for all element types."""
    parts = 1 if letter in "cz" else 2
    results = [(a.shape[:-1], a.dtype)] * parts + [(a.shape, a.dtype)] * 2 + [(a.shape[:-2], INT)]
    *eigenvalues, left, right, info = call("geev", (a,), results, binding.config)
    if parts == 2:
        left, right = (_unpack_pairs(eigenvalues[1], vectors) for vectors in (left, right))
    return (*eigenvalues, left, right, info)


def _unpack_pairs(imaginary: Array, vectors: Array) -> Array:
    """Converts eigenvectors from LAPACK's real form, in which a conjugate pair shares two columns, re and im."""
    complex_vectors = vectors.astype(np.result_type(vectors.dtype, np.complex64))
    following = np.roll(vectors, -1, axis=-1)
    first = np.zeros(imaginary.shape, bool)
    for k in range(imaginary.shape[-1] - 1):
        first[..., k] = (imaginary[..., k] != 0) & ~(first[..., k - 1] if k else False)
    pairs = complex_vectors + 1j * following.astype(complex_vectors.dtype)
    starts, ends = first[..., None, :], np.roll(first, 1, axis=-1)[..., None, :]
    complex_vectors = np.where(starts, pairs, complex_vectors)
    return np.where(ends, np.roll(pairs, 1, axis=-1).conj(), complex_vectors)


@target(
    "gees",
    "a: T[*, n, n] -> t: T[*, n, n], vectors: T[*, n, n], re: T[*, n], im: T[*, n], selected: s32[*], info: s32[*]",
    "a: T[*, n, n] -> t: T[*, n, n], vectors: T[*, n, n], w: T[*, n], selected: s32[*], info: s32[*]",
    mode="VN",
    sort="N",
)
def _gees(b: Batch) -> Arguments:
    n = b.size("n")
    a, vectors = b.columns("a", "t"), b.columns(None, "vectors")
    work: Arguments = (b.work(), *b.real_work(n), Workspace(INT, max(1, n)))
    kind: Arguments = (b.attributes["mode"], b.attributes["sort"], None)
    return (*kind, n, a, max(1, n), b.result("selected"), *_eigenvalues(b), vectors, max(1, n), *work, b.info())


@target(
    "gehrd",
    "a: T[*, n, n] -> packed: T[*, n, n], tau: T[*, n - 1], info: s32[*]",
    relations=("low <= max(1, n)", "min(low, n) <= high <= n"),
    low=range(1, 2**31),
    high=range(2**31),
)
def _gehrd(b: Batch) -> Arguments:
    n, low, high = b.size("n"), b.attributes["low"], b.attributes["high"]
    return (n, low, high, b.columns("a", "packed"), max(1, n), b.result("tau"), b.work(), b.info())


@target(
    "sytrd",
    "a: T[*, n, n] -> packed: T[*, n, n], d: real(T)[*, n], e: real(T)[*, n - 1], tau: T[*, n - 1], info: s32[*]",
    uplo="LU",
)
def _sytrd(b: Batch) -> Arguments:
    n = b.size("n")
    d, e, tau = b.result("d"), b.result("e"), b.result("tau")
    return (b.attributes["uplo"], n, b.columns("a", "packed"), max(1, n), d, e, tau, b.work(), b.info())
