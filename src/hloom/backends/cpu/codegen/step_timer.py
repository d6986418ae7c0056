"""Instruments steps with clocks for profiles: counts of runs, cycles and work.

Loops, branches and calls are not timed, but their inner steps are. A loop that runs on several threads, blocked or
parallel, is timed as a whole. Cycles are those of the thread that runs the program, waiting included. Work is the sum
of busy cycles over all threads; tasks that a step forks are timed individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from hloom.backends.cpu.codegen.timer_functions import (
    COUNT,
    RECORD,
    clock_function,
    count_function,
    fork_functions,
    read_clock,
    record_function,
)
from hloom.backends.cpu.program.program import (
    Buffer,
    CodeStep,
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    WaitStep,
    WhileStep,
)
from hloom.lir import I64, Builder, Function, Value, constant
from hloom.system.records import record

ITERATION = "iteration"


@record(slots=True)
class TimedStep:
    """Row of the counters: name of the instruction, kind of step, and bytes that it reads and writes.

    The iterations of a loop have a row of kind `ITERATION`, which has events only.
    """

    name: str
    kind: str
    bytes: int


class StepTimer:
    """Emits the calls around each step, and the functions that they call."""

    def __init__(self) -> None:
        self.steps: list[TimedStep] = []

    @contextmanager
    def time(self, b: Builder, step: Step) -> Iterator[None]:
        """Context manager around the code of a step: adds the elapsed cycles to the row of the step."""
        start = read_clock(b)
        yield
        self._end(b, COUNT, start, describe(step))

    @contextmanager
    def iteration(self, b: Builder, loop: WhileStep) -> Iterator[None]:
        """Context manager around the body of a serial loop: records an event for each iteration."""
        start = read_clock(b)
        yield
        self._end(b, RECORD, start, TimedStep(loop.name, ITERATION, 0))

    def _end(self, b: Builder, function: str, start: Value, step: TimedStep) -> None:
        b.call_void(function, constant(I64, len(self.steps)), start)
        self.steps.append(step)

    def functions(self) -> list[Function]:
        """Returns the functions that update the counters and read the clock."""
        return [count_function(len(self.steps)), record_function(), clock_function(), *fork_functions()]


def is_timed(step: Step) -> bool:
    """Whether the step itself is timed. Loops are timed by their emitters if they run on several threads."""
    return isinstance(step, (KernelStep, CodeStep, CopyStep, HostStep, WaitStep))


def describe(step: Step) -> TimedStep:
    """Returns the counter row of a step."""
    match step:
        case KernelStep():
            return TimedStep(step.name, "nest", _bytes_of(b for b in step.buffers if b.kind != "constant"))
        case CodeStep():
            used = step.buffers[:-1] if step.code.scratch_bytes else step.buffers
            return TimedStep(step.name, step.code.entry.split(".")[0].rstrip("0123456789"), _bytes_of(used))
        case CopyStep():
            return TimedStep("copy", "copy", _bytes_of((step.source, step.target)))
        case HostStep():
            return TimedStep(step.instruction.name, "host", _bytes_of(step.buffers))
        case WaitStep():
            return TimedStep(step.start.instruction.name, "wait", 0)
        case WhileStep():
            return TimedStep(step.name, "loop", 0)
    raise AssertionError(f"{step} is not timed")


def _bytes_of(buffers: Iterable[Buffer]) -> int:
    return sum(buffer.byte_size for buffer in buffers)
