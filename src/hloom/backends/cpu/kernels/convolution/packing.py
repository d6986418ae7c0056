"""Copies of a convolution's operands in the workspace: images surrounded by zeros, and the kernel in panels.

`name.copy` and `name.pack` are tasks. An image is copied row by row of its innermost dimension, in vectors: elements
that are contiguous in the input are loaded at once, others are gathered, and those outside of the input are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.convolution.geometry import Role
from hloom.backends.cpu.kernels.convolution.plan import ConvolutionPlan
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of, task_function
from hloom.lir import I64, PTR, IndexValue, Value, constant, lane_indices, type_of
from hloom.target import TASKS_PER_THREAD

MAX_PACK_CHUNKS = 16
MIN_CHUNK_ROWS = 8  # of an image


@dataclass(frozen=True, eq=False)
class SourceAxis:
    """An axis of the input: the index at which the copy starts, its size, and the distance between elements.

    Elements come in runs of `pair`, which are contiguous in the input or, with `repeats`, one and the same element.
    """

    start: int
    size: int
    stride: int
    pair: int = 1
    repeats: bool = False


@dataclass(frozen=True)
class CopiedDimension:
    """A dimension of the copy: each index is `factor` further on an axis of the input."""

    extent: int
    stride: int
    source: SourceAxis
    factor: int = 1


def _copied_dimensions(plan: ConvolutionPlan) -> list[CopiedDimension]:
    """Dimensions of the copy, outermost first, without those that only have the first element of an axis."""
    form, g = plan.form, plan.geometry
    spatial = [SourceAxis(axis.min_position, axis.size, axis.input_stride) for axis in form.axes]
    is_contiguous = form.input_stride == form.parts
    sources = {
        Role.BATCH: SourceAxis(0, form.batch, form.batch_strides[0]),
        Role.GROUP: SourceAxis(0, form.groups, form.group_strides[0]),
        Role.FEATURE: SourceAxis(0, g.features, *((1, 1) if is_contiguous else (form.input_stride, form.parts))),
        Role.LANE: SourceAxis(0, g.lanes, form.group_strides[0], form.outputs, repeats=True),
    }
    copied = []
    for dimension, extent in g.extents.items():
        is_position = dimension.role is Role.POSITION
        source = spatial[dimension.axis] if is_position or dimension.role is Role.PHASE else sources[dimension.role]
        line = g.image_axes[dimension.axis] if is_position else None
        factor = line.axis.step if line is not None and line.is_split else 1
        if extent > 1 or (is_position and source.start != 0):
            copied.append(CopiedDimension(extent, g.strides[dimension], source, factor))
    if len(copied) > 1 and copied[-1].source is sources[Role.FEATURE] and copied[-2].source in spatial:
        return _merged(copied)
    return copied or [CopiedDimension(1, 1, sources[Role.BATCH])]


def _merged(copied: list[CopiedDimension]) -> list[CopiedDimension]:
    """Merges the last spatial axis and the features into one dimension, if input and copy lay them out alike."""
    *others, x, f = copied
    if x.factor != 1 or x.stride != f.extent or f.source.stride != 1 or x.source.stride != f.extent:
        return copied
    if any(dim.source is x.source for dim in others):
        return copied
    both = SourceAxis(x.source.start * f.extent, x.source.size * f.extent, 1)
    return [*others, CopiedDimension(x.extent * f.extent, 1, both)]


class ImageCopy:
    """The task `name(context, chunk)`, which copies a share of the rows of an image. The context starts with the
    addresses of the input (from the first image of the pass on) and of the copies.
    """

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.plan = plan
        self.dims = _copied_dimensions(plan)
        self.rows = math.prod(dim.extent for dim in self.dims[:-1])
        self.chunks = min(TASKS_PER_THREAD * plan.threads, -(-self.rows // MIN_CHUNK_ROWS)) if plan.threads > 1 else 1
        self.type = plan.tile.type
        self.element = memory_element(plan.form.types[0])

    def function(self, name: str) -> KernelFunction:
        """Returns the task."""
        f = task_function(name)
        image = f.divide(f["chunk"], self.chunks)
        source, target = f.unpack(f["context"], PTR, PTR)
        source = f.at(source, f.multiply(image, self.plan.form.batch_strides[0]), self.element)
        target = f.at(target, f.multiply(image, self.plan.geometry.image_size), self.type.element)
        first, count = f.share(self.rows, 1, self.chunks, f.remainder(f["chunk"], self.chunks))
        with f.each(0, count) as row:
            self._row(f, source, target, f.add(first, row))
        return f

    def _row(self, f: KernelFunction, source: Value, target: Value, row: IndexValue) -> None:
        """Copies one row of an image; all of it is zero if it is outside of the input."""
        indices: dict[SourceAxis, IndexValue] = {}
        target_offset: IndexValue = 0
        for dim in reversed(self.dims[:-1]):
            i = f.remainder(row, dim.extent)
            row = f.divide(row, dim.extent)
            target_offset = f.add(target_offset, f.multiply(i, dim.stride))
            indices[dim.source] = f.add(indices.get(dim.source, 0), f.multiply(i, dim.factor))
        inner, is_inside = self.dims[-1].source, None
        source_offset: IndexValue = 0
        for s, index in indices.items():
            if s is inner:
                continue
            if s.start < 0 or s.start + self._max_index(s) >= s.size:
                index = f.binary("add", f.index(index), f.index(s.start))
                fits = f.compare("ult", index, f.index(s.size))
                is_inside = fits if is_inside is None else f.binary("and", is_inside, fits)
            else:
                index = f.add(index, s.start)
            source_offset = f.binary("add", f.index(source_offset), self._offset(f, s, f.index(index)))
        target_row = f.at(target, target_offset, self.type.element)
        start = f.binary("add", f.index(indices.get(inner, 0)), f.index(inner.start))
        size = f.index(inner.size)
        if is_inside is not None:
            size = f.select(is_inside, size, f.index(0))
        self._copy_row(f, f.at(source, source_offset, self.element), target_row, start, size)

    def _max_index(self, source: SourceAxis) -> int:
        return sum((dim.extent - 1) * dim.factor for dim in self.dims if dim.source is source)

    def _offset(self, f: KernelFunction, s: SourceAxis, index: Value) -> Value:
        """Returns the offset of an element, or of each element of a vector, in the input."""
        type = index.type
        if s.pair == 1:
            return f.binary("mul", index, constant(type, s.stride))
        offset = f.binary("mul", f.binary("udiv", index, constant(type, s.pair)), constant(type, s.stride))
        return offset if s.repeats else f.binary("add", offset, f.binary("urem", index, constant(type, s.pair)))

    def _copy_row(self, f: KernelFunction, source: Value, target_row: Value, start: Value, size: Value) -> None:
        """Copies elements start, start + factor, .. of the innermost axis; those outside of [0, size) are zero."""
        inner, s = self.dims[-1], self.dims[-1].source
        words = type_of("i32", self.type.width)
        steps = f.binary("mul", lane_indices(words), constant(words, inner.factor))
        size = f.splat(f.convert("trunc", size, "i32"), words.width)
        with f.loop(inner.extent, self.type.width) as loop:
            first = f.binary("add", start, f.index(f.multiply(loop.index, inner.factor)))
            indices = f.binary("add", f.splat(f.convert("trunc", first, "i32"), words.width), steps)
            mask = f.compare("ult", indices, size)
            if s.pair == 1 and s.stride * inner.factor == 1:
                value = f.load_as(f.at(source, first, self.element), self.plan.form.types[0], self.type, mask)
            else:
                value = self._gather(f, source, self._offset(f, s, indices), mask)
            left = f.first_lanes(f.subtract(inner.extent, loop.index), words.width)
            store_mask = left if inner.extent % words.width else None
            f.store_masked(value, f.at(target_row, loop.index, self.type.element), self.type.bits // 8, store_mask)

    def _gather(self, f: KernelFunction, source: Value, offsets: Value, mask: Value) -> Value:
        addresses = f.element_pointer(source, offsets, self.element)
        raw = f.gather(addresses, self.type.of(self.element), size_of(self.element), mask)
        return f.widen(raw, self.plan.form.types[0], self.type)


class KernelPack:
    """The task `name(context, chunk)`, which packs a share of the kernel into panels [group, panel, entry of the table,
    run, column].

    The context holds the addresses of the kernel, of the panels, and of the entries' offsets in the kernel. Columns
    past the last one are padding. Complex numbers become two steps of two columns: (re, im), then (-im, re).
    """

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.plan = plan
        self.type = plan.tile.type
        self.element = memory_element(plan.form.types[1])
        self.rows = plan.geometry.groups * plan.tiles[1] * plan.table_length
        self.chunks = min(MAX_PACK_CHUNKS, self.rows) if plan.threads > 1 else 1

    def function(self, name: str) -> KernelFunction:
        """Returns the task."""
        f = task_function(name)
        plan, form, run = self.plan, self.plan.form, self.plan.geometry.run
        entries, panels = plan.table_length, plan.tiles[1]
        source, target, table = f.unpack(f["context"], PTR, PTR, PTR)
        first, count = f.share(self.rows, 1, self.chunks, f["chunk"])
        with f.each(0, count) as i:
            row = f.add(first, i)
            column = f.multiply(f.remainder(f.divide(row, entries), panels), plan.tile_features)
            group = f.multiply(f.divide(row, entries * panels), form.group_strides[1])
            entry = f.at(table, f.remainder(row, entries), "i64")
            base = f.at(source, f.add(group, f.load(entry, I64, 8)), self.element)
            with f.loop(run.taps) as tap, f.loop(run.features) as feature:
                spacing = form.axes[-1].spacing.weight if run.taps > 1 else 0
                start = f.at(base, f.binary("mul", f.index(tap.index), f.index(spacing)), self.element)
                step = f.add(f.multiply(f.add(f.multiply(row, run.taps), tap.index), run.features), feature.index)
                step_address = f.at(target, f.multiply(step, plan.tile_features), self.type.element)
                self._columns(f, start, step_address, feature.index, column)
        return f

    def _columns(
        self, f: KernelFunction, source: Value, target: Value, feature: IndexValue, column: IndexValue
    ) -> None:
        """Packs one step of a panel."""
        form, tile_features, type = self.plan.form, self.plan.tile_features, self.type
        feature_stride, column_stride = form.kernel_strides
        if form.is_complex or column_stride != 1:
            with f.loop(tile_features) as loop:
                last = self.plan.geometry.output_features - 1
                feature_column = f.minimum(f.add(column, loop.index), last)
                value = self._element(f, source, feature, feature_column)
                f.store(value, f.at(target, loop.index, type.element), size_of(type.element))
            return
        line = f.at(source, f.add(f.multiply(feature, feature_stride), column), self.element)
        left = f.left(self.plan.geometry.output_features, column)
        for start in range(0, tile_features, type.width):
            mask = f.first_lanes(f.left(left, start), type.width)
            value = f.load_as(f.at(line, start, self.element), form.types[1], type, mask)
            store_mask = (
                f.first_lanes(tile_features - start, type.width) if tile_features - start < type.width else None
            )
            f.store_masked(value, f.at(target, start, type.element), type.bits // 8, store_mask)

    def _element(self, f: KernelFunction, source: Value, feature: IndexValue, column: IndexValue) -> Value:
        form, scalar = self.plan.form, self.type.scalar
        feature_stride, column_stride = form.kernel_strides
        if not form.is_complex:
            offset = f.add(f.multiply(feature, feature_stride), f.multiply(column, column_stride))
            return f.load_as(f.at(source, offset, self.element), form.types[1], scalar)
        swap, part = f.index(f.remainder(feature, 2)), f.index(f.remainder(column, 2))
        offset = f.add(f.multiply(f.divide(feature, 2), feature_stride), f.multiply(f.divide(column, 2), column_stride))
        address = f.at(source, f.add(offset, f.binary("xor", swap, part)), self.element)
        value = f.load_as(address, form.types[1], scalar)
        return f.select(f.compare("ugt", swap, part), f.fneg(value), value)
