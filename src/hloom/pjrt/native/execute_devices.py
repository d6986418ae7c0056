"""Execution of a program on several devices of this process without Python."""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.native.types import Address, Array, boolean, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, native, null, stack, to
from hloom.backends.cpu.runtime.device_threads import BUSY
from hloom.pjrt.native.async_dispatch import event_for, last_task, wait_for
from hloom.pjrt.native.call_buffers import (
    DESCRIPTION_WORDS,
    allocate_results,
    commit_results,
    discard_results,
    fill_inputs,
    mark_donated,
    release_donated,
    unmark_donated,
)
from hloom.pjrt.native.memory import STATE, allocate, release
from hloom.pjrt.native.structures import ExecutableRecord, ExecuteCall

RunDevices = Callable[[Address, Address, u64, u64, Address], i32]


@native()
def run_on_devices(arguments: ExecuteCall, executable: ExecutableRecord) -> boolean:
    """Runs the program on all devices; returns false if the Python handler has to take over.

    Unless the run itself failed (`failed_call`), nothing has changed then.
    """
    devices, words = executable.device_count, executable.table_words
    tables = stack(words * devices)
    copy_memory(address_of(tables), executable.template, words * devices << 3)
    prepared: u64 = 0
    while prepared < devices and prepare(arguments, executable, tables.at(prepared * words), prepared):
        prepared += 1
    status: i32 = BUSY
    if prepared == devices:
        wait_for(last_task())
        run_devices = to(RunDevices, STATE.run_devices)
        status = run_devices(executable.main, address_of(tables), words << 3, devices, executable.groups)
    for device in range(prepared):
        end(arguments, executable, tables.at(device * words), device, status)
    if status != 0 and status != BUSY:
        executable.failed_call = address_of(arguments)
    return status == 0


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
def end(arguments: ExecuteCall, executable: ExecutableRecord, table: Array[u64], device: u64, status: i32) -> None:
    """Makes the results of a device final, or discards them; releases what the run has needed."""
    donated, count, outputs = executable.donated, arguments.num_args, executable.output_count
    buffers, results = arguments.argument_lists[device], arguments.output_lists[device]
    descriptions = executable.descriptions.at(device * outputs * DESCRIPTION_WORDS)
    if status == 0:
        commit_results(descriptions, results, buffers, outputs, u64(0))
        events = arguments.device_complete_events
        if address_of(events) != null:
            events[device] = event_for(u64(0))
    else:
        discard_results(descriptions, results, outputs)
    if status == BUSY:
        unmark_donated(donated, buffers, count)
    else:
        release_donated(donated, buffers, count)
    if executable.arena_bytes != 0:
        release(table[0], executable.arena_bytes)
