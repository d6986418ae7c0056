"""UNARY-2: every function keeps its stated bound, on the worst arguments of docs/accuracy.md and on random ones.

`worst_arguments.json` has the arguments with exact values by mpmath; `tools/measure_accuracy.py` writes it.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest

import hloom as hl
from accuracy import exact, measure, samples
from accuracy.functions import COMPLEX, REAL, SPECIAL, Function
from conftest import ROOT
from hloom.ops.operation import OPERATIONS
from hloom.stablehlo.special_functions import FUNCTIONS
from hloom.types import BY_DTYPE

pytestmark = pytest.mark.skipif(not exact.HAS_LONG_DOUBLE, reason="needs a long double wider than f64")

CASES = int(os.environ.get("HLOOM_CASES", "2400"))
RECORDS = json.loads((ROOT / "tests" / "worst_arguments.json").read_text())
OF_JAX = {function.name: function for function in SPECIAL if function.name in {*FUNCTIONS, *OPERATIONS}}
"""The functions that are an operation or a special function of hloom."""
SIDES = ("cpu", "interpreter")
PAIRS = ("atan2", "divide", "power", "remainder")

Array = np.ndarray[Any, np.dtype[Any]]
Calls = list[tuple[Function, tuple[Array, ...]]]


def program(calls: Calls) -> tuple[hl.Module, list[Array]]:
    """A program that calls several functions on arrays, and its arguments."""
    builder = hl.XlaBuilder("accuracy")
    roots: list[hl.XlaOp] = []
    arguments: list[Array] = []
    for function, arrays in calls:
        operands = []
        for x in arrays:
            operands.append(builder.parameter(len(arguments), hl.Shape.array(BY_DTYPE[x.dtype], x.shape)))
            arguments.append(x)
        name = function.name
        roots.append(FUNCTIONS[name](*operands) if name in FUNCTIONS else builder._add(OPERATIONS[name](), operands))
    return builder.build(builder.tuple(*roots)).module, arguments


def results(calls: Calls, side: str) -> list[Array]:
    """The values of several functions on arrays, in one program."""
    module, arguments = program(calls)
    return list(hl.compile(module, side)(*arguments))


def columns(points: list[list[str]], dtype: str) -> tuple[Array, ...]:
    """The operands whose literals the points hold."""
    return tuple(np.array([eval(text, {"inf": np.inf}) for text in column], dtype) for column in zip(*points))


def errors(got: Array, values: list[Any]) -> Array:
    """Errors in units in the last place, of complex results in those of the modulus; 0 without a value."""
    if np.iscomplexobj(got):
        return measure.complex_errors(got, values)[1]
    exacts = np.array([exact.to_long(value) for value in values])
    return np.where(np.isnan(exacts), 0, exact.errors(got, exacts, zeros_have_signs=False))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_worst_arguments(dtype: str) -> None:
    tables = {f.name: f for f in (COMPLEX if dtype.startswith("complex") else REAL)}
    found = [(r, (OF_JAX if r["jax"] else tables).get(r["function"])) for r in RECORDS if r["type"] == dtype]
    known = [(record["points"], function) for record, function in found if function is not None]
    calls = [(function, columns([point["at"] for point in points], dtype)) for points, function in known]
    assert len(calls) >= len(tables)
    module, arguments = program(calls)
    values = [[exact.from_text(point["value"]) for point in points] for points, _ in known]
    for side in SIDES:
        computed = hl.compile(module, side)(*arguments)
        for (points, function), exacts, got in zip(known, values, computed, strict=True):
            error = errors(got, exacts)
            assert error.max() <= function.bound, (side, function.name, points[int(np.argmax(error))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_interpreter_on_random_arguments(dtype: Any) -> None:
    for function in REAL:
        operands = (
            samples.pairs(function.name, dtype, 200) if function.name in PAIRS else (samples.dense(dtype, 300, 0),)
        )
        with np.errstate(all="ignore"):
            got = np.asarray(OPERATIONS[function.name]().evaluate(None, *operands))
        assert exact.errors(got, measure.exact_values(function, operands)).max() <= function.bound, function.name


@pytest.mark.long
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_real_operations_on_every_exponent(dtype: Any, side: str) -> None:
    calls = [(function, function.arguments(dtype, 10 * CASES, CASES)) for function in REAL]
    for (function, operands), got in zip(calls, results(calls, side), strict=True):
        error = exact.errors(got, measure.exact_values(function, operands))
        worst = int(np.argmax(error))
        assert error[worst] <= function.bound, (function.name, [x[worst] for x in operands])


@pytest.mark.long
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_value_of_narrow_types(name: str, side: str) -> None:
    """UNARY-2: results in f32, of at most 2 units, are rounded once."""
    values = samples.every(np.dtype(name))
    calls: Calls = [(function, (values,)) for function in REAL if function.name not in PAIRS]
    special = [(function, function.arguments(np.dtype(name), 0, 0)) for function in OF_JAX.values()]
    calls += [(function, operands) for function, operands in special if len(operands) == 1]
    for (function, operands), got in zip(calls, results(calls, side), strict=True):
        assert exact.errors(got, measure.exact_values(function, operands)).max() <= 0.501, function.name


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_functions_against_mpmath(dtype: Any) -> None:
    table = COMPLEX if np.dtype(dtype).kind == "c" else list(OF_JAX.values())
    calls = [(function, function.arguments(dtype, CASES // 16, 2)) for function in table]
    precision = exact.PRECISION if table is COMPLEX else 300
    values = [
        [exact.by_mpmath(function.name, *point, precision=precision) for point in zip(*operands)]
        for function, operands in calls
    ]
    for side in SIDES:
        for (function, operands), got, expected in zip(calls, results(calls, side), values, strict=True):
            error = errors(got, expected)
            worst = int(np.argmax(error))
            assert error[worst] <= function.bound, (side, function.name, [x[worst] for x in operands])


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("sign", [1e-40 + 0j, -1e-40j, 0j, complex(0, np.inf)], [1, -1j, 0, complex(0, np.nan)]),
        ("exponential-minus-one", [1e30 + 0j, complex(-np.inf, 0)], [complex(np.inf, 0), -1]),
        ("logistic", [-80 + 0j, 80 + 0j], [np.exp(-80.0), 1]),
    ],
)
def test_complex_values_of_any_magnitude(name: str, x: list[complex], expected: list[complex], backend: str) -> None:
    """SIGN-1, EXPM1-1, LOGISTIC-1: x / |x|, and what functions give for real numbers, part by part."""
    text = f"HloModule m\nENTRY e {{ x = c64[{len(x)}] parameter(0)\n ROOT r = c64[{len(x)}] {name}(x) }}"
    got = np.asarray(hl.compile(text, backend)(np.array(x, np.complex64)))
    np.testing.assert_allclose(got.real, np.real(expected), rtol=1e-6)
    np.testing.assert_allclose(got.imag, np.imag(expected), rtol=1e-6)
