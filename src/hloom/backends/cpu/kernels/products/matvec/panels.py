"""Products of panels of rows and blocks of K in tile registers, whatever writes their words.

A panel has 64 rows. Some elements of K of each are computed as words of two bf16, and stay in the first cache, from
which an instruction multiplies the words of 16 rows and 16 steps by those of all vectors. A task takes one panel after
the other for a block of K, so that what it reads is in long pieces, and adds the sums of a block to totals in memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import Resume
from hloom.backends.cpu.kernels.products.computed.panel_emitter import PanelEmitter
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import ComputedMatrix
from hloom.backends.cpu.kernels.products.matvec.tile_columns import F32, TileColumns
from hloom.backends.cpu.kernels.products.split.factors import STEP
from hloom.backends.cpu.kernels.products.sums import addition
from hloom.backends.cpu.kernels.products.tiles.tile_registers import WORDS, move
from hloom.lir import I8, IndexValue, Value, constant
from hloom.system.records import record
from hloom.target import CACHE_LINE

SQUARES = 4  # of a panel: registers of sums
PANEL = SQUARES * WORDS  # rows
WIDE_PANEL = 4 * PANEL  # rows that are read together where they are read before they are multiplied
SQUARE_WORDS = WORDS * WORDS
BUFFERS = 2  # of the words of a step, as those of the next one are computed between the products of this one
BLOCK = 128  # elements of K whose sums are added in one chain, and most that share a factor
PIECE = 32 * PANEL  # rows that are multiplied by a block of K while the weights of the next ones are prefetched


@record
class Plan:
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
    def rows(self) -> int:
        """Rows that are read together: those of one panel, or of several."""
        return PANEL if self.columns.are_left else WIDE_PANEL

    @property
    def reads(self) -> int:
        """Reads of rows; the last one may repeat rows of the one before."""
        return -(-self.p.m // self.rows)

    @property
    def sums(self) -> int:
        """Sums of rows that are read together: of each square a row for each vector, or the other way."""
        return self.rows * self.columns.count

    @property
    def vectors(self) -> Sequence[Value]:
        """The registers of parts of the vectors."""
        return [constant(I8, SQUARES + part) for part in range(self.columns.parts)]

    @property
    def matrix(self) -> Value:
        """The register of words of the matrix."""
        return constant(I8, SQUARES + self.columns.parts)


def block_of(operand: ComputedOperand) -> int:
    """Returns the elements of K of a block: those of one group, or a part of them."""
    contracted = operand.contracted
    return BLOCK if contracted.group.extent == 1 else math.gcd(contracted.size, BLOCK)


@record
class Ahead:
    """The next weights: the first row and element of K, and the pairs of elements of K since the piece began."""

    row: IndexValue
    start: IndexValue
    pairs: IndexValue

    def after(self, f: KernelFunction, elements: IndexValue) -> Ahead:
        """Returns the weights that follow after more elements of K."""
        return Ahead(self.row, self.start, f.add(self.pairs, f.divide(elements, 2)))


class Panels(ABC):
    """Writes the products of some reads of rows, the first and their number: their words and sums are on the stack.

    The memory is that of the packed vectors, and of the totals.
    """

    def __init__(
        self,
        f: KernelFunction,
        plan: Plan,
        emitter: PanelEmitter,
        batch: IndexValue,
        memory: tuple[Value, Value],
        reads: tuple[IndexValue, IndexValue],
    ) -> None:
        self.f, self.plan, self.emitter, self.reads = f, plan, emitter, reads
        self.matrix, (self.vectors, self.totals) = ComputedMatrix(emitter, batch), memory
        self.words, self.sums = f.slot(F32, BUFFERS * SQUARES * WORDS), f.slot(F32, SQUARES * plan.columns.count)

    def read(self, row: IndexValue, start: IndexValue, count: int) -> None:  # noqa: B027
        """Reads `count` elements of K of rows, if they are not read where they are multiplied."""

    @abstractmethod
    def contexts(self, row: IndexValue, panel: IndexValue, start: IndexValue) -> Sequence[Resume]:
        """Returns the contexts of a panel of the rows from one on, for elements of K of one group."""

    @abstractmethod
    def compute(self, contexts: Sequence[Resume], start: IndexValue, words: Value, part: int, ahead: Ahead) -> None:
        """Writes one of four parts of the words of a step of K."""

    @abstractmethod
    def compute_rest(
        self, contexts: Sequence[Resume], start: IndexValue, words: Value, count: int, ahead: Ahead
    ) -> None:
        """Writes the words of fewer elements of K than a step has to memory of zeros."""

    @abstractmethod
    def store(self, out: Value) -> None:
        """Stores the totals to the result."""

    def rows(self, read: IndexValue) -> tuple[IndexValue, Value]:
        """Returns the first row of a read, counted from the first one of the task, and the address of its totals."""
        f, plan, (first, _) = self.f, self.plan, self.reads
        row = f.minimum(f.multiply(f.add(first, read), plan.rows), plan.p.m - plan.rows)
        return row, f.at(self.totals, f.multiply(read, plan.sums), "float")

    def add_products(self) -> None:
        """Adds the products of all blocks of K to the totals, from zero."""
        f, k, size, (_, count) = self.f, self.plan.p.k, block_of(self.plan.operand), self.reads
        f.fill(self.totals, 0, f.multiply(count, self.plan.sums * 4))
        whole, length = k // size * size, PIECE // self.plan.rows
        if whole:
            with f.loop(whole, size) as block, f.loop(count, length) as piece:
                self._add_piece(piece.index, length, block.index, size)
        if k > whole:
            with f.loop(count, length) as piece:
                self._add_piece(piece.index, length, whole, k - whole)

    def _add_piece(self, first: IndexValue, length: int, start: IndexValue, count: int) -> None:
        """Adds the products of `count` elements of K from one on to the totals of a piece."""
        f, end = self.f, self.reads[1]
        following = f.add(first, length)
        is_last = f.compare("uge", f.index(following), f.index(end))
        later = f.select(is_last, f.index(0), f.index(following))
        block = f.select(is_last, f.index(f.add(start, count)), f.index(start))
        with f.loop(f.minimum(following, end), first=first) as read:
            (row, totals), panels = self.rows(read.index), self.plan.rows // PANEL
            self.read(row, start, count)
            with f.loop(panels) as panel:
                done = f.add(f.multiply(f.subtract(read.index, first), panels), panel.index)
                ahead = Ahead(self.rows(later)[0], block, f.multiply(done, count // 2))
                own = f.at(totals, f.multiply(panel.index, PANEL * self.plan.columns.count), "float")
                self._add_block(row, panel.index, own, start, count, ahead)

    def _add_block(
        self, row: IndexValue, panel: IndexValue, totals: Value, start: IndexValue, count: int, ahead: Ahead
    ) -> None:
        """Adds the products of `count` elements of K from one on to the totals of a panel of the rows from one on."""
        f = self.f
        contexts, whole = self.contexts(row, panel, start), count // STEP * STEP
        for square in range(SQUARES):
            f.call_void("llvm.x86.tilezero", constant(I8, square))
        if whole:
            self._add_steps(contexts, start, whole // STEP, ahead)
        if count > whole:
            words, rest = self._words_of(0), f.add(start, whole)
            f.fill(words, 0, SQUARES * SQUARE_WORDS * 4)
            self.compute_rest(contexts, rest, words, count - whole, ahead.after(f, whole))
            self.multiply(rest, words)
        for square in range(SQUARES):
            move(f, "tilestored64", constant(I8, square), self.sums_of(self.sums, square), self._row_of_sums)
        self._add_sums(row, start, totals)

    @property
    def _row_of_sums(self) -> int:
        """Sums of a row of a square."""
        return WORDS if self.plan.columns.are_left else self.plan.columns.count

    def sums_of(self, base: Value, square: int) -> Value:
        """Returns the address of the sums of a square."""
        return self.f.at(base, square * WORDS * self.plan.columns.count, "float")

    def _add_sums(self, row: IndexValue, start: IndexValue, totals: Value) -> None:
        """Adds the sums of a block, times their factors, to totals."""
        f, factors = self.f, self.factors(row, start) if self.plan.operand.has_group_factor else []
        with f.loop(self.plan.columns.count * WORDS, WORDS) as line:
            for square in range(SQUARES):
                address, sums = (f.at(self.sums_of(base, square), line.index, "float") for base in (totals, self.sums))
                total, value = f.load(address, F32, 64), f.load(sums, F32, 64)
                added = f.fmuladd(value, factors[square], total) if factors else f.binary(addition(F32), total, value)
                f.store(added, address, 64)

    def factors(self, row: IndexValue, start: IndexValue) -> list[Value]:
        """Returns the factors of the group of an element of K, of the rows of each square."""
        raise NotImplementedError

    def bound(self, row: IndexValue, offset: IndexValue, start: IndexValue) -> ExitStack:
        """Binds a row of the panel and the group of an element of K."""
        e, axes, stack = self.emitter, self.plan.operand, ExitStack()
        for context in (
            e.at(axes.batch, self.matrix.batch),
            e.at(axes.free, self.f.add(row, offset)),
            e.in_group(axes.contracted, start),
        ):
            stack.enter_context(context)
        return stack

    def _add_steps(self, contexts: Sequence[Resume], start: IndexValue, steps: int, ahead: Ahead) -> None:
        """Adds the products of whole steps of K to the sums: computes the words of each while it multiplies the step
        before.
        """
        f = self.f
        for part in range(SQUARES):
            self.compute(contexts, start, self._words_of(0), part, ahead)
        if steps > 1:
            with f.loop(steps, first=1) as step:
                self._add_step(contexts, start, step.index, ahead)
        self.multiply(f.add(start, (steps - 1) * STEP), self._words_of((steps - 1) % BUFFERS))

    def _add_step(self, contexts: Sequence[Resume], start: IndexValue, step: IndexValue, ahead: Ahead) -> None:
        """Computes the words of a step of K between the products of the step before."""
        f, at = self.f, self.f.multiply(step, STEP)
        words, others = (self._words_of(f.remainder(f.add(step, k), BUFFERS)) for k in range(BUFFERS))

        def compute(part: int) -> None:
            self.compute(contexts, f.add(start, at), words, part, ahead.after(f, at))

        self.multiply(f.add(start, f.subtract(at, STEP)), others, compute)

    def multiply(self, start: IndexValue, words: Value, meanwhile: Callable[[int], None] = lambda square: None) -> None:
        """Adds the products of a step of K to the sums; writes other code before the products of each square."""
        f, plan, own = self.f, self.plan, self.plan.columns
        of_vectors = f.multiply(f.divide(start, STEP), own.step_words)
        pitch = own.parts * WORDS if own.are_left else own.width
        for part, register in enumerate(plan.vectors):
            move(f, "tileloadd64", register, f.at(self.vectors, f.add(of_vectors, part * WORDS), "i32"), pitch)
        for square in range(SQUARES):
            move(f, "tileloadd64", plan.matrix, f.at(words, square * SQUARE_WORDS, "i32"), WORDS)
            meanwhile(square)
            for register in plan.vectors:
                factors = (register, plan.matrix) if own.are_left else (plan.matrix, register)
                f.call_void("llvm.x86.tdpbf16ps", constant(I8, square), *factors)

    def _words_of(self, buffer: IndexValue) -> Value:
        """Returns the address of the words of a step."""
        return self.f.at(self.words, self.f.multiply(buffer, SQUARES * SQUARE_WORDS), "i32")

    def prefetch(self, ahead: Ahead) -> None:
        """Prefetches as many weights as a pair of elements of K has."""
        e, f, axes = self.emitter, self.f, self.plan.operand
        bits = axes.bits_of_weights
        rows, lines = CACHE_LINE * 8 // bits, PIECE * bits // (CACHE_LINE * 8)
        for line in range(max(1, 2 * PANEL // rows)):
            at = f.add(f.multiply(ahead.pairs, max(1, 2 * PANEL // rows)), line)
            row = f.minimum(f.add(ahead.row, f.multiply(f.remainder(at, lines), rows)), axes.free.extent - 1)
            k = f.minimum(f.add(ahead.start, f.divide(at, lines)), axes.contracted.extent - 1)
            e.prefetch((axes.batch, self.matrix.batch), (axes.free, row), (axes.contracted, k), is_near=False)
