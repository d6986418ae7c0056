"""The messages of XLA's protos (package `xla`), as tables from which `protobuf` makes its classes.

No `protoc` and no generated code: `MESSAGES` and `ENUMS` below hold XLA's own names and numbers, so that what hloom
writes XLA reads, and the reverse. A field is written

    number name [repeated | optional] type [oneof group]

and fields are separated by a new line or a semicolon; a type is a scalar of proto3, `map<key, value>`, or the full
name of a message or an enumeration of these tables. `optional` marks a scalar that knows whether it was set.

The classes are made on the first call of `message_class`, in a descriptor pool of our own: jaxlib and TensorFlow may
register the same names in the default pool. `google.protobuf` is imported only then, to keep `import hloom` fast.
"""

from __future__ import annotations

import functools
import re
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

PACKAGE = "xla"

# ---------------------------------------------------------------------------------------------- enumerations

ENUMS: dict[str, str] = {
    "PrimitiveType": """
        PRIMITIVE_TYPE_INVALID=0  PRED=1
        S1=30 S2=26 S4=21 S8=2 S16=3 S32=4 S64=5
        U1=31 U2=27 U4=22 U8=6 U16=7 U32=8 U64=9
        F16=10 F32=11 BF16=16 F64=12
        F8E5M2=19 F8E4M3=28 F8E4M3FN=20 F8E4M3B11FNUZ=23 F8E3M4=29 F8E5M2FNUZ=24 F8E4M3FNUZ=25
        F4E2M1FN=32 F8E8M0FNU=33 F6E3M2FN=35 F6E2M3FN=36
        C64=15 C128=18
        TUPLE=13 OPAQUE_TYPE=14 TOKEN=17 BUFFER=34""",
    "PaddingValue": "INVALID_PAD=0 ZERO_PAD=1 ONE_PAD=2 LOWEST_PAD=3 HIGHEST_PAD=4 UNKNOWN_PAD=5",
    "DimLevelType": "DIM_DENSE=0 DIM_COMPRESSED=1 DIM_SINGLETON=2 DIM_LOOSE_COMPRESSED=3",
    # Operations
    "PaddingType": "PADDING_INVALID=0 PADDING_VALID=1 PADDING_SAME=2",
    "FftType": "FFT=0 IFFT=1 RFFT=2 IRFFT=3",
    "RandomDistribution": "RNG_INVALID=0 RNG_UNIFORM=1 RNG_NORMAL=2",
    "RandomAlgorithm": "RNG_DEFAULT=0 RNG_THREE_FRY=1 RNG_PHILOX=2",
    "TriangularSolveOptions.Transpose": "TRANSPOSE_INVALID=0 NO_TRANSPOSE=1 TRANSPOSE=2 ADJOINT=3",
    "SparsityType": "SPARSITY_INVALID=0 SPARSITY_STRUCTURED_N_M=1",
    "ConvolutionKind": """
        CONVOLUTION_KIND_UNSET=0 CONVOLUTION_KIND_FPROP=1 CONVOLUTION_KIND_DGRAD=2 CONVOLUTION_KIND_WGRAD=3""",
    "TriState": "TRI_STATE_UNSPECIFIED=0 TRI_STATE_TRUE=1 TRI_STATE_FALSE=2",
    "CustomCallSchedule": "SCHEDULE_NONE=0 SCHEDULE_LATEST=1 SCHEDULE_EARLIEST=2",
    "CustomCallApiVersion": """
        API_VERSION_UNSPECIFIED=0 API_VERSION_ORIGINAL=1 API_VERSION_STATUS_RETURNING=2
        API_VERSION_STATUS_RETURNING_UNIFIED=3 API_VERSION_TYPED_FFI=4""",
    "PrecisionConfig.Precision": "DEFAULT=0 HIGH=1 HIGHEST=2",
    "PrecisionConfig.Algorithm": """
        ALG_UNSET=0 ALG_DOT_ANY_F8_ANY_F8_F32=1 ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM=2
        ALG_DOT_F16_F16_F16=3 ALG_DOT_F16_F16_F32=4
        ALG_DOT_BF16_BF16_BF16=5 ALG_DOT_BF16_BF16_F32=6
        ALG_DOT_BF16_BF16_F32_X3=7 ALG_DOT_BF16_BF16_F32_X6=8 ALG_DOT_BF16_BF16_F32_X9=13
        ALG_DOT_TF32_TF32_F32=9 ALG_DOT_TF32_TF32_F32_X3=10
        ALG_DOT_F32_F32_F32=11 ALG_DOT_F64_F64_F64=12""",
    "ResultAccuracy.Mode": "DEFAULT=0 HIGHEST=1",
    # Distribution
    "OpSharding.Type": "REPLICATED=0 MAXIMAL=1 TUPLE=2 OTHER=3 MANUAL=4 UNKNOWN=5 UNREDUCED=6",
    "OpSharding.ShardGroupType": "AS=0 LIKE=1",
    # Modules: `Kind` is that of an input-output alias
    "Kind": "UNDEFINED_ALIAS=0 MAY_ALIAS=1 MUST_ALIAS=2",
    "ProfileType": "INVALID=0 WINDOW=1 FLAG=2 INTEGER=3",
    "HloModuleProto.ProfileType": """
        INVALID=0 FLAG=1 FUSION=2 LAYOUT=3 DOT=4 FLAGNET=5 SHARDING=6 SCHEDULE=7""",
    "ProfileSource": """
        PROFILE_SOURCE_UNKNOWN_SOURCE=0 PROFILE_SOURCE_EMBEDDED=1 PROFILE_SOURCE_REMOTE=2""",
    "CompilationEvent": """
        COMPILATION_EVENT_UNKNOWN_EVENT=0 COMPILATION_EVENT_FIRST_COMPILATION=1
        COMPILATION_EVENT_RECOMPILATION=2""",
    "ProfileGenerationStrategy": """
        PROFILE_GENERATION_STRATEGY_UNKNOWN=0 PROFILE_GENERATION_STRATEGY_GA=1
        PROFILE_GENERATION_STRATEGY_FANTA=2 PROFILE_GENERATION_STRATEGY_CFO=3
        PROFILE_GENERATION_STRATEGY_EXHAUSTIVE=4 PROFILE_GENERATION_STRATEGY_LCM_GNN=5
        PROFILE_GENERATION_STRATEGY_LCM_MOE=6""",
}

