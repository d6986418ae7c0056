"""Declaration of the PJRT C interface: the functions, their implementations, and the fields of their arguments.

PJRT is the interface through which JAX and other frameworks use a platform: a structure of function pointers. Each
function takes a pointer to an argument structure and returns a PJRT_Error or null. The table below replaces XLA's
header and lists the functions in the order of the structure. Further tables declare the extensions for layouts and
shardings.

A line reads `Name implementation: inputs -> outputs`. Fields are 64-bit words (pointers, handles, sizes) unless a type
follows the name (`id:i32`). Implementations are

- `get`: a native function that copies the outputs from words of the record of the first input (`native/api.py`). The
  word has the name of the output, or that given by `output=word`;
- `destroy`: a native function that puts the record on the retire list;
- `native`: a specific native function (`native/execute.py`, `native/transfers.py`, `native/async_dispatch.py`), or one
  without effect;
- `python`: a Python handler, registered with `implements`. Some are only the slow path of a native function of the same
  name (listed in `native/api.py`);
- nothing: the function is not implemented, and returns an error that says so.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from hloom.system.records import record
from hloom.target import align_up

VERSION = (0, 93)

_TABLE = """
Error_Destroy destroy: error
Error_Message get: error -> message, message_size
Error_GetCode get: error -> code:i32
Plugin_Initialize python:
Plugin_Attributes python: -> attributes, num_attributes
Event_Destroy destroy: event
Event_IsReady native: event -> is_ready:bool
Event_Error python: event
Event_Await python: event
Event_OnReady python: event, callback, user_arg
Client_Create python: create_options, num_options, kv_get, kv_get_arg, kv_put, kv_put_arg -> client
Client_Destroy python: client
Client_PlatformName get: client -> platform_name, platform_name_size
Client_ProcessIndex get: client -> process_index:i32
Client_PlatformVersion get: client -> platform_version, platform_version_size
Client_Devices get: client -> devices, num_devices
Client_AddressableDevices get: client -> addressable_devices, num_addressable_devices
Client_LookupDevice python: client, id:i32 -> device
Client_LookupAddressableDevice python: client, local_hardware_id:i32 -> device
Client_AddressableMemories get: client -> addressable_memories, num_addressable_memories
Client_Compile python: client, program, compile_options, compile_options_size -> executable
Client_DefaultDeviceAssignment python: client, num_replicas:i32, num_partitions:i32, size, assignment
Client_BufferFromHostBuffer python: client, data, type:i32, dims, num_dims, byte_strides, num_byte_strides,
    host_buffer_semantics:i32, device, memory, device_layout -> done_with_host_buffer, buffer
DeviceDescription_Id get: device_description -> id:i32
DeviceDescription_ProcessIndex get: device_description -> process_index:i32
DeviceDescription_Attributes get: device_description -> num_attributes, attributes
DeviceDescription_Kind get: device_description -> device_kind, device_kind_size
DeviceDescription_DebugString get: device_description -> debug_string, debug_string_size
DeviceDescription_ToString get: device_description -> to_string=debug_string, to_string_size=debug_string_size
Device_GetDescription get: device -> device_description
Device_IsAddressable get: device -> is_addressable:bool
Device_LocalHardwareId get: device -> local_hardware_id:i32
Device_AddressableMemories get: device -> memories, num_memories
Device_DefaultMemory get: device -> memory
Device_MemoryStats python: device -> bytes_in_use, peak_bytes_in_use, peak_bytes_in_use_is_set:bool, num_allocs,
    num_allocs_is_set:bool, largest_alloc_size, largest_alloc_size_is_set:bool, bytes_limit, bytes_limit_is_set:bool,
    bytes_reserved, bytes_reserved_is_set:bool, peak_bytes_reserved, peak_bytes_reserved_is_set:bool,
    bytes_reservable_limit, bytes_reservable_limit_is_set:bool, largest_free_block_bytes,
    largest_free_block_bytes_is_set:bool, pool_bytes, pool_bytes_is_set:bool, peak_pool_bytes,
    peak_pool_bytes_is_set:bool
