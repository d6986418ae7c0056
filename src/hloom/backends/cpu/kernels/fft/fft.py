"""`fft`: passes over the array, one for each dimension; two for a long one.

A pass takes blocks of sequences into lanes, transforms them and puts the results back, blocks in parallel. A sequence
of a b elements is a matrix [a][b] where it is too long for the cache: its columns are transformed, turned by powers of
the root of unity and transposed; then the rows of the outcome are. Real sequences are transformed in pairs, as the
real and the imaginary part of complex ones. Inverse transforms exchange real and imaginary parts before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.fft.blocks import Block, View
from hloom.backends.cpu.kernels.fft.chirp_fft import ChirpFft
from hloom.backends.cpu.kernels.fft.lane_fft import Complex, LaneFft, add, multiply, radices_of, subtract
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.llvm.text import PTR, Index, Value, constant, type_of
from hloom.ir import Instruction
from hloom.ops.attributes import FftType
from hloom.types import PrimitiveType

LONGEST = 2048
"""Of the sequences that are transformed at once: lanes of them are in the second cache."""
WORTH_THREADS = 1 << 14
"""Elements of an array that threads share."""
CHUNKS_PER_THREAD = 2
PADDING = 320
"""Bytes between the arrays of a block, so that they don't lie a multiple of a page apart."""


def emit(name: str, instruction: Instruction, threads: int, vector_bytes: int) -> KernelCode | None:
    """The code of an fft; None for long lengths of real ones, along columns, and that are no product of short ones."""
    op: Any = instruction.op
    if not has_native_arrays(instruction) or 0 in (*instruction.shape.dimensions, *op.fft_length):
        return None
    writer = _Writer(name, instruction, threads, vector_bytes)
    return writer.code() if writer.can_write() else None


