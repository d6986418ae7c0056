"""Execution of programs without Python, if they do not need it.

`ExecutableRecord` has what a call needs. The memory of results comes from the pool, that of small ones from the C
library; records of results come from the free list. A failed run produces no results, and its donated arguments are
lost.

Python runs the program if the free list is exhausted, an argument was deleted or has another layout, or a donated
argument is not owned by native code or excluded from donation in this call.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, boolean, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, native, null, stack, to
from hloom.backends.cpu.runtime.device_threads import BUSY, DeviceThreads, Program
from hloom.pjrt.native.async_dispatch import (
    MAX_QUEUED_LOOP_NANOSECONDS,
    MIN_QUEUED_NANOSECONDS,
    enqueue,
    is_idle,
    last_task,
    now,
    run_program,
    wait_for,
)
from hloom.pjrt.native.call_buffers import end, prepare
from hloom.pjrt.native.memory import PYTHON_FUNCTIONS, STATE, call_python, pause_if_ending
from hloom.pjrt.native.structures import ExecutableRecord, ExecuteCall

PYTHON_EXECUTE = PYTHON_FUNCTIONS.index("LoadedExecutable_Execute")
NEVER_QUEUED, BRIEF, TIMED, LOOPS = range(4)
"""Values of `dispatch`: the program cannot be queued; is always short; is timed; is timed and has loops."""


@native(name="PJRT_LoadedExecutable_Execute")
def execute(arguments: ExecuteCall) -> Address:
    """Runs an executable natively where possible, else through its Python handler."""
    executable = arguments.executable
    if executable.main != null and is_fast_call(arguments, executable) and run(arguments, executable):
        pause_if_ending()
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
    devices, words = executable.device_count, executable.table_words
    tables = stack(words * devices)
    copy_memory(address_of(tables), executable.template, words * devices << 3)
    prepared: u64 = 0
    while prepared < devices and prepare(arguments, executable, tables.at(prepared * words), prepared):
        prepared += 1
    status: i32 = BUSY
    task: u64 = 0
    if prepared == devices:
        if should_queue(executable):
            task = enqueue(executable, tables)
        status = i32(0) if task != 0 else run_inline(executable, tables)
    failed = status != 0 and status != BUSY
    if failed:
        executable.failed_call = address_of(arguments)
    if not failed or executable.is_shared == 0:
        for device in range(prepared):
            end(arguments, executable, tables.at(device * words), device, status, task)
    return status == 0


@native(inline=True)
def should_queue(executable: ExecutableRecord) -> boolean:
    """Whether to queue the program: its last run was long, or other programs are in flight.

    A queued program cannot be interrupted, so one with loops must be known to end soon. The threads of devices are
    started by runs inline, which end if the system refuses them.
    """
    kind = executable.dispatch
    last = executable.last_nanoseconds
    if kind == LOOPS and (last == 0 or last >= MAX_QUEUED_LOOP_NANOSECONDS):
        return False
    if executable.groups != null and to(DeviceThreads, STATE.device_threads).count + 1 < executable.device_count:
        return False
    return kind != NEVER_QUEUED and (not is_idle() or last >= MIN_QUEUED_NANOSECONDS)


@native(inline=True)
def run_inline(executable: ExecutableRecord, tables: Array[u64]) -> i32:
    """Waits for the queue and runs the program. Returns its status, see `run_program`."""
    wait_for(last_task())
    is_timed = executable.dispatch >= TIMED
    started = now() if is_timed else u64(0)
    table_bytes, devices = executable.table_words << 3, executable.device_count
    status = run_program(to(Program, executable.main), address_of(tables), table_bytes, devices, executable.groups, 1)
    if is_timed and status == 0:
        executable.last_nanoseconds = now() - started
    return status
