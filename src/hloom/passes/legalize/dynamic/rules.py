"""Rules that rewrite operations on arrays of dynamic sizes to operations on arrays padded to their bounds.

A rule returns the padded arrays of the result with their sizes; None if the operation needs the dynamic arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hloom.ir import Instruction
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Iota
from hloom.ops.convert import BitcastConvert
from hloom.ops.convolution import Convolution
from hloom.ops.custom_call import PAD_TO_STATIC, SLICE_TO_DYNAMIC, CustomCall, slice_size_rule
from hloom.ops.dot import Dot
from hloom.ops.dynamic_size import GetDimensionSize, SetDimensionSize
from hloom.ops.elementwise_binary import Add, Divide, Minimum, Multiply, Remainder
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.registry import Registry, Rule
from hloom.ops.reshape import Copy, DynamicReshape, Reshape, kept_dimensions
from hloom.ops.scatter import Scatter
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.sort import Sort, TopK
from hloom.ops.transpose import Reverse
from hloom.passes.legalize.dynamic import indexed, reductions
from hloom.passes.legalize.dynamic.site import Padded, Site, Sizes, origin
from hloom.shape import Shape
from hloom.types import PrimitiveType

RULES = Registry[[Site, Sequence[Padded]], list[Padded] | None]()


def elementwise(op: Operation, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Applies the operation to the padded arrays, whose sizes must be equal."""
    return [Padded(site.apply(*(operand.array for operand in operands)), site.joint_sizes(operands))]


