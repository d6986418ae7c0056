"""The task of a pass: its share of the blocks, each loaded, transformed and stored.

Real sequences of even length are complex ones of half of it, in pairs of elements (see half_spectrum.py); those of odd
length have zeros for imaginary parts. Each sequence stays by itself: a NaN or a large number in one changes no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hloom.backends.cpu.kernels.fft.blocks import Block, View
from hloom.backends.cpu.kernels.fft.half_spectrum import joined, joined_ends
from hloom.backends.cpu.kernels.fft.lane_fft import Complex, LaneFft, multiply
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.llvm.text import PTR, Index, Value, constant, type_of

Kind = Literal["complex", "pairs to half", "half to pairs", "real to half", "half to real"]
"""What a pass makes of its sequences; `half` is half a spectrum, `pairs` are real elements two by two."""


@dataclass(frozen=True)
class Pass:
    """All sequences of a view, from one array into another.

    `twist` has the two factors of a long sequence whose columns the pass transforms.
    """

    source: View
    target: View
    fft: LaneFft
    sequences: int
    kind: Kind = "complex"
    twist: tuple[int, int] | None = None
    scale: float = 1.0

    @property
    def inner(self) -> int:
        """Blocks end where these many sequences do."""
        return self.source.inner if self.source.has_lanes(self.fft.lanes) else self.sequences

    @property
    def blocks(self) -> int:
        return math.ceil(self.inner / self.fft.lanes) * (self.sequences // self.inner)


class Task:
    """A share of the blocks of a pass."""

    def __init__(self, p: Pass, name: str, lanes: str, is_inverse: bool, chunks: int, array: int) -> None:
        self.p, self.name, self.lanes, self.is_inverse = p, name, lanes, is_inverse
        self.chunks, self.array = chunks, array
        self.fft = p.fft

    def function(self) -> KernelFunction:
        self.f = f = task_function(self.name)
        self.source, self.target, work, self.table, self.twists = f.unpack(f["context"], *[PTR] * 5)
        first = f.multiply(f["chunk"], 4 * self.array)
        arrays = [f.at(work, f.add(first, k * self.array), "i8") for k in range(4)]
        self.one: Complex = (arrays[0], arrays[1])
        self.other: Complex = (arrays[2], arrays[3])
        start, count = f.share(self.p.blocks, 1, self.chunks, f["chunk"])
        with f.each(start, f.add(start, count)) as block:
            self._block(block)
        return f

    def _block(self, number: Value) -> None:
        f, p, lanes = self.f, self.p, self.fft.lanes
        across = math.ceil(p.inner / lanes)
        place = f.multiply(f.remainder(number, across), lanes)
        first = f.add(f.multiply(f.divide(number, across), p.inner), place)
        count = f.minimum(lanes, f.subtract(p.inner, place))
        self.block = Block(f, self.fft, first, count, p.inner % lanes == 0)
        self.scale = None if p.scale == 1.0 else constant(type_of(self.fft.vector.element), p.scale)
        if p.kind == "complex":
            self._complex(number)
        elif p.kind == "pairs to half":
            self._pairs_to_half()
        elif p.kind == "half to pairs":
            self._half_to_pairs()
        elif p.kind == "real to half":
            self._real_to_half()
        else:
            self._half_to_real()

    def _load(self, arrays: tuple[Value, ...]) -> None:
        self.block.load(self.p.source, self.source, arrays)

    def _store(self, arrays: tuple[Value, ...]) -> None:
        self.block.store(self.p.target, self.target, arrays, self.scale)

    def _transform(self) -> tuple[Complex, Complex]:
        """Of what is in the first pair of arrays; the pair that has the result, and the other one."""
        self.f.invoke(self.lanes, *self.one, *self.other, self.table)
        return (self.other, self.one) if self.fft.ends_in_second else (self.one, self.other)

    def _exchanged(self, pair: Complex) -> Complex:
        """Inverse transforms take real parts for imaginary ones."""
        return (pair[1], pair[0]) if self.is_inverse else pair

    def _complex(self, number: Value) -> None:
        self._load(self._exchanged(self.one))
        made, _ = self._transform()
        if self.p.twist:
            self._twist(made, number)
        self._store(self._exchanged(made))

    def _twist(self, made: Complex, number: Value) -> None:
        """Multiplies element k of sequence g by w^(k g)."""
        f, p, fft = self.f, self.p, self.fft
        assert p.twist is not None
        by_lane = f.at(self.twists, 2 * p.twist[0] * p.blocks, fft.vector.element)
        halves = (by_lane, f.at(by_lane, fft.lanes, fft.vector.element))
        with f.loop(p.twist[0]) as loop:
            turn = fft.factor(f, self.twists, f.add(f.multiply(loop.index, p.blocks), number))
            for lane, place in zip(fft.vectors, fft.places(f, loop.index), strict=True):
                own = fft.load(f, halves, f.add(f.multiply(loop.index, 2 * fft.lanes), lane))
                fft.store(f, multiply(f, fft.load(f, made, place), multiply(f, own, turn)), made, place)

    # Real sequences

    def _pairs_to_half(self) -> None:
        self._load(self.one)
        made, free = self._transform()
        self._join(made, free, False)
        self._store(free)

    def _half_to_pairs(self) -> None:
        self._load(self.other)
        self._join(self.other, self._exchanged(self.one), True)
        made, _ = self._transform()
        self._store(self._exchanged(made))

    def _join(self, source: Complex, target: Complex, backwards: bool) -> None:
        f, fft, h = self.f, self.fft, self.fft.n
        for lane in self.fft.vectors:
            ends = [fft.load(f, source, k * fft.lanes + lane) for k in ((0, h) if backwards else (0,))]
            for k, value in zip((0, h), joined_ends(f, ends), strict=False):
                fft.store(f, value, target, k * fft.lanes + lane)

        def join(k: Index, here: Index, there: Index) -> None:
            pair, power = (fft.load(f, source, here), fft.load(f, source, there)), fft.factor(f, self.twists, k)
            for value, place in zip(joined(f, *pair, power, backwards), (here, there), strict=True):
                fft.store(f, value, target, place)

        self._each_mirrored(h // 2 + 1, join)

    def _real_to_half(self) -> None:
        self._load(self.one[:1])
        zero = constant(self.fft.vector, 0.0)
        with self.f.loop(self.fft.n) as loop:
            for place in self.fft.places(self.f, loop.index):
                self.f.store(zero, self.f.at(self.one[1], place, self.fft.vector.element), self.fft.align)
        made, _ = self._transform()
        self._store(made)

    def _half_to_real(self) -> None:
        f, fft, target = self.f, self.fft, self._exchanged(self.one)
        self._load(self.other)
        for lane in self.fft.vectors:
            # The imaginary part of the first element counts for nothing.
            fft.store(f, (fft.load(f, self.other, lane)[0], constant(fft.vector, 0.0)), target, lane)

        def mirror(k: Index, here: Index, there: Index) -> None:
            re, im = fft.load(f, self.other, here)
            fft.store(f, (re, im), target, here)
            fft.store(f, (re, f.fneg(im)), target, there)

        self._each_mirrored((fft.n + 1) // 2, mirror)
        made, _ = self._transform()
        self._store(self._exchanged(made)[:1])

    def _each_mirrored(self, end: int, do: Callable[[Index, Index, Index], None]) -> None:
        """k = 1 .. end - 1, and the places of elements k and n - k."""
        f, fft = self.f, self.fft
        if end <= 1:
            return
        with f.loop(end, first=1) as loop:
            mirrored = fft.places(f, f.subtract(fft.n, loop.index))
            for here, there in zip(fft.places(f, loop.index), mirrored, strict=True):
                do(loop.index, here, there)
