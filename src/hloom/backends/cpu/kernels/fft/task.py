"""The task of a pass: its share of the blocks, each loaded, transformed and stored.

Real sequences of even length are transformed as complex ones of half the length, in pairs of elements (see
half_spectrum.py); those of odd length have zeros for imaginary parts. Sequences are independent: a NaN or a large
number in one changes no other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

from hloom.backends.cpu.kernels.fft.blocks import BlockView, Order, move_function
from hloom.backends.cpu.kernels.fft.complex_vectors import Complex
from hloom.backends.cpu.kernels.fft.half_spectrum import convert_ends, convert_pair
from hloom.backends.cpu.kernels.fft.lane_fft import Access, LaneFft
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.lir import PTR, IndexValue, Value, constant
from hloom.system.records import record
from hloom.target import L1_BYTES

PassKind = Literal["complex", "pairs to half", "half to pairs", "real to half", "half to real"]
"""Source and target of a pass; `half` is half a spectrum, `pairs` are real elements two by two."""
Scaled = Literal["factors", "twiddle", "stores"]
"""Factors of the transform or a twiddle, which contain the scale if they apply to all elements, or else results."""


@record
class FftPass:
    """A transform of all sequences of a view, from one array into another.

    `twiddle` has the two factors of a long sequence of which the pass transforms the second. Stores of
    whole blocks of columns may be non-temporal. Columns may be masked and prefetched though they need not be: to share
    code with a pass that needs it.
    """

    source: BlockView
    target: BlockView
    fft: LaneFft
    sequences: int
    kind: PassKind = "complex"
    twiddle: tuple[int, int] | None = None
    scale: float = 1.0
    is_nontemporal: bool = False
    is_masked: bool = False
    is_prefetched: bool = False

    def order(self, view: BlockView) -> Order:
        """The order in which the sequences of the source or the target are moved."""
        return view.order(self.fft, self.sequences)

    @property
    def inner(self) -> int:
        """Sequences in a range whose boundaries no block crosses."""
        return self.source.inner if self.order(self.source) == "columns" else self.sequences

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return math.ceil(self.inner / self.fft.lanes) * (self.sequences // self.inner)

    @property
    def is_full(self) -> bool:
        """Whether all lanes of all blocks have sequences."""
        return self.inner % self.fft.lanes == 0

    @property
    def has_whole_vectors(self) -> bool:
        """Whether all lanes of vectors that have sequences at all have them."""
        return self.inner % self.fft.width == 0

    def scale_of(self, multiplied: Scaled) -> float:
        """Returns the number that multiplies these, so that results are scaled."""
        scaled = "factors" if self.fft.has_scale else "twiddle" if self.twiddle else "stores"
        return self.scale if multiplied == scaled else 1.0

    def accesses(self) -> tuple[Access | None, Access | None]:
        """The accesses of memory by the first and the last stage, where these read or write columns."""
        source, target = (
            Access(
                view.type,
                view.inner,
                self.has_whole_vectors and not self.is_masked,
                scale,
                self.is_prefetched or view.is_far,
                is_nontemporal and self.is_full,
            )
            if self.order(view) == "columns"
            else None
            for view, scale, is_nontemporal in (
                (self.source, 1.0, False),
                (self.target, self.scale_of("stores"), self.is_nontemporal),
            )
        )
        return source, target


class FftTask:
    """A share of the blocks of a pass. It only calls functions, each of which does one thing to a block."""

    def __init__(self, p: FftPass, name: str, transform: str, chunks: int, array: int) -> None:
        self.p, self.name, self.transform = p, name, transform
        self.chunks, self.array = chunks, array
        self.fft, self.accesses = p.fft, p.accesses()
        self.called: list[KernelFunction] = []

    def functions(self) -> list[KernelFunction]:
        """Returns the task, and the functions that it calls beside the transform."""
        self.f = f = task_function(self.name).as_call_only()
        self.source, self.target, work, self.table, self.twiddles = f.unpack(f["context"], *[PTR] * 5)
        first = f.multiply(f["chunk"], 4 * self.array)
        arrays = [f.at(work, f.add(first, k * self.array), "i8") for k in range(4)]
        self.first_pair: Complex = (arrays[0], arrays[1])
        self.second_pair: Complex = (arrays[2], arrays[3])
        start, count = f.share(self.p.blocks, 1, self.chunks, f["chunk"])
        with f.each(start, f.add(start, count)) as block:
            self._block(block)
        return [*self.called, f]

    def _define_and_call(self, suffix: str, write: Callable[..., None], *arguments: Value) -> None:
        """Defines a function, and calls it: `write` gets the function and its parameters."""
        f = KernelFunction(f"{self.name}.{suffix}", **{f"given{k}": value.type for k, value in enumerate(arguments)})
        write(f, *f.parameters)
        self.called.append(f)
        self.f.call_void(f.function.name, *arguments)

    def _block(self, index: Value) -> None:
        f, p, lanes = self.f, self.p, self.fft.lanes
        across = math.ceil(p.inner / lanes)
        first_lane = f.multiply(f.remainder(index, across), lanes)
        self.first = f.index(f.add(f.multiply(f.divide(index, across), p.inner), first_lane))
        self.count = f.index(f.minimum(lanes, f.subtract(p.inner, first_lane)))
        if p.kind == "complex":
            self._complex(index)
        elif p.kind == "pairs to half":
            self._pairs_to_half()
        elif p.kind == "half to pairs":
            self._half_to_pairs()
        elif p.kind == "real to half":
            self._real_to_half()
        else:
            self._half_to_real()

    def _address(self, memory: Value, view: BlockView) -> Value:
        """Returns the address of the first column of a block."""
        f = self.f
        between = f.multiply(f.divide(self.first, view.inner), (view.length - 1) * view.inner)
        return f.element_at(memory, f.add(between, self.first), view.type)

    def _load(self, arrays: tuple[Value, ...], *twist: Value) -> None:
        self._move(self.source, self.p.source, arrays, *twist, stores=False)

    def _store(self, arrays: tuple[Value, ...]) -> None:
        self._move(self.target, self.p.target, arrays, stores=True)

    def _move(self, memory: Value, view: BlockView, arrays: tuple[Value, ...], *twist: Value, stores: bool) -> None:
        """Moves a block between memory and arrays."""
        f, p, scale = self.f, self.p, self.p.scale_of("stores")
        is_scaled = stores and scale != 1.0
        is_far = view.tile < view.length and view.tile * p.sequences * view.type.byte_width >= L1_BYTES
        flags = p.is_full, stores, is_scaled, bool(twist), is_far
        function = move_function(self.fft, view.type, p.order(view), *flags)
        sizes = self.first, self.count, f.index(view.length), f.index(view.inner)
        f.call_function(function, memory, *sizes, constant(self.fft.vector.scalar, scale), *arrays, *twist)

    def _transform(self) -> None:
        """Transforms the first pair of arrays into the second one, or columns in memory; the first pair changes."""
        ends = [
            self._address(memory, view) if access else memory
            for access, memory, view in zip(
                self.accesses,
                (self.source, self.target),
                (self.p.source, self.p.target),
                strict=True,
            )
        ]
        self.f.call_void(self.transform, *self.first_pair, *self.second_pair, self.table, *ends, self.count)

    def _complex(self, block_index: Value) -> None:
        source, target = self.accesses
        if not source:
            self._load(self.first_pair, *(self._twist(block_index) if self.p.twiddle else ()))
        self._transform()
        if not target:
            self._store(self.second_pair)

    def _twist(self, block_index: Value) -> tuple[Value, ...]:
        """Returns the last arguments of a function that loads tiles."""
        f, p, tile = self.f, self.p, self.p.source.tile
        groups = self.fft.lanes // self.fft.group
        sizes = f.index(tile), f.index(tile * p.sequences)
        return *sizes, self.twiddles, f.index(p.blocks * groups), f.index(f.multiply(block_index, groups))

    # Real sequences

    def _pairs_to_half(self) -> None:
        self._load(self.first_pair)
        self._transform()
        pairs = *self.second_pair, *self.first_pair
        self._define_and_call("join", functools.partial(self._join, backwards=False), *pairs, self.twiddles)
        self._store(self.first_pair)

    def _half_to_pairs(self) -> None:
        self._load(self.second_pair)
        pairs = *self.second_pair, *self.first_pair
        self._define_and_call("join", functools.partial(self._join, backwards=True), *pairs, self.twiddles)
        self._transform()
        self._store(self.second_pair)

    def _join(
        self, f: KernelFunction, re: Value, im: Value, new_re: Value, new_im: Value, twiddles: Value, backwards: bool
    ) -> None:
        source, target = (re, im), (new_re, new_im)
        fft, h = self.fft, self.fft.n
        for lane in fft.vectors:
            ends = [fft.load(f, source, k * fft.lanes + lane) for k in ((0, h) if backwards else (0,))]
            for k, value in zip((0, h), convert_ends(f, ends), strict=False):
                fft.store(f, value, target, k * fft.lanes + lane)

        def join(k: IndexValue, offset: IndexValue, mirrored: IndexValue) -> None:
            pair, power = (fft.load(f, source, offset), fft.load(f, source, mirrored)), fft.factor(f, twiddles, k)
            for value, target_offset in zip(convert_pair(f, *pair, power, backwards), (offset, mirrored), strict=True):
                fft.store(f, value, target, target_offset)

        self._each_mirrored(f, h // 2 + 1, join)

    def _real_to_half(self) -> None:
        self._load(self.first_pair[:1])
        self.f.fill(self.first_pair[1], 0, self.fft.size * self.fft.lanes * self.fft.align)
        self._transform()
        self._store(self.second_pair)

    def _half_to_real(self) -> None:
        self._load(self.second_pair)
        self._define_and_call("mirror", self._mirror, *self.second_pair, *self.first_pair)
        self._transform()
        self._store(self.second_pair[:1])

    def _mirror(self, f: KernelFunction, re: Value, im: Value, new_re: Value, new_im: Value) -> None:
        """Extends half a spectrum to the whole one."""
        fft, source, target = self.fft, (re, im), (new_re, new_im)
        for lane in fft.vectors:
            # The imaginary part of the first element is ignored.
            fft.store(f, (fft.load(f, source, lane)[0], constant(fft.vector, 0.0)), target, lane)

        def mirror(k: IndexValue, offset: IndexValue, mirrored: IndexValue) -> None:
            re, im = fft.load(f, source, offset)
            fft.store(f, (re, im), target, offset)
            fft.store(f, (re, f.fneg(im)), target, mirrored)

        self._each_mirrored(f, (fft.n + 1) // 2, mirror)

    def _each_mirrored(
        self, f: KernelFunction, end: int, visit: Callable[[IndexValue, IndexValue, IndexValue], None]
    ) -> None:
        """Visits k = 1 .. end - 1, with the offsets of elements k and n - k."""
        fft = self.fft
        if end <= 1:
            return
        with f.loop(end, first=1) as loop:
            mirrored_offsets = fft.offsets(f, f.subtract(fft.n, loop.index))
            for offset, mirrored_offset in zip(fft.offsets(f, loop.index), mirrored_offsets, strict=True):
                visit(loop.index, offset, mirrored_offset)
