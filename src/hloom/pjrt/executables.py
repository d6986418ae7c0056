"""Handlers of executables: compilation, execution, serialisation and queries."""

from __future__ import annotations

import collections
import ctypes
import struct
import threading
from typing import Any, cast

import numpy as np

from hloom.analysis.flops import count_flops
from hloom.backends.cpu.executable import CpuExecutable
from hloom.errors import ArgumentError
from hloom.pjrt.buffers import Buffer
from hloom.pjrt.c_api import ExecuteOptions, NamedValue, Program
from hloom.pjrt.client import Memory
from hloom.pjrt.events import ready_event
from hloom.pjrt.fast_execute import transfer_to_native
from hloom.pjrt.handlers import PjrtError, immortal_text, implements, read_integers, read_words
from hloom.pjrt.loaded_executable import LoadedExecutable, output_size
from hloom.pjrt.native.api import code, refill_records, wait_for_tasks
from hloom.pjrt.programs import Source
from hloom.pjrt.records import new_record, objects, set_word
from hloom.system.garbage import older_objects_frozen
from hloom.system.shield import shielded
from hloom.values import Array


@implements("Client_Compile")
def _compile(arguments: Any) -> None:
    arguments.executable = _compiled(arguments).handle


@implements("Compile")
def _compile_for_topology(arguments: Any) -> None:
    """Compiles without a client: the only topology is that of this process."""
    arguments.executable = _executable(_compiled(arguments))


def _compiled(arguments: Any) -> LoadedExecutable:
    program = Program.from_address(arguments.program)
    format = ctypes.string_at(program.format, program.format_size).decode("utf-8", "replace")
    content = ctypes.string_at(program.code, program.code_size)
    options = ctypes.string_at(arguments.compile_options, arguments.compile_options_size)
    return _load(Source(format, content), options)


@shielded
@older_objects_frozen()
def _load(source: Source, options: bytes) -> LoadedExecutable:
    return LoadedExecutable(source, options)


@implements("LoadedExecutable_GetExecutable")
def _get_executable(arguments: Any) -> None:
    loaded: LoadedExecutable = objects[arguments.loaded_executable]
    arguments.executable = _executable(loaded)


def _executable(loaded: LoadedExecutable) -> int:
    return new_record("Executable", loaded, is_immortal=False, **loaded.executable_words)


@implements("LoadedExecutable_Delete")
def _delete(arguments: Any) -> None:
    set_word("LoadedExecutable", arguments.executable, "is_deleted", 1)


@implements("LoadedExecutable_Execute")
def _execute(arguments: Any) -> None:
    a = arguments
    loaded: LoadedExecutable = objects[a.executable]
    if loaded.is_native and loaded.take_failure(a):
        raise cast(CpuExecutable, loaded.executable).stopped()
    if loaded.is_native and not getattr(_retry, "is_active", False) and not a.execute_device:
        _retry_native(loaded, a)
        return
    wait_for_tasks()
    devices = a.num_devices
    lists = [
        [objects[handle] for handle in read_words(address, a.num_args)]
        for address in read_words(a.argument_lists, devices)
    ]
    memories = loaded.memories if not a.execute_device else [loaded.memories_on(objects[a.execute_device])]
    donated_now = _parameters_to_donate(loaded, a.options) if loaded.donated else frozenset()
    for buffers in lists:
        _check_layouts(buffers, loaded.input_orders)
        if donated_now:
            _check_donated_once(buffers, donated_now)
    try:
        results = loaded.run([_arrays(buffers, loaded.donated, donated_now) for buffers in lists])
    finally:
        # Even a failed program may have overwritten donated arguments.
        for buffers in lists:
            for index in donated_now:
                buffers[index].delete()
    for held_in, values, address in zip(memories, results, read_words(a.output_lists, devices), strict=True):
        _put_results(values, loaded.output_orders, held_in, address)
    if a.device_complete_events:
        events = (ctypes.c_uint64 * devices).from_address(a.device_complete_events)
        events[:] = [ready_event()] * devices


_retry = threading.local()
"""`is_active` is true while native code retries a call; if that reaches the handler again, Python runs the program."""


def _retry_native(loaded: LoadedExecutable, arguments: Any) -> None:
    """Supplies what native code may have lacked (records, ownership of donated buffers), and runs the call natively."""
    refill_records(len(loaded.output_shapes) * arguments.num_devices)
    donated = _parameters_to_donate(loaded, arguments.options) if loaded.donated else ()
    lists = read_words(arguments.argument_lists, arguments.num_devices) if donated else ()
    for handle in [read_words(handles, arguments.num_args)[index] for handles in lists for index in donated]:
        # Not objects[..], which would take the buffer away from native code.
        buffer = objects.get(handle)
        if buffer is not None and buffer.array is not None and not buffer.references:
            wait_for_tasks()
            transfer_to_native(buffer)
    _retry.is_active = True
    try:
        error = code().execute(ctypes.addressof(arguments))
    finally:
        _retry.is_active = False
    if error:
        raise PjrtError(error)


def _put_results(
    values: tuple[Array, ...], orders: list[tuple[int, ...]], memories: list[Memory], address: int
) -> None:
    if values:
        outputs = (ctypes.c_uint64 * len(values)).from_address(address)
        # JAX represents tokens by empty arrays of type bool.
        arrays = [value if isinstance(value, np.ndarray) else np.zeros(0, np.bool_) for value in values]
        outputs[:] = [
            Buffer(array, memory, order=order if len(order) == array.ndim else None).handle
            for array, order, memory in zip(arrays, orders, memories, strict=True)
        ]


