"""Factorisations of small matrices in lanes, against SciPy's LAPACK and the equations that they solve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.linalg.lapack

import hloom as hl
from hlo_text import compiled, module_text
from hloom.backends.cpu.kernels.linear_algebra.sizes import MAX_ORDER, MIN_COUNT, MIN_LARGE_COUNT, SMALL_ORDER
from hloom.backends.cpu.kernels.linear_algebra.small.factorisations import MAX_UNROLLED
from hloom.cli.pipelines import stage_text

COUNTS = (MIN_COUNT, 16, 37)
DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
LETTERS = dict(zip(DTYPES, "sdcz", strict=True))
TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "c64": 4e-5, "c128": 2e-12}
FFI = "api_version=API_VERSION_TYPED_FFI"


def matrices(count: int, m: int, n: int, type: str) -> np.ndarray:
    """Random matrices; among them zeros, a zero column, and values whose squares overflow or underflow."""
    found = normal(np.random.default_rng(count + m + n), (count, m, n), type)
    found[0], found[1, :, 0] = 0, 0
    is_single = type in ("f32", "c64")
    found[2] *= 1e25 if is_single else 1e200
    found[3] *= 1e-25 if is_single else 1e-200
    return found


def normal(rng: np.random.Generator, sizes: tuple[int, ...], type: str) -> np.ndarray:
    """Random numbers, complex ones with both parts."""
    real, imaginary = rng.standard_normal((2, *sizes))
    return (real + 1j * imaginary if type.startswith("c") else real).astype(DTYPES[type])


def routine(name: str, type: str) -> Any:
    return getattr(scipy.linalg.lapack, f"{LETTERS[type]}{name}")


def call(name: str, type: str, operands: str, shape: str) -> str:
    target = f"lapack_{LETTERS[type]}{name}_ffi"
    return f'{shape} custom-call({operands}), custom_call_target="{target}", {FFI}'


@pytest.mark.sampled(5)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize(("n", "type"), [(1, "f32"), (2, "f64"), (4, "f32"), (7, "c64"), (16, "f64"), (4, "c128")])
def test_cholesky(n: int, type: str, lower: str, count: int) -> None:
    check_cholesky(n, type, lower, count)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [MIN_LARGE_COUNT, 37])
@pytest.mark.parametrize(("n", "type"), [(21, "f32"), (MAX_ORDER, "c64")])
def test_cholesky_of_larger_matrices(n: int, type: str, count: int) -> None:
    check_cholesky(n, type, "true", count)


def check_cholesky(n: int, type: str, lower: str, count: int) -> None:
    shape = f"{type}[{count},{n},{n}]"
    x = normal(np.random.default_rng(n), (count, n, n), type)
    a = x @ x.conj().swapaxes(1, 2) + np.eye(n, dtype=x.dtype)
    a[1], a[2, 0, 0] = -a[1], np.nan
    (factor,) = compiled(module_text(f"a = {shape} parameter(0)\nROOT r = {shape} cholesky(a), lower={lower}"), a)
    assert np.isnan(factor[1:3]).all(), "these have none"
    rows = factor if lower == "true" else factor.swapaxes(1, 2)
    assert (np.triu(np.delete(rows, (1, 2), 0), 1) == 0).all()
    adjoint = rows.conj().swapaxes(1, 2)
    product = rows @ adjoint if lower == "true" else (rows @ adjoint).conj()
    for k in {*range(count)} - {1, 2}:
        np.testing.assert_allclose(product[k], a[k], atol=TOLERANCE[type] * np.abs(a[k]).max())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 3), (5, 3), (3, 5), (16, 16), (10, 7), (40, 33)])
def test_lu(m: int, n: int, type: str, count: int) -> None:
    shape, steps = f"{type}[{count},{m},{n}]", min(m, n)
    results = f"({shape}, s32[{count},{steps}], s32[{count}])"
    a = matrices(count, m, n, type)
    text = module_text(f"a = {shape} parameter(0)\nROOT r = {call('getrf', type, 'a', results)}")
    for found, pivots, info, matrix in zip(*compiled(text, a), a, strict=True):
        _, wanted_pivots, wanted_info = routine("getrf", type)(matrix)
        assert (pivots == wanted_pivots + 1).all()
        assert info == wanted_info
        lower, rows = np.tril(found, -1)[:, :steps] + np.eye(m, steps, dtype=found.dtype), matrix.copy()
        for k, pivot in enumerate(wanted_pivots):
            rows[[k, pivot]] = rows[[pivot, k]]
        np.testing.assert_allclose(lower @ np.triu(found)[:steps], rows, atol=TOLERANCE[type] * np.abs(rows).max())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize(("m", "k"), [(1, 1), (4, 4), (6, 3), (16, 16)])
def test_swaps_of_rows(m: int, k: int, type: str, count: int) -> None:
    """Pivots may be before the row, and are clamped to the rows."""
    shape = f"{type}[{count},{m}]"
    a = normal(np.random.default_rng(m), (count, m), type)
    pivots = np.random.default_rng(k).integers(-1, m + 3, (count, k)).astype(np.int32)
    parameters = f"a = {shape} parameter(0)\np = s32[{count},{k}] parameter(1)"
    (found,) = compiled(module_text(f"{parameters}\nROOT r = {call('laswp', type, 'a, p', shape)}"), a, pivots)
    for row, swaps in zip(a, np.clip(pivots, 1, m) - 1, strict=True):
        for i, pivot in enumerate(swaps):
            row[[i, pivot]] = row[[pivot, i]]
    np.testing.assert_array_equal(found, a)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("type", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 3), (4, 2), (2, 4), (16, 16), (10, 7), (40, 33)])
def test_qr(m: int, n: int, type: str, count: int) -> None:
    shape, k = f"{type}[{count},{m},{n}]", min(m, n)
    factor, taus = f"{type}[{count},{m},{k}]", f"{type}[{count},{k}]"
    text = module_text(f"""a = {shape} parameter(0)
  r = {call("geqrf", type, "a", f"({shape}, {taus})")}
  x = {shape} get-tuple-element(r), index=0
  tau = {taus} get-tuple-element(r), index=1
  part = {factor} slice(x), slice={{[0:{count}],[0:{m}],[0:{k}]}}
  q = {call("ungqr" if type.startswith("c") else "orgqr", type, "part, tau", factor)}
  ROOT t = ({shape}, {taus}, {factor}) tuple(x, tau, q)""")
    a = matrices(count, m, n, type)
    for found, tau, q, matrix in zip(*compiled(text, a), a, strict=True):
        reflections, wanted, _, _ = routine("geqrf", type)(matrix)
        size = np.abs(matrix).max()
        np.testing.assert_allclose(np.triu(found), np.triu(reflections), atol=TOLERANCE[type] * size)
        np.testing.assert_allclose(np.tril(found, -1), np.tril(reflections, -1), atol=TOLERANCE[type])
        np.testing.assert_allclose(tau, wanted, atol=TOLERANCE[type])
        np.testing.assert_allclose(q @ np.triu(found)[:k], matrix, atol=TOLERANCE[type] * size)
        np.testing.assert_allclose(q.conj().T @ q, np.eye(k), atol=TOLERANCE[type])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("left", ["true", "false"])
@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("unit", ["true", "false"])
@pytest.mark.parametrize(
    ("n", "sides", "type"),
    [(1, 3, "f32"), (3, 1, "f32"), (16, 20, "f32"), (5, 4, "c64"), (9, 10, "c128"), (35, 3, "f32")],
)
def test_triangular_systems(
    n: int, sides: int, type: str, unit: str, transpose: str, lower: str, left: str
) -> None:  # fmt: skip
    count, rng = 19, np.random.default_rng(n)
    shape = f"{type}[{count},{n},{sides}]" if left == "true" else f"{type}[{count},{sides},{n}]"
    options = f"left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose}"
    lines = f"a = {type}[{count},{n},{n}] parameter(0)\nb = {shape} parameter(1)\n"
    a = np.float32(0.2) * normal(rng, (count, n, n), type) + 2 * np.eye(n, dtype=DTYPES[type])
    b = normal(rng, (count, n, sides) if left == "true" else (count, sides, n), type)
    (x,) = compiled(module_text(f"{lines}ROOT r = {shape} triangular-solve(a, b), {options}"), a, b)
    triangle = np.tril(a) if lower == "true" else np.triu(a)
    if unit == "true":
        triangle[:, range(n), range(n)] = 1
    matrix = triangle if transpose == "NO_TRANSPOSE" else triangle.swapaxes(1, 2)
    matrix = matrix.conj() if transpose == "ADJOINT" else matrix
    np.testing.assert_allclose(matrix @ x if left == "true" else x @ matrix, b, atol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("swapped", [[], [3], range(19)])
@pytest.mark.parametrize("n", [1, 4, 7, 16])
def test_systems_swap_rows_of_no_one_or_all_matrices(n: int, swapped: Sequence[int], type: str) -> None:
    count, rng, letter = 19, np.random.default_rng(n), "sd"[type == "f64"]
    a = normal(rng, (count, n, n), type) / n + 3 * np.eye(n, dtype=DTYPES[type])
    a[swapped] = a[swapped, ::-1]
    b = normal(rng, (count, n, 2), type)
    shapes = f"{type}[{count},{n},{n}]", f"{type}[{count},{n},2]"
    lines = f"a = {shapes[0]} parameter(0)\nb = {shapes[1]} parameter(1)\n"
    text = module_text(f'{lines}ROOT r = {shapes[1]} custom-call(a, b), custom_call_target="lapack_{letter}gesv"')
    assert ("reduce.or" in stage_text(hl.parse(text), "llvm")) is (n > MAX_UNROLLED)
    (x,) = compiled(text, a, b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=0, atol=1e-5 if type == "f32" else 1e-13)


@pytest.mark.parametrize(
    ("shape", "calls"),
    [
        (f"f32[{MIN_COUNT},{SMALL_ORDER},{SMALL_ORDER}]", False),
        (f"f32[{MIN_COUNT - 1},4,4]", True),
        (f"f32[{MIN_LARGE_COUNT - 1},{SMALL_ORDER + 1},{SMALL_ORDER + 1}]", True),
        (f"c64[{MIN_LARGE_COUNT},{MAX_ORDER},{MAX_ORDER}]", False),
        (f"c128[20,{MAX_ORDER + 1},{MAX_ORDER + 1}]", True),
    ],
)
def test_others_are_lapacks(shape: str, calls: bool) -> None:
    text = stage_text(
        hl.parse(module_text(f"a = {shape} parameter(0)\nROOT r = {shape} cholesky(a), lower=true")), "llvm"
    )
    assert ("routine" in text) is calls
