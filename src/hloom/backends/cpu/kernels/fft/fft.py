"""`fft`: passes over the array, one for each dimension; two for a long one.

A pass loads blocks of sequences into lanes, transforms them and stores the results; blocks run in parallel. A sequence
of a b elements that is too long for the cache is a matrix [a][b]: its columns are transformed, multiplied by twiddle
factors and transposed; then the rows of the result are transformed. Inverse transforms swap real and imaginary parts
before and after.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.fft.blocks import BlockView
from hloom.backends.cpu.kernels.fft.chirp_fft import ChirpFft
from hloom.backends.cpu.kernels.fft.half_spectrum import HalfSpectrum
from hloom.backends.cpu.kernels.fft.lane_fft import LaneFft
from hloom.backends.cpu.kernels.fft.task import FftPass, FftTask, PassKind
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.ir import Instruction
from hloom.lir import Value, type_of
from hloom.numerics import roots_of_unity
from hloom.ops.attributes import FftType
from hloom.ops.fft import Fft
from hloom.passes.legalize.fft_lengths import MAX_LENGTH, has_code, product_of_two, radices_of
from hloom.target import Target
from hloom.types import PrimitiveType

MIN_SPLIT = 64
"""Elements from which a single sequence is split as a matrix, whose columns are in vectors."""
ELEMENT_COST = 10
"""Cost of an element of a pass, in additions."""
CHUNKS_PER_THREAD = 2
PADDING = 320
"""Bytes between the arrays of a block, so that their distance is not a multiple of a page."""


def emit(op: Fft, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of an fft; None for lengths without native code (`passes/legalize/fft_lengths.py`)."""
    if not has_native_arrays(instruction) or 0 in (*instruction.shape.dimensions, *op.fft_length):
        return None
    if not has_code(op.fft_type, op.fft_length):
        return None
    return _Writer(op, name, instruction, target).code()


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
        self.ffts: dict[LaneFft, tuple[str, int]] = {}
        """The function of each transform, and the offset of its factors in the table."""

    def _split(self, n: int, lanes_are_empty: bool) -> tuple[int, int]:
        """Returns a length as a product of two nearly equal factors if it is long or lanes are empty; else (1, n)."""
        may_fill_lanes = lanes_are_empty and not self.target.batch_invariant
        wants_two = n > MAX_LENGTH or (may_fill_lanes and n >= MIN_SPLIT)
        factors = product_of_two(n) if wants_two else (1, n)
        assert factors is not None
        return factors

    def _lane_fft(self, n: int, sequences: int) -> LaneFft:
        needed = 1 << (sequences - 1).bit_length()
        lanes = min(2 * self.width, needed)
        kind = LaneFft if radices_of(n) is not None else ChirpFft
        return kind(n, lanes, type_of(self.element, min(self.width, lanes) if lanes > 1 else 0))

    # Passes

    def code(self) -> KernelCode:
        self.entry = f = entry_function(self.name, self.instruction, has_table=True)
        operand, result, scratch = f["operand0"], f["result0"], f["scratch"]
        rank, axes = len(self.sizes), len(self.lengths)
        self.scratch_bytes = 0
        if self.kind is FftType.IRFFT and axes > 1:
            self.scratch_bytes = aligned(math.prod(self.sizes) * 2 * self.bytes)
        self.work_bytes = 0
        intermediate = scratch if self.scratch_bytes else result
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
        if inner == 1:
            self._rows(length, outer, source, target, scale)
            return
        view = BlockView(self.complex, length, inner)
        self._run(
            FftPass(view, view, self._lane_fft(length, inner * outer), inner * outer, scale=scale), source, target
        )

    def _rows(self, n: int, rows: int, source: Value, target: Value, scale: float) -> None:
        split = self._split(n, 2 * rows <= self.width)
        if split[0] > 1:
            self._long(*split, rows, source, target, scale)
            return
        view = BlockView(self.complex, n, 1)
        self._run(FftPass(view, view, self._lane_fft(n, rows), rows, scale=scale), source, target)

    def _half(self, n: int, rows: int, source: Value, target: Value, scale: float) -> None:
        is_even = n % 2 == 0
        if is_even and (n > MAX_LENGTH or self._split(n // 2, 2 * rows <= self.width) != (1, n // 2)):
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
        f, h = self.entry, n // 2
        offset = self._reserve(h)
        with f.loop(rows) as row:
            intermediate = f.at(f["scratch"], offset, "i8")
            long, short = f.multiply(row.index, h), f.multiply(row.index, h + 1)
            if self.kind is FftType.RFFT:
                self._rows(h, 1, f.element_at(source, long, self.complex), intermediate, 0.5 * scale)
                self._half_spectrum(h, intermediate, f.element_at(target, short, self.complex))
            else:
                self._half_spectrum(h, f.element_at(source, short, self.complex), intermediate)
                self._rows(h, 1, intermediate, f.element_at(target, long, self.complex), scale)

    def _half_spectrum(self, h: int, source: Value, target: Value) -> None:
        f, chunks = self.entry, CHUNKS_PER_THREAD * self.target.threads if self.target.threads > 1 else 1
        task = HalfSpectrum(f"{self.name}.half{len(self.functions)}", self.complex, h, self.is_inverse, chunks)
        self.functions.append(task.function())
        table = f.at(f["table"], self._append_table(task.table()), self.element)
        on = f.threads_if(chunks > 1)
        f.run_chunks(task.name, f.pack(source, target, table), chunks, on)

    def _reserve(self, elements: int) -> int:
        """Reserves workspace for complex elements; returns its offset in bytes."""
        offset = self.scratch_bytes
        self.scratch_bytes += aligned(elements * 2 * self.bytes)
        return offset

    def _long(self, a: int, b: int, rows: int, source: Value, target: Value, scale: float) -> None:
        """Transforms row by row: columns of [a][b] to [b][a] in the workspace, whose columns are the result's."""
        f, n = self.entry, a * b
        offset = self._reserve(n)
        columns = BlockView(self.complex, a, b)
        transposed = BlockView(self.complex, a, 1)
        last = BlockView(self.complex, b, a)
        first = FftPass(columns, transposed, self._lane_fft(a, b), b, twiddle=(a, b))
        second = FftPass(last, last, self._lane_fft(b, a), a, scale=scale)
        with f.loop(rows) as row:
            start = f.multiply(row.index, n)
            intermediate = f.at(f["scratch"], offset, "i8")
            self._run(first, f.element_at(source, start, self.complex), intermediate)
            self._run(second, intermediate, f.element_at(target, start, self.complex))

    def _append_table(self, values: np.ndarray[Any, Any]) -> int:
        offset = self.table_size
        self.tables.append(values)
        self.table_size += values.size
        return offset

    def _function(self, fft: LaneFft) -> tuple[str, int]:
        if fft not in self.ffts:
            name = f"{self.name}.lanes{len(self.ffts)}"
            self.ffts[fft] = name, self._append_table(fft.table)
            self.functions += fft.functions(name)
        return self.ffts[fft]

    def _run(self, p: FftPass, source: Value, target: Value) -> None:
        """Calls the task of a pass for all its blocks."""
        lanes, factors = self._function(p.fft)
        twiddles = self._append_table(self._twiddles(p))
        parallel = self.target.is_worth_threads(p.sequences * p.fft.n * ELEMENT_COST) and p.blocks > 1
        chunks = min(p.blocks, CHUNKS_PER_THREAD * self.target.threads) if parallel else 1
        array = aligned((p.fft.size + 2) * p.fft.lanes * self.bytes) + PADDING
        self.work_bytes = max(self.work_bytes, chunks * 4 * array)
        task = FftTask(p, f"{self.name}.pass{len(self.functions)}", lanes, self.is_inverse, chunks, array)
        self.functions += task.functions()
        f = self.entry
        tables = [f.at(f["table"], offset, self.element) for offset in (factors, twiddles)]
        context = f.pack(source, target, f.at(f["scratch"], self.scratch_bytes, "i8"), *tables)
        f.run_chunks(task.name, context, chunks, f.threads_if(parallel))

    def _twiddles(self, p: FftPass) -> np.ndarray[Any, Any]:
        """Returns the factors of a pass beside those of its transform.

        With a twiddle, element k of sequence g is multiplied by w^(k g): by w^(k first) for each block and w^(k lane)
        for each lane. For real sequences in pairs, the factors are the powers of w.
        """
        if p.twiddle is None:
            powers_of = np.arange(p.fft.n // 2 + 1 if "pairs" in p.kind else 0)
            return roots_of_unity(powers_of, 2 * p.fft.n).view(np.float64).astype(self.real.dtype)
        a, b = p.twiddle
        blocks, lanes = np.arange(0, b, p.fft.lanes), np.arange(p.fft.lanes)
        by_block, by_lane = (roots_of_unity(np.outer(np.arange(a), indices), a * b) for indices in (blocks, lanes))
        separate = np.stack([by_lane.real, by_lane.imag], 1)
        table = np.concatenate([by_block.view(np.float64).reshape(-1), separate.reshape(-1)])
        return table.astype(self.real.dtype)
