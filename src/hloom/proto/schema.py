"""Schema of XLA's protos, with its field names and numbers, for the protobuf library.

The tables list every message that a serialised HLO module may contain, complete, and messages used with modules
(options for compiling, a module's configuration) with the fields that hloom uses. The syntax of a line is `Message:
number type name; ..`; after the type, `*` means repeated and `?` optional with presence; `|group` after the name puts a
field into a oneof. Descriptors are created from the tables at the first use, in a separate pool, so that they do not
collide with those of another library in the process. Sources: hlo.proto, xla_data.proto, xla.proto.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from hloom.system.forks import new_lock

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

MESSAGES = """
PaddingConfig: 1 PaddingConfig.PaddingConfigDimension* dimensions
PaddingConfig.PaddingConfigDimension: 1 int64 edge_padding_low; 2 int64 edge_padding_high;
    3 int64 interior_padding
TileProto: 1 int64* dimensions
SplitConfigProto: 1 int64 dimension; 2 int64* split_indices
LayoutProto: 1 int64* minor_to_major; 2 int64* padded_dimensions; 3 PaddingValue padding_value;
    9 DimLevelType* dim_level_types; 13 bool* dim_unique; 14 bool* dim_ordered; 6 TileProto* tiles;
    16 int64 tail_padding_alignment_in_elements; 7 int64 element_size_in_bits; 8 int64 memory_space;
    11 PrimitiveType index_primitive_type; 12 PrimitiveType pointer_primitive_type;
    10 ShapeProto physical_shape; 15 int64 dynamic_shape_metadata_prefix_bytes;
    17 SplitConfigProto* split_configs
ShapeProto: 2 PrimitiveType element_type; 3 int64* dimensions; 6 bool* is_dynamic_dimension;
    4 ShapeProto* tuple_shapes; 5 LayoutProto layout
ProgramShapeProto: 1 ShapeProto* parameters; 2 ShapeProto result; 3 string* parameter_names
Payload: 1 bytes value|payload_source; 2 int64 id|payload_source
OpMetadata: 1 string op_type; 2 string op_name; 3 string source_file; 4 int32 source_line;
    17 int32 source_end_line; 18 int32 source_column; 19 int32 source_end_column; 5 ProfileType* profile_type;
    8 int64 size_of_generated_code_in_bytes; 9 int64 size_of_memory_working_set_in_bytes;
    10 OpMetadata.ProfileInfo profile_info; 12 string deduplicated_name; 15 int32 stack_frame_id;
    16 string scheduling_name; 20 Payload metadata_payload
OpMetadata.ProfileInfo: 1 ProfileType* profile_type; 2 double relative_speedup;
    3 ProfileSource profile_source; 4 CompilationEvent compilation_event;
    5 ProfileGenerationStrategy profile_generation_strategy
DeviceAssignmentProto: 1 int32 replica_count; 2 int32 computation_count;
    3 DeviceAssignmentProto.ComputationDevice* computation_devices
DeviceAssignmentProto.ComputationDevice: 1 int64* replica_device_ids
LiteralProto: 1 ShapeProto shape; 2 bool* preds; 30 bytes s1s; 26 bytes s2s; 21 bytes s4s; 15 bytes s8s;
    31 bytes u1s; 27 bytes u2s; 22 bytes u4s; 3 bytes u8s; 4 int32* s32s; 5 int64* s64s; 6 uint32* u32s;
    7 uint64* u64s; 8 float* f32s; 9 double* f64s; 12 float* c64s; 18 double* c128s;
    10 LiteralProto* tuple_literals; 11 bytes f16s; 13 bytes bf16s; 16 bytes u16s; 17 bytes s16s;
    32 bytes f4e2m1fns; 29 bytes f8e3m4s; 23 bytes f8e4m3b11fnuzs; 20 bytes f8e4m3fns; 25 bytes f8e4m3fnuzs;
    28 bytes f8e4m3s; 24 bytes f8e5m2fnuzs; 19 bytes f8e5m2s; 33 bytes f8e8m0fnus; 35 bytes f6e3m2fns;
    36 bytes f6e2m3fns; 14 int64* sparse_indices; 34 int32* dynamic_sizes
WindowDimension: 1 int64 size; 2 int64 stride; 3 int64 padding_low; 4 int64 padding_high;
    5 int64 window_dilation; 6 int64 base_dilation; 7 bool window_reversal
