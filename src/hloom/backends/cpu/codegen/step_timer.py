"""Instruments steps with clocks for profiles: counts of runs, cycles and work.

Loops, branches and calls are not timed, but their inner steps are. A loop that runs on several threads, blocked or
parallel, is timed as a whole. Cycles are those of the thread that runs the program, waiting included. Work is the sum
of busy cycles over all threads; tasks that a step forks are timed individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hloom.backends.cpu.codegen.timer_functions import (
    COUNT,
    clock_function,
    count_function,
    fork_functions,
    read_clock,
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


@dataclass(frozen=True, slots=True)
class TimedStep:
    """Row of the counters: name of the instruction, kind of step, and bytes that it reads and writes."""

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
        row = constant(I64, len(self.steps))
        self.steps.append(describe(step))
        b.call_void(COUNT, row, start)

    def functions(self) -> list[Function]:
        """Returns the functions that update the counters and read the clock."""
        return [count_function(len(self.steps)), clock_function(), *fork_functions()]


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
