"""Polls of loops: code that lets the host stop a program that runs for long."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hloom.backends.cpu.codegen.step_function import StepFunction
from hloom.backends.cpu.codegen.timer_functions import read_clock
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import BEFORE_BLOCK, IN_BLOCK, IN_LOOP, POLL_CYCLES, loop_site
from hloom.backends.cpu.program.program import (
    CodeStep,
    ConditionalStep,
    CopyStep,
    KernelStep,
    Step,
    WhileStep,
)
from hloom.lir import I32, I64, CallAttribute, Value, constant

POLL_COST = 8192
"""Work in element additions after which a loop reads the clock, some microseconds."""


def emit_poll(function: StepFunction, loop_index: int, period: int, stopped: str | None) -> None:
    """Emits code that reads the clock every few microseconds and polls the host every few milliseconds.

    The clock is read after `period` iterations, a power of 2. If the host stops the program, the function returns 1, or
    branches to `stopped`.
    """
    b = function.builder
    counter, last = function.poll_memory()
    look, poll, stop, go = (b.label(hint) for hint in ("look", "poll", "stop", "go"))
    if period > 1:
        ticks = b.binary("add", b.load(counter, I32, 4), constant(I32, 1))
        b.store(ticks, counter, 4)
        due = b.compare("eq", b.binary("and", ticks, constant(I32, period - 1)), constant(I32, 0))
        b.branch_if(due, look, go)
    else:
        b.branch(look)
    b.start(look)
    now = read_clock(b)
    passed = b.binary("sub", now, b.load(last, I64, 8))
    b.branch_if(b.compare("ugt", passed, constant(I64, POLL_CYCLES)), poll, go)
    b.start(poll)
    b.store(now, last, 8)
    failed = call_poll(function, loop_site(loop_index), IN_LOOP if stopped is None else IN_BLOCK)
    b.branch_if(b.compare("ne", failed, constant(I32, 0)), stop, go)
    b.start(stop)
    if stopped is None:
        b.ret(constant(I32, 1))
    else:
        b.branch(stopped)
    b.start(go)


def call_poll(function: StepFunction, loop: int, point: int) -> Value:
    """Emits a call of the poll function for a loop; the result is not 0 if the program is to stop."""
    arguments = function.value("host_data"), constant(I64, loop), constant(I64, point)
    attribute = CallAttribute.COLD if point != BEFORE_BLOCK else None
    return function.builder.call_pointer(function.value("poll"), I32, *arguments, attribute=attribute)


def poll_period(step: WhileStep, assignment: Assignment, share: float) -> int:
    """Returns after how many iterations a loop reads the clock, a power of 2.

    In blocked loops an iteration does only the `share` of the work of the whole arrays.
    """
    cost = 8.0 + _work((*step.condition, *step.body), assignment)
    return 1 << max(0, (POLL_COST // max(8, int(cost * share))).bit_length() - 1)


def _work(steps: Iterable[Step], assignment: Assignment) -> float:
    """Returns an upper bound of the work of steps in element additions, beside that of inner loops, which poll."""

    def work(step: Step) -> float:
        match step:
            case KernelStep():
                return step.nest_work
            case CopyStep():
                return 0 if assignment.is_elided(step) else step.target.byte_size // 16
            case CodeStep():
                # No kernel does more than read all of its elements once for each of them.
                return float(sum(math.prod(buffer.dimensions) for buffer in step.buffers)) ** 2
            case ConditionalStep():
                return max(_work(branch, assignment) for branch in step.branches)
            case WhileStep():
                return 0
        return POLL_COST

    return sum(map(work, steps))
