"""Polynomials of intervals: the boundaries of intervals, where they saturate, equal results in all widths."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import compile_elementwise
from hloom.backends.cpu.elements.functions import exponentials, piecewise
from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value

pytestmark = pytest.mark.skipif(not processor().table_entries, reason="needs AVX2 or AVX-512")
has_all_functions = processor().table_entries == piecewise.INTERVALS
with_all_functions = pytest.mark.skipif(not has_all_functions, reason="needs AVX-512")
BOUNDARIES = np.arange(0x3D400000, 0x41400000, 1 << 21, dtype=np.int32)
"""Bits of the first number of each interval, and of some outside."""


ERF = np.vectorize(math.erf, otypes=[np.float64])
TANH = pytest.param("tanh", np.tanh, 1.1, marks=with_all_functions)
by_function = pytest.mark.parametrize(("function", "exact", "bound"), [TANH, ("erf", ERF, 1.54)])


def compiled(width: int, function: str) -> Any:
    def emit(b: Builder, x: Value) -> Value:
        return getattr(exponentials, function)(Lanes(b, x)).value

    return compile_elementwise(emit, np.float32, width, 1)


def around(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits[:, None] + np.arange(-8, 8, dtype=np.int32)).ravel().view(np.float32)


@by_function
def test_neighbours_of_boundaries_are_within_bounds_and_alike_in_all_widths(
    function: str, exact: Any, bound: float
) -> None:
    middles = (np.arange(8, dtype=np.float32) + np.float32(0.5)) * np.float32(piecewise.LENGTH)
    x = around(np.concatenate([BOUNDARIES, middles.view(np.int32)]))
    results = [compiled(width, function)(x) for width in (0, 4, 8, 16, 32)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    assert_within(bound, results[0], exact(x.astype(np.float64)))


@by_function
def test_random_arguments_are_within_bounds(function: str, exact: Any, bound: float) -> None:
    x = np.random.default_rng(0).uniform(-5, 5, 1 << 16).astype(np.float32)
    for each in (x, x * np.float32(0.02), x * np.float32(1e-6)):
        assert_within(bound, compiled(16, function)(each), exact(each.astype(np.float64)))


def assert_within(bound: float, result: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> None:
    """Errors are at most `bound` units in the last place."""
    assert (np.abs(result - exact) <= bound * np.spacing(np.abs(exact).astype(np.float32))).all()


LARGE_TANH = pytest.param("tanh", piecewise.TANH_IS_ONE, marks=with_all_functions)


@pytest.mark.parametrize(("function", "last"), [LARGE_TANH, ("erf", piecewise.ERF_IS_ONE)])
def test_large_arguments_give_one_and_none_more(function: str, last: float) -> None:
    run = compiled(16, function)
    largest = np.array([last, 10.0, 12.0, 16.0, 1e10, 3e38, np.inf, -np.inf] * 2, np.float32)
    np.testing.assert_array_equal(run(largest), np.sign(largest))
    assert (run(np.linspace(0.8 * last, last, 1 << 16, dtype=np.float32)) <= 1).all()


@with_all_functions
def test_small_arguments_are_returned() -> None:
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, 1e-38, -1e-30, 1e-8] * 2, np.float32)
    result = compiled(16, "tanh")(x)
    np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(x))


def test_zeros_and_subnormals_of_the_error_function() -> None:
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-38, 1e-39, -3e-45] * 2, np.float32)
    result = compiled(16, "erf")(x)
    np.testing.assert_allclose(result, ERF(x.astype(np.float64)), rtol=0, atol=1.4e-45)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(x))


@by_function
def test_nan_stays(function: str, exact: Any, bound: float) -> None:
    assert np.isnan(compiled(16, function)(np.full(16, np.nan, np.float32))).all()


@pytest.mark.parametrize("function", [pytest.param("tanh", marks=with_all_functions), "erf"])
def test_no_division_and_no_power_of_two(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opcodes, binary = set(), Builder.binary

    def recorded(b: Builder, opcode: str, *operands: Any) -> Value:
        opcodes.add(opcode)
        return binary(b, opcode, *operands)

    monkeypatch.setattr(Builder, "binary", recorded)
    compiled(16, function)
    assert "fsub" in opcodes and not opcodes.intersection({"fdiv", "shl"})


@pytest.mark.parametrize(("function", "last"), [(math.tanh, piecewise.TANH_IS_ONE), (math.erf, piecewise.ERF_IS_ONE)])
def test_pieces_meet(function: Any, last: float) -> None:
    """Neighbouring polynomials differ at their boundary by their errors alone."""
    pieces = sorted(piece for piece in piecewise._table(function, last) if any(piece))
    bounds = BOUNDARIES[np.searchsorted(BOUNDARIES.view(np.float32), pieces[1][0]) - 1 :].view(np.float32)
    for (c, *left), (d, *right), bound in zip(pieces, pieces[1:], bounds.astype(float), strict=False):
        assert abs(np.polyval(left, bound - c) - np.polyval(right, bound - d)) <= 2**-23 * function(bound)


def test_equal_pieces_meet() -> None:
    table = piecewise._equal_table(math.erf)
    half = piecewise.LENGTH / 2
    for (c, *left), (d, *right) in itertools.pairwise(table):
        assert d - c == 2 * half
        assert abs(np.polyval(left, half) - np.polyval(right, -half)) <= 2**-23 * math.erf(c + half)
