"""Polynomials of intervals: the boundaries of intervals, where they saturate, equal results in all widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import compile_elementwise
from hloom.backends.cpu.elements.functions import exponentials, piecewise
from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value

pytestmark = pytest.mark.skipif(processor().vector_bytes != 64, reason="needs AVX-512")
BOUNDARIES = np.arange(0x3D400000, 0x41400000, 1 << 21, dtype=np.int32)
"""Bits of the first number of each interval, and of some outside."""


def compiled(width: int) -> Any:
    def emit(b: Builder, x: Value) -> Value:
        return exponentials.tanh(Lanes(b, x)).value

    return compile_elementwise(emit, np.float32, width, 1)


def around(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits[:, None] + np.arange(-8, 8, dtype=np.int32)).ravel().view(np.float32)


def test_neighbours_of_boundaries_are_within_an_ulp_and_alike_in_all_widths() -> None:
    x = around(BOUNDARIES)
    results = [compiled(width)(x) for width in (0, 4, 8, 16, 32)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(results[0] - exact) <= 1.1 * np.spacing(exact.astype(np.float32))).all()


def test_large_arguments_give_one_and_none_more() -> None:
    run = compiled(16)
    largest = np.array([9.99, 10.0, 12.0, 16.0, 1e10, 3e38, np.inf, -np.inf] * 2, np.float32)
    np.testing.assert_array_equal(run(largest), np.sign(largest))
    assert (run(np.linspace(8, 10, 1 << 16, dtype=np.float32)) <= 1).all()


def test_small_arguments_are_returned() -> None:
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, 1e-38, -1e-30, 1e-8] * 2, np.float32)
    result = compiled(16)(x)
    np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(x))


def test_nan_stays() -> None:
    assert np.isnan(compiled(16)(np.full(16, np.nan, np.float32))).all()


def test_tanh_divides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    opcodes, binary = set(), Builder.binary

    def recorded(b: Builder, opcode: str, *operands: Any) -> Value:
        opcodes.add(opcode)
        return binary(b, opcode, *operands)

    monkeypatch.setattr(Builder, "binary", recorded)
    compiled(16)
    assert "fsub" in opcodes and "fdiv" not in opcodes


def test_pieces_meet() -> None:
    """Neighbouring polynomials differ at their boundary by their errors alone."""
    pieces = sorted(piece for piece in piecewise._table(np.tanh, piecewise.TANH_IS_ONE) if any(piece))
    bounds = BOUNDARIES[np.searchsorted(BOUNDARIES.view(np.float32), pieces[1][0]) - 1 :].view(np.float32)
    for (c, *left), (d, *right), bound in zip(pieces, pieces[1:], bounds.astype(float), strict=False):
        assert abs(np.polyval(left, bound - c) - np.polyval(right, bound - d)) <= 2**-24 * np.tanh(bound)