def _parameters_to_donate(loaded: LoadedExecutable, options_address: int) -> frozenset[int]:
    """Numbers of the parameters that this call donates: the call may exclude some."""
    options = ExecuteOptions.from_address(options_address)
    kept = read_integers(options.non_donatable_input_indices, options.num_non_donatable_input_indices)
    return loaded.donated - set(kept)


def _check_layouts(buffers: list[Buffer], orders: list[tuple[int, ...]]) -> None:
    """Raises ArgumentError if the layout of an argument is not the one that the program was compiled for."""
    for index, (buffer, order) in enumerate(zip(buffers, orders, strict=True)):
        if buffer.order != order and buffer.value().size > 1:
            raise ArgumentError(
                f"argument {index} has its dimensions in the order {buffer.order} from minor to major, "
                f"the program is compiled for {order}"
            )


def _check_donated_once(buffers: list[Buffer], donated_now: frozenset[int]) -> None:
    """Raises ArgumentError if a donated buffer is also another argument of the same call."""
    counts = collections.Counter(map(id, buffers))
    for index in sorted(donated_now):
        if counts[id(buffers[index])] > 1:
            raise ArgumentError(f"argument {index} is donated, and the same buffer is another argument of the call")


def _arrays(buffers: list[Buffer], donated: frozenset[int], donated_now: frozenset[int]) -> list[Array]:
    """The arguments as arrays, read-only where a donatable one is kept by the caller or has external references."""
    arrays = [buffer.value() for buffer in buffers]
    for index in donated:
        if index not in donated_now or buffers[index].references:
            arrays[index] = arrays[index].view()
            arrays[index].flags.writeable = False
    return arrays


@implements("Executable_OptimizedProgram")
def _optimized_program(arguments: Any) -> None:
    loaded: LoadedExecutable = objects[arguments.executable]
    program = Program.from_address(arguments.program)
    program.format, program.format_size = immortal_text("hlo_with_config")
    if program.code:
        ctypes.memmove(program.code, loaded.optimized, len(loaded.optimized))
    program.code_size = len(loaded.optimized)


_SERIALIZED = struct.Struct("<8sQ")
_MAGIC = b"hloomex2"


@implements("Executable_Serialize")
def _serialize(arguments: Any) -> None:
    """Serialises the program and its options. Machine code is not included: hloom's cache has it for each machine."""
    loaded: LoadedExecutable = objects[arguments.executable]
    content = (
        _SERIALIZED.pack(_MAGIC, len(loaded.serialized_options)) + loaded.serialized_options + loaded.program.serialized
    )
    arguments.serialized_bytes = loaded.address_of_bytes(content)
    arguments.serialized_bytes_size = len(content)
    arguments.serialized_executable = arguments.serialized_bytes
    arguments.deleter = code().noop


@implements("Executable_DeserializeAndLoad")
def _deserialize(arguments: Any) -> None:
    content = ctypes.string_at(arguments.serialized_executable, arguments.serialized_executable_size)
    if len(content) < _SERIALIZED.size or content[:8] != _MAGIC:
        raise ArgumentError("the bytes are not a serialised executable of hloom")
    size = _SERIALIZED.unpack_from(content)[1]
    body = content[_SERIALIZED.size :]
    if size > len(body):
        raise ArgumentError("the serialised executable is truncated")
    arguments.loaded_executable = _load(Source.deserialized(body[size:]), body[:size]).handle


@implements("Executable_GetCompiledMemoryStats")
def _memory_stats(arguments: Any) -> None:
    loaded: LoadedExecutable = objects[arguments.executable]
    a = arguments
    for name, _ in type(a)._fields_[3:-1]:
        setattr(a, name, 0)
    a.argument_size_in_bytes = sum(shape.byte_size for shape in loaded.executable.input_shapes)
    a.output_size_in_bytes = sum(shape.byte_size for shape in loaded.output_shapes)
    a.temp_size_in_bytes = loaded.executable.temporary_bytes
    a.alias_size_in_bytes = sum(
        output_size(loaded.module, alias.output_index) for alias in loaded.module.input_output_alias
    )
    if a.struct_size > type(a).peak_memory_in_bytes.offset:  # which older callers do not have
        a.peak_memory_in_bytes = a.argument_size_in_bytes + a.output_size_in_bytes + a.temp_size_in_bytes


@implements("Executable_GetCostAnalysis")
def _cost_analysis(arguments: Any) -> None:
    loaded: LoadedExecutable = objects[arguments.executable]
    shapes = loaded.executable.input_shapes + loaded.output_shapes
    costs = {"bytes accessed": float(sum(shape.byte_size for shape in shapes))}
    flops = count_flops(loaded.read()[0])
    if flops is not None:
        costs["flops"] = float(flops)
    values = (NamedValue * len(costs))()
    loaded.kept_alive.append(values)
    for value, (name, cost) in zip(values, costs.items(), strict=True):
        value.struct_size = ctypes.sizeof(NamedValue)
        value.name, value.name_size = immortal_text(name)
        value.type = 3
        value.value = struct.unpack("<I", struct.pack("<f", cost))[0]
        value.value_size = 1
    arguments.properties = ctypes.addressof(values)
    arguments.num_properties = len(costs)
