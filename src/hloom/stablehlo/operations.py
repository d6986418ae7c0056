"""The table of correspondences between StableHLO ops and HLO operations, which importer and exporter share.

    Row("gather", "gather", codecs=(Fields("dimension_numbers", ...), Plain("slice_sizes", INT64_ARRAY), ...))

A row is complete for an op whose operands are those of the HLO operation, in the same order: the importer converts
attributes to fields (`Row.fields`), the exporter fields to attributes (`Row.attributes`). `regions` names the fields
that hold computations, in the order of the op's regions. Ops that differ from the HLO operation in the order or number
of operands, or in the result (while, if, case, custom_call, send, ...), have rows for the attributes that both share
and `irregular=True`; `importer/rules/` and `exporter/` each have a function for them.

`BY_NAME` finds a row by the name of the op without its dialect, `BY_OPCODE` by opcode; the exporter takes the first row
of an opcode. CHLO ops that are HLO operations are rows too; `importer/rules/chlo.py` expands the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.ops.attributes import PaddingDimension, SliceDimension
from hloom.ops.elementwise_binary import Binary
from hloom.ops.elementwise_unary import AccurateUnary, Unary
from hloom.ops.operation import OPERATIONS, Operation
from hloom.shape import Shape
from hloom.stablehlo.attributes.codecs import AttributeCodec, Columns, Fields, Plain
from hloom.stablehlo.attributes.communication import Channel, Groups, Pairs
from hloom.stablehlo.attributes.numerics import Accuracy, Algorithm, Precisions
from hloom.stablehlo.attributes.values import (
    API_VERSION,
    BOOLEAN,
    COMPARE_TYPE,
    DIRECTION,
    FFT_TYPE,
    FLOAT32,
    INT32,
    INT64,
    INT64_ARRAY,
    RNG_ALGORITHM,
    RNG_DISTRIBUTION,
    STRING,
    TRANSPOSE,
    UNIT,
    Attributes,
)
from hloom.stablehlo.attributes.windows import ConvolutionDimensions, Windows
from hloom.stablehlo.mlir.assembly.formats import CHLO_NAMES
from hloom.stablehlo.mlir.ir import Attribute
from hloom.system.records import record


@record(slots=True)
class Row:
    """Correspondence of a StableHLO op and an HLO operation."""

    name: str
    opcode: str
    codecs: tuple[AttributeCodec, ...] = ()
    regions: tuple[str, ...] = ()
    irregular: bool = False
    dialect: str = "stablehlo"

    @property
    def declaration(self) -> type[Operation]:
        """Class of the HLO operation."""
        return OPERATIONS[self.opcode]

    def fields(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        """Converts the op's attributes to field values of the HLO operation, without those that hold computations.

        `operands` are the shapes of the operands. Raises ArgumentError for missing or malformed attributes.
        """
        values: dict[str, Any] = {}
        for codec in self.codecs:
            values |= codec.read(attributes, operands)
        return values

    def attributes(self, op: Operation) -> dict[str, Attribute]:
        """Converts the fields of an HLO operation to the op's attributes.

        Raises ArgumentError for values that StableHLO cannot express.
        """
        written: dict[str, Attribute] = {}
        for codec in self.codecs:
            written |= codec.write(op.__dict__)
        return written


def _element_wise(opcode: str) -> Row:
    """The row of a unary or binary operation, which is an op of the same name."""
    name = opcode.replace("-", "_")
    if name in CHLO_NAMES.split():
        return Row(name, opcode, dialect="chlo")
    return Row(name, opcode, (Accuracy(),) if issubclass(OPERATIONS[opcode], AccurateUnary) else ())


_COLLECTIVE = (Groups(), Channel())
_GLOBAL_IDS = Plain("use_global_device_ids", UNIT, default=False)
_NORM = (Plain("epsilon", FLOAT32), Plain("feature_index", INT64))
_DIMENSION = Plain("dimension", INT64)
_ONE_COMPUTATION = ("computation",)


def _same_names(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


_GATHER = Fields(
    "dimension_numbers",
    "gather",
    lists=_same_names(
        "offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map"
    ),
    scalars=("index_vector_dim",),
)
_SCATTER = Fields(
    "scatter_dimension_numbers",
    "scatter",
    lists=_same_names(
        "update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims "
        "scatter_dims_to_operand_dims"
    ),
    scalars=("index_vector_dim",),
)
_DOT_LISTS = {
    "lhs_batching_dimensions": "lhs_batch_dims",
    "rhs_batching_dimensions": "rhs_batch_dims",
    "lhs_contracting_dimensions": "lhs_contracting_dims",
    "rhs_contracting_dimensions": "rhs_contracting_dims",
}
DOT_DIMENSIONS = Fields("dot_dimension_numbers", "dot", lists=_DOT_LISTS)
_RAGGED_DOT_DIMENSIONS = Fields(
    "ragged_dot_dimension_numbers",
    "ragged_dot",
    lists=_DOT_LISTS | {"lhs_ragged_dimensions": "lhs_ragged_dims", "rhs_group_dimensions": "rhs_group_dims"},
    dialect="chlo",
)
_SLICES = Columns("slice", SliceDimension, ("start_indices", "limit_indices", "strides"))
_PADS = Columns("padding_config", PaddingDimension, ("edge_padding_low", "edge_padding_high", "interior_padding"))

ROWS: tuple[Row, ...] = (
    # Element by element
    *(_element_wise(opcode) for opcode, known in OPERATIONS.items() if issubclass(known, (Unary, Binary))),
    Row("compare", "compare", (Plain("comparison_direction", DIRECTION, "direction"),
                               Plain("compare_type", COMPARE_TYPE, "type", None))),
    Row("select", "select"),
    Row("clamp", "clamp"),
    Row("convert", "convert"),
    Row("bitcast_convert", "bitcast-convert"),
    Row("reduce_precision", "reduce-precision", (Plain("exponent_bits", INT32), Plain("mantissa_bits", INT32))),
    # Shapes
    Row("reshape", "reshape"),
    Row("broadcast_in_dim", "broadcast", (Plain("broadcast_dimensions", INT64_ARRAY),)),
    Row("transpose", "transpose", (Plain("permutation", INT64_ARRAY),)),
    Row("reverse", "reverse", (Plain("dimensions", INT64_ARRAY),)),
    Row("slice", "slice", (_SLICES,)),
    Row("dynamic_slice", "dynamic-slice", (Plain("slice_sizes", INT64_ARRAY, "size_indices"),)),
    Row("dynamic_update_slice", "dynamic-update-slice"),
    Row("pad", "pad", (_PADS,)),
    Row("concatenate", "concatenate", (_DIMENSION,)),
    Row("iota", "iota", (Plain("iota_dimension", INT64),)),
    Row("get_dimension_size", "get-dimension-size", (_DIMENSION,)),
    Row("set_dimension_size", "set-dimension-size", (_DIMENSION,)),
    Row("gather", "gather", (_GATHER, Plain("slice_sizes", INT64_ARRAY),
                             Plain("indices_are_sorted", BOOLEAN, default=False))),
    # Products
    Row("dot_general", "dot", (DOT_DIMENSIONS, Precisions(), Algorithm())),
    Row("ragged_dot", "ragged-dot", (_RAGGED_DOT_DIMENSIONS, Precisions("chlo")), dialect="chlo"),
    Row("convolution", "convolution",
        (Windows(sizes="", base="lhs_dilation", window="rhs_dilation"), ConvolutionDimensions(),
         Plain("feature_group_count", INT64, default=1, always_written=True),
         Plain("batch_group_count", INT64, default=1, always_written=True), Precisions())),
    Row("fft", "fft", (Plain("fft_type", FFT_TYPE), Plain("fft_length", INT64_ARRAY))),
    Row("cholesky", "cholesky", (Plain("lower", BOOLEAN, default=False),)),
    Row("triangular_solve", "triangular-solve",
        (Plain("left_side", BOOLEAN), Plain("lower", BOOLEAN), Plain("unit_diagonal", BOOLEAN),
         Plain("transpose_a", TRANSPOSE))),
    Row("batch_norm_training", "batch-norm-training", _NORM),
    Row("batch_norm_inference", "batch-norm-inference", _NORM),
    Row("batch_norm_grad", "batch-norm-grad", _NORM),
    # Operations with computations on scalars
    Row("reduce", "reduce", (Plain("dimensions", INT64_ARRAY),), _ONE_COMPUTATION),
    Row("reduce_window", "reduce-window", (Windows(),), _ONE_COMPUTATION),
    Row("select_and_scatter", "select-and-scatter", (Windows(base="", window=""),), ("select", "scatter")),
    Row("map", "map", (Plain("dimensions", INT64_ARRAY),), _ONE_COMPUTATION),
    Row("sort", "sort", (Plain("dimension", INT64, default=-1), Plain("is_stable", BOOLEAN, default=False)),
        ("comparator",), irregular=True),
    Row("scatter", "scatter",
        (_SCATTER, Plain("indices_are_sorted", BOOLEAN, default=False),
         Plain("unique_indices", BOOLEAN, default=False)),
        ("update_computation",)),
    Row("top_k", "topk", (Plain("k", INT64), Plain("largest", BOOLEAN, default=True)), dialect="chlo"),
    # Random numbers
    Row("rng", "rng", (Plain("rng_distribution", RNG_DISTRIBUTION, "distribution"),), irregular=True),
    Row("rng_bit_generator", "rng-bit-generator", (Plain("rng_algorithm", RNG_ALGORITHM, "algorithm"),),
        irregular=True),
    # Collectives
    Row("all_gather", "all-gather", (Plain("all_gather_dim", INT64), *_COLLECTIVE, _GLOBAL_IDS)),
    Row("all_reduce", "all-reduce", (*_COLLECTIVE, _GLOBAL_IDS), _ONE_COMPUTATION),
    Row("reduce_scatter", "reduce-scatter", (Plain("scatter_dimension", INT64), *_COLLECTIVE, _GLOBAL_IDS),
        _ONE_COMPUTATION),
    Row("all_to_all", "all-to-all", _COLLECTIVE, irregular=True),
    Row("collective_permute", "collective-permute", (Pairs(), Channel())),
    Row("collective_broadcast", "collective-broadcast", _COLLECTIVE),
    Row("replica_id", "replica-id"),
    Row("partition_id", "partition-id"),
    # Tokens, tuples, infeed, host transfers and custom calls
    Row("after_all", "after-all"),
    Row("tuple", "tuple"),
    Row("get_tuple_element", "get-tuple-element", (Plain("index", INT32),)),
    Row("optimization_barrier", "opt-barrier", irregular=True),
    Row("infeed", "infeed", (Plain("infeed_config", STRING, default=""),), irregular=True),
    Row("outfeed", "outfeed", (Plain("outfeed_config", STRING, default=""),), irregular=True),
    Row("send", "send", (Channel(1, optional=False), Plain("is_host_transfer", BOOLEAN, default=False)),
        irregular=True),
    Row("recv", "recv", (Channel(1, optional=False), Plain("is_host_transfer", BOOLEAN, default=False)),
        irregular=True),
    Row("custom_call", "custom-call",
        (Plain("call_target_name", STRING, "target_name"), Plain("has_side_effect", BOOLEAN, "has_effect", False),
         Plain("api_version", API_VERSION, default=API_VERSION.read("API_VERSION_ORIGINAL"))),
        irregular=True),
    # Constants and control flow, whose operands and regions importer and exporter convert.
    Row("constant", "constant", irregular=True),
    Row("while", "while", (), ("condition", "body"), irregular=True),
    Row("if", "conditional", irregular=True),
    Row("case", "conditional", irregular=True),
)  # fmt: skip

BY_NAME: dict[str, Row] = {row.name: row for row in ROWS}
BY_OPCODE: dict[str, Row] = {row.opcode: row for row in reversed(ROWS)}


def attributes_of(op: Operation) -> dict[str, Attribute]:
    """The attributes of the op for an HLO operation, by its row.

    Raises ArgumentError for values that StableHLO cannot express, KeyError for an operation without a row.
    """
    return BY_OPCODE[op.opcode].attributes(op)