Memory_Id get: memory -> id:i32
Memory_Kind get: memory -> kind, kind_size
Memory_DebugString get: memory -> debug_string, debug_string_size
Memory_ToString get: memory -> to_string=debug_string, to_string_size=debug_string_size
Memory_AddressableByDevices get: memory -> devices, num_devices
Executable_Destroy destroy: executable
Executable_Name get: executable -> executable_name, executable_name_size
Executable_NumReplicas get: executable -> num_replicas
Executable_NumPartitions get: executable -> num_partitions
Executable_NumOutputs get: executable -> num_outputs
Executable_SizeOfGeneratedCodeInBytes get: executable -> size_in_bytes
Executable_GetCostAnalysis python: executable -> num_properties, properties
Executable_OutputMemoryKinds get: executable -> num_outputs, memory_kinds, memory_kind_sizes
Executable_OptimizedProgram python: executable, program
Executable_Serialize python: executable -> serialized_bytes, serialized_bytes_size, serialized_executable, deleter
LoadedExecutable_Destroy destroy: executable
LoadedExecutable_GetExecutable python: loaded_executable -> executable
LoadedExecutable_AddressableDevices get: executable -> addressable_devices, num_addressable_devices
LoadedExecutable_Delete python: executable
LoadedExecutable_IsDeleted get: executable -> is_deleted:bool
LoadedExecutable_Execute python: executable, options, argument_lists, num_devices, num_args, output_lists,
    device_complete_events, execute_device
Executable_DeserializeAndLoad python: client, serialized_executable, serialized_executable_size -> loaded_executable
LoadedExecutable_Fingerprint get: executable -> executable_fingerprint, executable_fingerprint_size
Buffer_Destroy destroy: buffer
Buffer_ElementType get: buffer -> type:i32
Buffer_Dimensions get: buffer -> dims, num_dims
Buffer_UnpaddedDimensions get: buffer -> unpadded_dims=dims, num_dims
Buffer_DynamicDimensionIndices get: buffer -> dynamic_dim_indices=dims, num_dynamic_dims
Buffer_GetMemoryLayout get: buffer, layout_struct_size, layout_extension_start, tiled_struct_size,
    tiled_extension_start -> minor_to_major, minor_to_major_size=num_dims, tile_dims=zero, tile_dim_sizes=zero,
    num_tiles=zero, type:i32=zero
Buffer_OnDeviceSizeInBytes get: buffer -> on_device_size_in_bytes
Buffer_Device get: buffer -> device
Buffer_Memory get: buffer -> memory
Buffer_Delete python: buffer
Buffer_IsDeleted get: buffer -> is_deleted:bool
Buffer_CopyToDevice python: buffer, dst_device -> dst_buffer
Buffer_ToHostBuffer python: src, host_layout, dst, dst_size -> event
Buffer_IsOnCpu get: buffer -> is_on_cpu:bool
Buffer_ReadyEvent python: buffer -> event
Buffer_UnsafePointer get: buffer -> buffer_pointer
Buffer_IncreaseExternalReferenceCount python: buffer
Buffer_DecreaseExternalReferenceCount native: buffer
Buffer_OpaqueDeviceMemoryDataPointer get: buffer -> device_memory_ptr=buffer_pointer
CopyToDeviceStream_Destroy
CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes
CopyToDeviceStream_GranuleSize
CopyToDeviceStream_CurrentBytes
TopologyDescription_Create python: topology_name, topology_name_size, create_options, num_options -> topology
TopologyDescription_Destroy destroy: topology
TopologyDescription_PlatformName get: topology -> platform_name, platform_name_size
TopologyDescription_PlatformVersion get: topology -> platform_version, platform_version_size
TopologyDescription_GetDeviceDescriptions get: topology -> descriptions, num_descriptions
TopologyDescription_Serialize get: topology -> serialized_bytes, serialized_bytes_size,
    serialized_topology=serialized_bytes, serialized_topology_deleter
TopologyDescription_Attributes get: topology -> attributes, num_attributes
Compile python: topology, program, compile_options, compile_options_size, client -> executable
Executable_OutputElementTypes get: executable -> output_types, num_output_types=num_outputs
Executable_OutputDimensions get: executable -> num_outputs, dims, dim_sizes
Buffer_CopyToMemory python: buffer, dst_memory -> dst_buffer
Client_CreateViewOfDeviceBuffer python: client, device_buffer_ptr, dims, num_dims, element_type:i32, layout, device,
    on_delete_callback, on_delete_callback_arg, stream -> buffer, memory
Executable_Fingerprint get: executable -> executable_fingerprint, executable_fingerprint_size
Client_TopologyDescription get: client -> topology
Executable_GetCompiledMemoryStats python: executable -> generated_code_size_in_bytes, argument_size_in_bytes,
    output_size_in_bytes, alias_size_in_bytes, temp_size_in_bytes, host_generated_code_size_in_bytes,
    host_argument_size_in_bytes, host_output_size_in_bytes, host_alias_size_in_bytes, host_temp_size_in_bytes,
    peak_memory_in_bytes
