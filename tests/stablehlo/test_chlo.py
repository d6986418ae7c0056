"""Import of CHLO: special functions compared with SciPy, broadcasting with NumPy, and other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
from scipy import special

import hloom as hl
from hloom.stablehlo.importer.module import parse_stablehlo
from hloom.stablehlo.special_functions import FUNCTIONS

WIDE = np.concatenate([np.linspace(-9.7, 30, 400), np.geomspace(1e-8, 1e5, 60), -np.geomspace(1e-8, 20, 40)])
UNIT = np.concatenate([np.linspace(-0.999, 0.999, 301), 1 - np.geomspace(1e-12, 0.1, 30), np.geomspace(1e-12, 0.1, 30)])


def unary(op: str, x: Any, result: str = "f64") -> Any:
    mlir, out = f"tensor<{x.size}x{'f64' if x.dtype == np.float64 else 'f32'}>", f"tensor<{x.size}x{result}>"
    text = f"func.func @main(%x: {mlir}) -> {out} {{ %0 = chlo.{op} %x : {mlir} -> {out}\nreturn %0 : {out} }}"
    return hl.compile(parse_stablehlo(text), backend="interpreter")(x)


def binary(op: str, x: Any, y: Any) -> Any:
    mlir = f"tensor<{x.size}xf64>"
    text = f"""func.func @main(%x: {mlir}, %y: {mlir}) -> {mlir} {{
      %0 = chlo.{op} %x, %y : {mlir}, {mlir} -> {mlir}
      return %0 : {mlir}
    }}"""
    return hl.compile(parse_stablehlo(text), backend="interpreter")(x, y)


@pytest.mark.parametrize(
    "op, function, x, rtol, atol",
    [
        ("lgamma", special.gammaln, WIDE, 1e-13, 1e-14),
        ("digamma", special.digamma, WIDE, 1e-12, 1e-13),
        ("erf", special.erf, WIDE, 1e-15, 0),
        ("erfc", special.erfc, WIDE, 1e-13, 1e-300),
        ("erf_inv", special.erfinv, UNIT, 1e-14, 0),
        ("bessel_i1e", special.i1e, WIDE, 1e-14, 1e-18),
        ("asin", np.arcsin, UNIT, 1e-14, 0),
        ("acos", np.arccos, UNIT, 1e-14, 0),
        ("atan", np.arctan, WIDE, 1e-14, 0),
        ("asinh", np.arcsinh, WIDE, 1e-13, 0),
        ("acosh", np.arccosh, WIDE[WIDE >= 1], 1e-13, 0),
        ("atanh", np.arctanh, UNIT, 1e-13, 0),
        ("sinh", np.sinh, UNIT, 1e-14, 0),
        ("cosh", np.cosh, UNIT, 1e-14, 0),
        ("tan", np.tan, UNIT, 1e-14, 0),
        ("square", np.square, WIDE, 0, 0),
    ],
)
def test_functions_of_one_argument(op: str, function: Callable[[Any], Any], x: Any, rtol: float, atol: float) -> None:
    np.testing.assert_allclose(unary(op, x), function(x), rtol, atol)


def test_functions_at_their_edges() -> None:
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(unary("lgamma", np.array([inf, -inf, 0.0, -1.0, nan])), [inf, inf, inf, inf, nan])
    np.testing.assert_array_equal(unary("digamma", np.array([0.0, -2.0, inf])), [nan, nan, inf])
    np.testing.assert_array_equal(unary("erf_inv", np.array([1.0, -1.0, 0.0, 1.5])), [inf, -inf, 0.0, nan])
    np.testing.assert_array_equal(unary("erfc", np.array([inf, -inf, 0.0, nan])), [0.0, 2.0, 1.0, nan])
    orders, poles = np.array([1.0, 1.0, 3.0, 2.0, -1.0]), np.array([0.0, -3.0, -1.0, -1.0, 2.0])
    np.testing.assert_array_equal(binary("polygamma", orders, poles), [inf, inf, inf, nan, nan])
    np.testing.assert_array_equal(unary("is_inf", np.array([inf, -inf, 1.0, nan]), "i1"), [True, True, False, False])
    np.testing.assert_array_equal(unary("is_pos_inf", np.array([inf, -inf, nan]), "i1"), [True, False, False])
    np.testing.assert_array_equal(unary("is_neg_inf", np.array([inf, -inf, nan]), "i1"), [False, True, False])


def test_functions_of_jax_at_their_edges() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([0.0, -0.0, inf, -inf, nan, 1.0, -1.0])
    edges: dict[str, list[float]] = {
        "expi": [-inf, -inf, inf, 0.0, nan, special.expi(1.0), special.expi(-1.0)],
        "exp1": [inf, inf, 0.0, nan, nan, special.exp1(1.0), nan],
        "log_ndtr": [np.log(0.5), np.log(0.5), 0.0, -inf, nan, special.log_ndtr(1.0), special.log_ndtr(-1.0)],
        "logit": [-inf, -inf, nan, nan, nan, inf, nan],
    }
    for name, values in edges.items():
        builder = hl.XlaBuilder(name)
        program = hl.compile(builder.build(FUNCTIONS[name](builder.parameter(0, hl.Shape.array(hl.f64, x.shape)))))
        np.testing.assert_allclose(program(x), values, 2e-15)


def test_functions_of_two_arguments() -> None:
    orders, x = np.repeat([2.0, 3.5, 8.0, 1.1], 50), np.tile(np.geomspace(0.05, 60, 50), 4)
    np.testing.assert_allclose(binary("zeta", orders, x), special.zeta(orders, x), 1e-13)
    far = np.array([8.5]), np.array([1e40])  # where q^-x underflows and q^(1 - x) does not
    np.testing.assert_allclose(binary("zeta", *far), 1e-300 / 7.5, 1e-14)
    n = np.repeat([0.0, 1.0, 4.0, 7.0], 50)
    np.testing.assert_allclose(binary("polygamma", n, x), special.polygamma(n.astype(int), x), 1e-12)
    large = np.array([175.0, 100.0]), np.array([50.0, 1e5])  # 175! overflows, 1e5^-100 underflows
    expected = [float(mpmath.polygamma(int(k), x)) for k, x in zip(*large, strict=True)]
    np.testing.assert_allclose(binary("polygamma", *large), expected, 1e-12)
    edges = np.array([1.0, 0.0, -0.0, 5e-324, np.inf, np.nan, 1.0, 2.0])
    towards = np.array([2.0, -1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(binary("next_after", edges, towards), np.nextafter(edges, towards))


def test_operands_broadcast_like_those_of_numpy() -> None:
    text = """func.func @main(%x: tensor<3x1xf32>, %y: tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3x4xi1>, tensor<4x3xf32>) {
      %0 = chlo.broadcast_add %x, %y : (tensor<3x1xf32>, tensor<4xf32>) -> tensor<3x4xf32>
      %1 = "chlo.broadcast_compare"(%x, %y) <{comparison_direction = #chlo<comparison_direction LT>}> :
        (tensor<3x1xf32>, tensor<4xf32>) -> tensor<3x4xi1>
      %t = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
      %2 = "chlo.broadcast_multiply"(%t, %y) <{broadcast_dimensions = array<i64: 0>}> :
        (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
      return %0, %1, %2 : tensor<3x4xf32>, tensor<3x4xi1>, tensor<4x3xf32>
    }"""
    x, y = np.array([[1], [2], [3]], np.float32), np.arange(4, dtype=np.float32)
    total, less, product = hl.compile(parse_stablehlo(text), backend="interpreter")(x, y)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(less, x < y)
    np.testing.assert_array_equal(product, (x + y).T * y[:, None])


def test_constants_top_k_and_conjugates() -> None:
    text = """func.func @main(%x: tensor<2x4xf32>, %z: tensor<2xcomplex<f32>>)
        -> (tensor<2x2xf32>, tensor<2x2xi32>, tensor<2xcomplex<f32>>, tensor<2x4xf32>) {
      %v, %i = chlo.top_k(%x, k = 2) : tensor<2x4xf32> -> (tensor<2x2xf32>, tensor<2x2xi32>)
      %c = chlo.conj %z : tensor<2xcomplex<f32>> -> tensor<2xcomplex<f32>>
      %k = "chlo.constant_like"(%x) <{value = 2.5 : f32}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
      return %v, %i, %c, %k : tensor<2x2xf32>, tensor<2x2xi32>, tensor<2xcomplex<f32>>, tensor<2x4xf32>
    }"""
    x = np.array([[1, 5, 3, 5], [-1, -2, -3, -4]], np.float32)
    values, indices, conjugate, like = hl.compile(parse_stablehlo(text), backend="interpreter")(
        x, np.array([1 + 2j, -3j], np.complex64)
    )
    assert values.tolist() == [[5, 5], [-1, -2]] and indices.tolist() == [[1, 3], [0, 1]]
    assert conjugate.tolist() == [1 - 2j, 3j] and (like == 2.5).all()


def test_functions_of_bf16_are_rounded_f64_results() -> None:
    x = np.linspace(0.5, 4, 8).astype(ml_dtypes.bfloat16)
    text = """func.func @main(%x: tensor<8xbf16>) -> tensor<8xbf16> {
      %0 = chlo.lgamma %x : tensor<8xbf16> -> tensor<8xbf16>
      return %0 : tensor<8xbf16>
    }"""
    got = hl.compile(parse_stablehlo(text), backend="interpreter")(x).astype(np.float64)
    want = special.gammaln(x.astype(np.float64)).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_allclose(got, want, 0, 1e-14)
