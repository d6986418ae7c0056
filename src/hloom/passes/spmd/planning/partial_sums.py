"""Propagates partial sums: values of which each partition along some axes holds one term of the sum.

Annotations tell where such values begin (`unreduced`), and where the sum must be complete again. In between, operations
that are linear in a value are applied to the partial sums: the sum of their results is the result for the sum.

    add, subtract, concatenate ..   all operands together: each is unreduced along the axis, or zero
    multiply, dot, convolution      one operand alone; the other one is complete
    reshape, slice, reduce by add   the array; indices and predicates are complete

Every other operation takes complete sums, which is always correct.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir import Instruction
from hloom.ops.convert import Convert
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Bitcast
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.ops.traits import Linear, Movement
from hloom.passes.spmd.planning.propagation import Cell, Cells
from hloom.passes.spmd.planning.rules import Rule
from hloom.passes.spmd.shardings.blocks import is_constant
from hloom.passes.spmd.shardings.mesh import Axes
from hloom.types import PrimitiveType

UnreducedOperands = dict[int, frozenset[int]]
"""The operands that are partial sums, for each axis along which an operation may work on partial sums."""

Together = frozenset[int]
_FIRST, _SECOND = Together({0}), Together({1})


def linear_in(instruction: Instruction, rule: Rule) -> tuple[Together, ...]:
    """Sets of operands; the operation is linear in the operands of each set jointly, with all others held constant."""
    op, shape = instruction.op, instruction.shape
    if not shape.is_array or shape.element_type.is_pred:
        return ()
    match op:
        case Convert() if any(t.is_integer or t.is_pred for t in _types(instruction)):
            return ()  # sums of integers overflow, and rounding to them is not linear
        case Reduce() | Scatter() if rule.monoid is not Add:
            return ()
        case Multiply() | Dot() | Convolution():
            return (_FIRST, _SECOND)
        case Reduce():
            return (Together({0, 1}),)
        case Scatter():
            return (Together({0, 2}),)
        case Select():
            return (Together({1, 2}),)
        case Bitcast():
            return ()  # may reinterpret elements as another type
        case Linear() | Movement():
            count = op.moved_operands if isinstance(op, Movement) else None
            return (Together(range(len(instruction.operands) if count is None else count)),)
    return ()


def _types(instruction: Instruction) -> list[PrimitiveType]:
    return [shape.element_type for shape in (instruction.shape, *instruction.operand_shapes)]


def unreduced_operands(instruction: Instruction, rule: Rule, operands: Sequence[Cell]) -> UnreducedOperands:
    """Returns the axes along which an operation may work on partial sums, with the operands that are unreduced."""
    found: UnreducedOperands = {}
    for together in linear_in(instruction, rule):
        having = {k: {*operands[k].unreduced} for k in together if not is_constant(instruction.operands[k], 0)}
        for axis in set.intersection(*having.values()) if having else ():
            found.setdefault(axis, frozenset(having))
    return found


def unreduced_axes(unreduced: UnreducedOperands, operand: int) -> Axes:
    """The axes along which an operation takes partial sums of one operand."""
    return tuple(sorted(axis for axis, having in unreduced.items() if operand in having))


def propagate_partial_sums(cells: Cells, rules: dict[Instruction, Rule]) -> None:
    """Propagates partial sums forward from annotated values, through operations that are linear in them."""
    if not any(cell.unreduced for found in cells.of.values() for cell in found):
        return
    changed = True
    while changed:
        changed = False
        for instruction, rule in rules.items():
            for cell in cells.of[instruction] if linear_in(instruction, rule) else ():
                changed |= cell.add_unreduced(
                    sorted(unreduced_operands(instruction, rule, cells.operands(instruction)))
                )
        for source, target in cells.flows:
            changed |= target.add_unreduced(source.unreduced)


def keep_unreduced(value: Instruction, axes: Axes, cells: Cells, rules: dict[Instruction, Rule]) -> None:
    """Leaves a sum over partitions incomplete along `axes`, if its only use is `value`, wanted as partial sums."""
    while len(value.users) == 1 and len(value.operands) == 1 and value in rules and linear_in(value, rules[value]):
        (value,) = value.operands
    if value in rules and rules[value].monoid is Add and len(value.users) == 1:
        cells.of[value][0].add_unreduced(axes)
