"""Element functions: errors in units in the last place against long double, special values, equal results in all widths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from accuracy import exact, samples
from backends.cpu.elements.compile_elementwise import Array, compile_elementwise
from hloom.backends.cpu.elements.functions import logarithms, trigonometry, vector_math
from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.lir import Builder, Function, LirModule, Parameter, Value, type_of

pytestmark = pytest.mark.skipif(not exact.HAS_LONG_DOUBLE, reason="needs a long double wider than f64")

FUNCTIONS = {
    **{declaration.opcode: function for declaration, function in vector_math.FUNCTIONS.items()},
    "atan": trigonometry.atan,
    "power": logarithms.power,
}
BINARY = ("atan2", "power")

TABLE = {
    name: {np.float32: float(single), np.float64: float(double)}
    for name, single, double in re.findall(
        r"^\| ([a-z0-9-]+) \| ([\d.]+) \| ([\d.]+) \|$", vector_math.__doc__ or "", re.M
    )
}


def padded(*columns: Array) -> list[Array]:
    return [np.concatenate([x, np.ones(-x.size % 16, x.dtype)]) for x in columns]


def compiled(name: str, dtype: type, width: int) -> Any:
    function = FUNCTIONS[name]

    def emit(b: Builder, *operands: Value) -> Value:
        return function(*(Lanes(b, operand) for operand in operands)).value

    return compile_elementwise(emit, dtype, width, 2 if name in BINARY else 1)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_as_accurate_as_the_table_says_in_all_widths(name: str, dtype: type) -> None:
    operands = padded(*samples.pairs(name, dtype, 3000)) if name in BINARY else padded(samples.dense(dtype, 6000, 0))
    results = [compiled(name, dtype, width)(*operands) for width in (16, 8, 0)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    error = exact.errors(results[0], exact.IN_LONG_DOUBLE[name](*(x.astype(np.longdouble) for x in operands)))
    worst = int(np.argmax(error))
    assert error[worst] <= TABLE[name][dtype], [x[worst] for x in operands]


@pytest.mark.parametrize("name", ["sine", "cosine", "tan"])
def test_large_operands_of_several_registers_are_reduced_among_moderate_ones(name: str) -> None:
    x = np.linspace(-3, 3, 96, dtype=np.float64)
    x[[0, 17, 31, 63, 64, 90]] = 1e22, -1e300, 2.0**31, np.inf, np.nan, 1e9
    np.testing.assert_array_equal(compiled(name, np.float64, 32)(x), compiled(name, np.float64, 0)(x))
    np.testing.assert_array_equal(compiled(name, np.float32, 96)(x), compiled(name, np.float32, 0)(x))


def test_sines_share_the_reduction_of_large_operands() -> None:
    x = Parameter("x", type_of("float", 32))
    b = Builder(Function("f", [x], x.type))
    b.ret(trigonometry.sin(trigonometry.sin(Lanes(b, x))).value)
    reduction, f = LirModule([b.finish()]).all_functions()
    assert reduction.is_shared and f.text().count(f"@{reduction.name}(") == 2


@pytest.mark.parametrize(
    "name, x, expected",
    [
        ("exponential", -100.0, 3.783505853677006e-44),
        ("exponential", np.inf, np.inf),
        ("exponential", -np.inf, 0.0),
        ("exponential", np.nan, np.nan),
        ("exponential", 1e38, np.inf),
        ("exponential", -1e38, 0.0),
        ("exponential", 89.0, np.inf),
        ("exponential", 0.0, 1.0),
        ("log", 0.0, -np.inf),
        ("log", -0.0, -np.inf),
        ("log", -1.0, np.nan),
        ("log", np.inf, np.inf),
        ("log", -np.inf, np.nan),
        ("log", np.nan, np.nan),
        ("log", 1e-45, -103.27892990343185),
        ("log", 1.0, 0.0),
        ("log-plus-one", -1.0, -np.inf),
        ("log-plus-one", -0.0, -0.0),
        ("tanh", -np.inf, -1.0),
        ("logistic", -100.0, 3.783505853677006e-44),
        ("erf", -0.0, -0.0),
        ("sine", 3.4028234663852886e38, -0.521876523193525),
        ("cosine", np.inf, np.nan),
        ("cbrt", -27.0, -3.0),
        ("rsqrt", -0.0, -np.inf),
        ("atanh", 1.0, np.inf),
    ],
)
@pytest.mark.parametrize("width", [0, 16])
def test_special_values(name: str, x: float, expected: float, width: int) -> None:
    result = compiled(name, np.float32, width)(np.full(16, x))
    np.testing.assert_array_equal(result, np.full(16, expected, np.float32))
    assert np.isnan(expected) or np.all(np.signbit(result) == np.signbit(expected))


@pytest.mark.parametrize(
    "x, y, expected",
    [
        (np.nan, 0.0, 1.0),
        (1.0, np.nan, 1.0),
        (-1.0, np.inf, 1.0),
        (-2.0, 3.0, -8.0),
        (-2.0, 0.5, np.nan),
        (-0.0, -3.0, -np.inf),
        (-0.0, 0.5, 0.0),
        (-np.inf, 3.0, -np.inf),
        (-np.inf, -2.5, 0.0),
        (0.5, -np.inf, np.inf),
        (9.0, 1.5, 27.0),
    ],
)
def test_special_values_of_power(x: float, y: float, expected: float) -> None:
    for dtype in (np.float32, np.float64):
        result = compiled("power", dtype, 8)(np.full(8, x), np.full(8, y))
        np.testing.assert_array_equal(result, np.full(8, expected, dtype))
        assert np.isnan(expected) or np.all(np.signbit(result) == np.signbit(expected))


def test_every_function_has_a_row_in_the_table() -> None:
    assert set(TABLE) == set(FUNCTIONS)
