"""State that the native code of the plugin shares: words of records, free and retired records, memory of buffers.

Large buffers come from the memory pool, small ones from the C library. Calls that native code cannot handle go to
Python (`call_python`).

Once Python is finalised, it ends each other thread that asks for the GIL, by unwinding its stack. That aborts the
process if there are functions of C++ that must not throw, as in a framework that calls PJRT without the GIL: calls of
such threads do not return then (`pause_if_ending`).
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.native.threads import usleep
from hloom.backends.cpu.llvm.native.types import Address, Array, Atomic, Structure, boolean, field, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQ_REL,
    ACQUIRE,
    MONOTONIC,
    RELEASE,
    address_of,
    external,
    native,
    null,
    stack,
    static,
    to,
)
from hloom.backends.cpu.runtime.memory_pool import SMALLEST
from hloom.pjrt.c_api import functions
from hloom.pjrt.native.structures import BufferRecord, Record
from hloom.pjrt.records import RECORD_WORDS, record_words

DONATED = 1
"""Value of the word `owned` of a buffer whose memory was donated; 0 means that Python owns the memory."""
PYTHON_FUNCTIONS = [function.name for function in functions().values() if function.implementation == "python"]
"""Names of the functions with a Python handler, always called or as the slow path of native code."""
SIZE_WORDS = RECORD_WORDS - 2 - len(record_words("Buffer"))
"""Spare words at the end of a buffer's record, which hold the dimension sizes of arrays of a lower rank."""
MIN_POOLED_BYTES = SMALLEST
WAIT_MICROSECONDS, MAX_WAITS = 1000, 1000
"""Time between looks at the end of Python, and their number before it."""


class State(Structure):
    """Global state of the native code. Python initialises the fields that follow the lock."""

    retired: Atomic[u64]
    """Head of the retire list: records that the framework has destroyed."""
    free: u64
    """Head of the free list of records."""
    free_count: u64
    lock: Atomic[i32]
    """Spin lock of the free list."""
    ready_event: u64
    take: Address
    give: Address
    """Addresses of the allocation and release functions of the memory pool."""
    run_devices: Address
    device_threads: Address
    """Addresses of `hloom_run_devices` and of `DeviceThreads`, once a program of several devices is there."""
    python: Array[u64] = field(inline=(u64, len(PYTHON_FUNCTIONS)))
    """Addresses of the Python handlers, indexed as `PYTHON_FUNCTIONS`."""
    upcalls: Atomic[u64]
    returned_upcalls: Atomic[u64]
    """Number of calls into Python, and of those that have returned."""
    no_handler: u64
    """PJRT_Error of a call whose handler did not run: a signal interrupted it, or Python has ended."""
    thread_state: Address
    is_finalizing: Address
    """Addresses of functions of Python that need no GIL: the state of this thread, null if Python does not know it, and
    whether Python is being finalised.
    """
    ending: Address
    """The state of the thread that ends Python, else null."""
    paused: Atomic[u64]
    """Number of calls at whose end threads waited for the end of Python."""
    unimplemented: Array[u64] = field(inline=(u64, len(functions())))
    """PJRT_Errors of the functions that are not implemented."""
    layouts: Array[u64] = field(inline=(u64, SIZE_WORDS))
    """Handles of the row-major layouts, by rank."""


Upcall = Callable[[Address, Address, u64], u64]
"""A Python handler: takes the arguments, the address that receives the handle of an error, and a sequence number.

It returns the sequence number. Any other value means that a signal handler raised an exception before the handler's
first statement, outside its `try`.
"""
ThreadState = Callable[[], Address]
IsFinalizing = Callable[[], i32]
Take = Callable[[u64], Address]
Give = Callable[[Address, u64], None]
STATE = static(State, "hloom_pjrt")

aligned_alloc = external("aligned_alloc", Address, u64, u64)
free = external("free", None, Address)


