"""Execution of programs without Python: on one device, without calls of the host.

The record of such an executable holds:

- `main`: the address of the program; null if Python has to run it;
- `template`, `table_words`: the table of pointers that the program takes (see `backends/cpu/runtime/dispatch.py`), with
  `input_count` and then `output_count` addresses from word `first_input` on;
- `descriptions`: `DESCRIPTION_WORDS` words for each output: one plus the index of the argument whose memory it takes
  (0: memory of its own), and the initial words of its buffer's record;
- `donated`: for each argument a word that is not 0 if the argument is donated; null if none is;
- `input_layouts`: the layouts of arguments for which the program was compiled;
- `arena_bytes`: the size of the temporary memory;
- `dispatch`, `last_nanoseconds`: whether and when the program may be queued (`async_dispatch.py`), and the duration of
  its last run;
- `failed_call`: the address of the arguments of a call that ended early, from which the Python handler sees that it has
  to raise the error;
- `is_shared`: whether other processes take part. They may still write to the memory of a failed run, so it is leaked.

The memory of results comes from the pool, that of small ones from the C library. The word `owned` of a buffer's record
is the address of memory that native code owns, 0 if a Python `Buffer` owns it, and `DONATED` if it was donated. Records
of results come from the free list. A failed run produces no results, and its donated arguments are lost.

Python runs the program if the free list is exhausted, an argument was deleted or has another layout, or a donated
argument is not owned by native code or excluded from donation in this call.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, boolean, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    address_of,
    copy_memory,
    elements,
    load,
    native,
    null,
    stack,
    store,
    to,
)
from hloom.pjrt.async_dispatch import (
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
from hloom.pjrt.c_api import ExecuteOptions
from hloom.pjrt.native_memory import (
    BUFFER,
    DONATED,
    IMMORTAL_WORD,
    PYTHON_FUNCTIONS,
    allocate,
    call_python,
    count_bytes,
    release,
    return_record,
    set_word,
    take_record,
    word,
)
from hloom.pjrt.records import offsets_of_arguments, offsets_of_record

DESCRIPTION_WORDS = 16
TEMPLATE_BYTES = BUFFER.buffer_pointer - 16
"""Bytes of a result's record that are copied from its description; the words after them are its own."""
EXECUTABLE, CALL = offsets_of_record("LoadedExecutable"), offsets_of_arguments("LoadedExecutable_Execute")
NON_DONATABLE_COUNT = ExecuteOptions.num_non_donatable_input_indices.offset
PYTHON_EXECUTE = PYTHON_FUNCTIONS.index("LoadedExecutable_Execute")
NEVER_QUEUED, BRIEF, TIMED, LOOPS = range(4)
"""Values of `dispatch`: the program cannot be queued; is always short; is timed; is timed and has loops."""

assert TEMPLATE_BYTES <= 8 * (DESCRIPTION_WORDS - 1)


@native(name="PJRT_LoadedExecutable_Execute")
def execute(arguments: Address) -> Address:
    """Runs an executable natively where possible, else through its Python handler."""
    executable = word(arguments, CALL.executable)
    if word(executable, EXECUTABLE.main) != null and is_fast_call(arguments, executable) and run(arguments, executable):
        return null
    return call_python(PYTHON_EXECUTE, arguments)


@native(inline=True)
def is_fast_call(arguments: Address, executable: Address) -> boolean:
    """Whether a call runs on the executable's own single device and excludes no argument from donation."""
    return (
        word(arguments, CALL.num_devices) == 1
        and word(arguments, CALL.execute_device) == null
        and word(arguments, CALL.num_args) == word(executable, EXECUTABLE.input_count)
        and (
            word(executable, EXECUTABLE.donated) == null
            or word(word(arguments, CALL.options), NON_DONATABLE_COUNT) == 0
        )
    )


@native(inline=True)
def run(arguments: Address, executable: Address) -> boolean:
    """Runs the program; returns false if the Python handler has to take over.

    Unless the run itself failed (`failed_call`), nothing has changed then.
    """
    donated = elements(u64, word(executable, EXECUTABLE.donated))
    buffers = elements(u64, load(u64, word(arguments, CALL.argument_lists)))
    count = word(arguments, CALL.num_args)
    if not mark_donated(donated, buffers, count):
        return False
    succeeded = run_with_table(arguments, executable, donated, buffers, count)
    if not succeeded and word(executable, EXECUTABLE.failed_call) != arguments:
        unmark_donated(donated, buffers, count)
    return succeeded


@native(inline=True)
def run_with_table(
    arguments: Address, executable: Address, donated: Array[u64], buffers: Array[u64], count: u64
) -> boolean:
    """Runs the program with a copy of its table on the stack; returns what `run` does."""
    words = word(executable, EXECUTABLE.table_words)
    table = stack(words)
    copy_memory(address_of(table), word(executable, EXECUTABLE.template), words << 3)
    inputs = table.at(word(executable, EXECUTABLE.first_input))
    if not fill_inputs(donated, buffers, elements(u64, word(executable, EXECUTABLE.input_layouts)), inputs, count):
        return False
    arena = word(executable, EXECUTABLE.arena_bytes)
    if arena != 0:
        table[0] = allocate(arena)
        if table[0] == null:
            return False
    descriptions = elements(u64, word(executable, EXECUTABLE.descriptions))
    results = elements(u64, load(u64, word(arguments, CALL.output_lists)))
    output_count = word(executable, EXECUTABLE.output_count)
    has_results = allocate_results(descriptions, inputs.at(count), results, buffers, output_count)
    succeeded, is_abandoned = has_results, False
    task: u64 = 0
    if has_results:
        if should_queue(executable):
            task = enqueue(word(executable, EXECUTABLE.main), table, words, arena)
        succeeded = task != 0 or run_inline(executable, table)
        is_abandoned = not succeeded and word(executable, EXECUTABLE.is_shared) != 0
        if succeeded:
            commit_results(descriptions, results, buffers, output_count, task)
            events = word(arguments, CALL.device_complete_events)
            if events != null:
                store(u64, events, event_for(task))
        else:
            set_word(executable, EXECUTABLE.failed_call, arguments)
            if not is_abandoned:
                discard_results(descriptions, results, output_count)
        if not is_abandoned:
            release_donated(donated, buffers, count)
    if arena != 0 and task == 0 and not is_abandoned:
        release(table[0], arena)
    return succeeded


