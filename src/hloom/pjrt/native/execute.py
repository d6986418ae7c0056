"""Execution of programs without Python, if they do not need it.

`ExecutableRecord` has what a call needs. The memory of results comes from the pool, that of small ones from the C
library; records of results come from the free list. A failed run produces no results, and its donated arguments are
lost.

Python runs the program if the free list is exhausted, an argument was deleted or has another layout, or a donated
argument is not owned by native code or excluded from donation in this call.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, boolean, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, native, null, stack, to
from hloom.pjrt.native.async_dispatch import (
    MAX_QUEUED_LOOP_NANOSECONDS,
    MIN_QUEUED_NANOSECONDS,
    Program,
    enqueue,
    event_for,
    is_idle,
    last_task,
    now,
    wait_for,
)
from hloom.pjrt.native.call_buffers import (
    allocate_results,
    commit_results,
    discard_results,
    fill_inputs,
    mark_donated,
    release_donated,
    unmark_donated,
)
from hloom.pjrt.native.execute_devices import run_on_devices
from hloom.pjrt.native.memory import PYTHON_FUNCTIONS, allocate, call_python, release
from hloom.pjrt.native.structures import BufferRecord, ExecutableRecord, ExecuteCall

PYTHON_EXECUTE = PYTHON_FUNCTIONS.index("LoadedExecutable_Execute")
NEVER_QUEUED, BRIEF, TIMED, LOOPS = range(4)
"""Values of `dispatch`: the program cannot be queued; is always short; is timed; is timed and has loops."""


@native(name="PJRT_LoadedExecutable_Execute")
def execute(arguments: ExecuteCall) -> Address:
    """Runs an executable natively where possible, else through its Python handler."""
    executable = arguments.executable
    if executable.main != null and is_fast_call(arguments, executable) and run(arguments, executable):
        return null
    return call_python(PYTHON_EXECUTE, address_of(arguments))


@native(inline=True)
def is_fast_call(arguments: ExecuteCall, executable: ExecutableRecord) -> boolean:
    """Whether a call runs on the executable's own devices and excludes no argument from donation."""
    return (
        arguments.num_devices == executable.device_count
        and arguments.execute_device == null
        and arguments.num_args == executable.input_count
        and (address_of(executable.donated) == null or arguments.options.num_non_donatable_input_indices == 0)
    )


@native(inline=True)
def run(arguments: ExecuteCall, executable: ExecutableRecord) -> boolean:
    """Runs the program; returns false if the Python handler has to take over.

    Unless the run itself failed (`failed_call`), nothing has changed then.
    """
    if executable.device_count != 1:
        return run_on_devices(arguments, executable)
    donated = executable.donated
    buffers = arguments.argument_lists[0]
    count = arguments.num_args
    if not mark_donated(donated, buffers, count):
        return False
    succeeded = run_with_table(arguments, executable, donated, buffers, count)
    if not succeeded and executable.failed_call != address_of(arguments):
        unmark_donated(donated, buffers, count)
    return succeeded


@native(inline=True)
def run_with_table(
    arguments: ExecuteCall, executable: ExecutableRecord, donated: Array[u64], buffers: Array[BufferRecord], count: u64
) -> boolean:
    """Runs the program with a copy of its table on the stack; returns what `run` does."""
    words = executable.table_words
    table = stack(words)
    copy_memory(address_of(table), executable.template, words << 3)
    inputs = table.at(executable.first_input)
    if not fill_inputs(donated, buffers, executable.input_layouts, inputs, count):
        return False
    arena = executable.arena_bytes
    if arena != 0:
        table[0] = allocate(arena)
        if table[0] == null:
            return False
    descriptions = executable.descriptions
    results = arguments.output_lists[0]
    output_count = executable.output_count
    has_results = allocate_results(descriptions, inputs.at(count), results, buffers, output_count)
    succeeded, is_abandoned = has_results, False
    task: u64 = 0
    if has_results:
        if should_queue(executable):
            task = enqueue(executable.main, table, words, arena)
        succeeded = task != 0 or run_inline(executable, table)
        is_abandoned = not succeeded and executable.is_shared != 0
        if succeeded:
            commit_results(descriptions, results, buffers, output_count, task)
            events = arguments.device_complete_events
            if address_of(events) != null:
                events[0] = event_for(task)
        else:
            executable.failed_call = address_of(arguments)
            if not is_abandoned:
                discard_results(descriptions, results, output_count)
        if not is_abandoned:
            release_donated(donated, buffers, count)
    if arena != 0 and task == 0 and not is_abandoned:
        release(table[0], arena)
    return succeeded


@native(inline=True)
def should_queue(executable: ExecutableRecord) -> boolean:
    """Whether to queue the program: its last run was long, or other programs are in flight.

    A queued program cannot be interrupted, so one with loops must be known to end soon.
    """
    kind = executable.dispatch
    last = executable.last_nanoseconds
    if kind == LOOPS and (last == 0 or last >= MAX_QUEUED_LOOP_NANOSECONDS):
        return False
    return kind != NEVER_QUEUED and (not is_idle() or last >= MIN_QUEUED_NANOSECONDS)


@native(inline=True)
def run_inline(executable: ExecutableRecord, table: Array[u64]) -> boolean:
    """Waits for the queue and runs the program on the calling thread; false if it fails or is interrupted."""
    wait_for(last_task())
    if executable.dispatch < TIMED:
        return to(Program, executable.main)(address_of(table)) == 0
    started = now()
    status = to(Program, executable.main)(address_of(table))
    executable.last_nanoseconds = now() - started
    return status == 0