Window: 1 WindowDimension* dimensions
GatherDimensionNumbers: 1 int64* offset_dims; 2 int64* collapsed_slice_dims; 3 int64* start_index_map;
    4 int64 index_vector_dim; 5 int64* operand_batching_dims; 6 int64* start_indices_batching_dims
ScatterDimensionNumbers: 1 int64* update_window_dims; 2 int64* inserted_window_dims;
    3 int64* scatter_dims_to_operand_dims; 4 int64 index_vector_dim; 5 int64* input_batching_dims;
    6 int64* scatter_indices_batching_dims
ConvolutionDimensionNumbers: 7 int64 input_batch_dimension; 8 int64 input_feature_dimension;
    11 int64* input_spatial_dimensions; 3 int64 kernel_input_feature_dimension;
    4 int64 kernel_output_feature_dimension; 6 int64* kernel_spatial_dimensions;
    9 int64 output_batch_dimension; 10 int64 output_feature_dimension; 12 int64* output_spatial_dimensions
SparsityConfig: 1 SparsityConfig.TensorSparsityConfig lhs; 2 SparsityConfig.TensorSparsityConfig rhs
SparsityConfig.TensorSparsityConfig: 1 int64 num_non_zero; 2 int64 block_size; 3 int64 dimension;
    4 int64 stride
DotDimensionNumbers: 1 int64* lhs_contracting_dimensions; 2 int64* rhs_contracting_dimensions;
    3 int64* lhs_batch_dimensions; 4 int64* rhs_batch_dimensions
RaggedDotDimensionNumbers: 1 DotDimensionNumbers dot_dimension_numbers; 2 int64* lhs_ragged_dimensions;
    3 int64* rhs_group_dimensions
TriangularSolveOptions: 1 bool left_side; 2 bool lower; 3 bool unit_diagonal;
    4 TriangularSolveOptions.Transpose transpose_a
CholeskyOptions: 1 bool lower
FrontendAttributes: 1 map<string,string> map
Statistic: 1 string stat_name; 2 double stat_val
StatisticsViz: 1 int64 stat_index_to_visualize; 2 Statistic* statistics
MeshProto: 1 MeshProto.MeshAxis* axes; 2 int64* device_ids; 3 MeshProto.IotaTransform? iota_transform
MeshProto.MeshAxis: 1 string name; 2 int64 size
MeshProto.IotaTransform: 1 int64* reshape_dims; 2 int64* transpose_perm
AxisRefProto: 1 int64 mesh_axis_index; 2 AxisRefProto.SubAxis? sub_axis_info
AxisRefProto.SubAxis: 1 int64 pre_size; 2 int64 size
NamedShardingProto: 2 MeshProto mesh; 3 NamedShardingProto.DimensionSharding* dim_shardings;
    4 AxisRefProto* replicated_axes; 5 AxisRefProto* unreduced_axes; 7 AxisRefProto* manual_axes;
    6 OpMetadata* metadata
NamedShardingProto.DimensionSharding: 1 AxisRefProto* axes; 2 bool is_closed
OpSharding: 1 OpSharding.Type type; 2 ShapeProto tile_shape; 3 int64* tile_assignment_dimensions;
    4 int64* tile_assignment_devices; 5 OpSharding* tuple_shardings; 6 bool replicate_on_last_tile_dim;
    7 OpMetadata* metadata; 8 OpSharding.Type* last_tile_dims; 9 int64* iota_reshape_dims;
    10 int32* iota_transpose_perm; 11 bool is_shard_group; 12 int64 shard_group_id;
    13 OpSharding.ShardGroupType shard_group_type; 14 NamedShardingProto? named_sharding
ReplicaGroup: 1 int64* replica_ids
MeshAxesReplicaGroupListProto: 1 MeshProto mesh; 2 AxisRefProto* axes
IotaReplicaGroupListProto: 1 int64 num_replica_groups; 2 int64 num_devices_per_group;
    3 int64* iota_reshape_dims; 4 int32* iota_transpose_perm
