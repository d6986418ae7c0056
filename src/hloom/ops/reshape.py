"""Shape changes: reshape, dynamic-reshape, bitcast, copy (spec 15, 100)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.affine import row_major_strides
from hloom.errors import RunError
from hloom.literal import Literal
from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import INT
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_moved
from hloom.ops.traits import Identity, Linear, Movement, NoWork, View
from hloom.shape import Shape
from hloom.values import Array, Value


class Reshape(View, Operation, opcode="reshape"):
    """Arranges the elements, in row-major order whatever the layout, in other dimensions (RESHAPE-1).

    The numbers of elements are equal. A dynamic dimension is preserved if a dimension of the result has its bound and
    as many elements before and after it (SETDIMENSIONSIZE-3); another dynamic dimension has the size that the others
    imply.
    """

    see_also = ("transpose", "bitcast", "dynamic-reshape")
    operands = {"operand": "array of any type"}
    inferred_dimension: int | None = attribute(
        INT, default=None, proto="dimensions", doc="the dynamic dimension, as XLA names it"
    )

    def check(self, result: Shape, operand: Shape) -> None:
        check_moved(self, "RESHAPE-2", operand, result)
        if operand.element_count != result.element_count and not (operand.is_unbounded or result.is_unbounded):
            self.reject(
                "RESHAPE-2",
                f"{operand} has {operand.element_count} elements, {result} has {result.element_count}: they must agree",
            )
        if result.is_dynamic and not operand.is_dynamic:
            self.reject("SETDIMENSIONSIZE-3", f"a reshape makes no dynamic dimensions, got {result} from {operand}")

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        if not ctx.shape.is_dynamic:
            return operand.reshape(ctx.shape.dimensions)
        sizes = list(ctx.shape.dimensions)
        kept = kept_dimensions(ctx.operand_shapes[0], ctx.shape)
        for d, target in kept.items():
            sizes[target] = operand.shape[d]
        open_ = [d for d, dynamic in enumerate(ctx.shape.dynamic_dimensions) if dynamic and d not in kept.values()]
        if open_:
            # The first of the others has the remaining size; those after it have their bounds.
            rest = math.prod(sizes[: open_[0]] + sizes[open_[0] + 1 :])
            sizes[open_[0]] = operand.size // rest if rest else 0
        if math.prod(sizes) != operand.size:
            raise RunError(f"RESHAPE-2: {list(operand.shape)} has {operand.size} elements, which do not fill {sizes}")
        return operand.reshape(sizes)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        return [Read(0, _same_position(at, index))]

    def on_blocks(self, whole: Sequence[Shape], blocks: Sequence[Shape], result: Shape) -> Reshape:
        return Reshape()


def _same_position(at: Indexing, index: Indices) -> Indices:
    """Returns the index of the operand's element at the same position in row-major order."""
    if 0 in at.result.dimensions:
        return tuple(at.space.constant(0) for _ in at.operands[0].dimensions)
    position = at.space.linear(index, row_major_strides(at.result.dimensions))
    return tuple(at.space.delinearize(position, at.operands[0].dimensions))


def kept_dimensions(operand: Shape, result: Shape) -> dict[int, int]:
    """Maps operand dimensions to result dimensions of the same size with as many elements before and after."""
    targets: dict[tuple[int, int, int], list[int]] = {}
    for d, size in enumerate(result.dimensions):
        key = (size, math.prod(result.dimensions[:d]), math.prod(result.dimensions[d + 1 :]))
        targets.setdefault(key, []).append(d) if size != 1 or result.dynamic_dimensions[d] else None
    kept = {}
    for d, size in enumerate(operand.dimensions):
        key = (size, math.prod(operand.dimensions[:d]), math.prod(operand.dimensions[d + 1 :]))
        if targets.get(key):
            kept[d] = targets[key].pop(0)
    if all(d in kept for d, dynamic in enumerate(operand.dynamic_dimensions) if dynamic):
        return kept
    # The size of a dynamic dimension that is not kept follows from the kept dynamic ones.
    return {d: target for d, target in kept.items() if operand.dynamic_dimensions[d]}


