"""Functions of timed programs: they count runs and cycles of steps, record events, and time forks."""

from __future__ import annotations

from hloom.backends.cpu.kernels.kernel_function import PARALLEL_FOR, task_function
from hloom.backends.cpu.program.interface import CLOCK
from hloom.lir import (
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

MAX_EVENTS = 1 << 16
"""Maximum number of events recorded in a run; later steps are only counted."""
COUNTER_WORDS = 3
"""Words of a step's counters: runs, cycles, busy cycles of all threads."""
COUNTERS, EVENTS, EVENT_COUNT, READ_CLOCK = "hloom_counters", "hloom_events", "hloom_event_count", "hloom_clock"
"""Symbols that profiles read."""
COUNT = "hloom_count"
"""Symbol of the function that counts a run of a step."""
TIMED_FORK = Declaration("hloom_timed_fork", VOID, PARALLEL_FOR.parameters)
"""The timed variant of `parallel_for`."""
FORK = Global("hloom_fork.address", Zeros(1), is_constant=False)
"""The address of the original."""
_FORKED = Global("hloom_forked", Zeros(1), is_constant=False)
_BUSY = Global("hloom_busy", Zeros(1), is_constant=False)
"""Cycles that forks of the current step have taken, and the busy cycles of their tasks on all threads."""


def read_clock(b: Builder) -> Value:
    """Emits a read of the clock, in cycles."""
    return b.call(CLOCK, I64)


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
    _record_event(b, row, start, now)
    return b.finish()


def _increase(b: Builder, address: Value, increment: Value) -> None:
    b.store(b.binary("add", b.load(address, I64, 8), increment), address, 8)


def _record_event(b: FunctionBuilder, *words: Value) -> None:
    """Appends the words to the list of events, unless it is full."""
    events = Global(EVENTS, Zeros(MAX_EVENTS * len(words)), is_constant=False, is_exported=True)
    count = b.address_of(Global(EVENT_COUNT, Zeros(1), is_constant=False, is_exported=True))
    event = b.load(count, I64, 8)
    with b.when(b.compare("ult", event, constant(I64, MAX_EVENTS))):
        b.pack(*words, context=b.at(b.address_of(events), b.multiply(event, len(words)), "i64"))
        b.store(b.index(b.add(event, 1)), count, 8)


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
    passed = task.binary("sub", read_clock(task), start)
    task.atomic_update("add", task.address_of(_BUSY), passed)
    return [fork.finish(), task.finish()]