Memory_Kind_Id get: memory -> kind_id:i32
ExecuteContext_Create
ExecuteContext_Destroy
Buffer_CopyRawToHost python: buffer, dst, offset, transfer_size -> event
AsyncHostToDeviceTransferManager_Destroy destroy: transfer_manager
AsyncHostToDeviceTransferManager_TransferData python: transfer_manager, buffer_index:i32, data, offset, transfer_size,
    is_last_transfer:bool -> done_with_h2d_transfer
Client_CreateBuffersForAsyncHostToDevice python: client, shape_specs, num_shape_specs, device_layouts,
    num_device_layouts, memory -> transfer_manager
AsyncHostToDeviceTransferManager_RetrieveBuffer python: transfer_manager, buffer_index:i32 -> buffer_out
AsyncHostToDeviceTransferManager_Device get: transfer_manager -> device_out
AsyncHostToDeviceTransferManager_BufferCount get: transfer_manager -> buffer_count
AsyncHostToDeviceTransferManager_BufferSize python: transfer_manager, buffer_index:i32 -> buffer_size
AsyncHostToDeviceTransferManager_SetBufferError python: transfer_manager, buffer_index:i32, error_code:i32,
    error_message, error_message_size
AsyncHostToDeviceTransferManager_AddMetadata python: transfer_manager, transfer_metadata, num_metadata
Client_DmaMap python: client, data, size
Client_DmaUnmap python: client, data
Client_CreateUninitializedBuffer python: client, shape_dims, shape_num_dims, shape_element_type:i32, shape_layout,
    device, memory -> buffer
Client_UpdateGlobalProcessInfo python: client, process_infos, num_process_infos
TopologyDescription_Deserialize python: serialized_topology, serialized_topology_size -> topology
Client_CreateAliasBuffer
Client_FulfillAliasBuffer
LoadedExecutable_GetDeviceAssignment get: executable -> serialized_bytes, serialized_bytes_size,
    serialized_device_assignment=serialized_bytes, serialized_device_assignment_deleter
Client_CreateErrorBuffer python: client, error_code:i32, error_message, error_message_size, shape_dims, shape_num_dims,
    shape_element_type:i32, shape_layout, memory -> buffer
AsyncHostToDeviceTransferManager_TransferLiteral python: transfer_manager, buffer_index:i32, data, shape_dims,
    shape_num_dims, shape_element_type:i32, shape_layout -> done_with_h2d_transfer
Buffer_CopyRawToHostFuture
Device_PoisonExecution
Device_CreateAsyncTrackingEvent
AsyncTrackingEvent_Destroy
Executable_GetCompileOptions get: executable -> serialized_bytes, serialized_bytes_size,
    serialized_compile_options=serialized_bytes, serialized_compile_options_deleter
Buffer_DonateWithControlDependency
Event_Create
Event_Set
"""

_LAYOUTS_TABLE = """
MemoryLayout_Destroy destroy: layout
MemoryLayout_Serialize get: layout -> serialized_bytes, serialized_bytes_size, serialized_layout=serialized_bytes,
    deleter
Client_GetDefaultLayout python: client, type:i32, dims, num_dims -> layout
Buffer_MemoryLayout get: buffer -> layout=layout_handle
TopologyDescription_GetDefaultLayout python: topology, type:i32, dims, num_dims -> layout
Executable_GetOutputLayouts get: executable -> num_outputs, layouts
Executable_GetParameterLayouts get: executable -> num_parameters, layouts=parameter_layouts
"""

_SHARDINGS_TABLE = """
Executable_ParameterShardings get: executable -> num_parameters=num_parameter_shardings, shardings=parameter_shardings,
    sharding_sizes=parameter_sharding_sizes
Executable_OutputShardings get: executable -> num_outputs=num_output_shardings, shardings=output_shardings,
    sharding_sizes=output_sharding_sizes
