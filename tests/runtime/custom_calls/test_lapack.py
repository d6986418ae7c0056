"""The LAPACK targets: factors multiply to the matrix, on batches, for each element type and mode."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.runtime.custom_calls import lapack
from hloom.runtime.custom_calls.targets import lookup
from hloom.text import parse_shape
from hloom.types import BY_DTYPE

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
BATCH = (2, 3)


def matrices(letter: str, m: int, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((*BATCH, m, n)) + (1j * rng.standard_normal((*BATCH, m, n)) if letter in "cz" else 0)
    return a.astype(TYPES[letter])


def hermitian(letter: str, n: int) -> np.ndarray:
    a = matrices(letter, n, n)
    return (a + adjoint(a)).astype(a.dtype)


def adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2).conj()


def call(letter: str, name: str, operands: list[np.ndarray], results: list[Any], **attributes: Any) -> Any:
    """Compiles and runs a custom call. A result is the shape of a matrix of the operands' type, or (letter, shape)."""
    b = hl.XlaBuilder()
    arguments = [b.parameter(i, hl.Literal.from_numpy(a).shape) for i, a in enumerate(operands)]
    shapes = []
    for result in results:
        type_letter, sizes = result if result and isinstance(result[0], str) else (letter, result)
        dtype = np.dtype(np.int32 if type_letter == "i" else TYPES[type_letter])
        shapes.append(f"{BY_DTYPE[dtype].name.lower()}[{','.join(map(str, (*BATCH, *sizes)))}]")
    text = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    config = "{" + ", ".join(f"{k} = {_text(v)}" for k, v in attributes.items()) + "}"
    target = f"lapack_{lapack.routine_name(name, letter)}_ffi"
    return hl.compile(b.build(b.custom_call(target, arguments, parse_shape(text), opaque=config)))(*operands)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{ord(value)} : ui8" if isinstance(value, str) else f"{value} : i32"


def real(letter: str) -> str:
    return {"c": "s", "z": "d"}.get(letter, letter)


def close(got: np.ndarray, want: np.ndarray) -> None:
    tolerance = 2e-4 if got.real.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


every_type = pytest.mark.parametrize("letter", "sdcz")


@pytest.mark.sampled(5)
@every_type
@pytest.mark.parametrize("uplo", "LU")
def test_potrf_factorises_the_triangle_that_it_reads(letter: str, uplo: str) -> None:
    a = matrices(letter, 4, 4)
    a = (a @ adjoint(a) + 4 * np.eye(4)).astype(a.dtype)
    junk = np.tril(np.full_like(a, 7), -1)
    given = np.tril(a) + np.swapaxes(junk, -1, -2) if uplo == "L" else np.triu(a) + junk
    factor, info = call(letter, "potrf", [given], [(4, 4), ("i", ())], uplo=uplo)
    if uplo == "L":
        close(np.tril(factor) @ adjoint(np.tril(factor)), a)
    else:
        close(adjoint(np.triu(factor)) @ np.triu(factor), a)
    assert not info.any()


def test_potrf_reports_which_matrices_are_not_positive_definite() -> None:
    a = np.broadcast_to(np.eye(3, dtype=np.float32), (*BATCH, 3, 3)).copy()
    a[1, 2, 1, 1] = -1
    _, info = call("s", "potrf", [a], [(3, 3), ("i", ())], uplo="L")
    assert info.tolist() == [[0, 0, 0], [0, 0, 2]]


@pytest.mark.sampled(5)
@every_type
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (1, 1)])
def test_getrf_swaps_rows_and_splits_the_matrix(letter: str, shape: tuple[int, int]) -> None:
    m, n = shape
    k = min(m, n)
    a = matrices(letter, m, n)
    lu, pivots, info = call(letter, "getrf", [a], [(m, n), ("i", (k,)), ("i", ())])
    for index in np.ndindex(*BATCH):
        swapped = a[index].copy()
        for row, other in enumerate(pivots[index] - 1):
            swapped[[row, other]] = swapped[[other, row]]
        close((np.tril(lu[index], -1)[:, :k] + np.eye(m, k, dtype=a.dtype)) @ np.triu(lu[index])[:k], swapped)
    assert not info.any()


