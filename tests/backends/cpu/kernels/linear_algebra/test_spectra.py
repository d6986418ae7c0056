"""Eigenvalues and singular values without LAPACK: by their equations, and against LAPACK in twice the precision."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends.cpu.kernels.run_kernel import Kernel
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.linear_algebra import routine
from hloom.ir import Instruction
from hloom.ops.custom_call import CustomCall
from hloom.target import Target

TYPES: dict[str, Any] = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
NAMES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
CASES = int(os.environ.get("HLOOM_CASES", "400"))
Array = np.ndarray[Any, Any]


def emit(op: CustomCall, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    return routine.emit(op, name, instruction, replace(target, has_lapack=False))


def shape(letter: str, *sizes: int) -> str:
    return f"{NAMES[letter]}[{','.join(map(str, sizes))}]"


def kernel(target: str, a: str, results: str, config: str, threads: int = 1) -> Kernel:
    call = f'custom-call(a), custom_call_target="lapack_{target}_ffi", api_version=API_VERSION_TYPED_FFI'
    text = f"HloModule m\nENTRY e {{\na = {a} parameter(0)\nROOT r = {results} {call}, backend_config={config}\n}}"
    return Kernel(emit, text, threads)


def eigen(letter: str, count: int, n: int, uplo: str = "L", mode: str = "V", threads: int = 1) -> Kernel:
    name = f"{letter}{'heevd' if letter in 'cz' else 'syevd'}"
    real = "sd"["dz".find(letter) >= 0]
    results = f"({shape(letter, count, n, n)}, {shape(real, count, n)}, s32[{count}])"
    config = f"{{mode = {ord(mode)} : ui8, uplo = {ord(uplo)} : ui8}}"
    return kernel(name, shape(letter, count, n, n), results, config, threads)


def singular(letter: str, count: int, m: int, n: int, mode: str = "S") -> Kernel:
    k, real = min(m, n), "sd"["dz".find(letter) >= 0]
    p, r = (m, n) if mode == "A" else (k, k)
    results = [
        shape(letter, count, m, n),
        shape(real, count, k),
        shape(letter, count, m, p),
        shape(letter, count, r, n),
    ]
    config = f"{{mode = {ord(mode)} : ui8}}"
    return kernel(f"{letter}gesdd", shape(letter, count, m, n), f"({', '.join(results)}, s32[{count}])", config)


def epsilon(letter: str) -> float:
    return float(np.finfo(TYPES[letter]).eps)


def random(rng: np.random.Generator, letter: str, *sizes: int) -> Array:
    x = rng.standard_normal(sizes)
    return (x + 1j * rng.standard_normal(sizes) if letter in "cz" else x).astype(TYPES[letter])


def adjoint(a: Array) -> Array:
    return a.conj().swapaxes(-1, -2)


def wide(a: Array) -> Array:
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def check_orthonormal(columns: Array, letter: str) -> None:
    error = abs(adjoint(columns) @ columns - np.eye(columns.shape[-1])).max()
    assert error < 4 * epsilon(letter) * max(columns.shape)


def check_eigen(letter: str, a: Array, vectors: Array, values: Array) -> None:
    """Residuals and orthogonality are small multiples of the rounding error, and values those of LAPACK."""
    n, norm = len(a), np.linalg.norm(wide(a), 2)
    vectors, values = wide(vectors), values.astype(np.float64)
    check_orthonormal(vectors, letter)
    assert abs(wide(a) @ vectors - vectors * values).max() <= 4 * epsilon(letter) * n * norm
    assert abs(values - np.linalg.eigvalsh(wide(a))).max() <= 4 * epsilon(letter) * n * norm
    assert (np.diff(values) >= 0).all()


def hermitian(a: Array) -> Array:
    return (a + adjoint(a)) / a.dtype.type(2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("uplo", "LU")
def test_eigenvectors_of_symmetric_matrices(letter: str, uplo: str) -> None:
    """Only one triangle is read, of whose diagonal only the real part; batches run on threads."""
    rng = np.random.default_rng(0)
    for count, n in ((3, 6), (1, 1), (1, 37)):
        a = hermitian(random(rng, letter, count, n, n))
        other = np.triu(np.ones((n, n), bool), 1) if uplo == "L" else np.tril(np.ones((n, n), bool), -1)
        given = np.where(other, np.nan, a).astype(a.dtype)
        vectors, values, info = eigen(letter, count, n, uplo, threads=2)(given)
        assert not info.any()
        for k in range(count):
            check_eigen(letter, a[k], vectors[k], values[k])
        only = eigen(letter, count, n, uplo, mode="N")(given)[1]
        assert only.tobytes() == values.tobytes()


def check_singular(letter: str, a: Array, s: Array, u: Array, vt: Array) -> None:
    k, norm = len(s), np.linalg.norm(wide(a), 2)
    u, vt, s = wide(u), wide(vt), s.astype(np.float64)
    check_orthonormal(u, letter)
    check_orthonormal(adjoint(vt), letter)
    bound = 4 * epsilon(letter) * max(a.shape) * norm
    assert abs(u[:, :k] * s @ vt[:k] - wide(a)).max() <= bound
    assert abs(s - np.linalg.svd(wide(a), compute_uv=False)).max() <= bound
    assert (s >= 0).all() and (np.diff(s) <= 0).all()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("m", "n"), [(6, 6), (5, 9), (33, 4), (1, 3)])
@pytest.mark.parametrize("mode", "AS")
def test_singular_vectors(letter: str, m: int, n: int, mode: str) -> None:
    """Wide and tall matrices, and one of rank one, whose other vectors are any that are orthogonal."""
    rng = np.random.default_rng(m)
    a = random(rng, letter, 2, m, n)
    a[1] = a[1, :, :1] * a[1, :1]
    _, s, u, vt, info = singular(letter, 2, m, n, mode)(a)
    assert not info.any()
    for k in range(2):
        check_singular(letter, a[k], s[k], u[k], vt[k])


@pytest.mark.parametrize("letter", "dz")
def test_exact_and_extreme_matrices(letter: str) -> None:
    """Diagonal matrices have their elements exactly; sizes of elements do not matter, nor do repeated values."""
    n, rng = 9, np.random.default_rng(1)
    diagonal = np.array([3, -1, 0.1, 7, 7, -5e-9, 2, 1e-3, 0])
    run = eigen(letter, 1, n)
    _, values, info = run(np.diag(diagonal).astype(TYPES[letter])[None])
    assert not info.any() and values[0].tolist() == sorted(diagonal)
    a = hermitian(random(rng, letter, n, n))
    for scale in (1e300, 1e-300, 0):
        vectors, values, _ = run((a * scale)[None])
        check_orthonormal(wide(vectors[0]), letter)
        assert abs(values[0] - np.linalg.eigvalsh(a) * scale).max() <= 1e-14 * n * scale
        _, s, u, vt, _ = singular(letter, 1, n, n)((a * scale)[None])
        assert abs(s[0] - np.linalg.svd(a, compute_uv=False) * scale).max() <= 1e-14 * n * scale
        check_orthonormal(u[0], letter)
        check_orthonormal(adjoint(vt[0]), letter)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_matrices_that_are_not_finite_have_a_status_and_nan(bad: float) -> None:
    """As LAPACK's have, others of the batch are decomposed."""
    a = hermitian(random(np.random.default_rng(2), "s", 2, 5, 5))
    a[1, 3, 1] = bad
    vectors, values, info = eigen("s", 2, 5)(a)
    assert info[0] == 0 and info[1] != 0
    assert np.isnan(values[1]).all() and np.isnan(vectors[1]).all() and np.isfinite(values[0]).all()
    _, s, u, vt, info = singular("s", 2, 5, 5)(a)
    assert info.tolist() == [0, -4] and np.isnan(s[1]).all() and np.isfinite(vt[0]).all()


