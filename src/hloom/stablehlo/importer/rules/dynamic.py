"""Rules of ops with sizes as operands, which HLO needs to be constants or declared by the result's type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction
from hloom.ops.attributes import PaddingDimension, SliceDimension, WindowDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.custom_call import REFUSE_SIZES, CustomCall
from hloom.ops.operation import OPERATIONS
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.reshape import DynamicReshape, Reshape
from hloom.ops.slice import Slice
from hloom.shape import Shape, scalar
from hloom.stablehlo.attributes.values import integer, integers, required
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import Operation, TensorType
from hloom.stablehlo.mlir.types import i64_array, i64_table, shape_of, type_text
from hloom.stablehlo.operations import BY_NAME
from hloom.types import PrimitiveType

Ops = list[XlaOp]


def result_sizes(body: Body, operation: Operation, operand: XlaOp) -> tuple[int, ...]:
    """The sizes of the result: those of its type, or the greatest values of the operand that gives them.

    Raises ArgumentError if neither is known.
    """
    declared = operation.results[0].type
    if isinstance(declared, TensorType) and None not in declared.dimensions:
        return tuple(size for size in declared.dimensions if size is not None)
    return tuple(greatest(body, operation, operand, "the result's sizes"))


def greatest(body: Body, operation: Operation, operand: XlaOp, what: str) -> list[int]:
    """The greatest values of an operand; raises ArgumentError, which names `what` they are, if there are none."""
    bounds = body.bounds_of(operand)
    if bounds is None:
        return constant_elements(body, operation, operand, what)
    return [int(size) for size in np.asarray(bounds.high).reshape(-1)]


def with_sizes(body: Body, value: XlaOp, sizes: XlaOp, dimensions: Iterable[int] | None = None) -> XlaOp:
    """Gives dimensions, by default all, the elements of a vector as dynamic sizes unless these are constants."""
    bounds = body.bounds_of(sizes)
    if bounds is None or bounds.is_known:
        return value
    parts = _scalars(body, sizes)
    for d in range(len(parts)) if dimensions is None else dimensions:
        if bounds.low[d] != bounds.high[d]:
            value = body.set_dimension_size(value, body.convert_element_type(parts[d], PrimitiveType.S32), d)
    return value


def _scalars(body: Body, vector: XlaOp) -> list[XlaOp]:
    """The elements of a vector, each as a scalar."""
    instruction = vector.instruction
    parts = instruction.operands if isinstance(instruction.op, Concatenate) else [instruction]
    if all(part.shape.dimensions == (1,) for part in parts):
        return [_scalar(body, part) for part in parts]
    return [body.reshape(body.slice(vector, [i], [i + 1]), ()) for i in range(vector.shape.element_count)]


def _scalar(body: Body, part: Instruction) -> XlaOp:
    if isinstance(part.op, Reshape | Broadcast) and part.operands[0].shape.is_scalar:
        return XlaOp(body, part.operands[0])
    return body.reshape(XlaOp(body, part), ())


def constant_elements(body: Body, operation: Operation, operand: XlaOp, what: str) -> list[Any]:
    """The elements of an operand; raises ArgumentError, which names `what` they are, unless they are constant."""
    value = body.constant_of(operand)
    if value is None:
        raise _unknown(operation, what)
    return [element.item() for element in np.asarray(value).reshape(-1)]


def _unknown(operation: Operation, what: str) -> ArgumentError:
    declared = type_text(operation.results[0].type)
    message = f"{what} depend on values at run time: HLO needs them to be constants (the result is declared {declared})"
    return ArgumentError(message)


def _reshape(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds a reshape; to sizes below bounds HLO's dynamic-reshape, which takes each size as a scalar operand."""
    declared, (operand, vector) = operation.results[0].type, operands
    assert isinstance(declared, TensorType)
    if body.constant_of(vector) is not None or (None not in declared.dimensions and not operand.shape.is_dynamic):
        return body.reshape(operand, result_sizes(body, operation, vector))
    if declared.bounds:
        shape = shape_of(declared)
    else:
        sizes, bounds = result_sizes(body, operation, vector), body.bounds_of(vector)
        is_open = [bounds is not None and bounds.low[d] != bounds.high[d] for d in range(len(sizes))]
        flags = [size is None and flag for size, flag in zip(declared.dimensions, is_open, strict=True)]
        shape = Shape.array(operand.shape.element_type, sizes, flags)
    return body._add(DynamicReshape(), [operand, *_scalars(body, vector)], shape)


