"""Maximum and minimum in registers of all widths: -0 is less than +0, and NaN propagates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import compile_elementwise
from hlo_text import compiled
from hloom.backends.cpu.elements.extrema import float_extremum

SPECIAL_VALUES = [-math.inf, -2.5, -1e-310, -0.0, 0.0, 1e-310, 3.0, math.inf, math.nan, -math.nan]


@pytest.mark.parametrize("width", [0, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("intrinsic", "sign"), [("maximum", 1.0), ("minimum", -1.0)])
def test_every_pair_of_special_values(intrinsic: str, sign: float, dtype: type, width: int) -> None:
    pairs = list(itertools.product(SPECIAL_VALUES, SPECIAL_VALUES))
    pairs += pairs[: -len(pairs) % 32]
    x, y = np.array(pairs, dtype).T.copy()
    found = compile_elementwise(lambda b, x, y: float_extremum(b, intrinsic, x, y), dtype, width, 2)(x, y)
    for a, b, got in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
        if math.isnan(a) or math.isnan(b):
            assert math.isnan(got)
        else:
            expected = max((a, b), key=lambda number: (sign * number, sign * math.copysign(1, number)))
            assert (got, math.copysign(1, got)) == (expected, math.copysign(1, expected))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("width", [8, 16, 64])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "sign"), [("maximum", 1.0), ("minimum", -1.0)])
def test_extrema_of_rows(name: str, sign: float, dtype: str, width: int) -> None:
    """Each lane of a row in turn has the extremum, or a NaN, beside zeros of either sign."""
    rows = np.array([np.where(np.arange(width) == k, v, -0.0) for v in SPECIAL_VALUES for k in range(width)])
    text = f"""HloModule m
    c {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {name}(a, b) }}
    ENTRY e {{ x = {dtype}[{len(rows)},{width}] parameter(0) i = {dtype}[] constant({-sign * math.inf})
    ROOT r = {dtype}[{len(rows)}] reduce(x, i), dimensions={{1}}, to_apply=c }}"""
    rows = rows.astype({"f32": np.float32, "f64": np.float64}[dtype])
    (found,) = compiled(text, rows)
    for row, got in zip(rows.tolist(), found.tolist(), strict=True):
        if any(map(math.isnan, row)):
            assert math.isnan(got)
        else:
            expected = max(row, key=lambda number: (sign * number, sign * math.copysign(1, number)))
            assert (got, math.copysign(1, got)) == (expected, math.copysign(1, expected))
