"""Loops with an induction variable: start, step and trip count. Values are looked up through fusions."""

from __future__ import annotations

from hloom.ir import Computation, Instruction
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Fusion, While
from hloom.ops.elementwise_binary import Add
from hloom.ops.reshape import Copy
from hloom.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.ops.traits import View
from hloom.shape import Shape
from hloom.system.records import record


@record(slots=True)
class CountedLoop:
    """A loop whose carried element `index` takes the values start, start + step, .. , `trips` of them."""

    index: int
    start: int
    step: int
    trips: int


def counted_loop(loop: Instruction) -> CountedLoop | None:
    """Returns the induction variable of a while loop, such as those of JAX's scan and fori_loop; None if it is not
    known.

    The condition must compare an integer element of the carried tuple with a constant, or with an element whose initial
    value is a constant and that never changes; the constant is on the right. The body must add a constant to the
    element.
    """
    op = loop.op
    assert isinstance(op, While)
    test = resolve(op.condition.root)
    direction = test.instruction.op
    if not all(isinstance(state.op, Tuple) for state in (op.body.root, loop.operands[0])):
        return None
    if not isinstance(direction, Compare):
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
    low, high = loop.shape.elements[index].element_type.limits
    if trips is None or not low <= start + trips * step <= high:
        return None
    return CountedLoop(index, start, step, trips)


def trip_count(loop: Instruction) -> int | None:
    """Returns the trip count of a while loop; None if it is not known."""
    counted = counted_loop(loop)
    return None if counted is None else counted.trips


@record(slots=True)
class Resolved:
    """An instruction and the fusion that contains it, if any, whose operands are the values of its parameters."""

    instruction: Instruction
    fusion: Resolved | None = None

    def operand(self, position: int) -> Resolved:
        """Resolves the operand at a position."""
        return resolve(self.instruction.operands[position], self.fusion)


def resolve(instruction: Instruction, fusion: Resolved | None = None) -> Resolved:
    """Finds the instruction that computes a value, through fusions, their parameters, and copies and reshapes of
    scalars.
    """
    while True:
        op = instruction.op
        if isinstance(op, Parameter) and fusion is not None:
            instruction, fusion = fusion.instruction.operands[op.number], fusion.fusion
        elif isinstance(op, Fusion) and not isinstance(op.calls.root.op, Tuple):
            instruction, fusion = op.calls.root, Resolved(instruction, fusion)
        elif isinstance(op, GetTupleElement) and (of := _fused_tuple(instruction.operands[0])) is not None:
            instruction, fusion = of.operands[op.index], Resolved(instruction.operands[0], fusion)
        elif isinstance(op, (View, Copy)) and is_scalar_integer_op(instruction):
            (instruction,) = instruction.operands
        else:
            return Resolved(instruction, fusion)


def _fused_tuple(instruction: Instruction) -> Instruction | None:
    """The tuple at the root of a fusion; None if there is none."""
    op = instruction.op
    return op.calls.root if isinstance(op, Fusion) and isinstance(op.calls.root.op, Tuple) else None


def carried_index(value: Instruction, computation: Computation) -> int | None:
    """Returns the index of a value among the elements of the tuple that a computation takes; None if it is not one of
    them.
    """
    op = value.op
    if not isinstance(op, GetTupleElement):
        return None
    of = value.operands[0]
    is_given = isinstance(of.op, Parameter) and of.op.number == 0 and of.parent is computation
    return op.index if is_given else None


def constant_integer(value: Instruction) -> int | None:
    """Returns the value of a constant of one integer; None for other instructions."""
    op = value.op
    return int(op.literal.value.item()) if isinstance(op, Constant) and is_scalar_integer_op(value) else None


def is_scalar_integer_op(instruction: Instruction) -> bool:
    """Whether an instruction's result and operands are single integers of one type."""
    shapes = (instruction.shape, *instruction.operand_shapes)
    return all(map(is_single_integer, shapes)) and len({shape.element_type for shape in shapes}) == 1


def is_single_integer(shape: Shape) -> bool:
    """Whether a shape holds one element, of an integer type."""
    return shape.is_array and shape.element_count == 1 and shape.element_type.is_integer


def _known(value: Instruction, loop: Instruction, op: While) -> int | None:
    """The value of a constant, or of a loop-carried element that always has its constant initial value; None if not
    known.
    """
    index = carried_index(value, op.condition)
    if index is None:
        return constant_integer(value)
    if carried_index(resolve(op.body.root.operands[index]).instruction, op.body) != index:
        return None
    return constant_integer(resolve(loop.operands[0].operands[index]).instruction)


def _step(body: Computation, index: int) -> int | None:
    """The constant that the body adds to a carried element; None if it does something else."""
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
