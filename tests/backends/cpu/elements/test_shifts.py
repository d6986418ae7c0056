"""Shifts by constants: inside the width they are one instruction, and outside of it they have XLA's results."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.nests.test_printed_functions import emitted
from hlo_text import compiled
from hloom.types import BY_NAME

TYPES = ["s4", "u4", "s8", "u8", "s32", "u32", "s64", "u64"]
OPCODES = {"shift-left": "shl", "shift-right-arithmetic": "ashr", "shift-right-logical": "lshr"}


def _shifted(opcode: str, bits: int, pattern: int, amount: int) -> int:
    """The shift of a pattern of bits, in Python's integers."""
    if opcode == "shift-right-arithmetic":
        signed = pattern - (pattern >> (bits - 1) << bits)
        return (signed >> min(amount, bits - 1)) % 2**bits
    if amount >= bits:
        return 0
    return (pattern << amount) % 2**bits if opcode == "shift-left" else pattern >> amount


@pytest.mark.sampled(5)
@pytest.mark.parametrize("element_type", TYPES)
@pytest.mark.parametrize("opcode", OPCODES)
def test_amounts_inside_and_outside_of_the_width(opcode: str, element_type: str) -> None:
    """Negative amounts are large ones."""
    bits, dtype = int(element_type[1:]), BY_NAME[element_type].dtype
    patterns = [0, 1, 2, 5, *(2 ** (bits - 1) + k for k in (-2, -1, 0, 1)), 2**bits - 1]
    x = np.array(patterns, f"u{max(bits, 8) // 8}").astype(dtype)
    shape = f"{element_type}[{len(x)}]"
    for amount in (0, 1, bits - 1, bits, bits + 1, 2**bits - 1):
        number = amount - (amount >> (bits - 1) << bits) if element_type[0] == "s" else amount
        (found,) = compiled(
            f"""HloModule m
            ENTRY e {{ x = {shape} parameter(0)
            n = {element_type}[] constant({number})
            ns = {shape} broadcast(n), dimensions={{}}
            ROOT r = {shape} {opcode}(x, ns) }}""",
            x,
        )
        expected = [_shifted(opcode, bits, pattern, amount) for pattern in patterns]
        assert [int(each) % 2**bits for each in found] == expected, amount


@pytest.mark.parametrize(("opcode", "instruction"), OPCODES.items())
def test_constant_amounts_need_no_comparison(opcode: str, instruction: str) -> None:
    code = emitted(f"""
        x = s32[4096] parameter(0)
        n = s32[] constant(13)
        ns = s32[4096] broadcast(n), dimensions={{}}
        ROOT r = s32[4096] {opcode}(x, ns)""")
    assert code.count(f" = {instruction} <16 x i32> ") == 1
    assert "select" not in code and code.count("icmp") == 1  # that of the loop


@pytest.mark.parametrize("element_type", ["u8", "s32", "u32", "u64"])
@pytest.mark.parametrize("total", [-1, 0, 1])
def test_rotations_are_one_instruction(element_type: str, total: int) -> None:
    """Shifts whose amounts differ from the width together do not rotate, though they may set the same bits."""
    bits, dtype = int(element_type[1:]), BY_NAME[element_type].dtype
    shape, left, right = f"{element_type}[64]", 5, bits - 5 + total
    body = f"""
        x = {shape} parameter(0)
        a = {element_type}[] constant({left})
        as = {shape} broadcast(a), dimensions={{}}
        b = {element_type}[] constant({right})
        bs = {shape} broadcast(b), dimensions={{}}
        up = {shape} shift-left(x, as)
        down = {shape} shift-right-logical(x, bs)
        ROOT r = {shape} or(down, up)"""
    assert ("fshl" in emitted(body)) == (total == 0)
    x = np.random.default_rng(0).integers(0, 2**bits, 64, f"u{bits // 8}").astype(dtype)
    (found,) = compiled(f"HloModule m\nENTRY e {{ {body} }}", x)
    patterns = [int(each) % 2**bits for each in x]
    assert [int(each) % 2**bits for each in found] == [(p << left) % 2**bits | p >> right for p in patterns]


@pytest.mark.parametrize(("element_type", "size"), [("u32", 1), ("u32", 7), ("u32", 64), ("s64", 33), ("u8", 64)])
def test_rotations_mixed_with_others_keep_all_bits(element_type: str, size: int) -> None:
    """The fence behind them is one of floats: bits of signalling NaNs pass it as they are."""
    bits, dtype = int(element_type[1:]), BY_NAME[element_type].dtype
    shape = f"{element_type}[{size}]"
    body = f"""
        x = {shape} parameter(0)
        y = {shape} parameter(1)
        a = {element_type}[] constant(5)
        as = {shape} broadcast(a), dimensions={{}}
        b = {element_type}[] constant({bits - 5})
        bs = {shape} broadcast(b), dimensions={{}}
        rotated = {shape} or({shape} shift-left(x, as), {shape} shift-right-logical(x, bs))
        ROOT r = {shape} xor(rotated, y)"""
    assert ("fence" in emitted(body)) == (size > 1 and bits > 8)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**bits, size, f"u{bits // 8}")
    nan = {8: 0x7F, 32: 0x7F80_0001, 64: 0x7FF0_0000_0000_0001}[bits]
    rotated = [(int(each) << 5 | int(each) >> bits - 5) % 2**bits for each in x]
    y = np.array([each ^ nan if k % 2 else k for k, each in enumerate(rotated)], x.dtype)
    (found,) = compiled(f"HloModule m\nENTRY e {{ {body} }}", x.view(dtype), y.view(dtype))
    assert [int(each) % 2**bits for each in found] == [a ^ int(c) for a, c in zip(rotated, y, strict=True)]