@dataclass(frozen=True)
class Pass:
    """All sequences of a view, from one array into another.

    `kind`: "complex", "to half" of the complex result of real sequences, or "from half". `twist` has the two factors
    of a long sequence whose columns the pass transforms.
    """

    source: View
    target: View
    fft: LaneFft
    sequences: int
    kind: str = "complex"
    twist: tuple[int, int] | None = None
    scale: float = 1.0

    @property
    def lanes(self) -> int:
        """The sequences of a block."""
        return self.fft.lanes * (1 if self.kind == "complex" else 2)

    @property
    def inner(self) -> int:
        """Blocks end where these many sequences do."""
        return self.source.inner if self.source.has_lanes(self.fft.lanes) else self.sequences

    @property
    def blocks(self) -> int:
        return math.ceil(self.inner / self.lanes) * (self.sequences // self.inner)


class _Writer:
    def __init__(self, name: str, instruction: Instruction, threads: int, vector_bytes: int) -> None:
        op: Any = instruction.op
        self.name, self.instruction, self.threads = name, instruction, threads
        self.kind: FftType = op.fft_type
        self.lengths: tuple[int, ...] = tuple(op.fft_length)
        self.is_inverse = self.kind in (FftType.IFFT, FftType.IRFFT)
        given, made = instruction.operands[0].shape, instruction.shape
        wide = given if given.element_type.is_complex else made
        self.complex = wide.element_type
        self.real: PrimitiveType = self.complex.real
        self.sizes = wide.dimensions
        self.element = "float" if self.real is PrimitiveType.F32 else "double"
        self.bytes = self.real.byte_width
        self.width = vector_bytes // self.bytes
        self.tables: list[np.ndarray[Any, Any]] = []
        self.table_size = 0
        self.functions: list[KernelFunction] = []
        self.ffts: dict[LaneFft, tuple[str, int]] = {}
        """Their functions, and where in the table their factors are."""

    # What can be written

    def can_write(self) -> bool:
        *others, last = self.lengths
        if self.kind in (FftType.RFFT, FftType.IRFFT):
            is_last_good = last <= LONGEST
        else:
            is_last_good = self._split(last) is not None
        return is_last_good and all(length <= LONGEST for length in others)

    @staticmethod
    def _split(n: int) -> tuple[int, int] | None:
        """A long length as a product of two that are not, nearly equal; (1, n) for others."""
        if n <= LONGEST:
            return 1, n
        fitting = [a for a in range(math.isqrt(n), 0, -1) if n % a == 0 and n // a <= LONGEST]
        return (fitting[0], n // fitting[0]) if fitting else None

    def _lane_fft(self, n: int, sequences: int) -> LaneFft:
        wanted = 1 << (sequences - 1).bit_length()
        lanes = min(2 * self.width, wanted)
        kind = LaneFft if radices_of(n) is not None else ChirpFft
        return kind(n, lanes, type_of(self.element, min(self.width, lanes) if lanes > 1 else 0))

    # Passes

    def code(self) -> KernelCode:
        self.entry = f = entry_function(self.name, self.instruction, has_table=True)
        given, made, scratch = f["operand0"], f["result0"], f["scratch"]
        rank, axes = len(self.sizes), len(self.lengths)
        self.scratch_bytes = 0
        if self.kind is FftType.IRFFT and axes > 1:
            self.scratch_bytes = aligned(math.prod(self.sizes) * 2 * self.bytes)
        self.work_bytes = 0
        elsewhere = scratch if self.scratch_bytes else made
        order = list(range(rank - axes, rank))
        if self.kind is not FftType.IRFFT:
            # The last dimension first: of real transforms it makes complex numbers.
            order.reverse()
        now = given
        for axis in order:
            is_last = axis == order[-1]
            target = made if is_last else elsewhere
            self._axis(axis, now, target, self._scale() if is_last else 1.0)
            now = target
        size = self.scratch_bytes + self.work_bytes
        return code_of(self.name, [*self.functions, f], size, table=np.concatenate(self.tables))

    def _scale(self) -> float:
        return 1.0 / math.prod(self.lengths) if self.is_inverse else 1.0

    def _axis(self, axis: int, source: Value, target: Value, scale: float) -> None:
        rank = len(self.sizes)
        inner, outer = math.prod(self.sizes[axis + 1 :]), math.prod(self.sizes[:axis])
        length = self.lengths[axis - rank]
        is_half = axis == rank - 1 and self.kind in (FftType.RFFT, FftType.IRFFT)
        if is_half:
            self._half(length, outer, source, target, scale)
            return
        split = self._split(length)
        assert split is not None
        if split[0] > 1:
            self._long(*split, outer, source, target, scale)
            return
        view = View.along(self.complex, length, inner)
        self._run(Pass(view, view, self._lane_fft(length, inner * outer), inner * outer, scale=scale), source, target)

    def _half(self, n: int, rows: int, source: Value, target: Value, scale: float) -> None:
        real, half = View.along(self.real, n, 1), View.along(self.complex, n // 2 + 1, 1)
        fft = self._lane_fft(n, (rows + 1) // 2)
        if self.kind is FftType.RFFT:
            self._run(Pass(real, half, fft, rows, "to half", scale=scale), source, target)
        else:
            self._run(Pass(half, real, fft, rows, "from half", scale=scale), source, target)

    def _long(self, a: int, b: int, rows: int, source: Value, target: Value, scale: float) -> None:
        """Row by row: columns of [a][b] to [b][a] in the workspace, whose columns are the result's."""
        f, n = self.entry, a * b
        place = self.scratch_bytes
        self.scratch_bytes += aligned(n * 2 * self.bytes)
        columns = View(self.complex, a, b, b, n)
        turned = View(self.complex, a, 1, 1, a)
        last = View(self.complex, b, a, a, n)
        first = Pass(columns, turned, self._lane_fft(a, b), b, twist=(a, b))
        second = Pass(last, last, self._lane_fft(b, a), a, scale=scale)
        with f.loop(rows) as row:
            start = f.multiply(row.index, n)
            between = f.at(f["scratch"], place, "i8")
            self._run(first, f.element_at(source, start, self.complex), between)
            self._run(second, between, f.element_at(target, start, self.complex))

    def _place_in_table(self, numbers: np.ndarray[Any, Any]) -> int:
        place = self.table_size
        self.tables.append(numbers)
        self.table_size += numbers.size
        return place

    def _function(self, fft: LaneFft) -> tuple[str, int]:
        if fft not in self.ffts:
            name = f"{self.name}.lanes{len(self.ffts)}"
            self.ffts[fft] = name, self._place_in_table(fft.table)
            self.functions += fft.functions(name)
        return self.ffts[fft]

    def _run(self, p: Pass, source: Value, target: Value) -> None:
        """Calls the task of a pass for all its blocks."""
        lanes, factors = self._function(p.fft)
        twists = self._place_in_table(self._twists(p)) if p.twist else 0
        parallel = self.threads > 1 and p.sequences * p.fft.n >= WORTH_THREADS and p.blocks > 1
        chunks = min(p.blocks, CHUNKS_PER_THREAD * self.threads) if parallel else 1
        array = aligned((p.fft.size + 2) * p.fft.lanes * self.bytes) + PADDING
        self.work_bytes = max(self.work_bytes, chunks * 4 * array)
        task = _Task(p, f"{self.name}.pass{len(self.functions)}", lanes, self.is_inverse, chunks, array)
        self.functions.append(task.function())
        f = self.entry
        tables = [f.at(f["table"], place, self.element) for place in (factors, twists)]
        context = f.pack(source, target, f.at(f["scratch"], self.scratch_bytes, "i8"), *tables)
        f.run_chunks(task.name, context, chunks, (f["pool"], f["parallel_for"]) if parallel else None)

    def _twists(self, p: Pass) -> np.ndarray[Any, Any]:
        """For element k of sequence g: w^(k g) by w^(k first) for each block and w^(k lane) for each lane, [a][..]."""
        assert p.twist is not None
        a, b = p.twist
        blocks, lanes = np.arange(0, b, p.fft.lanes), np.arange(p.fft.lanes)
        powers = [np.outer(np.arange(a), places) % (a * b) for places in (blocks, lanes)]
        angles = [-2 * np.pi * power / (a * b) for power in powers]
        by_block = np.stack([np.cos(angles[0]), np.sin(angles[0])], -1)
        by_lane = np.stack([np.cos(angles[1]), np.sin(angles[1])], 1)
        table = np.concatenate([by_block.reshape(-1), by_lane.reshape(-1)])
        return table.astype(self.real.dtype)


class _Task:
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
        f, p = self.f, self.p
        across = math.ceil(p.inner / p.lanes)
        place = f.multiply(f.remainder(number, across), p.lanes)
        self.first = f.add(f.multiply(f.divide(number, across), p.inner), place)
        self.count = f.minimum(p.lanes, f.subtract(p.inner, place))
        scale = None if p.scale == 1.0 else constant(type_of(self.fft.vector.element), p.scale)
        if p.kind == "complex":
            self._complex(number, scale)
        elif p.kind == "to half":
            self._to_half(scale)
        else:
            self._from_half(scale)

    def _part(self, start: int) -> Block:
        """The sequences that the lanes hold, from one on."""
        f, p = self.f, self.p
        is_full = p.inner % p.lanes == 0
        if start == 0 and self.fft.lanes == p.lanes:
            return Block(f, self.fft, self.first, self.count, is_full)
        # The second half of a block may be missing: it reads the last sequence then.
        last = f.subtract(self.count, 1)
        first = f.add(self.first, start if is_full else f.minimum(start, last))
        count = self.fft.lanes if is_full else f.minimum(self.fft.lanes, f.left(self.count, start))
        return Block(f, self.fft, first, count, is_full)

    def _transform(self) -> tuple[Complex, Complex]:
        """Of what is in the first pair of arrays; the pair that has the result, and the other one."""
        self.f.invoke(self.lanes, *self.one, *self.other, self.table)
        return (self.other, self.one) if self.fft.ends_in_second else (self.one, self.other)

    def _exchanged(self, pair: Complex) -> Complex:
        """Inverse transforms take real parts for imaginary ones."""
        return (pair[1], pair[0]) if self.is_inverse else pair

    def _complex(self, number: Value, scale: Value | None) -> None:
        block = self._part(0)
        block.load(self.p.source, self.source, self._exchanged(self.one))
        made, _ = self._transform()
        if self.p.twist:
            self._twist(made, number)
        block.store(self.p.target, self.target, self._exchanged(made), scale)

    def _twist(self, made: Complex, number: Value) -> None:
        """Multiplies element k of sequence g by w^(k g)."""
        f, p, fft = self.f, self.p, self.fft
        assert p.twist is not None
        width, element, align = fft.vector.width or 1, fft.vector.element, fft.align
        by_lane = 2 * p.twist[0] * p.blocks
        with f.loop(p.twist[0]) as loop:
            at = f.add(f.multiply(loop.index, 2 * p.blocks), f.multiply(number, 2))
            scalars = [f.load(f.at(self.twists, f.add(at, k), element), fft.vector.scalar, align) for k in range(2)]
            turn: Complex = (f.splat(scalars[0], fft.vector.width), f.splat(scalars[1], fft.vector.width))
            for lane in range(0, fft.lanes, width):
                line = f.add(f.multiply(loop.index, 2 * fft.lanes), by_lane + lane)
                parts = [
                    f.load(f.at(self.twists, f.add(line, k * fft.lanes), element), fft.vector, align) for k in (0, 1)
                ]
                place = f.add(f.multiply(loop.index, fft.lanes), lane)
                value = multiply(f, fft.load(f, made, place), multiply(f, (parts[0], parts[1]), turn))
                fft.store(f, value, made, place)

    # Real sequences in pairs

    def _halves(self, pair: Complex) -> tuple[Complex, Complex]:
        """Half a spectrum of each sequence of the pairs, in the arrays of one."""
        f, size = self.f, (self.fft.n // 2 + 1) * self.fft.lanes
        later = [f.at(array, size, self.fft.vector.element) for array in pair]
        return pair, (later[0], later[1])

    def _to_half(self, scale: Value | None) -> None:
        f, fft, n = self.f, self.fft, self.fft.n
        first, second = self._part(0), self._part(fft.lanes)
        first.load(self.p.source, self.source, (self.one[0],))
        second.load(self.p.source, self.source, (self.one[1],))
        made, free = self._transform()
        a, b = self._halves(free)
        half = constant(fft.vector, 0.5)

        def split(place: Index, mirrored: Index) -> None:
            z, (re, im) = fft.load(f, made, place), fft.load(f, made, mirrored)
            w = (re, f.fneg(im))
            even, (re, im) = add(f, z, w), subtract(f, z, w)
            odd = (im, f.fneg(re))  # over i
            for value, arrays in ((even, a), (odd, b)):
                fft.store(f, (f.binary("fmul", value[0], half), f.binary("fmul", value[1], half)), arrays, place)

        for lane in self._vectors:
            split(lane, lane)
        self._each_mirrored(n // 2 + 1, split)
        first.store(self.p.target, self.target, a, scale)
        second.store(self.p.target, self.target, b, scale)

    @property
    def _vectors(self) -> range:
        """Where the vectors of the lanes start."""
        return range(0, self.fft.lanes, self.fft.vector.width or 1)

    def _each_mirrored(self, end: int, do: Callable[[Index, Index], None]) -> None:
        """The places of elements k = 1 .. end - 1 and of n - k."""
        f, lanes = self.f, self.fft.lanes
        if end <= 1:
            return
        with f.loop(end, first=1) as loop:
            here, there = f.multiply(loop.index, lanes), f.multiply(f.subtract(self.fft.n, loop.index), lanes)
            for lane in self._vectors:
                do(f.add(here, lane), f.add(there, lane))

    def _from_half(self, scale: Value | None) -> None:
        f, fft, n = self.f, self.fft, self.fft.n
        first, second = self._part(0), self._part(fft.lanes)
        a, b = self._halves(self.other)
        first.load(self.p.source, self.source, a)
        second.load(self.p.source, self.source, b)
        exchanged = self._exchanged(self.one)
        for lane in self._vectors:
            # Of the first element, and of the middle one, the imaginary parts count for nothing.
            for k in (0, n // 2) if n % 2 == 0 else (0,):
                place = k * fft.lanes + lane
                fft.store(f, (fft.load(f, a, place)[0], fft.load(f, b, place)[0]), exchanged, place)

        def join(place: Index, mirrored: Index) -> None:
            (ar, ai), (br, bi) = fft.load(f, a, place), fft.load(f, b, place)
            fft.store(f, (f.binary("fsub", ar, bi), f.binary("fadd", ai, br)), exchanged, place)
            fft.store(f, (f.binary("fadd", ar, bi), f.binary("fsub", br, ai)), exchanged, mirrored)

        self._each_mirrored((n + 1) // 2, join)
        made, _ = self._transform()
        real, imaginary = self._exchanged(made)
        first.store(self.p.target, self.target, (real,), scale)
        second.store(self.p.target, self.target, (imaginary,), scale)
