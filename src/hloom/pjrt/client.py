"""The PJRT client: virtual devices of this process, devices of other processes, and the memories of each."""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass, field
from typing import Any

from hloom.errors import ArgumentError
from hloom.pjrt.c_api import NamedValue
from hloom.pjrt.handlers import immortal_text, immortal_words, implements
from hloom.pjrt.layouts import MEMORY_SPACES
from hloom.pjrt.native.api import code
from hloom.pjrt.records import new_record, objects, set_word, word_address
from hloom.runtime.device import Device
from hloom.runtime.mpi.world import world_of_nodes
from hloom.system.machine import memory_size
from hloom.system.python_api import immortal

PLATFORM = "hloom"


@dataclass(eq=False)
class Memory:
    """A memory space of one device."""

    device: PjrtDevice
    kind: str
    handle: int = 0


@dataclass(eq=False)
class PjrtDevice:
    """A virtual device and statistics of its buffers.

    `live_bytes` is the size of the buffers that Python made, less those that it released: it may be negative, as Python
    also releases buffers that native code made. `largest` is the size of the largest buffer, `allocations` their
    number.
    """

    id: int
    runtime: Device
    process: int = 0
    memories: list[Memory] = field(default_factory=list)
    handle: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    allocations: int = 0
    largest: int = 0

    @property
    def bytes_in_use(self) -> int:
        """Size in bytes of all buffers: those that Python accounts for, and those that native code does."""
        return self.live_bytes + ctypes.c_int64.from_address(word_address("Device", self.handle, "native_bytes")).value

    def count(self, byte_size: int) -> None:
        """Records a new buffer in the statistics."""
        self.live_bytes += byte_size
        self.allocations += 1
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
        if byte_size > self.largest:
            self.largest = byte_size


@dataclass
class Processes:
    """Index of this process, and the number of processes."""

    index: int = 0
    count: int = 1


PROCESSES = Processes()


@dataclass(eq=False)
class Client:
    """The devices of all processes in order, those of this process, and the index of this process."""

    devices: list[PjrtDevice]
    addressable_devices: list[PjrtDevice]
    process: int
    handle: int = 0
    topology: int = 0


def device_count() -> int:
    """Number of virtual devices of this process: the value of `HLOOM_NUM_DEVICES`, or 1. Raises ArgumentError."""
    requested = os.environ.get("HLOOM_NUM_DEVICES") or "1"
    if not requested.isdecimal() or not 1 <= int(requested) <= 4096:
        raise ArgumentError(f"HLOOM_NUM_DEVICES is a number of devices from 1 to 4096, got {requested!r}")
    return int(requested)


