"""Finds parallel loops: loops without loop-carried dependences, except that each iteration writes its own slices.

    while i < 16: y[i * 128 : i * 128 + 128] = f(i, x); i = i + 1

Such loops come from `lax.map` and from blocked products of matrices. An array may be carried from one iteration to the
next if each iteration only updates a slice of it, and if a dependence test proves the slices disjoint. Start indices
are affine in the loop counter (strong SIV test) or in its digits in mixed radix (see `_Subscript`). Fusions are
analysed as if they were inlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.analysis.counted_loop import (
    CountedLoop,
    Resolved,
    carried_index,
    constant_integer,
    counted_loop,
    is_single_integer,
    resolve,
)
from hloom.backends.cpu.program.program import (
    CallStep,
    CodeStep,
    HostStep,
    Step,
    WaitStep,
    all_steps,
)
from hloom.ir import Computation, Instruction
from hloom.ops.control_flow import Fusion, While
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Remainder
from hloom.ops.operation import Operation
from hloom.ops.slice import DynamicUpdateSlice
from hloom.ops.structure import GetTupleElement
from hloom.system.records import record
from hloom.target import MIN_TASK_WORK

MIN_UTILIZATION = 0.75
"""Minimum fraction of threads that must be busy on average."""


def ascending_loop(loop: Instruction) -> CountedLoop | None:
    """Returns how a loop counts if it counts up and has iterations, else None."""
    counted = counted_loop(loop)
    return None if counted is None or counted.trips < 1 or counted.step < 0 else counted


def independent_iterations(loop: Instruction) -> tuple[CountedLoop, list[int]] | None:
    """Returns how a loop counts and the tuple elements that its iterations update by disjoint slices.

    Returns None if the loop may have loop-carried dependences.
    """
    op, counted = loop.op, ascending_loop(loop)
    assert isinstance(op, While)
    if counted is None:
        return None
    changing = [k for k in range(len(loop.shape.elements)) if k != counted.index and not _is_invariant(op.body, k)]
    if not changing or not all(is_updated_by_slices(op.body, k, counted) for k in changing):
        return None
    return counted, changing


def _is_invariant(body: Computation, index: int) -> bool:
    """Whether a tuple element of the loop state is passed on unchanged."""
    return carried_index(resolve(body.root.operands[index]).instruction, body) == index


def may_run_in_parallel(body: Sequence[Step]) -> bool:
    """Whether the steps of an iteration may run on any thread, and call a kernel or do enough work for a task."""
    steps = [*all_steps(body)]
    if any(isinstance(step, (HostStep, WaitStep, CallStep)) for step in steps):
        return False
    return sum(step.nest_work for step in steps) >= MIN_TASK_WORK or any(isinstance(step, CodeStep) for step in steps)


def fills_threads(trips: int, threads: int) -> bool:
    """Whether iterations of equal duration keep the threads busy."""
    return trips >= MIN_UTILIZATION * threads * -(-trips // threads)


@record(slots=True)
class _Subscript:
    """Start index of a slice: scale * ((counter / unit) % count) + offset.

    (counter / unit) % count is a digit of the loop counter in mixed radix. With unit 1 and unbounded count the
    subscript is affine in the counter.
    """

    scale: int
    offset: int = 0
    unit: int = 1
    count: int = 1 << 62


def _subscript(value: Resolved, body: Computation, counter: int) -> _Subscript | None:
    """Analyses a scalar as a function of the loop counter. Returns None if it has no such form."""
    instruction, op = value.instruction, value.instruction.op
    if carried_index(instruction, body) == counter:
        return _Subscript(1)
    constant = constant_integer(instruction)
    if constant is not None:
        return _Subscript(0, constant)
    if not _is_wide_enough(instruction):
        return None
    if isinstance(op, Convert):
        return _subscript(value.operand(0), body, counter)
    if not isinstance(op, (Add, Multiply, Divide, Remainder)):
        return None
    left, right = (_subscript(value.operand(k), body, counter) for k in (0, 1))
    return None if left is None or right is None else _combine(op, left, right)


def _is_wide_enough(instruction: Instruction) -> bool:
    """Whether a scalar and its operands are integers of at least 32 bits, which cannot overflow as indices."""
    shapes = (instruction.shape, *instruction.operand_shapes)
    return all(is_single_integer(shape) and shape.element_type.bits >= 32 for shape in shapes)


def _combine(op: Operation, left: _Subscript, right: _Subscript) -> _Subscript | None:
    """Applies an operation to two subscripts. Returns None if the result is not a subscript."""
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
    if not is_digit or value <= 0 or left.count != _Subscript(1).count:
        return None
    return replace(left, unit=left.unit * value) if isinstance(op, Divide) else replace(left, count=value)


def is_updated_by_slices(body: Computation, index: int, loop: CountedLoop) -> bool:
    """Whether each iteration only updates a slice of the array, disjoint from all other iterations'."""
    after = resolve(body.root.operands[index])
    if (
        not isinstance(after.instruction.op, DynamicUpdateSlice)
        or carried_index(after.operand(0).instruction, body) != index
    ):
        return False
    if not _is_read_once(body, index, after.instruction) or not _is_only_carried(body, index, after.instruction):
        return False
    sizes, part = after.instruction.shape.dimensions, after.instruction.operands[1].shape.dimensions
    starts = [_subscript(after.operand(2 + d), body, loop.index) for d in range(len(sizes))]
    subscripts = [
        start
        for start, size, extent in zip(starts, part, sizes, strict=True)
        if start is not None and _strong_siv_test(start, size, extent, loop)
    ]
    return _determine_counter(subscripts, loop)


def _strong_siv_test(start: _Subscript, size: int, extent: int, loop: CountedLoop) -> bool:
    """Strong SIV dependence test: slices at different values of the digit are disjoint and in bounds.

    Consecutive values must be at least `size` elements apart, and all slices must lie within `extent`.
    """
    first, last, step = loop.start, loop.start + loop.step * (loop.trips - 1), loop.step
    if start.unit > 1 or start.count <= _farthest(loop):
        if first < 0:
            return False
        first, last, step = 0, min(start.count - 1, last // start.unit), 1
    low, high = start.scale * first + start.offset, start.scale * last + start.offset
    return start.scale * step >= size and low >= 0 and high + size <= extent


def _determine_counter(subscripts: Sequence[_Subscript], loop: CountedLoop) -> bool:
    """Whether the digits together determine the counter, so that any two iterations differ in one of them."""
    unit = 1
    for digit in sorted(subscripts, key=lambda digit: (digit.unit, -digit.count)):
        if digit.unit == unit:
            unit *= digit.count
    return unit > _farthest(loop)


def _farthest(loop: CountedLoop) -> int:
    """The largest distance of the counter from 0."""
    return max(-loop.start, loop.start + loop.step * (loop.trips - 1))


def _is_read_once(body: Computation, index: int, update: Instruction) -> bool:
    """Whether the update is the only reader of the array, looking through fusions."""
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


def _is_only_carried(body: Computation, index: int, update: Instruction) -> bool:
    """Whether the next iteration is the only reader of the updated array."""
    carried = body.root.operands[index]
    owner = update.parent
    if owner is None or any(user is not owner.root or user.operands.count(update) != 1 for user in update.users):
        return False
    if isinstance(carried.op, GetTupleElement):
        (source,) = carried.operands
        same = [user for user in source.users if isinstance(user.op, GetTupleElement) and user.op == carried.op]
        if len(same) != 1:
            return False
    return [*carried.users] == [body.root] and body.root.operands.count(carried) == 1
