"""Arithmetic on converted integers: exact results are not rounded, others are."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.llvm.processor import processor
from hloom.cli.pipelines import stage_text
from hloom.types import BY_NAME

FUNCTIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
EXACT = {
    ("subtract", "u8", "u8", "bf16"),  # at least -255
    ("add", "s8", "s8", "bf16"),  # at least -256
    ("multiply", "s4", "u4", "bf16"),
    ("add", "u8", "u8", "f16"),
    ("subtract", "s8", "u8", "f16"),
    ("multiply", "s4", "s8", "f16"),
}
ROUNDED = {
    ("add", "u8", "u8", "bf16"),  # up to 510
    ("subtract", "s8", "u8", "bf16"),  # at least -383
    ("multiply", "s8", "s8", "bf16"),
    ("multiply", "s8", "s8", "f16"),
    ("add", "u16", "u8", "bf16"),
}


def _values(name: str) -> np.ndarray:
    limits = ml_dtypes.iinfo(BY_NAME[name].dtype)
    values = np.arange(int(limits.min), int(limits.max) + 1)
    return values[:: max(1, values.size // 256)]


def _text(opcode: str, left: str, right: str, floats: str, n: int) -> str:
    return (
        f"ENTRY e {{ x = {left}[{n}] parameter(0) y = {right}[{n}] parameter(1) a = {floats}[{n}] convert(x) "
        f"b = {floats}[{n}] convert(y) ROOT r = {floats}[{n}] {opcode}(a, b) }}"
    )


@pytest.mark.parametrize("opcode, left, right, floats", sorted(EXACT | ROUNDED))
def test_all_values(opcode: str, left: str, right: str, floats: str) -> None:
    pairs = np.array([*itertools.product(_values(left), _values(right))])
    x, y = (pairs[:, i].astype(BY_NAME[name].dtype) for i, name in enumerate((left, right)))
    dtype = BY_NAME[floats].dtype
    expected = FUNCTIONS[opcode](x.astype(dtype).astype(np.float64), y.astype(dtype).astype(np.float64)).astype(dtype)
    assert np.array_equal(hl.compile(_text(opcode, left, right, floats, len(x)))(x, y), expected)


@pytest.mark.parametrize("opcode, left, right, floats", sorted(EXACT | ROUNDED))
def test_exact_results_are_not_rounded(opcode: str, left: str, right: str, floats: str) -> None:
    """Results that are stored are rounded again, so the sum of all is stored instead."""
    if floats == "f16" and not processor().converts_f16:
        pytest.skip("the instructions that round to f16 are many")
    text = _text(opcode, left, right, floats, 4096).replace("ROOT r", "r")
    text = f"HloModule m {text[:-1]} g = f32[4096] convert(r) ROOT t = f32[4096] negate(g) }}"
    llvm = stage_text(hl.parse(text), "llvm")
    is_rounded = "65536" in llvm if floats == "bf16" else "fptrunc" in llvm
    assert is_rounded == ((opcode, left, right, floats) in ROUNDED)