CollectiveDeviceListProto: 1 ReplicaGroup* replica_groups
SourceTarget: 1 int64 source; 2 int64 target
ResultAccuracy: 1 ResultAccuracy.Mode mode|specs; 2 ResultAccuracy.Tolerance tolerance|specs
ResultAccuracy.Tolerance: 1 double atol; 2 double rtol; 3 int64 ulps
PrecisionConfig: 1 PrecisionConfig.Precision* operand_precision; 2 PrecisionConfig.Algorithm algorithm
ParameterReplication: 1 bool* replicated_at_leaf_buffers
OutputOperandAliasing: 1 int64* output_shape_index; 2 int64 operand_index; 3 int64* operand_shape_index
OriginalArrayProto: 1 string instruction_name; 2 int64* shape_index
OriginalValueElementProto: 1 int64* shape_index; 2 OriginalArrayProto original_array
OriginalValueProto: 1 OriginalValueElementProto* elements; 2 bool is_synthetic_call
HloInstructionProto: 1 string name; 2 string opcode; 3 ShapeProto shape; 7 OpMetadata metadata;
    8 LiteralProto literal; 9 int64 parameter_number; 11 string fusion_kind; 13 int64 tuple_index;
    14 int64* dimensions; 15 Window window; 16 ConvolutionDimensionNumbers convolution_dimension_numbers;
    50 int64 feature_group_count; 58 int64 batch_group_count;
    17 HloInstructionProto.SliceDimensions* slice_dimensions; 18 int32 exponent_bits; 19 int32 mantissa_bits;
    20 int64* dynamic_slice_sizes; 21 PaddingConfig padding_config; 22 bytes outfeed_config;
    23 RandomDistribution distribution; 24 float epsilon; 25 int64 feature_index; 26 int64 channel_id;
    27 bytes infeed_config; 28 string custom_call_target; 29 ShapeProto outfeed_shape;
    30 DotDimensionNumbers dot_dimension_numbers; 90 RaggedDotDimensionNumbers ragged_dot_dimension_numbers;
    31 FftType fft_type; 32 int64* fft_length; 63 string comparison_direction;
    33 GatherDimensionNumbers gather_dimension_numbers; 34 int64* gather_slice_sizes; 35 int64 id;
    36 int64* operand_ids; 37 int64* control_predecessor_ids; 38 int64* called_computation_ids;
    40 OpSharding sharding; 43 bytes backend_config; 99 Payload backend_config_payload;
    49 ReplicaGroup* replica_groups; 45 int64 all_reduce_id; 71 bool use_global_device_ids;
    47 bool is_host_transfer; 60 bool is_stable; 48 ScatterDimensionNumbers scatter_dimension_numbers;
    51 PrecisionConfig precision_config; 52 SourceTarget* source_target_pairs;
    54 OpSharding domain_entry_sharding; 55 OpSharding domain_exit_sharding; 56 bool constrain_layout;
    57 ShapeProto* operand_shapes_with_layout; 59 TriangularSolveOptions triangular_solve_options;
    62 CholeskyOptions cholesky_options; 61 ParameterReplication parameter_replication;
    65 bool custom_call_has_side_effect; 74 OutputOperandAliasing* output_operand_aliasing;
    76 CustomCallSchedule custom_call_schedule; 66 int64 delta; 67 bool indices_are_sorted;
    68 FrontendAttributes frontend_attributes; 69 bool unique_indices; 70 RandomAlgorithm rng_algorithm;
    72 string comparison_type; 102 string comparison_order; 73 bool is_cross_program_prefetch;
    80 int32 cross_program_prefetch_index|optional_cross_program_prefetch_index; 75 PaddingType padding_type;
    77 CustomCallApiVersion custom_call_api_version; 79 string async_execution_thread; 81 int64 k;
    85 bool largest; 82 StatisticsViz statistics_viz;
    87 CollectiveDeviceListProto collective_device_list|replica_group_list;
    92 IotaReplicaGroupListProto iota_collective_device_list|replica_group_list;
    93 MeshAxesReplicaGroupListProto mesh_axes_replica_group_list|replica_group_list;
    88 OriginalValueProto original_value; 89 bool is_composite; 91 ResultAccuracy result_accuracy;
    94 bool is_reverse; 95 int64 num_carries; 96 TriState is_associative; 97 ConvolutionKind conv_kind;
    98 SparsityConfig sparsity_config
