"""Accesses with constant masks have a plain access where all lanes are on, none where all are off."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hloom.lir import F32, I64, PTR, Builder, Function, LirModule, Parameter, Value, constant, mask_constant, type_of
from hloom.lir.interpret import Interpreter
from hloom.lir.verify import check_module
from hloom.target import min_masked_bits

X, Y = Parameter("x", PTR), Parameter("y", PTR)


def _copy(element: str, mask: Value, register_bytes: int = 64) -> Function:
    """Returns a function that copies the lanes of a mask from x to y; others are 1 in the copy."""
    b = Builder(Function("copy", [X, Y], is_exported=True), register_bytes)
    type = type_of(element, mask.type.width)
    b.store_masked(b.load_masked(X, type, type.bits // 8, mask, constant(type, 1)), Y, type.bits // 8, mask)
    check_module(LirModule([b.finish()]))
    return b.function


def _widths(pattern: str, text: str) -> list[int]:
    return [int(width) for width in re.findall(pattern, text)]


@pytest.mark.parametrize(
    ("active", "lanes", "plain", "masked"),
    [
        (104, 128, [64, 32], [16]),
        (96, 128, [64, 32], []),
        (40, 128, [32], [16]),
        (3, 64, [], [16]),
        (47, 64, [32], [16]),
    ],
)
def test_registers_of_a_constant_mask(active: int, lanes: int, plain: list[int], masked: list[int]) -> None:
    text = _copy("float", mask_constant(active, lanes)).text()
    assert _widths(r" = load <(\d+) x float>", text) == plain == _widths(r"  store <(\d+) x float>", text)
    assert _widths(r"masked.load.v(\d+)f32.p0\(", text) == masked == _widths(r"masked.store.v(\d+)f32.p0\(", text)
    assert "x i1> <i1 true" in text or not masked


@pytest.mark.parametrize("element", ["float", "double", "i8", "i32"])
@pytest.mark.parametrize(("active", "lanes"), [(0, 16), (1, 16), (16, 16), (17, 64), (31, 64), (48, 64), (104, 128)])
def test_only_active_lanes_are_copied(element: str, active: int, lanes: int) -> None:
    dtype = {"float": np.float32, "double": np.float64, "i8": np.int8, "i32": np.int32}[element]
    function = _copy(element, mask_constant(active, lanes), register_bytes=16)
    x, y = np.arange(2, lanes + 2).astype(dtype), np.zeros(lanes, dtype)
    Interpreter(LirModule([function])).call("copy", x.ctypes.data, y.ctypes.data)
    np.testing.assert_array_equal(y, np.where(np.arange(lanes) < active, x, 0))


@pytest.mark.parametrize(
    ("active", "lanes", "plain"),
    [(2, 8, [2]), (3, 4, [2, 1]), (7, 8, [4, 2, 1]), (11, 16, [8, 2, 1]), (40, 64, [32, 8]), (16, 16, [16])],
)
def test_without_registers_of_masks_accesses_are_powers_of_two(active: int, lanes: int, plain: list[int]) -> None:
    text = _copy("float", mask_constant(active, lanes), register_bytes=32).text()
    assert _widths(r" = load <(\d+) x float>", text) == plain
    assert _widths(r"  store <(\d+) x float>", text) == [width for width in plain if width > 1]
    assert text.count("  store float ") == plain.count(1)
    assert "masked" not in text


@pytest.mark.parametrize("register_bytes", [16, 32, 64])
@pytest.mark.parametrize(("element", "lanes"), [("float", 8), ("double", 4), ("i8", 16), ("i16", 2)])
def test_lanes_below_a_count(element: str, lanes: int, register_bytes: int) -> None:
    count, type = Parameter("count", I64), type_of(element, lanes)
    b = Builder(Function("copy", [X, Y, count], is_exported=True), register_bytes)
    mask = b.first_lanes(count, lanes)
    copied = b.load_masked(X, type, 1, mask)
    b.store_masked(copied, Y, 1, mask)
    b.store(copied, b.element_pointer(Y, constant(I64, lanes), element), 1)
    copy = Interpreter(LirModule([b.finish()]))
    check_module(LirModule([b.function]))
    assert ("masked.store" in b.function.text()) == (register_bytes == 64)
    assert ("masked.load" in b.function.text()) == (type.bits >= min_masked_bits(register_bytes))
    x = np.arange(2, lanes + 2).astype({"float": "f4", "double": "f8", "i8": "i1", "i16": "i2"}[element])
    for active in range(lanes + 3):
        y = np.zeros((2, lanes), x.dtype)
        copy.call("copy", x.ctypes.data, y.ctypes.data, active)
        np.testing.assert_array_equal(y, [np.where(np.arange(lanes) < active, x, 0)] * 2)


def test_a_mask_that_has_a_hole() -> None:
    on = [k % 48 != 5 for k in range(64)]
    b = Builder(Function("sum", [X], F32, is_exported=True), 64)
    lanes = b.load_masked(X, type_of("float", 64), 4, b.shuffle(mask_constant(1, 2), None, [not each for each in on]))
    b.ret(b.call("llvm.vector.reduce.fadd.v64f32", F32, constant(F32, 0), lanes))
    x = np.arange(64, dtype=np.float32)
    assert _widths(r" = load <(\d+) x float>", b.function.text()) == [16, 16]
    assert Interpreter(LirModule([b.finish()])).call("sum", x.ctypes.data) == x[on].sum()


def test_moves_of_constant_masks_are_constants() -> None:
    b = Builder(Function("f", [X]))
    mask = b.shuffle(mask_constant(2, 4), mask_constant(1, 4), [0, 3, 4, 5])
    assert mask.text == "<i1 true, i1 false, i1 true, i1 false>"
    assert not b.body
