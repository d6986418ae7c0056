"""A computed matrix whose rows are adjacent in memory times a few vectors, in tile registers: AMX of x86-64.

Weights that are stored as [in, out] are such a matrix, whose element of a row and of K is beside that of the next row.
A panel has 64 rows. Some elements of K of each are computed as words of two bf16, and stay in the first cache, from
which an instruction multiplies the words of 16 rows and 16 steps by those of all vectors. A task takes one panel after
the other for a block of K, so that what it reads is in long pieces, and adds the sums of a block to totals in memory.

Where rows are halves of bytes that a table of constants has as bf16, words are looked up 64 bytes at a time. Others,
such as scaled ones, are looked up and computed as f32 in the lanes of these words, so that no lanes move later. The
rows of a panel are divided among its squares in the order in which they are looked up, and put in order at the end.

A vector of f32 consists of three parts, as in tile_sums.py, which are added to the same sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter, Resume
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec, Pointers
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import ComputedMatrix
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
from hloom.backends.cpu.kernels.products.sums import addition
from hloom.backends.cpu.kernels.products.tiles.tile_registers import (
    BF16,
    WORDS,
    configure,
    has_tile_instruction,
    move,
    release,
)
from hloom.lir import I8, PTR, IndexValue, Value, constant
from hloom.system.records import record
from hloom.target import CACHE_LINE, Target
from hloom.types import PrimitiveType

MIN_VECTORS = {BF16: (2, 3, 5), PrimitiveType.F32: (4, 4, 6)}
"""The least vectors of a type for which tile registers pay: with words that are looked up, with those of other halves
of bytes, and with those of bytes."""
SQUARES = 4  # of a panel: registers of sums
PANEL = SQUARES * WORDS  # rows
SQUARE_WORDS = WORDS * WORDS
BUFFERS = 2  # of the words of a step, as those of the next one are computed between the products of this one
BLOCK = 128  # elements of K whose sums are added in one chain, and most that share a factor
MIN_GROUP = STEP  # elements of K with one factor
MIN_PANELS = 8  # of a task, of which there are no more than threads: long pieces are read faster
PIECE = 32  # panels that are multiplied by a block of K while the weights of the next ones are prefetched


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
    return packed_columns(p.count, operand, are_left=True)


def _least(operand: ComputedOperand) -> int:
    """Returns the number of vectors for which tile registers pay."""
    of_words, of_halves, of_bytes = MIN_VECTORS[operand.value.type]
    if operand.has_words_of_rows:
        return of_words
    return of_halves if operand.bits_of_weights == 4 else of_bytes


def tile_panels_code(
    name: str, f: KernelFunction, p: Matvec, columns: TileColumns, target: Target, at: Pointers
) -> KernelCode:
    """Completes the entry `f` of a product in tile registers; returns its code."""
    assert p.computed is not None
    plan = _Plan(name, replace(p, computed=unrounded(p.computed)), columns)
    packed_bytes = columns.pack(f, p, p.k, at.other)
    tasks = min(p.tasks(F32, target), target.threads)
    shares = max(1, min(math.ceil(tasks / p.batch), plan.panels // MIN_PANELS))
    on = f.threads_if(target.is_worth_threads(p.batch * p.m * p.k * MULTIPLY_ADD_COST))
    totals = f.at(f["scratch"], aligned(p.batch * packed_bytes), "i8")
    f.run_chunks(f"{name}.task", f.pack(f["scratch"], totals, at.out, *at.arrays), p.batch * shares, on)
    size = aligned(p.batch * packed_bytes) + p.batch * plan.panels * plan.sums * 4
    return code_of(name, [plan.task(shares), f], size)


@record
class _Plan:
    """A product by panels of rows and blocks of K."""

    name: str
    p: Matvec
    columns: TileColumns

    @property
    def operand(self) -> ComputedOperand:
        """The matrix."""
        assert self.p.computed is not None
        return self.p.computed

    @property
    def panels(self) -> int:
        """Panels of all rows; the last one may repeat rows of the one before."""
        return -(-self.p.m // PANEL)

    @property
    def sums(self) -> int:
        """Sums of a panel: of each square a row for each vector."""
        return PANEL * self.columns.count

    @property
    def block(self) -> int:
        """Elements of K of a block: those of one group, or a part of them."""
        contracted = self.operand.contracted
        return BLOCK if contracted.group.extent == 1 else math.gcd(contracted.size, BLOCK)

    @property
    def vectors(self) -> Sequence[Value]:
        """The registers of parts of the vectors."""
        return [constant(I8, SQUARES + part) for part in range(self.columns.parts)]

    @property
    def matrix(self) -> Value:
        """The register of words of the matrix."""
        return constant(I8, SQUARES + self.columns.parts)

    def task(self, shares: int) -> KernelFunction:
        """Returns the task of a share of the panels of a product."""
        f, p = task_function(f"{self.name}.task"), self.p
        vectors, totals, out, *arrays = f.unpack(f["context"], *[PTR] * (3 + len(self.operand.buffers)))
        batch, share = f.divide(f["chunk"], shares), f.remainder(f["chunk"], shares)
        first, count = f.share(self.panels, 1, shares, share)
        totals = f.at(totals, f.multiply(f.add(f.multiply(batch, self.panels), first), self.sums), "float")
        vectors = f.at(vectors, f.multiply(batch, self.columns.size(p.k)), "i8")
        out = f.at(out, f.multiply(batch, p.batch_strides[2]), p.out.element)
        emitter = OperandEmitter(f, self.operand, arrays, F32, self.operand.parts(F32))
        panels = _Panels(f, self, ComputedMatrix(emitter, batch), vectors, totals, (first, count))
        of_vectors, words = (self.columns.count, 4 * WORDS), (WORDS, 4 * WORDS)
        configure(f, f"{self.name}.registers", [of_vectors] * (SQUARES + self.columns.parts) + [words])
        panels.add_products()
        release(f)
        panels.store(out)
        return f


@record
class _Ahead:
    """The next weights: the first row and element of K, and the pairs of elements of K since the piece began."""

    row: IndexValue
    start: IndexValue
    pairs: IndexValue

    def after(self, f: KernelFunction, elements: IndexValue) -> _Ahead:
        """Returns it after more elements of K."""
        return _Ahead(self.row, self.start, f.add(self.pairs, f.divide(elements, 2)))


class _Panels:
    """Writes the products of some panels, the first and their number: their words and sums are on the stack."""

    def __init__(
        self,
        f: KernelFunction,
        plan: _Plan,
        matrix: ComputedMatrix,
        vectors: Value,
        totals: Value,
        panels: tuple[IndexValue, IndexValue],
    ) -> None:
        self.f, self.plan, self.matrix, self.emitter, self.panels = f, plan, matrix, matrix.emitter, panels
        self.vectors, self.totals = vectors, totals
        self.words, self.sums = f.slot(F32, BUFFERS * SQUARES * WORDS), f.slot(F32, SQUARES * plan.columns.count)
        self.has_words, self.has_pairs = plan.operand.has_words_of_rows, plan.operand.of_rows is not None
        self.has_group_factor = plan.operand.has_group_factor

    def _rows(self, panel: IndexValue) -> tuple[IndexValue, Value]:
        """Returns the first row of a panel, counted from the first one of the task, and the address of its totals."""
        f, (first, _) = self.f, self.panels
        row = f.minimum(f.multiply(f.add(first, panel), PANEL), self.plan.p.m - PANEL)
        return row, f.at(self.totals, f.multiply(panel, self.plan.sums), "float")

    def add_products(self) -> None:
        """Adds the products of all blocks of K to the totals, from zero."""
        f, k, size, (_, count) = self.f, self.plan.p.k, self.plan.block, self.panels
        f.fill(self.totals, 0, f.multiply(count, self.plan.sums * 4))
        whole = k // size * size
        if whole:
            with f.loop(whole, size) as block, f.loop(count, PIECE) as piece:
                self._add_piece(piece.index, block.index, size)
        if k > whole:
            with f.loop(count, PIECE) as piece:
                self._add_piece(piece.index, whole, k - whole)

    def _add_piece(self, first: IndexValue, start: IndexValue, count: int) -> None:
        """Adds the products of `count` elements of K from one on to the totals of the panels of a piece."""
        f, end = self.f, self.panels[1]
        following = f.add(first, PIECE)
        is_last = f.compare("uge", f.index(following), f.index(end))
        later = f.select(is_last, f.index(0), f.index(following))
        block = f.select(is_last, f.index(f.add(start, count)), f.index(start))
        with f.loop(f.minimum(following, end), first=first) as panel:
            done = f.multiply(f.subtract(panel.index, first), count // 2)
            self._add_block(panel.index, start, count, _Ahead(self._rows(later)[0], block, done))

    def _add_block(self, panel: IndexValue, start: IndexValue, count: int, ahead: _Ahead) -> None:
        """Adds the products of `count` elements of K from one on to the totals of a panel."""
        f = self.f
        row, totals = self._rows(panel)
        contexts, whole = self._contexts(row, start), count // STEP * STEP
        for square in range(SQUARES):
            f.call_void("llvm.x86.tilezero", constant(I8, square))
        if whole:
            self._add_steps(contexts, start, whole // STEP, ahead)
        if count > whole:
            self._add_rest(contexts, f.add(start, whole), count - whole, ahead.after(f, whole))
        for square in range(SQUARES):
            move(f, "tilestored64", constant(I8, square), self._sums_of(self.sums, square), WORDS)
        self._add_sums(row, start, totals)

    def _sums_of(self, base: Value, square: int) -> Value:
        """Returns the address of the sums of a square."""
        return self.f.at(base, square * WORDS * self.plan.columns.count, "float")

    def _add_sums(self, row: IndexValue, start: IndexValue, totals: Value) -> None:
        """Adds the sums of a block, times their factors, to totals."""
        f, factors = self.f, self._factors(row, start) if self.has_group_factor else []
        with f.loop(self.plan.columns.count * WORDS, WORDS) as line:
            for square in range(SQUARES):
                address, sums = (f.at(self._sums_of(base, square), line.index, "float") for base in (totals, self.sums))
                total, value = f.load(address, F32, 64), f.load(sums, F32, 64)
                added = f.fmuladd(value, factors[square], total) if factors else f.binary(addition(F32), total, value)
                f.store(added, address, 64)

    def _factors(self, row: IndexValue, start: IndexValue) -> list[Value]:
        """Returns the factors of the group of an element of K, of the rows of each square."""
        e, axes, found = self.emitter, self.plan.operand, []
        for square in range(SQUARES):
            with e.lanes_along(axes.free, None, WORDS), self._bound(row, square * WORDS, start):
                found.append(self.f.splat(e.factor(WORDS), WORDS))
        return self._in_order(found)

    def _in_order(self, vectors: list[Value]) -> list[Value]:
        """Returns a vector of each square as vectors of adjacent rows, or the other way."""
        return transpose_squares(self.f, vectors) if self.has_pairs else vectors

    def _bound(self, row: IndexValue, offset: int, start: IndexValue) -> ExitStack:
        """Binds a row of the panel and the group of an element of K."""
        e, axes, stack = self.emitter, self.plan.operand, ExitStack()
        for context in (
            e.at(axes.batch, self.matrix.batch),
            e.at(axes.free, self.f.add(row, offset)),
            e.in_group(axes.contracted, start),
        ):
            stack.enter_context(context)
        return stack

    # Words

    @property
    def _lanes(self) -> int:
        """Rows whose elements are computed together."""
        return self.matrix.parts * WORDS

    def _contexts(self, row: IndexValue, start: IndexValue) -> list[Resume]:
        """Returns the contexts of rows that are computed together, for elements of K of one group."""
        e, found = self.emitter, []
        for offset in range(0, PANEL, PANEL if self.has_words else self._lanes):
            with e.lanes_along(self.plan.operand.free, None), self._bound(row, offset, start):
                found.append(e.held())
        return [e.with_pairs(found)] if self.has_pairs and not self.has_words else found

    def _add_steps(self, contexts: Sequence[Resume], start: IndexValue, steps: int, ahead: _Ahead) -> None:
        """Adds the products of whole steps of K to the sums: computes the words of each while it multiplies the step
        before.
        """
        f = self.f
        self._compute_pairs(contexts, start, self._words_of(0), (0, STEP // 2), ahead)
        if steps > 1:
            with f.loop(steps, first=1) as step:
                self._add_step(contexts, start, step.index, ahead)
        self._multiply(f.add(start, (steps - 1) * STEP), self._words_of((steps - 1) % BUFFERS))

    def _add_step(self, contexts: Sequence[Resume], start: IndexValue, step: IndexValue, ahead: _Ahead) -> None:
        """Computes the words of a step of K between the products of the step before."""
        f, at, pairs = self.f, self.f.multiply(step, STEP), STEP // 2 // SQUARES
        words, others = (self._words_of(f.remainder(f.add(step, k), BUFFERS)) for k in range(BUFFERS))

        def compute(square: int) -> None:
            own = square * pairs, (square + 1) * pairs
            self._compute_pairs(contexts, f.add(start, at), words, own, ahead.after(f, at))

        self._multiply(f.add(start, f.subtract(at, STEP)), others, compute)

    def _add_rest(self, contexts: Sequence[Resume], start: IndexValue, count: int, ahead: _Ahead) -> None:
        """Adds the products of fewer elements of K than a step has to the sums."""
        f, words, pairs = self.f, self._words_of(0), count // 2
        f.fill(words, 0, SQUARES * SQUARE_WORDS * 4)
        if pairs:
            self._compute_pairs(contexts, start, words, (0, pairs), ahead)
        if count % 2:
            self._compute(contexts, f.add(start, count - 1), 1, f.at(words, pairs * WORDS, "i32"))
        self._multiply(start, words)

    def _words_of(self, buffer: IndexValue) -> Value:
        """Returns the address of the words of a step."""
        return self.f.at(self.words, self.f.multiply(buffer, SQUARES * SQUARE_WORDS), "i32")

    def _compute_pairs(
        self, contexts: Sequence[Resume], start: IndexValue, words: Value, pairs: tuple[int, int], ahead: _Ahead
    ) -> None:
        """Writes the words of pairs of elements of K of a step, from the first to the last (excluded)."""
        f, (first, end) = self.f, pairs
        with f.loop(end, first=first) as pair:
            at = f.multiply(pair.index, 2)
            self._prefetch(ahead.after(f, at))
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
        if self.has_words:
            return e.words_of_rows(at, count)
        if not self.has_pairs:
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

    def _prefetch(self, ahead: _Ahead) -> None:
        """Prefetches as many weights as a pair of elements of K has."""
        e, f, axes = self.emitter, self.f, self.plan.operand
        bits = axes.bits_of_weights
        rows, lines = CACHE_LINE * 8 // bits, PIECE * PANEL * bits // (CACHE_LINE * 8)
        for line in range(max(1, 2 * PANEL // rows)):
            at = f.add(f.multiply(ahead.pairs, max(1, 2 * PANEL // rows)), line)
            row = f.minimum(f.add(ahead.row, f.multiply(f.remainder(at, lines), rows)), axes.free.extent - 1)
            k = f.minimum(f.add(ahead.start, f.divide(at, lines)), axes.contracted.extent - 1)
            e.prefetch((axes.batch, self.matrix.batch), (axes.free, row), (axes.contracted, k), is_near=False)

    def _multiply(
        self, start: IndexValue, words: Value, meanwhile: Callable[[int], None] = lambda square: None
    ) -> None:
        """Adds the products of a step of K to the sums; writes other code before the products of each square."""
        f, plan, own = self.f, self.plan, self.plan.columns
        of_vectors = f.multiply(f.divide(start, STEP), own.step_words)
        for part, register in enumerate(plan.vectors):
            address = f.at(self.vectors, f.add(of_vectors, part * WORDS), "i32")
            move(f, "tileloadd64", register, address, own.parts * WORDS)
        for square in range(SQUARES):
            move(f, "tileloadd64", plan.matrix, f.at(words, square * SQUARE_WORDS, "i32"), WORDS)
            meanwhile(square)
            for register in plan.vectors:
                f.call_void("llvm.x86.tdpbf16ps", constant(I8, square), register, plan.matrix)

    def store(self, out: Value) -> None:
        """Stores the totals to the result."""
        f, p, (_, count) = self.f, self.plan.p, self.panels
        with f.loop(count) as panel, f.loop(self.plan.columns.count) as vector:
            row, totals = self._rows(panel.index)
            line = f.multiply(vector.index, WORDS)
            sums = [f.load(f.at(self._sums_of(totals, square), line, "float"), F32, 64) for square in range(SQUARES)]
            for square, each in enumerate(self._in_order(sums)):
                own = f.add(row, square * WORDS)
                value = each if self.has_group_factor else self.matrix.scaled(each, own, None)
                f.store_as(
                    value, f.at(out, f.add(own, f.multiply(vector.index, p.out.column)), p.out.element), p.out.type
                )