HloInstructionProto.SliceDimensions: 1 int64 start; 2 int64 limit; 3 int64 stride
HloComputationProto: 1 string name; 2 HloInstructionProto* instructions; 4 ProgramShapeProto program_shape;
    5 int64 id; 6 int64 root_id; 7 bool is_fusion_computation; 8 string execution_thread
HloScheduleProto: 1 map<int64,HloScheduleProto.InstructionSequence> sequences
HloScheduleProto.InstructionSequence: 1 int64* instruction_ids
HloInputOutputAliasProto: 1 HloInputOutputAliasProto.AliasEntryProto* entries
HloInputOutputAliasProto.AliasEntryProto: 1 int64* output_shape_index; 2 int64 parameter_number;
    3 int64* parameter_shape_index; 4 Kind kind
HloBufferDonorProto: 1 HloBufferDonorProto.BufferDonorEntryProto* entries
HloBufferDonorProto.BufferDonorEntryProto: 1 int64 parameter_number; 2 int64* parameter_shape_index
CrossProgramPrefetch: 1 int64 parameter; 2 int64* index; 3 int64 offset
StackFrameIndexProto: 1 string* file_names; 2 string* function_names;
    3 StackFrameIndexProto.FileLocation* file_locations; 4 StackFrameIndexProto.StackFrame* stack_frames
StackFrameIndexProto.FileLocation: 1 int32 file_name_id; 2 int32 function_name_id; 3 int32 line;
    5 int32 end_line; 4 int32 column; 6 int32 end_column
StackFrameIndexProto.StackFrame: 1 int32 file_location_id; 2 int32 parent_frame_id
HloModuleProto: 1 string name; 2 string entry_computation_name; 6 int64 entry_computation_id;
    3 HloComputationProto* computations; 4 ProgramShapeProto host_program_shape; 5 int64 id;
    23 int64? pjrt_id; 7 HloScheduleProto schedule; 8 HloInputOutputAliasProto input_output_alias;
    22 bytes* payloads; 18 HloBufferDonorProto buffer_donor;
    10 CrossProgramPrefetch* cross_program_prefetches; 11 bool is_dynamic; 12 OpSharding spmd_output_sharding;
    14 OpSharding* spmd_parameters_shardings; 16 bool use_auto_spmd_partitioning;
    13 HloModuleProto.ProfileInfo* profile_info; 15 DeviceAssignmentProto device_assignment;
    17 StackFrameIndexProto stack_frame_index; 19 FrontendAttributes frontend_attributes;
    20 OriginalValueRecoveryTableProto original_value_recovery_table; 21 string device_type
HloModuleProto.ProfileInfo: 1 HloModuleProto.ProfileType profile_type; 2 double relative_speedup;
    3 ProfileSource profile_source; 4 CompilationEvent compilation_event; 5 string fingerprint;
    6 ProfileGenerationStrategy profile_generation_strategy; 7 int64 original_changelist; 8 int64 changelist
HloModuleConfigProto: 1 ProgramShapeProto entry_computation_layout; 4 int64 replica_count; 5 int64 num_partitions;
    7 bool use_spmd_partitioning
HloModuleProtoWithConfig: 1 HloModuleProto hlo_module; 2 HloModuleConfigProto config
ExecutableBuildOptionsProto: 1 int64 device_ordinal; 4 int64 num_replicas; 5 int64 num_partitions;
    6 bool use_spmd_partitioning; 9 DeviceAssignmentProto device_assignment;
    12 bool* allow_spmd_sharding_propagation_to_output; 18 bool* allow_spmd_sharding_propagation_to_parameters
OptionOverrideProto: 1 string string_field|value; 2 bool bool_field|value; 3 int64 int_field|value;
    4 double double_field|value
CompileOptionsProto: 2 bool parameter_is_tupled_arguments; 3 ExecutableBuildOptionsProto executable_build_options;
    4 bool compile_portable_executable; 7 map<string,OptionOverrideProto> env_option_overrides
HloProto: 1 HloModuleProto hlo_module; 3 bytes buffer_assignment
HloSnapshot: 1 HloProto hlo; 2 LiteralProto* arguments; 3 LiteralProto result; 4 string execution_platform
HloInputs: 1 LiteralProto* arguments
HloUnoptimizedSnapshot: 1 HloModuleProto hlo_module; 2 HloInputs* partitions
OriginalValueRecoveryTableProto: 1 OriginalValueRecoveryTableProto.Entry* entries
OriginalValueRecoveryTableProto.Entry: 1 OriginalArrayProto old_original_array;
    2 OriginalArrayProto new_original_array; 3 HloModuleProto recovery_module
