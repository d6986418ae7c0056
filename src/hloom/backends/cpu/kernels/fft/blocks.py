"""Blocks of sequences between arrays in memory and lanes: [length][lanes] with real and imaginary parts apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.kernels.fft.lane_fft import LaneFft
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.llvm.text import Index, Value
from hloom.types import PrimitiveType

Parts = tuple[Value, ...]
"""The real and imaginary parts of a complex vector, or arrays of them; the one part of a real one."""


DoTile = Callable[[Index, Index, Sequence[Value]], None]
"""What is done to a square: its first element, its first lane, where the sequences of its lanes start."""


@dataclass(frozen=True)
class View:
    """Sequences in an array: element j of sequence g lies at (g / inner) outer + g % inner + j step."""

    type: PrimitiveType
    length: int
    step: int
    inner: int
    outer: int

    @staticmethod
    def along(type: PrimitiveType, length: int, inner: int) -> View:
        """The sequences along a dimension of a row-major array, `inner` elements being the dimensions behind it."""
        return View(type, length, inner, inner, length * inner)

    def has_lanes(self, lanes: int) -> bool:
        """Whether so many sequences lie side by side."""
        return self.inner >= lanes and self.inner > 1

    def base(self, f: KernelFunction, sequence: Index) -> Index:
        behind = f.remainder(sequence, self.inner)
        return f.add(f.multiply(f.divide(sequence, self.inner), self.outer), behind)


@dataclass(frozen=True)
class Block:
    """Sequences of a task: `count` of them from `first` on. Lanes beyond hold anything, and are not stored."""

    f: KernelFunction
    fft: LaneFft
    first: Index
    count: Index
    is_full: bool

    @property
    def width(self) -> int:
        return self.fft.vector.width or 1

    def load(self, view: View, memory: Value, arrays: Parts) -> None:
        """Fills arrays with [view.length][lanes]."""
        if view.has_lanes(self.fft.lanes):
            self._each_vector(
                view, memory, lambda place, at, mask: self._put(self._read(place, view, mask), arrays, at)
            )
            return
        f, tiled = self.f, self._tiled(view)

        def tile(j: Index, group: Index, places: Sequence[Value]) -> None:
            rows = [self._read(f.element_at(place, j, view.type), view) for place in places]
            for part, array in zip(zip(*rows, strict=True), arrays, strict=True):
                for k, vector in enumerate(transposed(f, list(part))):
                    at = f.add(f.multiply(f.add(j, k), self.fft.lanes), group)
                    self._put((vector,), (array,), at)

        self._tiles(view, memory, tiled, tile)
        self._singles(view, memory, tiled, lambda place, at: self._put(self._read_one(place, view), arrays, at))

    def store(self, view: View, memory: Value, arrays: Parts, scale: Value | None = None) -> None:
        """Writes [view.length][lanes], each element times a scale."""
        if view.has_lanes(self.fft.lanes):
            self._each_vector(
                view, memory, lambda place, at, mask: self._write(self._get(arrays, at, scale), place, view, mask)
            )
            return
        f, tiled = self.f, self._tiled(view)

        def tile(j: Index, group: Index, places: Sequence[Value]) -> None:
            found = []
            for array in arrays:
                lines = [
                    self._get((array,), f.add(f.multiply(f.add(j, k), self.fft.lanes), group), scale)[0]
                    for k in range(self.width)
                ]
                found.append(transposed(f, lines))
            for lane, place in enumerate(places):
                with f.when(self._holds(f.add(group, lane))):
                    self._write(tuple(part[lane] for part in found), f.element_at(place, j, view.type), view)

        self._tiles(view, memory, tiled, tile)
        self._singles(view, memory, tiled, lambda place, at: self._write_one(arrays, at, scale, place, view), True)

    # Ways through a block

    def _tiled(self, view: View) -> int:
        """How many elements of each sequence are moved in squares: those side by side in memory."""
        return view.length // self.width * self.width if view.step == 1 and self.width > 1 else 0

    def _each_vector(self, view: View, memory: Value, do: Callable[[Value, Index, Value | None], None]) -> None:
        """Sequences side by side: vectors of them, element after element."""
        f, base = self.f, view.base(self.f, self.first)
        groups = range(0, self.fft.lanes, self.width)
        masks = [None if self.is_full else f.first_lanes(f.left(self.count, k), self.width) for k in groups]
        with f.loop(view.length) as loop:
            line = f.add(base, f.multiply(loop.index, view.step))
            for k, mask in zip(groups, masks, strict=True):
                at = f.add(f.multiply(loop.index, self.fft.lanes), k)
                do(f.element_at(memory, f.add(line, k), view.type), at, mask)

    def _tiles(
        self, view: View, memory: Value, tiled: int, do: Callable[[Index, Index, Sequence[Value]], None]
    ) -> None:
        """Sequences one behind the other: squares of as many elements as lanes."""
        if not tiled:
            return
        f = self.f
        with f.loop(self.fft.lanes, self.width) as group:
            places = [self._place(view, memory, f.add(group.index, lane)) for lane in range(self.width)]
            with f.loop(tiled, self.width) as loop:
                do(loop.index, group.index, places)

    def _singles(
        self, view: View, memory: Value, first: int, do: Callable[[Value, Index], None], held: bool = False
    ) -> None:
        """Element by element, from one on; with `held` only of the sequences that the block holds."""
        f = self.f
        if first == view.length:
            return
        with f.loop(self.fft.lanes) as lane, f.when(self._holds(lane.index) if held else None):
            place = self._place(view, memory, lane.index)
            with f.loop(view.length, first=first) as loop:
                at = f.add(f.multiply(loop.index, self.fft.lanes), lane.index)
                do(f.element_at(place, f.multiply(loop.index, view.step), view.type), at)

    def _place(self, view: View, memory: Value, lane: Index) -> Value:
        """Where the sequence of a lane starts; lanes beyond the last one read that."""
        f = self.f
        lane = lane if self.is_full else f.minimum(lane, f.left(self.count, 1))
        return f.element_at(memory, view.base(f, f.add(self.first, lane)), view.type)

    def _holds(self, lane: Index) -> Value | None:
        """Whether the block has a sequence in a lane; None where it is full."""
        return None if self.is_full else self.f.compare("ult", self.f.index(lane), self.f.index(self.count))

    # Elements and vectors

    def _read(self, place: Value, view: View, mask: Value | None = None) -> Parts:
        found = self.f.load_lanes(place, view.type, self.fft.vector.width, mask)
        return found if isinstance(found, tuple) else (found,)

    def _read_one(self, place: Value, view: View) -> Parts:
        found = self.f.load_lanes(place, view.type)
        return found if isinstance(found, tuple) else (found,)

    def _write(self, parts: Parts, place: Value, view: View, mask: Value | None = None) -> None:
        self.f.store_lanes((parts[0], parts[1]) if len(parts) == 2 else parts[0], place, view.type, mask)

    def _write_one(self, arrays: Parts, at: Index, scale: Value | None, place: Value, view: View) -> None:
        f, element = self.f, self.fft.vector.element
        parts = [f.load(f.at(array, at, element), self.fft.vector.scalar, self.fft.align) for array in arrays]
        scaled = [part if scale is None else f.binary("fmul", part, scale) for part in parts]
        self._write(tuple(scaled), place, view)

    def _put(self, parts: Parts, arrays: Parts, at: Index) -> None:
        for part, array in zip(parts, arrays, strict=True):
            self.f.store(part, self.f.at(array, at, self.fft.vector.element), self.fft.align)

    def _get(self, arrays: Parts, at: Index, scale: Value | None) -> Parts:
        f, vector = self.f, self.fft.vector
        parts = [f.load(f.at(array, at, vector.element), vector, self.fft.align) for array in arrays]
        if scale is None:
            return tuple(parts)
        return tuple(f.binary("fmul", part, f.splat(scale, vector.width)) for part in parts)


def transposed(f: KernelFunction, rows: list[Value]) -> list[Value]:
    """As many vectors as they are wide, rows and lanes exchanged: bit after bit of their numbers."""
    width, bit = len(rows), 1
    while bit < width:
        low = [lane if not lane & bit else width + (lane ^ bit) for lane in range(width)]
        high = [lane | bit if not lane & bit else width + lane for lane in range(width)]
        made = list(rows)
        for k in range(width):
            if not k & bit:
                made[k] = f.shuffle(rows[k], rows[k | bit], low)
                made[k | bit] = f.shuffle(rows[k], rows[k | bit], high)
        rows, bit = made, 2 * bit
    return rows
