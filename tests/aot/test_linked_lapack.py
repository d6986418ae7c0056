"""Linear algebra in libraries: own code for most of LAPACK's routines, and LAPACK, linked by the program, for others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from targets.c_program import compile_program, results_of

N = 9
RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((2, N, N))
COMPLEX = REAL + 1j * RNG.standard_normal((2, N, N))
HERMITIAN = COMPLEX @ COMPLEX.conj().swapaxes(1, 2) + np.eye(N)
SQUARE, ROW, INFO = f"[2,{N},{N}]", f"[2,{N}]", "s32[2]"


def call(target: str, results: str, operands: str = "a", **config: int | str) -> str:
    """The text of a custom call of a LAPACK target of JAX."""
    values = ", ".join(f"{k} = {ord(v) if isinstance(v, str) else v} : ui8" for k, v in config.items())
    name = f'custom_call_target="lapack_{target}_ffi", api_version=API_VERSION_TYPED_FFI'
    return f"ROOT r = {results} custom-call({operands}), {name}, backend_config={{{values}}}"


def program(type: str, line: str) -> hl.Module:
    return hl.parse(module_text(f"a = {type}{SQUARE} parameter(0)\n{line}"))


def in_library(module: hl.Module, arguments: list[Any], folder: Path, **options: Any) -> list[Any]:
    library = hl.build({"f": module}, threads=2)
    compile_program(library, folder, threads=2, **options)
    return results_of(library, arguments, folder)[0]


EIGEN = {"mode": "V", "uplo": "L"}


def test_eigenvalues_need_no_lapack(tmp_path: Path) -> None:
    module = program("c128", call("zheevd", f"(c128{SQUARE}, f64{ROW}, {INFO})", **EIGEN))
    vectors, values, info = in_library(module, [HERMITIAN], tmp_path)
    assert not info.any()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(HERMITIAN), rtol=1e-13)
    np.testing.assert_allclose(HERMITIAN @ vectors, vectors * values[:, None], atol=1e-12)


def test_singular_values_need_no_lapack(tmp_path: Path) -> None:
    results = f"(f32{SQUARE}, f32{ROW}, f32{SQUARE}, f32{SQUARE}, {INFO})"
    module, a = program("f32", call("sgesdd", results, mode="A")), REAL.astype(np.float32)
    _, s, u, vt, info = in_library(module, [a], tmp_path)
    assert not info.any()
    np.testing.assert_allclose(s, np.linalg.svd(REAL, compute_uv=False), atol=1e-6)
    np.testing.assert_allclose(u * s[:, None] @ vt, a, atol=2e-6)


@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize("transpose", ["TRANSPOSE", "ADJOINT"])
def test_complex_factorisations_need_no_lapack(lower: str, transpose: str, tmp_path: Path) -> None:
    """CHOLESKY-1, TRIANGULARSOLVE-1: the factor, and a solution by it from the right."""
    shape = f"c128{SQUARE}"
    solve = f"triangular-solve(l, a), left_side=false, lower={lower}, transpose_a={transpose}"
    lines = f"l = {shape} cholesky(a), lower={lower}\nx = {shape} {solve}\nROOT r = ({shape}, {shape}) tuple(l, x)"
    factor, x = in_library(program("c128", lines), [HERMITIAN], tmp_path)
    adjoint = factor.conj().swapaxes(1, 2)
    product = factor @ adjoint if lower == "true" else adjoint @ factor
    np.testing.assert_allclose(product, HERMITIAN, atol=1e-12)
    used = adjoint if transpose == "ADJOINT" else factor.swapaxes(1, 2)
    np.testing.assert_allclose(x @ used, HERMITIAN, atol=1e-11)


def test_complex_lu_and_qr_need_no_lapack(tmp_path: Path) -> None:
    """The results are LAPACK's, up to rounding."""
    matrix = f"c128{SQUARE}"
    parts = (
        call("zgetrf", f"({matrix}, s32{ROW}, {INFO})").replace("ROOT r", "p"),
        call("zgeqrf", f"({matrix}, c128{ROW})").replace("ROOT r", "q"),
        f"v = {matrix} get-tuple-element(q), index=0\nt = c128{ROW} get-tuple-element(q), index=1",
        call("zungqr", matrix, "v, t").replace("ROOT r", "o"),
        f"ROOT r = (({matrix}, s32{ROW}, {INFO}), ({matrix}, c128{ROW}), {matrix}) tuple(p, q, o)",
    )
    module = program("c128", "\n".join(parts))
    found = in_library(module, [COMPLEX], tmp_path)
    (lu, pivots, info), (packed, taus), q = hl.compile(module)(COMPLEX)
    for mine, want in zip(found, (lu, pivots, info, packed, taus, q), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-12)


OTHERS = {
    "dgeev": (f"(f64{ROW}, f64{ROW}, c128{SQUARE}, c128{SQUARE}, {INFO})", {"compute_left": "V", "compute_right": "V"}),
    "zgees": (f"(c128{SQUARE}, c128{SQUARE}, c128{ROW}, {INFO}, {INFO})", {"mode": "V", "sort": "N"}),
    "dgehrd": (f"(f64{SQUARE}, f64[2,{N - 1}], {INFO})", {"low": 1, "high": N}),
    "zhetrd": (f"(c128{SQUARE}, f64{ROW}, f64[2,{N - 1}], c128[2,{N - 1}], {INFO})", {"uplo": "L"}),
}


def test_what_needs_lapack_is_refused_by_name() -> None:
    for target, (results, config) in OTHERS.items():
        type = "c128" if target[0] == "z" else "f64"
        with pytest.raises(hl.ArgumentError, match=f"f calls {target} of LAPACK"):
            hl.build({"f": program(type, call(target, results, **config))})


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("target", OTHERS)
def test_lapack_is_linked(target: str, tmp_path: Path) -> None:
    """The one in SciPy's wheel, whose names have a prefix: the bits are the JIT's, which calls the same."""
    results, config = OTHERS[target]
    module = program("c128" if target[0] == "z" else "f64", call(target, results, **config))
    library = hl.build({"f": module}, threads=1, lapack=True)
    assert f"{target}_".encode() in library.binaries["f.o"]
    import scipy

    (openblas,) = (Path(scipy.__file__).parents[1] / "scipy.libs").glob("libscipy_openblas*.so")
    jump = f".globl {target}_\n{target}_: jmp scipy_{target}_@PLT\n.section .note.GNU-stack\n"
    linked = ["-Wl,--no-as-needed", str(openblas), f"-Wl,-rpath,{openblas.parent}"]
    a = [COMPLEX if target[0] == "z" else REAL]
    compile_program(library, tmp_path, compiler=["cc", "-O1", *linked], sources={"jump.s": jump})
    found, _ = results_of(library, a, tmp_path)
    flat = [array for value in hl.compile(module)(*a) for array in (value if isinstance(value, tuple) else [value])]
    for mine, want in zip(found, flat, strict=True):
        assert mine.tobytes() == np.ascontiguousarray(want).tobytes()