"""

ENUMS = """
PrimitiveType: PRIMITIVE_TYPE_INVALID=0 PRED=1 S1=30 S2=26 S4=21 S8=2 S16=3 S32=4 S64=5 U1=31 U2=27 U4=22 U8=6
    U16=7 U32=8 U64=9 F16=10 F32=11 BF16=16 F64=12 F8E5M2=19 F8E4M3=28 F8E4M3FN=20 F8E4M3B11FNUZ=23 F8E3M4=29
    F8E5M2FNUZ=24 F8E4M3FNUZ=25 F4E2M1FN=32 F8E8M0FNU=33 F6E3M2FN=35 F6E2M3FN=36 C64=15 C128=18 TUPLE=13
    OPAQUE_TYPE=14 TOKEN=17 BUFFER=34
DimLevelType: DIM_DENSE=0 DIM_COMPRESSED=1 DIM_SINGLETON=2 DIM_LOOSE_COMPRESSED=3
ProfileType: INVALID=0 WINDOW=1 FLAG=2 INTEGER=3
ProfileSource: PROFILE_SOURCE_UNKNOWN_SOURCE=0 PROFILE_SOURCE_EMBEDDED=1 PROFILE_SOURCE_REMOTE=2
CompilationEvent: COMPILATION_EVENT_UNKNOWN_EVENT=0 COMPILATION_EVENT_FIRST_COMPILATION=1
    COMPILATION_EVENT_RECOMPILATION=2
ProfileGenerationStrategy: PROFILE_GENERATION_STRATEGY_UNKNOWN=0 PROFILE_GENERATION_STRATEGY_GA=1
    PROFILE_GENERATION_STRATEGY_FANTA=2 PROFILE_GENERATION_STRATEGY_CFO=3
    PROFILE_GENERATION_STRATEGY_EXHAUSTIVE=4 PROFILE_GENERATION_STRATEGY_LCM_GNN=5
    PROFILE_GENERATION_STRATEGY_LCM_MOE=6
PaddingType: PADDING_INVALID=0 PADDING_VALID=1 PADDING_SAME=2
FftType: FFT=0 IFFT=1 RFFT=2 IRFFT=3
RandomDistribution: RNG_INVALID=0 RNG_UNIFORM=1 RNG_NORMAL=2
RandomAlgorithm: RNG_DEFAULT=0 RNG_THREE_FRY=1 RNG_PHILOX=2
TriangularSolveOptions.Transpose: TRANSPOSE_INVALID=0 NO_TRANSPOSE=1 TRANSPOSE=2 ADJOINT=3
OpSharding.Type: REPLICATED=0 MAXIMAL=1 TUPLE=2 OTHER=3 MANUAL=4 UNKNOWN=5 UNREDUCED=6
OpSharding.ShardGroupType: AS=0 LIKE=1
ResultAccuracy.Mode: DEFAULT=0 HIGHEST=1
PrecisionConfig.Precision: DEFAULT=0 HIGH=1 HIGHEST=2
PrecisionConfig.Algorithm: ALG_UNSET=0 ALG_DOT_ANY_F8_ANY_F8_F32=1 ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM=2
    ALG_DOT_F16_F16_F16=3 ALG_DOT_F16_F16_F32=4 ALG_DOT_BF16_BF16_BF16=5 ALG_DOT_BF16_BF16_F32=6
    ALG_DOT_BF16_BF16_F32_X3=7 ALG_DOT_BF16_BF16_F32_X6=8 ALG_DOT_TF32_TF32_F32=9 ALG_DOT_TF32_TF32_F32_X3=10
    ALG_DOT_F32_F32_F32=11 ALG_DOT_F64_F64_F64=12 ALG_DOT_BF16_BF16_F32_X9=13
CustomCallSchedule: SCHEDULE_NONE=0 SCHEDULE_LATEST=1 SCHEDULE_EARLIEST=2
TriState: TRI_STATE_UNSPECIFIED=0 TRI_STATE_TRUE=1 TRI_STATE_FALSE=2
ConvolutionKind: CONVOLUTION_KIND_UNSET=0 CONVOLUTION_KIND_FPROP=1 CONVOLUTION_KIND_DGRAD=2
    CONVOLUTION_KIND_WGRAD=3
