"""Convolutions of each feature with a window of its own, along contiguous lines: neither image nor kernel is copied.

A tile has a band of lines of the result, and computes it block by block of the columns. A loop over the lines of the
input loads each of a block once, from where it is in memory, and adds it to the sums of all the outputs that it is part
of; these sums stay in registers until the last line of their window. Lanes outside of the input are off, and lines
outside of it are read from zeros. The sum of an output has too few terms for the register tiles of geometry.py, whose
sums pass through memory to be stored by lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.convolution.form import Axis, Form, Tap
from hloom.backends.cpu.kernels.convolution.rolling import delay_of, reads_of, rolling_sums, tiles_code
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.tiles.tile_choice import max_accumulators
from hloom.ir import Instruction
from hloom.lir import PTR, IndexValue, Type, Value, constant, vector_constant
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.target import Target

MAX_VECTORS = 4
"""Vectors of a block."""
BAND_BYTES, MIN_LINES = 1 << 13, 8
"""The input that a band reads, at most, but for bands of few lines, of which the first lines are read twice."""
MAX_SPAN = 1 << 10
"""Elements between the first and the last tap along a line: the code has zeros for them."""
MAX_EDGES = 3
"""Blocks of a line with lanes that are off, each of which has code of its own."""
MIN_USED_LANES = 0.4
"""Part of the lanes of a line's vectors from which this kernel pays."""