@pytest.mark.long
def test_random_spectra() -> None:
    """Graded, clustered and deficient matrices of all types and many shapes."""
    rng = np.random.default_rng(3)
    for _ in range(max(1, CASES // 10)):
        letter, m, n = rng.choice([*TYPES]), *(int(x) for x in rng.integers(1, 60, 2))
        k = min(m, n)
        spectrum = rng.choice([1.0, 1e-3, 0.0, 1e-9], k) * rng.choice([1, 1, 2 + rng.standard_normal()], k)
        q, _ = np.linalg.qr(random(rng, "z" if letter in "cz" else "d", m, k))
        r, _ = np.linalg.qr(random(rng, "z" if letter in "cz" else "d", n, k))
        a = (q * spectrum @ adjoint(r)).astype(TYPES[letter])
        _, s, u, vt, info = singular(letter, 1, m, n, rng.choice(["A", "S"]))(a[None])
        assert info == 0
        check_singular(letter, a, s[0], u[0], vt[0])
        square = hermitian((q * spectrum @ adjoint(q)).astype(TYPES[letter]))
        vectors, values, info = eigen(letter, 1, m)(square[None])
        assert info == 0
        check_eigen(letter, square, vectors[0], values[0])


@pytest.mark.long
@pytest.mark.parametrize("letter", "dz")
def test_eigenvalues_against_many_digits(letter: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    n = 12
    a = hermitian(random(np.random.default_rng(4), letter, n, n))
    _, values, _ = eigen(letter, 1, n)(a[None])
    with mpmath.workdps(40):
        exact = mpmath.eighe(mpmath.matrix(a.tolist()), eigvals_only=True)
        errors = [abs(float(mine - want)) for mine, want in zip(values[0].tolist(), exact, strict=True)]
    assert max(errors) < epsilon(letter) * n / 2 * np.linalg.norm(a, 2)
