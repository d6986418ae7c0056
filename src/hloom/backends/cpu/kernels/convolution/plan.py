"""Plans of convolutions: the cheapest geometry and tile, the table of K, blocks, tasks, and the workspace."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.convolution.cost import PASS_BYTES, cheapest_tile, copy_cost
from hloom.backends.cpu.kernels.convolution.form import Form, Tap
from hloom.backends.cpu.kernels.convolution.geometry import FEATURE, Geometry, Mode, phase, position
from hloom.backends.cpu.kernels.kernel_function import size_of
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST
from hloom.backends.cpu.kernels.products.sums import block_length, group_length
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.backends.cpu.kernels.products.tiles.tile_choice import MAX_VECTORS, max_accumulators
from hloom.lir import Type
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.target import L2_BYTES, TASKS_PER_THREAD, Target, align_up

PANEL_BYTES = L2_BYTES // 4  # of the part of a kernel panel that a block of K reads
FIXED_FEATURES = 64  # of a panel, for which blocks of K are chosen if sums are batch-invariant
MAX_ENTRIES = 1 << 16  # of the table
MAX_MULTIPLIER = 8  # output features of a group in Mode.LANES


@record
class OutputClass:
    """Outputs with the same taps: their entries in the table, the offset of the first output, and their count on each
    axis.
    """

    first: int
    entries: int
    output: int
    counts: tuple[int, ...]


@record
class ConvolutionPlan:
    """The geometry and tile of a convolution, its threads, and its division into tasks.

    With `fixed_order`, blocks of K do not depend on the tile.
    """

    geometry: Geometry
    tile: Tile
    threads: int
    fixed_order: bool = False

    @property
    def form(self) -> Form:
        """The normal form of the convolution."""
        return self.geometry.form

    @property
    def tile_positions(self) -> int:
        """Positions in a tile."""
        return self.geometry.positions_of(self.tile)

    @property
    def tile_features(self) -> int:
        """Output features in a tile, and columns of a panel of the packed kernel."""
        return self.geometry.features_of(self.tile)

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Tiles along a row of positions, and along the features."""
        return self.geometry.tiles(self.tile)

    @cached_property
    def row_tiles(self) -> int:
        """Tiles along all positions of an image."""
        return self.geometry.outer * self.tiles[0]

    # The table

    @cached_property
    def classes(self) -> tuple[OutputClass, ...]:
        """The output classes, in the order of their entries in the table."""
        classes, first = [], 0
        for indices in self._class_indices():
            entries = math.prod(map(len, self._taps(indices))) * self._features
            axes = list(zip(self.form.axes, indices, strict=True))
            output = sum(index * axis.output_stride for axis, index in axes)
            classes.append(OutputClass(first, entries, output, tuple(axis.count(index) for axis, index in axes)))
            first += entries
        return tuple(classes)

    @cached_property
    def table_length(self) -> int:
        """Entries of all classes."""
        return sum(c.entries for c in self.classes)

    def table(self) -> np.ndarray[Any, Any]:
        """Returns two rows: the offset in the image and the offset in the kernel of each entry."""
        return np.concatenate([self._entries(self._taps(indices)) for indices in self._class_indices()], axis=1)

    def _class_indices(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(len(axis.classes)) for axis in self.form.axes))

    def _taps(self, class_indices: tuple[int, ...]) -> list[tuple[Tap, ...]]:
        """Returns the taps of a class along each axis that have entries."""
        taps = [axis.classes[r] for axis, r in zip(self.form.axes, class_indices, strict=True)]
        return [*taps[:-1], taps[-1][:1]] if self.geometry.run.taps > 1 else taps

    @property
    def _features(self) -> int:
        """Input features that have entries of their own."""
        return 1 if self.geometry.run.features > 1 else self.form.inputs

    def _entries(self, taps: list[tuple[Tap, ...]]) -> np.ndarray[Any, Any]:
        """Returns the entries of a class: one for each choice of a tap along each axis, and for each feature."""
        strides = self.geometry.strides[FEATURE], self.form.kernel_strides[0]
        features = np.multiply.outer(strides, np.arange(self._features))
        axes = [[(self._distance(d, tap.position), tap.weight) for tap in along] for d, along in enumerate(taps)]
        parts = [np.array(axis, np.int64).reshape(-1, 2).T for axis in axes]
        columns = zip(*parts, features, strict=True)
        return np.stack([functools.reduce(np.add.outer, column).ravel() for column in columns])

    def _distance(self, d: int, input_position: int) -> int:
        strides, (number, index) = self.geometry.strides, self.geometry.image_axes[d].phase_and_index(input_position)
        return number * strides[phase(d)] + index * strides[position(d)]

    # Blocks and tasks

    @cached_property
    def depth(self) -> int:
        """Steps of K of all classes."""
        return self.table_length * self.geometry.run.length

    @property
    def entries(self) -> int:
        """Entries of the class with the most."""
        return max(c.entries for c in self.classes)

    @cached_property
    def block(self) -> int:
        """Entries of the table in a block of K."""
        features = FIXED_FEATURES if self.fixed_order else self.tile_features
        fitting = PANEL_BYTES // (self.geometry.run.length * features * self.geometry.size)
        return self.entries if self.entries <= 2 * fitting else max(1, fitting)

    @property
    def steps(self) -> int:
        """Steps of K of the class with the most."""
        return self.entries * self.geometry.run.length

    def summed_steps(self, steps: int) -> int:
        """Returns the number of steps of K, out of `steps`, that a tile sums from zero."""
        parts = 4 if self.geometry.mode is Mode.LANES else self.form.parts
        return block_length(steps, self.steps, parts) if self.tile.type.is_float else steps

    @property
    def group(self) -> int:
        """Entries whose blocks are added in one chain; an integral number of blocks."""
        return self.block * max(1, group_length(self.steps) // (self.block * self.geometry.run.length))

    @property
    def has_groups(self) -> bool:
        """Whether blocks are added in several chains."""
        return self.group < self.entries and self.tile.type.is_float

    @property
    def has_long_tiles(self) -> bool:
        """Whether computing a tile takes much longer than calling its function."""
        return self.tile.takes_long(min(self.block, *(c.entries for c in self.classes)) * self.geometry.run.length)

    @property
    def has_partial_sums(self) -> bool:
        """Whether K has several blocks, between which memory holds the sums."""
        return self.entries > self.block

    @property
    def has_panels_outermost(self) -> bool:
        """Whether the loop over panels of the kernel is outside of the loop over positions, so that a panel stays in
        the cache.
        """
        panels = self.tiles[1] * self.tile_features * self.block * self.geometry.run.length * self.geometry.size
        return panels > L2_BYTES // 2

    @cached_property
    def images(self) -> int:
        """Images that a pass copies and computes."""
        max_images = max(1, PASS_BYTES // (self.geometry.image_size * self.geometry.size))
        return min(self.geometry.images, max_images)

    @cached_property
    def blocks(self) -> tuple[int, int]:
        """Tasks of a group of a class of an image, along positions and along features."""
        if self.threads == 1:
            return 1, 1
        others = self.images * self.geometry.groups * len(self.classes)
        wanted = math.ceil(TASKS_PER_THREAD * self.threads / others)
        rows = min(wanted, self.row_tiles)
        return rows, min(math.ceil(wanted / rows), self.tiles[1])

    @property
    def tasks(self) -> int:
        """Tasks of one image."""
        return self.geometry.groups * len(self.classes) * math.prod(self.blocks)

    # The workspace, in elements

    @property
    def weights_size(self) -> int:
        """Elements of the packed kernel."""
        return align_up(self.geometry.groups * self.tiles[1] * self.depth * self.tile_features, 64)

    @property
    def images_size(self) -> int:
        """Elements of the images of a pass, and of the padding that tiles read past them."""
        g = self.geometry
        after = (self.tiles[0] * self.tile_positions - g.positions) * g.row_stride + self.tile.columns
        return align_up(self.images * g.image_size + after, 64)

    @property
    def task_tiles(self) -> tuple[int, int]:
        """The largest number of tiles of a task, along positions and along features."""
        return math.ceil(self.row_tiles / self.blocks[0]), math.ceil(self.tiles[1] / self.blocks[1])

    @property
    def task_size(self) -> int:
        """Elements of the sums of a task."""
        return math.prod(self.task_tiles) * self.tile.size

    @property
    def partial_size(self) -> int:
        """Elements of the sums of all tasks, and of as many totals if there are groups."""
        levels = (1 if self.has_partial_sums else 0) + (1 if self.has_groups else 0)
        return self.images * self.tasks * levels * self.task_size


def make_plan(form: Form, vector: Type, target: Target) -> ConvolutionPlan:
    """Returns the cheapest plan; if sums are batch-invariant, one with the mode and axes that are best for an image."""
    size, accumulators = size_of(vector.element), max_accumulators(target.vector_bytes)
    parallel = target.is_worth_threads(form.work * MULTIPLY_ADD_COST)
    threads = target.threads if parallel else 1
    if target.batch_invariant and form.batch > 1:
        of_image = make_plan(replace(form, batch=1), vector, target).geometry
        geometry = replace(of_image, form=form)
        _, tile = cheapest_tile(geometry, _tiles(geometry, vector, accumulators))
        return ConvolutionPlan(geometry, tile, threads, fixed_order=True)
    candidates: list[tuple[float, Geometry, Tile]] = []
    for mode in _modes(form):
        for flat in range(1 if mode is Mode.LANES else 0, len(form.axes) + 1):
            geometry = Geometry(form, mode, flat, vector.width, size)
            cost, tile = cheapest_tile(geometry, _tiles(geometry, vector, accumulators))
            candidates.append((cost + copy_cost(geometry), geometry, tile))
    _, geometry, tile = min(candidates, key=lambda each: each[0])
    return ConvolutionPlan(geometry, tile, threads, target.batch_invariant)


def _modes(form: Form) -> tuple[Mode, ...]:
    if form.is_complex:
        return (Mode.ROWS,)
    has_lanes = form.groups > 1 and form.axes and 1 in (form.inputs, form.outputs) and form.outputs <= MAX_MULTIPLIER
    return (Mode.ROWS, Mode.COLUMNS, Mode.LANES) if has_lanes else (Mode.ROWS, Mode.COLUMNS)


def _tiles(geometry: Geometry, vector: Type, accumulators: int) -> list[Tile]:
    rows, columns = geometry.positions, geometry.output_features
    if geometry.mode is Mode.COLUMNS:
        rows, columns = columns, rows
    return [
        Tile(r, v, vector)
        for v in range(1, min(math.ceil(columns / vector.width), MAX_VECTORS) + 1)
        for r in range(1, min(rows, accumulators // v) + 1)
        if (r + 1) * v <= accumulators + 2  # the vectors and a broadcast need registers, too
    ]
