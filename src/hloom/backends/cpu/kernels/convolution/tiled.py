"""Convolutions by register tiles over padded copies of the input.

geometry.py describes the ways to compute a convolution, and plan.py chooses one. The entry packs the kernel; then for
each pass, which is a range of images, it copies these (packing.py), and runs `name.task` for blocks of the result,
which accumulates tiles and stores them (tile.py). Everything but the entry and this task is code that convolutions
share, and that reads sizes from a table of the convolution.
Tasks share no sums, and blocks of K are added in order (products/sums.py), so the result does not depend on the number
of threads.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.convolution.form import Form
from hloom.backends.cpu.kernels.convolution.geometry import Mode
from hloom.backends.cpu.kernels.convolution.packing import ImageCopy, KernelPack
from hloom.backends.cpu.kernels.convolution.plan import MAX_ENTRIES, ConvolutionPlan, make_plan
from hloom.backends.cpu.kernels.convolution.tile import StoreTile, SumTile
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of, task_function
from hloom.backends.cpu.kernels.products.sums import sums_of_group
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Type, Value
from hloom.system.records import record
from hloom.target import Target

MAX_CLASSES = 1 << 10


def emit_tiled(name: str, instruction: Instruction, form: Form, type: Type, target: Target) -> KernelCode | None:
    """Returns the code of a convolution with sums of a vector type; None if its table would be too large."""
    plan = make_plan(form, type, target)
    if form.classes > MAX_CLASSES or plan.table_length > MAX_ENTRIES:
        return None
    return _Emitter(name, plan, instruction).code()


class _Emitter:
    """Writes the functions of one convolution.

    Its table has the offsets of the steps of K in the image and in the kernel, the records of the output classes
    (entries, first entry, output offset, counts), and the distances of the shared functions; `starts` has the indices.
    """

    def __init__(self, name: str, plan: ConvolutionPlan, instruction: Instruction) -> None:
        self.name, self.plan, self.instruction = name, plan, instruction
        self.element = plan.tile.type.element
        self.sum_tile, self.store = SumTile(plan), StoreTile(plan)
        self.copy, self.pack = ImageCopy(plan), KernelPack(plan)
        parts = {
            "offsets": plan.table().ravel(),
            "classes": [word for c in plan.classes for word in (c.entries, c.first, c.output, *c.counts)],
            "tile": self.sum_tile.distances.values,
            "store": self.store.distances.values,
            "copy": self.copy.distances,
            "pack": self.pack.distances,
        }
        arrays = [np.array(part, np.int64) for part in parts.values()]
        self.starts = dict(zip(parts, itertools.accumulate(map(len, arrays), initial=0), strict=False))
        self.table = np.concatenate(arrays)

    def code(self) -> KernelCode:
        plan = self.plan
        size = (plan.weights_size + plan.images_size + plan.partial_size) * size_of(self.element)
        return code_of(self.name, [self._task(), self._entry()], size, table=self.table)

    def _part(self, f: KernelFunction, table: Value, name: str) -> Value:
        """Returns the address of a part of the table."""
        return f.at(table, self.starts[name], "i64")

    def _entry(self) -> KernelFunction:
        f = entry_function(self.name, self.instruction, has_table=True)
        plan, form, g = self.plan, self.plan.form, self.plan.geometry
        on = f.threads_if(plan.threads > 1)
        weights = f["scratch"]
        images = f.at(weights, plan.weights_size, self.element)
        partial = f.at(images, plan.images_size, self.element)
        offsets, distances = f.at(f["table"], plan.table_length, "i64"), self._part(f, f["table"], "pack")
        context = f.pack(f["operand1"], weights, offsets, distances)
        f.run_chunks(self.pack.function(), context, self.pack.chunks, on)
        with f.loop(g.images, plan.images) as first:
            count = f.minimum(plan.images, f.subtract(g.images, first.index))
            source = f.at(f["operand0"], f.multiply(first.index, form.batch_strides[0]), memory_element(form.types[0]))
            context = f.pack(source, images, self._part(f, f["table"], "copy"))
            f.run_chunks(self.copy.function(), context, f.multiply(count, self.copy.chunks), on)
            result = f.at(f["result0"], f.multiply(first.index, form.batch_strides[1]), g.result.element)
            context = f.pack(images, weights, result, partial, f["table"])
            f.run_chunks(f"{self.name}.task", context, f.multiply(count, plan.tasks), on)
        return f

    def _task(self) -> KernelFunction:
        """Writes the task: one block of the outputs of a class and group, in one image."""
        f = task_function(f"{self.name}.task")
        plan, form, g = self.plan, self.plan.form, self.plan.geometry
        f = f.as_call_only() if plan.has_long_tiles else f
        images, weights, result, partial, table = f.unpack(f["context"], *[PTR] * 5)
        counts = g.groups, len(plan.classes), *plan.blocks
        index, group, class_index, row_block, column_block = f.digits(f["chunk"], counts)
        record = f.at(self._part(f, table, "classes"), f.multiply(class_index, 3 + len(form.axes)), "i64")
        entries, first, output = f.unpack(record, I64, I64, I64)
        image = f.add(f.multiply(index, g.image_size), f.multiply(group, g.group_stride))
        offset = f.add(
            f.add(f.multiply(index, form.batch_strides[1]), f.multiply(group, form.group_strides[2])), output
        )
        block = TaskBlock(
            f.at(images, image, self.element),
            f.at(weights, f.multiply(group, plan.tiles[1] * plan.depth * plan.tile_features), self.element),
            f.at(result, offset, g.result.element),
            f.at(partial, f.multiply(f["chunk"], plan.task_size * (2 if plan.has_groups else 1)), self.element),
            f.at(record, 3, "i64"),
            table,
            f.share(plan.row_tiles, 1, plan.blocks[0], row_block),
            f.share(plan.tiles[1], 1, plan.blocks[1], column_block),
        )
        self._blocks_of_k(f, block, entries, first)
        return f

    def _blocks_of_k(self, f: KernelFunction, block: TaskBlock, entries: Value, first: Value) -> None:
        plan = self.plan
        if not plan.has_partial_sums:
            sums = f.slot(plan.tile.type, plan.tile.rows * plan.tile.vectors)
            self._tiles(f, replace(block, sums=sums), first, entries, None)
            return
        f.fill(block.sums, 0, plan.task_size * size_of(self.element) * (2 if plan.has_groups else 1))
        with f.loop(entries, plan.block) as loop:
            start, end = loop.index, f.add(loop.index, plan.block)
            count = f.minimum(plan.block, f.subtract(entries, start))
            last = f.compare("uge", f.index(end), entries)
            sums = self._group_sums(f, block.sums, start, last) if plan.has_groups else block.sums
            self._tiles(f, replace(block, sums=sums), f.index(f.add(first, start)), f.index(count), last)

    def _group_sums(self, f: KernelFunction, sums: Value, entry: IndexValue, last: Value) -> Value:
        """Returns the address to which the block of K at `entry` adds its sums; the totals follow the sums."""
        size = self.plan.task_size
        is_first = f.compare("eq", f.index(f.remainder(entry, self.plan.group)), f.index(0))
        return sums_of_group(f, self.plan.tile.type, sums, f.at(sums, size, self.element), size, is_first, last)

    def _tiles(self, f: KernelFunction, block: TaskBlock, first: Value, count: Value, last: Value | None) -> None:
        """Computes all tiles of a task for a block of K, and stores them after the last block."""
        (row, rows), (column, columns) = block.rows, block.columns
        by_panels = self.plan.has_panels_outermost
        with (
            f.each(0, columns if by_panels else rows) as outer,
            f.each(0, rows if by_panels else columns) as inner,
        ):
            i, j = (inner, outer) if by_panels else (outer, inner)
            sums = block.sums
            if last is not None:
                index = f.add(f.multiply(i, self.plan.task_tiles[1]), j)
                sums = f.at(sums, f.multiply(index, self.plan.tile.size), self.element)
            self._tile(f, replace(block, sums=sums), (f.add(row, i), f.add(column, j)), (first, count), last)

    def _tile(
        self,
        f: KernelFunction,
        block: TaskBlock,
        tile: tuple[IndexValue, IndexValue],
        entries: tuple[Value, Value],
        last: Value | None,
    ) -> None:
        plan, g, sum_tile = self.plan, self.plan.geometry, self.sum_tile
        position = f.index(f.multiply(f.remainder(tile[0], plan.tiles[0]), plan.tile_positions))
        image, offset, is_inside = self._row_offsets(f, block, f.divide(tile[0], plan.tiles[0]))
        column = f.multiply(tile[1], plan.tile_features)
        image = f.add(f.add(image, f.multiply(position, g.row_stride)), column if g.mode is Mode.LANES else 0)
        panel = f.add(f.multiply(tile[1], plan.depth), f.multiply(entries[0], g.run.length))
        stride = g.result.row if g.mode is Mode.COLUMNS else g.result.column
        offset = f.add(
            offset, f.divide(f.multiply(column, stride), 2) if g.result.paired else f.multiply(column, stride)
        )
        with f.when(is_inside):
            f.call_function(
                sum_tile.function(),
                f.at(block.image, image, self.element),
                f.at(block.weights, f.multiply(panel, plan.tile_features), self.element),
                f.at(block.table, entries[0], "i64"),
                entries[1],
                block.sums,
                self._part(f, block.table, "tile"),
            )
            with f.when(last):
                result = f.at(block.result, offset, g.result.element)
                features = f.index(f.subtract(g.output_features, column))
                distances = self._part(f, block.table, "store")
                f.call_function(self.store.function(), block.sums, result, position, features, block.counts, distances)

    def _row_offsets(
        self, f: KernelFunction, block: TaskBlock, row: IndexValue
    ) -> tuple[IndexValue, IndexValue, Value | None]:
        """Returns offsets of a row of positions in image and result, and whether the class has it; None if all do."""
        image: IndexValue = 0
        result: IndexValue = 0
        is_inside: Value | None = None
        axes = self.plan.form.axes[: len(self.plan.geometry.outer_axes)]
        indices = f.digits(row, [axis.max_outputs for axis in axes[1:]])
        for d, (axis, index) in enumerate(zip(axes, indices, strict=False)):  # without axes there is one row
            image = f.add(image, f.multiply(index, self.plan.geometry.step(d)))
            result = f.add(result, f.multiply(index, axis.output_stride * axis.period))
            if axis.period > 1:
                fits = f.compare("ult", f.index(index), f.load(f.at(block.counts, d, "i64"), I64, 8))
                is_inside = fits if is_inside is None else f.binary("and", is_inside, fits)
        return image, result, is_inside


@record
class TaskBlock:
    """The block of a task: addresses, and the first and the number of its tiles along positions and features."""

    image: Value
    weights: Value
    result: Value
    sums: Value
    counts: Value
    table: Value
    rows: tuple[IndexValue, IndexValue]
    columns: tuple[IndexValue, IndexValue]
