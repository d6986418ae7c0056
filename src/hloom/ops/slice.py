"""Slices: slice, dynamic-slice, dynamic-update-slice (spec 27, 28, 110)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.affine import Index
from hloom.ops.attributes import SliceDimension
from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Range, Read
from hloom.ops.kinds import INTS, SLICES
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array
from hloom.ops.traits import Movement, Update
from hloom.shape import Ints, Shape
from hloom.values import Array


class Slice(Movement, Operation, opcode="slice"):
    """Takes the elements start, start + stride, .. below limit in each dimension (SLICE-1).

    0 <= start <= limit <= size and stride >= 1 for each dimension.
    """

    see_also = ("dynamic-slice", "pad", "gather")
    operands = {"operand": "array of any type"}
    cost = 0
    slice: tuple[SliceDimension, ...] = attribute(SLICES, proto="slice_dimensions", doc="[start:limit:stride] of each")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "SLICE-3", operand)
        if len(self.slice) != operand.rank:
            self.reject("SLICE-3", f"needs one [start:limit:stride] for each dimension of {operand}")
        sizes = []
        for d, (part, size) in enumerate(zip(self.slice, operand.dimensions, strict=True)):
            if not 0 <= part.start <= part.limit <= size or part.stride < 1:
                self.reject(
                    "SLICE-3",
                    f"dimension {d} of {operand} needs 0 <= start <= limit <= {size} and stride >= 1, "
                    f"got [{part.start}:{part.limit}:{part.stride}]",
                )
            sizes.append(-(-(part.limit - part.start) // part.stride))
        dynamic = [
            flag and (part.start, part.limit, part.stride) == (0, size, 1)
            for flag, part, size in zip(operand.dynamic_dimensions, self.slice, operand.dimensions, strict=True)
        ]
        return Shape.array(operand.element_type, sizes, dynamic)

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        sliced = operand[tuple(slice(part.start, part.limit, part.stride) for part in self.slice)]
        return _padded_to_static(sliced, ctx.shape)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        parts = zip(index, self.slice, strict=True)
        return [Read(0, tuple(at.space.shift(at.space.scale(i, part.stride), part.start) for i, part in parts))]

    def on_blocks(self, whole: Sequence[Shape], blocks: Sequence[Shape], result: Shape) -> Slice:
        sizes = zip(self.slice, whole[0].dimensions, blocks[0].dimensions, strict=True)
        return Slice(slice=tuple(part if old == new else SliceDimension(0, new) for part, old, new in sizes))


def _padded_to_static(array: Array, shape: Shape) -> Array:
    """Pads with zeros: the elements of a static slice beyond the actual size of a dynamic dimension are unspecified."""
    missing = [
        0 if dynamic else bound - size
        for size, bound, dynamic in zip(array.shape, shape.dimensions, shape.dynamic_dimensions, strict=True)
    ]
    return np.pad(array, [(0, m) for m in missing]) if any(missing) else array


class DynamicSlice(Movement, Operation, opcode="dynamic-slice"):
    """Takes the sub-array of sizes `size_indices` at run-time start indices, clamped to lie inside (DYNAMICSLICE-1,
    -2).
    """

    see_also = ("dynamic-update-slice",)
    operands = {
        "operand": "array of any type",
        "*start_indices": "integer scalars of one type, one for each dimension",
    }
    size_indices: Ints = attribute(
        INTS, text="dynamic_slice_sizes", proto="dynamic_slice_sizes", doc="size of the part in each dimension"
    )

    def infer(self, operand: Shape, start_indices: tuple[Shape, ...]) -> Shape:
        check_array(self, "DYNAMICSLICE-4", operand)
        check_starts(self, "DYNAMICSLICE-5", operand, start_indices)
        if len(self.size_indices) != operand.rank:
            self.reject("DYNAMICSLICE-4", f"needs {operand.rank} sizes for {operand}, got {list(self.size_indices)}")
        for d, (part, size) in enumerate(zip(self.size_indices, operand.dimensions, strict=True)):
            if not 0 <= part <= size:
                self.reject("DYNAMICSLICE-4", f"size {part} of dimension {d} must be in [0, {size}]")
        dynamic = [
            flag and part == size
            for flag, part, size in zip(operand.dynamic_dimensions, self.size_indices, operand.dimensions, strict=True)
        ]
        return Shape.array(operand.element_type, self.size_indices, dynamic)

    def evaluate(self, ctx: Context, operand: Array, start_indices: tuple[Array, ...]) -> Array:
        sizes = [min(part, size) if ctx.shape.dynamic_dimensions[d] else part
                 for d, (part, size) in enumerate(zip(self.size_indices, operand.shape, strict=True))]  # fmt: skip
        starts = clamped_starts(start_indices, operand.shape, sizes)
        sliced = operand[tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))]
        return _padded_to_static(sliced, ctx.shape)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        starts = start_indices(at, 1, at.result.dimensions)
        return [Read(0, tuple(at.space.add(i, start) for i, start in zip(index, starts, strict=True)))]

    def on_blocks(self, whole: Sequence[Shape], blocks: Sequence[Shape], result: Shape) -> DynamicSlice:
        return DynamicSlice(size_indices=result.dimensions)


class DynamicUpdateSlice(Update, Movement, Operation, opcode="dynamic-update-slice"):
    """Overwrites a part of the operand with `update`, at run-time start indices, clamped (DYNAMICUPDATESLICE-1).

    The result has the operand's shape.
    """

    operands = {
        "operand": "array of any type",
        "update": "part to write, of the operand's rank and type, not larger",
        "*start_indices": "integer scalars of one type, one for each dimension",
    }
    moved_operands = 2

    def infer(self, operand: Shape, update: Shape, start_indices: tuple[Shape, ...]) -> Shape:
        check_array(self, "DYNAMICUPDATESLICE-3", operand, update)
        check_starts(self, "DYNAMICUPDATESLICE-3", operand, start_indices)
        if update.element_type is not operand.element_type or update.rank != operand.rank:
            self.reject("DYNAMICUPDATESLICE-3", f"update has type and rank of {operand}, got {update}")
        if any(part > size for part, size in zip(update.dimensions, operand.dimensions, strict=True)):
            self.reject("DYNAMICUPDATESLICE-3", f"update {update} is larger than {operand}")
        return operand.without_layout()

    def evaluate(self, ctx: Context, operand: Array, update: Array, start_indices: tuple[Array, ...]) -> Array:
        starts = clamped_starts(start_indices, operand.shape, update.shape)
        result = operand.copy()
        result[tuple(slice(start, start + size) for start, size in zip(starts, update.shape, strict=True))] = update
        return result

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        sizes = at.operands[1].dimensions
        starts = start_indices(at, 2, sizes)
        inner = tuple(at.space.add(i, at.space.scale(s, -1)) for i, s in zip(index, starts, strict=True))
        inside = tuple(Range(i, 0, size) for i, size in zip(inner, sizes, strict=True))
        return [Read(1, inner, inside), Read(0, index)]


def check_starts(op: Operation, clause: str, operand: Shape, starts: Sequence[Shape]) -> None:
    """Checks start indices: an integer scalar for each dimension, of one type, or, in an older form, a vector
    (DYNAMICSLICE-5).
    """
    if len(starts) == 1 and starts[0].rank == 1 and starts[0].dimensions[0] == operand.rank:
        if not starts[0].element_type.is_integer:
            op.reject(clause, f"start indices are integers, got {starts[0]}")
        return
    if len(starts) != operand.rank:
        op.reject(clause, f"needs {operand.rank} start indices for {operand}, got {len(starts)}")
    for start in starts:
        if not start.is_scalar or not start.element_type.is_integer or start.element_type != starts[0].element_type:
            op.reject(clause, f"start indices are integer scalars of one type, got {start}")


def clamped_starts(starts: Sequence[Array], sizes: Sequence[int], parts: Sequence[int]) -> list[int]:
    """Returns start indices clamped to [0, size - part] (DYNAMICSLICE-2)."""
    values = starts[0].tolist() if len(starts) == 1 and starts[0].ndim == 1 else [int(start) for start in starts]
    return [max(0, min(int(v), size - part)) for v, size, part in zip(values, sizes, parts, strict=True)]


def start_indices(at: Indexing, first: int, parts: Sequence[int]) -> list[Index]:
    """Returns the clamped start indices of a part of operand 0, which are the operands from `first` on."""
    limits = [size - part for size, part in zip(at.operands[0].dimensions, parts, strict=True)]
    if [shape.rank for shape in at.operands[first:]] == [1]:
        return [at.runtime(first, (at.space.constant(d),), 0, limit) for d, limit in enumerate(limits)]
    return [at.runtime(first + d, (), 0, limit) for d, limit in enumerate(limits)]