@functools.cache
def client() -> Client:
    """The only client of the process, made at the first call."""
    count, process, processes = device_count(), PROCESSES.index, PROCESSES.count
    if processes > 1 and not world_of_nodes(process, processes).all_equal(count):
        raise ArgumentError("HLOOM_NUM_DEVICES must be the same in all processes")
    devices = [PjrtDevice(i, Device(i), i // count) for i in range(count * processes)]
    new_client = Client(devices, devices[process * count : (process + 1) * count], process)
    descriptions = [
        _add_device(device, device in new_client.addressable_devices, device.id % count)
        for device in new_client.devices
    ]
    _add_client(new_client, descriptions)
    return new_client


def _add_client(new_client: Client, descriptions: list[int]) -> None:
    """Makes the records of a client and of its topology, the descriptions of devices."""
    name, name_size = immortal_text(PLATFORM)
    version, version_size = immortal_text(_version())
    platform = {
        "platform_name": name,
        "platform_name_size": name_size,
        "platform_version": version,
        "platform_version_size": version_size,
    }
    new_client.topology = new_record(
        "TopologyDescription",
        new_client,
        is_immortal=True,
        descriptions=immortal_words(descriptions),
        num_descriptions=len(descriptions),
        serialized_bytes=name,
        serialized_bytes_size=name_size,
        serialized_topology_deleter=code().noop,
        **platform,
    )
    addressable = new_client.addressable_devices
    memories = [memory.handle for device in addressable for memory in device.memories]
    new_client.handle = new_record(
        "Client",
        new_client,
        is_immortal=True,
        devices=immortal_words([device.handle for device in new_client.devices]),
        num_devices=len(new_client.devices),
        process_index=new_client.process,
        addressable_devices=immortal_words([device.handle for device in addressable]),
        num_addressable_devices=len(addressable),
        addressable_memories=immortal_words(memories),
        num_addressable_memories=len(memories),
        topology=new_client.topology,
        **platform,
    )


def _version() -> str:
    from importlib.metadata import version

    return f"hloom {version('hloom')}"


def _add_device(device: PjrtDevice, is_addressable: bool, local_id: int) -> int:
    """Makes the records of a device and of its memories; returns the handle of its description."""
    kind, kind_size = immortal_text("cpu")
    label, label_size = immortal_text(f"HloomDevice(id={device.id})")
    description = new_record(
        "DeviceDescription",
        device,
        is_immortal=True,
        id=device.id,
        process_index=device.process,
        device_kind=kind,
        device_kind_size=kind_size,
        debug_string=label,
        debug_string_size=label_size,
    )
    device.handle = new_record(
        "Device",
        device,
        is_immortal=True,
        device_description=description,
        is_addressable=int(is_addressable),
        local_hardware_id=local_id,
    )
    _add_memories(device)
    return description


def _add_memories(device: PjrtDevice) -> None:
    """Makes the records of the memories of a device."""
    this = immortal_words([device.handle])
    for kind_id, kind in enumerate(MEMORY_SPACES):
        memory = Memory(device, kind)
        text, size = immortal_text(kind)
        shown, shown_size = immortal_text(f"{kind} of HloomDevice(id={device.id})")
        memory.handle = new_record(
            "Memory",
            memory,
            is_immortal=True,
            id=device.id * len(MEMORY_SPACES) + kind_id,
            kind=text,
            kind_size=size,
            kind_id=kind_id,
            debug_string=shown,
            debug_string_size=shown_size,
            devices=this,
            num_devices=1,
        )
        device.memories.append(memory)
    handles = [memory.handle for memory in device.memories]
    set_word("Device", device.handle, "memories", immortal_words(handles))
    set_word("Device", device.handle, "num_memories", len(handles))
    set_word("Device", device.handle, "memory", handles[0])


def memory_of(device: int, memory: int) -> Memory:
    """The memory that a call selects by handles of a device and a memory, of which one may be null."""
    found = objects[memory or device]
    return found if isinstance(found, Memory) else found.memories[0]


@implements("Plugin_Initialize")
def _initialize(arguments: Any) -> None:
    pass


@implements("Plugin_Attributes")
def _attributes(arguments: Any) -> None:
    """Returns the range of StableHLO versions that programs may use: that of jaxlib, which reads bytecode, if any."""
    versions = _bytecode_versions()
    values = immortal((NamedValue * len(versions))())
    for value, (name, version) in zip(values, versions.items(), strict=True):
        value.struct_size = ctypes.sizeof(NamedValue)
        value.name, value.name_size = immortal_text(name)
        value.type = 2
        value.value = immortal_words([int(part) for part in version.split(".")])
        value.value_size = 3
    arguments.attributes = ctypes.addressof(values)
    arguments.num_attributes = len(values)


def _bytecode_versions() -> dict[str, str]:
    """Returns the versions of StableHLO's bytecode that are read; none without jaxlib."""
    try:
        from jaxlib.mlir.dialects import stablehlo
    except ImportError:
        return {}
    return {
        "stablehlo_current_version": stablehlo.get_current_version(),
        "stablehlo_minimum_version": stablehlo.get_minimum_version(),
    }


@implements("Client_Create")
def _create(arguments: Any) -> None:
    """Returns the client. Options `node_id` and `num_nodes` are the index of this process and the process count."""
    options = (NamedValue * arguments.num_options).from_address(arguments.create_options or ctypes.addressof(arguments))
    for option in options[: arguments.num_options]:
        name = ctypes.string_at(option.name, option.name_size).decode()
        if name in ("node_id", "num_nodes") and option.type == 1:
            # An int64 is stored in the field itself, other values by address.
            setattr(PROCESSES, "index" if name == "node_id" else "count", option.value)
    arguments.client = client().handle


@implements("TopologyDescription_Create")
@implements("TopologyDescription_Deserialize")
def _create_topology(arguments: Any) -> None:
    """Returns the topology of this process, which is the only one."""
    arguments.topology = client().topology


@implements("Client_UpdateGlobalProcessInfo")
def _update_global_process_info(arguments: Any) -> None:
    pass  # MPI knows which processes are alive


@implements("Client_Destroy")
def _destroy(arguments: Any) -> None:
    pass  # the only client lives as long as the process


@implements("Client_LookupDevice")
def _lookup_device(arguments: Any) -> None:
    arguments.device = _device(arguments.id).handle


@implements("Client_LookupAddressableDevice")
def _lookup_addressable_device(arguments: Any) -> None:
    addressable_devices = client().addressable_devices
    arguments.device = _device(addressable_devices[0].id + arguments.local_hardware_id).handle


def _device(device_id: int) -> PjrtDevice:
    devices = client().devices
    if not 0 <= device_id < len(devices):
        raise ArgumentError(f"there is no device {device_id}: hloom has {len(devices)} (HLOOM_NUM_DEVICES)")
    return devices[device_id]


@implements("Client_DefaultDeviceAssignment")
def _default_device_assignment(arguments: Any) -> None:
    """Returns device ids in order of replicas and then partitions."""
    wanted = arguments.num_replicas * arguments.num_partitions
    if wanted > len(client().devices):
        raise ArgumentError(
            f"{arguments.num_replicas} replicas of {arguments.num_partitions} partitions need {wanted} devices, "
            f"hloom has {len(client().devices)} (HLOOM_NUM_DEVICES)"
        )
    table = (ctypes.c_int32 * arguments.size).from_address(arguments.assignment)
    table[:] = list(range(arguments.size))


@implements("Device_MemoryStats")
def _memory_stats(arguments: Any) -> None:
    device: PjrtDevice = objects[arguments.device]
    arguments.bytes_in_use = device.bytes_in_use
    for name, value in (
        ("peak_bytes_in_use", max(device.peak_bytes, device.bytes_in_use)),
        ("num_allocs", device.allocations),
        ("largest_alloc_size", device.largest),
        ("bytes_limit", memory_size()),
    ):
        setattr(arguments, name, value)
        setattr(arguments, f"{name}_is_set", True)
    for name in ("bytes_reserved", "peak_bytes_reserved", "bytes_reservable_limit", "largest_free_block_bytes"):
        setattr(arguments, f"{name}_is_set", False)
    arguments.pool_bytes_is_set = arguments.peak_pool_bytes_is_set = False
