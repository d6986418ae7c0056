"""The builder appends arithmetic, addresses and moves of lanes once in a block, and never takes them from another one."""

from __future__ import annotations

import pytest

from hloom.lir import I1, I64, PTR, Builder, Function, LirModule, Parameter, Value, constant, type_of
from hloom.lir.verify import check_module

X, Y, P, C = Parameter("x", I64), Parameter("y", I64), Parameter("p", PTR), Parameter("c", I1)
V = Parameter("v", type_of("i64", 2))


def _builder() -> Builder:
    return Builder(Function("f", [X, Y, P, C, V], is_exported=True))


def _count(b: Builder, opcode: str) -> int:
    check_module(LirModule([b.finish()]))
    return b.function.text().count(f" = {opcode} ")


def test_each_value_of_a_block_is_computed_once() -> None:
    b = _builder()
    for _ in range(2):
        at = b.element_pointer(P, b.binary("mul", X, constant(I64, 24)), "i64")
        b.store(b.shuffle(b.splat(b.load(at, I64, 8), 4), None, [1, 0]), at, 8)
    assert [_count(b, opcode) for opcode in ("mul", "getelementptr", "load")] == [1, 1, 2]
    assert [_count(b, opcode) for opcode in ("insertelement", "shufflevector")] == [2, 4]  # of two loads


@pytest.mark.parametrize(
    ("opcode", "pairs"),
    [
        ("add", [(X, Y, ""), (Y, X, ""), (X, X, ""), (X, Y, "nsw")]),
        ("add", [(X, constant(I64, 1), ""), (V, constant(V.type, 1), "")]),
        ("add", [(constant(type_of(f"i{bits}"), 1), constant(type_of(f"i{bits}"), 2), "") for bits in (8, 16, 32)]),
    ],
)
def test_operands_types_and_flags_distinguish_values(opcode: str, pairs: list[tuple[Value, Value, str]]) -> None:
    b = _builder()
    assert len({id(b.binary(opcode, x, y, flags)) for x, y, flags in pairs * 2}) == len(pairs)


def test_lanes_and_elements_distinguish_values() -> None:
    b = _builder()
    moves = [b.shuffle(V, None, [1, 0]), b.shuffle(V, V, [1, 0]), b.shuffle(V, None, [0, 1])]
    moves += [b.insert(V, X, 0), b.insert(V, X, 1), b.insert(V, Y, 0)]
    addresses = [b.element_pointer(P, X, "i64"), b.element_pointer(P, X, "i32"), b.element_pointer(P, Y, "i64")]
    assert len(set(map(id, moves + addresses))) == 9


def test_a_branch_computes_its_own_values() -> None:
    """Those of a branch do not exist after it, if it was not taken."""
    b = _builder()
    with b.when(C):
        b.store(b.binary("add", X, Y), P, 8)
    b.store(b.binary("add", X, Y), P, 8)
    assert _count(b, "add") == 2


def test_an_iteration_computes_its_own_values() -> None:
    b = _builder()
    with b.loop(4) as loop:
        index = b.index(loop.index)
        for _ in range(2):
            b.store(b.binary("mul", index, Y), P, 8)
    b.store(b.binary("mul", X, Y), P, 8)
    assert _count(b, "mul") == 2


def test_the_prologue_computes_its_own_values() -> None:
    """It runs before the body, whose values it lacks."""
    b = _builder()
    b.store(b.binary("add", X, Y), P, 8)
    with b.prologue() as before:
        before.store(before.binary("add", X, Y), P, 8)
    b.store(b.binary("add", X, Y), P, 8)
    assert _count(b, "add") == 2
