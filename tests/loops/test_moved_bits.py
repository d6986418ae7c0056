"""Elements of f16 that are only moved, chosen or negated keep their bits, signalling NaNs included (GEN-7)."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl

X = np.array([0x7C15, 0x7E00, 0xFC01, 0xFE00, 0x7D00, 0x3C00, 0x7C00, 0x0001] * 9, np.uint16)
Y = np.array([0x7E00, 0x7C15, 0xFE00, 0xFC01, 0x7D01, 0x3C00, 0x7C01, 0x8001] * 9, np.uint16)
KEYS = [np.where(bits >> 15, -1 - (bits & 0x7FFF).astype(int), bits) for bits in (X, Y)]
"""Positions in the total order: negative numbers from the largest magnitude on, then positive ones."""


def run(line: str) -> np.ndarray:
    text = f"""HloModule m
ENTRY e {{
  x = f16[72] parameter(0)
  y = f16[72] parameter(1)
  zero = f16[] constant(0)
  z = f16[72] broadcast(zero), dimensions={{}}
  one = f16[] constant(1)
  o = f16[72] broadcast(one), dimensions={{}}
  p = pred[72] compare(x, o), direction=EQ
  v = f16[72] reverse(x), dimensions={{0}}
  m = f16[8,9] reshape(x)
  sum = f16[72] add(x, y)
  ROOT r = {line}
}}"""
    result = hl.compile(hl.parse(text))(X.view(np.float16), Y.view(np.float16))
    return result.view(np.uint16) if result.dtype == np.float16 else result


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("f16[72] reverse(x), dimensions={0}", X[::-1]),
        ("f16[24] slice(x), slice={[1:72:3]}", X[1::3]),
        ("f16[72] negate(x)", X ^ 0x8000),
        ("f16[72] abs(v)", X[::-1] & 0x7FFF),
        ("f16[72] select(p, sum, y)", np.where(X == 0x3C00, 0x4000, Y)),
        ("f16[9,8] transpose(m), dimensions={1,0}", X.reshape(8, 9).T),
        ("u16[72] bitcast-convert(v)", X[::-1]),
        ("pred[72] compare(x, y), direction=LT, type=TOTALORDER", KEYS[0] < KEYS[1]),
        ("pred[72] compare(x, y), direction=GE, type=TOTALORDER", KEYS[0] >= KEYS[1]),
    ],
)
def test_signalling_nans_of_f16_keep_their_bits(line: str, expected: np.ndarray) -> None:
    """BITCASTCONVERT-7, TOTALORDER-1."""
    assert np.array_equal(run(line), expected)
