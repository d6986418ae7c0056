"""A computed matrix whose rows are adjacent in memory times a few vectors, in tile registers: AMX of x86-64.

Weights that are stored as [in, out] are such a matrix, whose element of a row and of K is beside that of the next row.
Where rows are halves of bytes that a table of constants has as bf16, words are looked up 64 bytes at a time. Others,
such as scaled ones, are looked up and computed as f32 in the lanes of these words, so that no lanes move later. The
rows of a panel are divided among its squares in the order in which they are looked up, and put in order at the end.

A vector of f32 consists of three parts, as in tile_sums.py, which are added to the same sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import Resume
from hloom.backends.cpu.kernels.products.computed.panel_emitter import PanelEmitter
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec, Pointers
from hloom.backends.cpu.kernels.products.matvec.panels import PANEL, SQUARE_WORDS, SQUARES, Ahead, Panels, Plan
from hloom.backends.cpu.kernels.products.matvec.table_panels import TablePanels, has_tables
from hloom.backends.cpu.kernels.products.matvec.tile_columns import (
    F32,
    WORD,
    TileColumns,
    bf16_words,
    exact_words,
    is_exact,
    packed_columns,
    unrounded,
    words_of,
)
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST
from hloom.backends.cpu.kernels.products.split.factors import STEP
from hloom.backends.cpu.kernels.products.tiles.tile_registers import (
    BF16,
    WORDS,
    configure,
    has_tile_instruction,
    release,
)
from hloom.lir import PTR, IndexValue, Value, constant
from hloom.target import Target
from hloom.types import PrimitiveType

MIN_VECTORS = {BF16: (2, 3, 5), PrimitiveType.F32: (4, 4, 6)}
"""The least vectors of a type for which tile registers pay: with words that are looked up, with those of other halves
of bytes, and with those of bytes."""
MIN_GROUP = STEP  # elements of K with one factor
MIN_ROWS = 8 * PANEL  # of a task, of which there are no more than threads: long pieces are read faster


def panel_columns(p: Matvec, target: Target) -> TileColumns | None:
    """Returns the packed vectors of a product in tile registers by panels; None for other products."""
    operand, type = p.computed, p.vectors.type
    if operand is None or p.is_by_rows or target.batch_invariant or type is not operand.value.type:
        return None
    has_registers = has_tile_instruction(BF16, BF16) and target.vector_bytes == WORDS * 4
    has_vectors = p.vectors.row == 1 and p.out.row == 1 and not p.alternates
    is_large = type in MIN_VECTORS and _least(operand) <= p.count <= WORDS and p.m >= PANEL and p.k >= STEP
    is_whole = operand.contracted.group.extent == 1 or operand.contracted.size % MIN_GROUP == 0
    if not (has_registers and has_vectors and is_large and is_whole) or operand.free.group.extent > 1:
        return None
    return packed_columns(p.count, operand, are_left=not has_tables(operand))


def _least(operand: ComputedOperand) -> int:
    """Returns the number of vectors for which tile registers pay."""
    of_words, of_halves, of_bytes = MIN_VECTORS[operand.value.type]
    if operand.has_words_of_rows or has_tables(operand):
        return of_words
    return of_halves if operand.bits_of_weights == 4 else of_bytes


def tile_panels_code(
    name: str, f: KernelFunction, p: Matvec, columns: TileColumns, target: Target, at: Pointers
) -> KernelCode:
    """Completes the entry `f` of a product in tile registers; returns its code."""
    assert p.computed is not None
    plan = Plan(name, replace(p, computed=unrounded(p.computed)), columns)
    packed_bytes = columns.pack(f, p, p.k, at.other)
    tasks = min(p.tasks(F32, target), target.threads)
    shares = max(1, min(math.ceil(tasks / p.batch), plan.reads * plan.rows // MIN_ROWS))
    on = f.threads_if(target.is_worth_threads(p.batch * p.m * p.k * MULTIPLY_ADD_COST))
    totals = f.at(f["scratch"], aligned(p.batch * packed_bytes), "i8")
    f.run_chunks(f"{name}.task", f.pack(f["scratch"], totals, at.out, *at.arrays), p.batch * shares, on)
    size = aligned(p.batch * packed_bytes) + p.batch * plan.reads * plan.sums * 4
    return code_of(name, [_task(plan, shares), f], size)


def _task(plan: Plan, shares: int) -> KernelFunction:
    """Returns the task of a share of the panels of a product."""
    f, p, columns = task_function(f"{plan.name}.task"), plan.p, plan.columns
    vectors, totals, out, *arrays = f.unpack(f["context"], *[PTR] * (3 + len(plan.operand.buffers)))
    batch, share = f.divide(f["chunk"], shares), f.remainder(f["chunk"], shares)
    first, count = f.share(plan.reads, 1, shares, share)
    totals = f.at(totals, f.multiply(f.add(f.multiply(batch, plan.reads), first), plan.sums), "float")
    vectors = f.at(vectors, f.multiply(batch, columns.size(p.k)), "i8")
    out = f.at(out, f.multiply(batch, p.batch_strides[2]), p.out.element)
    emitter = PanelEmitter(f, plan.operand, arrays, F32, plan.operand.parts(F32))
    write = LanePanels if columns.are_left else TablePanels
    panels = write(f, plan, emitter, batch, (vectors, totals), (first, count))
    configure(f, f"{plan.name}.registers", _registers(columns))
    panels.add_products()
    release(f)
    panels.store(out)
    return f


def _registers(columns: TileColumns) -> list[tuple[int, int]]:
    """Returns the rows and bytes of a row of the registers: those of sums, of vectors and of the matrix."""
    words = WORDS, 4 * WORDS
    of_vectors = (columns.count, 4 * WORDS) if columns.are_left else (WORDS, 4 * columns.width)
    return [of_vectors] * (SQUARES + columns.parts) + [words]


class LanePanels(Panels):
    """Products whose left factor is the vectors: rows are lanes of words."""

    @property
    def _has_words(self) -> bool:
        return self.plan.operand.has_words_of_rows

    @property
    def _has_pairs(self) -> bool:
        return self.plan.operand.of_rows is not None

    def factors(self, row: IndexValue, start: IndexValue) -> list[Value]:
        e, axes, found = self.emitter, self.plan.operand, []
        for square in range(SQUARES):
            with e.lanes_along(axes.free, None, WORDS), self.bound(row, square * WORDS, start):
                found.append(self.f.splat(e.factor(WORDS), WORDS))
        return self._in_order(found)

    def _in_order(self, vectors: list[Value]) -> list[Value]:
        """Returns a vector of each square as vectors of adjacent rows, or the other way."""
        return transpose_squares(self.f, vectors) if self._has_pairs else vectors

    @property
    def _lanes(self) -> int:
        """Rows whose elements are computed together."""
        return self.matrix.parts * WORDS

    def contexts(self, row: IndexValue, panel: IndexValue, start: IndexValue) -> Sequence[Resume]:
        e, found = self.emitter, []
        for offset in range(0, PANEL, PANEL if self._has_words else self._lanes):
            with e.lanes_along(self.plan.operand.free, None), self.bound(row, offset, start):
                found.append(e.held())
        return [e.with_pairs(found)] if self._has_pairs and not self._has_words else found

    def compute(self, contexts: Sequence[Resume], start: IndexValue, words: Value, part: int, ahead: Ahead) -> None:
        pairs = STEP // 2 // SQUARES
        self._compute_pairs(contexts, start, words, (part * pairs, (part + 1) * pairs), ahead)

    def compute_rest(
        self, contexts: Sequence[Resume], start: IndexValue, words: Value, count: int, ahead: Ahead
    ) -> None:
        f, pairs = self.f, count // 2
        if pairs:
            self._compute_pairs(contexts, start, words, (0, pairs), ahead)
        if count % 2:
            self._compute(contexts, f.add(start, count - 1), 1, f.at(words, pairs * WORDS, "i32"))

    def _compute_pairs(
        self, contexts: Sequence[Resume], start: IndexValue, words: Value, pairs: tuple[int, int], ahead: Ahead
    ) -> None:
        """Writes the words of pairs of elements of K of a step, from the first to the last (excluded)."""
        f, (first, end) = self.f, pairs
        with f.loop(end, first=first) as pair:
            at = f.multiply(pair.index, 2)
            self.prefetch(ahead.after(f, at))
            self._compute(contexts, f.add(start, at), 2, f.at(words, f.multiply(pair.index, WORDS), "i32"))

    def _compute(self, contexts: Sequence[Resume], at: IndexValue, count: int, target: Value) -> None:
        """Writes the words of two elements of K, or of one and zero."""
        f, e = self.f, self.emitter
        words: list[Value] = []
        for resume in contexts:
            with resume(), e.lanes_along(self.plan.operand.free, None):
                words += self._words(at, count)
        for square, each in enumerate(words):
            f.store(each, f.at(target, square * SQUARE_WORDS, "i32"), 64)

    def _words(self, at: IndexValue, count: int) -> list[Value]:
        """Returns the words of elements of K: of a panel, or of rows that are computed together."""
        f, e = self.f, self.emitter
        if self._has_words:
            return e.words_of_rows(at, count)
        if not self._has_pairs:
            return self._rounded(at, count)
        pairs = e.pairs_of_rows(at, count)
        words = [words_of(f, low, high) for low, high in zip(pairs[::2], pairs[1::2], strict=True)]
        return words if count == 2 else [f.binary("and", each, constant(WORD, 0xFFFF)) for each in words]

    def _rounded(self, at: IndexValue, count: int) -> list[Value]:
        """Returns the words of elements of K of adjacent rows."""
        low, *high = self.emitter.elements(self.plan.operand.contracted, at, count)
        others = high[0] if high else [constant(F32, 0)] * len(low)
        words = exact_words if is_exact(self.plan.operand) else bf16_words
        return [words(self.f, *pair) for pair in zip(low, others, strict=True)]

    def store(self, out: Value) -> None:
        f, p, (_, count) = self.f, self.plan.p, self.reads
        with f.loop(count) as panel, f.loop(self.plan.columns.count) as vector:
            row, totals = self.rows(panel.index)
            line = f.multiply(vector.index, WORDS)
            sums = [f.load(f.at(self.sums_of(totals, square), line, "float"), F32, 64) for square in range(SQUARES)]
            for square, each in enumerate(self._in_order(sums)):
                own = f.add(row, square * WORDS)
                value = each if self.plan.operand.has_group_factor else self.matrix.scaled(each, own, None)
                f.store_as(
                    value, f.at(out, f.add(own, f.multiply(vector.index, p.out.column)), p.out.element), p.out.type
                )
