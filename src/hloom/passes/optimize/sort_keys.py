"""sort-keys: hoists computations of a comparator that depend on one element only out of the sort."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.reduce import Map
from hloom.ops.sort import Sort
from hloom.ops.structure import Constant, Parameter
from hloom.passes.op_builder import OpBuilder, expand_each, new_computation
from hloom.system.records import record

MIN_KEY_COST = 6
"""Least cost, in additions, of a key that is worth the memory that it takes."""

LEFT, RIGHT = 1, 2
"""Bits for the element of a comparison that a value depends on."""


@record
class SortKeys:
    """Before: sort(%a), less(x, y) = f(x) < f(y). After: sort(%a, map(%a), f), less(x, y, k, l) = k < l.

    A key is a scalar that the comparator computes from the parameters of one side only, and in the same way from those
    of the other side. Cheap keys stay in the comparator.
    """

    name: ClassVar[str] = "sort-keys"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Sort,)

    def run(self, module: Module) -> int:
        """Hoists keys; returns the number of sorts changed."""
        return expand_each(module, Sort, _with_keys)


def _with_keys(op: Sort, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
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
    elements = build.elements(ordered)[: len(old.operands)]
    return build.tuple(*elements) if old.shape.is_tuple else elements[0]


def keys(comparator: Computation) -> list[tuple[Instruction, Instruction]]:
    """Returns the keys of a comparator, as pairs of the same function of the left and of the right element.

    Value numbering finds them: two instructions have the same id if they are the same function of their side.
    """
    sides: dict[Instruction, int] = {}
    value_ids: dict[Instruction, int] = {}
    ids: dict[Any, int] = {}
    for i in comparator.instructions:
        sides[i] = _side(i, sides)
        function = i.op.number // 2 if isinstance(i.op, Parameter) else i.op
        value = (function, str(i.shape), *(value_ids[operand] for operand in i.operands))
        value_ids[i] = ids.setdefault(value, len(ids))
    found: dict[int, list[Instruction | None]] = {}
    for i in comparator.instructions:
        if sides[i] in (LEFT, RIGHT) and _is_key(i, sides):
            found.setdefault(value_ids[i], [None, None])[sides[i] - 1] = i
    return [(left, right) for left, right in found.values() if left and right and _cost(left) >= MIN_KEY_COST]


def _side(instruction: Instruction, sides: dict[Instruction, int]) -> int:
    """Returns the sides whose parameters an instruction depends on; both if it is not a pure function of them."""
    if instruction.op.has_side_effect or instruction.control_predecessors:
        return LEFT | RIGHT
    if isinstance(instruction.op, Parameter):
        return RIGHT if instruction.op.number % 2 else LEFT
    side = 0
    for operand in instruction.operands:
        side |= sides[operand]
    return side


def _is_key(instruction: Instruction, sides: dict[Instruction, int]) -> bool:
    """Whether the instruction is a scalar with a user that depends on other sides too."""
    used = any(sides[user] != sides[instruction] for user in instruction.users)
    return used and not isinstance(instruction.op, Parameter) and instruction.shape.is_scalar


def _cost(root: Instruction) -> int:
    """Returns the cost of computing a value, in additions.

    A parameter counts as 1, a constant as nothing; arrays, calls and loops as MIN_KEY_COST.
    """
    cost = 0
    for instruction in _needed(root):
        op = instruction.op
        if not all(leaf.is_scalar for leaf in instruction.shape.leaves()):
            cost += MIN_KEY_COST
        elif isinstance(op, Parameter):
            cost += 1
        elif not isinstance(op, Constant):
            cost += op.cost if op.elementwise else MIN_KEY_COST
    return cost


def _needed(root: Instruction, given: Container[Instruction] = ()) -> set[Instruction]:
    """Returns the instructions that have to be computed for a value, including its own, if some values are given."""
    worklist, seen = [root], {root}
    while worklist:
        for operand in worklist.pop().operands:
            if operand not in seen and operand not in given:
                seen.add(operand)
                worklist.append(operand)
    return seen


def _function(module: Module, comparator: Computation, key: Instruction) -> Computation:
    """Builds a computation of a key from the operands' elements."""
    function = new_computation(module, "sort-key")
    build = OpBuilder.of(function)
    new = {parameter: build.parameter(k, parameter.shape) for k, parameter in enumerate(comparator.parameters[::2])}
    _copy(build, comparator, key, new)
    function.root = new[key]
    return function


def _on_keys(module: Module, comparator: Computation, pairs: list[tuple[Instruction, Instruction]]) -> Computation:
    """Builds a comparator with further parameters for the keys, which it does not compute any more."""
    computation = new_computation(module, comparator.name)
    build = OpBuilder.of(computation)
    new = {p: build.parameter(k, p.shape) for k, p in enumerate(comparator.parameters)}
    for k, pair in enumerate(pairs):
        for side, key in enumerate(pair):
            new[key] = build.parameter(len(comparator.parameters) + 2 * k + side, key.shape)
    _copy(build, comparator, comparator.root, new)
    computation.root = new[comparator.root]
    return computation


def _copy(build: OpBuilder, of: Computation, root: Instruction, new: dict[Instruction, Instruction]) -> None:
    """Copies the instructions that `root` needs and that `new` does not have yet, and adds the copies to `new`."""
    needed = _needed(root, new)
    for i in of.instructions:
        if i in needed and i not in new:
            new[i] = build(i.op, *(new[operand] for operand in i.operands), shape=i.shape)
