"""PJRT buffers: arrays on a device, and their transfers from and to the host."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.backends.cpu.runtime.buffers import empty
from hloom.errors import ArgumentError
from hloom.pjrt.c_api import BUFFER_TYPES, MemoryLayout
from hloom.pjrt.client import Memory, memory_of
from hloom.pjrt.events import Completion, Event, ready_event
from hloom.pjrt.handlers import immortal_text, immortal_words, implements, read_integers
from hloom.pjrt.layouts import row_major
from hloom.pjrt.native.api import code, refill_records, wait_for_tasks
from hloom.pjrt.native.transfers import MIN_SHARED_BYTES, ZERO_COPY
from hloom.pjrt.records import WITHHELD, new_packed_record, new_record, objects, record_words, set_word, word_address
from hloom.types import BY_NAME, PrimitiveType
from hloom.values import Array

ELEMENT_TYPES: dict[int, PrimitiveType] = {n: BY_NAME[name] for n, name in enumerate(BUFFER_TYPES) if name in BY_NAME}
TYPE_CODES: dict[PrimitiveType, int] = {element_type: n for n, element_type in ELEMENT_TYPES.items()}
_CODE_OF_DTYPE = {t.dtype: n for t, n in TYPE_CODES.items() if t.is_array}

_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)


class Buffer:
    """An array on a device.

    `order` lists the dimensions from minor to major. `array` is the memory as a row-major array, so its dimensions are
    those of the buffer from major to minor.
    `complete` happens when the memory has its contents; None if it has them.
    `on_release` is called when the memory is no longer used. Such memory has another owner, so the array is read-only.
    """

    __slots__ = ("array", "complete", "handle", "memory", "on_release", "order", "size")

    def __init__(
        self,
        array: Array,
        memory: Memory,
        on_release: Callable[[], None] | None = None,
        handle: int = 0,
        order: tuple[int, ...] | None = None,
        complete: Completion | None = None,
    ) -> None:
        self.array: Array | None = array
        self.memory = memory
        self.complete = complete
        self.order = row_major(array.ndim) if order is None else order
        self.on_release = on_release
        if on_release is not None:
            array.flags.writeable = False
        self.size = array.nbytes
        self.handle = handle
        # Native code has made the record of its own buffers, and counted them.
        if not handle:
            memory.device.count(self.size)
            shape = by_dimension(array, self.order).shape
            self.handle = new_packed_record(
                buffer_words(shape, self.order, array.dtype, memory, address_of_array(array)), self
            )
        if complete is not None:
            set_word("Buffer", self.handle, "is_deleted", WITHHELD)

    def fulfil(self, error: Exception | None = None) -> None:
        """Says that the memory has its contents, or never will."""
        assert self.complete is not None
        word = ctypes.c_uint64.from_address(word_address("Buffer", self.handle, "is_deleted"))
        if error is None and objects.get(self.handle) is self and word.value == WITHHELD:
            word.value = 0
        self.complete.signal(error)

    @property
    def references(self) -> int:
        """External reference count: the views of the memory that the framework has given out."""
        return ctypes.c_int64.from_address(word_address("Buffer", self.handle, "references")).value

    def value(self) -> Array:
        """The array in memory order, once it has its contents; raises its error.

        Raises ArgumentError if the buffer was deleted or donated.
        """
        if self.complete is not None:
            self.complete.wait()
        if self.array is None:
            raise ArgumentError("the buffer has been deleted or donated")
        return self.array

    def logical(self) -> Array:
        """The array with its dimensions in the order of the buffer's shape."""
        return by_dimension(self.value(), self.order)

    def delete(self) -> None:
        """Deletes the buffer. Its memory is released at once, or with the buffer object if there are external
        references.
        """
        if objects.get(self.handle) is self:
            set_word("Buffer", self.handle, "is_deleted", 1)
        if self.references == 0:
            wait_for_tasks()
            self.release()

    def release(self) -> None:
        """Drops the array; the buffer has no memory afterwards."""
        if self.array is not None:
            self.array = None
            self.memory.device.live_bytes -= self.size
            if self.on_release is not None:
                self.on_release()

    def __del__(self) -> None:
        self.release()


def by_dimension(array: Array, order: tuple[int, ...]) -> Array:
    """Returns an array in memory order with its dimensions in the order of the shape."""
    return array.transpose([order[::-1].index(d) for d in range(len(order))])


