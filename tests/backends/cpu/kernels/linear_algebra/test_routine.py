"""LAPACK routines in compiled programs: no step runs on the host, for any sizes, types and threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom import target
from hloom.backends.cpu import compiler
from hloom.runtime.custom_calls.registry import REGISTERED

TYPES = {"s": ("f32", np.float32), "d": ("f64", np.float64), "c": ("c64", np.complex64), "z": ("c128", np.complex128)}


def text(target: str, operands: list[str], result: str, config: str = "{}") -> str:
    parameters = "\n".join(f"p{k} = {shape} parameter({k})" for k, shape in enumerate(operands))
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    call = f'ROOT r = {result} custom-call({names}), custom_call_target="{target}", backend_config="{config}"'
    return f"HloModule m\nENTRY e {{\n{parameters}\n{call}\n}}\n"


def matrices(dtype: Any, *sizes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)).astype(dtype)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("batch", "m", "n"), [(1, 1, 1), (3, 33, 17), (2, 16, 48), (90, 20, 20), (0, 3, 3)])
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_factors_of_many_sizes(letter: str, batch: int, m: int, n: int) -> None:
    """Transposed in tiles of registers and by elements; few matrices, and enough for all threads."""
    element_type, dtype = TYPES[letter]
    k = min(m, n)
    shape = f"{element_type}[{batch},{m},{n}]"
    executable = hl.compile(text(f"lapack_{letter}getrf_ffi", [shape], f"({shape}, s32[{batch},{k}], s32[{batch}])"))
    assert executable.report() == []
    a = matrices(dtype, batch, m, n)
    lu, pivots, info = executable(a)
    assert not info.any()
    for given, packed, swaps in zip(a, lu, pivots, strict=True):
        product = (np.tril(packed, -1)[:, :k] + np.eye(m, k, dtype=dtype)) @ np.triu(packed)[:k]
        for row, other in reversed([*enumerate(swaps - 1)]):
            product[[row, other]] = product[[other, row]]
        tolerance = 1e-4 if np.dtype(dtype).itemsize * (1 + (letter in "sd")) <= 8 else 1e-11
        np.testing.assert_allclose(product, given, rtol=tolerance, atol=tolerance)


def test_results_do_not_depend_on_who_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    program = text("lapack_dsyevd_ffi", ["f64[40,6,6]"], "(f64[40,6,6], f64[40,6], s32[40])")
    a = matrices(np.complex128, 40, 6, 6).real
    a = np.ascontiguousarray(a + a.transpose(0, 2, 1))
    monkeypatch.setattr(compiler, "may_keep_programs", lambda: False)
    monkeypatch.setattr(target, "MIN_PARALLEL_WORK", 0)
    shared = hl.compile(program)(a)
    monkeypatch.setattr(target, "MIN_PARALLEL_WORK", 1 << 60)
    alone = hl.compile(program)(a)
    for one, other in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(shared[1], np.linalg.eigvalsh(a), atol=1e-12)


def test_calls_that_differ_in_attributes_alone_are_two() -> None:
    call = 'custom-call(a, b), custom_call_target="lapack_strsm_ffi", backend_config="{{uplo = {} : ui8}}"'
    executable = hl.compile(
        "HloModule m\nENTRY e {\na = f32[2,2] parameter(0)\nb = f32[2,1] parameter(1)\n"
        f"x = f32[2,1] {call.format(ord('L'))}\ny = f32[2,1] {call.format(ord('U'))}\n"
        "ROOT r = (f32[2,1], f32[2,1]) tuple(x, y)\n}\n"
    )
    x, y = executable(np.array([[1, 2], [3, 1]], np.float32), np.ones((2, 1), np.float32))
    assert x.ravel().tolist() == [1, -2] and y.ravel().tolist() == [-1, 1]


def test_another_process_finds_the_program_and_its_own_routine(tmp_path: Path) -> None:
    """A program on disk names routines: their addresses differ from process to process."""
    script = (
        "import sys, numpy, hloom\n"
        "run = hloom.compile(sys.argv[1])\n"
        "print(run(numpy.full((1, 1), 4, numpy.float32))[0].item())"
    )
    program = text("lapack_spotrf_ffi", ["f32[1,1]"], "(f32[1,1], s32[])")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script, program], env={**os.environ, "HLOOM_CACHE_DIR": str(tmp_path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == "2.0"
    assert len([*tmp_path.glob("*.program")]) == 1


def test_a_target_that_somebody_registers_anew_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTERED, "lapack_spotrf_ffi", None)  # which puts it back afterwards
    hl.register_custom_call("lapack_spotrf_ffi", lambda a: (a + 1, np.int32(7)))
    executable = hl.compile(text("lapack_spotrf_ffi", ["f32[1,1]"], "(f32[1,1], s32[])"))
    assert len(executable.report()) == 1
    factor, info = executable(np.ones((1, 1), np.float32))
    assert (factor.tolist(), int(info)) == ([[2]], 7)


@pytest.mark.parametrize("letter", TYPES)
def test_eigenvectors_of_general_matrices_need_no_host(letter: str) -> None:
    """Results are those of the interpreter; `info` reports a matrix with a NaN, and the others are computed."""
    element_type, dtype = TYPES[letter]
    vectors = f"{ {'f32': 'c64', 'f64': 'c128'}.get(element_type, element_type) }[6,5,5]"
    shape, values = f"{element_type}[6,5,5]", ", ".join([f"{element_type}[6,5]"] * (1 if letter in "cz" else 2))
    config = "{compute_left = 86 : ui8, compute_right = 86 : ui8}"
    program = text(f"lapack_{letter}geev_ffi", [shape], f"({values}, {vectors}, {vectors}, s32[6])", config)
    executable = hl.compile(program)
    assert executable.report() == []
    a = matrices(np.complex128, 6, 5, 5)
    a = (a if letter in "cz" else a.real).astype(dtype)
    a[1] = np.eye(5)
    a[4, 2, 3] = np.nan
    *results, info = executable(a)
    *expected, _ = hl.compile(program, "interpreter")(a)
    assert info.tolist() == [0, 0, 0, 0, -4, 0]
    for got, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got[info == 0], wanted[info == 0])


def test_empty_batches_of_hlooms_own_targets_are_empty() -> None:
    empty = np.zeros((0, 3, 3), np.float32)
    cholesky = text("lapack_scholesky", ["f32[0,3,3]"], "f32[0,3,3]", "{symmetric = true, whole = true}")
    assert hl.compile(cholesky)(empty).shape == (0, 3, 3)
    solve = text("lapack_sgesv", ["f32[0,3,3]", "f32[0,3,3]"], "f32[0,3,3]")
    assert hl.compile(solve)(empty, empty).shape == (0, 3, 3)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_the_routine_of_eigenvalues_is_not_called_for_a_nan(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    """LAPACK would write to the standard output."""
    a = np.stack([np.diag([1.0, 2.0]), np.full((2, 2), np.nan)])
    results = "(f64[2,2], f64[2,2], f64[2,2,2], f64[2,2,2], s32[2])"
    call = text("lapack_dgeev", ["f64[2,2,2]"], results, "{compute_left = 86 : ui8, compute_right = 86 : ui8}")
    values, *_, status = hl.compile(call, backend=backend)(a)
    assert status.tolist() == [0, -4] and np.sort(values[0]).tolist() == [1, 2] and np.isnan(values[1]).all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(("m", "n"), [(4, 4), (5, 3)])
def test_singular_values_of_infinite_matrices_are_refused_by_a_status(backend: str, m: int, n: int) -> None:
    """LAPACK's own test is for NaN alone."""
    x, k = matrices(np.complex64, 3, m, n), min(m, n)
    x[1, 2, 1] = np.inf
    results = f"(c64[3,{m},{n}], f32[3,{k}], c64[3,{m},{k}], c64[3,{k},{n}], s32[3])"
    call = text("lapack_cgesdd_ffi", [f"c64[3,{m},{n}]"], results, "{mode = 83 : ui8}")
    _, values, _, _, status = hl.compile(call, backend=backend)(x)
    assert status.tolist() == [0, -4, 0] and np.isnan(values[1]).all()
    np.testing.assert_allclose(values[[0, 2]], np.linalg.svd(x[[0, 2]], compute_uv=False), rtol=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize(("count", "n"), [(3, 5), (20, 5), (3, 40), (1, 200)])
def test_a_nan_is_a_failed_factorisation(letter: str, uplo: str, count: int, n: int) -> None:
    """OpenBLAS reports none in some of these; the first NaN of the diagonal is where the factorisation fails."""
    element_type, dtype = TYPES[letter]
    rng = np.random.default_rng(n)
    a = np.broadcast_to(np.eye(n, dtype=dtype), (count, n, n)) + rng.standard_normal((count, n, n)) / (8 * n)
    a = ((a + a.swapaxes(1, 2)) / 2).astype(dtype)
    a[0, n // 2, n // 2], a[-1, n - 1, n - 1] = np.nan, np.nan
    shape = f"{element_type}[{count},{n},{n}]"
    program = text(f"lapack_{letter}potrf_ffi", [shape], f"({shape}, s32[{count}])", f"{{uplo = {ord(uplo)} : ui8}}")
    first = n // 2 + 1
    want = [first, *[0] * (count - 2), n][:count] if count > 1 else [first]
    for backend in ("cpu", "interpreter"):
        assert hl.compile(program, backend)(a)[1].tolist() == want


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_empty_matrices_have_factors(backend: str) -> None:
    program = text("lapack_spotrf_ffi", ["f32[3,0,0]"], "(f32[3,0,0], s32[3])", "{uplo = 76 : ui8}")
    assert hl.compile(program, backend)(np.zeros((3, 0, 0), np.float32))[1].tolist() == [0, 0, 0]
