"""Functions by operation class."""

from __future__ import annotations

import pytest

from hloom.ops.async_collectives import AllReduceStart
from hloom.ops.collectives import AllReduce
from hloom.ops.elementwise_binary import Add, Monoid, Subtract
from hloom.ops.operation import OPERATIONS
from hloom.ops.registry import Registry


def test_the_function_is_that_of_the_class_or_the_nearest_base_class() -> None:
    names = Registry[[int], str]()

    @names.rule(Monoid)
    def _monoid(op: Monoid, count: int) -> str:
        return f"{count} x {op.opcode}"

    @names.rule(Add)
    def _add(op: Add, count: int) -> str:
        return f"{count} sums"

    assert names[Add()](Add(), 2) == "2 sums"
    others = [op for op in (Subtract(), Monoid.__subclasses__()[1]()) if op in names]
    assert [names[op](op, 3) for op in others] == ["3 x multiply"]
    assert list(names) == [Monoid, Add]


def test_operations_without_a_function_are_not_in_it() -> None:
    names = Registry[[], str]()
    names.add(AllReduce, lambda op: op.opcode)
    assert Add() not in names and names.get(Add()) is None
    with pytest.raises(KeyError, match="add"):
        names[Add()]
    assert issubclass(AllReduceStart, AllReduce)


def test_operands_and_attributes_say_what_they_are() -> None:
    for opcode, declaration in OPERATIONS.items():
        for name, doc in declaration.argument_docs().items():
            assert doc and not doc.endswith("."), f"{opcode}: {name}"
        assert set(declaration.see_also) <= OPERATIONS.keys() - {opcode}, opcode
