"""joined-slices: arrays that element-wise users can read in place: rolled arrays, and slices of padded ones.

    concatenate(slice(x), slice(y))  ->  select(i < n, pad(slice(x)), pad(slice(y)))
    slice(pad(x))  ->  pad(x), with edges that may be negative

Here i is the index along the dimension and n the size of the first slice. A concatenation is stored, since it copies
one operand after the other, and so is a padded array that several slices read; pads become masked loads of the kernels
that read them. A step of a stencil that rolls or pads an array is then one kernel instead of several.
"""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, PaddingDimension, SliceDimension
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.select import Select
from hloom.ops.slice import Slice
from hloom.passes.op_builder import S32, OpBuilder, expand_each
from hloom.shape import scalar
from hloom.system.records import record

MAX_OPERANDS = 3
"""Slices of a concatenation up to which a load of each costs less than storing their elements."""


@record
class JoinedSlices:
    """Before: multiply(concatenate(slice(%x), slice(%x)), %y). After: multiply(select(i < n, pad(slice(%x)),
    pad(slice(%x))), %y).

    Needs at most `MAX_OPERANDS` slices without strides, all of whose users are element-wise. Before:
    negate(slice(pad(%x))). After: negate(pad(%x)). Needs neither strides nor interior padding.
    """

    name: ClassVar[str] = "joined-slices"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Concatenate, Slice)

    def run(self, module: Module) -> int:
        """Replaces the concatenations and slices; returns their number."""
        return expand_each(module, Concatenate, _joined) + expand_each(module, Slice, _less_padded)


def _joined(op: Concatenate, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    if len(old.operands) > MAX_OPERANDS or not all(map(_is_slice, old.operands)) or not _is_read_elementwise(old):
        return None
    index = build(Iota(iota_dimension=op.dimension), shape=old.shape.with_element_type(S32))
    first, result = 0, None
    for part in old.operands:
        low, first = first, first + part.shape.dimensions[op.dimension]
        padded = _padded(build, part, op.dimension, low, old.shape.dimensions[op.dimension] - first)
        if result is None:
            result = padded
        else:
            start = build.broadcast(build.constant(low, S32), old.shape)
            result = build(Select(), build(Compare(direction=ComparisonDirection.LT), index, start), result, padded)
    return result


def _less_padded(op: Slice, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    padded = old.operands[0]
    if not isinstance(padded.op, Pad) or not _is_slice(old) or not _is_read_elementwise(old):
        return None
    array, fill = padded.operands
    sizes = [
        PaddingDimension(p.edge_padding_low - part.start, p.edge_padding_high - whole + part.limit, p.interior_padding)
        for p, part, whole in zip(padded.op.padding_config, op.slice, padded.shape.dimensions, strict=True)
    ]
    dimensions = array.shape.dimensions
    if not all(map(_keeps_some, sizes, dimensions)):
        return None
    if all(max(p.edge_padding_low, p.edge_padding_high) <= 0 for p in sizes):
        edges = zip(sizes, dimensions, strict=True)
        parts = (SliceDimension(-p.edge_padding_low, size + p.edge_padding_high) for p, size in edges)
        return build(Slice(slice=tuple(parts)), array)
    return build(Pad(padding_config=tuple(sizes)), array, fill)


def _keeps_some(padding: PaddingDimension, size: int) -> bool:
    """Whether a padding without gaps leaves some elements of a dimension."""
    return not padding.interior_padding and max(-padding.edge_padding_low, -padding.edge_padding_high) < size


def _padded(build: OpBuilder, part: Instruction, dimension: int, low: int, high: int) -> Instruction:
    """Pads a slice along a dimension with zeros."""
    sizes = [PaddingDimension()] * part.shape.rank
    sizes[dimension] = PaddingDimension(low, high)
    zero = build.zeros(scalar(part.shape.element_type))
    return build(Pad(padding_config=tuple(sizes)), part, zero)


def _is_slice(part: Instruction) -> bool:
    return isinstance(part.op, Slice) and all(d.stride == 1 for d in part.op.slice)


def _is_read_elementwise(array: Instruction) -> bool:
    assert array.parent is not None
    return (
        array is not array.parent.root
        and array.shape.element_type.bits >= 8
        and all(user.op.elementwise and user.shape.dimensions == array.shape.dimensions for user in array.users)
    )
