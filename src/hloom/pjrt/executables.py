"""PJRT executables: compilation, queries and execution of programs."""

from __future__ import annotations

import collections
import ctypes
import functools
import hashlib
import math
import struct
import threading
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from hloom.api import compile as compile_hlo
from hloom.backends.cpu.executable import CpuExecutable
from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.errors import ArgumentError
from hloom.flops import count_flops
from hloom.garbage import older_objects_frozen
from hloom.ir import Module
from hloom.ops.custom_call import CustomCall
from hloom.passes import run_passes
from hloom.passes.spmd import partition
from hloom.pjrt.buffers import TYPE_CODES, Buffer, buffer_words, layout_handle
from hloom.pjrt.c_api import ExecuteOptions, NamedValue, Program
from hloom.pjrt.client import Memory, PjrtDevice, client
from hloom.pjrt.events import ready_event
from hloom.pjrt.executable_cache import CachedProgram, Shardings, cache_program, find_cached
from hloom.pjrt.fast_execute import enable_native, transfer_to_native
from hloom.pjrt.handlers import PjrtError, address_of, immortal_text, implements, read_integers, read_words
from hloom.pjrt.layouts import in_row_major, minor_to_major
from hloom.pjrt.native import code, free_retired, refill_records, wait_for_tasks
from hloom.pjrt.programs import Source
from hloom.pjrt.records import new_record, objects, set_word, word_address
from hloom.proto import module_to_proto
from hloom.proto.annotations import write_sharding
from hloom.proto.schema import message_class
from hloom.runtime.executable import DeviceExecutable, RunOptions
from hloom.runtime.serialization import DataFormat
from hloom.sharding import Sharding, ShardingType
from hloom.shield import shielded
from hloom.values import Array, Value


