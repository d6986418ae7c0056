"""Loops whose rounds do not depend on each other: each writes parts of arrays that no other round reads or writes.

    while i < 16: y[i * 128 : i * 128 + 128] = f(i, x); i = i + 1

These are `lax.map`, and the loops over blocks of large products. What a round computes is seen through fusions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hloom.backends.cpu.program.program import (
    CodeStep,
    ConditionalStep,
    CopyStep,
    KernelStep,
    Step,
    WhileStep,
    all_steps,
)
from hloom.ir import Computation, Instruction
from hloom.loops.nest import nest_cost
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Fusion, While
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Remainder
from hloom.ops.operation import Operation
from hloom.ops.slice import DynamicUpdateSlice
from hloom.ops.structure import Constant, GetTupleElement

LEAST_WORK = 1 << 14
"""Of a round that is worth a thread, in element additions, where it calls no kernel."""
LEAST_SHARE = 0.75
"""Of the threads that must be busy on the average."""


@dataclass(frozen=True, slots=True)
class IndependentRounds:
    """Element `counter` of the loop's tuple is first, first + step, ..; the elements `arrays` are written in parts."""

    counter: int
    first: int
    step: int
    trips: int
    arrays: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """An instruction, where the parameters of the fusion that it is in stand for other instructions."""

    instruction: Instruction
    arguments: Mapping[Instruction, _Seen]

    def operand(self, position: int) -> _Seen:
        return _through(self.instruction.operands[position], self.arguments)


_NOTHING: Mapping[Instruction, _Seen] = {}


