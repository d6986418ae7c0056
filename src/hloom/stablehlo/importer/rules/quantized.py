"""Quantised tensors: represented by their stored integers.

Arithmetic dequantises operands and quantises results, as `dequantize_op_quantize` of the StableHLO specification.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ops.custom_call import CustomCall
from hloom.ops.dynamic_size import GetDimensionSize, SetDimensionSize
from hloom.ops.traits import Communication, ControlFlow, Identity, Movement, Structural
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import Operation, QuantizedType, TensorType, Type, Value
from hloom.stablehlo.mlir.types import element_type_of
from hloom.stablehlo.operations import ROWS

_MOVING = (Movement, Structural, Identity, ControlFlow, Communication, CustomCall, GetDimensionSize, SetDimensionSize)
_OTHER_MOVES = """bitcast_convert broadcast call composite dynamic_broadcast_in_dim dynamic_gather dynamic_pad
    dynamic_reshape real_dynamic_slice uniform_dequantize uniform_quantize"""
_MOVES = frozenset(row.name for row in ROWS if issubclass(row.declaration, _MOVING)) | frozenset(_OTHER_MOVES.split())
"""Ops that only move elements, and thus work on the stored integers, as do ops with regions."""


def quantized_type(type_: Type) -> QuantizedType | None:
    """The quantised element type of a tensor type; None for any other type."""
    element = type_.element_type if isinstance(type_, TensorType) else None
    return element if isinstance(element, QuantizedType) else None


def is_arithmetic_on_quantized(operation: Operation) -> bool:
    """Whether an op computes with quantised values, rather than moving them."""
    if operation.regions or operation.name.partition(".")[2] in _MOVES:
        return False
    return any(quantized_type(value.type) for value in (*operation.operands, *operation.results))


def dequantize_op_quantize(body: Body, operation: Operation, operands: list[XlaOp]) -> list[XlaOp]:
    """Rule of arithmetic on quantised tensors: dequantises operands, applies the op, quantises results.

    Raises ArgumentError as `quantize` and the rules of the op.
    """
    expressed = [
        dequantize(body, operand, kind) if (kind := quantized_type(value.type)) else operand
        for value, operand in zip(operation.operands, operands, strict=True)
    ]
    stand_in = replace(
        operation,
        operands=[Value(_expressed(value.type), value.name) for value in operation.operands],
        results=[Value(_expressed(value.type), value.name) for value in operation.results],
    )
    results = body.results(stand_in, expressed)
    return [
        quantize(body, result, kind) if (kind := quantized_type(value.type)) else result
        for value, result in zip(operation.results, results, strict=True)
    ]


def _expressed(type_: Type) -> Type:
    kind = quantized_type(type_)
    return replace(type_, element_type=kind.expressed) if kind and isinstance(type_, TensorType) else type_


def dequantize(body: Body, stored: XlaOp, kind: QuantizedType) -> XlaOp:
    """(stored - zero point) * scale, in the expressed type."""
    expressed = element_type_of(kind.expressed)
    # The difference needs one bit more than the storage type.
    wide = body.convert_element_type(stored, "s64" if element_type_of(kind.storage).bits > 16 else "s32")
    shifted = body.sub(wide, _along_axis(body, wide, kind, kind.zero_points))
    unscaled = body.convert_element_type(shifted, expressed)
    return body.mul(unscaled, _along_axis(body, unscaled, kind, kind.scales))


def quantize(body: Body, value: XlaOp, kind: QuantizedType) -> XlaOp:
    """value / scale + zero point, clamped to the storage range and rounded to nearest even, in the storage type.

    Raises ArgumentError if the values are not floating point, or scales per axis do not match the shape.
    """
    low, high = storage_range(kind)
    element_type = value.shape.element_type
    if not element_type.is_float:
        raise ArgumentError(f"floating-point numbers are quantised, got {value.shape}")
    scaled = body.div(value, _along_axis(body, value, kind, kind.scales))
    shifted = body.add(scaled, _along_axis(body, scaled, kind, kind.zero_points))
    limits = [body.constant(np.asarray(v).astype(element_type.dtype)) for v in (low, high)]
    rounded = body.round_nearest_even(body.clamp(limits[0], shifted, limits[1]))
    return body.convert_element_type(rounded, element_type_of(kind.storage))


def storage_range(kind: QuantizedType) -> tuple[int, int]:
    """The smallest and the largest stored integer."""
    if kind.storage_range is not None:
        return kind.storage_range
    return element_type_of(kind.storage).limits


def _along_axis(body: Body, like: XlaOp, kind: QuantizedType, values: tuple[float, ...] | tuple[int, ...]) -> XlaOp:
    """Broadcasts scales or zero points to the shape of `like`: a single value, or one for each index of the axis."""
    shape = like.shape
    array = np.asarray(values).astype(shape.element_type.dtype)
    if kind.axis is None:
        return body.broadcast(body.constant(array.reshape(())), shape.dimensions)
    if not 0 <= kind.axis < shape.rank or shape.dimensions[kind.axis] != len(values):
        raise ArgumentError(f"{shape} needs a dimension {kind.axis} of size {len(values)} for its scales")
    return body.broadcast_in_dim(body.constant(array), shape.dimensions, [kind.axis])


def _uniform_quantize(body: Body, operation: Operation, operands: list[XlaOp]) -> XlaOp:
    source, target = quantized_type(operation.operands[0].type), quantized_type(operation.results[0].type)
    if target is None:
        raise ArgumentError("the result of uniform_quantize has a quantised type")
    value = dequantize(body, operands[0], source) if source else operands[0]
    return quantize(body, value, target)


def _uniform_dequantize(body: Body, operation: Operation, operands: list[XlaOp]) -> XlaOp:
    source = quantized_type(operation.operands[0].type)
    if source is None:
        raise ArgumentError("the operand of uniform_dequantize has a quantised type")
    return dequantize(body, operands[0], source)


RULES: dict[str, Rule] = {
    "stablehlo.uniform_quantize": _uniform_quantize,
    "stablehlo.uniform_dequantize": _uniform_dequantize,
}
