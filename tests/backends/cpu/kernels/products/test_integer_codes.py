"""Products of bytes and codes of 4 bits, two in a byte, against NumPy's in int64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.elements.byte_tables import has_byte_tables
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


@pytest.mark.parametrize("k", [1 << 14, (1 << 14) + 2])
@pytest.mark.parametrize("rows", [1, 8])
def test_sums_are_floats_only_as_long_as_these_have_all_of_them(rows: int, k: int) -> None:
    """-128 times -8 is 2^10, of which f32 has the sums of 2^14 and not of one more product that is odd."""
    text = program(rows, k, 32)
    if has_byte_tables():
        assert ("fptosi" in stage_text(hl.parse(text), "llvm")) == (k == 1 << 14)
    x, packed = np.full((rows, k), -128, np.int8), np.full((32, k // 2), 0x88, np.uint8)
    check(text, x, packed, "s4")
    x[:, -1], packed[:, -1] = -127, 0xF8
    check(text, x, packed, "s4")