# ------------------------------------------------------------------------------- shapes, layouts and literals

MESSAGES: dict[str, str] = {
    "ShapeProto": """
        2 element_type         PrimitiveType
        3 dimensions           repeated int64
        6 is_dynamic_dimension repeated bool
        4 tuple_shapes         repeated ShapeProto
        5 layout               LayoutProto""",
    # XLA has retired fields 2 and 3; hloom keeps them in their old sense (SL-8, SL-13, SL-14).
    "LayoutProto": """
        1  minor_to_major         repeated int64
        2  padded_dimensions      repeated int64
        3  padding_value          optional PaddingValue
        6  tiles                  repeated TileProto
        7  element_size_in_bits   int64
        8  memory_space           int64
        9  dim_level_types        repeated DimLevelType
        10 physical_shape         ShapeProto
        11 index_primitive_type   PrimitiveType
        12 pointer_primitive_type PrimitiveType
        13 dim_unique             repeated bool
        14 dim_ordered            repeated bool
        15 dynamic_shape_metadata_prefix_bytes int64
        16 tail_padding_alignment_in_elements  int64
        17 split_configs          repeated SplitConfigProto""",
    "TileProto": "1 dimensions repeated int64",
    "SplitConfigProto": "1 dimension int64; 2 split_indices repeated int64",
    "ProgramShapeProto": """
        1 parameters      repeated ShapeProto
        2 result          ShapeProto
        3 parameter_names repeated string""",
    "LiteralProto": """
        1  shape ShapeProto
        2  preds repeated bool
        30 s1s bytes; 26 s2s bytes; 21 s4s bytes; 15 s8s bytes; 17 s16s bytes
        31 u1s bytes; 27 u2s bytes; 22 u4s bytes; 3 u8s bytes; 16 u16s bytes
        4  s32s repeated int32;  5 s64s repeated int64
        6  u32s repeated uint32; 7 u64s repeated uint64
        11 f16s bytes; 13 bf16s bytes; 8 f32s repeated float; 9 f64s repeated double
        12 c64s repeated float; 18 c128s repeated double
        32 f4e2m1fns bytes; 33 f8e8m0fnus bytes; 35 f6e3m2fns bytes; 36 f6e2m3fns bytes
        19 f8e5m2s bytes; 24 f8e5m2fnuzs bytes; 29 f8e3m4s bytes
        28 f8e4m3s bytes; 20 f8e4m3fns bytes; 25 f8e4m3fnuzs bytes; 23 f8e4m3b11fnuzs bytes
        10 tuple_literals repeated LiteralProto
        14 sparse_indices repeated int64
        34 dynamic_sizes  repeated int32""",
    # ------------------------------------------------------------------ what the attributes of operations hold
    "Window": "1 dimensions repeated WindowDimension",
    "WindowDimension": """
        1 size int64; 2 stride int64; 3 padding_low int64; 4 padding_high int64
        5 window_dilation int64; 6 base_dilation int64; 7 window_reversal bool""",
    "PaddingConfig": "1 dimensions repeated PaddingConfig.PaddingConfigDimension",
    "PaddingConfig.PaddingConfigDimension": """
        1 edge_padding_low int64; 2 edge_padding_high int64; 3 interior_padding int64""",
    "ConvolutionDimensionNumbers": """
        7  input_batch_dimension           int64
        8  input_feature_dimension         int64
        11 input_spatial_dimensions        repeated int64
        3  kernel_input_feature_dimension  int64
        4  kernel_output_feature_dimension int64
        6  kernel_spatial_dimensions       repeated int64
        9  output_batch_dimension          int64
        10 output_feature_dimension        int64
        12 output_spatial_dimensions       repeated int64""",
    "DotDimensionNumbers": """
        1 lhs_contracting_dimensions repeated int64
        2 rhs_contracting_dimensions repeated int64
        3 lhs_batch_dimensions       repeated int64
        4 rhs_batch_dimensions       repeated int64""",
    "RaggedDotDimensionNumbers": """
        1 dot_dimension_numbers DotDimensionNumbers
        2 lhs_ragged_dimensions repeated int64
        3 rhs_group_dimensions  repeated int64""",
    "SparsityConfig": "1 lhs SparsityConfig.TensorSparsityConfig; 2 rhs SparsityConfig.TensorSparsityConfig",
    "SparsityConfig.TensorSparsityConfig": """
        1 num_non_zero int64; 2 block_size int64; 3 dimension int64; 4 stride int64""",
    "SparsityDescriptor": "1 type SparsityType; 2 index int32; 3 dimension int32; 4 n int32; 5 m int32",
    "GatherDimensionNumbers": """
        1 offset_dims                  repeated int64
        2 collapsed_slice_dims         repeated int64
        3 start_index_map              repeated int64
        4 index_vector_dim             int64
        5 operand_batching_dims        repeated int64
        6 start_indices_batching_dims  repeated int64""",
    "ScatterDimensionNumbers": """
        1 update_window_dims            repeated int64
        2 inserted_window_dims          repeated int64
        3 scatter_dims_to_operand_dims  repeated int64
        4 index_vector_dim              int64
        5 input_batching_dims           repeated int64
        6 scatter_indices_batching_dims repeated int64""",
    "TriangularSolveOptions": """
        1 left_side bool; 2 lower bool; 3 unit_diagonal bool
        4 transpose_a TriangularSolveOptions.Transpose""",
    "CholeskyOptions": "1 lower bool",
    "SortOptions": "1 descending bool",
    "PrecisionConfig": """
        1 operand_precision repeated PrecisionConfig.Precision
        2 algorithm         PrecisionConfig.Algorithm""",
    "ResultAccuracy": """
        1 mode      ResultAccuracy.Mode      oneof specs
        2 tolerance ResultAccuracy.Tolerance oneof specs""",
    "ResultAccuracy.Tolerance": "1 atol double; 2 rtol double; 3 ulps int64",
    "OutputOperandAliasing": """
        1 output_shape_index repeated int64; 2 operand_index int64; 3 operand_shape_index repeated int64""",
    "ParameterReplication": "1 replicated_at_leaf_buffers repeated bool",
    "FrontendAttributes": "1 map map<string, string>",
    # ------------------------------------------------------------------------------ devices and sharding
    "ReplicaGroup": "1 replica_ids repeated int64",
    "SourceTarget": "1 source int64; 2 target int64",
    # Field 2 was the place of the iota form until it moved to HloInstructionProto (92): older dumps have it here.
    "CollectiveDeviceListProto": """
        1 replica_groups          repeated ReplicaGroup
        2 iota_replica_group_list IotaReplicaGroupListProto""",
    "IotaReplicaGroupListProto": """
        1 num_replica_groups    int64
        2 num_devices_per_group int64
        3 iota_reshape_dims     repeated int64
        4 iota_transpose_perm   repeated int32""",
    "MeshAxesReplicaGroupListProto": "1 mesh MeshProto; 2 axes repeated AxisRefProto",
    "MeshProto": """
        1 axes           repeated MeshProto.MeshAxis
        2 device_ids     repeated int64
        3 iota_transform MeshProto.IotaTransform""",
    "MeshProto.MeshAxis": "1 name string; 2 size int64",
    "MeshProto.IotaTransform": "1 reshape_dims repeated int64; 2 transpose_perm repeated int64",
    "AxisRefProto": "1 mesh_axis_index int64; 2 sub_axis_info AxisRefProto.SubAxis",
    "AxisRefProto.SubAxis": "1 pre_size int64; 2 size int64",
    "NamedShardingProto": """
        2 mesh            MeshProto
        3 dim_shardings   repeated NamedShardingProto.DimensionSharding
        4 replicated_axes repeated AxisRefProto
        5 unreduced_axes  repeated AxisRefProto
        7 manual_axes     repeated AxisRefProto
        6 metadata        repeated OpMetadata""",
    "NamedShardingProto.DimensionSharding": "1 axes repeated AxisRefProto; 2 is_closed bool",
    "OpSharding": """
        1  type                       OpSharding.Type
        2  tile_shape                 ShapeProto
        3  tile_assignment_dimensions repeated int64
        4  tile_assignment_devices    repeated int64
        5  tuple_shardings            repeated OpSharding
        6  replicate_on_last_tile_dim bool
        7  metadata                   repeated OpMetadata
        8  last_tile_dims             repeated OpSharding.Type
        9  iota_reshape_dims          repeated int64
        10 iota_transpose_perm        repeated int32
        11 is_shard_group             bool
        12 shard_group_id             int64
        13 shard_group_type           OpSharding.ShardGroupType
        14 named_sharding             NamedShardingProto""",
    "DeviceAssignmentProto": """
        1 replica_count       int32
        2 computation_count   int32
        3 computation_devices repeated DeviceAssignmentProto.ComputationDevice""",
    "DeviceAssignmentProto.ComputationDevice": "1 replica_device_ids repeated int64",
    # ------------------------------------------------------------------------- where an instruction came from
    "OpMetadata": """
        1  op_type            string
        2  op_name            string
        3  source_file        string
        4  source_line        int32; 17 source_end_line   int32
        18 source_column      int32; 19 source_end_column int32
        5  profile_type       repeated ProfileType
        8  size_of_generated_code_in_bytes    int64
        9  size_of_memory_working_set_in_bytes int64
        10 profile_info       OpMetadata.ProfileInfo
        12 deduplicated_name  string
        15 stack_frame_id     int32
        16 scheduling_name    string
        20 metadata_payload   Payload""",
    "OpMetadata.ProfileInfo": """
        1 profile_type                repeated ProfileType
        2 relative_speedup            double
        3 profile_source              ProfileSource
        4 compilation_event           CompilationEvent
        5 profile_generation_strategy ProfileGenerationStrategy""",
    "Payload": "1 value bytes oneof payload_source; 2 id int64 oneof payload_source",
    "StackFrameIndexProto": """
        1 file_names     repeated string
        2 function_names repeated string
        3 file_locations repeated StackFrameIndexProto.FileLocation
        4 stack_frames   repeated StackFrameIndexProto.StackFrame""",
    "StackFrameIndexProto.FileLocation": """
        1 file_name_id int32; 2 function_name_id int32
        3 line int32; 4 column int32; 5 end_line int32; 6 end_column int32""",
    "StackFrameIndexProto.StackFrame": "1 file_location_id int32; 2 parent_frame_id int32",
    "StatisticsViz": "1 stat_index_to_visualize int64; 2 statistics repeated Statistic",
    "Statistic": "1 stat_name string; 2 stat_val double",
    "OriginalValueProto": "1 elements repeated OriginalValueElementProto; 2 is_synthetic_call bool",
    "OriginalValueElementProto": "1 shape_index repeated int64; 2 original_array OriginalArrayProto",
    "OriginalArrayProto": "1 instruction_name string; 2 shape_index repeated int64",
    "OriginalValueRecoveryTableProto": "1 entries repeated OriginalValueRecoveryTableProto.Entry",
    "OriginalValueRecoveryTableProto.Entry": """
        1 old_original_array OriginalArrayProto
        2 new_original_array OriginalArrayProto
        3 recovery_module    HloModuleProto""",
    # ---------------------------------------------------------------- instructions, computations and modules
    "HloInstructionProto": """
        1  name                     string
        2  opcode                   string
        3  shape                    ShapeProto
        35 id                       int64
        36 operand_ids              repeated int64
        37 control_predecessor_ids  repeated int64
        38 called_computation_ids   repeated int64
        7  metadata                 OpMetadata
        68 frontend_attributes      FrontendAttributes
        40 sharding                 OpSharding
        43 backend_config           bytes
        99 backend_config_payload   Payload
        82 statistics_viz           StatisticsViz
        88 original_value           OriginalValueProto
        91 result_accuracy          ResultAccuracy

        8  literal                  LiteralProto
        9  parameter_number         int64
        61 parameter_replication    ParameterReplication
        11 fusion_kind              string
        13 tuple_index              int64
        14 dimensions               repeated int64
        17 slice_dimensions         repeated HloInstructionProto.SliceDimensions
        20 dynamic_slice_sizes      repeated int64
        21 padding_config           PaddingConfig
        15 window                   Window
        24 epsilon                  float
        25 feature_index            int64
        18 exponent_bits            int32; 19 mantissa_bits int32
        63 comparison_direction     string
        72 comparison_type          string
        60 is_stable                bool
        81 k                        int64; 85 largest bool
        94 is_reverse               bool
        95 num_carries              int64
        96 is_associative           TriState

        16 convolution_dimension_numbers ConvolutionDimensionNumbers
        50 feature_group_count           int64
        58 batch_group_count             int64
        75 padding_type                  PaddingType
        97 conv_kind                     ConvolutionKind
        30 dot_dimension_numbers         DotDimensionNumbers
        90 ragged_dot_dimension_numbers  RaggedDotDimensionNumbers
        86 dot_sparsity                  repeated SparsityDescriptor
        98 sparsity_config               SparsityConfig
        51 precision_config              PrecisionConfig
        31 fft_type                      FftType
        32 fft_length                    repeated int64
        59 triangular_solve_options      TriangularSolveOptions
        62 cholesky_options              CholeskyOptions

        33 gather_dimension_numbers  GatherDimensionNumbers
        34 gather_slice_sizes        repeated int64
        48 scatter_dimension_numbers ScatterDimensionNumbers
        67 indices_are_sorted        bool
        69 unique_indices            bool

        23 distribution  RandomDistribution
        70 rng_algorithm RandomAlgorithm
        66 delta         int64

        28 custom_call_target          string
        65 custom_call_has_side_effect bool
        76 custom_call_schedule        CustomCallSchedule
        77 custom_call_api_version     CustomCallApiVersion
        56 constrain_layout            bool
        57 operand_shapes_with_layout  repeated ShapeProto
        74 output_operand_aliasing     repeated OutputOperandAliasing
        89 is_composite                bool

        26 channel_id                   int64
        45 all_reduce_id                int64
        49 replica_groups               repeated ReplicaGroup
        87 collective_device_list       CollectiveDeviceListProto     oneof replica_group_list
        92 iota_collective_device_list  IotaReplicaGroupListProto     oneof replica_group_list
        93 mesh_axes_replica_group_list MeshAxesReplicaGroupListProto oneof replica_group_list
        71 use_global_device_ids        bool
        52 source_target_pairs          repeated SourceTarget
        54 domain_entry_sharding        OpSharding
        55 domain_exit_sharding         OpSharding

        47 is_host_transfer             bool
        27 infeed_config                bytes
        22 outfeed_config               bytes
        29 outfeed_shape                ShapeProto
        79 async_execution_thread       string
        73 is_cross_program_prefetch    bool
        80 cross_program_prefetch_index int32 oneof optional_cross_program_prefetch_index""",
    "HloInstructionProto.SliceDimensions": "1 start int64; 2 limit int64; 3 stride int64",
    "HloComputationProto": """
        1 name                  string
        2 instructions          repeated HloInstructionProto
        4 program_shape         ProgramShapeProto
        5 id                    int64
        6 root_id               int64
        7 is_fusion_computation bool
        8 execution_thread      string""",
    "HloModuleProto": """
        1  name                          string
        2  entry_computation_name        string
        6  entry_computation_id          int64
        3  computations                  repeated HloComputationProto
        4  host_program_shape            ProgramShapeProto
        5  id                            int64
        23 pjrt_id                       optional int64
        7  schedule                      HloScheduleProto
        8  input_output_alias            HloInputOutputAliasProto
        18 buffer_donor                  HloBufferDonorProto
        10 cross_program_prefetches      repeated CrossProgramPrefetch
        11 is_dynamic                    bool
        12 spmd_output_sharding          OpSharding
        14 spmd_parameters_shardings     repeated OpSharding
        16 use_auto_spmd_partitioning    bool
        13 profile_info                  repeated HloModuleProto.ProfileInfo
        15 device_assignment             DeviceAssignmentProto
        17 stack_frame_index             StackFrameIndexProto
        19 frontend_attributes           FrontendAttributes
        20 original_value_recovery_table OriginalValueRecoveryTableProto
        21 device_type                   string
        22 payloads                      repeated bytes""",
    "HloModuleProto.ProfileInfo": """
        1 profile_type                HloModuleProto.ProfileType
        2 relative_speedup            double
        3 profile_source              ProfileSource
        4 compilation_event           CompilationEvent
        5 fingerprint                 string
        6 profile_generation_strategy ProfileGenerationStrategy
        7 original_changelist         int64
        8 changelist                  int64""",
    "HloScheduleProto": "1 sequences map<int64, HloScheduleProto.InstructionSequence>",
    "HloScheduleProto.InstructionSequence": "1 instruction_ids repeated int64",
    "HloInputOutputAliasProto": "1 entries repeated HloInputOutputAliasProto.AliasEntryProto",
    "HloInputOutputAliasProto.AliasEntryProto": """
        1 output_shape_index    repeated int64
        2 parameter_number      int64
        3 parameter_shape_index repeated int64
        4 kind                  Kind""",
    "HloBufferDonorProto": "1 entries repeated HloBufferDonorProto.BufferDonorEntryProto",
    "HloBufferDonorProto.BufferDonorEntryProto": """
        1 parameter_number int64; 2 parameter_shape_index repeated int64""",
    "CrossProgramPrefetch": "1 parameter int64; 2 index repeated int64; 3 offset int64",
    # ------------------------------------------------------------------------------- modules in files
    # A BufferAssignmentProto belongs to XLA's own compilation: kept as the bytes that it is on the wire.
    "HloProto": "1 hlo_module HloModuleProto; 3 buffer_assignment bytes",
    "HloSnapshot": """
        1 hlo                HloProto
        2 arguments          repeated LiteralProto
        3 result             LiteralProto
        4 execution_platform string""",
    "HloModuleGroupProto": "1 name string; 2 hlo_modules repeated HloModuleProto",
    "HloInputs": """
        1 arguments             repeated LiteralProto
        2 arguments_descriptors repeated HloInputs.LiteralDescriptor""",
    "HloInputs.LiteralDescriptor": "1 version int32; 2 argument_size_bytes uint64",
    "HloUnoptimizedSnapshot": "1 hlo_module HloModuleProto; 2 partitions repeated HloInputs; 3 version int32",
}

