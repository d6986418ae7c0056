"""What all native code of the platform works on: words of records, records that are free or dead, memory of buffers.

Memory of results comes from the pool, small ones' from the C library. Where native code cannot answer, it asks Python.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.native.types import Address, Array, Atomic, Structure, boolean, field, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQ_REL,
    ACQUIRE,
    MONOTONIC,
    RELEASE,
    address_of,
    external,
    load,
    native,
    null,
    stack,
    static,
    store,
    to,
)
from hloom.backends.cpu.runtime.memory_pool import SMALLEST
from hloom.pjrt.c_api import functions
from hloom.pjrt.records import RECORD_WORDS, offsets_of_record, record_words

DONATED = 1
"""What the word `owned` of a buffer's record says where its memory was given away; 0 where it is Python's."""
PYTHON_FUNCTIONS = [function.name for function in functions().values() if function.implementation == "python"]
"""The functions whose native code asks Python, always or in some cases."""
SIZE_WORDS = RECORD_WORDS - 2 - len(record_words("Buffer"))
"""Arrays of fewer dimensions have room for their sizes in their buffer's record."""
BUFFER, DEVICE = offsets_of_record("Buffer"), offsets_of_record("Device")
IMMORTAL_WORD = 8
MIN_POOLED_BYTES = SMALLEST


class State(Structure):
    """What native code holds; Python fills in what comes after the lock."""

    retired: Atomic[u64]
    """The list of the records that the framework has destroyed."""
    free: u64
    free_count: u64
    lock: Atomic[i32]
    ready_event: u64
    take: Address
    give: Address
    """The memory pool's functions."""
    python: Array[u64] = field(inline=(u64, len(PYTHON_FUNCTIONS)))
    """The addresses of Python's answers."""
    upcalls: Atomic[u64]
    """How often Python was asked."""
    interrupted: u64
    """The error for answers that a signal ended."""
    unimplemented: Array[u64] = field(inline=(u64, len(functions())))
    layouts: Array[u64] = field(inline=(u64, SIZE_WORDS))
    """The handles of the row-major layouts by rank."""


Upcall = Callable[[Address, Address, u64], u64]
"""Of arguments, where the handle of an error goes, and a number, which it returns. What it returns where a signal's
handler raises before its first step, where it catches nothing, is anything else."""
Take = Callable[[u64], Address]
Give = Callable[[Address, u64], None]
STATE = static(State, "hloom_pjrt")

aligned_alloc = external("aligned_alloc", Address, u64, u64)
free = external("free", None, Address)


@native(inline=True)
def word(record: Address, offset: u64) -> u64:
    return load(u64, record + offset)


@native(inline=True)
def set_word(record: Address, offset: u64, value: u64) -> None:
    store(u64, record + offset, value)


@native(inline=True)
def call_python(index: u64, arguments: Address) -> Address:
    """Python's answer: an error, or none."""
    error = stack(1)
    error[0] = null
    upcalls = STATE.upcalls.add(1, MONOTONIC) + 1
    returned = to(Upcall, STATE.python[index])(arguments, address_of(error), upcalls)
    return error[0] if returned == upcalls else STATE.interrupted


# Records


@native(inline=True)
def lock_records() -> None:
    while STATE.lock.exchange(1, ACQUIRE) != 0:
        pass


@native(inline=True)
def unlock_records() -> None:
    STATE.lock.store(0, RELEASE)


@native(name="hloom_pjrt_return_record")
def return_record(record: Address) -> None:
    lock_records()
    set_word(record, 0, STATE.free)
    STATE.free = record
    STATE.free_count += 1
    unlock_records()


@native()
def take_record() -> Address:
    """A free record, or null."""
    lock_records()
    record = STATE.free
    if record != null:
        STATE.free = word(record, 0)
        STATE.free_count -= 1
    unlock_records()
    return record


@native(inline=True)
def is_immortal(record: Address) -> boolean:
    return word(record, IMMORTAL_WORD) != 0


@native(name="retire_record")
def retire(record: Address) -> None:
    """Puts a record on the list of the dead."""
    if record == null or is_immortal(record):
        return
    head = STATE.retired.load(ACQUIRE)
    while True:
        set_word(record, 0, head)
        found = STATE.retired.compare_exchange(head, record, ACQ_REL, ACQUIRE)
        if found == head:
            return
        head = found


@native(name="hloom_pjrt_take_retired")
def take_retired() -> Address:
    return STATE.retired.exchange(null, ACQ_REL)


# Memory


@native(name="hloom_pjrt_allocate")
def allocate(size: u64) -> Address:
    return to(Take, STATE.take)(size) if size >= MIN_POOLED_BYTES else aligned_alloc(64, (size + 64) & -64)


@native(name="hloom_pjrt_release")
def release(address: Address, size: u64) -> None:
    if size >= MIN_POOLED_BYTES:
        to(Give, STATE.give)(address, size)
    else:
        free(address)


@native(name="hloom_pjrt_count_bytes")
def count_bytes(record: Address, is_allocated: boolean) -> None:
    """Counts the memory of a buffer that native code owns, at its device."""
    size = word(record, BUFFER.on_device_size_in_bytes)
    counter = to(Counter, word(record, BUFFER.device) + DEVICE.native_bytes)
    counter.bytes.add(size if is_allocated else 0 - size, MONOTONIC)


class Counter(Structure):
    bytes: Atomic[u64]