@native(inline=True)
def should_queue(executable: Address) -> boolean:
    """Whether to queue the program: its last run was long, or other programs are in flight.

    A queued program cannot be interrupted, so one with loops must be known to end soon.
    """
    kind = word(executable, EXECUTABLE.dispatch)
    last = word(executable, EXECUTABLE.last_nanoseconds)
    if kind == LOOPS and (last == 0 or last >= MAX_QUEUED_LOOP_NANOSECONDS):
        return False
    return kind != NEVER_QUEUED and (not is_idle() or last >= MIN_QUEUED_NANOSECONDS)


@native(inline=True)
def run_inline(executable: Address, table: Array[u64]) -> boolean:
    """Waits for the queue and runs the program on the calling thread; false if it fails or is interrupted."""
    wait_for(last_task())
    if word(executable, EXECUTABLE.dispatch) < TIMED:
        return to(Program, word(executable, EXECUTABLE.main))(address_of(table)) == 0
    started = now()
    status = to(Program, word(executable, EXECUTABLE.main))(address_of(table))
    set_word(executable, EXECUTABLE.last_nanoseconds, now() - started)
    return status == 0


# Arguments


@native()
def mark_donated(donated: Array[u64], buffers: Array[u64], count: u64) -> boolean:
    """Marks donated arguments as deleted; returns false and marks none if one of them cannot be donated."""
    if address_of(donated) == null:
        return True
    for i in range(count):
        if donated[i] != 0:
            buffer = buffers[i]
            uses = word(buffer, BUFFER.is_deleted) | word(buffer, BUFFER.references)
            if word(buffer, BUFFER.owned) <= DONATED or uses != 0:
                unmark_donated(donated, buffers, i)
                return False
            set_word(buffer, BUFFER.is_deleted, 1)
    return True


@native()
def unmark_donated(donated: Array[u64], buffers: Array[u64], count: u64) -> None:
    """Reverts `mark_donated` for the first `count` arguments."""
    if address_of(donated) != null:
        for i in range(count):
            if donated[i] != 0:
                set_word(buffers[i], BUFFER.is_deleted, 0)


@native()
def release_donated(donated: Array[u64], buffers: Array[u64], count: u64) -> None:
    """Releases the memory of donated arguments that no result has taken over."""
    if address_of(donated) != null:
        for i in range(count):
            buffer = buffers[i]
            if donated[i] != 0 and word(buffer, BUFFER.owned) != DONATED:
                release_memory(buffer)
                set_word(buffer, BUFFER.owned, DONATED)


@native()
def fill_inputs(
    donated: Array[u64], buffers: Array[u64], layouts: Array[u64], inputs: Array[u64], count: u64
) -> boolean:
    """Writes the addresses of the arguments into the table.

    Returns false if one was deleted, other than by donation in this call, or has another layout than the program takes.
    """
    for i in range(count):
        buffer = buffers[i]
        if word(buffer, BUFFER.is_deleted) != 0 and (address_of(donated) == null or donated[i] == 0):
            return False
        if word(buffer, BUFFER.layout) != layouts[i]:
            return False
        inputs[i] = word(buffer, BUFFER.buffer_pointer)
    return True


# Results


@native()
def allocate_results(
    descriptions: Array[u64], table: Array[u64], results: Array[u64], buffers: Array[u64], count: u64
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
def allocate_result(description: Array[u64], result: Array[u64], buffers: Array[u64]) -> Address:
    """Makes the record of a result; returns the address of its memory, null if records or memory are exhausted."""
    record = take_record()
    if record == null:
        return null
    copy_memory(record + 16, address_of(description) + 8, TEMPLATE_BYTES)
    set_word(record, IMMORTAL_WORD, 0)
    set_word(record, BUFFER.references, 0)
    donor = description[0]
    size = word(record, BUFFER.on_device_size_in_bytes)
    memory = allocate(size) if donor == 0 else word(buffers[donor - 1], BUFFER.owned)
    if memory == null:
        return_record(record)
        return null
    set_word(record, BUFFER.buffer_pointer, memory)
    set_word(record, BUFFER.owned, memory)
    result[0] = record
    return memory


@native()
def discard_results(descriptions: Array[u64], results: Array[u64], count: u64) -> None:
    """Frees the first `count` results of a run that does not take place or has failed."""
    for i in range(count):
        record = results[i]
        if descriptions[i * DESCRIPTION_WORDS] == 0:
            release(word(record, BUFFER.owned), word(record, BUFFER.on_device_size_in_bytes))
        return_record(record)


@native()
def commit_results(descriptions: Array[u64], results: Array[u64], buffers: Array[u64], count: u64, task: u64) -> None:
    """Makes results final: ready after a task (0: at once), counted, and owners of the memory of donated arguments."""
    for i in range(count):
        set_word(results[i], BUFFER.ready_at, task)
        donor = descriptions[i * DESCRIPTION_WORDS]
        if donor == 0:
            count_bytes(results[i], True)
        else:
            set_word(buffers[donor - 1], BUFFER.owned, DONATED)
