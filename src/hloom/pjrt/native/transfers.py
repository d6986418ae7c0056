"""Native transfers between the host and buffers: copies of dense host arrays, and external references to buffers.

`BufferFromHostBuffer` copies a dense array into memory that native code owns. The dimension sizes, which the framework
may query later, are stored at the end of the buffer's record. Python handles arrays with other strides or a layout, and
large ones that may be shared instead of copied.
"""

from __future__ import annotations

from hloom.backends.cpu.llvm.native.types import Address, Array, u64
from hloom.backends.cpu.llvm.native.vocabulary import (
    MONOTONIC,
    Table,
    address_of,
    copy_memory,
    elements,
    native,
    null,
    to,
)
from hloom.pjrt.c_api import BUFFER_TYPES
from hloom.pjrt.native.async_dispatch import is_done
from hloom.pjrt.native.memory import (
    PYTHON_FUNCTIONS,
    SIZE_WORDS,
    STATE,
    allocate,
    call_python,
    count_bytes,
    pause_if_ending,
    return_record,
    take_record,
)
from hloom.pjrt.native.structures import BufferRecord, FromHostCall, MemoryRecord, Record, ReferenceCall
from hloom.pjrt.records import HEADER_BYTES, record_words
from hloom.types import BY_NAME

MIN_SHARED_BYTES = 64 << 10
"""Smallest host array in bytes that is shared: copying costs less than signalling the end of its use."""
ZERO_COPY = 2
"""PJRT_HostBufferSemantics_kImmutableZeroCopy: host memory does not change while the buffer lives."""
SLOW_PATH = (1 << 64) - 1
"""Size of an array that the Python handler has to transfer."""
SIZES_OFFSET = HEADER_BYTES + 8 * len(record_words("Buffer"))
TYPE_SIZES = Table(
    "type_sizes",
    (BY_NAME[name].byte_width if name in BY_NAME and BY_NAME[name].is_array else 0 for name in BUFFER_TYPES),
)
DESCENDING = Table("minor_to_major", reversed(range(SIZE_WORDS)))
PYTHON_FROM_HOST = PYTHON_FUNCTIONS.index("Client_BufferFromHostBuffer")
PYTHON_INCREASE = PYTHON_FUNCTIONS.index("Buffer_IncreaseExternalReferenceCount")


@native(name="PJRT_Client_BufferFromHostBuffer")
def from_host(arguments: FromHostCall) -> Address:
    """Makes a buffer of a host array."""
    size = copied_size(arguments)
    record = take_record() if size != SLOW_PATH else u64(null)
    if record == null:
        return call_python(PYTHON_FROM_HOST, address_of(arguments))
    memory = allocate(size)
    if memory == null:
        return_record(record)
        return call_python(PYTHON_FROM_HOST, address_of(arguments))
    copy_memory(memory, arguments.data, size)
    buffer = to(BufferRecord, record)
    fill_record(buffer, arguments, memory, size)
    count_bytes(buffer, True)
    arguments.buffer = buffer
    arguments.done_with_host_buffer = STATE.ready_event
    pause_if_ending()
    return null


@native(inline=True)
def copied_size(arguments: FromHostCall) -> u64:
    """Size in bytes of an array that is copied here, else `SLOW_PATH`."""
    rank, type = arguments.num_dims, u64(arguments.type)
    if arguments.device_layout != null or rank >= SIZE_WORDS or type >= len(TYPE_SIZES.values):
        return SLOW_PATH
    element_bytes = TYPE_SIZES[type]
    strides = arguments.byte_strides if arguments.num_byte_strides != 0 else elements(u64, u64(null))
    size = dense_size(arguments.dims, rank, strides, element_bytes)
    may_be_shared = arguments.host_buffer_semantics == ZERO_COPY
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
def fill_record(buffer: BufferRecord, arguments: FromHostCall, memory: Address, size: u64) -> None:
    """Fills the record of a row-major buffer."""
    rank = arguments.num_dims
    record, device_memory = address_of(buffer), arguments.memory
    if address_of(device_memory) == null:
        device_memory = to(MemoryRecord, arguments.device.memory)
    copy_memory(record + SIZES_OFFSET, address_of(arguments.dims), rank << 3)
    to(Record, record).is_immortal = 0
    buffer.type = u64(arguments.type)
    buffer.dims = record + SIZES_OFFSET
    buffer.num_dims = rank
    buffer.num_dynamic_dims = 0
    buffer.on_device_size_in_bytes = size
    buffer.device = device_memory.devices[0]
    buffer.memory = device_memory
    buffer.is_deleted = 0
    buffer.is_on_cpu = 1
    buffer.minor_to_major = address_of(DESCENDING.at(SIZE_WORDS - rank))
    buffer.zero = 0
    buffer.layout_handle = STATE.layouts[rank]
    buffer.ready_at = 0
    buffer.buffer_pointer = memory
    buffer.references.store(0, MONOTONIC)
    buffer.owned = memory


@native(name="PJRT_Buffer_IncreaseExternalReferenceCount")
def increase_references(arguments: ReferenceCall) -> Address:
    """Increments the external reference count of a buffer that is ready; other buffers are handled by Python."""
    buffer = arguments.buffer
    if buffer.is_deleted != 0 or not is_done(buffer.ready_at):
        return call_python(PYTHON_INCREASE, address_of(arguments))
    buffer.references.add(1, MONOTONIC)
    return null


@native(name="PJRT_Buffer_DecreaseExternalReferenceCount")
def decrease_references(arguments: ReferenceCall) -> Address:
    """Decrements the external reference count of a buffer."""
    arguments.buffer.references.subtract(1, MONOTONIC)
    return null
