"""Copies of a convolution's operands in the workspace: images surrounded by zeros, and the kernel in panels.

Tasks that convolutions share do both. An image is copied row by row of its innermost dimension, in vectors: elements
that are contiguous in the input are loaded at once, others are gathered, and those outside of the input are zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.convolution.geometry import Role
from hloom.backends.cpu.kernels.convolution.plan import ConvolutionPlan
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.lir import I64, PTR, Function, IndexValue, Value, constant, lane_indices
from hloom.system.records import record
from hloom.target import TASKS_PER_THREAD

MAX_PACK_CHUNKS = 16
MIN_CHUNK_ROWS = 8  # of an image


@record(eq=False)
class SourceAxis:
    """An axis of the input: the index at which the copy starts, its size, and the distance between elements.

    Elements come in runs of `pair`, which are contiguous in the input or, with `repeats`, one and the same element.
    """

    start: int
    size: int
    stride: int
    pair: int = 1
    repeats: bool = False


@record
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


class _Dimension(NamedTuple):
    """A CopiedDimension as the code reads it."""

    extent: Value
    stride: Value
    factor: Value


class _Axis(NamedTuple):
    """A SourceAxis as the code reads it."""

    start: Value
    size: Value
    stride: Value


class ImageCopy:
    """The shared task `(context, chunk)`, which copies a share of the rows of an image. The context has the addresses
    of the input (from the first image of the pass on), of the copies, and of the distances.
    """

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.dims = _copied_dimensions(plan)
        self.axes = list(dict.fromkeys(dim.source for dim in self.dims))
        self.rows = math.prod(dim.extent for dim in self.dims[:-1])
        self.chunks = min(TASKS_PER_THREAD * plan.threads, -(-self.rows // MIN_CHUNK_ROWS)) if plan.threads > 1 else 1
        self.images = plan.form.batch_strides[0], plan.geometry.image_size
        self.type, self.input = plan.tile.type, plan.form.types[0]
        inner, self.element = self.dims[-1], memory_element(self.input)
        self.is_contiguous = inner.source.pair == 1 and inner.source.stride * inner.factor == 1

    @property
    def distances(self) -> list[int]:
        """The numbers that the code reads."""
        words = [self.chunks, self.rows, *self.images]
        words += [word for dim in self.dims for word in (dim.extent, dim.stride, dim.factor)]
        return words + [word for axis in self.axes for word in (axis.start, axis.size, axis.stride)]

    def function(self) -> Function:
        """Returns the task."""
        words = [f"{self.axes.index(dim.source)}" for dim in self.dims]
        words += [f"{k}{'repeats' if s.repeats else 'pairs'}{s.pair}" for k, s in enumerate(self.axes) if s.pair > 1]
        words += ["contiguous"] if self.is_contiguous else []
        name = f"convolution.copy.{self.input}.{self.type.suffix}.{'_'.join(words)}"
        return shared_function(name, self._write, context=PTR, chunk=I64)

    def _write(self, f: KernelFunction) -> None:
        source, target, distances = f.unpack(f["context"], PTR, PTR, PTR)
        words = iter(f.unpack(distances, *[I64] * len(self.distances)))
        chunks, rows, of_source, of_target = itertools.islice(words, 4)
        dims = [_Dimension(*itertools.islice(words, 3)) for _ in self.dims]
        axes = [_Axis(*itertools.islice(words, 3)) for _ in self.axes]
        image = f.divide(f["chunk"], chunks)
        source = f.at(source, f.multiply(image, of_source), self.element)
        target = f.at(target, f.multiply(image, of_target), self.type.element)
        first, count = f.share(rows, 1, chunks, f.remainder(f["chunk"], chunks))
        extents = [dim.extent for dim in dims[:-1]]
        start = [f.index(digit) for digit in f.digits(first, extents[1:])] if extents else []
        with f.when(f.compare("ne", f.index(count), f.index(0))), f.loop(count, carried=start) as row:
            self._row(f, (source, target), row.carried, dims, axes)
            row.carried = _next_digits(f, row.carried, extents)

    def _row(
        self,
        f: KernelFunction,
        arrays: tuple[Value, Value],
        indices: Sequence[Value],
        dims: Sequence[_Dimension],
        axes: Sequence[_Axis],
    ) -> None:
        """Copies the row with these indices of the outer dimensions, or zeros if it is outside of the input."""
        starts, target_offset = [axis.start for axis in axes], f.index(0)
        for dim, read, index in zip(self.dims, dims, indices, strict=False):
            k = self.axes.index(dim.source)
            starts[k] = f.binary("add", starts[k], f.binary("mul", index, read.factor))
            target_offset = f.binary("add", target_offset, f.binary("mul", index, read.stride))
        inner, offset = self.axes.index(self.dims[-1].source), f.index(0)
        size = axes[inner].size
        for k, (axis, own) in enumerate(zip(self.axes, axes, strict=True)):
            if k != inner:
                size = f.select(f.compare("ult", starts[k], own.size), size, f.index(0))
                offset = f.binary("add", offset, self._offset(f, axis, own.stride, starts[k]))
        source, target = f.at(arrays[0], offset, self.element), f.at(arrays[1], target_offset, self.type.element)
        self._copy_row(f, source, target, starts[inner], size, (dims[-1], axes[inner].stride))

    def _offset(self, f: KernelFunction, axis: SourceAxis, stride: Value, index: Value) -> Value:
        """Returns the offset of an element, or of each element of a vector, in the input."""
        pair = constant(index.type, axis.pair)
        if axis.pair == 1:
            return f.binary("mul", index, stride)
        offset = f.binary("mul", f.binary("udiv", index, pair), stride)
        return offset if axis.repeats else f.binary("add", offset, f.binary("urem", index, pair))

    def _copy_row(
        self,
        f: KernelFunction,
        source: Value,
        target: Value,
        start: Value,
        size: Value,
        inner: tuple[_Dimension, Value],
    ) -> None:
        """Copies elements start, start + factor, .. of the innermost axis; those outside of [0, size) are zero."""
        width = self.type.width
        extent, factor = inner[0].extent, inner[0].factor
        factors, size, stride = (f.splat(f.convert("trunc", n, "i32"), width) for n in (factor, size, inner[1]))
        steps = f.binary("mul", lane_indices(factors.type), factors)
        with f.loop(extent, width) as loop:
            index = f.index(loop.index)
            first = f.binary("add", start, f.binary("mul", index, factor))
            indices = f.binary("add", f.splat(f.convert("trunc", first, "i32"), width), steps)
            mask = f.compare("ult", indices, size)
            if self.is_contiguous:
                value = f.load_as(f.at(source, first, self.element), self.input, self.type, mask)
            else:
                value = self._gather(f, source, self._offset(f, self.dims[-1].source, stride, indices), mask)
            left = f.first_lanes(f.subtract(extent, index), width)
            f.store_masked(value, f.at(target, index, self.type.element), self.type.bits // 8, left)

    def _gather(self, f: KernelFunction, source: Value, offsets: Value, mask: Value) -> Value:
        addresses = f.element_pointer(source, offsets, self.element)
        raw = f.gather(addresses, self.type.of(self.element), size_of(self.element), mask)
        return f.widen(raw, self.input, self.type)


def _next_digits(f: KernelFunction, digits: Sequence[Value], bases: Sequence[Value]) -> list[Value]:
    """Returns the digits of the next number, which takes no division."""
    following: list[Value] = []
    carry = f.index(1)
    for digit, base in zip(reversed(digits), reversed(bases), strict=True):
        digit = f.binary("add", digit, carry)
        is_full = f.compare("eq", digit, base)
        following.insert(0, f.select(is_full, f.index(0), digit))
        carry = f.convert("zext", is_full, "i64")
    return following


class KernelPack:
    """The shared task `(context, chunk)`, which packs a share of the kernel into panels [group, panel, entry of the
    table, run, column].

    The context holds the addresses of the kernel, of the panels, of the entries' offsets in the kernel, and of the
    distances. Columns past the last one are padding. Complex numbers become two steps of two columns: (re, im), then
    (-im, re).
    """

    def __init__(self, plan: ConvolutionPlan) -> None:
        form, run, g = plan.form, plan.geometry.run, plan.geometry
        self.is_complex, self.kernel, self.type = form.is_complex, form.types[1], plan.tile.type
        self.element = memory_element(self.kernel)
        rows, panels = g.groups * plan.tiles[1] * plan.table_length, plan.tiles[1]
        self.chunks = min(MAX_PACK_CHUNKS, rows) if plan.threads > 1 else 1
        self.has_contiguous_columns = form.kernel_strides[1] == 1 and not form.is_complex
        self.vectors = -(-plan.tile_features // self.type.width)
        spacing = form.axes[-1].spacing.weight if run.taps > 1 else 0
        counts = self.chunks, rows, plan.table_length, panels, plan.tile_features, g.output_features
        self.distances = [*counts, form.group_strides[1], run.taps, run.features, spacing, *form.kernel_strides]

    def function(self) -> Function:
        """Returns the task."""
        layout = "complex" if self.is_complex else f"lines{self.vectors}" if self.has_contiguous_columns else "elements"
        name = f"convolution.pack.{self.kernel}.{self.type.suffix}.{layout}"
        return shared_function(name, self._write, context=PTR, chunk=I64)

    def _write(self, f: KernelFunction) -> None:
        source, target, table, distances = f.unpack(f["context"], *[PTR] * 4)
        words = f.unpack(distances, *[I64] * len(self.distances))
        chunks, rows, entries, panels, width, columns, group_stride, taps, features, spacing, *strides = words
        first, count = f.share(rows, 1, chunks, f["chunk"])
        with f.each(0, count) as i:
            row = f.add(first, i)
            panel = f.divide(row, entries)
            column = f.multiply(f.remainder(panel, panels), width)
            group = f.multiply(f.divide(panel, panels), group_stride)
            offset = f.load(f.at(table, f.remainder(row, entries), "i64"), I64, 8)
            base = f.at(source, f.add(group, offset), self.element)
            packed = f.at(target, f.multiply(row, f.multiply(f.multiply(taps, features), width)), self.type.element)
            with f.loop(taps) as tap:
                start = f.at(base, f.binary("mul", f.index(tap.index), spacing), self.element)
                at = f.at(packed, f.multiply(tap.index, f.multiply(features, width)), self.type.element)
                self._features(f, (start, at), f.index(column), (features, width, columns), strides)

    def _features(
        self,
        f: KernelFunction,
        arrays: tuple[Value, Value],
        column: Value,
        counts: tuple[Value, Value, Value],
        strides: Sequence[Value],
    ) -> None:
        """Packs steps of a panel, one for each feature: as many columns from one on as the panel has."""
        (source, target), (features, width, columns), type = arrays, counts, self.type
        if not self.has_contiguous_columns:
            last = f.subtract(columns, 1)
            with f.loop(features) as feature, f.loop(width) as loop:
                value = self._element(f, source, (feature.index, f.minimum(f.add(column, loop.index), last)), strides)
                at = f.add(f.multiply(feature.index, width), loop.index)
                f.store(value, f.at(target, at, type.element), size_of(type.element))
            return
        left, line = f.left(columns, column), f.at(source, column, self.element)
        starts = [k * type.width for k in range(self.vectors)]
        masks = [f.first_lanes(f.left(left, start), type.width) for start in starts]
        wholes = [None] * (self.vectors - 1) + [f.first_lanes(f.subtract(width, starts[-1]), type.width)]
        with f.loop(features) as feature:
            of_line = f.at(line, f.multiply(feature.index, strides[0]), self.element)
            of_target = f.at(target, f.multiply(feature.index, width), type.element)
            for start, mask, whole in zip(starts, masks, wholes, strict=True):
                value = f.load_as(f.at(of_line, start, self.element), self.kernel, type, mask)
                f.store_masked(value, f.at(of_target, start, type.element), type.bits // 8, whole)

    def _element(
        self, f: KernelFunction, source: Value, position: tuple[IndexValue, IndexValue], strides: Sequence[Value]
    ) -> Value:
        """Returns the element of a feature and a column."""
        feature, column = position
        if not self.is_complex:
            offset = f.add(f.multiply(feature, strides[0]), f.multiply(column, strides[1]))
            return f.load_as(f.at(source, offset, self.element), self.kernel, self.type.scalar)
        swap, part = f.index(f.remainder(feature, 2)), f.index(f.remainder(column, 2))
        offset = f.add(f.multiply(f.divide(feature, 2), strides[0]), f.multiply(f.divide(column, 2), strides[1]))
        address = f.at(source, f.add(offset, f.binary("xor", swap, part)), self.element)
        value = f.load_as(address, self.kernel, self.type.scalar)
        return f.select(f.compare("ugt", swap, part), f.fneg(value), value)
