"""Products of bytes and codes of 4 bits, one or two in a byte, against NumPy's in int64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.elements.byte_tables import has_byte_tables
from hloom.backends.cpu.kernels.products.tiles.tile_registers import S8, has_tile_instruction
from hloom.cli.pipelines import stage_text
from hloom.types import BY_NAME

Array = np.ndarray[Any, Any]


def program(rows: int, k: int, n: int, activations: str = "s8", codes: str = "s4", weights_first: bool = False) -> str:
    operands = "c, x" if weights_first else "x, c"
    shape = f"{n},{rows}" if weights_first else f"{rows},{n}"
    return f"""HloModule m
    ENTRY e {{
      x = {activations}[{rows},{k}] parameter(0)
      p = u8[{n},{k // 2}] parameter(1)
      halves = {codes}[{n},{k // 2},2] bitcast-convert(p)
      w = {codes}[{n},{k}] reshape(halves)
      c = {activations}[{n},{k}] convert(w)
      ROOT d = s32[{shape}] dot({operands}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
    }}"""


def unpacked(packed: Array, codes: str) -> Array:
    """The codes of the low and the high halves of bytes, in int64."""
    halves = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1).astype(np.int64)
    return (halves ^ 8) - 8 if codes == "s4" else halves


def check(text: str, x: Array, packed: Array, codes: str) -> None:
    exact = x.astype(np.int64) @ unpacked(packed, codes).T
    result = np.asarray(hl.compile(text)(x, packed))
    np.testing.assert_array_equal(result if result.shape == exact.shape else result.T, exact)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("activations", "codes"), [("s8", "s4"), ("u8", "u4"), ("s8", "u4")])
@pytest.mark.parametrize("weights_first", [False, True])
@pytest.mark.parametrize(
    ("rows", "k", "n"), [(1, 512, 96), (1, 250, 33), (3, 514, 77), (4, 64, 64), (9, 770, 200), (17, 130, 50)]
)
def test_random_codes(rows: int, k: int, n: int, weights_first: bool, activations: str, codes: str) -> None:
    random, limits = np.random.default_rng(k), np.iinfo(BY_NAME[activations].dtype)
    x = random.integers(limits.min, limits.max + 1, (rows, k)).astype(limits.dtype)
    packed = random.integers(0, 256, (n, k // 2), np.uint8)
    check(program(rows, k, n, activations, codes, weights_first), x, packed, codes)


@pytest.mark.parametrize("swapped", [False, True])
def test_codes_that_are_computed_by_shifts(swapped: bool) -> None:
    """Numbers from -7 to 8, of which s8 has an offset of 7."""
    parts = "high, low" if swapped else "low, high"
    text = f"""HloModule m
    ENTRY e {{
      x = s8[3,2,384] parameter(0)
      p = u8[3,60,192] parameter(1)
      mask = u8[] constant(15)
      masks = u8[3,60,192] broadcast(mask), dimensions={{}}
      four = u8[] constant(4)
      fours = u8[3,60,192] broadcast(four), dimensions={{}}
      a = u8[3,60,192] and(p, masks)
      b = u8[3,60,192] shift-right-logical(p, fours)
      low = u8[3,60,192,1] reshape(a)
      high = u8[3,60,192,1] reshape(b)
      halves = u8[3,60,192,2] concatenate({parts}), dimensions={{3}}
      w = u8[3,60,384] reshape(halves)
      signed = s8[3,60,384] convert(w)
      seven = s8[] constant(7)
      sevens = s8[3,60,384] broadcast(seven), dimensions={{}}
      c = s8[3,60,384] subtract(signed, sevens)
      ROOT d = s32[3,2,60] dot(x, c), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
        rhs_contracting_dims={{2}}
    }}"""
    random = np.random.default_rng(0)
    x, packed = random.integers(-128, 128, (3, 2, 384), np.int8), random.integers(0, 256, (3, 60, 192), np.uint8)
    halves = [packed >> 4, packed & 15] if swapped else [packed & 15, packed >> 4]
    codes = np.stack(halves, -1).reshape(3, 60, 384).astype(np.int64) - 7
    exact = np.einsum("bik,bnk->bin", x.astype(np.int64), codes)
    np.testing.assert_array_equal(hl.compile(hl.parse(text))(x, packed), exact)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 448, 96), (3, 451, 77), (7, 451, 77), (16, 64, 64), (17, 131, 130)])
@pytest.mark.parametrize(("activations", "codes"), [("s8", "s4"), ("u8", "u4"), ("s8", "u4"), ("s8", "s2")])
def test_codes_of_a_byte_each(activations: str, codes: str, rows: int, k: int, n: int, transposed: bool) -> None:
    shape, contracted = (f"{n},{k}", 1) if transposed else (f"{k},{n}", 0)
    text = f"""HloModule m
    ENTRY e {{
      x = {activations}[{rows},{k}] parameter(0)
      w = {codes}[{shape}] parameter(1)
      c = {activations}[{shape}] convert(w)
      ROOT d = s32[{rows},{n}] dot(x, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{contracted}}}
    }}"""
    random, limits = np.random.default_rng(k), np.iinfo(BY_NAME[activations].dtype)
    x = random.integers(limits.min, limits.max + 1, (rows, k)).astype(limits.dtype)
    least = -(1 << int(codes[1]) - 1) if codes[0] == "s" else 0
    w = random.integers(least, least + (1 << int(codes[1])), (n, k) if transposed else (k, n)).astype(np.int8)
    result = hl.compile(hl.parse(text))(x, w.astype(BY_NAME[codes].dtype))
    np.testing.assert_array_equal(result, x.astype(np.int64) @ (w.T if transposed else w).astype(np.int64))


@pytest.mark.parametrize(("rows", "instruction"), [(1, "vpdpbusd"), (8, "tdpbssd")])
def test_bytes_are_multiplied_as_words(rows: int, instruction: str) -> None:
    """Sums of 2^16 products of -128 and -8, which f32 does not have if one is odd."""
    k = 1 << 16
    text = program(rows, k, 32)
    if has_byte_tables() and (rows == 1 or has_tile_instruction(S8, S8)):
        assert instruction in stage_text(hl.parse(text), "llvm")
    x, packed = np.full((rows, k), -128, np.int8), np.full((32, k // 2), 0x88, np.uint8)
    x[:, -1], packed[:, -1] = -127, 0xF8
    check(text, x, packed, "s4")


@pytest.mark.parametrize("k", [1 << 14, (1 << 14) + 2])
@pytest.mark.parametrize("rows", [1, 8])
def test_sums_are_floats_only_as_long_as_these_have_all_of_them(rows: int, k: int) -> None:
    """-128 times -8 is 2^10, of which f32 has the sums of 2^14 and not of one more product that is odd."""
    text = f"""HloModule m
    ENTRY e {{
      x = s8[{rows},{k}] parameter(0)
      w = s4[{k},32] parameter(1)
      c = s8[{k},32] convert(w)
      ROOT d = s32[{rows},32] dot(x, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    }}"""
    if has_byte_tables():
        assert ("fptosi" in stage_text(hl.parse(text), "llvm")) == (k == 1 << 14)
    x, w = np.full((rows, k), -128, np.int8), np.full((k, 32), -8, np.int8)
    x[:, -1], w[-1] = -127, -1
    result = hl.compile(hl.parse(text))(x, w.astype(BY_NAME["s4"].dtype))
    np.testing.assert_array_equal(result, x.astype(np.int64) @ w.astype(np.int64))
