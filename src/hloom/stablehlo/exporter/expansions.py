"""Rules of HLO operations that become several StableHLO ops or one of another form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.collectives import AllToAll
from hloom.ops.convert import Convert
from hloom.ops.dot import ScaledDot
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.reshape import Bitcast
from hloom.ops.scan import Scan, TriState
from hloom.ops.sort import TopK
from hloom.shape import Shape
from hloom.stablehlo.attributes.communication import Groups
from hloom.stablehlo.attributes.numerics import Precisions
from hloom.stablehlo.attributes.values import BOOLEAN, COMPARE_TYPE, DIRECTION
from hloom.stablehlo.exporter.block import RULES, BlockExporter, Leaves, leaf_count
from hloom.stablehlo.mlir.ir import Attribute, DenseArray, Value
from hloom.stablehlo.mlir.types import I32, i32, i64, i64_array, mlir_type, tensor_type
from hloom.stablehlo.operations import DOT_DIMENSIONS, attributes_of
from hloom.types import PrimitiveType

F32, S32 = PrimitiveType.F32, PrimitiveType.S32


class _BlockBuilder:
    """Emits the ops of an expansion with explicit shapes."""

    def __init__(self, block: BlockExporter) -> None:
        self.block = block

    def one(self, name: str, operands: Sequence[Value], shape: Shape, **attributes: Attribute) -> Value:
        """Emits an op with one result."""
        return self.block.emit(f"stablehlo.{name}", operands, [mlir_type(shape)], attributes)[0]

    def reshape(self, value: Value, shape: Shape) -> Value:
        return self.one("reshape", [value], shape)

    def transpose(self, value: Value, shape: Shape, permutation: Sequence[int]) -> tuple[Value, Shape]:
        """Emits a transpose and returns its value and shape; an identity permutation emits nothing."""
        if list(permutation) == sorted(permutation):
            return value, shape
        transposed_shape = Shape.array(shape.element_type, [shape.dimensions[d] for d in permutation])
        return self.one("transpose", [value], transposed_shape, permutation=i64_array(permutation)), transposed_shape


# Bitcasts


@RULES.rule(Bitcast)
def _bitcast(op: Bitcast, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Reinterprets the elements, in the order of their layout, as another type and shape."""
    build, target = _BlockBuilder(block), instruction.shape
    (operand,) = instruction.operands
    if target.is_tuple:
        return block.values[operand]
    source = operand.shape
    for shape in (source, target):
        if shape.is_dynamic or shape.layout is None or shape.layout.tiles or shape.layout.padded_dimensions:
            raise ArgumentError(f"a bitcast of {shape} cannot be exported: only static arrays in dense layouts can")
    value, at = build.transpose(block.leaves(operand)[0], source, _physical_order(source))
    bits_in, bits_out = source.element_type.bits, target.element_type.bits
    if source.element_type is not target.element_type:
        if PrimitiveType.PRED in (source.element_type, target.element_type):
            raise ArgumentError("stablehlo.bitcast_convert does not take booleans, whose width is one bit there")
        ratio = max(bits_in, bits_out) // min(bits_in, bits_out)
        rows = at.element_count if bits_in >= bits_out else at.element_count // ratio
        before = [rows] if bits_in >= bits_out else [rows, ratio]
        after = [rows, ratio] if bits_in > bits_out else [rows]
        value = build.reshape(value, Shape.array(source.element_type, before))
        at = Shape.array(target.element_type, after)
        value = build.one("bitcast_convert", [value], at)
    order = _physical_order(target)
    physical = Shape.array(target.element_type, [target.dimensions[d] for d in order])
    if physical.dimensions != at.dimensions:
        value = build.reshape(value, physical)
    return [build.transpose(value, physical, [order.index(d) for d in range(target.rank)])[0]]


def _physical_order(shape: Shape) -> list[int]:
    """The dimensions from the most major to the most minor."""
    return list(reversed(shape.layout.minor_to_major)) if shape.layout is not None else []


# Conversions