def independent_rounds(loop: Instruction) -> IndependentRounds | None:
    """What is known of a loop whose rounds are independent; None where they may not be."""
    op = loop.op
    assert isinstance(op, While)
    init = loop.operands[0]
    if op.body.root.opcode != "tuple" or init.opcode != "tuple":
        return None
    limit = _limit(op.condition)
    if limit is None:
        return None
    counter, end = limit
    first, after = _integer(_through(init.operands[counter], _NOTHING)), _following(op.body, counter)
    following = _start(after, op.body, counter)
    if first is None or following is None or following.offset <= 0 or end <= first:
        return None
    step = following.offset
    if following != _Digit(1, step):
        return None
    rounds = IndependentRounds(counter, first, step, -(-(end - first) // step), ())
    arrays = []
    for k in range(len(init.operands)):
        if k != counter and _element(_following(op.body, k), op.body) != k:
            if not _is_written_in_parts(op.body, k, rounds):
                return None
            arrays.append(k)
    return replace(rounds, arrays=tuple(arrays)) if arrays else None


def may_run_at_once(body: Sequence[Step]) -> bool:
    """Whether the steps of a round may run beside those of others, and are worth a thread."""
    steps = [*all_steps(body)]
    if not all(isinstance(step, (KernelStep, CodeStep, CopyStep, WhileStep, ConditionalStep)) for step in steps):
        return False
    work = sum(nest_cost(nest) for step in steps if isinstance(step, KernelStep) for nest in step.kernel.nests)
    return work >= LEAST_WORK or any(isinstance(step, CodeStep) for step in steps)


def fills_threads(trips: int, threads: int) -> bool:
    """Whether rounds that take equally long keep the threads busy."""
    return trips >= LEAST_SHARE * threads * -(-trips // threads)


def _through(instruction: Instruction, arguments: Mapping[Instruction, _Seen]) -> _Seen:
    """The instruction that computes a value: one in a fusion for that fusion, an argument for a parameter."""
    if instruction in arguments:
        return arguments[instruction]
    op = instruction.op
    if isinstance(op, Fusion):
        return _through(op.calls.root, _arguments(instruction, op, arguments))
    if isinstance(op, GetTupleElement):
        (source,) = instruction.operands
        if isinstance(source.op, Fusion) and source.op.calls.root.opcode == "tuple":
            return _through(source.op.calls.root.operands[op.index], _arguments(source, source.op, arguments))
    if instruction.opcode in ("reshape", "convert", "copy") and _is_index(instruction):
        return _through(instruction.operands[0], arguments)
    return _Seen(instruction, arguments)


def _arguments(fusion: Instruction, op: Fusion, arguments: Mapping[Instruction, _Seen]) -> Mapping[Instruction, _Seen]:
    given = (_through(operand, arguments) for operand in fusion.operands)
    return dict(zip(op.calls.parameters, given, strict=True))


def _following(body: Computation, index: int) -> _Seen:
    """What an element is in the next round."""
    return _through(body.root.operands[index], _NOTHING)


def _element(seen: _Seen, computation: Computation) -> int | None:
    """Which element of the loop's tuple a value is."""
    op = seen.instruction.op
    if isinstance(op, GetTupleElement) and seen.instruction.operands[0] is computation.parameters[0]:
        return op.index
    return None


def _is_index(instruction: Instruction) -> bool:
    """Whether all it is computed with are integers of one element that hold the size of any array."""
    return all(
        shape.is_array and shape.element_count == 1 and shape.element_type.is_integer and shape.element_type.bits >= 32
        for shape in (instruction.shape, *instruction.operand_shapes)
    )


def _integer(seen: _Seen) -> int | None:
    op = seen.instruction.op
    return int(op.literal.value.item()) if isinstance(op, Constant) and _is_index(seen.instruction) else None


def _limit(condition: Computation) -> tuple[int, int] | None:
    """The element of the tuple that the loop counts with, and the value at which it ends."""
    test = _through(condition.root, _NOTHING)
    op = test.instruction.op
    if not isinstance(op, Compare) or op.direction is not ComparisonDirection.LT:
        return None
    element, end = _element(test.operand(0), condition), _integer(test.operand(1))
    return None if element is None or end is None else (element, end)


@dataclass(frozen=True, slots=True)
class _Digit:
    """scale * digit + offset, with the digit (counter / unit) % count of a number in mixed radix."""

    scale: int
    offset: int = 0
    unit: int = 1
    count: int = 1 << 62


def _start(seen: _Seen, body: Computation, counter: int) -> _Digit | None:
    """A scalar as a multiple of a digit of the counter; None where it is something else."""
    if _element(seen, body) == counter:
        return _Digit(1)
    constant = _integer(seen)
    if constant is not None:
        return _Digit(0, constant)
    op = seen.instruction.op
    if not isinstance(op, (Add, Multiply, Divide, Remainder)) or not _is_index(seen.instruction):
        return None
    left, right = (_start(seen.operand(k), body, counter) for k in (0, 1))
    return None if left is None or right is None else _combined(op, left, right)


def _combined(op: Operation, left: _Digit, right: _Digit) -> _Digit | None:
    if not left.scale and isinstance(op, (Add, Multiply)):
        left, right = right, left
    if right.scale:
        same = isinstance(op, Add) and (left.unit, left.count) == (right.unit, right.count)
        return replace(left, scale=left.scale + right.scale, offset=left.offset + right.offset) if same else None
    value, is_digit = right.offset, left.scale == 1 and left.offset == 0
    if isinstance(op, Add):
        return replace(left, offset=left.offset + value)
    if isinstance(op, Multiply):
        return replace(left, scale=left.scale * value, offset=left.offset * value)
    if not is_digit or value <= 0 or left.count != _Digit(1).count:
        return None
    return replace(left, unit=left.unit * value) if isinstance(op, Divide) else replace(left, count=value)


def _is_written_in_parts(body: Computation, index: int, rounds: IndependentRounds) -> bool:
    """Whether each round replaces a part of the array, and nothing else reads it."""
    after = _following(body, index)
    if not isinstance(after.instruction.op, DynamicUpdateSlice) or _element(after.operand(0), body) != index:
        return False
    if not _is_read_once(body, index, after.instruction) or not _is_only_handed_on(body, index, after.instruction):
        return False
    sizes, part = after.instruction.shape.dimensions, after.instruction.operands[1].shape.dimensions
    starts = [_start(after.operand(2 + d), body, rounds.counter) for d in range(len(sizes))]
    digits = [
        start
        for start, size, extent in zip(starts, part, sizes, strict=True)
        if start is not None and _are_apart(start, size, extent, rounds)
    ]
    return _tell_apart(digits, rounds)


def _are_apart(start: _Digit, size: int, extent: int, rounds: IndependentRounds) -> bool:
    """Whether the parts for the values of a digit lie within a dimension, one after the other."""
    first, last, step = rounds.first, rounds.first + rounds.step * (rounds.trips - 1), rounds.step
    if start.unit > 1 or start.count <= last:
        if first < 0:
            return False
        first, last, step = 0, min(start.count - 1, last // start.unit), 1
    low, high = start.scale * first + start.offset, start.scale * last + start.offset
    return start.scale * step >= size and low >= 0 and high + size <= extent


def _tell_apart(digits: Sequence[_Digit], rounds: IndependentRounds) -> bool:
    """Whether two rounds differ in one of the digits, which are all that the counter has."""
    unit = 1
    for digit in sorted(digits, key=lambda digit: (digit.unit, -digit.count)):
        if digit.unit == unit:
            unit *= digit.count
    return unit >= rounds.first + rounds.step * rounds.trips


def _is_read_once(body: Computation, index: int, update: Instruction) -> bool:
    """Whether nothing but the update reads the array, through fusions."""
    (state,) = body.parameters
    values = [user for user in state.users if isinstance(user.op, GetTupleElement) and user.op.index == index]
    if len(values) != 1 or any(not isinstance(user.op, GetTupleElement) for user in state.users):
        return False
    (value,) = values
    while len(value.users) == 1:
        (user,) = value.users
        if user.operands.count(value) != 1:
            return False
        if user is update:
            return user.operands[0] is value
        if not isinstance(user.op, Fusion):
            return False
        value = user.op.calls.parameters[user.operands.index(value)]
    return False


def _is_only_handed_on(body: Computation, index: int, update: Instruction) -> bool:
    """Whether nothing but the next round reads the array that an update gives."""
    handed_on = body.root.operands[index]
    owner = update.parent
    if owner is None or any(user is not owner.root or user.operands.count(update) != 1 for user in update.users):
        return False
    if isinstance(handed_on.op, GetTupleElement):
        (source,) = handed_on.operands
        same = [user for user in source.users if isinstance(user.op, GetTupleElement) and user.op == handed_on.op]
        if len(same) != 1:
            return False
    return [*handed_on.users] == [body.root] and body.root.operands.count(handed_on) == 1
