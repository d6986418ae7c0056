"""Custom-call targets that are not LAPACK routines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.text import parse_shape


def call(target: str, operands: list[np.ndarray], shape: str, config: str = "", backend: str = "cpu") -> Any:
    b = hl.XlaBuilder()
    arguments = [b.parameter(i, hl.Literal.from_numpy(a).shape) for i, a in enumerate(operands)]
    program = b.build(b.custom_call(target, arguments, parse_shape(shape), opaque=config))
    return hl.compile(program, backend=backend)(*operands)


def test_markers_return_their_operand() -> None:
    x = np.arange(3, dtype=np.float32)
    assert call("Sharding", [x], "f32[3]").tolist() == [0, 1, 2]


@pytest.mark.parametrize(("largest", "values", "indices"), [("true", [9, 4], [2, 0]), ("false", [1, 3], [1, 3])])
def test_top_k(largest: str, values: list[int], indices: list[int]) -> None:
    x = np.array([4, 1, 9, 3], np.float32)
    got = call("mhlo.topk", [x], "(f32[2], s32[2])", f"{{k = 2 : i64, largest = {largest}}}")
    assert got[0].tolist() == values and got[1].tolist() == indices


def test_qr_and_the_product_of_its_reflectors() -> None:
    a = np.random.default_rng(0).standard_normal((2, 5, 3))
    packed, tau = call("Qr", [a], "(f64[2,5,3], f64[2,3])")
    q = call("ProductOfElementaryHouseholderReflectors", [packed, tau], "f64[2,5,3]")
    np.testing.assert_allclose(q @ np.triu(packed)[:, :3], a, atol=1e-12)


def test_lu_decomposition_gives_the_permutation_too() -> None:
    a = np.random.default_rng(0).standard_normal((2, 4, 3))
    lu, pivots, permutation = call("LuDecomposition", [a], "(f64[2,4,3], s32[2,3], s32[2,4])")
    product = (np.tril(lu, -1) + np.eye(4, 3)) @ np.triu(lu)[:, :3]
    np.testing.assert_allclose(product, np.take_along_axis(a, permutation[..., None], 1), atol=1e-12)
    assert pivots.min() >= 0


@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_perturbed_solver_solves_what_has_a_solution(shift: float, dtype: Any) -> None:
    """Without a shift, pivots are small: rows have to be swapped."""
    rng = np.random.default_rng(0)
    lower, d, upper = (rng.standard_normal((2, 5)).astype(dtype) for _ in range(3))
    d, b = d * 0.01 + shift, rng.standard_normal((2, 5, 2)).astype(dtype)
    kind = "f64" if dtype == np.float64 else "c128"
    x = call("tridiagonal_solve_perturbed_ffi", [lower, d, upper, b], f"{kind}[2,5,2]")
    a = np.stack([np.diag(d[i]) + np.diag(lower[i, 1:], -1) + np.diag(upper[i, :-1], 1) for i in range(2)])
    np.testing.assert_allclose(a @ x, b, atol=1e-8)


def test_the_perturbed_solver_stays_finite_on_singular_matrices() -> None:
    """The solution points along the null vector (1, -1, 1), which inverse iteration needs."""
    lower, d, upper = np.array([0.0, 1, 1]), np.array([1.0, 2, 1]), np.array([1.0, 1, 0])
    x = call("tridiagonal_solve_perturbed_ffi", [lower, d, upper, np.array([[1.0], [2], [5]])], "f64[3,1]")
    direction = x[:, 0] / x[0, 0]
    np.testing.assert_allclose(direction, [1, -1, 1], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int32])
def test_sparse_rows_times_dense(dtype: Any) -> None:
    data, columns, starts = np.array([1, 2, 3], dtype), np.array([2, 0, 1], np.int32), np.array([0, 1, 1, 3], np.int32)
    a = np.array([[0, 0, 1], [0, 0, 0], [2, 3, 0]], dtype)
    for dense in (np.arange(6, dtype=dtype).reshape(3, 2), np.arange(3, dtype=dtype)):
        kind = {"f": "f32", "c": "c64", "i": "s32"}[a.dtype.kind]
        shape = f"{kind}[{','.join(map(str, (3, *dense.shape[1:])))}]"
        got = call("cpu_csr_sparse_dense_ffi", [data, starts, columns, dense], shape)
        np.testing.assert_array_equal(got, a @ dense)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_control_dependencies_compute_nothing(backend: str) -> None:
    program = hl.parse("""HloModule m

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] sine(x)
  z = f32[4] cosine(x)
  order = () custom-call(z, y), custom_call_target="control_dep", custom_call_has_side_effect=true
  ROOT r = f32[4] add(y, z)
}""")
    x = np.arange(4, dtype=np.float32)
    run = hl.compile(program, backend=backend)
    np.testing.assert_allclose(run(x), np.sin(x) + np.cos(x), rtol=1e-6)
    assert backend == "interpreter" or "custom-call" not in run.report()


EIGH_TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128, "bf16": hl.bf16.dtype}


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("kind", EIGH_TYPES)
@pytest.mark.parametrize("lower", [0, 1])
def test_eigh_of_xlas_client_library(kind: str, lower: int, backend: str) -> None:
    """CUSTOMCALL-7: eigenvectors as columns, eigenvalues of one triangle."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 5, 5)) + (1j * rng.standard_normal((2, 5, 5)) if kind[0] == "c" else 0)
    a = a.astype(EIGH_TYPES[kind])
    wide = a.astype(np.complex128)
    triangle = np.tril(wide, -1) if lower else np.triu(wide, 1).conj().swapaxes(-1, -2)
    whole = triangle + triangle.conj().swapaxes(-1, -2) + np.real(np.einsum("bii->bi", wide))[..., None] * np.eye(5)
    real = {"c64": "f32", "c128": "f64"}.get(kind, kind)
    v, w = call("Eigh", [a], f"({kind}[2,5,5], {real}[2,5])", f"{lower},1,100,0.000001", backend)
    tolerance = {"bf16": 0.1, "f64": 1e-12, "c128": 1e-12}.get(kind, 2e-5)
    np.testing.assert_allclose(w.astype(np.float64), np.linalg.eigvalsh(whole), rtol=tolerance, atol=tolerance)
    v = v.astype(np.complex128)
    np.testing.assert_allclose(whole @ v, v * w.astype(np.float64)[:, None, :], atol=3 * tolerance)
    np.testing.assert_allclose(v.conj().swapaxes(-1, -2) @ v, np.tile(np.eye(5), (2, 1, 1)), atol=3 * tolerance)


