"""cholesky and triangular-solve as LAPACK calls, against SciPy, the specification and the interpreter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg

import hloom as hl
from hloom.passes import clone_module, run_passes
from hloom.passes.legalize.linear_algebra import LinearAlgebraToLapack

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
TRANSPOSES = {"NO_TRANSPOSE": 0, "TRANSPOSE": 1, "ADJOINT": 2}


def matrices(element_type: str, *sizes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(sizes) + (1j * rng.standard_normal(sizes) if element_type[0] == "c" else 0)
    return a.astype(TYPES[element_type])


def native(text: str) -> hl.Executable:
    """Compiles a program, and checks that it has no host calls."""
    executable = hl.compile(f"HloModule m\nENTRY e {{\n{text}\n}}\n")
    assert executable.report() == []
    return executable


def close(got: np.ndarray, want: np.ndarray) -> None:
    tolerance = 1e-4 if got.real.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(("batch", "n"), [((), 1), ((2, 3), 4), ((), 17), ((70,), 20)])
def test_cholesky(element_type: str, lower: bool, batch: tuple[int, ...], n: int) -> None:
    a = matrices(element_type, *batch, n, n)
    a = (a @ np.swapaxes(a, -1, -2).conj() + n * np.eye(n)).astype(a.dtype)
    junk = np.full_like(a, np.nan)
    given = np.where(np.tri(n, dtype=bool), a, junk) if lower else np.where(np.tri(n, dtype=bool).T, a, junk)
    shape = f"{element_type}[{','.join(map(str, given.shape))}]"
    factor = native(f"a = {shape} parameter(0)\nROOT r = {shape} cholesky(a), lower={str(lower).lower()}")(given)
    want = np.linalg.cholesky(a)
    close(factor, want if lower else np.swapaxes(want, -1, -2).conj())


def test_only_matrices_without_a_factor_become_nan() -> None:
    """CHOLESKY-5."""
    a = np.broadcast_to(np.array([[4, 2], [2, 3]], np.float32), (3, 2, 2)).copy()
    a[1] = [[1, 2], [2, 1]]
    factor = native("a = f32[3,2,2] parameter(0)\nROOT r = f32[3,2,2] cholesky(a), lower=true")(a)
    assert np.isnan(factor[1]).all()
    close(factor[0], np.array([[2, 0], [1, np.sqrt(2)]], np.float32))
    np.testing.assert_array_equal(factor[2], factor[0])


def test_a_matrix_with_a_nan_becomes_nan_alone() -> None:
    """CHOLESKY-5, compiled and interpreted: also where a routine would have gone on with the columns before."""
    a = np.tile(np.eye(4, dtype=np.float32), (5, 1, 1))
    a[3, 2, 2] = np.nan
    text = "HloModule m\nENTRY e { a = f32[5,4,4] parameter(0) ROOT r = f32[5,4,4] cholesky(a), lower=true }"
    for backend in ("cpu", "interpreter"):
        factor = hl.compile(hl.parse(text), backend=backend)(a)
        assert (
            np.isnan(factor).all((1, 2)).tolist()
            == np.isnan(factor).any((1, 2)).tolist()
            == [False] * 3 + [True, False]
        )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "element_type", ["f32", "c128", *(pytest.param(t, marks=pytest.mark.long) for t in ("f64", "c64"))]
)
@pytest.mark.parametrize("left", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("transpose", TRANSPOSES)
def test_triangular_solve(element_type: str, left: bool, transpose: str) -> None:
    """Solves systems of all sizes, triangles and diagonals in one program."""
    cases = [*itertools.product([True, False], [True, False], [((), 1, 1), ((2, 3), 4, 1), ((), 17, 5), ((70,), 9, 9)])]
    lines, roots, operands, systems = [], [], [], []
    for number, (lower, unit, (batch, n, k)) in enumerate(cases):
        a = matrices(element_type, *batch, n, n) / n + 2 * np.eye(n, dtype=TYPES[element_type])
        b = matrices(element_type, *batch, n, k) if left else matrices(element_type, *batch, k, n)
        is_read = np.tri(n, k=-unit, dtype=bool)
        operands += [np.where(is_read if lower else is_read.T, a, np.nan).astype(a.dtype), b]
        systems.append((a, b))
        shapes = [f"{element_type}[{','.join(map(str, x.shape))}]" for x in (a, b)]
        roots.append(shapes[1])
        lines.append(
            f"a{number} = {shapes[0]} parameter({2 * number})\nb{number} = {shapes[1]} parameter({2 * number + 1})\n"
            f"x{number} = {shapes[1]} triangular-solve(a{number}, b{number}), left_side={str(left).lower()}, "
            f"lower={str(lower).lower()}, unit_diagonal={str(unit).lower()}, transpose_a={transpose}"
        )
    names = ", ".join(f"x{number}" for number in range(len(cases)))
    solutions = native("\n".join([*lines, f"ROOT r = ({', '.join(roots)}) tuple({names})"]))(*operands)
    for (lower, unit, (batch, _, _)), (a, b), x in zip(cases, systems, solutions, strict=True):
        for index in np.ndindex(*batch):
            # x op(a) = b is op(a)^T x^T = b^T.
            op = [a[index], a[index].T, a[index].conj().T][TRANSPOSES[transpose]]
            is_lower = lower == (transpose == "NO_TRANSPOSE")
            op, right, is_lower = (op, b[index], is_lower) if left else (op.T, b[index].T, not is_lower)
            want = scipy.linalg.solve_triangular(op, right, lower=is_lower, unit_diagonal=unit)
            close(x[index], want if left else want.T)


def test_a_zero_on_the_diagonal_is_no_error() -> None:
    """TRIANGULARSOLVE-5."""
    x = native(
        "a = f32[2,2] parameter(0)\nb = f32[2,1] parameter(1)\nROOT r = f32[2,1] triangular-solve(a, b), "
        "left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
    )(np.array([[2, 0], [1, 0]], np.float32), np.array([[4], [9]], np.float32))
    assert x[0, 0] == 2 and not np.isfinite(x[1, 0])


@pytest.mark.parametrize("element_type", ["bf16", "f16"])
def test_narrow_floats_are_computed_in_f32(element_type: str) -> None:
    module = hl.parse(
        f"HloModule m\nENTRY e {{\na = {element_type}[2,2] parameter(0)\nc = {element_type}[2,2] cholesky(a), lower=true\n"
        f"ROOT r = {element_type}[2,2] triangular-solve(c, a), left_side=true, lower=true, transpose_a=NO_TRANSPOSE\n}}\n"
    )
    expanded = clone_module(module)
    assert run_passes(expanded, LinearAlgebraToLapack(), verify=True)[0].changes == 2
    assert "lapack_spotrf_ffi" in expanded.to_text() and "cholesky(" not in expanded.to_text()
    a = np.array([[4, 2], [2, 5]], hl.parse_shape(f"{element_type}[]").element_type.dtype)
    executable = hl.compile(module)
    assert executable.report() == []
    # The factor is [[2, 0], [1, 2]].
    assert executable(a).astype(np.float32).tolist() == [[2, 1], [0, 2]]


@pytest.mark.parametrize("shape", ["f32[0,0]", "f32[0,3,3]", "f32[3,0,0]"])
def test_empty_matrices_and_batches(shape: str) -> None:
    dimensions = hl.parse_shape(shape).dimensions
    factor = native(f"a = {shape} parameter(0)\nROOT r = {shape} cholesky(a), lower=true")
    assert factor(np.ones(dimensions, np.float32)).shape == dimensions
