"""Loops that count: where they start, by how much they step, and how often they run. What is counted with is seen
through fusions."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes

from hloom.ir import Computation, Instruction
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Fusion, While
from hloom.ops.elementwise_binary import Add
from hloom.ops.structure import Constant, GetTupleElement, Parameter
from hloom.shape import Shape


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """A loop that counts: element `index` of its tuple takes the values start, start + step, .. , `trips` of them."""

    index: int
    start: int
    step: int
    trips: int


def counted_loop(loop: Instruction) -> CountedLoop | None:
    """How the loop counts, as in JAX's scan and fori_loop; None where that is not known.

    The condition compares an integer element of the tuple with a constant, or with an element that has a constant as
    its initial value and never changes; the body adds a constant to it. The constant stands on the comparison's right.
    """
    op = loop.op
    assert isinstance(op, While)
    test = resolve(op.condition.root)
    direction = test.instruction.op
    if not isinstance(direction, Compare) or op.body.root.opcode != "tuple" or loop.operands[0].opcode != "tuple":
        return None
    index, limit = (
        carried_index(test.operand(0).instruction, op.condition),
        _known(test.operand(1).instruction, loop, op),
    )
    if index is None or limit is None or not loop.shape.elements[index].element_type.is_integer:
        return None
    start, step = constant_integer(resolve(loop.operands[0].operands[index]).instruction), _step(op.body, index)
    if start is None or not step:
        return None
    trips = _trips(direction.direction, start, step, limit)
    limits = ml_dtypes.iinfo(loop.shape.elements[index].element_type.dtype)
    if trips is None or not int(limits.min) <= start + trips * step <= int(limits.max):
        return None
    return CountedLoop(index, start, step, trips)


def trip_count(loop: Instruction) -> int | None:
    """How often the body runs; None where that is not known."""
    counted = counted_loop(loop)
    return None if counted is None else counted.trips


@dataclass(frozen=True, slots=True)
class Resolved:
    """An instruction, and the fusion that it is in: the operands of that fusion stand for its parameters."""

    instruction: Instruction
    fusion: Resolved | None = None

    def operand(self, position: int) -> Resolved:
        return resolve(self.instruction.operands[position], self.fusion)


def resolve(instruction: Instruction, fusion: Resolved | None = None) -> Resolved:
    """The instruction that computes a value: one in a fusion for that fusion, an argument for a parameter."""
    while True:
        op = instruction.op
        if isinstance(op, Parameter) and fusion is not None:
            instruction, fusion = fusion.instruction.operands[op.number], fusion.fusion
        elif isinstance(op, Fusion) and op.calls.root.opcode != "tuple":
            instruction, fusion = op.calls.root, Resolved(instruction, fusion)
        elif isinstance(op, GetTupleElement) and (of := _fused_tuple(instruction.operands[0])) is not None:
            instruction, fusion = of.operands[op.index], Resolved(instruction.operands[0], fusion)
        elif instruction.opcode in ("reshape", "bitcast", "copy") and is_scalar_integer_op(instruction):
            (instruction,) = instruction.operands
        else:
            return Resolved(instruction, fusion)


def _fused_tuple(instruction: Instruction) -> Instruction | None:
    """The tuple that is the root of a fusion."""
    op = instruction.op
    return op.calls.root if isinstance(op, Fusion) and op.calls.root.opcode == "tuple" else None


def carried_index(value: Instruction, computation: Computation) -> int | None:
    """Which element of the tuple that a computation is given a value is."""
    op = value.op
    if not isinstance(op, GetTupleElement):
        return None
    of = value.operands[0]
    is_given = isinstance(of.op, Parameter) and of.op.number == 0 and of.parent is computation
    return op.index if is_given else None


def constant_integer(value: Instruction) -> int | None:
    """The integer that a constant of one element is."""
    op = value.op
    return int(op.literal.value.item()) if isinstance(op, Constant) and is_scalar_integer_op(value) else None


def is_scalar_integer_op(instruction: Instruction) -> bool:
    """Whether all it is computed with are integers of one element, of one type."""
    shapes = (instruction.shape, *instruction.operand_shapes)
    return all(map(is_single_integer, shapes)) and len({shape.element_type for shape in shapes}) == 1


def is_single_integer(shape: Shape) -> bool:
    return shape.is_array and shape.element_count == 1 and shape.element_type.is_integer


def _known(value: Instruction, loop: Instruction, op: While) -> int | None:
    """A constant, or the constant that an element is all the time."""
    index = carried_index(value, op.condition)
    if index is None:
        return constant_integer(value)
    if carried_index(resolve(op.body.root.operands[index]).instruction, op.body) != index:
        return None
    return constant_integer(resolve(loop.operands[0].operands[index]).instruction)


def _step(body: Computation, index: int) -> int | None:
    """What the body adds to an element."""
    following = resolve(body.root.operands[index])
    if isinstance(following.instruction.op, Add):
        for counter in (0, 1):
            if carried_index(following.operand(counter).instruction, body) == index:
                return constant_integer(following.operand(1 - counter).instruction)
    return None


def _trips(direction: ComparisonDirection, start: int, step: int, limit: int) -> int | None:
    if direction in (ComparisonDirection.LE, ComparisonDirection.GE):
        limit += 1 if direction is ComparisonDirection.LE else -1
    if direction in (ComparisonDirection.LT, ComparisonDirection.LE) and step > 0:
        return max(0, -(-(limit - start) // step))
    if direction in (ComparisonDirection.GT, ComparisonDirection.GE) and step < 0:
        return max(0, -(-(start - limit) // -step))
    return None
