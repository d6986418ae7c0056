"""`fft`: passes over the array, one for each dimension; two for a long one.

A pass transforms blocks of sequences in lanes; blocks run in parallel. Rows whose own elements fill vectors are
transformed as they lie (row_fft.py). Another sequence, of a b elements, is a matrix [a][b] if it is too long for the
cache, or if its factors fill vectors: its columns are transformed into tiles, blocks of columns one after another; then
the rows of these are multiplied by twiddle factors and transformed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.fft.blocks import BlockView
from hloom.backends.cpu.kernels.fft.chirp_fft import ChirpFft
from hloom.backends.cpu.kernels.fft.half_spectrum import HalfSpectrum
from hloom.backends.cpu.kernels.fft.lane_fft import PADDING, Access, LaneFft
from hloom.backends.cpu.kernels.fft.row_fft import RowFft
from hloom.backends.cpu.kernels.fft.task import FftPass, FftTask, PassKind
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.nests.memory import MIN_NONTEMPORAL_BYTES
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Value, type_of
from hloom.numerics import roots_of_unity
from hloom.ops.attributes import FftType
from hloom.ops.fft import Fft
from hloom.passes.legalize.fft_lengths import MAX_LENGTH, has_code, product_of_two, radices_of
from hloom.system.records import record
from hloom.target import CACHE_LINE, L1_BYTES, L2_BYTES, Target
from hloom.types import PrimitiveType

MIN_SPLIT = 64
"""Elements from which a single sequence is split as a matrix, whose columns are in vectors."""
MIN_MATRIX = 256
"""Elements from which each of many sequences is split."""
MAX_CACHED = L2_BYTES // 4
"""Bytes of a sequence up to which it, its intermediate and its result stay in the second-level cache."""
ELEMENT_COST = 10
"""Cost of an element of a pass, in additions."""
CHUNKS_PER_THREAD = 2


def emit(op: Fft, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of an fft; None for lengths without native code (`passes/legalize/fft_lengths.py`)."""
    if not has_native_arrays(instruction) or 0 in (*instruction.shape.dimensions, *op.fft_length):
        return None
    if not has_code(op.fft_type, op.fft_length):
        return None
    return _Writer(op, name, instruction, target).code()


@dataclass
class _Scope:
    """The function that calls passes, with the addresses of the factors and of its workspace.

    The workspace begins with bytes that are `reserved` for arrays between passes; the rest is for the `work` of each.
    """

    f: KernelFunction
    table: Value
    scratch: Value
    is_parallel: bool
    reserved: int = 0
    work: int = 0

    @property
    def size(self) -> int:
        """Bytes of the workspace."""
        return self.reserved + self.work


@record
class _Rows:
    """The address of the first of some rows, and the bytes of each."""

    first: Value
    size: int


