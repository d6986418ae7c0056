"""Execution of programs without Python: on one device, without calls of the host.

`ExecutableRecord` has what a call needs. The memory of results comes from the pool, that of small ones from the C
library; records of results come from the free list. A failed run produces no results, and its donated arguments are
lost.

Python runs the program if the free list is exhausted, an argument was deleted or has another layout, or a donated
argument is not owned by native code or excluded from donation in this call.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, boolean, u64
from hloom.backends.cpu.llvm.native.vocabulary import MONOTONIC, address_of, copy_memory, native, null, stack, to
from hloom.pjrt.native.async_dispatch import (
    MAX_QUEUED_LOOP_NANOSECONDS,
    MIN_QUEUED_NANOSECONDS,
    Program,
    enqueue,
    event_for,
    is_idle,
    last_task,
    now,
    release_memory,
    wait_for,
)
from hloom.pjrt.native.memory import (
    DONATED,
    PYTHON_FUNCTIONS,
    allocate,
    call_python,
    count_bytes,
    release,
    return_record,
    take_record,
)
from hloom.pjrt.native.structures import BufferRecord, ExecutableRecord, ExecuteCall, Record
from hloom.pjrt.records import HEADER_BYTES, offsets_of_record

DESCRIPTION_WORDS = 16
TEMPLATE_BYTES = offsets_of_record("Buffer").buffer_pointer - HEADER_BYTES
"""Bytes of a result's record that are copied from its description; the words after them are its own."""
PYTHON_EXECUTE = PYTHON_FUNCTIONS.index("LoadedExecutable_Execute")
NEVER_QUEUED, BRIEF, TIMED, LOOPS = range(4)
"""Values of `dispatch`: the program cannot be queued; is always short; is timed; is timed and has loops."""

assert TEMPLATE_BYTES <= 8 * (DESCRIPTION_WORDS - 1)


@native(name="PJRT_LoadedExecutable_Execute")
def execute(arguments: ExecuteCall) -> Address:
    """Runs an executable natively where possible, else through its Python handler."""
    executable = arguments.executable
    if executable.main != null and is_fast_call(arguments, executable) and run(arguments, executable):
        return null
    return call_python(PYTHON_EXECUTE, address_of(arguments))


@native(inline=True)
def is_fast_call(arguments: ExecuteCall, executable: ExecutableRecord) -> boolean:
    """Whether a call runs on the executable's own single device and excludes no argument from donation."""
    return (
        arguments.num_devices == 1
        and arguments.execute_device == null
        and arguments.num_args == executable.input_count
        and (address_of(executable.donated) == null or arguments.options.num_non_donatable_input_indices == 0)
    )


@native(inline=True)
def run(arguments: ExecuteCall, executable: ExecutableRecord) -> boolean:
    """Runs the program; returns false if the Python handler has to take over.

    Unless the run itself failed (`failed_call`), nothing has changed then.
    """
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


# Arguments


@native()
def mark_donated(donated: Array[u64], buffers: Array[BufferRecord], count: u64) -> boolean:
    """Marks donated arguments as deleted; returns false and marks none if one of them cannot be donated."""
    if address_of(donated) == null:
        return True
    for i in range(count):
        if donated[i] != 0:
            buffer = buffers[i]
            uses = buffer.is_deleted | buffer.references.load(MONOTONIC)
            if buffer.owned <= DONATED or uses != 0:
                unmark_donated(donated, buffers, i)
                return False
            buffer.is_deleted = 1
    return True


@native()
def unmark_donated(donated: Array[u64], buffers: Array[BufferRecord], count: u64) -> None:
    """Reverts `mark_donated` for the first `count` arguments."""
    if address_of(donated) != null:
        for i in range(count):
            if donated[i] != 0:
                buffers[i].is_deleted = 0


@native()
def release_donated(donated: Array[u64], buffers: Array[BufferRecord], count: u64) -> None:
    """Releases the memory of donated arguments that no result has taken over."""
    if address_of(donated) != null:
        for i in range(count):
            buffer = buffers[i]
            if donated[i] != 0 and buffer.owned != DONATED:
                release_memory(buffer)
                buffer.owned = DONATED


@native()
def fill_inputs(
    donated: Array[u64], buffers: Array[BufferRecord], layouts: Array[Address], inputs: Array[u64], count: u64
) -> boolean:
    """Writes the addresses of the arguments into the table.

    Returns false if one was deleted, other than by donation in this call, or has another layout than the program takes.
    """
    for i in range(count):
        buffer = buffers[i]
        if buffer.is_deleted != 0 and (address_of(donated) == null or donated[i] == 0):
            return False
        if buffer.layout_handle != layouts[i]:
            return False
        inputs[i] = buffer.buffer_pointer
    return True


# Results


@native()
def allocate_results(
    descriptions: Array[u64], table: Array[u64], results: Array[BufferRecord], buffers: Array[BufferRecord], count: u64
) -> boolean:
    """Fills the list of results with new records and the table with the addresses of their memory.

    Returns false and allocates nothing if records or memory are exhausted.
    """
    for i in range(count):
        memory = allocate_result(descriptions.at(i * DESCRIPTION_WORDS), results.at(i), buffers)
        if memory == null:
            discard_results(descriptions, results, i)
            return False
        table[i] = memory
    return True


@native(inline=True)
def allocate_result(description: Array[u64], result: Array[BufferRecord], buffers: Array[BufferRecord]) -> Address:
    """Makes the record of a result; returns the address of its memory, null if records or memory are exhausted."""
    address = take_record()
    if address == null:
        return null
    record = to(BufferRecord, address)
    copy_memory(address + HEADER_BYTES, address_of(description) + 8, TEMPLATE_BYTES)
    to(Record, address).is_immortal = 0
    record.references.store(0, MONOTONIC)
    donor = description[0]
    size = record.on_device_size_in_bytes
    memory = allocate(size) if donor == 0 else buffers[donor - 1].owned
    if memory == null:
        return_record(address)
        return null
    record.buffer_pointer = memory
    record.owned = memory
    result[0] = record
    return memory


@native()
def discard_results(descriptions: Array[u64], results: Array[BufferRecord], count: u64) -> None:
    """Frees the first `count` results of a run that does not take place or has failed."""
    for i in range(count):
        record = results[i]
        if descriptions[i * DESCRIPTION_WORDS] == 0:
            release(record.owned, record.on_device_size_in_bytes)
        return_record(address_of(record))


@native()
def commit_results(
    descriptions: Array[u64], results: Array[BufferRecord], buffers: Array[BufferRecord], count: u64, task: u64
) -> None:
    """Makes results final: ready after a task (0: at once), counted, and owners of the memory of donated arguments."""
    for i in range(count):
        results[i].ready_at = task
        donor = descriptions[i * DESCRIPTION_WORDS]
        if donor == 0:
            count_bytes(results[i], True)
        else:
            buffers[donor - 1].owned = DONATED
