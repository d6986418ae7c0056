"""Rules of ops with sizes as operands, which HLO needs to be constants or declared by the result's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ir import Computation
from hloom.ops.attributes import PaddingDimension, SliceDimension, WindowDimension
from hloom.ops.operation import OPERATIONS
from hloom.ops.pad import Pad
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.reshape import DynamicReshape
from hloom.ops.slice import Slice
from hloom.shape import Shape
from hloom.stablehlo.attributes.values import integer, integers, required
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import Operation, TensorType
from hloom.stablehlo.mlir.types import i64_array, i64_table, shape_of, type_text
from hloom.stablehlo.operations import BY_NAME

Ops = list[XlaOp]


def result_sizes(body: Body, operation: Operation, operand: XlaOp) -> tuple[int, ...]:
    """The sizes of the result: those of its type, or the constant value of the operand that gives them.

    Raises ArgumentError if neither is known.
    """
    declared = operation.results[0].type
    if isinstance(declared, TensorType) and None not in declared.dimensions:
        return tuple(size for size in declared.dimensions if size is not None)
    return tuple(int(size) for size in constant_elements(body, operation, operand, "the result's sizes"))


def constant_elements(body: Body, operation: Operation, operand: XlaOp, what: str) -> list[Any]:
    """The elements of an operand; raises ArgumentError, which names `what` they are, unless they are constant."""
    value = body.constant_of(operand)
    if value is None:
        declared = type_text(operation.results[0].type)
        raise ArgumentError(
            f"{what} depend on values at run time: HLO needs them to be constants (the result is declared {declared})"
        )
    return [element.item() for element in np.asarray(value).reshape(-1)]


def _reshape(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    declared, (operand, vector) = operation.results[0].type, operands
    if isinstance(declared, TensorType) and declared.bounds and body.constant_of(vector) is None:
        # HLO's dynamic-reshape, to sizes below bounds, takes each size as a scalar operand.
        parts = [body.reshape(body.slice(vector, [i], [i + 1]), ()) for i in range(len(declared.dimensions))]
        return body._add(DynamicReshape(), [operand, *parts], shape_of(declared))
    return body.reshape(operands[0], result_sizes(body, operation, operands[1]))


def in_result_order(body: Body, operation: Operation, operand: XlaOp) -> tuple[XlaOp, Sequence[int]]:
    """Transposes the operand of a broadcast to the order of the result; returns it with its `broadcast_dimensions`."""
    dimensions = integers(required(operation.attributes, "broadcast_dimensions"))
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    if order == list(range(len(order))) or len(order) != operand.shape.rank:
        return operand, dimensions
    return body.transpose(operand, order), [dimensions[d] for d in order]


def _broadcast_in_dim(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    operand, dimensions = in_result_order(body, operation, operands[0])
    return body.broadcast_in_dim(operand, result_sizes(body, operation, operands[1]), dimensions)


def _iota(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    declared = operation.results[0].type
    assert isinstance(declared, TensorType)
    element_type = body.element_type_of(declared)
    shape = Shape.array(element_type, result_sizes(body, operation, operands[0]))
    return body.iota(shape, integer(required(operation.attributes, "iota_dimension")))


def _pad(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    columns = [constant_elements(body, operation, operand, "the paddings") for operand in operands[2:]]
    config = tuple(PaddingDimension(*row) for row in zip(*columns, strict=True))
    return body._add(Pad(padding_config=config), operands[:2])


def _slice(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds a slice for constant bounds; for starts known at run time, a dynamic slice of the result's sizes."""
    operand, start, limit, strides = operands
    if body.constant_of(start) is not None and body.constant_of(limit) is not None:
        columns = [constant_elements(body, operation, operand, "the bounds") for operand in (start, limit, strides)]
        slices = tuple(SliceDimension(*row) for row in zip(*columns, strict=True))
        return body._add(Slice(slice=slices), [operand])
    if any(step != 1 for step in constant_elements(body, operation, strides, "the strides")):
        raise ArgumentError("a slice whose start is known only at run time needs strides of 1")
    declared = operation.results[0].type
    if not isinstance(declared, TensorType) or None in declared.dimensions:
        constant_elements(body, operation, limit, "the bounds")
        constant_elements(body, operation, start, "the bounds")
    starts = [body.reshape(body.slice(start, [i], [i + 1]), ()) for i in range(operand.shape.rank)]
    return body.dynamic_slice(operand, starts, result_sizes(body, operation, limit))


def _gather(body: Body, operation: Operation, operands: Ops) -> Ops:
    operand, start_indices, slice_sizes = operands
    given = constant_elements(body, operation, slice_sizes, "the slice sizes")
    attributes = {**operation.attributes, "slice_sizes": i64_array(given)}
    fields = BY_NAME["gather"].fields(attributes, [operand.shape, start_indices.shape])
    return _emitted(body, operation, "gather", fields, operands[:2])


def _convolution(body: Body, operation: Operation, operands: Ops) -> Ops:
    lhs, rhs, padding = operands
    if padding.shape.rank != 2:
        raise ArgumentError(f"the padding is a table of pairs, one for each spatial dimension, got {padding.shape}")
    rows = np.reshape(constant_elements(body, operation, padding, "the paddings"), padding.shape.dimensions).tolist()
    attributes = {**operation.attributes, "padding": i64_table(rows)}
    fields = BY_NAME["convolution"].fields(attributes, [lhs.shape, rhs.shape])
    return _emitted(body, operation, "convolution", fields, operands[:2])


def reduce_window(body: Body, operation: Operation, operands: Ops, combiner: Computation) -> Ops:
    """Rule of JAX's custom call `stablehlo.dynamic_reduce_window`.

    Its last operands are the window's sizes, strides, base dilations, window dilations and paddings. Raises
    ArgumentError unless these are constant.
    """
    *arrays, sizes, strides, base, window, padding = operands
    rows = [
        constant_elements(body, operation, operand, "the window's sizes") for operand in (sizes, strides, base, window)
    ]
    low, high = np.reshape(constant_elements(body, operation, padding, "the paddings"), (-1, 2)).T.tolist()
    names = ("size", "stride", "base_dilation", "window_dilation", "padding_low", "padding_high")
    columns = zip(*rows, low, high, strict=True)
    dimensions = tuple(WindowDimension(**dict(zip(names, column, strict=True))) for column in columns)
    op = ReduceWindow(window=dimensions, computation=combiner)
    return body.emit(operation, op, arrays)


def _emitted(body: Body, operation: Operation, opcode: str, fields: dict[str, Any], operands: Sequence[XlaOp]) -> Ops:
    return body.emit(operation, OPERATIONS[opcode](**fields), operands)


RULES: dict[str, Rule] = {
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.dynamic_conv": _convolution,
}
