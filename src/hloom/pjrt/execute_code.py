"""Running a program without Python: on one device, with nothing in it that needs the host.

Such an executable's record has the address of its program in `main`; `template` and `table_words` are the table of
pointers that the program takes (see `backends/cpu/runtime/dispatch.py`), with room for `inputs` and then `outputs`
addresses from word `first_input` on. `descriptions` has `DESCRIPTION_WORDS` words for each output: the number of the
argument whose memory it takes, plus one (0: memory of its own), and what its buffer's record starts as. `donated` has a
word for each argument, which is not 0 if the argument is given to the program; it is null if none is.

Memory of results comes from the pool, small ones' from the C library. The word `owned` of a buffer's record says whose
it is: 0 for Python's, which has a `Buffer` for it; `NOTHING` where it was given away; else its address, and the buffer
is native code's alone. Records for results are kept in a list of free ones.

A program that ends early gives no results; what it was given is gone. Then `stopped` is the address of the call's
arguments, by which Python, asked about it, knows that it has to tell why. What such a program wrote to is not used
again if `keeps` is not 0: other processes may still write there.

A program that always ends (`may_wait`) and takes long is put in a queue: see `async_dispatch.py`. `nanoseconds` is what
it took the last time.

Python is asked to run the program where that list runs short, an argument was deleted or is laid out otherwise than the
program takes it (`input_layouts`), or a donated one is not native code's alone or is not to be donated in this call.
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
    LONG,
    TOO_LONG,
    Program,
    begin,
    event_of,
    is_idle,
    last_task,
    nanoseconds,
    release_memory,
    wait_for,
)
from hloom.pjrt.c_api import ExecuteOptions
from hloom.pjrt.native_memory import (
    ASKING,
    BUFFER,
    IMMORTAL_WORD,
    NOTHING,
    allocate,
    ask,
    count_bytes,
    give_record,
    put,
    release,
    take_record,
    word,
)
from hloom.pjrt.records import offsets_of_arguments, offsets_of_record

DESCRIPTION_WORDS = 16
KEPT_BYTES = BUFFER.buffer_pointer - 16
"""What a result's record starts as ends where the words begin that are its own."""
EXECUTABLE, CALL = offsets_of_record("LoadedExecutable"), offsets_of_arguments("LoadedExecutable_Execute")
KEPT_ARGUMENTS = ExecuteOptions.num_non_donatable_input_indices.offset
ASK = ASKING.index("LoadedExecutable_Execute")
NEVER, BRIEF, TIMED, LOOPS = range(4)
"""What `may_wait` says: whether the program may be queued; whether it may take long; and whether it has loops."""

assert KEPT_BYTES <= 8 * (DESCRIPTION_WORDS - 1)


@native(name="PJRT_LoadedExecutable_Execute")
def execute(arguments: Address) -> Address:
    executable = word(arguments, CALL.executable)
    if word(executable, EXECUTABLE.main) != null and is_plain(arguments, executable) and run(arguments, executable):
        return null
    return ask(ASK, arguments)


@native(inline=True)
def is_plain(arguments: Address, executable: Address) -> boolean:
    """A call on one device, the executable's, that keeps no argument that would be donated."""
    return (
        word(arguments, CALL.num_devices) == 1
        and word(arguments, CALL.execute_device) == null
        and word(arguments, CALL.num_args) == word(executable, EXECUTABLE.inputs)
        and (word(executable, EXECUTABLE.donated) == null or word(word(arguments, CALL.options), KEPT_ARGUMENTS) == 0)
    )


@native(inline=True)
def run(arguments: Address, executable: Address) -> boolean:
    """Runs the program; false, with nothing changed, where Python has to."""
    given = elements(u64, word(executable, EXECUTABLE.donated))
    list = elements(u64, load(u64, word(arguments, CALL.argument_lists)))
    count = word(arguments, CALL.num_args)
    if not mark_donated(given, list, count):
        return False
    done = run_on(arguments, executable, given, list, count)
    if not done and word(executable, EXECUTABLE.stopped) != arguments:
        unmark_donated(given, list, count)
    return done


@native(inline=True)
def run_on(arguments: Address, executable: Address, given: Array[u64], list: Array[u64], count: u64) -> boolean:
    words = word(executable, EXECUTABLE.table_words)
    table = stack(words)
    copy_memory(address_of(table), word(executable, EXECUTABLE.template), words << 3)
    inputs = table.at(word(executable, EXECUTABLE.first_input))
    if not fill_inputs(given, list, elements(u64, word(executable, EXECUTABLE.input_layouts)), inputs, count):
        return False
    arena = word(executable, EXECUTABLE.arena_bytes)
    if arena != 0:
        table[0] = allocate(arena)
        if table[0] == null:
            return False
    descriptions = elements(u64, word(executable, EXECUTABLE.descriptions))
    results = elements(u64, load(u64, word(arguments, CALL.output_lists)))
    outputs = word(executable, EXECUTABLE.outputs)
    room = make_results(descriptions, inputs.at(count), results, list, outputs)
    done, keeps = room, False
    task: u64 = 0
    if room:
        if takes_long(executable):
            task = begin(word(executable, EXECUTABLE.main), table, words, arena)
        done = task != 0 or run_in_line(executable, table)
        keeps = not done and word(executable, EXECUTABLE.keeps) != 0
        if done:
            settle_results(descriptions, results, list, outputs, task)
            events = word(arguments, CALL.device_complete_events)
            if events != null:
                store(u64, events, event_of(task))
        else:
            put(executable, EXECUTABLE.stopped, arguments)
            if not keeps:
                unmake_results(descriptions, results, outputs)
        if not keeps:
            drop_donated(given, list, count)
    if arena != 0 and task == 0 and not keeps:
        release(table[0], arena)
    return done


