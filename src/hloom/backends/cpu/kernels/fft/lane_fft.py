"""Transforms of sequences in lanes: [n][lanes], with real and imaginary parts in separate arrays.

Stockham's algorithm with radices 8, 4, 2, 9 and odd primes: a sequence of r m elements, interleaved with others,
becomes r sequences of length m: element k of the p-th butterfly, times w^(p k), is stored at r p + k. Every load and
store is a vector of lanes, and the results of all stages but the last of a step stay in the first-level cache (see
steps.py).

An inverse transform runs the same code: its factors are the conjugates, and the butterfly of the conjugates is that of
the elements in the order 0, r - 1, r - 2, .. 1.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hloom.backends.cpu.elements.memory import interleaved
from hloom.backends.cpu.kernels.fft.complex_vectors import Complex, butterfly, multiply
from hloom.backends.cpu.kernels.fft.steps import Factors, Stage, Step, steps_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value, constant
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.target import CACHE_LINE
from hloom.types import PrimitiveType

_ARRAYS = "re", "im", "re2", "im2", "table"
_DISTANCES = [f"{array}_{of}" for array in ("source", "target") for of in ("row", "column", "k", "ahead")]
_DISTANCES.append("source_rest")
"""Elements 1, 2 .. of a butterfly are at `source_rest` plus 1, 2 .. times `source_k` from element 0."""
MIN_GROUP = 16
"""Lanes that share a table of factors at least: tables with one for each sixteenth sequence stay small."""
PADDING = 320
"""Bytes between arrays, so that their distance is not a multiple of a page."""


@record
class Access:
    """Adjacent sequences in memory, one in each lane: the type of elements, and the distance of those of a sequence.

    Stored elements may be multiplied by a scale. A partial access may have vectors of which some lanes have no
    sequences. Elements of a sequence that are far apart are prefetched. Stores may be non-temporal.
    """

    type: PrimitiveType
    distance: int
    is_full: bool
    scale: float = 1.0
    is_far: bool = False
    is_nontemporal: bool = False

    @property
    def is_scaled(self) -> bool:
        """Whether elements are multiplied."""
        return self.scale != 1.0

    @property
    def is_prefetched(self) -> bool:
        """Whether code prefetches elements, which the processor does not."""
        return self.is_far and not self.is_nontemporal

    @property
    def name(self) -> str:
        """The name of all that code depends on."""
        flags = {
            "partial": not self.is_full,
            "scaled": self.is_scaled,
            "prefetched": self.is_prefetched,
            "nontemporal": self.is_nontemporal,
        }
        return ".".join([str(self.type), *(flag for flag, is_set in flags.items() if is_set)])


@record
class Side:
    """Elements of sequences: in a pair of arrays, or at an address in memory, which is given twice."""

    arrays: Complex
    access: Access | None = None


def transform_function(name: str) -> KernelFunction:
    """Returns an empty function with the parameters of a transform."""
    return KernelFunction(name, **dict.fromkeys((*_ARRAYS, "source", "target"), PTR), count=I64)


@record
class LaneFft:
    """A transform of length n on `lanes` sequences, in vectors of type `vector`."""

    n: int
    lanes: int
    vector: Type
    is_inverse: bool = False

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps, the first of two in side."""
        return steps_of(self.n)

    @property
    def size(self) -> int:
        """Elements of each array, in each lane."""
        return self.n

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return self.vector.width or 1

    @property
    def group(self) -> int:
        """Lanes that share a table of factors: those of a vector, but no fewer than `MIN_GROUP`."""
        return min(self.lanes, max(self.width, MIN_GROUP))

    @property
    def align(self) -> int:
        """The alignment of elements, in bytes."""
        return size_of(self.vector.element)

    @property
    def has_scale(self) -> bool:
        """Whether a stage multiplies all elements, so that its factors can contain a scale."""
        return len(self.steps) > 1

    def table(self, scale: float = 1.0) -> np.ndarray[Any, Any]:
        """Returns the factors of all stages, real and imaginary parts alternately; some contain the scale."""
        stages = [pair for step in self.steps for pair in zip(step.stages(), step.factors, strict=True)]
        factors = [(each * scale if stage.factors == "of all" else each).reshape(-1) for stage, each in stages]
        return self.table_of(np.concatenate(factors))

    def table_of(self, factors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns real and imaginary parts of factors, or of their conjugates for an inverse transform."""
        return (factors.conj() if self.is_inverse else factors).view(np.float64).astype(self.dtype)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The type of real parts."""
        return np.float32 if self.vector.element == "float" else np.float64

    def function(self, name: str, source: Access | None, target: Access | None) -> KernelFunction:
        """Returns `name(re, im, re2, im2, table, source, target, count)`, which calls a shared function for each stage.

        Without accesses of memory, it transforms the first pair of arrays into the second one; both change.
        """
        f = transform_function(name).as_call_only()
        before, first, _, after = self.sides(f, source, target)
        self.transform(f, before, first, after, f["table"])
        return f

    def sides(self, f: KernelFunction, source: Access | None, target: Access | None) -> tuple[Side, ...]:
        """Returns the source, the pairs of arrays, and the target."""
        first, second = (Side((f[f"re{k}"], f[f"im{k}"])) for k in ("", 2))
        before, after = (
            Side((f[name], f[name]), access) if access else arrays
            for name, access, arrays in (("source", source, first), ("target", target, second))
        )
        return before, first, second, after

    def transform(self, f: KernelFunction, source: Side, between: Side, target: Side, table: Value) -> None:
        """Transforms with a pair of arrays for what is between two steps."""
        sides = [source, *[between] * (len(self.steps) - 1), target]
        buffers = self._buffers(f)
        for step, before, after in zip(self.steps, sides, sides[1:], strict=False):
            self._step(f, step, [before, *buffers[: step.buffers], after], table)
            table = f.at(table, 2 * sum(each.size for each in step.factors), self.vector.element)

    def _buffers(self, f: KernelFunction) -> list[Side]:
        elements = max(step.n * step.count * (step.buffers > 0) for step in self.steps)
        array = elements * self.lanes + PADDING // self.align
        slot = f.slot(self.vector.scalar, 4 * array)
        parts = [f.at(slot, k * array, self.vector.element) for k in range(4)]
        return [Side((parts[0], parts[1])), Side((parts[2], parts[3]))]

    def _step(self, f: KernelFunction, step: Step, sides: Sequence[Side], table: Value) -> None:
        """Calls the stages for each batch; `sides` are source, buffers and target."""
        with f.loop(step.batches) as batch:
            first, offset = f.multiply(batch.index, step.count), 0
            source = self.advanced(f, sides[0], f.multiply(first, step.source[1]))
            last = self.advanced(f, sides[-1], f.multiply(first, step.target[1]))
            after = [*(sides[1 + k % 2] for k in range(len(step.radices) - 1)), last]
            for stage, factors, target in zip(step.stages(), step.factors, after, strict=True):
                of_batch = f.multiply(batch.index, 2 * factors.size // step.batches) if stage.factors == "of all" else 0
                self.run_stage(f, stage, source, target, f.at(table, f.add(of_batch, offset), self.vector.element))
                source, offset = target, offset + 2 * factors.size

    def advanced(self, f: KernelFunction, side: Side, elements: IndexValue) -> Side:
        """Returns the side of a later element."""
        if not side.access:
            return replace(side, arrays=self.moved(f, side.arrays, f.multiply(elements, self.lanes)))
        address = f.element_at(side.arrays[0], f.multiply(elements, side.access.distance), side.access.type)
        return replace(side, arrays=(address, address))

    def run_stage(self, f: KernelFunction, stage: Stage, source: Side, target: Side, table: Value) -> None:
        """Calls the shared function of a stage."""
        distances = [
            distance * (side.access.distance if side.access else self.lanes)
            for side, each in ((source, stage.source), (target, stage.target))
            for distance in each
        ]
        distances[2], rest = in_order(distances[2], stage.radix, self.is_inverse)
        sizes = f.index(stage.rows), f.index(stage.columns), self._held_lanes(f), *map(f.index, [*distances, rest])
        accesses = source.access, target.access
        count = [f["count"]] if any(access and not access.is_full for access in accesses) else []
        scale = [constant(self.vector.scalar, access.scale) for access in accesses if access and access.is_scaled]
        function = self._stage_function(stage.radix, stage.factors, *accesses)
        f.call_function(function, *source.arrays, *target.arrays, table, *sizes, *count, *scale)

    def _held_lanes(self, f: KernelFunction) -> Value:
        """Returns the lanes of the vectors that have sequences."""
        return f.index(f.multiply(f.ceil_divide(f["count"], self.width), self.width))

    def _stage_function(self, radix: int, factors: Factors, source: Access | None, target: Access | None) -> Function:
        """Returns `(re, im, re2, im2, table, rows, columns, distances ..)`: a matrix of butterflies.

        The results are multiplied by factors. A partial access adds the number of lanes, a scaled one the scale.
        """
        accesses = [(".from", source), (".to", target)]
        flags = "".join(f"{flag}.{access.name}" for flag, access in accesses if access)
        name = f"fft.stage{radix}.{factors.replace(' ', '_')}.{self.vector.suffix}{flags}"
        write = functools.partial(self._write_stage, radix, factors, source, target)
        parameters = {**dict.fromkeys(_ARRAYS, PTR), **dict.fromkeys(("rows", "columns", "lanes", *_DISTANCES), I64)}
        if any(access and not access.is_full for _, access in accesses):
            parameters["count"] = I64
        if target and target.is_scaled:
            parameters["scale"] = self.vector.scalar
        function = shared_function(name, write, **parameters)
        function.is_combined = not target or target.is_full  # combining shortens stores of some lanes
        return function

    def _write_stage(
        self, radix: int, factors: Factors, source: Access | None, target: Access | None, f: KernelFunction
    ) -> None:
        with f.loop(f["rows"]) as row:
            of_row = self._factors(f, radix, row.index) if factors == "of rows" else []
            with f.loop(f["columns"]) as column:
                of_each = f.multiply(f.add(f.multiply(row.index, f["columns"]), column.index), 2 * radix)
                own = f.at(f["table"], of_each, self.vector.element)
                at, to = (
                    f.add(f.multiply(row.index, f[f"{array}_row"]), f.multiply(column.index, f[f"{array}_column"]))
                    for array in ("source", "target")
                )
                with f.loop(f["lanes"], self.width) as lane:
                    before = f.binary("add", f.index(at), f["source_rest"])
                    others = [f.binary("add", before, each) for each in multiples(f, f["source_k"], radix)]
                    inputs = [self._read(f, source, element, lane.index) for element in (at, *others)]
                    for k, value in enumerate(butterfly(f, inputs)):
                        if factors == "of all":
                            value = multiply(f, value, self.factor(f, own, k))
                        elif of_row and k:
                            value = multiply(f, value, of_row[k - 1])
                        self._write(f, target, value, f.add(to, f.multiply(f["target_k"], k)), lane.index)

    def _read(self, f: KernelFunction, access: Access | None, element: IndexValue, lane: IndexValue) -> Complex:
        offset = f.add(element, lane)
        if not access:
            return self.load(f, (f["re"], f["im"]), offset)
        address = f.element_at(f["re"], offset, access.type)
        self._prefetch(f, f.element_at(address, f["source_ahead"], access.type), access)
        value = f.load_lanes(address, access.type, self.vector.width, self._mask(f, access, lane))
        assert isinstance(value, tuple)
        return value

    def _write(
        self, f: KernelFunction, access: Access | None, value: Complex, element: IndexValue, lane: IndexValue
    ) -> None:
        offset = f.add(element, lane)
        if not access:
            self.store(f, value, (f["re2"], f["im2"]), offset)
            return
        re, im = value
        if access.is_scaled:
            scale = f.splat(f["scale"], self.vector.width)
            re, im = f.binary("fmul", re, scale), f.binary("fmul", im, scale)
        address = f.element_at(f["re2"], offset, access.type)
        self._prefetch(f, f.element_at(address, f["target_ahead"], access.type), access, writes=True)
        if access.is_nontemporal:
            line = interleaved(f, re, im)
            f.store(line, address, min(CACHE_LINE, line.type.width * self.align), is_nontemporal=True)
        else:
            f.store_lanes((re, im), address, access.type, self._mask(f, access, lane))

    def _prefetch(self, f: KernelFunction, address: Value, access: Access, writes: bool = False) -> None:
        if not access.is_prefetched:
            return
        for line in range(0, self.width * access.type.byte_width, CACHE_LINE):
            f.prefetch(f.at(address, line, "i8"), writes)

    def _mask(self, f: KernelFunction, access: Access, lane: IndexValue) -> Value | None:
        return None if access.is_full else f.first_lanes(f.left(f["count"], lane), self.width)

    def _factors(self, f: KernelFunction, radix: int, row: IndexValue) -> list[Complex]:
        first = f.at(f["table"], f.multiply(row, 2 * (radix - 1)), self.vector.element)
        return [self.factor(f, first, k) for k in range(radix - 1)]

    def factor(self, f: KernelFunction, table: Value, index: IndexValue, width: int | None = None) -> Complex:
        """Loads a complex number of a table, in all lanes of a vector; in one if `width` is 0."""
        first = f.at(table, f.multiply(index, 2), self.vector.element)
        parts = (f.load(f.at(first, k, self.vector.element), self.vector.scalar, self.align) for k in range(2))
        re, im = (f.splat(part, self.vector.width if width is None else width) for part in parts)
        return re, im

    @property
    def vectors(self) -> range:
        """The first lane of each vector."""
        return range(0, self.lanes, self.width)

    def offsets(self, f: KernelFunction, element: IndexValue) -> list[IndexValue]:
        """Returns the offsets of an element's vectors."""
        return [f.add(f.multiply(element, self.lanes), lane) for lane in self.vectors]

    def moved(self, f: KernelFunction, arrays: Complex, offset: IndexValue) -> Complex:
        """Returns the addresses of an offset in a pair of arrays."""
        re, im = (f.at(array, offset, self.vector.element) for array in arrays)
        return re, im

    def load(self, f: KernelFunction, arrays: Complex, offset: IndexValue) -> Complex:
        """Loads the vectors at an offset of a pair of arrays."""
        re, im = (f.load(address, self.vector, self.align) for address in self.moved(f, arrays, offset))
        return re, im

    def store(self, f: KernelFunction, value: Complex, arrays: Complex, offset: IndexValue) -> None:
        """Stores vectors at an offset of a pair of arrays."""
        for part, address in zip(value, self.moved(f, arrays, offset), strict=True):
            f.store(part, address, self.align)


# The order of elements


def in_order(distance: int, radix: int, is_inverse: bool) -> tuple[int, int]:
    """Returns the distances `(k, rest)` of the elements of a butterfly whose own distance is given."""
    return (-distance, radix * distance) if is_inverse else (distance, 0)


def multiples(f: KernelFunction, distance: Value, radix: int) -> list[Value]:
    """Returns a distance, which may be negative, times 1, 2 .. up to the radix."""
    return [f.binary("mul", distance, f.index(k)) for k in range(1, radix)]
