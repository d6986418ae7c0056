"""Element functions: errors in units in the last place against long double, special values, equal results in all widths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import Array, compile_elementwise
from hloom.backends.cpu.elements import exponentials, trigonometry, vector_math
from hloom.backends.cpu.elements.lanes import Lanes
from hloom.lir import Builder, Value

Long = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(Long).nmant < 63, reason="needs a long double wider than f64")

FUNCTIONS = {
    **{declaration.opcode: function for declaration, function in vector_math.FUNCTIONS.items()},
    "atan": trigonometry.atan,
    "power": exponentials.power,
}
BINARY = ("atan2", "power")

TABLE = {
    name: {np.float32: float(single), np.float64: float(double)}
    for name, single, double in re.findall(
        r"^\| ([a-z0-9-]+) \| ([\d.]+) \| ([\d.]+) \|$", vector_math.__doc__ or "", re.M
    )
}


def erf(x: Array) -> Array:
    """2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ..), whose terms all have one sign."""
    bounded = np.clip(x, -7, 7)
    square, term = bounded * bounded, bounded
    total = term
    for k in range(1, 260):
        term = term * (2 * square) / (2 * k + 1)
        total = total + term
    return 2 / np.sqrt(Long("3.14159265358979323846264338327950288")) * np.exp(-square) * total


def logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


REFERENCE: dict[str, Any] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cosh": np.cosh,
    "cosine": np.cos,
    "erf": erf,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": logistic,
    "power": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sine": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}


def special_values(dtype: type) -> list[float]:
    limits = np.finfo(dtype)
    positive = [0.0, np.inf, 1.0, 0.5, 2.0, 1.5, 3.0, np.pi, 88.7, 103.9, 709.7, 745.1, 1e10, 2.0**31, 2.0**100]
    positive += [limits.tiny, limits.max, limits.smallest_subnormal, 1 + limits.eps, 1 - limits.epsneg]
    return [np.nan, *positive, *(-x for x in positive)]


def samples(dtype: type, count: int, seed: int) -> Array:
    """Random bit patterns, evenly spread numbers of several sizes, what lies close to 0 and 1, subnormals."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, np.iinfo(f"u{dtype().itemsize}").max, count, f"u{dtype().itemsize}", endpoint=True)
    wide = random.normal(size=count) * np.exp(random.uniform(-15, 15, count))
    near = np.exp(random.uniform(-40, 0, count)) * random.choice([-1, 1], count)
    spreads = [random.uniform(-size, size, count) for size in (1, 4, 20, 110, 750)]
    subnormal = random.integers(-1000, 1000, count) * np.finfo(dtype).smallest_subnormal
    parts = [bits.view(dtype), wide, near, 1 + near, -1 - near, *spreads, subnormal, special_values(dtype)]
    return np.concatenate([np.asarray(part, dtype) for part in parts])


def pairs(name: str, dtype: type, count: int) -> tuple[Array, Array]:
    """Samples beside samples, all pairs of special values, and pairs whose results are neither 0, 1 nor infinite."""
    x, y = samples(dtype, count, 1), samples(dtype, count, 2)
    np.random.default_rng(3).shuffle(y)
    special = np.meshgrid(special_values(dtype), special_values(dtype))
    random = np.random.default_rng(4)
    if name == "power":
        logarithm = random.normal(size=4 * count) * np.exp(random.uniform(-18, 5, 4 * count))
        base = np.exp(np.clip(logarithm, -85, 85)).astype(dtype)
        limit = np.log(float(np.finfo(dtype).max)) * 1.2
        exponent = random.uniform(-limit, limit, 4 * count) / np.log(base.astype(np.float64))
        whole = random.uniform(-30, 30, 4 * count), np.rint(random.uniform(-25, 25, 4 * count))
        moderate = np.concatenate([base, whole[0]]), np.concatenate([exponent, whole[1]])
    else:
        moderate = x, x * (1 + random.normal(size=x.size) / 2)
    columns = [np.concatenate([a, b.ravel(), c]).astype(dtype) for a, b, c in zip((x, y), special, moderate)]
    return columns[0], columns[1]


def errors(got: Array, exact: Array) -> Array:
    """The distance in units in the last place of the exact result; infinite where a special value is wrong."""
    limits = np.finfo(got.dtype)
    rounded = exact.astype(got.dtype)
    exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))[1] - 1
    unit = np.ldexp(Long(1), np.maximum(exponent, limits.minexp) - limits.nmant)
    distance = np.abs(got.astype(Long) - exact) / unit
    # Results next to overflow may be either.
    largest = np.abs(exact) / Long(limits.max)
    borderline = (largest > 1 - 4 * limits.eps) & (largest < 1 + 4 * limits.eps)
    finite = np.isfinite(rounded) & np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    wrong_zero = (rounded == 0) & (got == 0) & (np.signbit(rounded) != np.signbit(got))
    return np.where(wrong_zero | (~finite & ~same & ~borderline), np.inf, np.where(finite, distance, 0))


def padded(*columns: Array) -> list[Array]:
    return [np.concatenate([x, np.ones(-x.size % 16, x.dtype)]) for x in columns]


def compiled(name: str, dtype: type, width: int) -> Any:
    function = FUNCTIONS[name]

    def emit(b: Builder, *operands: Value) -> Value:
        return function(*(Lanes(b, operand) for operand in operands)).value

    return compile_elementwise(emit, dtype, width, 2 if name in BINARY else 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_as_accurate_as_the_table_says_in_all_widths(name: str, dtype: type) -> None:
    operands = padded(*pairs(name, dtype, 3000)) if name in BINARY else padded(samples(dtype, 6000, 0))
    results = [compiled(name, dtype, width)(*operands) for width in (16, 8, 0)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    error = errors(results[0], REFERENCE[name](*(x.astype(Long) for x in operands)))
    worst = int(np.argmax(error))
    assert error[worst] <= TABLE[name][dtype], [x[worst] for x in operands]


@pytest.mark.parametrize(
    "name, x, expected",
    [
        ("exponential", -100.0, 3.783505853677006e-44),
        ("exponential", np.inf, np.inf),
        ("exponential", -np.inf, 0.0),
        ("log", -0.0, -np.inf),
        ("log", -1.0, np.nan),
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
def test_special_values(name: str, x: float, expected: float) -> None:
    result = compiled(name, np.float32, 0)(np.array([x]))
    np.testing.assert_array_equal(result, np.array([expected], np.float32))
    assert np.isnan(expected) or np.signbit(result) == np.signbit(expected)


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
    assert set(TABLE) == set(FUNCTIONS) == set(REFERENCE)