def test_eigh_of_matrices_that_are_not_finite_is_nan() -> None:
    """CUSTOMCALL-7."""
    a = np.stack([np.eye(3, dtype=np.float32), np.full((3, 3), np.nan, np.float32), np.diag([1, np.inf, 2])]).astype(
        "f"
    )
    v, w = call("Eigh", [a], "(f32[3,3,3], f32[3,3])", "1,0,100,1e-6")
    assert w[0].tolist() == [1, 1, 1] and np.isnan(w[1:]).all() and np.isnan(v[1:]).all()


@pytest.mark.parametrize("config", ["", "1,1,100", "1,1,x,1e-6", "2,1,100,1e-6", "{lower = true}"])
def test_eigh_requires_its_configuration(config: str) -> None:
    """CUSTOMCALL-7."""
    with pytest.raises(hl.RuleError, match="CUSTOMCALL-7.*'Eigh'"):
        call("Eigh", [np.eye(3, dtype=np.float32)], "(f32[3,3], f32[3])", config)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_factorisations_of_narrow_floats_are_computed_in_f32(kind: str) -> None:
    """CUSTOMCALL-7."""
    dtype = getattr(hl, kind).dtype
    a = np.random.default_rng(0).standard_normal((4, 3)).astype(dtype)
    packed, tau = call("Qr", [a], f"({kind}[4,3], {kind}[3])")
    q = call("ProductOfElementaryHouseholderReflectors", [packed, tau], f"{kind}[4,3]").astype(np.float32)
    r = np.triu(packed.astype(np.float32))[:3]
    np.testing.assert_allclose(q @ r, a.astype(np.float32), atol=0.1)
    lu, _, permutation = call("LuDecomposition", [a], f"({kind}[4,3], s32[3], s32[4])")
    lu = lu.astype(np.float32)
    np.testing.assert_allclose(
        (np.tril(lu, -1)[:, :3] + np.eye(4, 3)) @ np.triu(lu)[:3], a.astype(np.float32)[permutation], atol=0.1
    )