@RULES.rule(Convert)
def _convert(op: Convert, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Compares complex numbers with 0 where booleans are wanted (CONVERT-4): StableHLO converts the real part."""
    build, shape = _BlockBuilder(block), instruction.operands[0].shape
    if not (shape.element_type.is_complex and instruction.shape.element_type.is_pred):
        return block.regular(instruction)
    zero = block.constant(np.zeros((), shape.element_type.dtype), tensor_type(Shape.array(shape.element_type)))
    zeros = build.one("broadcast_in_dim", [zero], shape, broadcast_dimensions=i64_array([]))
    unequal: dict[str, Attribute] = {"comparison_direction": DIRECTION.write(ComparisonDirection.NE)}
    operands = [*block.leaves(instruction.operands[0]), zeros]
    return block.emit_for(instruction, "stablehlo.compare", operands=operands, attributes=unequal)


# Selections


@RULES.rule(TopK)
def _top_k(op: TopK, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits chlo.top_k for the largest elements, otherwise a stable sort with indices and slices of both results."""
    if op.largest:
        return block.regular(instruction)
    build, shape = _BlockBuilder(block), instruction.operands[0].shape
    last, indices = shape.rank - 1, shape.with_element_type(S32)
    iota = build.one("iota", [], indices, iota_dimension=i64(last))
    element, index = (mlir_type(Shape.array(kind)) for kind in (shape.element_type, S32))
    with block.emitted_region([element, element, index, index]) as (inner, region):
        compare: dict[str, Attribute] = {"comparison_direction": DIRECTION.write(ComparisonDirection.LT)}
        if shape.element_type.is_float:
            compare["compare_type"] = COMPARE_TYPE.write(ComparisonType.TOTALORDER)
        boolean = mlir_type(Shape.array(PrimitiveType.PRED))
        less = inner.emit("stablehlo.compare", inner.block.arguments[:2], [boolean], compare)
        inner.emit("stablehlo.return", less, [])
    ordered = block.emit(
        "stablehlo.sort",
        [*block.leaves(*instruction.operands), iota],
        [mlir_type(shape), mlir_type(indices)],
        {"dimension": i64(last), "is_stable": True},
        [region],
    )
    limits = [*shape.dimensions[:last], op.k]
    return [_slice(build, value, leaf, limits) for value, leaf in zip(ordered, instruction.shape.leaves(), strict=True)]


def _slice(build: _BlockBuilder, value: Value, shape: Shape, limits: Sequence[int], start: int = 0) -> Value:
    """Emits the slice of elements below `limits`, from `start` on in the first dimension."""
    starts = [start, *[0] * (len(limits) - 1)]
    return build.one(
        "slice",
        [value],
        shape,
        start_indices=i64_array(starts),
        limit_indices=i64_array(limits),
        strides=i64_array([1] * len(limits)),
    )


# Products


@RULES.rule(ScaledDot)
def _scaled_dot(op: ScaledDot, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the dot of the operands in f32, multiplied by their scales; converts the result."""
    build = _BlockBuilder(block)
    lhs, rhs, lhs_scale, rhs_scale = instruction.operands
    scaled = [_scaled(build, *pair) for pair in ((lhs, lhs_scale), (rhs, rhs_scale))]
    attributes = DOT_DIMENSIONS.write(op.__dict__) | Precisions().write(op.__dict__)
    wide = instruction.shape.with_element_type(F32)
    product = block.emit_for(
        instruction, "stablehlo.dot_general", operands=scaled, types=[mlir_type(wide)], attributes=attributes
    )
    return product if wide == instruction.shape else [build.one("convert", product, instruction.shape)]


def _scaled(build: _BlockBuilder, operand: Instruction, scale: Instruction) -> Value:
    """The operand in f32 times its scale, broadcast over its blocks."""
    shape = Shape.array(F32, operand.shape.dimensions)
    value, factor = (build.block.leaves(i)[0] for i in (operand, scale))
    value = value if operand.shape.element_type is F32 else build.one("convert", [value], shape)
    if scale.shape.element_type is not F32:
        factor = build.one("convert", [factor], Shape.array(F32, scale.shape.dimensions))
    if scale.shape.is_scalar:
        factor = build.one("broadcast_in_dim", [factor], shape, broadcast_dimensions=i64_array([]))
    elif scale.shape.dimensions != shape.dimensions:
        pairs = [(s, n // s) for s, n in zip(scale.shape.dimensions, shape.dimensions, strict=True)]
        blocks = Shape.array(F32, [size for pair in pairs for size in pair])
        dimensions = i64_array(range(0, blocks.rank, 2))
        factor = build.reshape(build.one("broadcast_in_dim", [factor], blocks, broadcast_dimensions=dimensions), shape)
    return build.one("multiply", [value, factor], shape)


# Scans


@RULES.rule(Scan)
def _scan(op: Scan, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits chlo.scan, whose operand and result segments count inputs, initial carries, outputs and final carries."""
    inputs = len(instruction.operands) - op.num_carries
    results = leaf_count(instruction.shape) - op.num_carries
    attributes: dict[str, Attribute] = {
        "dimension": i64(op.scan_dimension),
        "is_reverse": BOOLEAN.write(op.is_reverse),
        "operandSegmentSizes": DenseArray(I32, (inputs, op.num_carries)),
        "resultSegmentSizes": DenseArray(I32, (results, op.num_carries)),
    }
    if op.is_associative is not TriState.TRI_STATE_UNSPECIFIED:
        attributes["is_associative"] = op.is_associative is TriState.TRI_STATE_TRUE
    return block.emit_for(instruction, "chlo.scan", attributes=attributes, regions=[block.region(op.computation)])


# Collectives


@RULES.rule(AllToAll)
def _all_to_all(op: AllToAll, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits all_to_all; the tuple form, without a dimension, becomes one on stacked operands whose result is sliced."""
    if op.split_dimension is not None:
        attributes = _exchange(op, op.split_dimension, _group_size(block, op))
        return block.emit_for(instruction, "stablehlo.all_to_all", attributes=attributes)
    build, shape, count = _BlockBuilder(block), instruction.operands[0].shape, len(instruction.operands)
    row = Shape.array(shape.element_type, [1, *shape.dimensions])
    stacked_shape = Shape.array(shape.element_type, [count, *shape.dimensions])
    rows = [build.reshape(value, row) for value in block.leaves(*instruction.operands)]
    stacked = build.one("concatenate", rows, stacked_shape, dimension=i64(0))
    (received,) = block.emit_for(
        instruction,
        "stablehlo.all_to_all",
        operands=[stacked],
        types=[mlir_type(stacked_shape)],
        attributes=_exchange(op, 0, count),
    )
    return [
        build.reshape(_slice(build, received, row, [i + 1, *shape.dimensions], start=i), shape) for i in range(count)
    ]


def _exchange(op: AllToAll, dimension: int, count: int) -> dict[str, Attribute]:
    """Attributes of an all_to_all that splits and concatenates along one dimension."""
    attributes = attributes_of(op)
    return attributes | {
        "split_dimension": i64(dimension),
        "concat_dimension": i64(dimension),
        "split_count": i64(count),
    }


def _group_size(block: BlockExporter, op: AllToAll) -> int:
    """The size of the largest group; without groups, all replicas or partitions."""
    sizes = op.group_sizes()
    if sizes:
        return max(sizes)
    return block.module.replica_count if op.channel_id is None else block.module.num_partitions


@RULES.rule(RaggedAllToAll)
def _ragged_all_to_all(op: RaggedAllToAll, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the custom call `ragged_all_to_all`, as XLA does."""
    config: dict[str, Any] = dict(Groups().write(op.__dict__))
    if op.channel_id is not None:
        config["channel_id"] = i64(op.channel_id)
    attributes: dict[str, Attribute] = {
        "call_target_name": "ragged_all_to_all",
        "api_version": i32(4),
        "backend_config": config,
    }
    return block.emit_for(instruction, "stablehlo.custom_call", attributes=attributes)
