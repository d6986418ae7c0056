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


@pytest.mark.parametrize("columns", [2, 64])
def test_means_of_rows_are_rounded_and_keep_nan(columns: int) -> None:
    n = EVERY.size
    run = hl.compile(
        "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) } "
        f"ENTRY e {{ x = bf16[{n},{columns}] parameter(0) w = f32[{n},{columns}] convert(x) z = f32[] constant(0) "
        f"t = f32[{n}] reduce(w, z), dimensions={{1}}, to_apply=add d = f32[] constant(3) "
        f"b = f32[{n}] broadcast(d), dimensions={{}} m = f32[{n}] divide(t, b) ROOT r = bf16[{n}] convert(m) }}"
    )
    rows = np.zeros((n, columns), ml_dtypes.bfloat16)
    rows[:, 0] = EVERY
    for code in OTHERS:
        rows[:, 1] = y = np.uint16(code).view(ml_dtypes.bfloat16)
        with np.errstate(all="ignore"):
            mean = (EVERY.astype(np.float32) + np.float32(y)) / np.float32(3)
        assert np.array_equal(run(rows), mean.astype(ml_dtypes.bfloat16), equal_nan=True), hex(code)


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_nan_of_f32_stays_nan_whatever_its_payload(opcode: str) -> None:
    run = hl.compile(
        f"round {{ a = f32[] parameter(0) b = f32[] parameter(1) s = f32[] {opcode}(a, b) h = bf16[] convert(s) "
        "ROOT f = f32[] convert(h) } "
        "ENTRY e { x = f32[4] parameter(0) y = f32[4] parameter(1) z = f32[] constant(1) "
        f"s = f32[4] {opcode}(x, y) h = bf16[4] convert(s) k = f32[] reduce(x, z), dimensions={{0}}, to_apply=round "
        "ROOT t = (bf16[4], f32[]) tuple(h, k) }"
    )
    x = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F80FFFF, 0x7FC08000], np.uint32).view(np.float32)
    element_wise, reduced = run(x, np.ones(4, np.float32))
    assert np.isnan(element_wise.astype(np.float32)).all()
    assert np.isnan(reduced)
