"""Instruments steps with clocks for profiles: counts of runs, cycles and work.

Loops, branches and calls are not timed, but their inner steps are. A loop that runs on several threads, blocked or
parallel, is timed as a whole; the steps of a parallel loop are timed on each thread, too. Cycles are those of the
thread that runs the program, waiting included. Work is the sum of busy cycles over all threads; tasks that a step forks
are timed individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from hloom.backends.cpu.codegen.timer_functions import (
    COUNT,
    COUNT_ON_THREAD,
    RECORD,
    clock_function,
    count_function,
    count_on_thread_function,
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
from hloom.lir import I64, Builder, Function, constant
from hloom.system.records import record

ITERATION = "iteration"


@record(slots=True)
class TimedStep:
    """Row of the counters: name of the instruction, kind of step, and bytes that it reads and writes.

    The iterations of a loop have a row of kind `ITERATION`, which has events only. The cycles of a step inside a
    parallel loop, whose row is `loop`, are those of all threads.
    """

    name: str
    kind: str
    bytes: int
    loop: int | None = None


class StepTimer:
    """Emits the calls around each step, and the functions that they call."""

    def __init__(self) -> None:
        self.steps: list[TimedStep] = []
        self._loop: int | None = None
        """Row of the loop on several threads that is being emitted."""

    @contextmanager
    def time(self, b: Builder, step: Step) -> Iterator[None]:
        """Context manager around the code of a step: adds the elapsed cycles to the row of the step."""
        row, loop = self._row(replace(describe(step), loop=self._loop)), self._loop
        if isinstance(step, WhileStep):
            self._loop = row
        start = read_clock(b)
        yield
        self._loop = loop
        b.call_void(COUNT if loop is None else COUNT_ON_THREAD, constant(I64, row), start)

    @contextmanager
    def iteration(self, b: Builder, loop: WhileStep) -> Iterator[None]:
        """Context manager around the body of a serial loop: records an event for each iteration."""
        row, start = self._row(TimedStep(loop.name, ITERATION, 0)), read_clock(b)
        yield
        b.call_void(RECORD, constant(I64, row), start)

    def _row(self, step: TimedStep) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def functions(self) -> list[Function]:
        """Returns the functions that update the counters and read the clock."""
        rows = len(self.steps)
        counts = [count_function(rows), count_on_thread_function(rows)]
        return [*counts, record_function(), clock_function(), *fork_functions()]


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