assert record_words("Buffer") == (
    *("type", "dims", "num_dims", "num_dynamic_dims", "minor_to_major", "zero", "on_device_size_in_bytes", "device"),
    *("memory", "is_deleted", "is_on_cpu", "layout_handle", "buffer_pointer", "references", "owned", "ready_at"),
)


def buffer_words(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: np.dtype[Any], memory: Memory, address: int
) -> tuple[int, ...]:
    """Words of the record of a buffer with an array at `address`; `order` lists dimensions from minor to major."""
    size = math.prod(shape) * dtype.itemsize
    device = memory.device.handle
    return (
        *(_CODE_OF_DTYPE[dtype], _immortal_words(shape), len(shape), 0, _immortal_words(order), 0, size, device),
        # Frameworks assume that buffers on the CPU are row-major.
        *(memory.handle, 0, int(order == row_major(len(shape))), layout_handle(order), address),
    )


@functools.cache
def layout_handle(order: tuple[int, ...]) -> int:
    """Handle of a layout, which the framework reads in serialised form: `{minor,..,major}`."""
    text, size = immortal_text("{" + ",".join(map(str, order)) + "}")
    words = {"serialized_bytes": text, "serialized_bytes_size": size, "deleter": code().noop}
    return new_record("MemoryLayout", order, is_immortal=True, **words)


@implements("Client_GetDefaultLayout")
@implements("TopologyDescription_GetDefaultLayout")
def _default_layout(arguments: Any) -> None:
    arguments.layout = layout_handle(row_major(arguments.num_dims))


def address_of_array(array: Array) -> int:
    """Address of the first element."""
    return int(array.__array_interface__["data"][0])


@functools.cache
def _immortal_words(values: tuple[int, ...]) -> int:
    return immortal_words(list(values))


def array_at(
    address: int, element_type: PrimitiveType, shape: list[int], strides: list[int] | None, owner: object = None
) -> Array:
    """A view of memory as an array that keeps `owner` alive; `strides` are in bytes, None for row-major."""
    dtype = element_type.dtype
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is None:
        strides = [dtype.itemsize] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            strides[d] = strides[d + 1] * shape[d + 1]
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    below = -sum(r for r in reach if r < 0)
    size = below + sum(r for r in reach if r > 0) + dtype.itemsize
    memory: Any = (ctypes.c_char * size).from_address(address - below)
    memory.owner = owner
    return np.ndarray(tuple(shape), dtype, memoryview(memory), below, tuple(strides))


def element_type_of(type_code: int) -> PrimitiveType:
    """The element type for a PJRT_Buffer_Type. Raises ArgumentError for one that arrays cannot have in hloom."""
    found = ELEMENT_TYPES.get(type_code)
    if found is None or not found.is_array:
        name = BUFFER_TYPES[type_code] if 0 <= type_code < len(BUFFER_TYPES) else f"number {type_code}"
        raise ArgumentError(f"hloom has no arrays of element type {name}")
    return found


def device_copy(array: Array) -> Array:
    """A row-major copy in memory that hloom allocates."""
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


@implements("Client_BufferFromHostBuffer")
def _from_host(arguments: Any) -> None:
    """Slow path of `native/transfers.py`: strided arrays, layouts, large arrays that may be shared."""
    refill_records()
    a = arguments
    shape = read_integers(a.dims, a.num_dims)
    strides = read_integers(a.byte_strides, a.num_byte_strides) if a.num_byte_strides else None
    order = requested_order(a.device_layout, len(shape))
    view = array_at(a.data, element_type_of(a.type), shape, strides).transpose(order[::-1])
    memory = memory_of(a.device, a.memory)
    shared = a.host_buffer_semantics == ZERO_COPY and view.nbytes >= MIN_SHARED_BYTES
    if shared and view.flags.c_contiguous and view.flags.aligned:
        done = Event()
        a.buffer = Buffer(view, memory, done.signal, order=order).handle
        a.done_with_host_buffer = done.handle
        return
    a.buffer = Buffer(device_copy(view), memory, order=order).handle
    a.done_with_host_buffer = ready_event()


