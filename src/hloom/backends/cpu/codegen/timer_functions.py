"""Functions of timed programs: they count runs and cycles of steps, record events, and time forks.

An event is a row, a start and an end: of a step, of an iteration of a loop, or of a task, whose row is its thread.
"""

from __future__ import annotations

from hloom.backends.cpu.kernels.kernel_function import PARALLEL_FOR, task_function
from hloom.lir import (
    AARCH64_TIMER,
    I64,
    PTR,
    VOID,
    Attribute,
    Builder,
    Declaration,
    Function,
    FunctionBuilder,
    Global,
    Parameter,
    Value,
    Zeros,
    constant,
)
from hloom.system.machine import architecture

MAX_EVENTS = 1 << 16
"""Maximum number of events recorded in a run; later steps are only counted."""
COUNTER_WORDS = 3
"""Words of a step's counters: runs, cycles, busy cycles of all threads."""
COUNTERS, READ_CLOCK = "hloom_counters", "hloom_clock"
STEP_EVENTS, TASK_EVENTS = "hloom_step_events", "hloom_task_events"
"""Symbols that profiles read; lists of events start with their length."""
EVENT_WORDS = 3
COUNT, RECORD = "hloom_count", "hloom_record"
"""Symbols of the functions that count a run of a step, and that record an event alone."""
_THREAD = "llvm.thread.pointer"
"""Intrinsic that returns an address of the thread's own."""
TIMED_FORK = Declaration("hloom_timed_fork", VOID, PARALLEL_FOR.parameters)
"""The timed variant of `parallel_for`."""
FORK = Global("hloom_fork.address", Zeros(1), is_constant=False)
"""The address of the original."""
_FORKED = Global("hloom_forked", Zeros(1), is_constant=False)
_BUSY = Global("hloom_busy", Zeros(1), is_constant=False)
"""Cycles that forks of the current step have taken, and the busy cycles of their tasks on all threads."""


def read_clock(b: Builder) -> Value:
    """Emits a read of the clock, in cycles."""
    if architecture() == "aarch64":
        # Its llvm.readsteadycounter is 0, and llvm.readcyclecounter a register that programs may not read.
        return b.call("llvm.read_volatile_register.i64", I64, AARCH64_TIMER)
    return b.call("llvm.readcyclecounter", I64)


def clock_function() -> Function:
    """Returns the function that reads the clock for Python."""
    b = Builder(Function(READ_CLOCK, [], I64, is_exported=True))
    b.ret(read_clock(b))
    return b.function


def count_function(steps: int) -> Function:
    """Returns `void @hloom_count(i64 row, i64 start)`, which counts a run of a step and records an event."""
    rows = max(1, steps)
    counters = Global(COUNTERS, Zeros(rows * COUNTER_WORDS), is_constant=False, is_exported=True)
    row, start = Parameter("row", I64), Parameter("start", I64)
    attributes = frozenset({Attribute.NO_INLINE, Attribute.NO_UNWIND})
    b = FunctionBuilder(Function(COUNT, [row, start], attributes=attributes))
    now = read_clock(b)
    passed = b.binary("sub", now, start)
    forked, busy = b.address_of(_FORKED), b.address_of(_BUSY)
    alone = b.binary("sub", passed, b.load(forked, I64, 8))
    own = b.binary("add", alone, b.load(busy, I64, 8))
    for variable in (forked, busy):
        b.store(constant(I64, 0), variable, 8)
    counter = b.at(b.address_of(counters), b.multiply(row, COUNTER_WORDS), "i64")
    for word, increment in enumerate((constant(I64, 1), passed, own)):
        _increase(b, b.at(counter, word, "i64"), increment)
    _record_event(b, STEP_EVENTS, row, start, now)
    return b.finish()


def record_function() -> Function:
    """Returns `void @hloom_record(i64 row, i64 start)`, which records an event that ends now."""
    row, start = Parameter("row", I64), Parameter("start", I64)
    attributes = frozenset({Attribute.NO_INLINE, Attribute.NO_UNWIND})
    b = FunctionBuilder(Function(RECORD, [row, start], attributes=attributes))
    _record_event(b, STEP_EVENTS, row, start, read_clock(b))
    return b.finish()


def _increase(b: Builder, address: Value, increment: Value) -> None:
    b.store(b.binary("add", b.load(address, I64, 8), increment), address, 8)


def _record_event(b: FunctionBuilder, name: str, row: Value, start: Value, end: Value) -> None:
    """Appends an event to a list, to which other threads may append, unless it is full."""
    events = Global(name, Zeros(1 + MAX_EVENTS * EVENT_WORDS), is_constant=False, is_exported=True)
    count = b.address_of(events)
    event = b.atomic_update("add", count, constant(I64, 1))
    with b.when(b.compare("ult", event, constant(I64, MAX_EVENTS))):
        b.pack(row, start, end, context=b.at(count, b.add(b.multiply(event, EVENT_WORDS), 1), "i64"))


def fork_functions() -> list[Function]:
    """Returns the timed variant of `parallel_for`, and its task, which times the task that it captures."""
    names = ("pool", "function", "context", "chunks")
    parameters = [Parameter(name, type) for name, type in zip(names, TIMED_FORK.parameters, strict=True)]
    fork = FunctionBuilder(Function(TIMED_FORK.name, parameters))
    pool, function, context, chunks = parameters
    original = fork.load(fork.address_of(FORK), PTR, 8)
    start = read_clock(fork)
    task = task_function("hloom_timed_task")
    fork.run_chunks(task.function.name, fork.pack(function, context), fork.index(chunks), (pool, original))
    _increase(fork, fork.address_of(_FORKED), fork.binary("sub", read_clock(fork), start))

    inner, captured = task.unpack(task["context"], PTR, PTR)
    start = read_clock(task)
    task.call_pointer(inner, VOID, captured, task["chunk"])
    end = read_clock(task)
    task.atomic_update("add", task.address_of(_BUSY), task.binary("sub", end, start))
    _record_event(task, TASK_EVENTS, task.call(_THREAD, PTR), start, end)
    return [fork.finish(), task.finish()]