@native(inline=True)
def takes_long(executable: Address) -> boolean:
    """Whether to queue the program: it took long the last time, or others are under way.

    Nobody can end what is queued; so programs with loops are not where they are not known to be done soon.
    """
    kind = word(executable, EXECUTABLE.may_wait)
    took = word(executable, EXECUTABLE.nanoseconds)
    if kind == LOOPS and (took == 0 or took >= TOO_LONG):
        return False
    return kind != NEVER and (not is_idle() or took >= LONG)


@native(inline=True)
def run_in_line(executable: Address, table: Array[u64]) -> boolean:
    wait_for(last_task())
    if word(executable, EXECUTABLE.may_wait) < TIMED:
        return to(Program, word(executable, EXECUTABLE.main))(address_of(table)) == 0
    started = nanoseconds()
    status = to(Program, word(executable, EXECUTABLE.main))(address_of(table))
    put(executable, EXECUTABLE.nanoseconds, nanoseconds() - started)
    return status == 0


# Arguments


@native()
def mark_donated(given: Array[u64], list: Array[u64], count: u64) -> boolean:
    """Marks donated arguments as deleted; false, with nothing marked, if one of them cannot be donated."""
    if address_of(given) == null:
        return True
    for i in range(count):
        if given[i] != 0:
            item = list[i]
            uses = word(item, BUFFER.is_deleted) | word(item, BUFFER.references)
            if word(item, BUFFER.owned) <= NOTHING or uses != 0:
                unmark_donated(given, list, i)
                return False
            put(item, BUFFER.is_deleted, 1)
    return True


@native()
def unmark_donated(given: Array[u64], list: Array[u64], count: u64) -> None:
    if address_of(given) != null:
        for i in range(count):
            if given[i] != 0:
                put(list[i], BUFFER.is_deleted, 0)


@native()
def drop_donated(given: Array[u64], list: Array[u64], count: u64) -> None:
    """After the program: what was donated and became no result is free."""
    if address_of(given) != null:
        for i in range(count):
            item = list[i]
            if given[i] != 0 and word(item, BUFFER.owned) != NOTHING:
                release_memory(item)
                put(item, BUFFER.owned, NOTHING)


@native()
def fill_inputs(given: Array[u64], list: Array[u64], layouts: Array[u64], inputs: Array[u64], count: u64) -> boolean:
    """Puts the addresses of arguments into the table.

    False if one was deleted, but for what this call was given, or is laid out otherwise than the program takes it.
    """
    for i in range(count):
        item = list[i]
        if word(item, BUFFER.is_deleted) != 0 and (address_of(given) == null or given[i] == 0):
            return False
        if word(item, BUFFER.layout) != layouts[i]:
            return False
        inputs[i] = word(item, BUFFER.buffer_pointer)
    return True


# Results


@native()
def make_results(
    descriptions: Array[u64], table: Array[u64], results: Array[u64], list: Array[u64], count: u64
) -> boolean:
    """Fills the list of results with new records and the table with the addresses of their memory.

    False, with nothing taken, where there are no records or there is no memory left.
    """
    for i in range(count):
        memory = make_result(descriptions.at(i * DESCRIPTION_WORDS), results.at(i), list)
        if memory == null:
            unmake_results(descriptions, results, i)
            return False
        table[i] = memory
    return True


@native(inline=True)
def make_result(description: Array[u64], result: Array[u64], list: Array[u64]) -> Address:
    record = take_record()
    if record == null:
        return null
    copy_memory(record + 16, address_of(description) + 8, KEPT_BYTES)
    put(record, IMMORTAL_WORD, 0)
    put(record, BUFFER.references, 0)
    donor = description[0]
    size = word(record, BUFFER.on_device_size_in_bytes)
    memory = allocate(size) if donor == 0 else word(list[donor - 1], BUFFER.owned)
    if memory == null:
        give_record(record)
        return null
    put(record, BUFFER.buffer_pointer, memory)
    put(record, BUFFER.owned, memory)
    result[0] = record
    return memory


@native()
def unmake_results(descriptions: Array[u64], results: Array[u64], count: u64) -> None:
    for i in range(count):
        record = results[i]
        if descriptions[i * DESCRIPTION_WORDS] == 0:
            release(word(record, BUFFER.owned), word(record, BUFFER.on_device_size_in_bytes))
        give_record(record)


@native()
def settle_results(descriptions: Array[u64], results: Array[u64], list: Array[u64], count: u64, task: u64) -> None:
    """The results are ready after a task: those that took an argument's memory have it for good, others are counted."""
    for i in range(count):
        put(results[i], BUFFER.ready_at, task)
        donor = descriptions[i * DESCRIPTION_WORDS]
        if donor == 0:
            count_bytes(results[i], True)
        else:
            put(list[donor - 1], BUFFER.owned, NOTHING)
