"""Buffers that get their contents later, or an error: asynchronous transfers from the host, uninitialised buffers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from hloom.backends.cpu.runtime.buffers import empty
from hloom.errors import ArgumentError
from hloom.pjrt.buffers import Buffer, array_at, by_dimension, element_type_of, requested_order
from hloom.pjrt.c_api import ShapeSpec
from hloom.pjrt.client import Memory, memory_of
from hloom.pjrt.events import Completion, ready_event
from hloom.pjrt.handlers import StatusError, implements, read_integers, read_words
from hloom.pjrt.records import new_record, objects, recycle_record
from hloom.system.records import record
from hloom.values import Array


@record(eq=False)
class Incoming:
    """A buffer of an asynchronous transfer, and its memory as an array, which the client may delete meanwhile."""

    buffer: Buffer
    memory: Array


@dataclass(eq=False)
class TransferManager:
    """Buffers whose contents the client sends in pieces; those that it does not retrieve are freed with the manager."""

    incoming: list[Incoming]
    retrieved: set[int]

    def at(self, index: int) -> Incoming:
        """Returns the buffer with an index. Raises ArgumentError if there is none."""
        if not 0 <= index < len(self.incoming):
            raise ArgumentError(f"there is no buffer {index} in a transfer of {len(self.incoming)}")
        return self.incoming[index]

    def __del__(self) -> None:
        for index, each in enumerate(self.incoming):
            if index not in self.retrieved:
                objects.pop(each.buffer.handle, None)
                recycle_record(each.buffer.handle)


def _uninitialised(
    shape: list[int], type_code: int, layout: int, memory: Memory, complete: Completion | None
) -> Buffer:
    order = requested_order(layout, len(shape))
    array = empty(tuple(shape[d] for d in order[::-1]), element_type_of(type_code).dtype)
    return Buffer(array, memory, order=order, complete=complete)


@implements("Client_CreateUninitializedBuffer")
def _create_uninitialised(arguments: Any) -> None:
    a = arguments
    shape = read_integers(a.shape_dims, a.shape_num_dims)
    memory = memory_of(a.device, a.memory)
    a.buffer = _uninitialised(shape, a.shape_element_type, a.shape_layout, memory, None).handle


@implements("Client_CreateErrorBuffer")
def _create_error(arguments: Any) -> None:
    """Makes a buffer whose uses, and whose ready event, raise an error."""
    a = arguments
    shape = read_integers(a.shape_dims, a.shape_num_dims)
    buffer = _uninitialised(shape, a.shape_element_type, a.shape_layout, memory_of(0, a.memory), Completion())
    buffer.fulfil(_error_of(a))
    a.buffer = buffer.handle


def _error_of(arguments: Any) -> StatusError:
    text = ctypes.string_at(arguments.error_message, arguments.error_message_size).decode("utf-8", "replace")
    return StatusError(text, arguments.error_code)


@implements("Client_CreateBuffersForAsyncHostToDevice")
def _create_transfer(arguments: Any) -> None:
    a = arguments
    specs = (ShapeSpec * a.num_shape_specs).from_address(a.shape_specs) if a.num_shape_specs else ()
    layouts = read_words(a.device_layouts, a.num_device_layouts) if a.num_device_layouts else [0] * len(specs)
    if len(layouts) != len(specs):
        raise ArgumentError(f"a transfer of {len(specs)} buffers has a layout for each or none, got {len(layouts)}")
    memory = memory_of(0, a.memory)
    incoming = []
    for spec, layout in zip(specs, layouts, strict=True):
        shape = read_integers(spec.dims, spec.num_dims)
        buffer = _uninitialised(shape, spec.element_type, layout, memory, Completion())
        assert buffer.array is not None
        incoming.append(Incoming(buffer, buffer.array))
    a.transfer_manager = new_record(
        "AsyncHostToDeviceTransferManager",
        TransferManager(incoming, set()),
        device_out=memory.device.handle,
        buffer_count=len(incoming),
    )


@implements("AsyncHostToDeviceTransferManager_RetrieveBuffer")
def _retrieve(arguments: Any) -> None:
    manager: TransferManager = objects[arguments.transfer_manager]
    arguments.buffer_out = manager.at(arguments.buffer_index).buffer.handle
    manager.retrieved.add(arguments.buffer_index)


@implements("AsyncHostToDeviceTransferManager_BufferSize")
def _buffer_size(arguments: Any) -> None:
    arguments.buffer_size = objects[arguments.transfer_manager].at(arguments.buffer_index).memory.nbytes


@implements("AsyncHostToDeviceTransferManager_TransferData")
def _transfer(arguments: Any) -> None:
    """Copies bytes at once, so that the client may reuse its memory; the last transfer completes the buffer."""
    a = arguments
    target: Incoming = objects[a.transfer_manager].at(a.buffer_index)
    start, size = a.offset, a.transfer_size
    if start + size > target.memory.nbytes:
        message = f"are outside of a buffer of {target.memory.nbytes} bytes"
        raise ArgumentError(f"bytes {start} to {start + size} {message}")
    ctypes.memmove(target.memory.ctypes.data + start, a.data, size)
    if a.is_last_transfer:
        target.buffer.fulfil()
    a.done_with_h2d_transfer = ready_event()


@implements("AsyncHostToDeviceTransferManager_TransferLiteral")
def _transfer_literal(arguments: Any) -> None:
    """Copies a whole array, which has its own layout, and completes the buffer."""
    a = arguments
    target: Incoming = objects[a.transfer_manager].at(a.buffer_index)
    shape = read_integers(a.shape_dims, a.shape_num_dims)
    order = requested_order(a.shape_layout, len(shape))
    view = array_at(a.data, element_type_of(a.shape_element_type), [shape[d] for d in order[::-1]], None)
    logical = by_dimension(view, order)
    stored = logical.transpose(target.buffer.order[::-1]) if len(order) == len(target.buffer.order) else logical
    if stored.shape != target.memory.shape or stored.dtype != target.memory.dtype:
        raise ArgumentError(f"the buffer has other sizes or another type than {logical.dtype}{list(shape)}")
    target.memory[...] = stored
    target.buffer.fulfil()
    a.done_with_h2d_transfer = ready_event()


@implements("AsyncHostToDeviceTransferManager_SetBufferError")
def _set_error(arguments: Any) -> None:
    objects[arguments.transfer_manager].at(arguments.buffer_index).buffer.fulfil(_error_of(arguments))


@implements("AsyncHostToDeviceTransferManager_AddMetadata")
@implements("Client_DmaMap")
@implements("Client_DmaUnmap")
def _nothing(arguments: Any) -> None:
    """Does nothing: metadata is for profiles, and memory of the host is that of the device."""
