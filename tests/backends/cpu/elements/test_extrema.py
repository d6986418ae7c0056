"""Maximum and minimum in registers of all widths: -0 is less than +0, and NaN propagates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from backends.cpu.elements.compile_elementwise import compile_elementwise
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
