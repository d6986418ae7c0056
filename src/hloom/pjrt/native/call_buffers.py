"""Arguments and results of an execution: donation, addresses in the program's table, records and memory of results."""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, boolean, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import MONOTONIC, address_of, copy_memory, native, null, to
from hloom.backends.cpu.runtime.device_threads import BUSY
from hloom.pjrt.native.async_dispatch import event_for, release_memory
from hloom.pjrt.native.memory import DONATED, allocate, count_bytes, release, return_record, take_record
from hloom.pjrt.native.structures import BufferRecord, ExecutableRecord, ExecuteCall, Record
from hloom.pjrt.records import HEADER_BYTES, offsets_of_record

DESCRIPTION_WORDS = 16
TEMPLATE_BYTES = offsets_of_record("Buffer").buffer_pointer - HEADER_BYTES
"""Bytes of a result's record that are copied from its description; the words after them are its own."""

assert TEMPLATE_BYTES <= 8 * (DESCRIPTION_WORDS - 1)


@native()
def prepare(arguments: ExecuteCall, executable: ExecutableRecord, table: Array[u64], device: u64) -> boolean:
    """Fills the table of a device; returns false, and changes nothing, if that is impossible without Python."""
    donated, count = executable.donated, arguments.num_args
    buffers = arguments.argument_lists[device]
    if not mark_donated(donated, buffers, count):
        return False
    inputs = table.at(executable.first_input)
    is_ready = fill_inputs(donated, buffers, executable.input_layouts, inputs, count)
    arena = executable.arena_bytes
    if is_ready and arena != 0:
        table[0] = allocate(arena)
        is_ready = table[0] != null
    if is_ready:
        outputs = executable.output_count
        descriptions = executable.descriptions.at(device * outputs * DESCRIPTION_WORDS)
        results = arguments.output_lists[device]
        is_ready = allocate_results(descriptions, inputs.at(count), results, buffers, outputs)
        if not is_ready and arena != 0:
            release(table[0], arena)
    if not is_ready:
        unmark_donated(donated, buffers, count)
    return is_ready


@native()
def end(
    arguments: ExecuteCall, executable: ExecutableRecord, table: Array[u64], device: u64, status: i32, task: u64
) -> None:
    """Makes the results of a device final (status 0), ready after a task, or discards them; releases what the run has
    needed, unless a task still does. Reverts `prepare` if the program has not run (`BUSY`).
    """
    donated, count, outputs = executable.donated, arguments.num_args, executable.output_count
    buffers, results = arguments.argument_lists[device], arguments.output_lists[device]
    descriptions = executable.descriptions.at(device * outputs * DESCRIPTION_WORDS)
    if status == 0:
        commit_results(descriptions, results, buffers, outputs, task)
        events = arguments.device_complete_events
        if address_of(events) != null:
            events[device] = event_for(task)
    else:
        discard_results(descriptions, results, outputs)
    if status == BUSY:
        unmark_donated(donated, buffers, count)
    else:
        release_donated(donated, buffers, count)
    if executable.arena_bytes != 0 and task == 0:
        release(table[0], executable.arena_bytes)


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
