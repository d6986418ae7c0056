"""Transforms of contiguous sequences whose own elements fill vectors: rows are neither transposed nor a matrix.

Stockham's algorithm, as in lane_fft.py: a stage of radix r makes butterflies of elements n / r apart. A vector has
adjacent butterflies; those of two rows where one has half as many. Their results are adjacent if as many sequences are
interleaved; else shuffles interleave them first. Factors differ in each lane. Where a vector has all butterflies of
both of two stages, it has what the second one reads after a transposition: nothing is stored between them. Inverse ones
write the results of the second in another order instead of reading its elements so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.kernels.fft.complex_vectors import Complex, butterfly, multiply
from hloom.backends.cpu.kernels.fft.lane_fft import PADDING, Access, Side, in_order, multiples
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of, task_function
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value, constant, type_of
from hloom.numerics import roots_of_unity
from hloom.passes.legalize.fft_lengths import radices_of
from hloom.system.lazy import cached_property
from hloom.system.records import record

BLOCK = 1024
"""Elements of the rows that a stage transforms at once: they stay in the first-level cache."""
_ARRAYS = "re", "im", "re2", "im2", "table"
_SIZES = "rows", "length", "outer", "inner", "distance", "rest"


@record
class RowStage:
    """Butterflies of one radix for sequences of n elements, `interleaved` with others; `width` lanes of a vector."""

    radix: int
    n: int
    interleaved: int
    width: int
    is_inverse: bool = False

    @property
    def butterflies(self) -> int:
        """Butterflies of a row."""
        return self.n // self.radix

    @property
    def rows(self) -> int:
        """Rows in a vector."""
        return max(1, self.width // self.butterflies)

    @property
    def is_last(self) -> bool:
        """Whether results are those of the transform, without factors."""
        return self.interleaved * self.radix == self.n

    @property
    def group(self) -> int:
        """Results of a vector that are adjacent."""
        return self.width if self.is_last or self.interleaved % self.width == 0 else self.interleaved

    @property
    def fits(self) -> bool:
        """Whether vectors are full, and shuffles can interleave their results."""
        is_full = self.butterflies % self.width == 0 or 2 * self.butterflies == self.width
        is_adjacent = self.group == self.width
        return is_full and (is_adjacent or (self.width % self.group == 0 and self.radix & (self.radix - 1) == 0))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of groups of butterflies whose results are together, the butterflies of each, and the distances of
        the elements of a butterfly.
        """
        inner = max(self.interleaved, self.width)
        return max(1, self.butterflies // inner), inner, *in_order(self.butterflies, self.radix, self.is_inverse)

    @cached_property
    def factors(self) -> np.ndarray[Any, Any]:
        """The factors of results 1, 2 .. of each vector: real parts of all lanes, then imaginary ones."""
        if self.is_last:
            return np.zeros(0)
        row = np.arange(self.butterflies) // self.interleaved
        powers = np.tile(np.outer(np.arange(1, self.radix), row), self.rows)
        roots = roots_of_unity(powers, self.n // self.interleaved).reshape(self.radix - 1, -1, self.width)
        imaginary = -roots.imag if self.is_inverse else roots.imag
        return np.stack([roots.real, imaginary], 2).transpose(1, 0, 2, 3).reshape(-1)


@record
class RowFft:
    """A transform of rows of length n in vectors of a type, in several stages."""

    n: int
    vector: Type
    is_inverse: bool = False

    @cached_property
    def stages(self) -> tuple[RowStage, ...]:
        """The stages; none if the length has a large prime factor."""
        stages, interleaved = [], 1
        for radix in radices_of(self.n) or ():
            stages.append(RowStage(radix, self.n, interleaved, self.vector.width, self.is_inverse))
            interleaved *= radix
        return tuple(stages)

    @property
    def fits(self) -> bool:
        """Whether there are stages, all of which fill vectors."""
        return len(self.stages) > 1 and all(stage.fits for stage in self.stages)

    @property
    def is_square(self) -> bool:
        """Whether vectors have all butterflies of each of two stages of the same radix."""
        first = self.stages[0]
        return len(self.stages) == 2 and first.butterflies == first.radix and first.rows * first.radix == first.width

    @property
    def written(self) -> tuple[RowStage, ...]:
        """The stages that have functions: that of the first stage of a square makes both."""
        return self.stages[:1] if self.is_square else self.stages

    @property
    def block(self) -> int:
        """Rows that are transformed together."""
        return max(self.stages[0].rows, BLOCK // self.n)

    def table(self) -> np.ndarray[Any, Any]:
        """Returns the factors of all stages."""
        dtype = np.float32 if self.vector.element == "float" else np.float64
        return np.concatenate([stage.factors for stage in self.stages]).astype(dtype)

    @property
    def array(self) -> int:
        """Bytes of an array of a block between stages."""
        return 0 if self.is_square else self.block * self.n * size_of(self.vector.element) + PADDING

    def task(self, name: str, rows: int, chunks: int, source: Access, target: Access) -> KernelFunction:
        """Returns the task that transforms a share of the rows; the context has source, target, workspace, table."""
        f = task_function(name).as_call_only()
        before, after, work, table = f.unpack(f["context"], *[PTR] * 4)
        first = f.multiply(f["chunk"], 4 * self.array)
        arrays = [f.at(work, f.add(first, k * self.array), "i8") for k in range(4)]
        buffers = Side((arrays[0], arrays[1])), Side((arrays[2], arrays[3]))
        start, count = f.share(-(-rows // self.block), 1, chunks, f["chunk"])
        with f.each(start, f.add(start, count)) as index:
            row = f.multiply(index, self.block)
            held = f.index(f.minimum(self.block, f.subtract(rows, row)))
            ends = (f.element_at(memory, f.multiply(row, self.n), source.type) for memory in (before, after))
            (given, made) = (Side((end, end), access) for end, access in zip(ends, (source, target), strict=True))
            between = [buffers[k % 2] for k in range(len(self.written) - 1)]
            self._block(f, [given, *between, made], held, table)
        return f

    def _block(self, f: KernelFunction, sides: Sequence[Side], rows: Value, table: Value) -> None:
        for stage, source, target in zip(self.written, sides, sides[1:], strict=False):
            function = stage_function(stage, self.vector, source.access, target.access, self.is_square)
            sizes = (f.index(size) for size in (self.n, *stage.sizes))
            is_scaled = target.access and target.access.is_scaled
            scale = [constant(self.vector.scalar, target.access.scale)] if target.access and is_scaled else []
            f.call_function(function, *source.arrays, *target.arrays, table, rows, *sizes, *scale)
            table = f.at(table, stage.factors.size, self.vector.element)


def stage_function(
    stage: RowStage, vector: Type, source: Access | None, target: Access | None, is_square: bool
) -> Function:
    """Returns `(re, im, re2, im2, table, rows, length, outer, inner, distance, rest)`.

    A scaled access adds the scale.
    """
    accesses = [(".from", source), (".to", target)]
    flags = "".join(f"{flag}.{access.name}" for flag, access in accesses if access)
    layout = f"{stage.group}.{stage.rows}{'' if stage.is_last else '.factors'}"
    parameters = {**dict.fromkeys(_ARRAYS, PTR), **dict.fromkeys(_SIZES, I64)}
    if target and target.is_scaled:
        parameters["scale"] = vector.scalar
    write = functools.partial(_write_square if is_square else _write_stage, stage, vector, source, target)
    kind = f"square{'.inverse' * stage.is_inverse}" if is_square else "row"
    return shared_function(f"fft.{kind}{stage.radix}.{layout}.{vector.suffix}{flags}", write, **parameters)


def _write_stage(
    stage: RowStage, vector: Type, source: Access | None, target: Access | None, f: KernelFunction
) -> None:
    writer = _StageWriter(f, stage, vector)
    butterflies = f.multiply(f["outer"], f["inner"]) if stage.rows == 1 else stage.butterflies
    with f.loop(f["rows"], stage.rows) as row:
        writer.start_row(row.index)
        with f.loop(f["outer"]) as outer, f.loop(f["inner"], stage.width) as inner:
            first = f.multiply(outer.index, f["inner"])
            at, to = f.add(first, inner.index), f.add(f.multiply(first, stage.radix), inner.index)
            others = [f.binary("add", each, f["rest"]) for each in multiples(f, f["distance"], stage.radix)]
            inputs = [writer.read(source, element) for element in (at, *(f.add(at, each) for each in others))]
            outputs = writer.interleaved(writer.with_factors(butterfly(f, inputs), at))
            distance = butterflies if stage.is_last else f["inner"]
            for k, value in enumerate(outputs):
                writer.write(target, value, f.add(to, f.multiply(distance, k)))


def _write_square(
    stage: RowStage, vector: Type, source: Access | None, target: Access | None, f: KernelFunction
) -> None:
    """Writes both stages of a square, of which this is the first one."""
    writer = _StageWriter(f, stage, vector)
    with f.loop(f["rows"], stage.rows) as row:
        writer.start_row(row.index)
        elements = [k * stage.radix for k in (range(0, -stage.radix, -1) if stage.is_inverse else range(stage.radix))]
        inputs = [writer.read(source, element % stage.n) for element in elements]
        columns = zip(*writer.with_factors(butterfly(f, inputs), 0), strict=True)
        re, im = (transpose_squares(f, part) for part in columns)
        for element, value in zip(elements, butterfly(f, [*zip(re, im, strict=True)]), strict=True):
            writer.write(target, value, element % stage.n)


@dataclass
class _StageWriter:
    """Writes the parts of a stage; `at` and `to` are elements of the first row of its vectors."""

    f: KernelFunction
    stage: RowStage
    vector: Type
    row: IndexValue = 0
    next_row: IndexValue = 0

    def start_row(self, index: IndexValue) -> None:
        """Sets the first element of a row, and the distance of the next one, if vectors have two.

        The last row, if alone, is transformed twice.
        """
        f = self.f
        self.row = f.multiply(index, f["length"])
        next_row = f.minimum(1, f.left(f["rows"], f.add(index, 1))) if self.stage.rows > 1 else 0
        self.next_row = f.multiply(next_row, f["length"])

    def _halves(self, element: IndexValue) -> tuple[IndexValue, IndexValue]:
        """Returns the first elements of the halves of a vector."""
        first = self.f.add(self.row, element)
        return first, self.f.add(first, self.next_row if self.stage.rows > 1 else self.vector.width // 2)

    def read(self, access: Access | None, at: IndexValue) -> Complex:
        """Loads an element of each butterfly."""
        f, vector, halves = self.f, self.vector, self._halves(at)
        if not access:
            re, im = (self._load_part(f[array], halves) for array in ("re", "im"))
            return re, im
        low, high = (f.load(f.element_at(f["re"], half, access.type), vector, self._align) for half in halves)
        re, im = (f.shuffle(low, high, range(part, 2 * vector.width, 2)) for part in range(2))
        return re, im

    def _load_part(self, array: Value, halves: Sequence[IndexValue]) -> Value:
        f, vector = self.f, self.vector
        if self.stage.rows == 1:
            return f.load(f.at(array, halves[0], vector.element), vector, self._align)
        half = type_of(vector.element, vector.width // 2)
        return f.joined(*(f.load(f.at(array, first, vector.element), half, self._align) for first in halves))

    def with_factors(self, values: list[Complex], at: IndexValue) -> list[Complex]:
        """Multiplies results by their factors."""
        if self.stage.is_last:
            return values
        f, vector, others = self.f, self.vector, len(values) - 1
        first = f.at(f["table"], f.multiply(at, 2 * others), vector.element)
        parts = [f.load(f.at(first, k * vector.width, vector.element), vector, self._align) for k in range(2 * others)]
        factors = zip(parts[::2], parts[1::2], strict=True)
        return [values[0], *(multiply(f, value, factor) for value, factor in zip(values[1:], factors, strict=True))]

    def interleaved(self, values: list[Complex]) -> list[Complex]:
        """Returns the results of adjacent butterflies after each other, in groups of adjacent ones."""
        if self.stage.group == self.vector.width:
            return values
        re, im = (interleave(self.f, part, self.stage.group) for part in zip(*values, strict=True))
        return [*zip(re, im, strict=True)]

    def write(self, access: Access | None, value: Complex, to: IndexValue) -> None:
        """Stores a vector of results."""
        f, vector, halves = self.f, self.vector, self._halves(to)
        if not access:
            for part, array in zip(value, ("re2", "im2"), strict=True):
                f.store(part, f.at(f[array], halves[0], vector.element), self._align)
            return
        re, im = value
        if access.is_scaled:
            scale = f.splat(f["scale"], vector.width)
            re, im = f.binary("fmul", re, scale), f.binary("fmul", im, scale)
        for half, first in enumerate(halves):
            lanes = [lane + part for lane in range(vector.width // 2) for part in (0, vector.width)]
            together = f.shuffle(re, im, [lane + half * vector.width // 2 for lane in lanes])
            f.store(together, f.element_at(f["re2"], first, access.type), self._align)

    @property
    def _align(self) -> int:
        return size_of(self.vector.element)


def interleave(f: KernelFunction, vectors: Sequence[Value], group: int) -> list[Value]:
    """Returns the first groups of lanes of all vectors, then the second ones, and so on.

    With the bits of the index of a vector before those of a group, each step rotates all by one: to the left by
    interleaving two vectors, or to the right by separating even and odd groups, whichever takes fewer steps.
    """
    half, groups = len(vectors) // 2, vectors[0].type.width // group
    left, right = (count.bit_length() - 1 for count in (len(vectors), groups))
    alternate = [k // 2 + k % 2 * groups for k in range(2 * groups)]
    low, high = (_lanes(order, group) for order in (alternate[:groups], alternate[groups:]))
    even, odd = (_lanes(range(first, 2 * groups, 2), group) for first in range(2))
    vectors = list(vectors)
    for _ in range(min(left, right)):
        if left <= right:
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [f.shuffle(*pair, lanes) for pair in pairs for lanes in (low, high)]
        else:
            neighbours = [*zip(vectors[::2], vectors[1::2], strict=True)]
            vectors = [f.shuffle(*pair, lanes) for lanes in (even, odd) for pair in neighbours]
    return vectors


def _lanes(groups: Sequence[int], size: int) -> list[int]:
    return [group * size + lane for group in groups for lane in range(size)]