@pytest.mark.sampled(4)
@every_type
@pytest.mark.parametrize("shape", [(4, 4), (5, 3)])
def test_geqrf_and_orgqr_give_q_and_r(letter: str, shape: tuple[int, int]) -> None:
    m, n = shape
    a = matrices(letter, m, n)
    packed, tau = call(letter, "geqrf", [a], [(m, n), (n,)])
    q = call(letter, "orgqr", [packed, tau], [(m, n)])
    close(q @ np.triu(packed)[..., :n, :], a)
    close(adjoint(q) @ q, np.broadcast_to(np.eye(n), (*BATCH, n, n)))


@every_type
def test_geqp3_orders_columns_so_that_the_diagonal_falls(letter: str) -> None:
    a = matrices(letter, 5, 4)
    free = np.zeros((*BATCH, 4), np.int32)
    packed, pivots, tau = call(letter, "geqp3", [a, free], [(5, 4), ("i", (4,)), (4,)])
    q = call(letter, "orgqr", [packed, tau], [(5, 4)])
    close(q @ np.triu(packed)[..., :4, :], np.take_along_axis(a, pivots[..., None, :] - 1, -1))
    diagonal = np.abs(np.diagonal(packed, axis1=-2, axis2=-1))
    assert (diagonal[..., :-1] >= diagonal[..., 1:] * (1 - 1e-5)).all()


@pytest.mark.sampled(5)
@every_type
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_ormqr_multiplies_by_q(letter: str, left: bool, transpose: bool) -> None:
    a = matrices(letter, 4, 4)
    c = matrices(letter, 4, 3, 1) if left else matrices(letter, 3, 4, 1)
    packed, tau = call(letter, "geqrf", [a], [(4, 4), (4,)])
    q = call(letter, "orgqr", [packed, tau], [(4, 4)])
    q = adjoint(q) if transpose else q
    got = call(letter, "ormqr", [packed, tau, c], [c.shape[-2:]], left=left, transpose=transpose)
    close(got, q @ c if left else c @ q)


@pytest.mark.sampled(6)
@every_type
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("trans_x", "NTC")
@pytest.mark.parametrize("diag", "NU")
def test_trsm_solves_with_a_triangle(letter: str, side: str, uplo: str, trans_x: str, diag: str) -> None:
    a = matrices(letter, 4, 4) + 4 * np.eye(4, dtype=TYPES[letter])
    b = matrices(letter, 4, 3, 1) if side == "L" else matrices(letter, 3, 4, 1)
    x = call(letter, "trsm", [a, b], [b.shape[-2:]], side=side, uplo=uplo, trans_x=trans_x, diag=diag)
    t = np.tril(a) if uplo == "L" else np.triu(a)
    if diag == "U":
        t = t - t * np.eye(4, dtype=t.dtype) + np.eye(4, dtype=t.dtype)
    t = t if trans_x == "N" else adjoint(t) if trans_x == "C" else np.swapaxes(t, -1, -2)
    close(t @ x if side == "L" else x @ t, b)