def requested_order(address: int, rank: int) -> tuple[int, ...]:
    """Dimensions from minor to major of a PJRT_Buffer_MemoryLayout at an address (0: row-major)."""
    if not address:
        return row_major(rank)
    layout = MemoryLayout.from_address(address)
    if layout.type != 0 or layout.num_tiles:
        raise NotImplementedError("hloom's arrays are dense and have no tiles")
    order = tuple(read_integers(layout.values, layout.count))
    if sorted(order) != list(range(rank)):
        raise ArgumentError(f"a layout of rank {rank} is a permutation of its dimensions, got minor to major {order}")
    return order


@implements("Client_CreateViewOfDeviceBuffer")
def _view(arguments: Any) -> None:
    """Makes a buffer of memory that another library owns, for example through DLPack."""
    a = arguments
    shape = read_integers(a.dims, a.num_dims)
    order = requested_order(a.layout, len(shape))
    view = array_at(a.device_buffer_ptr, element_type_of(a.element_type), [shape[d] for d in order[::-1]], None)
    has_memory = a.struct_size > type(a).memory.offset
    memory = memory_of(a.device, a.memory if has_memory else 0)
    if not view.flags.aligned:
        view = device_copy(view)
    callback, pointer, argument = a.on_delete_callback, a.device_buffer_ptr, a.on_delete_callback_arg
    on_release = (lambda: _DELETE(callback)(pointer, argument)) if callback else None
    a.buffer = Buffer(view, memory, on_release, order=order).handle


@implements("Buffer_Delete")
def _delete(arguments: Any) -> None:
    objects[arguments.buffer].delete()


@implements("Buffer_IncreaseExternalReferenceCount")
def _increase(arguments: Any) -> None:
    """Slow path of `increase_references`: waits, without the GIL, until the buffer is ready.

    Raises ArgumentError for a deleted buffer.
    """
    word = ctypes.c_uint64.from_address(word_address("Buffer", arguments.buffer, "is_deleted"))
    if word.value == WITHHELD:
        objects[arguments.buffer].value()
    if word.value:
        raise ArgumentError("the buffer has been deleted or donated")
    wait_for_tasks()
    increase = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
    increase(code().address("Buffer_IncreaseExternalReferenceCount"))(ctypes.addressof(arguments))


@implements("Buffer_ReadyEvent")
def _ready(arguments: Any) -> None:
    """Slow path of `ready_event_of`: the event of a buffer without contents yet, or with an error."""
    complete, event = objects[arguments.buffer].complete, Event()
    complete.then(lambda: event.signal(complete.error))
    arguments.event = event.handle


@implements("Buffer_ToHostBuffer")
def _to_host(arguments: Any) -> None:
    array = objects[arguments.src].logical()
    if not arguments.dst:
        arguments.dst_size = array.nbytes
        return
    strides = _host_strides(arguments.host_layout, array)
    target = array_at(arguments.dst, element_type_of(_CODE_OF_DTYPE[array.dtype]), list(array.shape), strides)
    target[...] = array
    arguments.event = ready_event()


def _host_strides(address: int, array: Array) -> list[int] | None:
    """Byte strides of a PJRT_Buffer_MemoryLayout at an address (0: None)."""
    if not address:
        return None
    layout = MemoryLayout.from_address(address)
    values = read_integers(layout.values, layout.count)
    if layout.type == 1:
        return values
    if layout.num_tiles:
        raise NotImplementedError("hloom copies no arrays to the host in tiles")
    strides, step = [0] * array.ndim, array.itemsize
    for d in values:
        strides[d] = step
        step *= array.shape[d]
    return strides


@implements("Buffer_CopyRawToHost")
def _raw_to_host(arguments: Any) -> None:
    array = objects[arguments.buffer].value()
    start, size = arguments.offset, arguments.transfer_size
    if start + size > array.nbytes:
        raise ArgumentError(f"bytes {start} to {start + size} are outside of a buffer of {array.nbytes} bytes")
    ctypes.memmove(arguments.dst, array.ctypes.data + start, size)
    arguments.event = ready_event()


@implements("Buffer_CopyToDevice")
def _to_device(arguments: Any) -> None:
    _copy(arguments, memory_of(arguments.dst_device, 0))


@implements("Buffer_CopyToMemory")
def _to_memory(arguments: Any) -> None:
    _copy(arguments, memory_of(0, arguments.dst_memory))


def _copy(arguments: Any, memory: Memory) -> None:
    buffer: Buffer = objects[arguments.buffer]
    arguments.dst_buffer = Buffer(device_copy(buffer.value()), memory, order=buffer.order).handle
