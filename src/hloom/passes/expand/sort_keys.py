"""sort-keys: what a comparator computes of each element alone is computed once, not once a comparison."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.reduce import Map
from hloom.ops.sort import Sort
from hloom.passes.costs import element_cost
from hloom.passes.op_builder import OpBuilder, expand_all, new_computation

MIN_KEY_COST = 8
"""What a key has to cost, in additions, to be worth the memory that it takes."""

LEFT, RIGHT = 1, 2


@dataclass(frozen=True)
class SortKeys:
    """Before: sort(%a), less(x, y) = f(x) < f(y). After: sort(%a, map(%a), f), less(x, y, k, l) = k < l.

    Whatever is computed of one side's parameters alone, and likewise of the other side's, is a key. Keys that cost
    little stay.
    """

    name: ClassVar[str] = "sort-keys"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        return expand_all(module, {"sort": _with_keys})


def _with_keys(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    op = old.op
    assert isinstance(op, Sort)
    pairs = keys(op.comparator)
    if not pairs:
        return None
    dimensions = tuple(range(old.operands[0].shape.rank))
    values = [
        build(Map(dimensions=dimensions, computation=_function(module, op.comparator, left)), *old.operands)
        for left, _ in pairs
    ]
    comparator = _on_keys(module, op.comparator, pairs)
    ordered = build(op.replace(comparator=comparator), *old.operands, *values)
    elements = [build.element(ordered, k) for k in range(len(old.operands))]
    return build.tuple(*elements) if old.shape.is_tuple else elements[0]


def keys(comparator: Computation) -> list[tuple[Instruction, Instruction]]:
    """What is computed of the left element alone, with what is computed in the same way of the right one."""
    sides: dict[Instruction, int] = {}
    value_ids: dict[Instruction, int] = {}
    ids: dict[Any, int] = {}
    for i in comparator.instructions:
        sides[i] = _side(i, sides)
        function = i.op.number // 2 if i.opcode == "parameter" else i.op  # type: ignore[attr-defined]
        value = (function, str(i.shape), *(value_ids[operand] for operand in i.operands))
        value_ids[i] = ids.setdefault(value, len(ids))
    found: dict[int, list[Instruction | None]] = {}
    for i in comparator.instructions:
        if sides[i] in (LEFT, RIGHT) and _is_key(i, sides):
            found.setdefault(value_ids[i], [None, None])[sides[i] - 1] = i
    return [(left, right) for left, right in found.values() if left and right and _cost(left) >= MIN_KEY_COST]


def _side(instruction: Instruction, sides: dict[Instruction, int]) -> int:
    """Whose parameters an instruction depends on; both, where it is more than a function of them."""
    if instruction.op.has_side_effect or instruction.control_predecessors or instruction.opcode.startswith("rng"):
        return LEFT | RIGHT
    if instruction.opcode == "parameter":
        return RIGHT if instruction.op.number % 2 else LEFT  # type: ignore[attr-defined]
    side = 0
    for operand in instruction.operands:
        side |= sides[operand]
    return side


def _is_key(instruction: Instruction, sides: dict[Instruction, int]) -> bool:
    """A scalar that is used together with the other side's."""
    used = any(sides[user] != sides[instruction] for user in instruction.users)
    return used and instruction.opcode != "parameter" and instruction.shape.is_scalar


def _cost(root: Instruction) -> int:
    """Of an instruction and all that it needs, in additions; what calls, loops or holds an array is worth keeping."""
    cost = 0
    for instruction in _needed(root):
        plain = instruction.op.elementwise or instruction.opcode in ("parameter", "constant")
        scalar = all(leaf.is_scalar for leaf in instruction.shape.leaves())
        cost += element_cost(instruction.opcode) if plain and scalar else MIN_KEY_COST
    return cost


def _needed(root: Instruction, given: Container[Instruction] = ()) -> set[Instruction]:
    """What has to be computed for an instruction, itself among it, where some values are given."""
    worklist, seen = [root], {root}
    while worklist:
        for operand in worklist.pop().operands:
            if operand not in seen and operand not in given:
                seen.add(operand)
                worklist.append(operand)
    return seen


def _function(module: Module, comparator: Computation, key: Instruction) -> Computation:
    """A key as a function of an element."""
    function = new_computation(module, "sort-key")
    build = OpBuilder.of(function)
    new = {
        parameter: build.parameter(parameter.op.number // 2, parameter.shape)  # type: ignore[attr-defined]
        for parameter in comparator.parameters[::2]
    }
    _copy(build, comparator, key, new)
    function.root = new[key]
    return function


def _on_keys(module: Module, comparator: Computation, pairs: list[tuple[Instruction, Instruction]]) -> Computation:
    """The comparator of elements together with their keys."""
    computation = new_computation(module, comparator.name)
    build = OpBuilder.of(computation)
    new = {p: build.parameter(p.op.number, p.shape) for p in comparator.parameters}  # type: ignore[attr-defined]
    for k, pair in enumerate(pairs):
        for side, key in enumerate(pair):
            new[key] = build.parameter(len(comparator.parameters) + 2 * k + side, key.shape)
    _copy(build, comparator, comparator.root, new)
    computation.root = new[comparator.root]
    return computation


def _copy(build: OpBuilder, of: Computation, root: Instruction, new: dict[Instruction, Instruction]) -> None:
    """Makes what a root needs beside what is there already."""
    needed = _needed(root, new)
    for i in of.instructions:
        if i in needed and i not in new:
            new[i] = build(i.op, *(new[operand] for operand in i.operands), shape=i.shape)