"""

EXTENSIONS = {4: _LAYOUTS_TABLE, 19: _SHARDINGS_TABLE}
"""Tables of functions by type of extension: PJRT_Extension_Type_Layouts and PJRT_Extension_Type_Shardings."""

_TYPES: dict[str, tuple[Any, int]] = {
    "word": (ctypes.c_uint64, 8),
    "i32": (ctypes.c_int32, 4),
    "bool": (ctypes.c_bool, 1),
}


@record(slots=True)
class Field:
    """A field of an argument structure; `word` names the word of the record from which a getter copies it."""

    name: str
    type: str
    offset: int
    word: str
    is_output: bool

    @property
    def size(self) -> int:
        """Size in bytes."""
        return _TYPES[self.type][1]


@record(slots=True)
class Function:
    """A function of the interface: its name without `PJRT_`, its implementation ("": none), and its arguments."""

    name: str
    implementation: str
    fields: tuple[Field, ...]

    @property
    def kind(self) -> str:
        """Kind of object that the function belongs to: Buffer, Client, .."""
        return self.name.partition("_")[0]

    @property
    def outputs(self) -> list[Field]:
        """The fields that the function writes."""
        return [field for field in self.fields if field.is_output]


@functools.cache
def functions() -> dict[str, Function]:
    """All functions by name, in the order of the structures: the interface, then its extensions."""
    lines = [line for table in (_TABLE, *EXTENSIONS.values()) for line in _lines(table)]
    return {function.name: function for function in map(_function, lines)}


def structures() -> list[tuple[int, int]]:
    """Type and number of functions of each structure: the interface (whose type is unused), then its extensions."""
    return [(type, len(_lines(table))) for type, table in ((0, _TABLE), *EXTENSIONS.items())]


def _lines(table: str) -> list[str]:
    return table.strip().replace("\n    ", " ").split("\n")


def _function(line: str) -> Function:
    head, _, body = line.partition(":")
    name, _, implementation = head.partition(" ")
    inputs, _, outputs = body.partition("->")
    fields: list[Field] = []
    # Every argument structure starts with its size and a list of extensions.
    offset = 16
    for text, is_output in ((inputs, False), (outputs, True)):
        for declaration in filter(None, map(str.strip, text.split(","))):
            typed_name, _, word = declaration.partition("=")
            field_name, _, type_name = typed_name.partition(":")
            size = _TYPES[type_name or "word"][1]
            offset = align_up(offset, size)
            fields.append(Field(field_name, type_name or "word", offset, word or field_name, is_output))
            offset += size
    return Function(name, implementation, tuple(fields))


@functools.cache
def arguments_structure(name: str) -> Any:
    """The ctypes class of a function's argument structure."""
    fields = [(field.name, _TYPES[field.type][0]) for field in functions()[name].fields]
    return type(
        f"{name}_Args",
        (ctypes.Structure,),
        {"_fields_": [("struct_size", ctypes.c_uint64), ("extension_start", ctypes.c_uint64), *fields]},
    )


class Program(ctypes.Structure):
    """PJRT_Program: a program to compile, or a buffer that receives one."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("struct_size", "extension_start", "code", "code_size", "format", "format_size")
    ]


class ExecuteOptions(ctypes.Structure):
    """PJRT_ExecuteOptions, up to the last field that hloom reads."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("send_callbacks", ctypes.c_uint64),
        ("recv_callbacks", ctypes.c_uint64),
        ("num_send_ops", ctypes.c_uint64),
        ("num_recv_ops", ctypes.c_uint64),
        ("launch_id", ctypes.c_int32),
        ("non_donatable_input_indices", ctypes.c_uint64),
        ("num_non_donatable_input_indices", ctypes.c_uint64),
    ]


class MemoryLayout(ctypes.Structure):
    """PJRT_Buffer_MemoryLayout; `values` are dimensions from minor to major (type 0, with tiles) or byte strides."""

    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in ("struct_size", "extension_start", "inner_struct_size", "inner_extension_start")
        ),
        ("values", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("tile_dims", ctypes.c_uint64),
        ("tile_dim_sizes", ctypes.c_uint64),
        ("num_tiles", ctypes.c_uint64),
        ("type", ctypes.c_int32),
    ]


class ShapeSpec(ctypes.Structure):
    """PJRT_ShapeSpec: sizes and element type of a buffer to make."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("dims", ctypes.c_uint64),
        ("num_dims", ctypes.c_uint64),
        ("element_type", ctypes.c_int32),
    ]


class NamedValue(ctypes.Structure):
    """PJRT_NamedValue; `type` is 0 for a string, 1 int64, 2 list of int64, 3 float, 4 bool."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("extension_start", ctypes.c_uint64),
        ("name", ctypes.c_uint64),
        ("name_size", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("value", ctypes.c_uint64),
        ("value_size", ctypes.c_uint64),
    ]


# XLA's element types in the order of PJRT_Buffer_Type, from 0.
_BUFFER_TYPES = """
invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz
f8e4m3fnuz s4 u4 token s2 u2 f8e4m3 f8e3m4 f8e8m0fnu f4e2m1fn
"""
BUFFER_TYPES = tuple(_BUFFER_TYPES.split())