class DynamicReshape(Movement, NoWork, Operation, opcode="dynamic-reshape"):
    """Reshapes to actual sizes known at run time, scalars below the bounds of the result (a later addition to
    XLA).

    The sizes must hold as many elements as the operand has, and fit the result: the exact size where a dimension is
    static, at most the bound where it is dynamic. Others are an error at run time.
    """

    mixes_precision = False
    operands = {
        "operand": "array of any type",
        "*dim_sizes": "scalar for each result dimension: its size at run time",
    }

    def check(self, result: Shape, operand: Shape, dim_sizes: tuple[Shape, ...]) -> None:
        check_moved(self, "RESHAPE-2", operand, result)
        if len(dim_sizes) != result.rank:
            self.reject("RESHAPE-2", f"needs a size for each of {result.rank} dimensions, got {len(dim_sizes)}")
        for size in dim_sizes:
            if not size.is_scalar or not size.element_type.is_integer:
                self.reject("RESHAPE-2", f"sizes are integer scalars, got {size}")
        if operand.element_count != result.element_count and not (operand.is_unbounded or result.is_unbounded):
            self.reject("RESHAPE-2", f"element counts (of bounds) must agree, got {operand} and {result}")

    def evaluate(self, ctx: Context, operand: Array, dim_sizes: tuple[Array, ...]) -> Array:
        sizes = [int(size) for size in dim_sizes]
        for d, (size, bound) in enumerate(zip(sizes, ctx.shape.dimensions, strict=True)):
            if not 0 <= size <= bound or (size != bound and not ctx.shape.dynamic_dimensions[d]):
                raise RunError(f"RESHAPE-2: size {size} of dimension {d} does not fit {ctx.shape}")
        if math.prod(sizes) != operand.size:
            raise RunError(f"RESHAPE-2: sizes {sizes} do not hold {operand.size} elements")
        return operand.reshape(sizes)


class Bitcast(View, Operation, opcode="bitcast"):
    """Reinterprets the operand's memory as another shape, by the layouts of both (a later addition to XLA).

    The buffers have equal sizes in bytes, and no byte moves. Compilers replace a transpose or reshape by a bitcast
    where the layouts make it one: f32[2,3]{1,0} and f32[3,2]{0,1} are the same bytes. Users change types with
    bitcast-convert, whose result does not depend on layouts.
    """

    operands = {"operand": "array of as many bytes as the result"}

    def check(self, result: Shape, operand: Shape) -> None:
        if operand.is_tuple or result.is_tuple:
            if not operand.compatible(result):
                self.reject("GEN-2", f"a tuple is cast to itself, got {operand} and {result}")
            return
        check_array(self, "GEN-2", operand, result)
        if operand.byte_size != result.byte_size and operand.data_size != result.data_size:
            self.reject(
                "GEN-2", f"the buffers of {operand} and {result} have {operand.byte_size} and {result.byte_size} bytes"
            )

    def evaluate(self, ctx: Context, operand: Value) -> Value:
        shape, (source,) = ctx.shape, ctx.operand_shapes
        if shape.layout is None or source.layout is None:
            return operand
        if shape.layout.is_dense_row_major and source.layout.is_dense_row_major:
            return np.ascontiguousarray(operand).reshape(-1).view(shape.element_type.dtype).reshape(shape.dimensions)
        if shape.byte_size != source.byte_size:
            # Tiles pad the two differently, but the elements in the order of dimensions agree.
            shape, source = (s.with_layout(s.layout.minor_to_major if s.layout else None) for s in (shape, source))
        return Literal.from_linear_memory(shape, Literal(source, operand).to_linear_memory()).value

    def indexing(self, at: Indexing, index: Indices) -> list[Read] | None:
        shapes = (at.result, *at.operands)
        is_reshape = len({shape.element_type for shape in shapes}) == 1 and all(
            shape.layout is not None and shape.layout.is_dense_row_major for shape in shapes
        )
        return [Read(0, _same_position(at, index))] if is_reshape else None


class Copy(Identity, Movement, Linear, Operation, opcode="copy", builder="copy"):
    """Copies the operand, perhaps to another layout (a later addition to XLA).

    The values stay. Compilers add copies where a value is needed in another layout, or in a buffer of its own, as for
    the result of a loop that its body would overwrite.
    """

    operands = {"operand": "value of any shape"}
    cost = 0

    def infer(self, operand: Shape) -> Shape:
        return operand

    def evaluate(self, ctx: Context, operand: Value) -> Value:
        return operand

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        return [Read(0, index)]