@record
class Lines:
    """Bands of up to `lines` lines of the result of a convolution, in blocks of `vectors` vectors."""

    form: Form
    type: Type
    lines: int
    vectors: int
    delay: int
    """Iterations between the first and the last line of the input that a sum needs (`rolling.py`)."""

    @property
    def columns(self) -> Axis:
        """The axis along lines."""
        return self.form.axes[-1]

    @property
    def rows(self) -> Axis:
        """The axis across lines; one of a single line if there is none."""
        return _rows(self.form)

    @cached_property
    def bands(self) -> int:
        """Bands of a plane."""
        return -(-self.rows.outputs // self.lines)

    @property
    def tiles(self) -> int:
        """Bands of all planes, of which each feature of each image is one."""
        return self.form.batch * self.form.groups * self.bands

    @property
    def block(self) -> int:
        """Outputs of a line that are summed together."""
        return self.vectors * self.type.width

    @property
    def span(self) -> int:
        """Elements of the input between the first and the last tap."""
        return max(self.columns.positions) - self.columns.min_position

    @cached_property
    def inner(self) -> range:
        """The starts of the blocks in which all lanes are on."""
        axis, block = self.columns, self.block
        first = -(min(axis.min_position, 0) // block) * block
        last = min(axis.outputs, axis.size - max(axis.positions)) // block * block
        return range(first, max(first, last), block)

    @property
    def edges(self) -> list[int]:
        """The starts of the other blocks."""
        return [start for start in range(0, self.columns.outputs, self.block) if start not in self.inner]


_ONE_LINE = Axis(1, 1, 1, 1, ((Tap(0, 0),),), 0, 0)


def _rows(form: Form) -> Axis:
    return form.axes[0] if len(form.axes) > 1 else _ONE_LINE


def plan_lines(form: Form, type: Type, target: Target) -> Lines | None:
    """Returns the tiles of a convolution; None if a feature has several inputs or outputs, if outputs along lines are
    apart, or if lines are short.
    """
    if not form.is_depthwise or len(form.axes) > 2:
        return None
    columns, rows = form.axes[-1], _rows(form)
    if (columns.step, columns.input_stride, columns.output_stride) != (1, 1, 1):
        return None
    vectors = -(-columns.outputs // type.width)
    if columns.outputs < MIN_USED_LANES * vectors * type.width:
        return None
    line_bytes = form.types[0].byte_width * columns.size * rows.step
    bands = -(-rows.outputs // max(MIN_LINES, BAND_BYTES // line_bytes))
    lines, most = -(-rows.outputs // bands), max_accumulators(target.vector_bytes)
    delay = delay_of(rows, form.taps, lines, most)
    # With a block's sums, its values of a line are in registers.
    plan = Lines(form, type, lines, min(vectors, MAX_VECTORS, most // (delay + 2)), delay)
    return plan if plan.span <= MAX_SPAN and len(plan.edges) <= MAX_EDGES else None


def emit_lines(name: str, instruction: Instruction, plan: Lines, target: Target) -> KernelCode:
    """Returns the code of a convolution, whose tasks have a share of the tiles."""
    return tiles_code(
        name, instruction, plan.form, plan.tiles, plan.block + plan.span, target, lambda f: _Task(f, plan).write
    )


class _Task:
    """Writes the tiles of a task."""

    def __init__(self, f: KernelFunction, plan: Lines) -> None:
        self.f, self.plan, self.form, self.type = f, plan, plan.form, plan.type
        self.input, self.kernel, self.result = plan.form.types
        self.reads = reads_of(plan.rows, plan.delay)
        self.weights: dict[tuple[Tap, Tap], Value] = {}
        # Zeros of the task's own would be on its stack, where LLVM chooses between them and the image at each load.
        self.image, self.weight, self.target, self.zeros = f.unpack(f["context"], *[PTR] * 4)

    def write(self, tile: Value) -> None:
        """Computes a band of a plane, block by block."""
        f, plan, form = self.f, self.plan, self.form
        plane, band = f.divide(tile, plan.bands), f.remainder(tile, plan.bands)
        batch, group = f.divide(plane, form.groups), f.remainder(plane, form.groups)
        source, target = (
            f.add(f.multiply(batch, of_batch), f.multiply(group, of_group))
            for of_batch, of_group in zip(form.batch_strides, form.group_strides[::2], strict=True)
        )
        image, result = f.element_at(self.image, source, self.input), f.element_at(self.target, target, self.result)
        kernel = f.element_at(self.weight, f.multiply(group, form.group_strides[1]), self.kernel)
        taps = itertools.product(plan.rows.classes[0], plan.columns.classes[0])
        self.weights = {tap: self._weight(kernel, *tap) for tap in taps}
        for start in plan.edges:
            self._block(image, result, band, start)
        if plan.inner:
            with f.loop(plan.inner.stop, plan.block, first=plan.inner.start) as loop:
                self._block(image, result, band, loop.index)

    def _block(self, image: Value, result: Value, band: IndexValue, start: IndexValue) -> None:
        """Computes a block of each line of a band, by a loop over the lines of the input."""
        f, plan = self.f, self.plan
        first = f.multiply(band, plan.lines)
        stop = f.minimum(f.add(first, plan.lines), plan.rows.outputs)

        def add(index: IndexValue, sums: list[Value]) -> None:
            self._add_lines(image, f.multiply(index, plan.rows.step), start, sums)

        def store(line: IndexValue, sums: Sequence[Value]) -> None:
            target = f.element_at(result, f.multiply(line, plan.rows.output_stride), self.result)
            for vector, value in enumerate(sums):
                self._store(value, target, start, vector)

        rolling_sums(f, [self.type] * plan.vectors, plan.delay, (first, stop), add, store)

    def _add_lines(self, image: Value, first: IndexValue, start: IndexValue, sums: list[Value]) -> None:
        """Adds a block of the lines that an iteration reads, the first of which is `first`, to the sums."""
        f, plan = self.f, self.plan
        for distance, taps in self.reads.items():
            address = self._line(image, first, plan.rows.min_position + distance, start)
            for column in plan.columns.classes[0]:
                values = [self._load(address, start, vector, column.position) for vector in range(plan.vectors)]
                for row, age in taps:
                    for k, value in enumerate(values, (plan.delay - age) * plan.vectors):
                        sums[k] = f.multiply_add(value, self.weights[row, column], sums[k])

    def _weight(self, kernel: Value, row: Tap, column: Tap) -> Value:
        f, offset = self.f, row.weight + column.weight
        return f.splat(
            f.load_as(f.element_at(kernel, offset, self.kernel), self.kernel, self.type.scalar), self.type.width
        )

    def _line(self, image: Value, first: IndexValue, distance: int, start: IndexValue) -> Value:
        """Returns the address of what the first tap of a block reads of a line of the input, or that of zeros."""
        f, rows = self.f, self.plan.rows
        line = f.binary("add", f.index(first), f.index(distance))
        offset = f.binary("mul", line, f.index(rows.input_stride))
        offset = f.binary("add", offset, f.binary("add", f.index(start), f.index(self.plan.columns.min_position)))
        inside = f.compare("ult", line, f.index(rows.size))
        return f.select(inside, f.at(image, offset, memory_element(self.input)), self.zeros)

    def _load(self, line: Value, start: IndexValue, vector: int, tap: int) -> Value:
        """Loads a vector of a line of the input; lanes outside of it are zero."""
        f, axis, width = self.f, self.plan.columns, self.type.width
        address = f.element_at(line, vector * width + tap - axis.min_position, self.input)
        if not isinstance(start, int):
            return f.load_as(address, self.input, self.type)
        first = start + vector * width + tap
        lanes = [0 <= first + lane < axis.size for lane in range(width)]
        if not any(lanes):
            return constant(self.type, 0)
        return f.load_as(address, self.input, self.type, None if all(lanes) else vector_constant("i1", lanes))

    def _store(self, value: Value, line: Value, start: IndexValue, vector: int) -> None:
        """Stores a vector of a line of the result."""
        f, width = self.f, self.type.width
        first = f.add(start, vector * width)
        left = self.plan.columns.outputs - first if isinstance(first, int) else width
        if left > 0:
            f.store_first(value, f.element_at(line, first, self.result), self.result, left)
