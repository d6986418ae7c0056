"""Loops whose rounds do not depend on each other: each writes parts of arrays that no other round reads or writes.

    while i < 16: y[i * 128 : i * 128 + 128] = f(i, x); i = i + 1

These are `lax.map`, and the loops over blocks of large products. What a round computes is seen through fusions.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from hloom.counted_loop import (
    CountedLoop,
    Resolved,
    carried_index,
    constant_integer,
    counted_loop,
    is_single_integer,
    resolve,
)
from hloom.ir import Computation, Instruction
from hloom.loops.nest import nest_cost
from hloom.ops.control_flow import Fusion, While
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Remainder
from hloom.ops.operation import Operation
from hloom.ops.slice import DynamicUpdateSlice
from hloom.ops.structure import GetTupleElement

MIN_WORK = 1 << 14
"""Of a round that is worth a thread, in element additions, where it calls no kernel."""
MIN_SHARE = 0.75
"""Of the threads that must be busy on the average."""


def independent_rounds(loop: Instruction) -> tuple[CountedLoop, list[int]] | None:
    """How a loop counts whose rounds are independent, and which elements of its tuple they write parts of; None where
    the rounds may depend on each other."""
    op, counted = loop.op, counted_loop(loop)
    assert isinstance(op, While)
    if counted is None or counted.trips < 1 or counted.step < 0:
        return None
    changing = [k for k in range(len(loop.shape.elements)) if k != counted.index and not _stays(op.body, k)]
    if not changing or not all(_is_written_in_parts(op.body, k, counted) for k in changing):
        return None
    return counted, changing


def _stays(body: Computation, index: int) -> bool:
    return carried_index(resolve(body.root.operands[index]).instruction, body) == index


def may_run_at_once(body: Sequence[Step]) -> bool:
    """Whether the steps of a round may run beside those of others, and are worth a thread."""
    steps = [*all_steps(body)]
    if not all(isinstance(step, (KernelStep, CodeStep, CopyStep, WhileStep, ConditionalStep)) for step in steps):
        return False
    work = sum(nest_cost(nest) for step in steps if isinstance(step, KernelStep) for nest in step.kernel.nests)
    return work >= MIN_WORK or any(isinstance(step, CodeStep) for step in steps)


def fills_threads(trips: int, threads: int) -> bool:
    """Whether rounds that take equally long keep the threads busy."""
    return trips >= MIN_SHARE * threads * -(-trips // threads)


@dataclass(frozen=True, slots=True)
class _Digit:
    """scale * digit + offset, with the digit (counter / unit) % count of a number in mixed radix."""

    scale: int
    offset: int = 0
    unit: int = 1
    count: int = 1 << 62


def _start(value: Resolved, body: Computation, counter: int) -> _Digit | None:
    """A scalar as a multiple of a digit of the counter; None where it is something else."""
    instruction, op = value.instruction, value.instruction.op
    if carried_index(instruction, body) == counter:
        return _Digit(1)
    constant = constant_integer(instruction)
    if constant is not None:
        return _Digit(0, constant)
    if not _holds_sizes(instruction):
        return None
    if isinstance(op, Convert):
        return _start(value.operand(0), body, counter)
    if not isinstance(op, (Add, Multiply, Divide, Remainder)):
        return None
    left, right = (_start(value.operand(k), body, counter) for k in (0, 1))
    return None if left is None or right is None else _combined(op, left, right)


def _holds_sizes(instruction: Instruction) -> bool:
    """Whether all it is computed with are integers of one element that hold the size of any array."""
    shapes = (instruction.shape, *instruction.operand_shapes)
    return all(is_single_integer(shape) and shape.element_type.bits >= 32 for shape in shapes)


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


def _is_written_in_parts(body: Computation, index: int, rounds: CountedLoop) -> bool:
    """Whether each round replaces a part of the array, and nothing else reads it."""
    after = resolve(body.root.operands[index])
    if (
        not isinstance(after.instruction.op, DynamicUpdateSlice)
        or carried_index(after.operand(0).instruction, body) != index
    ):
        return False
    if not _is_read_once(body, index, after.instruction) or not _is_only_handed_on(body, index, after.instruction):
        return False
    sizes, part = after.instruction.shape.dimensions, after.instruction.operands[1].shape.dimensions
    starts = [_start(after.operand(2 + d), body, rounds.index) for d in range(len(sizes))]
    digits = [
        start
        for start, size, extent in zip(starts, part, sizes, strict=True)
        if start is not None and _are_apart(start, size, extent, rounds)
    ]
    return _tell_apart(digits, rounds)


def _are_apart(start: _Digit, size: int, extent: int, rounds: CountedLoop) -> bool:
    """Whether the parts for the values of a digit lie within a dimension, one after the other."""
    first, last, step = rounds.start, rounds.start + rounds.step * (rounds.trips - 1), rounds.step
    if start.unit > 1 or start.count <= last:
        if first < 0:
            return False
        first, last, step = 0, min(start.count - 1, last // start.unit), 1
    low, high = start.scale * first + start.offset, start.scale * last + start.offset
    return start.scale * step >= size and low >= 0 and high + size <= extent


def _tell_apart(digits: Sequence[_Digit], rounds: CountedLoop) -> bool:
    """Whether two rounds differ in one of the digits, which are all that the counter has."""
    unit = 1
    for digit in sorted(digits, key=lambda digit: (digit.unit, -digit.count)):
        if digit.unit == unit:
            unit *= digit.count
    return unit >= rounds.start + rounds.step * rounds.trips


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
