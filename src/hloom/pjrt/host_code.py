"""Native transfers between the host and buffers: copies of dense host arrays, and external references to buffers.

`BufferFromHostBuffer` copies a dense array into memory that native code owns. The dimension sizes, which the framework
may query later, are stored at the end of the buffer's record. Python handles arrays with other strides or a layout, and
large ones that may be shared instead of copied.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, Atomic, Structure, i32, u32, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    MONOTONIC,
    Table,
    address_of,
    copy_memory,
    elements,
    load,
    native,
    null,
    to,
)
from hloom.pjrt.async_dispatch import is_done
from hloom.pjrt.c_api import BUFFER_TYPES
from hloom.pjrt.native_memory import (
    BUFFER,
    IMMORTAL_WORD,
    PYTHON_FUNCTIONS,
    SIZE_WORDS,
    STATE,
    allocate,
    call_python,
    count_bytes,
    return_record,
    set_word,
    take_record,
    word,
)
from hloom.pjrt.records import offsets_of_arguments, offsets_of_record, record_words
from hloom.types import BY_NAME

MIN_SHARED_BYTES = 64 << 10
"""Smallest host array in bytes that is shared: copying costs less than signalling the end of its use."""
ZERO_COPY = 2
"""PJRT_HostBufferSemantics_kImmutableZeroCopy: host memory does not change while the buffer lives."""
SLOW_PATH = (1 << 64) - 1
"""Size of an array that the Python handler has to transfer."""
SIZES_OFFSET = 16 + 8 * len(record_words("Buffer"))
CALL = offsets_of_arguments("Client_BufferFromHostBuffer")
REFERENCES_CALL = offsets_of_arguments("Buffer_IncreaseExternalReferenceCount")
DEVICE, MEMORY = offsets_of_record("Device"), offsets_of_record("Memory")
TYPE_SIZES = Table(
    "type_sizes",
    (BY_NAME[name].byte_width if name in BY_NAME and BY_NAME[name].is_array else 0 for name in BUFFER_TYPES),
)
DESCENDING = Table("minor_to_major", reversed(range(SIZE_WORDS)))
PYTHON_FROM_HOST = PYTHON_FUNCTIONS.index("Client_BufferFromHostBuffer")
PYTHON_INCREASE = PYTHON_FUNCTIONS.index("Buffer_IncreaseExternalReferenceCount")


@native(name="PJRT_Client_BufferFromHostBuffer")
def from_host(arguments: Address) -> Address:
    """Makes a buffer of a host array."""
    size = copied_size(arguments)
    record = take_record() if size != SLOW_PATH else u64(null)
    if record == null:
        return call_python(PYTHON_FROM_HOST, arguments)
    memory = allocate(size)
    if memory == null:
        return_record(record)
        return call_python(PYTHON_FROM_HOST, arguments)
    copy_memory(memory, word(arguments, CALL.data), size)
    fill_record(record, arguments, memory, size)
    count_bytes(record, True)
    set_word(arguments, CALL.buffer, record)
    set_word(arguments, CALL.done_with_host_buffer, STATE.ready_event)
    return null


@native(inline=True)
def copied_size(arguments: Address) -> u64:
    """Size in bytes of an array that is copied here, else `SLOW_PATH`."""
    rank, type = word(arguments, CALL.num_dims), u64(load(u32, arguments + CALL.type))
    if word(arguments, CALL.device_layout) != null or rank >= SIZE_WORDS or type >= len(TYPE_SIZES.values):
        return SLOW_PATH
    element_bytes = TYPE_SIZES[type]
    strides = word(arguments, CALL.byte_strides) if word(arguments, CALL.num_byte_strides) != 0 else u64(null)
    size = dense_size(elements(u64, word(arguments, CALL.dims)), rank, elements(u64, strides), element_bytes)
    may_be_shared = load(i32, arguments + CALL.host_buffer_semantics) == ZERO_COPY
    if element_bytes == 0 or (may_be_shared and size >= MIN_SHARED_BYTES):
        return SLOW_PATH
    return size


@native()
def dense_size(sizes: Array[u64], rank: u64, strides: Array[u64], element_bytes: u64) -> u64:
    """Size in bytes of a dense row-major array; `SLOW_PATH` for other strides."""
    size, d = element_bytes, rank
    while d != 0:
        d -= 1
        if address_of(strides) != null and strides[d] != size and sizes[d] != 1:
            return SLOW_PATH
        size *= sizes[d]
    return size


@native(inline=True)
def fill_record(record: Address, arguments: Address, memory: Address, size: u64) -> None:
    """Fills the record of a row-major buffer."""
    rank = word(arguments, CALL.num_dims)
    device_memory = word(arguments, CALL.memory)
    if device_memory == null:
        device_memory = word(word(arguments, CALL.device), DEVICE.memory)
    copy_memory(record + SIZES_OFFSET, word(arguments, CALL.dims), rank << 3)
    set_word(record, IMMORTAL_WORD, 0)
    set_word(record, BUFFER.type, u64(load(u32, arguments + CALL.type)))
    set_word(record, BUFFER.dims, record + SIZES_OFFSET)
    set_word(record, BUFFER.num_dims, rank)
    set_word(record, BUFFER.num_dynamic_dims, 0)
    set_word(record, BUFFER.on_device_size_in_bytes, size)
    set_word(record, BUFFER.device, load(u64, word(device_memory, MEMORY.devices)))
    set_word(record, BUFFER.memory, device_memory)
    set_word(record, BUFFER.is_deleted, 0)
    set_word(record, BUFFER.is_on_cpu, 1)
    set_word(record, BUFFER.minor_to_major, address_of(DESCENDING.at(SIZE_WORDS - rank)))
    set_word(record, BUFFER.zero, 0)
    set_word(record, BUFFER.layout, STATE.layouts[rank])
    set_word(record, BUFFER.ready_at, 0)
    set_word(record, BUFFER.buffer_pointer, memory)
    set_word(record, BUFFER.references, 0)
    set_word(record, BUFFER.owned, memory)


class References(Structure):
    """Word `references` of a buffer's record."""

    count: Atomic[u64]


@native(name="PJRT_Buffer_IncreaseExternalReferenceCount")
def increase_references(arguments: Address) -> Address:
    """Increments the external reference count of a buffer that is ready; other buffers are handled by Python."""
    record = word(arguments, REFERENCES_CALL.buffer)
    if word(record, BUFFER.is_deleted) != 0 or not is_done(word(record, BUFFER.ready_at)):
        return call_python(PYTHON_INCREASE, arguments)
    to(References, record + BUFFER.references).count.add(1, MONOTONIC)
    return null


@native(name="PJRT_Buffer_DecreaseExternalReferenceCount")
def decrease_references(arguments: Address) -> Address:
    """Decrements the external reference count of a buffer."""
    to(References, word(arguments, REFERENCES_CALL.buffer) + BUFFER.references).count.subtract(1, MONOTONIC)
    return null
