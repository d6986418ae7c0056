"""Single steps of patterns: operations with the attributes that follow from the shapes of their operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.fuzz.grammar.applied import monoid
from hloom.fuzz.grammar.body import Body
from hloom.ir import Instruction
from hloom.ops.attributes import ComparisonDirection, SliceDimension
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import Compare
from hloom.ops.convert import Convert
from hloom.ops.dot import Dot
from hloom.ops.operation import Operation
from hloom.ops.pad import Concatenate
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, Slice
from hloom.shape import Shape
from hloom.types import PrimitiveType


def broadcast(body: Body, value: Instruction, whole: Shape, removed: Sequence[int] | None = None) -> Instruction:
    """Broadcasts a value along dimensions of a shape, the others of which it has; a scalar along all of them."""
    dimensions = [] if removed is None else [d for d in range(whole.rank) if d not in removed]
    shape = Shape.array(value.shape.element_type, whole.dimensions)
    return body.add(Broadcast(broadcast_dimensions=tuple(dimensions)), value, shape=shape)


def number(body: Body, value: float, whole: Shape) -> Instruction:
    """An array of a shape with one number everywhere."""
    return broadcast(body, body.constant(np.asarray(value).astype(whole.element_type.dtype)), whole)


def integer(body: Body, value: int) -> Instruction:
    """An s32 constant: an index, or a number of iterations."""
    return body.constant(np.asarray(value, np.int32))


def cast(body: Body, value: Instruction, element_type: PrimitiveType) -> Instruction:
    """Converts the elements of an array."""
    return body.add(Convert(), value, shape=value.shape.with_element_type(element_type))


def index_along(body: Body, whole: Shape, dimension: int) -> Instruction:
    """The indices of elements of a shape along a dimension."""
    return body.add(Iota(iota_dimension=dimension), shape=Shape.array(PrimitiveType.S32, whole.dimensions))


def comparison(body: Body, direction: ComparisonDirection, lhs: Instruction, rhs: Instruction) -> Instruction:
    """Compares two arrays."""
    return body.add(Compare(direction=direction), lhs, rhs)


def reduction(body: Body, declaration: type[Operation], value: Instruction, dimensions: Sequence[int]) -> Instruction:
    """Reduces dimensions of an array by an operation."""
    combined = monoid(body, declaration, value.shape.element_type)
    op = Reduce(dimensions=tuple(dimensions), computation=combined.computation)
    return body.add(op, value, body.constant(combined.identities[0]))


def product(
    body: Body,
    lhs: Instruction,
    rhs: Instruction,
    contracted: tuple[int, int],
    batch: int = 0,
    result: PrimitiveType | None = None,
) -> Instruction:
    """Multiplies arrays over a dimension of each; the first ones are those of the batch."""
    many = tuple(range(batch))
    op = Dot(
        lhs_batch_dims=many,
        rhs_batch_dims=many,
        lhs_contracting_dims=contracted[:1],
        rhs_contracting_dims=contracted[1:],
    )
    free = [s.shape.dimensions[d] for s, k in zip((lhs, rhs), contracted, strict=True) for d in _free(s, k, batch)]
    sizes = (*lhs.shape.dimensions[:batch], *free)
    return body.add(op, lhs, rhs, shape=Shape.array(result or lhs.shape.element_type, sizes))


def _free(side: Instruction, contracted: int, batch: int) -> list[int]:
    return [d for d in range(batch, side.shape.rank) if d != contracted]


def shifted(body: Body, value: Instruction, dimension: int) -> Instruction:
    """An array rolled by some elements along a dimension: two slices of it, joined."""
    size = value.shape.dimensions[dimension]
    by = body.draw.between(0, size)
    parts = [_part(body, value, dimension, *limits) for limits in ((by, size), (0, by))]
    return body.add(Concatenate(dimension=dimension), *parts)


def _part(body: Body, value: Instruction, dimension: int, start: int, limit: int) -> Instruction:
    slices = [SliceDimension(0, size) for size in value.shape.dimensions]
    slices[dimension] = SliceDimension(start, limit)
    return body.add(Slice(slice=tuple(slices)), value)


def row_of(body: Body, value: Instruction, index: Instruction) -> Instruction:
    """The row of an array at an index."""
    sizes = value.shape.dimensions[1:]
    starts = [index, *(integer(body, 0) for _ in sizes)]
    part = body.add(DynamicSlice(size_indices=(1, *sizes)), value, *starts)
    return body.add(Reshape(), part, shape=Shape.array(value.shape.element_type, sizes))