CustomCallApiVersion: API_VERSION_UNSPECIFIED=0 API_VERSION_ORIGINAL=1 API_VERSION_STATUS_RETURNING=2
    API_VERSION_STATUS_RETURNING_UNIFIED=3 API_VERSION_TYPED_FFI=4
Kind: UNDEFINED_ALIAS=0 MAY_ALIAS=1 MUST_ALIAS=2
HloModuleProto.ProfileType: INVALID=0 FLAG=1 FUSION=2 LAYOUT=3 DOT=4 FLAGNET=5 SHARDING=6 SCHEDULE=7
PaddingValue: INVALID_PAD=0 ZERO_PAD=1 ONE_PAD=2 LOWEST_PAD=3 HIGHEST_PAD=4 UNKNOWN_PAD=5
"""


MODULE_HOLDERS: dict[str, tuple[str, ...]] = {
    "HloModuleProto": (),
    "HloProto": ("hlo_module",),
    "HloSnapshot": ("hlo", "hlo_module"),
    "HloUnoptimizedSnapshot": ("hlo_module",),
}
"""Messages that contain a module, in the order in which they are tried for bytes, with the path to the module."""

_SCALARS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
_MESSAGE, _ENUM = 11, 14
# Guards against two pools, made by two threads: the classes of one refuse the messages of the other.
_LOCK = new_lock()
_FIELD = re.compile(r"(\d+) ([\w.]+|map<\w+,[\w.]+>)([*?]?) (\w+)(?:\|(\w+))?\Z")


@functools.cache
def message_class(name: str) -> Any:
    """The protobuf class of an XLA message, for example `HloModuleProto`; raises KeyError for unknown ones."""
    from google.protobuf import message_factory

    with _LOCK:
        pool = _pool()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"xla.{name}"))


@functools.cache
def _pool() -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


def _rows(table: str) -> dict[str, str]:
    """Message name -> the rest of its line, with continuation lines joined."""
    rows: dict[str, str] = {}
    for line in re.sub(r"\n +", " ", table.strip()).split("\n"):
        name, _, body = line.partition(":")
        rows[name] = body.strip()
    return rows


def _file() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="hloom/xla.proto", package="xla", syntax="proto3")
    messages: dict[str, DescriptorProto] = {}
    enums = _rows(ENUMS)
    rows = _rows(MESSAGES)
    for name in rows:
        outer, _, inner = name.rpartition(".")
        message = messages[outer].nested_type.add() if outer else file.message_type.add()
        message.name = inner
        messages[name] = message
    for name, body in enums.items():
        outer, _, inner = name.rpartition(".")
        enum = messages[outer].enum_type.add() if outer else file.enum_type.add()
        enum.name = inner
        for value in body.split():
            word, _, number = value.partition("=")
            enum.value.add(name=word, number=int(number))
    for name, body in rows.items():
        for field in filter(None, body.split("; ")):
            _add_field(messages[name], name, field.strip(), enums)
    return file


def _add_field(message: DescriptorProto, name: str, text: str, enums: dict[str, str]) -> None:
    match = _FIELD.match(text)
    assert match, f"{name}: {text}"
    number, kind, mark, field_name, group = match.groups()
    field: Any = message.field.add(name=field_name, number=int(number), label=3 if mark == "*" else 1)
    if kind.startswith("map<"):
        key, _, value = kind[4:-1].partition(",")
        entry_name = "".join(part.capitalize() for part in field_name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _set_type(entry.field.add(name="key", number=1, label=1), key, enums)
        _set_type(entry.field.add(name="value", number=2, label=1), value, enums)
        field.label = 3
        field.type = _MESSAGE
        field.type_name = f".xla.{name}.{entry_name}"
        return
    _set_type(field, kind, enums)
    if mark == "?":
        # An optional field is encoded as a oneof with a single field.
        group, field.proto3_optional = f"_{field_name}", True
    if group:
        names = [oneof.name for oneof in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        field.oneof_index = names.index(group)


def _set_type(field: Any, kind: str, enums: dict[str, str]) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _ENUM if kind in enums else _MESSAGE
        field.type_name = f".xla.{kind}"
