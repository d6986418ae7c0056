"""Conversions of floats to integers round toward zero and clamp; NaN gives 0 (CONVERT-3): against Python's integers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import hloom as hl

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
EDGES = [0.0, -0.0, 0.5, -0.5, 0.999, -0.999, math.inf, -math.inf, math.nan] + [
    sign * (2.0**power + step) for power in (3, 4, 7, 8, 15, 16, 31, 32, 63, 64) for step in (-1, -0.5, 0, 1)
    for sign in (1, -1)
]  # fmt: skip


@pytest.mark.sampled(20)
@pytest.mark.parametrize("target", ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("source", FLOATS)
def test_floats_to_integers(source: str, target: str) -> None:
    random = np.random.default_rng(0)
    values = np.array([*EDGES, *random.standard_normal(60) * 10.0 ** random.integers(-2, 22, 60)])
    with np.errstate(over="ignore"):
        x = values.astype(FLOATS[source])
    shape = f"[{x.size}]"
    text = f"HloModule m\nENTRY e {{\n p = {source}{shape} parameter(0)\n ROOT c = {target}{shape} convert(p)\n}}"
    found = [int(value) for value in np.asarray(hl.compile(text)(x))]
    bits = int(target[1:])
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    assert found == [_converted(float(value), least, most) for value in x]


def _converted(value: float, least: int, most: int) -> int:
    if math.isnan(value):
        return 0
    return max(least, min(most, int(value))) if math.isfinite(value) else most if value > 0 else least
