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
COUNT, COUNT_ON_THREAD, RECORD = "hloom_count", "hloom_count_on_thread", "hloom_record"
"""Symbols of the functions that count a run of a step, or one on any thread, and that record an event alone."""
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
    b = _row_function(COUNT)
    row, start = b.function.parameters
    now = read_clock(b)
    passed = b.binary("sub", now, start)
    forked, busy = b.address_of(_FORKED), b.address_of(_BUSY)
    alone = b.binary("sub", passed, b.load(forked, I64, 8))
    own = b.binary("add", alone, b.load(busy, I64, 8))
    for variable in (forked, busy):
        b.store(constant(I64, 0), variable, 8)
    for counter, increment in zip(_counters(b, row, steps), (constant(I64, 1), passed, own), strict=True):
        _increase(b, counter, increment)
    _record_event(b, STEP_EVENTS, row, start, now)
    return b.finish()


def count_on_thread_function(steps: int) -> Function:
    """Returns `void @hloom_count_on_thread(i64 row, i64 start)`, which counts a run of a step that works on its thread
    alone, while other threads may count runs, too.
    """
    b = _row_function(COUNT_ON_THREAD)
    row, start = b.function.parameters
    passed = b.binary("sub", read_clock(b), start)
    for counter, increment in zip(_counters(b, row, steps), (constant(I64, 1), passed, passed), strict=True):
        b.atomic_update("add", counter, increment)
    return b.finish()


def _row_function(name: str) -> FunctionBuilder:
    """Begins a function that takes a row and the start of an event."""
    attributes = frozenset({Attribute.NO_INLINE, Attribute.NO_UNWIND})
    return FunctionBuilder(Function(name, [Parameter("row", I64), Parameter("start", I64)], attributes=attributes))


def _counters(b: FunctionBuilder, row: Value, steps: int) -> list[Value]:
    """Emits the addresses of the counters of a row, of which a program has `steps`."""
    counters = Global(COUNTERS, Zeros(max(1, steps) * COUNTER_WORDS), is_constant=False, is_exported=True)
    first = b.at(b.address_of(counters), b.multiply(row, COUNTER_WORDS), "i64")
    return [b.at(first, word, "i64") for word in range(COUNTER_WORDS)]


def record_function() -> Function:
    """Returns `void @hloom_record(i64 row, i64 start)`, which records an event that ends now."""
    b = _row_function(RECORD)
    row, start = b.function.parameters
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
