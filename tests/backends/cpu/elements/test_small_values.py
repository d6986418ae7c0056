"""Arithmetic on small values: exact sums of integers are not rounded, and products are, by multiply-adds."""

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


@pytest.mark.sampled(6)
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


FACTORS = np.arange(1 << 16).astype(np.uint16).view(ml_dtypes.bfloat16)
COLUMNS = 16


@pytest.mark.parametrize("codes", ["s8", "u8", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f4e2m1fn"])
def test_products_with_all_factors_are_rounded(codes: str) -> None:
    """A row of weights has one that counts, times each factor; those of unusual magnitudes may remain in f32."""
    text = f"""HloModule m
ENTRY e {{
  x = bf16[1,{COLUMNS}] parameter(0)
  w = {codes}[65536,{COLUMNS}] parameter(1)
  s = bf16[65536] parameter(2)
  c = bf16[65536,{COLUMNS}] convert(w)
  b = bf16[65536,{COLUMNS}] broadcast(s), dimensions={{0}}
  m = bf16[65536,{COLUMNS}] multiply(c, b)
  ROOT r = f32[1,65536] dot(x, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}"""
    run, dtype = hl.compile(text), BY_NAME[codes].dtype
    bits = np.random.default_rng(0).permutation(np.arange(1 << 16)).astype(np.uint8) & ((1 << BY_NAME[codes].bits) - 1)
    one = (np.arange(COLUMNS) == 0).astype(ml_dtypes.bfloat16)[None]
    factors = FACTORS.astype(np.float32)
    is_usual = (np.abs(factors) >= 2.0**-100) & (np.abs(factors) <= 2.0**90)
    for shift in range(0, 256, 85):
        weights = np.zeros((1 << 16, COLUMNS), dtype)
        weights[:, 0] = (bits + np.uint8(shift) & ((1 << BY_NAME[codes].bits) - 1)).astype(np.uint8).view(dtype)
        with np.errstate(all="ignore"):
            exact = weights[:, 0].astype(np.float32) * factors
            rounded = exact.astype(ml_dtypes.bfloat16).astype(np.float32)
        is_number = np.isfinite(factors) & np.isfinite(weights[:, 0].astype(np.float32))
        found = run(one, weights, FACTORS)[0]
        assert np.array_equal(found[is_usual & is_number], rounded[is_usual & is_number])
        others = ~is_usual & is_number & (np.abs(exact) >= 2.0**-126) & np.isfinite(rounded)
        assert np.all((found == exact) | (found == rounded), where=others)
        assert np.isnan(found[np.isnan(factors)]).all()


@pytest.mark.parametrize("codes", ["s8", "u4"])
@pytest.mark.parametrize(("k", "is_shared"), [(1, True), (0, True), (0, False)])
def test_products_are_rounded_by_multiply_adds(k: int, is_shared: bool, codes: str) -> None:
    """Scales of rows or columns of the weights; multiples of one for each step of K would be more work than rounding."""
    text = f"""HloModule m
ENTRY e {{
  x = bf16[1,512] parameter(0)
  w = {codes}[512,512] parameter(1)
  s = bf16[512] parameter(2)
  c = bf16[512,512] convert(w)
  b = bf16[512,512] broadcast(s), dimensions={{{1 - k if is_shared else k}}}
  m = bf16[512,512] multiply(c, b)
  ROOT r = f32[1,512] dot(x, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{k}}}
}}"""
    llvm = stage_text(hl.parse(text), "llvm")
    assert "fmuladd" in llvm
    assert ("32767" not in llvm) == is_shared
