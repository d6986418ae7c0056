"""Convolutions of each feature with a window of its own, whose features are contiguous: nothing is copied.

A tile has a band of a line of pixels of the result, and a block of features. The loop over the pixels of the line reads
a pixel of each line of the window once, and adds it to the sums of all the outputs along the line that it is part of
(rolling.py). Pixels outside of the image are read from zeros.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.convolution.form import Axis, Form, Tap
from hloom.backends.cpu.kernels.convolution.rolling import delay_of, reads_of, rolling_sums, tiles_code
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.tiles.tile_choice import max_accumulators
from hloom.ir import Instruction
from hloom.lir import PTR, IndexValue, Type, Value
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.target import Target
from hloom.types import PrimitiveType

MIN_BLOCK_BYTES = 64
"""Bytes that a block reads of a pixel, at least, if there are as many features."""
BAND = 256
"""Most pixels of a band."""


@record
class Pixels:
    """Bands of up to `length` pixels of a line of the result of a convolution, and blocks of `vectors` vectors."""

    form: Form
    type: Type
    vectors: int
    length: int
    delay: int
    """Iterations between the first and the last pixel of a line that a sum needs (`rolling.py`)."""

    @property
    def line(self) -> Axis:
        """The axis along lines."""
        return self.form.axes[-1]

    @property
    def block(self) -> int:
        """Features that are summed together."""
        return self.vectors * self.type.width

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Lines along each other axis, bands of a line, and blocks of features; the last of these may overlap."""
        outer = [axis.outputs for axis in self.form.axes[:-1]]
        return *outer, -(-self.line.outputs // self.length), -(-self.form.groups // self.block)

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.form.batch * math.prod(self.counts)


def plan_pixels(form: Form, type: Type, target: Target) -> Pixels | None:
    """Returns the tiles of a convolution; None if a feature has several inputs or outputs, if features are apart or
    fewer than the lanes of a vector, or if large windows do not roll.
    """
    if not form.is_depthwise or form.group_strides != (1, 1, 1):
        return None
    vectors = form.groups // type.width
    if not vectors:
        return None
    line, most = form.axes[-1], max_accumulators(target.vector_bytes)
    length = -(-line.outputs // -(-line.outputs // BAND))
    delay = delay_of(line, form.taps, length, most)
    if form.taps > most and not delay:
        return None  # each pixel would be read for a single weight, which is read, too
    # The weights of a block stay in registers, too, if they are few.
    whole = -(-MIN_BLOCK_BYTES // (type.width * form.types[0].byte_width))
    vectors = min(vectors, max(whole, most // (form.taps + delay + 2)))
    vectors = -(-form.groups // type.width // -(-form.groups // (vectors * type.width)))
    return Pixels(form, type, vectors, length, delay)


def emit_pixels(name: str, instruction: Instruction, plan: Pixels, target: Target) -> KernelCode:
    """Returns the code of a convolution, whose tasks have a share of the tiles."""
    return tiles_code(name, instruction, plan.form, plan.tiles, plan.block, target, lambda f: _Task(f, plan).write)


class _Task:
    """Writes the tiles of a task."""

    def __init__(self, f: KernelFunction, plan: Pixels) -> None:
        self.f, self.plan, self.form, self.type = f, plan, plan.form, plan.type
        self.input, self.weight, self.output = plan.form.types
        self.image, self.kernel, self.result, self.zeros = f.unpack(f["context"], *[PTR] * 4)
        self.reads = reads_of(plan.line, plan.delay)
        self.across = [*itertools.product(*[axis.classes[0] for axis in plan.form.axes[:-1]])]
        """Taps of the axes across lines."""

    def write(self, tile: Value) -> None:
        """Computes a band of a line for a block of features."""
        f, plan, form, line = self.f, self.plan, self.form, self.plan.line
        image, *outer, band, block = f.digits(tile, plan.counts)
        feature = f.minimum(f.multiply(block, plan.block), form.groups - plan.block)
        offset = f.add(f.multiply(image, form.batch_strides[1]), feature)
        for index, axis in zip(outer, form.axes[:-1], strict=True):
            offset = f.add(offset, f.multiply(index, axis.output_stride))
        weights = self._weights(f.element_at(self.kernel, feature, self.weight))
        lines = self._lines(f.add(f.multiply(image, form.batch_strides[0]), feature), outer)
        first = f.multiply(band, plan.length)
        stop = f.minimum(f.add(first, plan.length), line.outputs)

        def add(index: IndexValue, sums: list[Value]) -> None:
            self._add_pixels(lines, weights, f.multiply(index, line.step), sums)

        def store(index: IndexValue, sums: Sequence[Value]) -> None:
            target = f.add(offset, f.multiply(index, line.output_stride))
            for k, value in enumerate(sums):
                address = f.element_at(self.result, f.add(target, k * self.type.width), self.output)
                f.store_as(value, address, self.output)

        rolling_sums(f, [self.type] * plan.vectors, plan.delay, (first, stop), add, store)

    def _weights(self, kernel: Value) -> list[dict[Tap, list[Value]]]:
        """Loads the vectors of weights, by taps across lines and along them."""
        return [
            {tap: self._vectors(kernel, sum(t.weight for t in (*taps, tap)), self.weight) for tap in self._taps()}
            for taps in self.across
        ]

    def _taps(self) -> tuple[Tap, ...]:
        return self.plan.line.classes[0]

    def _vectors(self, base: Value, offset: int, type: PrimitiveType) -> list[Value]:
        f, width = self.f, self.type.width
        return [
            f.load_as(f.element_at(base, offset + k * width, type), type, self.type) for k in range(self.plan.vectors)
        ]

    def _lines(self, start: IndexValue, outer: Sequence[IndexValue]) -> list[tuple[Value, Value | None]]:
        """Returns the offset of each line of the window in the image, and whether it is inside; None: it is."""
        f, found = self.f, []
        for taps in self.across:
            offset, inside = f.index(start), None
            for index, axis, tap in zip(outer, self.form.axes, taps, strict=False):
                position = f.binary("add", f.index(f.multiply(index, axis.step)), f.index(tap.position))
                offset = f.binary("add", offset, f.binary("mul", position, f.index(axis.input_stride)))
                fits = f.compare("ult", position, f.index(axis.size))
                inside = fits if inside is None else f.binary("and", inside, fits)
            found.append((offset, inside))
        return found

    def _add_pixels(
        self,
        lines: Sequence[tuple[Value, Value | None]],
        weights: Sequence[dict[Tap, list[Value]]],
        first: IndexValue,
        sums: list[Value],
    ) -> None:
        """Adds the pixels that an iteration reads, the first of which is `first`, to the sums."""
        f, plan, line = self.f, self.plan, self.plan.line
        for (offset, inside), of_line in zip(lines, weights, strict=True):
            for distance, taps in self.reads.items():
                position = f.binary("add", f.index(first), f.index(line.min_position + distance))
                fits = f.compare("ult", position, f.index(line.size))
                at = f.binary("add", offset, f.binary("mul", position, f.index(line.input_stride)))
                is_read = fits if inside is None else f.binary("and", inside, fits)
                address = f.select(is_read, f.element_at(self.image, at, self.input), self.zeros)
                values = self._vectors(address, 0, self.input)
                for tap, age in taps:
                    for k, (value, weight) in enumerate(zip(values, of_line[tap], strict=True)):
                        at_sum = (plan.delay - age) * plan.vectors + k
                        sums[at_sum] = f.multiply_add(value, weight, sums[at_sum])