class LoadedExecutable:
    """A compiled program and its devices: that of replica r and partition p is at index r * partitions + p."""

    def __init__(self, program: Source, serialized_options: bytes) -> None:
        self.program = program
        self.serialized_options = serialized_options
        options = message_class("CompileOptionsProto").FromString(serialized_options)
        _check_overrides(options.env_option_overrides)
        build = options.executable_build_options
        self.replicas = max(1, build.num_replicas)
        self.partitions = max(1, build.num_partitions)
        self.options = options
        self.is_portable = options.compile_portable_executable
        self.devices = _assigned_devices(build, self.replicas, self.partitions)
        self.addressable_devices = [device for device in self.devices if device.process == client().process]
        self.shardings: Shardings | None = None
        self.is_cached = False
        """Whether the program is in the cache on disk."""
        self.executable, self.module = self._from_cache() or self._compiled()
        self.donated = _donated_parameters(self.module)
        self.output_shapes = list((self.module.entry_result_layout or self.module.entry.result_shape).elements)
        inputs = self.module.entry_parameter_layouts or self.module.entry.parameter_shapes
        self.input_orders = [minor_to_major(shape) if shape.is_array else () for shape in inputs]
        self.output_orders = [minor_to_major(shape) for shape in self.output_shapes]
        self.memories = [device.memories[0] for device in self.addressable_devices]
        self._kept_alive: list[Any] = []
        self.executable_words = self._executable_words()
        self.handle = self._loaded_record()
        self.is_native = False
        self._enable_native()

    def _from_cache(self) -> tuple[DeviceExecutable, Module] | None:
        """Looks a program for one device up in the cache on disk; returns it and its interface."""
        found = find_cached(self.fingerprint) if len(self.devices) == 1 else None
        if found is None:
            return None
        self.is_cached = True
        known, compiled = found
        self.shardings = known.shardings
        where = RunOptions(1, [device.runtime for device in self.devices], math.inf, None, False)
        return CpuExecutable(known.in_memory, where, compiled), known.module

    def _compiled(self) -> tuple[DeviceExecutable, Module]:
        """Reads and compiles the program; returns the executable and the module before the backend's passes."""
        module, self.shardings = self.read()
        devices = [device.runtime for device in self.devices]
        in_memory = in_row_major(module)
        executable = compile_hlo(
            in_memory, replicas=self.replicas, devices=devices, donate=True, distributed=self._ranks or False
        )
        if isinstance(executable, CpuExecutable) and len(self.devices) == 1 and executable.key:
            self.is_cached = True
            cache_program(self.fingerprint, CachedProgram.of(module, self.shardings, in_memory, executable.key))
        return cast(DeviceExecutable, executable), module

    @property
    def _ranks(self) -> list[int]:
        """The MPI rank of each device; empty if a single process has all of them."""
        ranks = [device.process for device in self.devices]
        return ranks if len({*ranks}) > 1 else []

    def read(self) -> tuple[Module, Shardings | None]:
        """Reads the program of one partition, before the backend's passes, and its shardings, None without any."""
        whole = self.program.read()
        whole.replica_count = self.replicas
        module, shardings = _partitioned(whole, self.options.executable_build_options, self.partitions)
        module.num_partitions = self.partitions
        _drop_unusable_donors(module)
        self.program.set_layouts(module)
        return module, shardings

    def words(self, values: list[int]) -> int:
        """Address of an array of 64-bit words that lives as long as the executable."""
        array = (ctypes.c_uint64 * max(1, len(values)))(*values)
        self._kept_alive.append(array)
        return ctypes.addressof(array)

    def address_of_bytes(self, content: bytes) -> int:
        """Address of bytes that live as long as the executable."""
        self._kept_alive.append(content)
        return address_of(content)

    def _enable_native(self) -> None:
        """Lets native code run the program, if it can."""
        entry = self.executable.native_entry() if isinstance(self.executable, CpuExecutable) else None
        if entry is None or not self.addressable_devices:
            return
        memory = self.memories[0]
        results = [
            buffer_words(shape.dimensions, order, shape.element_type.dtype, memory, 0)
            for shape, order in zip(self.output_shapes, self.output_orders, strict=True)
        ]
        self.is_native = enable_native(
            self.handle, entry, self.executable_words["parameter_layouts"], results, self.donated
        )

    def take_failure(self, arguments: Any) -> bool:
        """Whether this call has failed in native code; clears that state."""
        failed_call = ctypes.c_uint64.from_address(word_address("LoadedExecutable", self.handle, "failed_call"))
        is_this = failed_call.value == ctypes.addressof(arguments)
        if is_this:
            failed_call.value = 0
        return is_this

    def _executable_words(self) -> dict[str, int]:
        """Words of the records of kind Executable, by name."""
        name = self.module.name.encode()
        fingerprint = self.fingerprint.encode()
        outputs = self.output_shapes
        kind, kind_size = immortal_text("device")
        types = (ctypes.c_int32 * max(1, len(outputs)))(*(TYPE_CODES[shape.element_type] for shape in outputs))
        self._kept_alive.append(types)
        inputs = list(map(layout_handle, self.input_orders))
        parameter_shardings, output_shardings = self.shardings or ([], [])
        return {
            "num_parameters": len(inputs),
            "parameter_layouts": self.words(inputs),
            **self._sharding_words("parameter", parameter_shardings),
            **self._sharding_words("output", output_shardings),
            "executable_name": self.address_of_bytes(name),
            "executable_name_size": len(name),
            "num_replicas": self.replicas,
            "num_partitions": self.partitions,
            "num_outputs": len(outputs),
            "size_in_bytes": 0,
            "memory_kinds": self.words([kind] * len(outputs)),
            "memory_kind_sizes": self.words([kind_size] * len(outputs)),
            "output_types": ctypes.addressof(types),
            "layouts": self.words([layout_handle(order) for order in self.output_orders]),
            "dims": self.words([size for shape in outputs for size in shape.dimensions]),
            "dim_sizes": self.words([shape.rank for shape in outputs]),
            "executable_fingerprint": self.address_of_bytes(fingerprint),
            "executable_fingerprint_size": len(fingerprint),
            "serialized_bytes": self.address_of_bytes(self.serialized_options),
            "serialized_bytes_size": len(self.serialized_options),
            "serialized_compile_options_deleter": code().noop,
        }

    def _sharding_words(self, role: str, shardings: list[Sharding]) -> dict[str, int]:
        """Words for serialised shardings of a role (parameter, output); null without any."""
        texts = [write_sharding(sharding).SerializeToString() for sharding in shardings]
        return {
            f"num_{role}_shardings": len(texts),
            f"{role}_shardings": self.words(list(map(self.address_of_bytes, texts))) if texts else 0,
            f"{role}_sharding_sizes": self.words(list(map(len, texts))) if texts else 0,
        }

    def _loaded_record(self) -> int:
        assignment = b"" if self.is_portable else _device_assignment(self)
        return new_record(
            "LoadedExecutable",
            self,
            addressable_devices=self.words([device.handle for device in self.addressable_devices]),
            num_addressable_devices=len(self.addressable_devices),
            executable_fingerprint=self.executable_words["executable_fingerprint"],
            executable_fingerprint_size=self.executable_words["executable_fingerprint_size"],
            serialized_bytes=self.address_of_bytes(assignment),
            serialized_bytes_size=len(assignment),
            serialized_device_assignment_deleter=code().noop,
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of program and options, less those unknown to hloom, whose order differs between processes."""
        known = type(self.options).FromString(self.serialized_options)
        known.DiscardUnknownFields()
        return hashlib.sha256(known.SerializeToString(deterministic=True) + self.program.serialized).hexdigest()

    @functools.cached_property
    def optimized(self) -> bytes:
        """The module after the backend's passes, as a serialised HloModuleProtoWithConfig."""
        key = f"{self.fingerprint} optimized"
        found: bytes | None = find_program(key, DataFormat()) if self.is_cached else None
        if found is None:
            found = self._optimized()
            if self.is_cached:
                keep_program(key, found, DataFormat())
        return found

    def _optimized(self) -> bytes:
        module, _ = self.read()
        run_passes(module, cpu_pipeline(Topology.of(len(self.devices), self._ranks)))
        proto = message_class("HloModuleProtoWithConfig")()
        proto.hlo_module.CopyFrom(module_to_proto(module))
        if self.shardings is not None:
            inputs, outputs = self.shardings
            proto.hlo_module.spmd_parameters_shardings.extend(map(write_sharding, inputs))
            if outputs:  # JAX would read the sharding of an empty tuple as that of one element
                whole = Sharding(ShardingType.TUPLE, tuple_shardings=tuple(outputs))
                proto.hlo_module.spmd_output_sharding.CopyFrom(write_sharding(whole))
        config = proto.config
        config.entry_computation_layout.CopyFrom(proto.hlo_module.host_program_shape)
        config.replica_count, config.num_partitions = self.replicas, self.partitions
        config.use_spmd_partitioning = self.partitions > 1
        return bytes(proto.SerializeToString())

    def run(self, arguments: list[list[Array]]) -> list[tuple[Array, ...]]:
        """Runs the program on its devices in this process, if any; returns the flat results of each."""
        if not self.addressable_devices:
            return []
        if self.executable.device_count == 1:
            results: list[Value] = [self.executable(*arguments[0])]
        else:
            results = self.executable.run_replicas(arguments)
            if not self.is_native:
                # Programs of several ranks can run natively after the first run, in which the ranks connect.
                self._enable_native()
        return results  # the root is a tuple of arrays


def _check_overrides(overrides: Iterable[str]) -> None:
    """Ignores XLA's flags; raises ArgumentError for names that are no option of XLA."""
    for name in overrides:
        if not name.startswith("xla_") and name not in _XLA_OPTIONS:
            raise ArgumentError(f"No such compile option: {name!r}")


_XLA_OPTIONS = {
    *("exec_time_optimization_effort", "memory_fitting_effort", "optimization_level", "memory_fitting_level"),
    *("num_replicas", "num_partitions", "use_shardy_partitioner", "use_spmd_partitioning"),
}


def _assigned_devices(build: Any, replicas: int, partitions: int) -> list[PjrtDevice]:
    devices = client().devices
    device_ids = list(range(replicas * partitions))
    if build.HasField("device_assignment"):
        computations = build.device_assignment.computation_devices
        device_ids = [computations[p].replica_device_ids[r] for r in range(replicas) for p in range(partitions)]
    elif replicas * partitions == 1 and build.device_ordinal > 0:
        device_ids = [build.device_ordinal]
    for index in device_ids:
        if not 0 <= index < len(devices):
            raise ArgumentError(
                f"the program is compiled for device {index}, hloom has {len(devices)}: set HLOOM_NUM_DEVICES"
            )
    return [devices[index] for index in device_ids]


def _device_assignment(loaded: LoadedExecutable) -> bytes:
    proto = message_class("DeviceAssignmentProto")()
    proto.replica_count, proto.computation_count = loaded.replicas, loaded.partitions
    for index in range(loaded.partitions):
        device_ids = [device.id for device in loaded.devices[index :: loaded.partitions]]
        proto.computation_devices.add(replica_device_ids=device_ids)
    return bytes(proto.SerializeToString())


def _partitioned(module: Module, build: Any, partitions: int) -> tuple[Module, Shardings | None]:
    """Partitions a module; returns the program of one partition and the shardings, None without any."""
    if partitions == 1 and not any(i.sharding or isinstance(i.op, CustomCall) for i in module.instructions()):
        return module, None
    open_results = list(build.allow_spmd_sharding_propagation_to_output) or None
    open_parameters = list(build.allow_spmd_sharding_propagation_to_parameters) or None
    found = partition(module, partitions, open_results, open_parameters)
    return found.module, (found.parameters, found.results)


def _drop_unusable_donors(module: Module) -> None:
    """Removes buffer donors for which there is no result of the same size; the caller keeps these arguments."""
    free = collections.Counter(leaf.byte_size for leaf in module.entry.result_shape.leaves() if leaf.is_array)
    free.subtract(_output_size(module, alias.output_index) for alias in module.input_output_alias)
    parameters, useful = module.entry.parameter_shapes, []
    for donor in module.buffer_donors:
        size = parameters[donor.parameter_number].subshape(donor.parameter_index).byte_size
        if free[size] > 0:
            free[size] -= 1
            useful.append(donor)
    module.buffer_donors = useful


def _donated_parameters(module: Module) -> frozenset[int]:
    """Numbers of the parameters whose buffers are donated to the program."""
    return frozenset(
        [alias.parameter_number for alias in module.input_output_alias]
        + [donor.parameter_number for donor in module.buffer_donors]
    )


@implements("Client_Compile")
def _compile(arguments: Any) -> None:
    free_retired()
    program = Program.from_address(arguments.program)
    format = ctypes.string_at(program.format, program.format_size).decode("utf-8", "replace")
    content = ctypes.string_at(program.code, program.code_size)
    options = ctypes.string_at(arguments.compile_options, arguments.compile_options_size)
    arguments.executable = _load(Source(format, content), options).handle


@shielded
@older_objects_frozen()
def _load(source: Source, options: bytes) -> LoadedExecutable:
    return LoadedExecutable(source, options)


@implements("LoadedExecutable_GetExecutable")
def _get_executable(arguments: Any) -> None:
    loaded: LoadedExecutable = objects[arguments.loaded_executable]
    arguments.executable = new_record("Executable", loaded, is_immortal=False, **loaded.executable_words)


@implements("LoadedExecutable_Delete")
def _delete(arguments: Any) -> None:
    set_word("LoadedExecutable", arguments.executable, "is_deleted", 1)


@implements("LoadedExecutable_Execute")
def _execute(arguments: Any) -> None:
    a = arguments
    free_retired()
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
    memories = loaded.memories if not a.execute_device else [objects[a.execute_device].memories[0]]
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
    for memory, values, address in zip(memories, results, read_words(a.output_lists, devices), strict=True):
        _put_results(values, loaded.output_orders, memory, address)
    if a.device_complete_events:
        events = (ctypes.c_uint64 * devices).from_address(a.device_complete_events)
        events[:] = [ready_event()] * devices


_retry = threading.local()
"""`is_active` is true while native code retries a call; if that reaches the handler again, Python runs the program."""


def _retry_native(loaded: LoadedExecutable, arguments: Any) -> None:
    """Supplies what native code may have lacked (records, ownership of donated buffers), and runs the call natively."""
    refill_records(len(loaded.output_shapes))
    handles = read_words(read_words(arguments.argument_lists, 1)[0], arguments.num_args)
    for index in _parameters_to_donate(loaded, arguments.options) if loaded.donated else ():
        # Not objects[..], which would take the buffer away from native code.
        buffer = objects.get(handles[index])
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


def _put_results(values: tuple[Array, ...], orders: list[tuple[int, ...]], memory: Memory, address: int) -> None:
    if values:
        outputs = (ctypes.c_uint64 * len(values)).from_address(address)
        # JAX represents tokens by empty arrays of type bool.
        arrays = [value if isinstance(value, np.ndarray) else np.zeros(0, np.bool_) for value in values]
        outputs[:] = [
            Buffer(array, memory, order=order if len(order) == array.ndim else None).handle
            for array, order in zip(arrays, orders, strict=True)
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
        _output_size(loaded.module, alias.output_index) for alias in loaded.module.input_output_alias
    )
    if a.struct_size > type(a).peak_memory_in_bytes.offset:
        a.peak_memory_in_bytes = a.argument_size_in_bytes + a.output_size_in_bytes + a.temp_size_in_bytes


def _output_size(module: Module, index: tuple[int, ...]) -> int:
    return module.entry.result_shape.subshape(index).byte_size


@implements("Executable_GetCostAnalysis")
def _cost_analysis(arguments: Any) -> None:
    loaded: LoadedExecutable = objects[arguments.executable]
    shapes = loaded.executable.input_shapes + loaded.output_shapes
    costs = {"bytes accessed": float(sum(shape.byte_size for shape in shapes))}
    flops = count_flops(loaded.read()[0])
    if flops is not None:
        costs["flops"] = float(flops)
    values = (NamedValue * len(costs))()
    loaded._kept_alive.append(values)
    for value, (name, cost) in zip(values, costs.items(), strict=True):
        value.struct_size = ctypes.sizeof(NamedValue)
        value.name, value.name_size = immortal_text(name)
        value.type = 3
        value.value = struct.unpack("<I", struct.pack("<f", cost))[0]
        value.value_size = 1
    arguments.properties = ctypes.addressof(values)
    arguments.num_properties = len(costs)