def in_result_order(body: Body, operation: Operation, operand: XlaOp) -> tuple[XlaOp, Sequence[int]]:
    """Transposes the operand of a broadcast to the order of the result; returns it with its `broadcast_dimensions`."""
    dimensions = integers(required(operation.attributes, "broadcast_dimensions"))
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    if order == list(range(len(order))) or len(order) != operand.shape.rank:
        return operand, dimensions
    return body.transpose(operand, order), [dimensions[d] for d in order]


def _broadcast_in_dim(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    operand, dimensions = in_result_order(body, operation, operands[0])
    result = body.broadcast_in_dim(operand, result_sizes(body, operation, operands[1]), dimensions)
    static = [d for d, is_dynamic in enumerate(result.shape.dynamic_dimensions) if not is_dynamic]
    return with_sizes(body, result, operands[1], static)


def _iota(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    declared = operation.results[0].type
    assert isinstance(declared, TensorType)
    element_type = body.element_type_of(declared)
    shape = Shape.array(element_type, result_sizes(body, operation, operands[0]))
    counted = body.iota(shape, integer(required(operation.attributes, "iota_dimension")))
    return with_sizes(body, counted, operands[0])


def _pad(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    columns = [constant_elements(body, operation, operand, "the paddings") for operand in operands[2:]]
    config = tuple(PaddingDimension(*row) for row in zip(*columns, strict=True))
    return body._add(Pad(padding_config=config), operands[:2])


def _slice(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds a slice for constant starts; for starts known at run time, a dynamic slice of the result's sizes."""
    operand, start, limit, strides = operands
    steps = constant_elements(body, operation, strides, "the strides")
    if body.constant_of(start) is not None:
        starts = constant_elements(body, operation, start, "the bounds")
        limits = greatest(body, operation, limit, "the bounds")
        slices = tuple(map(SliceDimension, starts, limits, steps))
        return with_sizes(body, body._add(Slice(slice=slices), [operand]), _counts(body, start, limit, strides))
    if any(step != 1 for step in steps):
        raise ArgumentError("a slice whose start is known only at run time needs strides of 1")
    declared = operation.results[0].type
    if isinstance(declared, TensorType) and None not in declared.dimensions:
        return body.dynamic_slice(
            operand, _scalars(body, start), [size for size in declared.dimensions if size is not None]
        )
    return _part(body, operation, operands)


def _counts(body: Body, start: XlaOp, limit: XlaOp, strides: XlaOp) -> XlaOp:
    """The number of elements of a slice along each dimension."""
    counts = body.sub(limit, start) if np.any(np.asarray(body.constant_of(start))) else limit
    if np.all(np.asarray(body.constant_of(strides)) == 1):
        return counts
    one = body.constant(np.ones((), strides.shape.element_type.dtype))
    return body.div(body.add(counts, body.sub(strides, one)), strides)


def _part(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds a slice whose start and size are dynamic: of an array with more elements at the end, so that it fits."""
    operand, start, limit, _ = operands
    declared = operation.results[0].type
    assert isinstance(declared, TensorType)
    starts = body.bounds_of(start)
    if starts is None:
        raise _unknown(operation, "the bounds")
    limits = np.minimum(greatest(body, operation, limit, "the bounds"), operand.shape.dimensions) - starts.low
    sizes = [int(most) if size is None else size for size, most in zip(declared.dimensions, limits, strict=True)]
    padding = tuple(PaddingDimension(0, size) for size in sizes)
    zero = body.zeros(scalar(operand.shape.element_type))
    padded = body._add(Pad(padding_config=padding), [operand, zero])
    sliced = body.dynamic_slice(padded, _scalars(body, start), sizes)
    open_ = [d for d, size in enumerate(declared.dimensions) if size is None]
    return with_sizes(body, sliced, body.sub(limit, start), open_)


def _gather(body: Body, operation: Operation, operands: Ops) -> Ops | XlaOp:
    """Adds a gather; one of a single slice of dynamic sizes is a slice."""
    operand, start_indices, slice_sizes = operands
    given, bounds = greatest(body, operation, slice_sizes, "the slice sizes"), body.bounds_of(slice_sizes)
    attributes = {**operation.attributes, "slice_sizes": i64_array(given)}
    fields = BY_NAME["gather"].fields(attributes, [operand.shape, start_indices.shape])
    pairs = zip(given, operand.shape.dimensions, operand.shape.dynamic_dimensions, strict=True)
    is_whole = [dynamic and size == bound for size, bound, dynamic in pairs]
    if bounds is None or not np.any((bounds.low != bounds.high) & ~np.asarray(is_whole)):
        return _emitted(body, operation, "gather", fields, operands[:2])
    starts = body.constant_of(start_indices)
    if starts is None or starts.ndim != 1 or len(fields["offset_dims"]) != len(given):
        raise _unknown(operation, "the slice sizes")
    first = dict(zip(fields["start_index_map"], starts.tolist(), strict=True))
    slices = tuple(SliceDimension(first.get(d, 0), first.get(d, 0) + size) for d, size in enumerate(given))
    return with_sizes(body, body._add(Slice(slice=slices), [operand]), slice_sizes)


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
    ArgumentError unless these are constant, or those of a running sum, whose window may be as large as the bound.
    """
    *arrays, sizes, strides, base, window, padding = operands
    if body.constant_of(sizes) is None:
        _check_running(body, operation, operands)
    rows = [greatest(body, operation, operand, "the window's sizes") for operand in (sizes, strides, base, window)]
    low, high = np.reshape(greatest(body, operation, padding, "the paddings"), (-1, 2)).T.tolist()
    names = ("size", "stride", "base_dilation", "window_dilation", "padding_low", "padding_high")
    columns = zip(*rows, low, high, strict=True)
    dimensions = tuple(WindowDimension(**dict(zip(names, column, strict=True))) for column in columns)
    op = ReduceWindow(window=dimensions, computation=combiner)
    return body.emit(operation, op, arrays)


def _check_running(body: Body, operation: Operation, operands: Ops) -> None:
    """Adds the check that windows of dynamic sizes have that many elements of padding, less one, all on one side."""
    *_, sizes, strides, base, window, padding = operands
    pads, extents = body.bounds_of(padding), body.bounds_of(sizes)
    steps = [constant_elements(body, operation, operand, "the strides") for operand in (strides, base, window)]
    if pads is None or extents is None:
        raise _unknown(operation, "the window's sizes")
    is_open = extents.low != extents.high
    sides = np.reshape(pads.low != pads.high, (-1, 2))
    zero = np.reshape(pads.high == 0, (-1, 2)) & ~sides
    if (
        not np.array_equal(is_open, sides.any(1))
        or np.any(np.not_equal(steps, 1) & is_open)
        or np.any(is_open & ~zero.any(1))
    ):
        raise _unknown(operation, "the window's sizes")
    total = body.sum(padding, [1])
    for d in np.flatnonzero(is_open).tolist():
        missing = body.sub(_scalars(body, sizes)[d], _scalars(body, total)[d])
        holds = body.eq(missing, body.constant(np.ones((), missing.shape.element_type.dtype)))
        refuse_unless(body, holds, missing, "a window of a dynamic size needs padding for a running sum")


def refuse_unless(body: Body, holds: XlaOp, size: XlaOp, message: str) -> None:
    """Adds a check of sizes: the program raises RunError with the message and the size unless a predicate holds."""

    def refuse(size: XlaOp) -> XlaOp:
        refused = size.builder._add(CustomCall(target_name=REFUSE_SIZES, has_effect=True), [size], size.shape)
        refused.instruction.backend_config = message
        return refused

    size = body.convert_element_type(size, PrimitiveType.S32)
    body.conditional(holds, size, lambda size: size, size, refuse)


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
