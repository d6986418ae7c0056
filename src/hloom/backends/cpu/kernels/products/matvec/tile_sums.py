"""A computed matrix times a few vectors of bf16, in tile registers: AMX of x86-64 (see tile_registers.py).

Some rows of the matrix are computed along K, a few hundred elements of each, as words of two bf16. They stay in the
first cache, from which an instruction multiplies 16 rows by 16 words at a time: the work for each element of the matrix
hardly depends on the number of vectors. Elements have the order in which they are computed, in which the vectors are
packed before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.matmul_plan import MULTIPLY_ADD_COST
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec, Pointers
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import ComputedMatrix, Row
from hloom.backends.cpu.kernels.products.operand_emitter import OperandEmitter
from hloom.backends.cpu.kernels.products.tile_registers import (
    BF16,
    WORDS,
    configure,
    has_tile_instruction,
    move,
    release,
)
from hloom.lir import I8, PTR, IndexValue, Value, constant, type_of
from hloom.loops.expressions import Apply
from hloom.ops.elementwise_binary import Multiply
from hloom.ops.traits import Linear
from hloom.target import Target
from hloom.types import PrimitiveType

MIN_VECTORS = 4  # fewer are multiplied as fast as words are stored
STEP = 2 * WORDS  # elements of K in a row of a register
SQUARES = 2  # registers of sums, along the rows
ROWS = SQUARES * WORDS
PART = 8 * STEP  # elements of K of the rows that are in the first cache
BLOCK = 8 * PART  # elements of K whose sums are added in one chain
UNIT = 2 * STEP  # elements of K that are computed together
ROW_WORDS = PART // 2  # from the computed words of a row to those of the next one
F32, WORD = type_of("float", WORDS), type_of("i32", WORDS)


def has_tiles(p: Matvec, target: Target) -> bool:
    """Whether a product is computed in tile registers."""
    is_bf16 = p.computed is not None and {p.computed.value.type, p.vectors.type} == {BF16}
    has_registers = has_tile_instruction(BF16, BF16) and target.vector_bytes == WORDS * 4
    if not is_bf16 or not has_registers or target.batch_invariant or p.alternates:
        return False
    has_vectors = p.is_by_rows and p.vectors.row == 1 and p.out.row == 1
    return has_vectors and MIN_VECTORS <= p.count <= WORDS and p.m >= ROWS and p.k >= STEP


def tile_sums_code(name: str, f: KernelFunction, p: Matvec, target: Target, at: Pointers) -> KernelCode:
    """Completes the entry `f` of a product in tile registers; returns its code."""
    assert p.computed is not None
    p = replace(p, computed=_unrounded(p.computed))
    sums = _TileSums(name, p)
    sums.pack(f, at.other)
    shares = max(1, min(math.ceil(p.tasks(F32, target) / p.batch), p.m // ROWS))
    on = f.threads_if(target.is_worth_threads(p.batch * p.m * p.k * MULTIPLY_ADD_COST))
    f.run_chunks(f"{name}.task", f.pack(f["scratch"], at.out, *at.arrays), p.batch * shares, on)
    return code_of(name, [sums.task(shares), f], aligned(p.batch * sums.packed_bytes))


def _sums(square: int) -> Value:
    """Returns the register of sums of a square of rows."""
    return constant(I8, square)


_MATRIX, _VECTORS = constant(I8, SQUARES), constant(I8, SQUARES + 1)
"""The registers of words: few, as in other products (tile_choice.py)."""


@dataclass(frozen=True)
class _TileSums:
    """Writes the functions of a product."""

    name: str
    p: Matvec

    @property
    def steps(self) -> int:
        """Registers of words along K."""
        return math.ceil(self.p.k / STEP)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed vectors of a product: a word of each side by side. A vector past the last one is written
        with them.
        """
        return (self.steps * WORDS * self.p.count + WORDS) * 4

    # Packing

    def pack(self, f: KernelFunction, source: Value) -> None:
        """Writes the packed vectors of all products to the workspace."""
        p = self.p
        with f.loop(p.batch) as batch:
            of_product = f.at(source, f.multiply(batch.index, p.batch_strides[1]), p.vectors.element)
            target = f.at(f["scratch"], f.multiply(batch.index, self.packed_bytes), "i8")
            whole = p.k // STEP
            if whole:
                with f.loop(whole) as step:
                    self._pack_step(f, of_product, target, step.index, STEP)
            if p.k % STEP:
                self._pack_step(f, of_product, target, whole, p.k % STEP)

    def _pack_step(self, f: KernelFunction, source: Value, target: Value, step: IndexValue, count: int) -> None:
        """Packs `count` elements of each vector; rows are stored in order, each over what follows the one before."""
        p, order = self.p, self.p.order(F32)
        columns = []
        for vector in range(p.count):
            start = f.add(f.multiply(step, STEP), vector * p.vectors.column)
            halves = []
            for first in (0, WORDS):
                mask = f.first_lanes(max(count - first, 0), WORDS) if count - first < WORDS else None
                address = f.at(source, f.add(start, first), p.vectors.element)
                value = f.load_as(address, p.vectors.type, F32, mask)
                halves.append(f.shuffle(value, None, order) if order else value)
            columns.append(_words(f, *halves))
        lines = transpose(f, columns + [constant(WORD, 0)] * (WORDS - p.count))
        for i, line in enumerate(lines):
            offset = f.multiply(f.add(f.multiply(step, WORDS), i), p.count)
            f.store(line, f.at(target, offset, "i32"), 4)

    # Products

    def task(self, shares: int) -> KernelFunction:
        """Returns the task of a share of the rows of a product."""
        f, p = task_function(f"{self.name}.task"), self.p
        assert p.computed is not None
        vectors, out, *arrays = f.unpack(f["context"], *[PTR] * (2 + len(p.computed.buffers)))
        batch, share = f.divide(f["chunk"], shares), f.remainder(f["chunk"], shares)
        vectors = f.at(vectors, f.multiply(batch, self.packed_bytes), "i8")
        out = f.at(out, f.multiply(batch, p.batch_strides[2]), p.out.element)
        first, count = f.share(p.m, ROWS, shares, share)
        emitter = OperandEmitter(f, p.computed, arrays, F32, p.computed.parts(F32))
        rows = _Rows(f, p, ComputedMatrix(emitter, batch), vectors)
        self._configure(f)
        with f.loop(count, ROWS) as group:
            start = f.minimum(f.add(first, group.index), p.m - ROWS)
            rows.add_products(start)
            rows.store(out, start)
        release(f)
        return f

    def _configure(self, f: KernelFunction) -> None:
        of_sums = [(WORDS, 4 * self.p.count)] * SQUARES
        words = (WORDS, 4 * WORDS), (WORDS, 4 * self.p.count)
        configure(f, f"{self.name}.registers", [*of_sums, *words])


