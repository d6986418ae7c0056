"""Lowering rules and branches by platform: those of "cpu" apply to hloom."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from scipy import special

jax = pytest.importorskip("jax", reason="needs JAX")
from jax import export  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402

from accuracy import exact, measure  # noqa: E402
from accuracy.functions import SPECIAL as MEASURED  # noqa: E402
from accuracy.functions import Function  # noqa: E402
from hloom.errors import ArgumentError  # noqa: E402
from hloom.jax_plugin.lowerings import like_cpu, register_lowerings  # noqa: E402
from hloom.ops.operation import OPERATIONS  # noqa: E402
from hloom.pjrt.programs import read_stablehlo  # noqa: E402
from hloom.stablehlo.special_functions import FUNCTIONS  # noqa: E402
from jax_plugin.lowered_programs import Lowered, run  # noqa: E402

X = np.arange(4, dtype=np.float32)
CASES = int(os.environ.get("HLOOM_CASES", "400"))
EXPANDED = [f for f in MEASURED if np.isfinite(f.bound) and f.name not in {*FUNCTIONS, *OPERATIONS, "atan"}]
"""Functions with a bound that are expanded before hloom sees them."""


def test_hloom_takes_the_branch_for_cpu_unless_it_has_its_own() -> None:
    assert like_cpu((("cpu", "cuda"), ("tpu",), None)) == (("cpu", "cuda", "hloom"), ("tpu",), None)
    assert like_cpu((("cpu",), ("hloom",))) == (("cpu",), ("hloom",))
    assert like_cpu((("tpu",), None)) == (("tpu",), None)


@pytest.mark.parametrize(
    ("branches", "added"), [({"cpu": 1, "tpu": 2}, 1), ({"cpu": 1, "hloom": 5}, 5), ({"tpu": 2}, 9)]
)
def test_platform_dependent(branches: dict[str, int], added: int) -> None:
    def function(x: Any) -> Any:
        functions = {name: (lambda x, n=n: x + n) for name, n in branches.items()}
        return jax.lax.platform_dependent(x, default=lambda x: x + 9, **functions)

    np.testing.assert_array_equal(run(function, X)[0], X + added)


def test_rules_that_are_registered_for_cpu_later_apply() -> None:
    register_lowerings()
    primitive = Primitive("later")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 3, multiple_results=False), platform="cpu")
    np.testing.assert_array_equal(run(primitive.bind, X)[0], X * 3)


def test_linear_algebra_uses_lapack() -> None:
    lowered = Lowered(jax.numpy.linalg.cholesky, np.eye(3, dtype=np.float32))
    assert "lapack_spotrf_ffi" in lowered.text


@pytest.mark.parametrize(("sizes", "rows"), [((3,), 3), ((2, 5), 7), ((4, 3, 6), 6), ((0,), 0), ((0,), 4), ((0, 5), 5)])
def test_pivots_swap_rows(sizes: tuple[int, ...], rows: int) -> None:
    random = np.random.default_rng(0)
    pivots = np.zeros(sizes, np.int32)
    for k in range(sizes[-1]):
        pivots[..., k] = random.integers(k, rows, sizes[:-1])
    expected = np.broadcast_to(np.arange(rows, dtype=np.int32), (*sizes[:-1], rows)).copy()
    for batch in np.ndindex(sizes[:-1]):
        for k, pivot in enumerate(pivots[batch]):
            expected[batch][[k, pivot]] = expected[batch][[pivot, k]]
    lowered = Lowered(lambda p: jax.lax.linalg.lu_pivots_to_permutation(p, rows), pivots)
    np.testing.assert_array_equal(lowered(pivots)[0], expected)


@pytest.mark.parametrize("name", ["solve", "inv", "det", "lu", pytest.param("expm", marks=pytest.mark.long)])
def test_exported_programs_only_call_stable_targets(name: str) -> None:
    """JAX refuses to export calls of other targets; the values are those of JAX."""
    linalg, a = jax.numpy.linalg, np.array([[4, 1, 2], [8, 3, 1], [2, 6, 5]], np.float32)
    functions: dict[str, Any] = {
        "solve": lambda a: linalg.solve(a, a[0]),
        "lu": jax.scipy.linalg.lu,
        "expm": lambda a: jax.scipy.linalg.expm(a / 8),
    }
    function = jax.jit(functions.get(name) or getattr(linalg, name))
    register_lowerings()
    exported = export.export(function, platforms=["cpu", "tpu", "hloom"])(a)
    want = jax.tree.leaves(function(a))
    for got, value in zip(run(exported.call, a), want, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)


SPECIAL = {
    "acos": np.arccos, "asinh": np.arcsinh, "atanh": np.arctanh, "cosh": np.cosh, "logistic": special.expit,
    "sinh": np.sinh, "bessel_i0e": special.i0e, "bessel_i1e": special.i1e, "digamma": special.digamma,
    "erf_inv": special.erfinv, "erfc": special.erfc, "exp2": np.exp2, "lgamma": special.gammaln,
}  # fmt: skip


def test_special_functions_are_those_of_hloom() -> None:
    """Programs for export keep to the ops that JAX calls stable."""

    def function(x: Any) -> Any:
        return [getattr(jax.lax, name)(x) for name in SPECIAL]

    x = np.array([0.25, 0.5, 0.99], np.float32)
    lowered = Lowered(function, x)
    assert all(f"@hloom.{name}(" in lowered.text for name in SPECIAL)
    for got, expected in zip(lowered(x), SPECIAL.values(), strict=True):
        np.testing.assert_allclose(got, expected(x.astype(np.float64)), 4e-7)
    exported = export.export(jax.jit(function), platforms=["hloom"])(x)
    assert "@hloom." not in exported.mlir_module()


COMPOSED = {"exp1": special.exp1, "expi": special.expi, "log_ndtr": special.log_ndtr, "logit": special.logit}


def test_functions_that_jax_composes_are_those_of_hloom_where_they_have_derivatives_of_their_own() -> None:
    functions = {name: getattr(jax.scipy.special, name) for name in COMPOSED}
    x = np.array([0.25, 0.50001, 0.99], np.float32)
    lowered = Lowered(lambda x: [jax.vmap(function)(x) for function in functions.values()], x)
    assert all(f"@hloom.{name}(" in lowered.text for name in COMPOSED)
    for got, expected in zip(lowered(x), COMPOSED.values(), strict=True):
        np.testing.assert_allclose(got, expected(x.astype(np.float64)), 4e-7)
    (slope,) = run(jax.vmap(jax.grad(functions["logit"])), x)
    np.testing.assert_allclose(slope, 1 / (x * (1 - x)), 1e-6)
    whole = np.array([1, 2], np.int32)
    np.testing.assert_allclose(run(functions["expi"], whole)[0], special.expi(whole), 1e-6)
    exported = export.export(jax.jit(functions["expi"]), platforms=["hloom"])(x)
    assert "@hloom." not in exported.mlir_module()
    (relu,) = run(jax.nn.relu, x - 0.5)
    np.testing.assert_array_equal(relu, np.maximum(x - 0.5, 0))


def test_series_of_narrow_types_are_summed_in_double() -> None:
    a, x = np.array([58.5, 0.25, 41.5], np.float32), np.array([37.25, 0.125, 43.0], np.float32)
    (got,) = run(jax.lax.igammac, a, x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, special.gammaincc(a.astype(np.float64), x.astype(np.float64)), 6e-8)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", EXPANDED, ids=lambda function: function.name)
def test_functions_that_are_expanded_are_within_their_bounds(function: Function, dtype: Any) -> None:
    assert function.of_jax is not None
    operands = function.arguments(dtype, CASES // 16, 2)
    with jax.enable_x64(True):
        (got,) = run(function.of_jax, *operands)
    exacts = measure.exact_values(function, operands)
    error = np.where(np.isnan(exacts), 0, exact.errors(got, exacts, zeros_have_signs=False))
    assert error.max() <= function.bound_for(dtype), [x[int(np.argmax(error))] for x in operands]


def test_limits_of_incomplete_functions() -> None:
    a = np.array([0, 2, 0, 2, np.inf, -1, 1, 1e4, 100, 5])
    x = np.array([2, 0, 0, np.inf, 2, 2, 1e-300, 2e4, 2000, 2000])
    b, y = np.array([2.0, 0, 2, 2, 0, 2, 2, 3, 0, 2]), np.array([0.5, 0.5, 0, 1, 0.5, 1.5, 0.5, 1e-12, 1, 0])
    with jax.enable_x64(True):
        got = run(
            lambda a, x, b, y: (jax.lax.igamma(a, x), jax.lax.igammac(a, x), jax.lax.betainc(a, b, y)), a, x, b, y
        )
    np.testing.assert_array_equal(got[0], [1, 0, np.nan, 1, 0, np.nan, 1e-300, 1, 1, 1])
    np.testing.assert_array_equal(got[1], [0, 1, np.nan, 0, 1, np.nan, 1, 0, 0, 0])
    np.testing.assert_allclose(got[2], [1, 0, 0, 1, 0, np.nan, 0.75, 0, 1, 0], 1e-14)


def test_digamma_is_differentiated() -> None:
    x = np.array([[0.5, 1, 2.5, 4]], np.float32)
    (got,) = run(jax.grad(lambda x: jax.lax.digamma(x).sum()), x)
    np.testing.assert_allclose(got, special.polygamma(1, x.astype(np.float64)), 5e-7)


def test_complex_and_narrow_powers_of_two() -> None:
    z = np.array([1 + 2j, -3j], np.complex64)
    np.testing.assert_allclose(run(jax.lax.exp2, z)[0], 2**z, 1e-6)
    half = np.array([0.5, 3], np.float16)
    np.testing.assert_array_equal(run(jax.lax.exp2, half)[0], np.exp2(half))


def test_an_unknown_special_function_is_refused() -> None:
    text = "func.func @main(%x: tensor<f32>) -> tensor<f32> { %0 = stablehlo.custom_call @hloom.nothing(%x) "
    with pytest.raises(ArgumentError, match="no function 'nothing'; it has bessel_i0e, "):
        read_stablehlo(f"{text} : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32> }}".encode())
