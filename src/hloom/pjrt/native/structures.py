"""Records and argument structures as structures of native Python, at the offsets of the table in `pjrt/c_api.py`.

Only words that native code uses are declared.
"""

from __future__ import annotations

from typing import Any

from hloom.backends.cpu.llvm.native.types import Address, Array, Atomic, Structure, boolean, field, i32, u32, u64
from hloom.pjrt.c_api import ExecuteOptions
from hloom.pjrt.records import offsets_of_arguments, offsets_of_record


class Record(Structure):
    """The words before those of a record's kind."""

    link: Address
    """The next record of the list that this one is in."""
    is_immortal: u64

    def __init_subclass__(cls, kind: str) -> None:
        _set_offsets(cls, offsets_of_record(kind))
        super().__init_subclass__()


class Arguments(Structure):
    """The words before the arguments of a function of the interface."""

    struct_size: u64
    extension_start: Address

    def __init_subclass__(cls, function: str) -> None:
        _set_offsets(cls, offsets_of_arguments(function))
        super().__init_subclass__()


def _set_offsets(cls: type[Structure], offsets: Any) -> None:
    for name in cls.__annotations__:
        setattr(cls, name, field(at=getattr(offsets, name)))


class DeviceRecord(Record, kind="Device"):
    """A device; `native_bytes` is the size of the buffers on it that native code owns."""

    memory: Address
    native_bytes: Atomic[u64]


class MemoryRecord(Record, kind="Memory"):
    """The memory of a device."""

    devices: Array[DeviceRecord]


class BufferRecord(Record, kind="Buffer"):
    """A buffer; the words from `buffer_pointer` on are those that native code sets for each result."""

    type: u64
    dims: Address
    num_dims: u64
    num_dynamic_dims: u64
    minor_to_major: Address
    zero: u64
    on_device_size_in_bytes: u64
    device: DeviceRecord
    memory: MemoryRecord
    is_deleted: u64
    is_on_cpu: u64
    layout_handle: Address
    buffer_pointer: Address
    references: Atomic[u64]
    """External references, which the framework counts."""
    owned: Address
    """Memory that native code owns, 0 if a Python `Buffer` owns it, `DONATED` if it was donated."""
    ready_at: u64
    """Id of the task that makes the buffer ready."""


class EventRecord(Record, kind="Event"):
    """An event, which a task makes ready if `task_id` is not 0."""

    is_ready: u64
    task_id: u64


class ExecutableRecord(Record, kind="LoadedExecutable"):
    """An executable. The words from `template` on have values only if native code can run it."""

    main: Address
    """The program; null if Python has to run it."""
    template: Address
    table_words: u64
    """The table of pointers that the program takes (see `backends/cpu/runtime/dispatch.py`)."""
    first_input: u64
    input_count: u64
    output_count: u64
    """Words of the table with the addresses of inputs, from `first_input` on, and then of outputs."""
    descriptions: Array[u64]
    """`DESCRIPTION_WORDS` words for each output: one plus the index of the argument whose memory it takes (0: memory of
    its own), and the initial words of its buffer's record."""
    donated: Array[u64]
    """Words for each argument, not 0 if the argument is donated; null if none is."""
    arena_bytes: u64
    """Size of the temporary memory."""
    input_layouts: Array[Address]
    """Layouts of arguments for which the program was compiled."""
    is_shared: u64
    """Whether other processes take part. They may still write to the memory of a failed run, so it is leaked."""
    failed_call: Address
    """Arguments of a call that ended early, from which the Python handler sees that it has to raise the error."""
    dispatch: u64
    last_nanoseconds: u64
    """Whether and when the program may be queued (`async_dispatch.py`), and the duration of its last run."""
    device_count: u64
    """Number of devices that run it; each has a table and descriptions of its own."""
    groups: Address
    """The `Groups` of several devices."""


class ExecuteOptionsWords(Structure):
    """Options of the call of an executable."""

    num_non_donatable_input_indices: u64 = field(at=ExecuteOptions.num_non_donatable_input_indices.offset)


class ExecuteCall(Arguments, function="LoadedExecutable_Execute"):
    """The call of an executable."""

    executable: ExecutableRecord
    options: ExecuteOptionsWords
    argument_lists: Array[Array[BufferRecord]]
    num_devices: u64
    num_args: u64
    output_lists: Array[Array[BufferRecord]]
    device_complete_events: Array[Address]
    execute_device: Address


class FromHostCall(Arguments, function="Client_BufferFromHostBuffer"):
    """The transfer of a host array."""

    data: Address
    type: u32
    dims: Array[u64]
    num_dims: u64
    byte_strides: Array[u64]
    num_byte_strides: u64
    host_buffer_semantics: i32
    device: DeviceRecord
    memory: MemoryRecord
    device_layout: Address
    done_with_host_buffer: Address
    buffer: BufferRecord


class ReferenceCall(Arguments, function="Buffer_IncreaseExternalReferenceCount"):
    """An increment or decrement of the external reference count of a buffer."""

    buffer: BufferRecord


class ReadyEventCall(Arguments, function="Buffer_ReadyEvent"):
    """The request of the event that makes a buffer ready."""

    buffer: BufferRecord
    event: Address


class IsReadyCall(Arguments, function="Event_IsReady"):
    """The test of an event."""

    event: EventRecord
    is_ready: boolean


class AwaitCall(Arguments, function="Event_Await"):
    """The wait for an event."""

    event: EventRecord


class OnReadyCall(Arguments, function="Event_OnReady"):
    """The registration of a callback of an event."""

    event: EventRecord
    callback: Address
    user_arg: Address