@RULES.rule(Copy)
def _copy(op: Copy, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    return [operands[0]]


@RULES.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    return elementwise(op, site, operands) if site.shapes[0].same_dimensions(site.old.shape) else None


@RULES.rule(Iota)
def _iota(op: Iota, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    shape = site.old.shape
    sizes = {d: site.s32(shape.dimensions[d]) for d, dynamic in enumerate(shape.dynamic_dimensions) if dynamic}
    return [Padded(site.apply(), sizes)]


@RULES.rule(Reverse)
def _reverse(op: Reverse, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Reverses the padded array, and shifts out the elements beyond the sizes, which then come first."""
    (operand,) = operands
    excess = {d: site.difference(operand.bounds[d], s) for d, s in operand.sizes.items() if d in op.dimensions}
    backward = site.apply(operand.array)
    return [Padded(site.shifted(backward, excess) if excess else backward, operand.sizes)]


@RULES.rule(GetDimensionSize)
def _get_dimension_size(op: GetDimensionSize, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    return [Padded(site.size(operands[0], op.dimension))]


@RULES.rule(SetDimensionSize)
def _set_dimension_size(op: SetDimensionSize, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Sets the elements beyond the old size to zero, which a larger size makes valid."""
    d, operand, size = op.dimension, operands[0], operands[1].array
    if d in operand.sizes and site.old.shape.dynamic_dimensions[d] and origin(operand.sizes[d]) is origin(size):
        return [operand]
    bound = operand.bounds[d]
    direction = ComparisonDirection.LE if site.old.shape.dynamic_dimensions[d] else ComparisonDirection.EQ
    size = site.fitting(size, direction, bound, _WRONG_SIZE.format(d, bound))
    before = {d: operand.sizes[d]} if d in operand.sizes else {}
    sizes = {**operand.sizes, d: size}
    if not site.old.shape.dynamic_dimensions[d]:
        del sizes[d]
    return [Padded(site.masked(operand.array, before, site.zero(operand.array)), sizes)]


_WRONG_SIZE = "SETDIMENSIONSIZE-5: the size of dimension {} must be in [0, {}], and the bound where it is static"


@RULES.rule(Pad)
def _pad(op: Pad, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Pads after setting the elements beyond the sizes to the padding value, since the high padding starts there."""
    operand, value = operands[0], operands[1].array
    sizes = {}
    for d, size in operand.sizes.items():
        padding = op.padding_config[d]
        gaps = site.product(site.maximum(site.difference(size, 1), 0), padding.interior_padding)
        dilated = site.sum(size, gaps, padding.edge_padding_low, padding.edge_padding_high)
        sizes[d] = site.maximum(dilated, 0)
    return [Padded(site.apply(site.masked(operand.array, operand.sizes, value), value), sizes)]


@RULES.rule(Concatenate)
def _concatenate(op: Concatenate, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Writes each operand, along a dynamic dimension, over the elements beyond the size of the previous one."""
    along, shape = op.dimension, site.old.shape.static()
    across = site.joint_sizes([Padded(o.array, {d: s for d, s in o.sizes.items() if d != along}) for o in operands])
    if not site.old.shape.dynamic_dimensions[along]:
        return [Padded(site.apply(*(operand.array for operand in operands)), across)]
    joined, end = site.splat(site.build.constant(0, shape.element_type), shape), site.s32(0)
    for operand in operands:
        starts = [end if d == along else site.s32(0) for d in range(shape.rank)]
        joined = site.build(DynamicUpdateSlice(), joined, operand.array, *starts)
        end = site.sum(end, site.size(operand, along))
    return [Padded(joined, {**across, along: end})]


@RULES.rule(Slice)
def _slice(op: Slice, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Slices dynamic dimensions to static ones, with zeros beyond the size."""
    (operand,) = operands
    whole = {d: size for d, size in operand.sizes.items() if site.old.shape.dynamic_dimensions[d]}
    sliced = {d: size for d, size in operand.sizes.items() if d not in whole}
    return [Padded(site.apply(site.masked(operand.array, sliced, site.zero(operand.array))), whole)]


@RULES.rule(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    operand, starts = operands[0], [start.array for start in operands[1:]]
    if any(start.shape.rank for start in starts):
        return None
    whole = {d: size for d, size in operand.sizes.items() if site.old.shape.dynamic_dimensions[d]}
    sliced = {d: size for d, size in operand.sizes.items() if d not in whole}
    array = site.masked(operand.array, sliced, site.zero(operand.array))
    for d, size in sliced.items():
        starts[d] = _clamped(site, starts[d], size, op.size_indices[d])
    return [Padded(site.apply(array, *starts), whole)]


@RULES.rule(DynamicUpdateSlice)
def _dynamic_update_slice(op: DynamicUpdateSlice, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    operand, update, starts = operands[0], operands[1], [start.array for start in operands[2:]]
    if update.sizes or any(start.shape.rank for start in starts):
        return None
    for d, size in operand.sizes.items():
        starts[d] = _clamped(site, starts[d], size, update.bounds[d])
    return [Padded(site.apply(operand.array, update.array, *starts), operand.sizes)]


def _clamped(site: Site, start: Instruction, size: Instruction, part: int) -> Instruction:
    """Clamps a start index from above, so that the slice ends before the size (DYNAMICSLICE-2)."""
    limit = site.build.convert(site.maximum(site.difference(size, part), 0), start.shape.element_type)
    return site.build(Minimum(), start, limit)


@RULES.rule(Reshape)
def _reshape(op: Reshape, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    operand, shape = operands[0], site.old.shape
    kept = kept_dimensions(site.shapes[0], shape)
    sizes = {target: site.size(operand, d) for d, target in kept.items() if shape.dynamic_dimensions[target]}
    dynamic = [d for d, is_dynamic in enumerate(shape.dynamic_dimensions) if is_dynamic]
    if {kept.get(d) for d in operand.sizes} <= set(sizes) == set(dynamic):
        return [Padded(site.build(Reshape(), operand.array, shape=shape.static()), sizes)]
    total = site.product(*(site.size(operand, d) for d in range(len(operand.bounds))))
    unknown = [d for d in dynamic if d not in sizes]
    for d in unknown[1:]:
        sizes[d] = site.s32(shape.dimensions[d])
    if unknown:
        # The first unknown size follows from the number of elements if the others are their bounds.
        rest = site.product(*(sizes.get(d) or n for d, n in enumerate(shape.dimensions) if d != unknown[0]))
        sizes[unknown[0]] = site.quotient(total, site.maximum(rest, 1))
    return [_refilled(site, operand, total, sizes)]


@RULES.rule(DynamicReshape)
def _dynamic_reshape(op: DynamicReshape, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    operand, shape = operands[0], site.old.shape
    given = [site.build.convert(size.array, PrimitiveType.S32) for size in operands[1:]]
    sizes = {}
    for d, size in enumerate(given):
        is_dynamic = shape.dynamic_dimensions[d]
        direction = ComparisonDirection.LE if is_dynamic else ComparisonDirection.EQ
        message = f"RESHAPE-2: the size of dimension {d} does not fit {shape}"
        checked = site.fitting(size, direction, shape.dimensions[d], message)
        if is_dynamic:
            sizes[d] = checked
    kept = kept_dimensions(site.shapes[0], shape)
    moved = {kept.get(d): origin(size) for d, size in operand.sizes.items()}
    if moved == {d: origin(size) for d, size in sizes.items()}:
        return [Padded(site.build(Reshape(), operand.array, shape=shape.static()), sizes)]
    total = site.product(*(site.size(operand, d) for d in range(len(operand.bounds))))
    return [_refilled(site, operand, total, sizes)]


def _refilled(site: Site, operand: Padded, total: Instruction, sizes: Sizes) -> Padded:
    """Gathers the operand's elements, in row-major order, into an array of other sizes."""
    shape = site.old.shape.static()
    filled = site.product(*(sizes.get(d) or n for d, n in enumerate(shape.dimensions)))
    message = f"RESHAPE-2: the elements of {site.shapes[0]} do not fill the sizes of {site.old.shape}"
    total = site.checked(total, site.compare(total, ComparisonDirection.EQ, filled), message)
    in_place = (set(operand.sizes) <= {0} and set(sizes) <= {0}) or not shape.element_count
    if in_place and math.prod(operand.bounds) == shape.element_count:
        return Padded(site.build(Reshape(), operand.array, shape=shape), sizes)
    order: Instruction = site.splat(site.s32(0), Shape.array(PrimitiveType.S32, shape.dimensions))
    for d, bound in enumerate(shape.dimensions):
        scaled = site.build(Multiply(), order, site.splat(sizes.get(d) or site.s32(bound), order.shape))
        order = site.build(Add(), scaled, site.positions(shape, d))
    offset = site.splat(site.s32(0), order.shape)
    stride = 1
    for d in reversed(range(len(operand.bounds))):
        size = site.splat(site.maximum(site.size(operand, d), 1), order.shape)
        index = site.build(Remainder(), order, size)
        order = site.build(Divide(), order, size)
        offset = site.build(Add(), offset, site.build(Multiply(), index, site.splat(site.s32(stride), offset.shape)))
        stride *= operand.bounds[d]
    flat = site.build(Reshape(), operand.array, shape=Shape.array(shape.element_type, (math.prod(operand.bounds),)))
    look_up = Gather(
        offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=shape.rank, slice_sizes=(1,)
    )
    return Padded(site.build(look_up, flat, offset), sizes)


@RULES.rule(CustomCall)
def _custom_call(op: CustomCall, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    """Implements XLA's PadToStatic and SliceToDynamic, which convert between dynamic and padded arrays."""
    operand = operands[0] if operands else None
    if op.target_name == PAD_TO_STATIC and operand is not None:
        return [Padded(operand.array), *(Padded(site.size(operand, d)) for d in range(len(operand.bounds)))]
    if op.target_name == SLICE_TO_DYNAMIC and operand is not None and not operand.sizes:
        sizes = {}
        for d, (bound, is_dynamic) in enumerate(zip(operand.bounds, site.old.shape.dynamic_dimensions, strict=True)):
            direction = ComparisonDirection.LE if is_dynamic else ComparisonDirection.EQ
            rule = slice_size_rule(d, bound, is_dynamic)
            sizes[d] = site.fitting(operands[1 + d].array, direction, bound, rule)
        dynamic = site.old.shape.dynamic_dimensions
        return [Padded(operand.array, {d: size for d, size in sizes.items() if dynamic[d]})]
    return None


def independent(op: Operation, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    """Applies the operation to the padded arrays, if it is independent along all dynamic dimensions of the operands."""
    sizes = site.independent_sizes(operands)
    return None if sizes is None else [Padded(site.apply(*(operand.array for operand in operands)), sizes)]


RULES.add(Convolution, reductions.convolution)
RULES.add(Dot, reductions.dot)
RULES.add(Gather, indexed.gather)
RULES.add(Map, elementwise)
RULES.add(Reduce, reductions.reduce)
RULES.add(ReduceWindow, reductions.reduce_window)
RULES.add(Scatter, indexed.scatter)
RULES.add(Sort, reductions.sort)
RULES.add(TopK, reductions.top_k)


def rule_of(op: Operation) -> Rule[Any, [Site, Sequence[Padded]], list[Padded] | None]:
    """Returns the rule for an operation."""
    return RULES.get(op) or (elementwise if op.elementwise else independent)