@native(inline=True)
def call_python(index: u64, arguments: Address) -> Address:
    """Calls the Python handler with an index of `PYTHON_FUNCTIONS`; returns a PJRT_Error or null."""
    pause_if_ending()
    error = stack(1)
    error[0] = null
    upcalls = STATE.upcalls.add(1, MONOTONIC) + 1
    returned = to(Upcall, STATE.python[index])(arguments, address_of(error), upcalls)
    STATE.returned_upcalls.add(1, MONOTONIC)
    pause_if_ending()
    return error[0] if returned == upcalls else STATE.no_handler


# The end of Python


@native(inline=True)
def pause_if_ending() -> None:
    """Begins or ends a call for which the framework may have released the GIL."""
    if STATE.ending != null:
        pause()


@native()
def pause() -> None:
    """Waits on a thread of Python until the process ends, or as long as another thread may be waiting for it before
    Python is finalised.
    """
    state = to(ThreadState, STATE.thread_state)()
    if state == null or state == STATE.ending:
        return
    STATE.paused.add(1, MONOTONIC)
    waited: u64 = 0
    while to(IsFinalizing, STATE.is_finalizing)() == 0:
        if waited == MAX_WAITS:
            return
        usleep(WAIT_MICROSECONDS)
        waited += 1
    while True:
        usleep(WAIT_MICROSECONDS)


# Records


@native(inline=True)
def lock_records() -> None:
    """Spins until the free list is locked."""
    while STATE.lock.exchange(1, ACQUIRE) != 0:
        pass


@native(inline=True)
def unlock_records() -> None:
    """Unlocks the free list."""
    STATE.lock.store(0, RELEASE)


@native(name="hloom_pjrt_return_record")
def return_record(record: Address) -> None:
    """Pushes a record on the free list."""
    lock_records()
    to(Record, record).link = STATE.free
    STATE.free = record
    STATE.free_count += 1
    unlock_records()


@native()
def take_record() -> Address:
    """Pops a record from the free list; null if it is empty."""
    lock_records()
    record = STATE.free
    if record != null:
        STATE.free = to(Record, record).link
        STATE.free_count -= 1
    unlock_records()
    return record


@native(inline=True)
def is_immortal(record: Address) -> boolean:
    """Whether the record is never freed."""
    return to(Record, record).is_immortal != 0


@native(name="retire_record")
def retire(record: Address) -> None:
    """Pushes a record on the retire list, lock-free, unless it is null or immortal."""
    if record == null or is_immortal(record):
        return
    head = STATE.retired.load(ACQUIRE)
    while True:
        to(Record, record).link = head
        found = STATE.retired.compare_exchange(head, record, ACQ_REL, ACQUIRE)
        if found == head:
            return
        head = found


@native(name="hloom_pjrt_take_retired")
def take_retired() -> Address:
    """Empties the retire list and returns its head; word 0 of each record links to the next one."""
    return STATE.retired.exchange(null, ACQ_REL)


# Memory


@native(name="hloom_pjrt_allocate")
def allocate(size: u64) -> Address:
    """Allocates `size` bytes, aligned to 64; null without memory."""
    return to(Take, STATE.take)(size) if size >= MIN_POOLED_BYTES else aligned_alloc(64, (size + 64) & -64)


@native(name="hloom_pjrt_release")
def release(address: Address, size: u64) -> None:
    """Frees memory of `allocate`; `size` is that of the allocation."""
    if size >= MIN_POOLED_BYTES:
        to(Give, STATE.give)(address, size)
    else:
        free(address)


@native(name="hloom_pjrt_count_bytes")
def count_bytes(buffer: BufferRecord, is_allocated: boolean) -> None:
    """Adds the size of a buffer that native code owns to the byte count of its device, or subtracts it."""
    size = buffer.on_device_size_in_bytes
    buffer.device.native_bytes.add(size if is_allocated else 0 - size, MONOTONIC)
