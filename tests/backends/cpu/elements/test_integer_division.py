"""Quotients and remainders of integers are those of Python's integers, for operands at both ends of their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.cpu.nests.test_printed_functions import emitted
from hlo_text import compiled
from hloom.types import BY_NAME

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]


def _operands(element_type: str) -> tuple[Array, Array]:
    """Pairs of numbers, all of a type of few bits, whose quotients are integers, close to them, and in between."""
    bits, is_signed = int(element_type[1:]), element_type[0] == "s"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    if bits <= 8:
        x, y = np.meshgrid(np.arange(low, high + 1), np.arange(low, high + 1))
        return x.ravel().astype(BY_NAME[element_type].dtype), y.ravel().astype(BY_NAME[element_type].dtype)
    random = np.random.default_rng(0)
    ends = [low, low + 1, low + 2, 0, 1, 2, 3, high // 3, high // 2, high - 1, high]
    pairs = [(x, y) for x in ends for y in ends]
    for size in range(1, bits):
        for _ in range(8):
            y, q = (int(random.integers(1, 2**part)) for part in (size, bits - size))
            pairs += [(min(y * q + k, high) * sign, y) for k in (-1, 0, 1) for sign in ((1, -1) if is_signed else (1,))]
    pairs = [(max(x, low), y) for x, y in pairs]
    x, y = zip(*pairs * 2, strict=True)
    return np.array(x, BY_NAME[element_type].dtype), np.array(y, BY_NAME[element_type].dtype)


def _expected(x: int, y: int, bits: int) -> tuple[int, int]:
    """The quotient and the remainder, modulo 2^bits (DIV-2, REMAINDER-2)."""
    if y == 0:
        return -1 % 2**bits, x % 2**bits
    sign = -1 if (x < 0) != (y < 0) else 1
    return sign * (abs(x) // abs(y)) % 2**bits, (abs(x) % abs(y)) * (-1 if x < 0 else 1) % 2**bits


@pytest.mark.parametrize("element_type", TYPES)
def test_quotients_and_remainders(element_type: str) -> None:
    x, y = _operands(element_type)
    bits, shape = int(element_type[1:]), f"{element_type}[{x.size}]"
    found = compiled(
        f"""HloModule m
        ENTRY e {{ x = {shape} parameter(0)
        y = {shape} parameter(1)
        q = {shape} divide(x, y)
        r = {shape} remainder(x, y)
        ROOT both = ({shape}, {shape}) tuple(q, r) }}""",
        x,
        y,
    )
    got = [tuple(int(each) % 2**bits for each in pair) for pair in zip(*found, strict=True)]
    assert got == [_expected(int(a), int(b), bits) for a, b in zip(x, y, strict=True)]


def test_divisions_by_constants_stay_those_of_integers() -> None:
    code = emitted("""
        x = s32[4096] parameter(0)
        n = s32[] constant(13)
        ns = s32[4096] broadcast(n), dimensions={}
        ROOT r = s32[4096] divide(x, ns)""")
    assert "sdiv" in code and "fdiv" not in code
