"""A program that is compiled and loaded on its devices, and the words of its records."""

from __future__ import annotations

import collections
import ctypes
import hashlib
import math
from typing import Any, cast

from hloom.api import compile as compile_hlo
from hloom.backends.cpu.executable import CpuExecutable
from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.ops.custom_call import CustomCall
from hloom.passes import run_passes
from hloom.passes.spmd.partitioner import partition
from hloom.pjrt.buffers import TYPE_CODES, buffer_words, layout_handle
from hloom.pjrt.client import Memory, PjrtDevice, client
from hloom.pjrt.compile_options import check_overrides
from hloom.pjrt.executable_cache import CachedProgram, Shardings, cache_program, find_cached
from hloom.pjrt.fast_execute import enable_native
from hloom.pjrt.handlers import address_of, immortal_text
from hloom.pjrt.layouts import in_row_major, memory_kind, minor_to_major
from hloom.pjrt.native.api import code
from hloom.pjrt.programs import Source
from hloom.pjrt.records import new_record, word_address
from hloom.proto import module_to_proto
from hloom.proto.annotations import write_sharding
from hloom.proto.schema import message_class
from hloom.runtime.executable import DeviceExecutable, RunOptions
from hloom.runtime.serialization import DataFormat
from hloom.sharding import Sharding, ShardingType
from hloom.system.lazy import cached_property
from hloom.system.machine import wants_batch_invariance
from hloom.values import Array, Value


class LoadedExecutable:
    """A compiled program and its devices: that of replica r and partition p is at index r * partitions + p."""

    def __init__(self, program: Source, serialized_options: bytes) -> None:
        self.program = program
        self.serialized_options = serialized_options
        options = message_class("CompileOptionsProto").FromString(serialized_options)
        check_overrides(options.env_option_overrides)
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
        self.memories = [self.memories_on(device) for device in self.addressable_devices]
        self.kept_alive: list[Any] = []
        self.executable_words = self._executable_words()
        self.handle = self._loaded_record()
        self.is_native = False
        self._enable_native()

    def _from_cache(self) -> tuple[DeviceExecutable, Module] | None:
        """Looks a program for devices of this process up in the cache on disk; returns it and its interface."""
        found = find_cached(self.fingerprint) if not self._ranks else None
        if found is None:
            return None
        self.is_cached = True
        known, compiled = found
        self.shardings = known.shardings
        for module in (known.module, known.in_memory):
            module.replica_count, module.num_partitions = self.replicas, self.partitions
        where = RunOptions(self.replicas, [device.runtime for device in self.devices], math.inf)
        return CpuExecutable(known.in_memory, where, compiled), known.module

    def _compiled(self) -> tuple[DeviceExecutable, Module]:
        """Reads and compiles the program; returns the executable and the module before the backend's passes."""
        module, self.shardings = self.read()
        devices = [device.runtime for device in self.devices]
        in_memory = in_row_major(module)
        executable = compile_hlo(
            in_memory, replicas=self.replicas, devices=devices, donate=True, distributed=self._ranks or False
        )
        if isinstance(executable, CpuExecutable) and not self._ranks and executable.key:
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
        self.kept_alive.append(array)
        return ctypes.addressof(array)

    def address_of_bytes(self, content: bytes) -> int:
        """Address of bytes that live as long as the executable."""
        self.kept_alive.append(content)
        return address_of(content)

    def _enable_native(self) -> None:
        """Lets native code run the program, if it can."""
        entry = self.executable.native_entry() if isinstance(self.executable, CpuExecutable) else None
        if entry is None or not self.addressable_devices:
            return
        outputs = [*zip(self.output_shapes, self.output_orders, strict=True)]
        results = [
            [
                buffer_words(shape.dimensions, order, shape.element_type.dtype, memory, 0)
                for (shape, order), memory in zip(outputs, memories, strict=True)
            ]
            for memories in self.memories
        ]
        self.is_native = enable_native(
            self.handle, entry, self.executable_words["parameter_layouts"], results, self.donated
        )

    def memories_on(self, device: PjrtDevice) -> list[Memory]:
        """Returns the memory of each result on a device."""
        memories = {memory.kind: memory for memory in device.memories}
        return [memories[memory_kind(shape)] for shape in self.output_shapes]

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
        kinds = [immortal_text(memory_kind(shape)) for shape in outputs]
        types = (ctypes.c_int32 * max(1, len(outputs)))(*(TYPE_CODES[shape.element_type] for shape in outputs))
        self.kept_alive.append(types)
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
            "memory_kinds": self.words([address for address, _ in kinds]),
            "memory_kind_sizes": self.words([size for _, size in kinds]),
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

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of program and options, less those unknown to hloom, whose order differs between processes."""
        known = type(self.options).FromString(self.serialized_options)
        known.DiscardUnknownFields()
        content = known.SerializeToString(deterministic=True) + self.program.serialized
        return hashlib.sha256(content + bytes([wants_batch_invariance()])).hexdigest()

    @cached_property
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
            if not self.is_native and self._ranks:
                # Programs of several ranks can run natively after the first run, in which the ranks connect.
                self._enable_native()
        return results  # the root is a tuple of arrays


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
    free.subtract(output_size(module, alias.output_index) for alias in module.input_output_alias)
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


def output_size(module: Module, index: tuple[int, ...]) -> int:
    """Returns the size in bytes of an element of the result."""
    return module.entry.result_shape.subshape(index).byte_size