# ------------------------------------------------------------------------------------- reading the tables


@functools.cache
def message_class(name: str) -> type[Any]:
    """The class of a message: `message_class("HloModuleProto").FromString(data)`.

    A nested message has a dotted name (`HloInstructionProto.SliceDimensions`). The type is `Any`, since the fields of
    these classes are unknown to a type checker.
    """
    if name not in MESSAGES:
        raise KeyError(f"no message {name!r} in the schema")
    from google.protobuf import message_factory

    with _pool_lock:
        pool = _pool()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


@functools.cache
def enum_values(name: str) -> dict[str, int]:
    """The values of an enumeration by name: `enum_values("FftType")["RFFT"] == 2`. Not to be changed."""
    return {value: int(number) for value, _, number in (row.partition("=") for row in ENUMS[name].split())}


@functools.cache
def enum_names(name: str) -> dict[int, str]:
    """The names of an enumeration by value: `enum_names("FftType")[2] == "RFFT"`. Not to be changed."""
    return {number: value for value, number in enum_values(name).items()}


# -------------------------------------------------------------------------------------- making descriptors

# Two threads that made a pool each would get two classes for one message, which refuse one another's messages.
_pool_lock = threading.Lock()

_FIELD = re.compile(
    r"(?P<number>\d+) +(?P<name>\w+) +((?P<label>repeated|optional) +)?"
    r"(map<(?P<key>\w+), *(?P<value>[\w.]+)>|(?P<type>[\w.]+))( +oneof +(?P<oneof>\w+))?"
)


