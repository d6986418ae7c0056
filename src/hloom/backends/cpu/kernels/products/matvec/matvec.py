"""Matrix times a few vectors as LLVM IR: the matrix is read once, in memory order, or computed where it is read.

If K is contiguous, a few rows at a time are multiplied by the vectors, with several sums each (rows.py). If M is
contiguous, a tile of the result stays in the cache while a few columns at a time are added to it (columns.py).
Either way blocks of K are summed from zero, and their sums added up, so that no chain of additions is long (GEN-13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hloom.backends.cpu.elements.byte_tables import CODES
from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of, task_function
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter
from hloom.backends.cpu.kernels.products.dot_instructions import DotInstruction, correction, plus_sum_of_bytes
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.matvec.byte_codes import BYTES_OF_WORD, ByteCodes
from hloom.backends.cpu.kernels.products.matvec.columns import BlockOfColumns, ColumnSums, add_blocks, emit_side_by_side
from hloom.backends.cpu.kernels.products.matvec.rows import ROWS_PER_ITERATION, RowSums, horizontal_sum
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import (
    ComputedMatrix,
    MatrixOfCodes,
    StoredMatrix,
    StreamedMatrix,
    Vectors,
    parts_of,
)
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST
from hloom.backends.cpu.kernels.transpose import Transposes
from hloom.lir import PTR, IndexValue, Type, Value, constant, zero
from hloom.system.records import record
from hloom.target import L2_BYTES, Target, align_up
from hloom.types import PrimitiveType

MIN_TASK_BYTES = 128 << 10  # of the matrix
MIN_ADDED_ROWS = 1 << 11  # for which a task adds the sums of blocks
MAX_SUMS_BYTES = L2_BYTES // 4  # of all products of a batch in a task
MAX_WIDTH, MIN_LINES = 64, 64  # elements of a line, a row or a column, of a matrix that is transposed, and its lines
SUM_TYPES = {memory_element(t): t for t in (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.S32, PrimitiveType.S64)}
"""Types of memory with elements like those of sums."""


@record
class Matvec:
    """out[b, i, r] = sum over k of matrix[b, i, k] * vectors[b, k, r].

    The matrix is in memory or, with `computed`, computed from other arrays, from `codes` as bytes. With an
    `instruction`, k counts words. Code that rarely runs `is_short` rather than fast.
    """

    batch: int
    m: int
    k: int
    count: int
    matrix: Matrix
    vectors: Matrix
    out: Matrix
    batch_strides: tuple[int, int, int]
    computed: ComputedOperand | None = None
    codes: ByteCodes | None = None
    instruction: DotInstruction | None = None
    is_short: bool = False

    @property
    def is_by_rows(self) -> bool:
        """Whether vectors of the matrix lie along K."""
        return self.matrix.has_contiguous_k(self.matrix.column)

    @property
    def is_streamed(self) -> bool:
        """Whether there is code for these distances."""
        paired = self.matrix.paired or self.vectors.paired or self.out.paired
        return not paired and (self.is_by_rows or self.matrix.row == 1)

    @property
    def is_corrected(self) -> bool:
        """Whether the sums have corrections."""
        has_offset = self.codes is not None and self.codes.offset > 0
        return has_offset or (self.instruction is not None and self.instruction.flipped)

    @property
    def strides(self) -> tuple[int, int]:
        """Distances in the array of the matrices: from one product of the batch to the next, and between rows, or
        columns, whichever are contiguous.
        """
        if self.computed is None:
            return self.batch_strides[0], self.matrix.row if self.is_by_rows else self.matrix.column
        index, axes = self.computed.largest.index, self.computed
        other = axes.free if self.is_by_rows else axes.contracted
        return index.coefficient(axes.batch.within), index.coefficient(other.within)

    @property
    def alternates(self) -> bool:
        """Whether rows, or columns, of the products of the batch alternate in memory."""
        of_batch, stride = self.strides
        return self.batch > 1 and 0 < of_batch < stride

    def needs_packing(self, sums: Type) -> bool:
        """Whether the vectors are packed first: those of several that lie along K, those that are converted for each
        row or reordered, and those that become words or have corrections."""
        if self.is_corrected or self.codes is not None or self.vectors.words is not None:
            return True
        if not self.is_by_rows:
            return False
        is_apart = self.vectors.row != 1 and self.k > 1
        is_converted = self.computed is not None and self.vectors.element != sums.element
        return is_apart or self.count > 1 or is_converted or self.order(sums) is not None

    def order(self, sums: Type) -> Sequence[int] | None:
        """Returns which of adjacent elements of K the lanes of a vector have; None if they are in order."""
        return self.computed.order(sums) if self.computed and self.is_by_rows else None

    def tasks(self, type: Type, target: Target) -> int:
        """Returns the number of tasks that pay, for all products."""
        return target.tasks(self.batch * self.m * self.k * size_of(type.element) // MIN_TASK_BYTES)


@record
class Pointers:
    """Addresses of the arrays of a kernel: the result, those of a matrix, and the other operand."""

    other: Value
    out: Value
    arrays: Sequence[Value]


def matvec_code(name: str, f: KernelFunction, p: Matvec, type: Type, target: Target, at: Pointers) -> KernelCode:
    """Completes the entry `f` of a product, whose sums are in vectors of a type; returns its code."""
    scratch, packed_bytes = f["scratch"], 0
    vectors, of_vectors = at.other, p
    if p.needs_packing(type):
        of_vectors = _packed(p, type)
        packed_bytes = aligned(p.batch * of_vectors.batch_strides[1] * size_of(type.element))
        (_pack if p.codes is None else _pack_bytes)(f, p, of_vectors, type, at.other)
        vectors = scratch
    emitter = _Emitter(name, of_vectors, type, target)
    context = f.pack(vectors, at.out, f.at(scratch, packed_bytes, "i8"), *at.arrays)
    on = f.threads_if(target.is_worth_threads(p.batch * p.m * p.k * MULTIPLY_ADD_COST))
    functions = emitter.run(f, context, on)
    return code_of(name, [*functions, f], packed_bytes + emitter.scratch_bytes)


def _packed(p: Matvec, type: Type) -> Matvec:
    """Returns the product with packed vectors: side by side, a vector register of each or, by columns, an element.

    Their corrections follow.
    """
    vectors = Matrix(SUM_TYPES[type.element], p.count, type.width if p.is_by_rows else 1)
    a, _, c = p.batch_strides
    corrections = p.count if p.is_corrected else 0
    stride = align_up(align_up(p.k, type.width) * p.count + corrections, type.width)
    return replace(p, vectors=vectors, batch_strides=(a, stride, c))


def _pack(f: KernelFunction, p: Matvec, packed: Matvec, type: Type, source: Value) -> None:
    """Writes the packed vectors to the workspace."""
    before, after = (Vectors(f, q.vectors, base, q.out, base) for q, base in ((p, source), (packed, f["scratch"])))
    of_batch = p.batch_strides[1], packed.batch_strides[1]
    is_whole = p.vectors.has_contiguous_k(p.vectors.row) and (p.is_by_rows or p.count == 1)
    step, order = type if is_whole else type.scalar, p.order(type)
    with f.loop(p.batch) as batch:
        offsets = [f.multiply(batch.index, stride) for stride in of_batch]
        for vector in range(p.count):
            with f.loop(p.k, max(step.width, 1), carried=[zero(type)] if p.is_corrected else []) as loop:
                origin = f.at(before.address(loop.index, vector), offsets[0], p.vectors.element)
                value = _loaded(f, p, origin, step, loop.index)
                value = f.shuffle(value, None, order) if order and step.width else value
                whole, lane = _position(f, p, type, f.index(loop.index))
                position = f.at(after.address(whole, vector), f.add(offsets[1], lane), type.element)
                f.store(value, position, size_of(type.element))
                if p.is_corrected:
                    words = value if step.width else f.insert(zero(type), value, 0)
                    loop.carried = [correction(f, words, loop.carried[0])]
            if p.is_corrected:
                _store_correction(f, packed, f.at(after.base, offsets[1], type.element), vector, loop.carried[0])


def _pack_bytes(f: KernelFunction, p: Matvec, packed: Matvec, type: Type, source: Value) -> None:
    """Writes the packed vectors of bytes, in the order of codes, to the workspace."""
    codes, after = p.codes, Vectors(f, packed.vectors, f["scratch"], p.out, f["scratch"])
    assert codes is not None
    with f.loop(p.batch) as batch:
        offsets = [f.multiply(batch.index, stride) for stride in (p.batch_strides[1], packed.batch_strides[1])]
        for vector in range(p.count):
            row = f.at(source, f.add(offsets[0], vector * p.vectors.column), "i8")
            with f.loop(codes.padded_k, codes.block, carried=[zero(type)]) as loop:
                for i, words in enumerate(codes.words_of_row(f, row, loop.index)):
                    at = f.add(f.divide(loop.index, BYTES_OF_WORD), i * type.width)
                    f.store(words, f.at(after.address(at, vector), offsets[1], type.element), 4)
                    loop.carried = [plus_sum_of_bytes(f, words, codes.offset, loop.carried[0])]
            if codes.offset:
                _store_correction(f, packed, f.at(after.base, offsets[1], type.element), vector, loop.carried[0])


def _store_correction(f: KernelFunction, packed: Matvec, base: Value, vector: int, sums: Value) -> None:
    """Stores the correction of a vector: less the lanes of its sums."""
    total = f.binary("sub", constant(sums.type.scalar, 0), horizontal_sum(f, sums))
    f.store(total, _correction_address(f, packed, sums.type, base, vector), 4)


def _position(f: KernelFunction, p: Matvec, type: Type, at: IndexValue) -> tuple[IndexValue, IndexValue]:
    """Returns the first step of the packed vector that has a step of K, and the lane that has it."""
    if not p.is_by_rows:
        return at, 0
    lane = f.remainder(at, type.width)
    whole = f.subtract(at, lane)
    if p.order(type) is None:
        return whole, lane
    return whole, f.add(f.multiply(f.remainder(lane, CODES // 2), 2), f.divide(lane, CODES // 2))


def _loaded(f: KernelFunction, p: Matvec, origin: Value, step: Type, at: IndexValue) -> Value:
    """Returns elements or words of a vector."""
    left = p.vectors.elements_left(f, p.k, at)
    if not step.width:
        return p.vectors.load_step(f, origin, step, left)
    is_ragged = p.vectors.elements(p.k) % (p.vectors.per_step * step.width) != 0
    return p.vectors.load_steps(f, origin, step, left if is_ragged else None)


def _correction_address(f: KernelFunction, packed: Matvec, type: Type, base: Value, vector: int) -> Value:
    """Returns the address of the correction of a vector of a product; `base` is that of its vectors."""
    return f.at(base, align_up(packed.k, type.width) * packed.count + vector, type.element)


@record
class _Emitter:
    """Writes the tasks of a product. Their context has the addresses of the vectors, the result, the sums of blocks of
    K, and the arrays of the matrix.
    """

    name: str
    p: Matvec
    type: Type
    target: Target

    @property
    def plan(self) -> ColumnSums:
        p = self.p
        return ColumnSums(p.m, p.k, p.count, self.type, self.parts * self.type.width, p.matrix.per_step)

    @property
    def is_side_by_side(self) -> bool:
        """Whether a task has parts of all products of the batch, whose rows or columns alternate in memory."""
        if self.p.is_by_rows:
            return self.p.alternates
        sums = self.p.batch * self.plan.sums * size_of(self.type.element)
        return self.p.alternates and self.p.m <= self.plan.tile_rows and sums <= MAX_SUMS_BYTES

    @property
    def parts(self) -> int:
        if self.p.codes is not None:
            return len(self.p.codes.halves)
        return self.p.computed.parts(self.type) if self.p.computed else parts_of(self.p.matrix)

    @property
    def scratch_bytes(self) -> int:
        return 0 if self.p.is_by_rows else self.p.batch * self.plan.scratch_bytes

    def run(self, f: KernelFunction, context: Value, on: tuple[Value, Value] | None) -> list[KernelFunction]:
        """Runs the tasks in the entry `f`; returns them."""
        p, tasks = self.p, self.p.tasks(self.type, self.target)
        batches = 1 if self.is_side_by_side else p.batch
        wanted = math.ceil(tasks / batches)
        if p.is_by_rows:
            shares = max(1, min(wanted, p.m // max(ROWS_PER_ITERATION, self.type.width)))
            f.run_chunks(f"{self.name}.task", context, batches * shares, on)
            return [self._task_of_rows(shares)]
        blocks, shares = self.plan.blocks, 1 if self.is_side_by_side else self.plan.shares(wanted)
        f.run_chunks(f"{self.name}.task", context, batches * blocks * shares, on)
        if blocks == 1:
            return [self._task_of_columns(shares)]
        adders = max(1, min(math.ceil(tasks / p.batch), p.m // MIN_ADDED_ROWS))
        f.run_chunks(f"{self.name}.add", context, p.batch * adders, on)
        return [self._task_of_columns(shares), self._adder(adders)]

    def _task_of_rows(self, shares: int) -> KernelFunction:
        f = task_function(f"{self.name}.task")
        batch, share = f.divide(f["chunk"], shares), f.remainder(f["chunk"], shares)
        first, count = f.share(self.p.m, ROWS_PER_ITERATION, shares, share)
        if not self.is_side_by_side:
            self._emit_rows(f, batch, first, count)
            return f
        with f.loop(count, ROWS_PER_ITERATION) as rows, f.loop(self.p.batch) as product:
            left = f.minimum(ROWS_PER_ITERATION, f.subtract(count, rows.index))
            self._emit_rows(f, product.index, f.add(first, rows.index), left)
        return f

    def _emit_rows(self, f: KernelFunction, batch: IndexValue, first: IndexValue, count: IndexValue) -> None:
        matrix, work, _ = self._operands(f, batch)
        RowSums(matrix, work, self.type, self.p.m, self.p.k, self.p.count, self.p.is_short).emit(first, count)

    def _task_of_columns(self, shares: int) -> KernelFunction:
        f, blocks = task_function(f"{self.name}.task"), self.plan.blocks
        if self.is_side_by_side:
            emit_side_by_side(
                f,
                self.plan,
                self.p.batch,
                lambda batch: BlockOfColumns(self.plan, *self._operands(f, batch)),
                f["chunk"],
            )
            return f
        share, rest = f.remainder(f["chunk"], shares), f.divide(f["chunk"], shares)
        block, batch = f.remainder(rest, blocks), f.divide(rest, blocks)
        matrix, work, sums = self._operands(f, batch)
        rows = f.share(self.p.m, self.plan.lanes, shares, share)
        BlockOfColumns(self.plan, matrix, work, sums).emit(block, *rows)
        return f

    def _adder(self, shares: int) -> KernelFunction:
        """Returns the task that adds the sums of the blocks of K for a share of the rows."""
        f = task_function(f"{self.name}.add")
        batch, share = f.divide(f["chunk"], shares), f.remainder(f["chunk"], shares)
        matrix, work, sums = self._operands(f, batch)
        add_blocks(self.plan, matrix, work, sums, *f.share(self.p.m, self.plan.lanes, shares, share))
        return f

    def _operands(self, f: KernelFunction, batch: IndexValue) -> tuple[StreamedMatrix, Vectors, Value]:
        """Returns the matrix, the vectors and the sums of blocks of one product."""
        p, type = self.p, self.type
        count = len(p.computed.buffers) if p.computed else 1
        vectors, out, sums, *arrays = f.unpack(f["context"], *[PTR] * (3 + count))
        of_matrix, of_vectors, of_out = p.batch_strides
        vectors = f.at(vectors, f.multiply(batch, of_vectors), p.vectors.element)
        out = f.at(out, f.multiply(batch, of_out), p.out.element)
        sums = f.at(sums, f.multiply(batch, self.plan.scratch_bytes), "i8")
        corrections = [
            f.load(_correction_address(f, p, type, vectors, vector), type.scalar, 4)
            for vector in range(p.count if p.is_corrected else 0)
        ]
        work = Vectors(f, p.vectors, vectors, p.out, out, p.instruction, corrections)
        if p.computed is not None:
            emitter = OperandEmitter(f, p.computed, arrays, type, self.parts)
            matrix = MatrixOfCodes(emitter, batch, p.codes) if p.codes else ComputedMatrix(emitter, batch)
            return matrix, work, sums
        base = f.at(arrays[0], f.multiply(batch, of_matrix), p.matrix.element)
        return StoredMatrix(f, type, p.matrix, base), work, sums


# Narrow matrices in loops


def transposed(p: Matvec) -> Matvec | None:
    """Returns a product with the transposed matrix; None for a matrix that is not narrow.

    A row of few elements fills few lanes, and adding up the lanes takes longer than the multiply-adds. Transposed, the
    lanes are rows of the result, or parts of a long sum, which pays where the iterations of a loop share the matrix: a
    regression has many points with few features.
    """
    (lines, width), distance = _lines(p), p.matrix.row if p.is_by_rows else p.matrix.column
    is_narrow = lines >= MIN_LINES and 1 < width <= MAX_WIDTH and distance == width
    if not is_narrow or p.batch > 1 or p.matrix.type.bits < 32:
        return None
    row, column = (1, lines) if p.is_by_rows else (lines, 1)
    return replace(p, matrix=replace(p.matrix, row=row, column=column))


def transposition(name: str, p: Matvec) -> KernelCode:
    """Returns the code that transposes the matrix of a product."""
    f, transposes = entry_of(name, "operand", "packed"), Transposes(name)
    transposes.emit(f, f["operand"], f["packed"], size_of(p.matrix.element), _lines(p))
    return code_of(name, [*transposes.functions.values(), f])


def _lines(p: Matvec) -> tuple[int, int]:
    """Returns the number of contiguous lines of a matrix, and the elements of one."""
    return (p.m, p.k) if p.is_by_rows else (p.k, p.m)
