"""Index arithmetic, addresses and moves of lanes: a block has each once, and takes none from another block."""

from __future__ import annotations

from hloom.lir import I1, I64, PTR, Builder, Function, LirModule, Parameter, constant, poison, type_of
from hloom.lir.instructions import Shuffle
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


def test_operands_and_flags_distinguish_values() -> None:
    b = _builder()
    pairs = [(X, Y, ""), (Y, X, ""), (X, X, ""), (X, Y, "nsw"), (X, constant(I64, 1), "")]
    assert len({id(b.binary("add", x, y, flags)) for x, y, flags in pairs * 2}) == len(pairs)
    assert b.binary("mul", X, Y) is not b.binary("add", X, Y) is b.binary("add", X, Y)


def test_lanes_and_elements_distinguish_values() -> None:
    b = _builder()
    moves = [b.shuffle(V, None, [1, 0]), b.shuffle(V, V, [1, 0]), b.shuffle(V, None, [0, 1])]
    moves += [b.insert(V, X, 0), b.insert(V, X, 1), b.insert(V, Y, 0)]
    addresses = [b.element_pointer(P, X, "i64"), b.element_pointer(P, X, "i32"), b.element_pointer(P, Y, "i64")]
    assert len(set(map(id, moves + addresses))) == 9


def test_vectors_are_concatenated_in_pairs() -> None:
    b = _builder()
    other = b.shuffle(V, None, [1, 0])
    whole = b.concatenated([V, other, other, V])
    shuffles = [each for each in b.body if isinstance(each, Shuffle) and each is not other]
    assert [each.type.width for each in shuffles] == [4, 4, 8]
    assert whole is shuffles[-1]
    assert b.concatenated([V]) is V


def test_lanes_of_poison_are_poison() -> None:
    b, nothing = _builder(), poison(V.type)
    assert b.shuffle(nothing, nothing, [0, 3]).text == b.shuffle(nothing, None, [1]).text == "poison"
    assert b.shuffle(V, nothing, [0, 3]).text != "poison"


def test_a_branch_computes_its_own_values() -> None:
    """After a branch that was not taken they do not exist."""
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
    """The body, whose values it lacks, runs after it."""
    b = _builder()
    b.store(b.binary("add", X, Y), P, 8)
    with b.prologue() as before:
        before.store(before.binary("add", X, Y), P, 8)
    b.store(b.binary("add", X, Y), P, 8)
    assert _count(b, "add") == 2
