"""A computed matrix times a few vectors, in tile registers: AMX of x86-64 (see tile_registers.py).

Some rows of the matrix are computed along K, some elements of each, as words of two bf16. They stay in the
first cache, from which an instruction multiplies 16 rows by 16 words at a time: the work for each element of the matrix
hardly depends on the number of vectors. Elements have the order in which they are computed, in which the vectors are
packed before.

Codes of 4 bits and vectors of bytes are words of four bytes (byte_codes.py).

A vector of f32 is three columns of bf16, whose sum it is, and the matrix consists of integers that bf16 has, so that
products are exact. The factors of groups along K are applied to sums of spans of K.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hloom.backends.cpu.elements.byte_tables import order_of_halves
from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter
from hloom.backends.cpu.kernels.products.matvec.byte_codes import BYTES_OF_WORD
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec, Pointers
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import ComputedMatrix, ComputedRow
from hloom.backends.cpu.kernels.products.matvec.tile_columns import (
    F32,
    WORD,
    TileColumns,
    exact_words,
    is_exact,
    packed_columns,
    unrounded,
    words_of,
)
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST
from hloom.backends.cpu.kernels.products.split.factors import STEP
from hloom.backends.cpu.kernels.products.sums import add_pairwise, addition
from hloom.backends.cpu.kernels.products.tiles.tile_registers import (
    BF16,
    S8,
    U8,
    WORDS,
    configure,
    has_tile_instruction,
    instruction_of_types,
    move,
    release,
)
from hloom.lir import I8, PTR, IndexValue, Value, constant
from hloom.system.records import record
from hloom.target import Target
from hloom.types import PrimitiveType

MIN_VECTORS = {BF16: 4, PrimitiveType.F32: 7, S8: 5, U8: 5}  # fewer are multiplied as fast as words are stored
STEPS, FEW_STEPS = 8, 2  # of K of the rows that are in the first cache: a part
BLOCK = 64  # steps whose sums are added in one chain
UNIT = 2  # steps that are computed together
MIN_SPAN = UNIT * STEP  # elements of K with one factor; fewer are multiplied by it faster than their sums are stored


def tile_columns(p: Matvec, target: Target) -> TileColumns | None:
    """Returns the columns of a product in tile registers; None for other products."""
    operand, type = p.computed, p.vectors.type
    if operand is None:
        return None
    has_vectors = p.is_by_rows and p.vectors.row == 1 and p.out.row == 1 and not p.alternates
    if p.codes is not None:
        has_registers = has_tile_instruction(p.codes.type, type) and target.vector_bytes == WORDS * 4
        is_large = p.count >= MIN_VECTORS[type] and p.m >= 2 * WORDS and p.codes.k >= p.codes.block
        return TileColumns(p.count, 1, None, p.codes) if has_registers and has_vectors and is_large else None
    if target.batch_invariant or type is not operand.value.type or type not in MIN_VECTORS:
        return None
    has_registers = has_tile_instruction(BF16, BF16) and target.vector_bytes == WORDS * 4
    are_looked_up = operand.has_words and not operand.has_group_factor
    least = MIN_VECTORS[BF16 if are_looked_up else type]
    is_large = least <= p.count <= WORDS and p.m >= 2 * WORDS and p.k >= STEP
    has_spans = not operand.has_group_factor or operand.contracted.size % MIN_SPAN == 0
    if not has_registers or not has_vectors or not is_large or not has_spans:
        return None
    return packed_columns(p.count, operand, _order(operand))


def _order(operand: ComputedOperand) -> Sequence[int]:
    """Returns which of the elements of a step, or of several, the halves of words have."""
    if operand.has_words:
        return order_of_halves(operand.block_of_words // 2)
    order = operand.order(F32) or range(WORDS)
    both = [*order, *(WORDS + lane for lane in order)]
    return [both[lane % 2 * WORDS + lane // 2] for lane in range(STEP)] if is_exact(unrounded(operand)) else both


def tile_sums_code(
    name: str, f: KernelFunction, p: Matvec, columns: TileColumns, target: Target, at: Pointers
) -> KernelCode:
    """Completes the entry `f` of a product in tile registers; returns its code."""
    assert p.computed is not None
    p = replace(p, computed=unrounded(p.computed))
    plan = _Plan(name, p, columns)
    packed_bytes = columns.pack(f, p, plan.k, at.other)
    shares = max(1, min(math.ceil(p.tasks(F32, target) / p.batch), p.m // plan.rows))
    on = f.threads_if(target.is_worth_threads(p.batch * p.m * p.k * MULTIPLY_ADD_COST))
    f.run_chunks(f"{name}.task", f.pack(f["scratch"], at.out, *at.arrays), p.batch * shares, on)
    return code_of(name, [plan.task(shares), f], aligned(p.batch * packed_bytes))


@record
class _Plan:
    """A product by rows of squares, which are registers of sums, and by parts of K."""

    name: str
    p: Matvec
    columns: TileColumns

    @property
    def k(self) -> int:
        """Elements of K that are multiplied."""
        return self.p.codes.padded_k if self.p.codes else self.p.k

    @property
    def instruction(self) -> str:
        """The name of the instruction."""
        types = (BF16, BF16) if self.p.codes is None else (self.p.codes.type, self.p.codes.rows)
        return instruction_of_types(*types).name

    @property
    def block_of_words(self) -> int:
        """Elements of K that are looked up as words together; 0 if elements are not looked up."""
        operand = self.p.computed
        return operand.block_of_words if self.p.codes is None and operand is not None and operand.has_words else 0

    @property
    def has_tables(self) -> bool:
        """Whether words are looked up in a table of the row, or of a group of it."""
        return self.block_of_words > 0 and self.p.computed is not None and self.p.computed.table is None

    @property
    def steps(self) -> int:
        """Steps of a part: so few that the processor computes the next one while it multiplies, if vectors have one
        column, as multiplying by three takes longer than computing.
        """
        return STEPS if self.columns.parts > 1 else max(FEW_STEPS, self.block_of_words // STEP)

    @property
    def unit(self) -> int:
        """Elements of K of a row that are computed together."""
        return max(UNIT * self.columns.step, self.block_of_words)

    @property
    def pitch(self) -> int:
        """Words from a computed row to the next one."""
        return self.steps * WORDS

    @property
    def span(self) -> int:
        """Elements of K that share a factor and are multiplied together; 0 if there are no factors of groups."""
        operand = self.p.computed
        return self._part_of_group if operand is not None and operand.has_group_factor else 0

    @property
    def _part_of_group(self) -> int:
        """Elements of K that are computed together in one group."""
        assert self.p.computed is not None
        size = self.p.computed.contracted.size
        return next(part for part in range(min(size, self.steps * STEP), 0, -self.unit) if size % part == 0)

    @property
    def part(self) -> int:
        """Elements of K of the rows that are computed before they are multiplied."""
        operand, size = self.p.computed, self.steps * self.columns.step
        if self.has_tables and operand and operand.contracted.group.extent > 1:
            return self._part_of_group
        if not self.span:
            return size
        return size // self.span * self.span if operand and operand.contracted.size == self.span else self.span

    @property
    def squares(self) -> int:
        """Registers of sums along the rows: few, as in other products (tile_choice.py)."""
        return 2 if self.columns.tiles == 1 else 1

    @property
    def rows(self) -> int:
        """Rows that are multiplied together."""
        return self.squares * WORDS

    def sums(self, square: int, tile: int) -> Value:
        """Returns the register of the sums of a square and a tile of columns."""
        return constant(I8, square * self.columns.tiles + tile)

    @property
    def matrix(self) -> Value:
        """The register of words of rows."""
        return constant(I8, self.squares * self.columns.tiles)

    @property
    def vectors(self) -> Value:
        """The register of words of columns."""
        return constant(I8, self.squares * self.columns.tiles + 1)

    def task(self, shares: int) -> KernelFunction:
        """Returns the task of a share of the rows of a product."""
        f, p = task_function(f"{self.name}.task"), self.p
        assert p.computed is not None
        vectors, out, *arrays = f.unpack(f["context"], *[PTR] * (2 + len(p.computed.buffers)))
        batch, share = f.divide(f["chunk"], shares), f.remainder(f["chunk"], shares)
        vectors = f.at(vectors, f.multiply(batch, self.columns.size(self.k)), "i8")
        out = f.at(out, f.multiply(batch, p.batch_strides[2]), p.out.element)
        first, count = f.share(p.m, self.rows, shares, share)
        emitter = OperandEmitter(f, p.computed, arrays, F32, p.computed.parts(F32))
        rows = _Rows(f, self, ComputedMatrix(emitter, batch), vectors)
        self._configure(f)
        with f.loop(count, self.rows) as group:
            start = f.minimum(f.add(first, group.index), p.m - self.rows)
            rows.add_products(start)
            rows.store(out, start)
        release(f)
        return f

    def _configure(self, f: KernelFunction) -> None:
        columns = self.columns
        of_sums = [(WORDS, 4 * columns.width)] * (self.squares * columns.tiles)
        words = (WORDS, 4 * WORDS), (WORDS, 4 * columns.width)
        configure(f, f"{self.name}.registers", [*of_sums, *words])


class _Rows:
    """Writes the products of some rows: their words and the sums are on the stack."""

    def __init__(self, f: KernelFunction, plan: _Plan, matrix: ComputedMatrix, vectors: Value) -> None:
        self.f, self.plan, self.columns, self.matrix, self.vectors = f, plan, plan.columns, matrix, vectors
        self.line, self.type = plan.columns.tiles * WORDS, F32 if plan.p.codes is None else WORD
        self.words = f.slot(WORD, plan.rows * plan.steps)
        spans, size = plan.part // plan.span if plan.span else 1, plan.rows * plan.columns.tiles
        self.sums, self.totals = f.slot(F32, spans * size), f.slot(F32, size)
        self.of_block = f.slot(F32, size) if plan.span else self.sums
        self.factors = f.slot(F32, plan.rows) if plan.span else None
        for span in range(spans):
            self._clear(self._sums_of(span))

    def _clear(self, sums: Value) -> None:
        self.f.fill(sums, 0, self.plan.rows * self.line * 4)

    def _sums_of(self, span: IndexValue) -> Value:
        """Returns the address of the sums of a span of a part of K."""
        return self.f.at(self.sums, self.f.multiply(span, self.plan.rows * self.line), "float")

    def add_products(self, first: IndexValue) -> None:
        """Writes the sums of the rows from `first` on, of which each has a line, to the totals."""
        f, k, size = self.f, self.plan.k, self.plan.part
        self._clear(self.totals)
        whole, length = k // size * size, BLOCK // self.plan.steps * size
        if whole:
            with f.loop(whole, length) as block, self._block():
                end = f.minimum(f.add(block.index, length), whole)
                with f.loop(end, size, first=block.index) as part:
                    self._add_part(first, part.index, size)
        if k > whole:
            with self._block():
                self._add_part(first, whole, k - whole)

    @contextmanager
    def _block(self) -> Iterator[None]:
        """Sets the sums of a block to zero, and afterwards adds them to the totals."""
        f = self.f
        if self.plan.span:
            self._clear(self.of_block)
        else:
            self._zero()
        yield
        if not self.plan.span:
            self._keep(self.of_block)
        with f.loop(self.plan.rows * self.line, WORDS) as at:
            pointers = [f.at(each, at.index, "float") for each in (self.totals, self.of_block)]
            total, sums = (f.load(pointer, self.type, 64) for pointer in pointers)
            f.store(f.binary(addition(self.type), total, sums), pointers[0], 64)

    def _zero(self) -> None:
        """Sets the registers of sums to zero."""
        for register in range(self.plan.squares * self.columns.tiles):
            self.f.call_void("llvm.x86.tilezero", constant(I8, register))

    def _keep(self, sums: Value) -> None:
        """Stores the registers of sums."""
        f = self.f
        for square in range(self.plan.squares):
            for tile in range(self.columns.tiles):
                address = f.at(sums, square * WORDS * self.line + tile * WORDS, "float")
                move(f, "tilestored64", self.plan.sums(square, tile), address, self.line)

    def _add_part(self, first: IndexValue, start: IndexValue, count: int) -> None:
        """Computes `count` elements of K of each row, and adds their products to the sums."""
        f = self.f
        self._compute_part(first, start, count)
        if self.plan.span:
            self._add_spans(start, count)
            return
        with f.loop(math.ceil(count / self.columns.step)) as step:
            self._multiply(start, step.index)

    def _add_spans(self, start: IndexValue, count: int) -> None:
        """Adds the products of computed words of K to the sums of the block: those of each span times their factors."""
        f, spans, steps = self.f, count // self.plan.span, self.plan.span // STEP
        with f.loop(spans) as span:
            self._zero()
            with f.loop(steps) as step:
                self._multiply(start, f.add(f.multiply(span.index, steps), step.index))
            self._keep(self._sums_of(span.index))
        assert self.factors is not None
        with f.loop(self.plan.rows) as row:
            own = f.at(self.factors, f.multiply(row.index, WORDS), "float")
            factors = [f.splat(f.load(f.at(own, i, "float"), F32.scalar, 4), WORDS) for i in range(spans)]
            for tile in range(self.columns.tiles):
                at = f.add(f.multiply(row.index, self.line), tile * WORDS)
                address = f.at(self.of_block, at, "float")
                total = f.load(address, F32, 64)
                for i, factor in enumerate(factors):
                    total = f.fmuladd(f.load(f.at(self._sums_of(i), at, "float"), F32, 64), factor, total)
                f.store(total, address, 64)

    def _row(self, first: IndexValue, row: IndexValue) -> ComputedRow:
        return self.matrix.row(self.f.add(first, row), self.plan.rows)

    def _compute_part(self, first: IndexValue, start: IndexValue, count: int) -> None:
        """Computes words of `count` elements of K of each row, and the factors of their spans."""
        f = self.f
        with f.loop(self.plan.rows) as row:
            own = self._row(first, row.index)
            if self.plan.has_tables:
                (own,) = self.matrix.in_group([own], start)
            if self.factors is not None:
                address = f.at(self.factors, f.multiply(row.index, WORDS), "float")
                f.store(self.matrix.factors(own, start, count // self.plan.span), address, 64)
            line = f.at(self.words, f.multiply(row.index, self.plan.pitch), "i32")
            unit, of_word = self.plan.unit, self.columns.step // WORDS
            whole = count // unit * unit
            if whole:
                with f.loop(whole, unit) as at:
                    self._compute(own, f.add(start, at.index), unit, f.at(line, f.divide(at.index, of_word), "i32"))
            if count > whole:
                self._compute(own, f.add(start, whole), count - whole, f.at(line, whole // of_word, "i32"))

    def _compute(self, row: ComputedRow, start: IndexValue, count: int, target: Value) -> None:
        """Writes the words of `count` elements of a row, the last ones with zeros."""
        f = self.f
        row.prefetch(start)
        if (codes := self.plan.p.codes) is not None:
            for first in range(0, count, codes.block):
                for i, words in enumerate(self.matrix.bytes(row, f.add(start, first), codes)):
                    f.store(words, f.at(target, first // BYTES_OF_WORD + i * WORDS, "i32"), 64)
            return
        if self.plan.block_of_words:
            for first in range(0, count, self.plan.block_of_words):
                for i, words in enumerate(self.matrix.words(row, f.add(start, first), count - first)):
                    f.store(words, f.at(target, first // 2 + i * WORDS, "i32"), 64)
            return
        lanes = self.matrix.parts * WORDS
        vectors: list[Value] = []
        for first in range(0, count, lanes):
            mask = f.first_lanes(count - first, lanes) if count - first < lanes else None
            vectors += row.load(f.add(start, first), mask)
        vectors += [constant(F32, 0)] * (len(vectors) % 2)
        rounded = exact_words if is_exact(self.matrix.emitter.operand) else words_of
        for i, (low, high) in enumerate(zip(vectors[::2], vectors[1::2], strict=True)):
            f.store(rounded(f, low, high), f.at(target, i * WORDS, "i32"), 64)

    def _multiply(self, start: IndexValue, step: IndexValue) -> None:
        """Adds the products of a step of K, counted from the first one of the computed words, to the sums."""
        f, own = self.f, self.columns
        of_vectors = f.multiply(f.add(f.divide(start, own.step), step), own.step_words)
        for square in range(self.plan.squares):
            of_rows = f.add(f.multiply(step, WORDS), square * WORDS * self.plan.pitch)
            move(f, "tileloadd64", self.plan.matrix, f.at(self.words, of_rows, "i32"), self.plan.pitch)
            for tile in range(own.tiles):
                if square == 0:
                    address = f.at(self.vectors, f.add(of_vectors, tile * WORDS * own.width), "i32")
                    move(f, "tileloadd64", self.plan.vectors, address, own.width)
                factors = self.plan.matrix, self.plan.vectors
                f.call_void(f"llvm.x86.{self.plan.instruction}", self.plan.sums(square, tile), *factors)

    def store(self, out: Value, first: IndexValue) -> None:
        """Stores the totals of the rows from `first` on to the result."""
        f, p, own = self.f, self.plan.p, self.columns
        for square in range(0, self.plan.rows, WORDS):
            columns: list[Value] = []
            for tile in range(own.tiles):
                lines = [f.at(self.totals, (square + i) * self.line + tile * WORDS, "float") for i in range(WORDS)]
                columns += transpose(f, [f.load(line, self.type, 64) for line in lines])
            start = f.add(first, square)
            for vector in range(own.count):
                first_part, *others = columns[vector * own.parts : (vector + 1) * own.parts]
                sums = add_pairwise(f, first_part, *others) if others else first_part
                sums = sums if self.plan.span or self.plan.p.codes else self.matrix.scaled(sums, start, None)
                address = f.at(out, f.add(start, vector * p.out.column), p.out.element)
                f.store_as(sums, address, p.out.type)
