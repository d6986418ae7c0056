"""Quotients and remainders: rounded too early, off by one, and by zero."""

from __future__ import annotations

import math

import numpy as np

from miscompilations.case import Case, module

F32, S64 = np.float32, np.int64
LARGE, SMALL = [1e10, 65504.0, 3.4e38, -1e20], [1e-20, 6e-8, 1e-30, 7.0]

CASES = [
    Case(
        "quotient-rounded-down",
        ("pytorch/pytorch#197895",),
        "REM-1",
        "1 is 9 times the f32 next to 0.1, and a rest: (1 - 1 rem 0.1) / 0.1 is 9, where 1 / 0.1 is rounded up to 10.",
        module(
            "quotient_rounded_down",
            """x = f32[4] parameter(0); y = f32[4] parameter(1); m = f32[4] remainder(x, y)
            d = f32[4] subtract(x, m); q = f32[4] divide(d, y); ROOT r = f32[4] round-nearest-even(q)""",
        ),
        (np.array([1, 0.5, 6, 1], F32), np.array([0.1, 0.1, 0.2, 1 / 3], F32)),
        np.array([9, 4, 29, 2], F32),
    ),
    Case(
        "remainder-of-a-large-quotient",
        ("pytorch/pytorch#194345",),
        "REM-1",
        "fmod is exact, however large the quotient is.",
        module("remainder", "x = f32[4] parameter(0); y = f32[4] parameter(1); ROOT r = f32[4] remainder(x, y)"),
        (np.array(LARGE, F32), np.array(SMALL, F32)),
        np.array([math.fmod(float(F32(x)), float(F32(y))) for x, y in zip(LARGE, SMALL)], F32),
    ),
    Case(
        "integers-divided-by-zero",
        ("pytorch/pytorch#178013",),
        "DIV-2",
        "x / 0 is -1 and x rem 0 is x in every lane, also 0 / 0.",
        module(
            "by_zero",
            """x = s64[8] parameter(0); y = s64[8] parameter(1)
            q = s64[8] divide(x, y); m = s64[8] remainder(x, y); ROOT r = s64[16] concatenate(q, m), dimensions={0}""",
        ),
        (np.array([0, 5, -5, 0, 7, -7, 2**62, 1], S64), np.array([0, 0, 0, 3, 2, 2, 0, -1], S64)),
        np.array([-1, -1, -1, 0, 3, -3, -1, -1, 0, 5, -5, 0, 1, -1, 2**62, 0], S64),
    ),
]
