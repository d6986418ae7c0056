"""Runs a program on several devices of this process: one on the calling thread, the others on threads of their own.

A thread waits for runs as long as the process lives: it polls for a while, and then sleeps. It does not use Python and
does not delay the exit of the interpreter.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from hloom.backends.cpu.llvm.machine_code import MachineCode
from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.threads import pthread_create
from hloom.backends.cpu.llvm.native.types import Address, Array, Atomic, Structure, boolean, field, i32, u8, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQUIRE,
    MONOTONIC,
    RELEASE,
    address_of,
    native,
    null,
    stack,
    static,
    to,
)
from hloom.backends.cpu.runtime.event_count import EventCount, advance, await_next, reset
from hloom.backends.cpu.runtime.interrupts import INTERRUPTED, Host
from hloom.backends.cpu.runtime.local_exchange import Groups, await_polling, reset_groups, stop_groups
from hloom.system.forks import at_fork

MAX_DEVICES = 64
"""Largest number of devices that run natively."""
BUSY = -1
"""Status if nothing has run, because another run has the threads, or they cannot be started."""
Program = Callable[[Address], i32]


class DeviceThread(Structure):
    """A thread and its last run."""

    requests: Array[u8] = field(line=True, inline=(u8, EventCount.byte_size))
    """`EventCount` of its runs."""
    main: Program
    table: Address
    groups: Groups
    status: i32
    completions: Array[u8] = field(line=True, inline=(u8, EventCount.byte_size))
    """`EventCount` of its runs that have ended."""


class DeviceThreads(Structure):
    """The threads of this process, of which one run at a time has all."""

    busy: Atomic[i32]
    count: u64
    threads: Array[u8] = field(line=True, inline=(u8, MAX_DEVICES * DeviceThread.byte_size))


THREADS = static(DeviceThreads, "hloom_device_threads")


@native(name="hloom_run_devices")
def run_devices(main: Program, tables: Address, table_bytes: u64, devices: u64, groups: Groups, polls: u64) -> i32:
    """Runs a program on `devices` devices, whose tables lie one after another. Waits of this thread poll the host or
    not.

    Returns 0, the status of a program that ended early, or `BUSY`.
    """
    if THREADS.busy.exchange(1, ACQUIRE) != 0:
        return BUSY
    status: i32 = BUSY
    if start_threads(devices - 1):
        groups.polls = polls
        status = run_on_threads(main, tables, table_bytes, devices, groups)
    THREADS.busy.store(0, RELEASE)
    return status


@native()
def run_on_threads(main: Program, tables: Address, table_bytes: u64, devices: u64, groups: Groups) -> i32:
    """Runs a program on the threads of devices 1, 2, .., and on this one, and waits for all."""
    if groups.are_empty == 0:
        reset_groups(groups)
    groups.are_empty = 0
    for device in range(1, devices):
        begin_run(thread_of(device), main, tables + device * table_bytes, groups)
    status = main(tables)
    if status != 0:
        stop_groups(groups)
    for device in range(1, devices):
        own = await_completion(thread_of(device), groups)
        if own != 0:
            status = own
    if status == 0:
        groups.are_empty = 1
    return status


@native(inline=True)
def thread_of(device: u64) -> DeviceThread:
    """The thread of a device, which is not the first."""
    return to(DeviceThread, address_of(THREADS.threads) + device * DeviceThread.byte_size)


@native(inline=True)
def requests_of(thread: DeviceThread) -> EventCount:
    """The event count of a thread."""
    return to(EventCount, address_of(thread.requests))


@native(inline=True)
def completions_of(thread: DeviceThread) -> EventCount:
    """The event count of a thread's runs that have ended."""
    return to(EventCount, address_of(thread.completions))


@native()
def start_threads(count: u64) -> boolean:
    """Starts the threads of the first `count` devices after the first one; false if the system refuses."""
    handle = stack(1)
    while THREADS.count < count:
        thread = thread_of(THREADS.count + 1)
        reset(requests_of(thread))
        reset(completions_of(thread))
        if pthread_create(address_of(handle), null, address_of(device_thread), address_of(thread)) != 0:
            return False
        THREADS.count += 1
    return True


@native()
def begin_run(thread: DeviceThread, main: Program, table: Address, groups: Groups) -> None:
    """Makes a thread run a program."""
    thread.main = main
    thread.table = table
    thread.groups = groups
    advance(requests_of(thread))


@native()
def await_completion(thread: DeviceThread, groups: Groups) -> i32:
    """Waits until a thread has completed its runs, and returns the status of the last one. The host may stop it."""
    status: i32 = 0
    before = requests_of(thread).count.load(MONOTONIC) - 1
    if not await_polling(completions_of(thread), before, groups, to(Host, groups.host)):
        stop_groups(groups)
        status = INTERRUPTED
        await_next(completions_of(thread), before)
    return status if status != 0 else thread.status


@native()
def device_thread(thread: DeviceThread) -> Address:
    """Main function of a thread."""
    runs: u64 = 0
    while True:
        await_next(requests_of(thread), runs)
        runs += 1
        main = thread.main
        thread.status = main(thread.table)
        if thread.status != 0:
            stop_groups(thread.groups)
        advance(completions_of(thread))


@native(name="hloom_reset_device_threads")
def reset_threads() -> None:
    """Forgets the threads: a forked child inherits none."""
    THREADS.count = 0
    THREADS.busy.store(0, RELEASE)


@functools.cache
def _code() -> MachineCode:
    code = native_code(run_devices, reset_threads)
    at_fork(after_in_child=ctypes.PYFUNCTYPE(None)(code.address("hloom_reset_device_threads")))
    return code


def run_devices_address() -> int:
    """Returns the address of `hloom_run_devices`."""
    return _code().address("hloom_run_devices")


def device_threads_address() -> int:
    """Returns the address of the `DeviceThreads` of this process."""
    return _code().data_address("hloom_device_threads")
