"""Convolutions of each feature with a window of its own, along contiguous lines: neither image nor kernel is copied.

A tile has several lines of the result. Each vector of the input is loaded once, from where it is in memory, for all the
lines that it is part of; lanes outside of the input are off, and lines outside of it are read from zeros. The sum of an
output has too few terms for the register tiles of geometry.py, whose sums pass through memory to be stored by lines.
"""

from __future__ import annotations

import itertools
from functools import cached_property

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.convolution.form import Axis, Form, Tap
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST
from hloom.backends.cpu.kernels.products.tiles.tile_choice import max_accumulators
from hloom.ir import Instruction
from hloom.lir import PTR, IndexValue, Type, Value, constant, type_of, vector_constant
from hloom.system.records import record
from hloom.target import Target

MAX_TAPS = 32
"""Taps of a window: the code has each of them, for each vector of a tile."""
MAX_LINES, MAX_VECTORS = 4, 2
"""Lines of a tile, and vectors of a line."""
MAX_SPAN = 1 << 10
"""Elements between the first and the last tap along a line: a task keeps zeros for them on its stack."""
MAX_EDGES = 3
"""Blocks of a line with lanes that are off, each of which has code of its own."""
MIN_USED_LANES = 0.4
"""Part of the lanes of a line's vectors from which this kernel pays."""


@record
class Lines:
    """Tiles of `lines` x `vectors` vectors of the result of a convolution."""

    form: Form
    type: Type
    lines: int
    vectors: int

    @property
    def columns(self) -> Axis:
        """The axis along lines."""
        return self.form.axes[-1]

    @property
    def rows(self) -> Axis:
        """The axis across lines; one of a single line if there is none."""
        return self.form.axes[0] if len(self.form.axes) > 1 else _ONE_LINE

    @cached_property
    def bands(self) -> int:
        """Tiles across the lines of a plane; the last one overlaps the one before."""
        return -(-self.rows.outputs // self.lines)

    @property
    def tiles(self) -> int:
        """Tiles of all planes, of which each feature of each image is one."""
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


def plan_lines(form: Form, type: Type, target: Target) -> Lines | None:
    """Returns the tiles of a convolution; None if a feature has several inputs or outputs, if outputs along lines are
    apart, or if lines are short.
    """
    is_of_one = form.inputs == form.outputs == 1 and not form.is_complex and len(form.axes) in (1, 2)
    if not is_of_one or form.classes > 1 or form.taps > MAX_TAPS:
        return None
    columns, rows = form.axes[-1], form.axes[0].outputs if len(form.axes) > 1 else 1
    if (columns.step, columns.input_stride, columns.output_stride) != (1, 1, 1):
        return None
    vectors = -(-columns.outputs // type.width)
    if columns.outputs < MIN_USED_LANES * vectors * type.width:
        return None
    vectors = min(vectors, MAX_VECTORS)
    lines = min(MAX_LINES, max_accumulators(target.vector_bytes) // (2 * vectors), rows)
    plan = Lines(form, type, lines, vectors)
    return plan if plan.span <= MAX_SPAN and len(plan.edges) <= MAX_EDGES else None


def emit_lines(name: str, instruction: Instruction, plan: Lines, target: Target) -> KernelCode:
    """Returns the code of a convolution, whose tasks have a share of the tiles."""
    tasks = target.tasks(plan.tiles, plan.form.work * MULTIPLY_ADD_COST)
    entry = entry_function(name, instruction)
    context = entry.pack(entry["operand0"], entry["operand1"], entry["result0"])
    entry.run_chunks(f"{name}.task", context, tasks, entry.threads_if(tasks > 1))
    return code_of(name, [_Task(task_function(f"{name}.task"), plan).write(tasks), entry])


class _Task:
    """Writes the task, which computes a share of the tiles."""

    def __init__(self, f: KernelFunction, plan: Lines) -> None:
        self.f, self.plan, self.form, self.type = f, plan, plan.form, plan.type
        self.input, self.kernel, self.result = plan.form.types
        self.zeros = f.stack_array(type_of(memory_element(self.input)), plan.block + plan.span)

    def write(self, tasks: int) -> KernelFunction:
        """Returns the task, one of `tasks`."""
        f, plan = self.f, self.plan
        f.fill(self.zeros, 0, (plan.block + plan.span) * self.input.byte_width)
        image, kernel, result = f.unpack(f["context"], PTR, PTR, PTR)
        first, count = f.share(plan.tiles, 1, tasks, f["chunk"])
        with f.each(first, f.add(first, count)) as tile:
            self._tile(image, kernel, result, tile)
        return f

    def _tile(self, image: Value, kernel: Value, result: Value, tile: Value) -> None:
        """Computes some lines of a plane, block by block."""
        f, plan, form = self.f, self.plan, self.form
        plane = f.divide(tile, plan.bands)
        batch, group = f.divide(plane, form.groups), f.remainder(plane, form.groups)
        line = f.minimum(f.multiply(f.remainder(tile, plan.bands), plan.lines), plan.rows.outputs - plan.lines)
        source, target = (
            f.add(f.multiply(batch, of_batch), f.multiply(group, of_group))
            for of_batch, of_group in zip(form.batch_strides, form.group_strides[::2], strict=True)
        )
        target = f.add(target, f.multiply(line, plan.rows.output_stride))
        image, result = f.element_at(image, source, self.input), f.element_at(result, target, self.result)
        kernel = f.element_at(kernel, f.multiply(group, form.group_strides[1]), self.kernel)
        for start in plan.edges:
            self._block(image, kernel, result, line, start)
        if plan.inner:
            with f.loop(plan.inner.stop, plan.block, first=plan.inner.start) as loop:
                self._block(image, kernel, result, line, loop.index)

    def _block(self, image: Value, kernel: Value, result: Value, line: IndexValue, start: IndexValue) -> None:
        """Computes a block of each line of the tile: adds up the taps from zero, line by line of the input."""
        f, plan, rows = self.f, self.plan, self.plan.rows
        weights = {
            tap: self._weight(kernel, *tap) for tap in itertools.product(rows.classes[0], plan.columns.classes[0])
        }
        sums = {at: constant(self.type, 0) for at in itertools.product(range(plan.lines), range(plan.vectors))}
        users: dict[int, list[tuple[int, Tap]]] = {}
        for k, tap in itertools.product(range(plan.lines), rows.classes[0]):
            users.setdefault(k * rows.step + tap.position, []).append((k, tap))
        for distance in sorted(users):
            address = self._line(image, f.multiply(line, rows.step), distance, start)
            for column, vector in itertools.product(plan.columns.classes[0], range(plan.vectors)):
                value = self._load(address, start, vector, column.position)
                for k, row in users[distance]:
                    sums[k, vector] = f.multiply_add(value, weights[row, column], sums[k, vector])
        for (k, vector), value in sums.items():
            self._store(value, f.element_at(result, k * rows.output_stride, self.result), start, vector)

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