class _Writer:
    """Writes the functions of one fft."""

    def __init__(self, op: Fft, name: str, instruction: Instruction, target: Target) -> None:
        self.name, self.instruction, self.target = name, instruction, target
        self.kind: FftType = op.fft_type
        self.lengths: tuple[int, ...] = tuple(op.fft_length)
        self.is_inverse = self.kind in (FftType.IFFT, FftType.IRFFT)
        source_shape, result_shape = instruction.operands[0].shape, instruction.shape
        wide = source_shape if source_shape.element_type.is_complex else result_shape
        self.complex = wide.element_type
        self.real: PrimitiveType = self.complex.real
        self.sizes = wide.dimensions
        self.element = "float" if self.real is PrimitiveType.F32 else "double"
        self.bytes = self.real.byte_width
        self.width = target.vector_bytes // self.bytes
        self.tables: list[np.ndarray[Any, Any]] = []
        self.table_size = 0
        self.functions: list[KernelFunction] = []
        self.factors: dict[tuple[LaneFft | RowFft, float], int] = {}
        """The offset of the factors of each transform, by the scale that they contain, in the table."""
        self.transforms: dict[tuple[LaneFft, Access | None, Access | None], str] = {}
        """The function of each transform, by its accesses of memory."""

    def _split(self, n: int, rows: int) -> tuple[int, int]:
        """Returns a length as a product of two nearly equal factors if it is long, if rows would leave lanes empty, or
        if both factors fill vectors; else (1, n).
        """
        fills_lanes = 2 * rows > self.width or self.target.batch_invariant
        if n > MAX_LENGTH or (n >= MIN_SPLIT and not fills_lanes):
            factors = product_of_two(n)
            assert factors is not None
            return factors
        whole = [a for a in range(self.width, math.isqrt(n) + 1, self.width) if n % (a * self.width) == 0]
        return (whole[-1], n // whole[-1]) if whole and n >= MIN_MATRIX else (1, n)

    def _lane_fft(self, n: int, sequences: int, vectors: int = 1) -> LaneFft:
        needed = 1 << (sequences - 1).bit_length()
        lanes = min(vectors * self.width, needed)
        kind = LaneFft if radices_of(n) is not None else ChirpFft
        return kind(n, lanes, type_of(self.element, min(self.width, lanes) if lanes > 1 else 0), self.is_inverse)

    def _vectors(self, n: int) -> int:
        """Returns the vectors of sequences that a pass over a matrix transforms at once.

        They are two, to read more adjacent lines, but one if only its arrays stay in the first-level cache.
        """
        pair = n * self.width * 2 * self.bytes
        return 1 if pair <= L1_BYTES < 2 * pair else 2

    # Passes

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction, has_table=True)
        self.scope = _Scope(f, f["table"], f["scratch"], is_parallel=True)
        operand, result, scratch = f["operand0"], f["result0"], f["scratch"]
        rank, axes = len(self.sizes), len(self.lengths)
        has_intermediate = self.kind is FftType.IRFFT and axes > 1
        if has_intermediate:
            self._reserve(math.prod(self.sizes))
        intermediate = scratch if has_intermediate else result
        order = list(range(rank - axes, rank))
        if self.kind is not FftType.IRFFT:
            # The last dimension first: its pass converts real input to complex numbers.
            order.reverse()
        current = operand
        for axis in order:
            is_last = axis == order[-1]
            target = result if is_last else intermediate
            self._axis(axis, current, target, self._scale() if is_last else 1.0)
            current = target
        return code_of(self.name, [*self.functions, f], self.scope.size, table=np.concatenate(self.tables))

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
        if inner == 1:
            self._rows(length, outer, source, target, scale)
            return
        self._run(replace(self._columns(axis), scale=scale), source, target)

    def _columns(self, axis: int) -> FftPass:
        """Returns the pass along columns of a dimension, which shares its code with those of equal length."""
        first = len(self.sizes) - len(self.lengths)
        alike = [k for k in range(first, len(self.sizes) - 1) if self.lengths[k - first] == self.lengths[axis - first]]
        own, *all_passes = map(self._own_columns, [axis, *alike])
        shared = [p for p in all_passes if p.order(p.source) == "columns"]
        has_masks = self.target.vector_bytes == CACHE_LINE
        return replace(
            own,
            is_masked=has_masks and not all(p.has_whole_vectors for p in shared),
            is_prefetched=any(p.source.is_far for p in shared),
        )

    def _own_columns(self, axis: int) -> FftPass:
        inner, outer = math.prod(self.sizes[axis + 1 :]), math.prod(self.sizes[:axis])
        length = self.lengths[axis - len(self.sizes)]
        view = BlockView(self.complex, length, inner)
        return FftPass(view, view, self._lane_fft(length, inner * outer, 2), inner * outer)

    def _rows(self, n: int, rows: int, source: Value, target: Value, scale: float) -> None:
        fits = n <= MAX_LENGTH and self.width > 1
        fft = RowFft(n, type_of(self.element, self.width), self.is_inverse) if fits else None
        if fft and fft.fits:
            self._adjacent(fft, rows, source, target, scale)
            return
        split = self._split(n, rows)
        if split[0] > 1:
            self._long(*split, rows, source, target, scale)
            return
        view = BlockView(self.complex, n, 1)
        self._run(FftPass(view, view, self._lane_fft(n, rows), rows, scale=scale), source, target)

    def _adjacent(self, fft: RowFft, rows: int, source: Value, target: Value, scale: float) -> None:
        """Transforms rows whose own elements fill vectors."""
        accesses = (Access(self.complex, 1, True, each) for each in (1.0, scale))
        chunks = min(self._chunks(rows, rows * fft.n * ELEMENT_COST), math.ceil(rows / fft.block))
        self.scope.work = max(self.scope.work, chunks * 4 * aligned(fft.array))
        task = fft.task(f"{self.name}.rows{len(self.functions)}", rows, chunks, *accesses)
        self.functions.append(task)
        f = self.scope.f
        work = f.at(self.scope.scratch, self.scope.reserved, "i8")
        context = f.pack(source, target, work, f.at(self.scope.table, self._factors(fft), self.element))
        f.run_chunks(task.function.name, context, chunks, f.threads_if(chunks > 1))

    def _half(self, n: int, rows: int, source: Value, target: Value, scale: float) -> None:
        is_even = n % 2 == 0
        if is_even and (n > MAX_LENGTH or (2 * rows <= self.width and self._split(n // 2, rows) != (1, n // 2))):
            self._long_half(n, rows, source, target, scale)
            return
        half = BlockView(self.complex, n // 2 + 1, 1)
        whole = BlockView(self.complex, n // 2, 1) if is_even else BlockView(self.real, n, 1)
        fft = self._lane_fft(whole.length, rows)
        if self.kind is FftType.RFFT:
            kind: PassKind = "pairs to half" if is_even else "real to half"
            self._run(FftPass(whole, half, fft, rows, kind, scale=0.5 * scale if is_even else scale), source, target)
        else:
            kind = "half to pairs" if is_even else "half to real"
            self._run(FftPass(half, whole, fft, rows, kind, scale=scale), source, target)

    def _long_half(self, n: int, rows: int, source: Value, target: Value, scale: float) -> None:
        """Transforms row by row, as complex numbers in pairs of real ones."""
        f, h = self.scope.f, n // 2
        offset = self._reserve(h)
        with f.loop(rows) as row:
            intermediate = f.at(self.scope.scratch, offset, "i8")
            long, short = f.multiply(row.index, h), f.multiply(row.index, h + 1)
            if self.kind is FftType.RFFT:
                self._rows(h, 1, f.element_at(source, long, self.complex), intermediate, 0.5 * scale)
                self._half_spectrum(h, intermediate, f.element_at(target, short, self.complex))
            else:
                self._half_spectrum(h, f.element_at(source, short, self.complex), intermediate)
                self._rows(h, 1, intermediate, f.element_at(target, long, self.complex), scale)

    def _half_spectrum(self, h: int, source: Value, target: Value) -> None:
        f, chunks = self.scope.f, CHUNKS_PER_THREAD * self.target.threads if self.target.threads > 1 else 1
        task = HalfSpectrum(f"{self.name}.half{len(self.functions)}", self.complex, h, self.is_inverse, chunks)
        self.functions.append(task.function())
        table = f.at(self.scope.table, self._append_table(task.table()), self.element)
        f.run_chunks(task.name, f.pack(source, target, table), chunks, f.threads_if(chunks > 1))

    def _reserve(self, elements: int) -> int:
        """Reserves workspace for complex elements; returns its offset in bytes."""
        offset = self.scope.reserved
        self.scope.reserved += aligned(elements * 2 * self.bytes)
        return offset

    def _long(self, a: int, b: int, rows: int, source: Value, target: Value, scale: float) -> None:
        """Transforms row by row, each of them as a matrix [a][b]."""
        n = a * b
        first, second = self._matrix_passes(a, b, scale)

        def row(source: Value, target: Value) -> None:
            intermediate = self.scope.f.at(self.scope.scratch, self._reserve(n), "i8")
            self._run(first, source, intermediate)
            self._run(second, intermediate, target)

        size = n * 2 * self.bytes
        self._each_row(rows, _Rows(source, size), _Rows(target, size), row)

    def _matrix_passes(self, a: int, b: int, scale: float) -> tuple[FftPass, FftPass]:
        """Returns the passes from columns of [a][b] to tiles, and from their rows to the columns of [b][a]."""
        first, second = self._lane_fft(a, b, self._vectors(a)), self._lane_fft(b, a, self._vectors(b))
        tile = b if b % first.lanes else first.lanes
        columns, tiles, rows, last = (
            BlockView(self.complex, *sizes) for sizes in ((a, b), (a, tile), (b, 1, tile), (b, a))
        )
        is_large = 2 * a * b * self.complex.byte_width >= MIN_NONTEMPORAL_BYTES
        return (
            FftPass(columns, tiles, first, b, is_nontemporal=is_large),
            FftPass(rows, last, second, a, scale=scale, twiddle=(a, b), is_nontemporal=is_large),
        )

    def _each_row(self, rows: int, source: _Rows, target: _Rows, write: Callable[[Value, Value], None]) -> None:
        """Writes the code of a row in a loop over rows, given its addresses before and after."""

        def row(sources: Value, targets: Value, index: IndexValue) -> None:
            f, arrays = self.scope.f, ((sources, source), (targets, target))
            write(*(f.at(array, f.multiply(index, view.size), "i8") for array, view in arrays))

        if rows > 1 and source.size <= MAX_CACHED:
            self._share_rows(rows, source, target, row)
        else:
            with self.scope.f.loop(rows) as loop:
                row(source.first, target.first, loop.index)

    def _share_rows(
        self, rows: int, source: _Rows, target: _Rows, row: Callable[[Value, Value, IndexValue], None]
    ) -> None:
        """Writes a task in which each thread transforms whole rows, one after another, and calls it."""
        outer, name = self.scope, f"{self.name}.rows{len(self.functions)}"
        chunks = self._chunks(rows, rows * source.size // self.bytes * ELEMENT_COST)
        f = task_function(name).as_call_only()
        sources, targets, table, scratch, size = f.unpack(f["context"], PTR, PTR, PTR, PTR, I64)
        own = self.scope = _Scope(f, table, f.at(scratch, f.multiply(f["chunk"], size), "i8"), is_parallel=False)
        start, count = f.share(rows, 1, chunks, f["chunk"])
        with f.each(start, f.add(start, count)) as index:
            row(sources, targets, index)
        self.functions.append(f)
        self.scope, outer.work = outer, max(outer.work, chunks * own.size)
        workspace = outer.f.at(outer.scratch, outer.reserved, "i8")
        context = outer.f.pack(source.first, target.first, outer.table, workspace, f.index(own.size))
        outer.f.run_chunks(name, context, chunks, outer.f.threads_if(chunks > 1))

    def _chunks(self, parts: int, work: float) -> int:
        """Returns the number of tasks that share some work, in additions."""
        is_parallel = self.scope.is_parallel and self.target.is_worth_threads(work)
        return min(parts, CHUNKS_PER_THREAD * self.target.threads) if is_parallel else 1

    def _append_table(self, values: np.ndarray[Any, Any]) -> int:
        offset = self.table_size
        self.tables.append(values)
        self.table_size += values.size
        return offset

    def _transform(self, p: FftPass) -> tuple[str, int]:
        """Returns the function of the transform of a pass, and the offset of its factors in the table."""
        accesses = p.accesses()
        if (p.fft, *accesses) not in self.transforms:
            self.transforms[p.fft, *accesses] = name = f"{self.name}.lanes{len(self.transforms)}"
            self.functions.append(p.fft.function(name, *accesses))
        return self.transforms[p.fft, *accesses], self._factors(p.fft, p.scale_of("factors"))

    def _factors(self, fft: LaneFft | RowFft, scale: float = 1.0) -> int:
        """Returns the offset of the factors of a transform in the table."""
        if (fft, scale) not in self.factors:
            table = fft.table() if isinstance(fft, RowFft) else fft.table(scale)
            self.factors[fft, scale] = self._append_table(table)
        return self.factors[fft, scale]

    def _run(self, p: FftPass, source: Value, target: Value) -> None:
        """Calls the task of a pass for all its blocks."""
        transform, factors = self._transform(p)
        twiddles = self._append_table(self._twiddles(p))
        chunks = self._chunks(p.blocks, p.sequences * p.fft.n * ELEMENT_COST)
        array = aligned((p.fft.size + 2) * p.fft.lanes * self.bytes) + PADDING
        self.scope.work = max(self.scope.work, chunks * 4 * array)
        task = FftTask(p, f"{self.name}.pass{len(self.functions)}", transform, chunks, array)
        self.functions += task.functions()
        f = self.scope.f
        tables = [f.at(self.scope.table, offset, self.element) for offset in (factors, twiddles)]
        context = f.pack(source, target, f.at(self.scope.scratch, self.scope.reserved, "i8"), *tables)
        f.run_chunks(task.name, context, chunks, f.threads_if(chunks > 1))

    def _twiddles(self, p: FftPass) -> np.ndarray[Any, Any]:
        """Returns the factors of a pass beside those of its transform.

        With a twiddle, element k of sequence g is multiplied by w^(k g): by w^(k first) for each group of lanes and
        w^(k lane) for each lane. For real sequences in pairs, the factors are the powers of w.
        """
        if p.twiddle is None:
            powers_of = np.arange(p.fft.n // 2 + 1 if "pairs" in p.kind else 0)
            return roots_of_unity(powers_of, 2 * p.fft.n).view(np.float64).astype(self.real.dtype)
        a, b = p.twiddle
        elements, lanes = np.arange(b), np.arange(p.fft.group)
        groups = np.arange(0, p.blocks * p.fft.lanes, p.fft.group)
        by_group, by_lane = (
            roots_of_unity(np.outer(*powers), a * b) for powers in ((groups, elements), (elements, lanes))
        )
        if self.is_inverse:
            by_group, by_lane = by_group.conj(), by_lane.conj()
        separate = np.stack([by_lane.real, by_lane.imag], 1)
        scaled = by_group * p.scale_of("twiddle")
        table = np.concatenate([scaled.view(np.float64).reshape(-1), separate.reshape(-1)])
        return table.astype(self.real.dtype)