class _Rows:
    """Writes the products of some rows: their words and the sums are on the stack."""

    def __init__(self, f: KernelFunction, p: Matvec, matrix: ComputedMatrix, vectors: Value) -> None:
        self.f, self.p, self.matrix, self.vectors = f, p, matrix, vectors
        self.words = f.slot(WORD, ROWS * ROW_WORDS // WORDS)
        self.block, self.totals = f.slot(F32, ROWS), f.slot(F32, ROWS)

    def add_products(self, first: IndexValue) -> None:
        """Writes the sums of the rows from `first` on, of which each has a vector, to the totals."""
        f, k = self.f, self.p.k
        f.fill(self.totals, 0, ROWS * 4 * WORDS)
        whole = k // PART * PART
        if whole:
            with f.loop(whole, BLOCK) as block, self._block():
                end = f.minimum(f.add(block.index, BLOCK), whole)
                with f.loop(end, PART, first=block.index) as part:
                    self._add_part(first, part.index, PART)
        if k > whole:
            with self._block():
                self._add_part(first, whole, k - whole)

    @contextmanager
    def _block(self) -> Iterator[None]:
        """Sets the registers of sums to zero, and afterwards adds them to the totals."""
        f = self.f
        for square in range(SQUARES):
            f.call_void("llvm.x86.tilezero", _sums(square))
        yield
        for square in range(SQUARES):
            move(f, "tilestored64", _sums(square), f.at(self.block, square * WORDS * WORDS, "float"), WORDS)
        with f.loop(ROWS * WORDS, WORDS) as row:
            sums, total = f.at(self.block, row.index, "float"), f.at(self.totals, row.index, "float")
            f.store(f.binary("fadd", f.load(total, F32, 64), f.load(sums, F32, 64)), total, 64)

    def _add_part(self, first: IndexValue, start: IndexValue, count: int) -> None:
        """Computes `count` elements of K of each row, and adds their products to the sums."""
        f = self.f
        with f.loop(ROWS) as row:
            own = self.matrix.row(f.add(first, row.index), ROWS)
            line = f.at(self.words, f.multiply(row.index, ROW_WORDS), "i32")
            whole = count // UNIT * UNIT
            if whole:
                with f.loop(whole, UNIT) as unit:
                    self._compute(own, f.add(start, unit.index), UNIT, f.at(line, f.divide(unit.index, 2), "i32"))
            if count > whole:
                self._compute(own, f.add(start, whole), count - whole, f.at(line, whole // 2, "i32"))
        with f.loop(math.ceil(count / STEP)) as step:
            self._multiply(start, step.index)

    def _compute(self, row: Row, start: IndexValue, count: int, target: Value) -> None:
        """Writes the words of `count` elements of a row, the last ones with zeros."""
        f, lanes = self.f, self.matrix.parts * WORDS
        row.prefetch(start)
        vectors: list[Value] = []
        for first in range(0, count, lanes):
            mask = f.first_lanes(count - first, lanes) if count - first < lanes else None
            vectors += row.load(f.add(start, first), mask)
        vectors += [constant(F32, 0)] * (len(vectors) % 2)
        for i, (low, high) in enumerate(zip(vectors[::2], vectors[1::2], strict=True)):
            f.store(_words(f, low, high), f.at(target, i * WORDS, "i32"), 64)

    def _multiply(self, start: IndexValue, step: IndexValue) -> None:
        """Adds the products of a step of K, counted from the first one of the computed words, to the sums."""
        f, count = self.f, self.p.count
        of_vectors = f.multiply(f.add(f.divide(start, STEP), step), WORDS * count)
        move(f, "tileloadd64", _VECTORS, f.at(self.vectors, of_vectors, "i32"), count)
        for square in range(SQUARES):
            own = f.add(f.multiply(step, WORDS), square * WORDS * ROW_WORDS)
            move(f, "tileloadd64", _MATRIX, f.at(self.words, own, "i32"), ROW_WORDS)
            f.call_void("llvm.x86.tdpbf16ps", _sums(square), _MATRIX, _VECTORS)

    def store(self, out: Value, first: IndexValue) -> None:
        """Stores the totals of the rows from `first` on to the result."""
        f, p = self.f, self.p
        for square in range(0, ROWS, WORDS):
            lines = [f.load(f.at(self.totals, (square + i) * WORDS, "float"), F32, 64) for i in range(WORDS)]
            for vector, line in enumerate(transpose(f, lines)[: p.count]):
                offset = f.add(f.add(first, square), vector * p.out.column)
                f.store_as(line, f.at(out, offset, p.out.element), p.out.type)


def _words(f: KernelFunction, low: Value, high: Value) -> Value:
    """Returns two vectors of f32, rounded to bf16, as words of neighbours."""
    bf16 = type_of("bfloat", STEP)
    return f.bitcast(f.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", bf16, high, low), WORD)


def _unrounded(operand: ComputedOperand) -> ComputedOperand:
    """Returns an operand of f32 which, rounded to bf16, is one of bf16: arithmetic of bf16 is that of f32, rounded."""
    value = operand.value
    if not isinstance(value, Apply) or not isinstance(value.op, (Linear, Multiply)):
        return operand
    return replace(operand, value=operand.space.apply(value.op, PrimitiveType.F32, *value.operands))
