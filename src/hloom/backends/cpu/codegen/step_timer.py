"""Instruments steps with clocks for profiles: counts of runs, cycles and work.

Loops, branches and calls are not timed, but their inner steps are. A loop that runs on several threads, blocked or
parallel, is timed as a whole. Cycles are those of the thread that runs the program, waiting included. Work is the sum
of busy cycles over all threads; tasks that a step forks are timed individually.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hloom.backends.cpu.llvm.text import I64, Builder, constant
from hloom.backends.cpu.program.interface import CLOCK
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

MAX_EVENTS = 1 << 16
"""Maximum number of events recorded in a run; later steps are only counted."""
COUNTER_WORDS = 3
"""Words of a step's counters: runs, cycles, busy cycles of all threads."""
TIMED_FORK, FORK = "@hloom_timed_fork", "@hloom_fork.address"
"""Symbols of the timed variant of `parallel_for` and of the pointer to the original."""
COUNTERS, EVENTS, EVENT_COUNT, READ_CLOCK = "hloom_counters", "hloom_events", "hloom_event_count", "hloom_clock"


_FORKS = f"""{FORK} = internal global ptr null
@hloom_forked = internal global i64 0
@hloom_busy = internal global i64 0
define internal void {TIMED_FORK}(ptr %pool, ptr %function, ptr %context, i64 %chunks) {{
  %both = alloca [2 x ptr], align 8
  %context.at = getelementptr ptr, ptr %both, i64 1
  store ptr %function, ptr %both
  store ptr %context, ptr %context.at
  %fork = load ptr, ptr {FORK}
  %start = call i64 @{CLOCK}()
  call void %fork(ptr %pool, ptr @hloom_timed_task, ptr %both, i64 %chunks)
  %end = call i64 @{CLOCK}()
  %passed = sub i64 %end, %start
  %before = load i64, ptr @hloom_forked
  %after = add i64 %before, %passed
  store i64 %after, ptr @hloom_forked
  ret void
}}
define internal void @hloom_timed_task(ptr %both, i64 %chunk) {{
  %context.at = getelementptr ptr, ptr %both, i64 1
  %function = load ptr, ptr %both
  %context = load ptr, ptr %context.at
  %start = call i64 @{CLOCK}()
  call void %function(ptr %context, i64 %chunk)
  %end = call i64 @{CLOCK}()
  %passed = sub i64 %end, %start
  %before = atomicrmw add ptr @hloom_busy, i64 %passed monotonic
  ret void
}}"""


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
        b.declarations[f"declare i64 @{CLOCK}()"] = None
        start = b.emit(f"call i64 @{CLOCK}()", I64)
        yield
        row = constant(I64, len(self.steps))
        self.steps.append(describe(step))
        b.line(f"call void @hloom_count({row}, {start})")

    def text(self) -> str:
        """Returns the definitions of the counters and of the functions that update them."""
        rows = max(1, len(self.steps))
        return f"""@{COUNTERS} = global [{rows} x [{COUNTER_WORDS} x i64]] zeroinitializer
@{EVENTS} = global [{MAX_EVENTS} x [3 x i64]] zeroinitializer
@{EVENT_COUNT} = global i64 0
define i64 @{READ_CLOCK}() {{
  %now = call i64 @{CLOCK}()
  ret i64 %now
}}
define internal void @hloom_count(i64 %row, i64 %start) noinline {{
  %now = call i64 @{CLOCK}()
  %runs.at = getelementptr [{COUNTER_WORDS} x i64], ptr @{COUNTERS}, i64 %row, i64 0
  %cycles.at = getelementptr i64, ptr %runs.at, i64 1
  %worked.at = getelementptr i64, ptr %runs.at, i64 2
  %runs = load i64, ptr %runs.at
  %cycles = load i64, ptr %cycles.at
  %more = add i64 %runs, 1
  %passed = sub i64 %now, %start
  %sum = add i64 %cycles, %passed
  store i64 %more, ptr %runs.at
  store i64 %sum, ptr %cycles.at
  %worked = load i64, ptr %worked.at
  %forked = load i64, ptr @hloom_forked
  %busy = load i64, ptr @hloom_busy
  store i64 0, ptr @hloom_forked
  store i64 0, ptr @hloom_busy
  %alone = sub i64 %passed, %forked
  %own = add i64 %alone, %busy
  %worked.sum = add i64 %worked, %own
  store i64 %worked.sum, ptr %worked.at
  %event = load i64, ptr @{EVENT_COUNT}
  %fits = icmp ult i64 %event, {MAX_EVENTS}
  br i1 %fits, label %keep, label %done
keep:
  %event.at = getelementptr [3 x i64], ptr @{EVENTS}, i64 %event
  %start.at = getelementptr [3 x i64], ptr @{EVENTS}, i64 %event, i64 1
  %end.at = getelementptr [3 x i64], ptr @{EVENTS}, i64 %event, i64 2
  store i64 %row, ptr %event.at
  store i64 %start, ptr %start.at
  store i64 %now, ptr %end.at
  %next = add i64 %event, 1
  store i64 %next, ptr @{EVENT_COUNT}
  br label %done
done:
  ret void
}}
{_FORKS}"""


def with_timed_fork(loads: list[str]) -> list[str]:
    """Rewrites a function's prologue so that `parallel_for` is the timed variant."""
    lines = [line.replace("%parallel_for =", "%parallel_for.plain =") for line in loads]
    timed = f"  %parallel_for = getelementptr i8, ptr {TIMED_FORK}, i64 0"
    return [*lines, f"  store ptr %parallel_for.plain, ptr {FORK}, align 8", timed]


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