@pytest.mark.sampled(8)
@every_type
@pytest.mark.parametrize("name", ["gesdd", "gesvd"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("mode", "ASN")
def test_svd_in_each_mode(letter: str, name: str, shape: tuple[int, int], mode: str) -> None:
    m, n = shape
    k = min(m, n)
    a = matrices(letter, m, n)
    u_shape, vt_shape = ((m, m), (n, n)) if mode == "A" else ((m, k), (k, n))
    results = [shape, (real(letter), (k,)), u_shape, vt_shape, ("i", ())]
    _, s, u, vt, info = call(letter, name, [a], results, mode=mode)
    assert not info.any()
    close(s, np.linalg.svd(a, compute_uv=False))
    if mode != "N":
        close((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], a)
        close(adjoint(u) @ u, np.broadcast_to(np.eye(u.shape[-1]), (*BATCH, u.shape[-1], u.shape[-1])))


@pytest.mark.sampled(5)
@every_type
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("mode", "VN")
def test_syevd_gives_eigenvalues_in_order(letter: str, uplo: str, mode: str) -> None:
    a = hermitian(letter, 4)
    given = np.tril(a) if uplo == "L" else np.triu(a)
    v, w, info = call(letter, "syevd", [given], [(4, 4), (real(letter), (4,)), ("i", ())], uplo=uplo, mode=mode)
    close(w, np.linalg.eigvalsh(a))
    if mode == "V":
        close(a @ v, v * w[..., None, :])
    assert not info.any()


@pytest.mark.sampled(5)
@every_type
@pytest.mark.parametrize("wanted", ["VV", "VN", "NV", "NN"])
def test_geev_gives_left_and_right_eigenvectors(letter: str, wanted: str) -> None:
    a = matrices(letter, 5, 5)
    complex_letter = {"s": "c", "d": "z"}.get(letter, letter)
    vectors = (complex_letter, (5, 5))
    parts = [(letter, (5,))] * (1 if letter in "cz" else 2)
    left, right = wanted
    got = call(letter, "geev", [a], [*parts, vectors, vectors, ("i", ())], compute_left=left, compute_right=right)
    *w, vl, vr, info = got
    values = (w[0] if letter in "cz" else w[0] + 1j * w[1])[..., None, :]
    if right == "V":
        close(a @ vr, vr * values)
    if left == "V":
        close(adjoint(vl) @ a, np.swapaxes(values, -1, -2) * adjoint(vl))
    assert not info.any()


def test_geev_reports_that_a_matrix_is_not_finite() -> None:
    a = matrices("d", 3, 3)
    a[0, 1, 2, 2] = np.nan
    *results, info = call("d", "geev", [a], [(3,), (3,), ("z", (3, 3)), ("z", (3, 3)), ("i", ())])
    assert info.tolist() == [[0, -4, 0], [0, 0, 0]]
    for result in results:
        assert np.isnan(result[0, 1]).all() and np.isfinite(result[info == 0]).all()


@every_type
@pytest.mark.parametrize("mode", "VN")
def test_gees_gives_the_schur_form(letter: str, mode: str) -> None:
    a = matrices(letter, 5, 5)
    parts = [(5,)] * (1 if letter in "cz" else 2)
    results = [(5, 5), (5, 5), *parts, ("i", ()), ("i", ())]
    t, z, *w, _, info = call(letter, "gees", [a], results, mode=mode, sort="N")
    values = w[0] if letter in "cz" else w[0] + 1j * w[1]
    close(values.sum(-1), np.trace(a, axis1=-2, axis2=-1))
    if mode == "V":
        close(z @ t @ adjoint(z), a)
    close(np.tril(t, -2), np.zeros_like(t))
    assert not info.any()


@every_type
def test_gehrd_gives_a_hessenberg_matrix_and_reflectors(letter: str) -> None:
    a = matrices(letter, 4, 4)
    packed, tau, info = call(letter, "gehrd", [a], [(4, 4), (3,), ("i", ())], low=1, high=4)
    q = np.broadcast_to(np.eye(4, dtype=a.dtype), a.shape).copy()
    q[..., 1:, 1:] = call(letter, "orgqr", [np.ascontiguousarray(packed[..., 1:, :3]), tau], [(3, 3)])
    close(q @ np.triu(packed, -1) @ adjoint(q), a)
    assert not info.any()


@pytest.mark.sampled(4)
@every_type
@pytest.mark.parametrize("uplo", "LU")
def test_sytrd_keeps_the_eigenvalues(letter: str, uplo: str) -> None:
    a = hermitian(letter, 4)
    r = real(letter)
    _, d, e, _, info = call(letter, "sytrd", [a], [(4, 4), (r, (4,)), (r, (3,)), (3,), ("i", ())], uplo=uplo)
    tridiagonal = np.zeros(a.shape, d.dtype)
    for k in range(4):
        tridiagonal[..., k, k] = d[..., k]
        if k < 3:
            tridiagonal[..., k, k + 1] = tridiagonal[..., k + 1, k] = e[..., k]
    close(np.linalg.eigvalsh(tridiagonal), np.linalg.eigvalsh(a))
    assert not info.any()


def tridiagonal(lower: np.ndarray, d: np.ndarray, upper: np.ndarray) -> np.ndarray:
    n = d.shape[-1]
    a = np.zeros((*d.shape, n), d.dtype)
    for k in range(n):
        a[..., k, k] = d[..., k]
        if k:
            a[..., k, k - 1], a[..., k - 1, k] = lower[..., k], upper[..., k - 1]
    return a


@pytest.mark.sampled(6)
@every_type
@pytest.mark.parametrize("n", [1, 2, 5])
def test_gtsv_solves_tridiagonal_systems(letter: str, n: int) -> None:
    lower, d, upper = (matrices(letter, 1, n, seed)[..., 0, :] for seed in range(3))
    d = (d + 3).astype(d.dtype)
    b = matrices(letter, n, 2, 4)
    *_, x, info = call(letter, "gtsv", [lower, d, upper, b], [(n,), (n,), (n,), (n, 2), ("i", ())])
    close(tridiagonal(lower, d, upper) @ x, b)
    assert not info.any()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", ["getrf", "geqrf", "potrf"])
def test_small_and_empty_matrices(name: str, n: int) -> None:
    results = {"getrf": [(n, n), ("i", (n,)), ("i", ())], "geqrf": [(n, n), (n,)], "potrf": [(n, n), ("i", ())]}
    factor, *_, last = call("s", name, [np.ones((*BATCH, n, n), np.float32)], results[name])
    assert factor.shape == (*BATCH, n, n) and (np.abs(factor) == 1).all()
    assert not last.any(), "no errors, and reflectors that change nothing"


def test_empty_batches() -> None:
    shapes = [((0, 3, 3), np.float32), ((0, 3), np.int32), ((0,), np.int32)]
    lu, pivots, info = lapack.call("getrf", (np.ones((0, 3, 3), np.float32),), shapes)
    assert lu.shape == (0, 3, 3) and pivots.shape == (0, 3) and info.shape == (0,)


def test_every_routine_is_registered_for_every_type() -> None:
    for name in lapack.TARGETS.keys() - lapack.OWN.keys():
        for letter in TYPES:
            lookup(f"lapack_{lapack.routine_name(name, letter)}_ffi")


WRONG: list[tuple[str, list[tuple[int, ...]], list[Any], str]] = [
    ("potrf", [(3, 2)], [(3, 2), ("i", ())], "operand 0 is a: T[*, n, n] = f32[2,3,3,3], got f32[2,3,3,2]"),
    ("potrf", [(3, 3)], [(3, 3)], "2 results, got 1"),
    (
        "getrf",
        [(3, 3)],
        [(3, 3), ("i", (2,)), ("i", ())],
        "result 1 is pivots: s32[*, min(m, n)] = s32[2,3,3], got s32[2,3,2]",
    ),
    ("trsm", [(3, 3), (2, 4)], [(2, 4)], "operand 0 is a: T[*, p, p] = f32[2,3,2,2], got f32[2,3,3,3]"),
    ("geqrf", [(5, 3)], [(5, 3), (5,)], "result 1 is tau: T[*, min(m, n)] = f32[2,3,3], got f32[2,3,5]"),
]


@pytest.mark.parametrize(("name", "operands", "results", "message"), WRONG)
def test_arrays_that_a_routine_would_overrun_are_refused(
    name: str, operands: list[tuple[int, ...]], results: list[Any], message: str
) -> None:
    with pytest.raises(hl.RuleError, match=f"CUSTOMCALL-7.*lapack_s{name}_ffi.*{re.escape(message)}"):
        call("s", name, [np.ones((*BATCH, *sizes), np.float32) for sizes in operands], results)


@pytest.mark.parametrize("letter", TYPES)
def test_a_reduction_of_one_row_has_nothing_to_do(letter: str) -> None:
    """LAPACK reports a workspace of one element for it, and refuses that."""
    a = matrices(letter, 4, 4)
    packed, tau, info = call(letter, "gehrd", [a], [(4, 4), (3,), ("i", ())], low=2, high=2)
    assert not info.any() and not tau.any() and np.array_equal(packed, a)