@functools.cache
def _pool() -> DescriptorPool:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    # As bytes: the C implementation of `Add` would serialise the message itself, the others want no message at all.
    pool.AddSerializedFile(_file_descriptor().SerializeToString())
    return pool


def _file_descriptor() -> FileDescriptorProto:
    """The tables as one proto3 file. A nested type stands in the message before its last dot."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="hloom/xla.proto", package=PACKAGE, syntax="proto3")
    messages: dict[str, DescriptorProto] = {}
    for full_name, fields in MESSAGES.items():
        outer, _, name = full_name.rpartition(".")
        message = messages[outer].nested_type.add() if outer else file.message_type.add()
        messages[full_name] = message
        message.name = name
        for row in re.split(r"[;\n]", fields):
            if row.strip():
                _add_field(message, full_name, row.strip())
    for full_name in ENUMS:
        outer, _, name = full_name.rpartition(".")
        enum = messages[outer].enum_type.add(name=name) if outer else file.enum_type.add(name=name)
        for value, number in enum_values(full_name).items():
            enum.value.add(name=value, number=number)
    return file


def _add_field(message: DescriptorProto, full_name: str, row: str) -> None:
    """Adds the field that a row of the table describes to its message."""
    match = _FIELD.fullmatch(row)
    if match is None:
        raise ValueError(f"message {full_name}: not a field: {row!r}")
    part = match.groupdict()
    field = message.field.add(name=part["name"], number=int(part["number"]))
    field.label = field.LABEL_OPTIONAL
    if part["label"] == "repeated" or part["key"]:
        field.label = field.LABEL_REPEATED
    if part["key"]:
        # On the wire, and in descriptors, a map is a repeated message of keys and values.
        entry = message.nested_type.add(name=part["name"].title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, full_name, f"1 key {part['key']}")
        _add_field(entry, full_name, f"2 value {part['value']}")
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{full_name}.{entry.name}"
    elif part["type"] in MESSAGES or part["type"] in ENUMS:
        field.type = field.TYPE_MESSAGE if part["type"] in MESSAGES else field.TYPE_ENUM
        field.type_name = f".{PACKAGE}.{part['type']}"
    else:
        field.type = field.Type.Value(f"TYPE_{part['type'].upper()}")
    # proto3 writes `optional` as a group of that one field, its name with an underscore in front.
    field.proto3_optional = part["label"] == "optional"
    group = f"_{field.name}" if field.proto3_optional else part["oneof"]
    if group:
        groups = [declared.name for declared in message.oneof_decl]
        if group not in groups:
            message.oneof_decl.add(name=group)
            groups.append(group)
        field.oneof_index = groups.index(group)
