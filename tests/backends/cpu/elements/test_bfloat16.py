"""Compiled arithmetic of bf16 on every value of the type, including NaNs with all payloads, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom as hl

EVERY = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
OTHERS = [
    0x0000,
    0x8000,
    0x0001,
    0x807F,
    0x0080,
    0x3F80,
    0xBF81,
    0x4049,
    0x7F7F,
    0x7F80,
    0xFF80,
    0x7FC0,
    0xFF81,
    0x7FFF,
    # Divisors beyond 2^64, and below its inverse.
    0x5F81,
    0x7F01,
    0x1F7F,
]
FUNCTIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_arithmetic_is_rounded_once(opcode: str) -> None:
    n = EVERY.size
    run = hl.compile(
        f"ENTRY e {{ x = bf16[{n}] parameter(0) y = bf16[] parameter(1) b = bf16[{n}] broadcast(y), dimensions={{}} "
        f"ROOT r = bf16[{n}] {opcode}(x, b) }}"
    )
    for code in OTHERS:
        y = np.uint16(code).view(ml_dtypes.bfloat16)
        with np.errstate(all="ignore"):
            # Exact in f64, or so far from the middle of two bf16 that rounding twice gives the same.
            expected = FUNCTIONS[opcode](EVERY.astype(np.float64), float(y)).astype(np.float32)
        expected = expected.astype(ml_dtypes.bfloat16)
        assert np.array_equal(run(EVERY, y), expected, equal_nan=True), hex(code)
