"""Blocks of sequences, between arrays in memory and lanes: [length][lanes] with real and imaginary parts apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Literal

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.elements.types import Element, element_of, parts
from hloom.backends.cpu.kernels.fft.complex_vectors import Complex, multiply
from hloom.backends.cpu.kernels.fft.lane_fft import LaneFft
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.lir import I64, PTR, Function, IndexValue, Type, Value
from hloom.system.records import record
from hloom.types import PrimitiveType

Parts = tuple[Value, ...]
"""Real and imaginary parts of a complex vector, or arrays of them; the one part of a real vector."""
VisitSquare = Callable[[IndexValue, IndexValue, IndexValue, Sequence[Value]], None]
"""A function of a square: its first element, the distance of that in memory from the first of the sequence, the first
lane, and the addresses of the sequences of its lanes."""
Order = Literal["columns", "rows", "elements"]
"""The traversal of a block: vectors of adjacent sequences, squares of contiguous sequences, or single elements."""
FAR = 2048
"""Bytes between elements from which they are prefetched: processors do that within pages."""


@record
class BlockView:
    """The sequences along a dimension of a row-major array; the dimensions after it have `inner` elements.

    Element j of sequence g is at offset (g / inner) length inner + g % inner + j inner. With a tile, sequences are
    contiguous in pieces of that length: the first ones of all sequences, then the second ones, and so on.
    """

    type: PrimitiveType
    length: int
    inner: int
    tile: int = 0

    @property
    def is_far(self) -> bool:
        """Whether elements of a sequence are so far apart that the processor does not prefetch them."""
        return self.inner * self.type.byte_width >= FAR

    def order(self, fft: LaneFft, sequences: int) -> Order:
        """The order in which sequences are moved: columns if all sequences of a block are adjacent."""
        if 1 < self.inner >= min(fft.lanes, sequences):
            return "columns"
        return "rows" if self.inner == 1 and fft.vector.width else "elements"


def move_function(
    fft: LaneFft,
    type: PrimitiveType,
    order: Order,
    is_full: bool,
    stores: bool,
    is_scaled: bool = False,
    is_twisted: bool = False,
    is_prefetched: bool = False,
) -> Function:
    """Returns `(memory, first, count, length, inner, scale, arrays ..)`, which loads or stores a block.

    The block has `count` sequences from `first` on; all lanes, if it `is_full`. Stored elements are multiplied by the
    scale if it `is_scaled`. Loaded ones are in tiles if it `is_twisted`, and multiplied by w^(k g), element k of
    sequence g: the arguments then end with the `tile`, the distance of a sequence's tiles, these factors, the number of
    groups of lanes, and the first `group` of the block. The factors are, for each group, those of the elements of its
    first sequence; then, for each element, those of the lanes. The next tile may be prefetched.
    """
    vector = fft.vector
    flags = [".full"] * is_full + [".scaled"] * is_scaled + [".twisted"] * is_twisted + [".prefetched"] * is_prefetched
    name = f"fft.{'store' if stores else 'load'}.{order}.{type}.{fft.lanes}.{vector.suffix}{''.join(flags)}"
    sizes = dict.fromkeys(("first", "count", "length", "inner"), I64)
    arrays = [f"array{k}" for k in range(2 if type.is_complex else 1)]
    parameters = {"memory": PTR, **sizes, "scale": vector.scalar, **dict.fromkeys(arrays, PTR)}
    twist = {"tile": I64, "apart": I64, "factors": PTR, "groups": I64, "group": I64} if is_twisted else {}

    def write(f: KernelFunction) -> None:
        block = SequenceBlock(f, fft, type, order, is_full, is_scaled, is_twisted, is_prefetched)
        (block.store if stores else block.load)(tuple(f[array] for array in arrays))

    return shared_function(name, write, **parameters, **twist)


@record
class SequenceBlock:
    """Sequences of a task, in the parameters of a function. Lanes beyond the last one have arbitrary values, and are
    not stored.
    """

    f: KernelFunction
    fft: LaneFft
    type: PrimitiveType
    order: Order
    is_full: bool
    is_scaled: bool = False
    is_twisted: bool = False
    is_prefetched: bool = False

    def load(self, arrays: Parts) -> None:
        """Fills arrays with [length][lanes]."""
        f = self.f

        def square(j: IndexValue, at: IndexValue, group: IndexValue, addresses: Sequence[Value]) -> None:
            bytes = self.type.real.byte_width
            for address in addresses if self.is_prefetched else ():
                f.prefetch(f.element_at(address, f.add(at, f["apart"]), self.type))
            rows = [f.load(f.element_at(address, at, self.type), self.fft.vector, bytes) for address in addresses]
            columns: Iterable[Element] = transpose_and_split(f, rows) if self.type.is_complex else _transposed(f, rows)
            for k, column in enumerate([*columns]):
                self._store_parts(parts(column), arrays, f.add(j, k), group)

        self._each_square(square, self.fft.lanes)
        self._each_element(lambda address, *at: self._store_parts(self._read_one(address), arrays, *at))

    def store(self, arrays: Parts) -> None:
        """Writes [length][lanes], each element times the scale."""
        vector = self.fft.vector
        f = self.f

        def square(j: IndexValue, at: IndexValue, group: IndexValue, addresses: Sequence[Value]) -> None:
            lines = [self._load_parts(arrays, vector, f.add(j, k), group) for k in range(self._square_size)]
            is_complex = self.type.is_complex
            rows = transpose_and_interleave(f, lines) if is_complex else _transposed(f, [line for (line,) in lines])
            # In reverse, since lanes beyond the last sequence are stored to its address, which it overwrites.
            for address, row in zip(reversed(addresses), reversed(rows), strict=True):
                f.store(row, f.element_at(address, at, self.type), self.type.real.byte_width)

        self._each_square(square, self.fft.lanes if self.is_full else f["count"])
        self._each_element(
            lambda address, *at: self._write_one(self._load_parts(arrays, vector.scalar, *at), address), only_held=True
        )

    # Traversals of a block

    @property
    def _square_size(self) -> int:
        """The number of elements of a sequence that a vector in memory has."""
        return self.fft.width // 2 if self.type.is_complex else self.fft.width

    @property
    def _tile(self) -> Value:
        """The number of elements of a sequence that are contiguous in memory, in the order of rows."""
        return self.f["tile" if self.is_twisted else "length"]

    def _in_squares(self, length: Value) -> IndexValue:
        """Returns the number of elements, out of `length`, that are moved in squares: whole vectors."""
        f = self.f
        return f.subtract(length, f.remainder(length, self._square_size)) if self.order == "rows" else 0

    def _each_square(self, visit: VisitSquare, count: IndexValue) -> None:
        """Visits squares of contiguous sequences: a vector of each, for as many vectors of lanes as `count` sequences
        fill.
        """
        if self.order != "rows":
            return
        f, lanes = self.f, self.fft.lanes
        # Addresses go through memory: LLVM takes long to compile loops in which it sees how they are computed.
        stored_addresses = f.slot(I64, lanes)
        with f.loop(lanes) as lane:
            f.store(self._sequence_start(lane.index), f.at(stored_addresses, lane.index, "i64"), 8)
        held = f.multiply(f.ceil_divide(count, self.fft.width), self.fft.width)
        tile = self._tile
        tiles = f.loop(f.binary("udiv", f["length"], tile)) if self.is_twisted else nullcontext()
        with tiles as loop, f.loop(held, self.fft.width) as group:
            addresses = [
                f.load(f.at(stored_addresses, f.add(group.index, lane), "i64"), PTR, 8)
                for lane in range(self.fft.width)
            ]
            before, behind = (f.multiply(loop.index, size) for size in (tile, f["apart"])) if loop else (0, 0)
            with f.each(0, self._in_squares(tile), self._square_size) as first:
                visit(f.add(before, first), f.add(behind, first), group.index, addresses)

    def _each_element(self, visit: Callable[[Value, IndexValue, IndexValue], None], only_held: bool = False) -> None:
        """Visits the elements that are in no square; with `only_held`, only those of sequences that the block has."""
        f, first = self.f, self._in_squares(self.f["length"])
        whole = None if first == 0 else f.compare("ne", f.index(first), f["length"])
        with f.when(whole), f.loop(self.fft.lanes) as lane, f.when(self._holds(lane.index) if only_held else None):
            address = self._sequence_start(lane.index)
            with f.loop(f["length"], first=first) as loop:
                visit(f.element_at(address, f.multiply(loop.index, self._inner), self.type), loop.index, lane.index)

    @property
    def _inner(self) -> IndexValue:
        return 1 if self.order == "rows" else self.f["inner"]

    def _offset(self, sequence: IndexValue) -> IndexValue:
        """Returns the offset of the first element of a sequence."""
        f = self.f
        if self.order == "rows":
            return f.multiply(sequence, self._tile)
        outer, inner = f.binary("udiv", f.index(sequence), f["inner"]), f["inner"]
        return f.add(f.multiply(outer, f.multiply(f["length"], inner)), f.subtract(sequence, f.multiply(outer, inner)))

    def _at(self, element: IndexValue, lane: IndexValue) -> IndexValue:
        """Returns the offset of a lane of an element in the arrays."""
        return self.f.add(self.f.multiply(element, self.fft.lanes), lane)

    def _sequence_start(self, lane: IndexValue) -> Value:
        """Returns the address of the sequence of a lane; lanes past the last one get its address."""
        f = self.f
        lane = lane if self.is_full else f.minimum(lane, f.left(f["count"], 1))
        return f.element_at(f["memory"], self._offset(f.add(f["first"], lane)), self.type)

    def _holds(self, lane: IndexValue) -> Value | None:
        """Whether the block has a sequence in a lane; None where it is full."""
        return None if self.is_full else self.f.compare("ult", self.f.index(lane), self.f["count"])

    # Elements and vectors

    def _read_one(self, address: Value) -> Parts:
        return parts(self.f.load_lanes(address, self.type))

    def _write_one(self, values: Parts, address: Value) -> None:
        self.f.store_lanes(element_of(values), address, self.type)

    def _store_parts(self, values: Parts, arrays: Parts, element: IndexValue, lane: IndexValue) -> None:
        """Stores lanes of an element, or one, times factors."""
        f, at = self.f, self._at(element, lane)
        if self.is_twisted:
            re, im = values
            values = multiply(f, (re, im), self._factor(re.type, element, lane))
        for part, array in zip(values, arrays, strict=True):
            f.store(part, f.at(array, at, self.fft.vector.element), self.fft.align)

    def _load_parts(self, arrays: Parts, type: Type, element: IndexValue, lane: IndexValue) -> Parts:
        """Loads lanes of an element, or one, and multiplies by the scale."""
        f, at = self.f, self._at(element, lane)
        values = [f.load(f.at(array, at, type.element), type, self.fft.align) for array in arrays]
        scale = f.splat(f["scale"], type.width) if self.is_scaled else None
        return tuple(f.binary("fmul", value, scale) if scale else value for value in values)

    def _factor(self, type: Type, element: IndexValue, lane: IndexValue) -> Complex:
        """Returns the factors of lanes of an element: of their group, times those of the lanes."""
        f, fft = self.f, self.fft
        group = f.add(f["group"], f.divide(lane, fft.group))
        of_group = fft.factor(f, f["factors"], f.add(f.multiply(group, f["length"]), element), type.width)
        of_lanes = f.at(f["factors"], f.multiply(f.multiply(f["length"], f["groups"]), 2), type.element)
        first = f.add(f.multiply(element, 2 * fft.group), f.remainder(lane, fft.group))
        re, im = (f.load(f.at(of_lanes, f.add(first, part), type.element), type, fft.align) for part in (0, fft.group))
        return multiply(f, (re, im), of_group)


_transposed = functools.partial(transpose, nearest_first=True)


def transpose_and_split(f: KernelFunction, rows: list[Value]) -> Iterator[tuple[Value, Value]]:
    """Transposes rows of complex numbers, as many as a vector has lanes; yields real and imaginary parts of each
    column.
    """
    halves = [_transposed(f, [rows[k] for k in half], span=2) for half in _halves(rows[0])]
    masks = [_gathering(rows[0], part) for part in range(2)]
    for a, b in zip(*halves, strict=True):
        yield f.shuffle(a, b, masks[0]), f.shuffle(a, b, masks[1])


def transpose_and_interleave(f: KernelFunction, columns: list[Parts]) -> list[Value]:
    """Returns the rows of which `transpose_and_split` yields these columns."""
    example = columns[0][0]
    rows_by_index: dict[int, Value] = {}
    for half, mask in zip(_halves(example), _spreading(example), strict=True):
        rows = _transposed(f, [f.shuffle(real, imaginary, mask) for real, imaginary in columns], span=2)
        rows_by_index |= zip(half, rows, strict=True)
    return [rows_by_index[k] for k in range(len(rows_by_index))]


# Shuffles within 16 bytes: two vectors of complex numbers hold the lanes of a row alternately, `_run` of them each.


def _run(vector: Value) -> int:
    """Returns the complex numbers in 16 bytes, or as many as the vector has."""
    return min(16 // size_of(vector.type.element), vector.type.width) // 2


def _halves(vector: Value) -> tuple[list[int], list[int]]:
    """Returns the lanes in the first and in the second of two vectors."""
    run, lanes = _run(vector), range(vector.type.width)
    return [k for k in lanes if k // run % 2 == 0], [k for k in lanes if k // run % 2 == 1]


def _gathering(vector: Value, part: int) -> list[int]:
    """Returns the mask that takes the real (0) or imaginary (1) parts of two vectors of complex numbers."""
    run, width = _run(vector), vector.type.width
    starts = [side + first for first in range(0, width, 2 * run) for side in (0, width)]
    return [start + 2 * k + part for start in starts for k in range(run)]


def _spreading(vector: Value) -> tuple[list[int], list[int]]:
    """Returns the masks that make two vectors of complex numbers of one of real and one of imaginary parts."""
    run, width = _run(vector), vector.type.width
    starts = [[first + half * run for first in range(0, width, 2 * run)] for half in range(2)]
    low, high = ([start + k + side for start in half for k in range(run) for side in (0, width)] for half in starts)
    return low, high
