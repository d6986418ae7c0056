"""Access to a matrix that is read once, as vectors along a row or along several adjacent columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import field

from hloom.backends.cpu.elements.memory import interleaved
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter, Resume, Shared
from hloom.backends.cpu.kernels.products.dot_instructions import DotInstruction
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.matvec.byte_codes import BYTES_OF_WORD, ByteCodes
from hloom.backends.cpu.kernels.products.sums import addition, multiplication
from hloom.lir import IndexValue, Type, Value, constant, type_of
from hloom.system.records import record

Load = Callable[[IndexValue, Value | None], list[Value]]
"""Loads adjacent vectors of a row, from a column on; lanes outside the mask, which is one of all, are zero."""
Columns = Callable[[IndexValue, Value | None], Iterator[list[Value]]]
"""Loads adjacent vectors of each of several columns, one column after the other, from a row on."""


@record
class Row:
    """Access to a row whose elements are contiguous. `prefetch` is that of an element of a later row."""

    load: Load
    prefetch: Callable[[IndexValue], None] = lambda at: None


class StreamedMatrix(ABC):
    """A matrix of a batch."""

    @property
    def parts(self) -> int:
        """Number of vectors that are loaded together."""
        return 1

    @property
    def order(self) -> Sequence[int] | None:
        """Indices of adjacent elements of a row, one for each lane of a vector; None if they are in order."""
        return None

    @abstractmethod
    def row(self, row: IndexValue, ahead: int = 0) -> Row:
        """Returns access to a row whose elements are contiguous; one that is `ahead` rows later is prefetched."""

    def within(self, rows: Sequence[Row], first: IndexValue, last: IndexValue, most: int) -> Sequence[Row]:
        """Returns access to a part of rows, of which all elements are read: at most `most` columns from `first` to
        `last` (excluded).
        """
        return rows

    @property
    def group(self) -> int:
        """Columns that `in_group` reads faster; 0 if there are no groups."""
        return 0

    def in_group(self, rows: Sequence[Row], at: IndexValue) -> Sequence[Row]:
        """Returns access to the elements of rows in the group of a column."""
        return rows

    @abstractmethod
    def columns(self, first: IndexValue, count: int) -> Columns:
        """Returns access to adjacent columns, each of contiguous elements."""

    def scaled(self, sums: Value, row: IndexValue, mask: Value | None) -> Value:
        """Returns sums, of one row or of as many rows as they have lanes, times the factors of the rows."""
        return sums


@record
class StoredMatrix(StreamedMatrix):
    """A matrix in memory; its columns may be words of several elements of K."""

    f: KernelFunction
    type: Type
    matrix: Matrix
    base: Value

    @property
    def parts(self) -> int:
        return parts_of(self.matrix)

    def row(self, row: IndexValue, ahead: int = 0) -> Row:
        f, matrix = self.f, self.matrix
        line = f.at(self.base, f.multiply(row, matrix.row), matrix.element)

        def load(at: IndexValue, mask: Value | None) -> list[Value]:
            address = f.at(line, f.multiply(at, matrix.column), matrix.element)
            words = matrix.words
            if words is None:
                return [f.load_as(address, matrix.type, self.type, mask)]
            left = matrix.elements_left(f, 0, at) if mask is not None or words.is_ragged else None
            return [matrix.load_steps(f, address, self.type, left)]

        return Row(load)

    def columns(self, first: IndexValue, count: int) -> Columns:
        f, matrix = self.f, self.matrix
        indices = [f.add(first, i) for i in range(count)]
        if matrix.words is not None:
            words = [self._column_of_words(column) for column in indices]
            return lambda at, mask: (load(at, mask) for load in words)
        lines = [f.at(self.base, f.multiply(column, matrix.column), matrix.element) for column in indices]
        return lambda at, mask: (
            [f.load_as(f.at(line, at, matrix.element), matrix.type, self.type, mask)] for line in lines
        )

    def _column_of_words(self, column: IndexValue) -> Load:
        """Returns access to the words of a column; elements past the last one repeat it."""
        f, matrix, words = self.f, self.matrix, self.matrix.words
        assert words is not None
        start = f.multiply(column, words.count)
        indices = [f.minimum(f.add(start, i), words.total - 1) for i in range(words.count)]
        lines = [f.at(self.base, f.multiply(index, words.distance), matrix.element) for index in indices]
        lanes = self.parts * self.type.width

        def load(at: IndexValue, mask: Value | None) -> list[Value]:
            element = type_of(f"i{words.bits}", lanes)
            pointers = [f.at(line, at, matrix.element) for line in lines]
            elements = [f.load_as(pointer, matrix.type, element, mask) for pointer in pointers]
            whole = matrix.finished(f, _words_of(f, elements), type_of("i32", lanes))
            width = self.type.width
            return [f.shuffle(whole, None, range(k, k + width)) for k in range(0, lanes, width)]

        return load


def parts_of(matrix: Matrix) -> int:
    """Returns the number of vectors of words that are loaded together: those of whole vectors along columns."""
    words = matrix.words
    return 1 if words is None or words.distance == 1 else words.count


def _words_of(f: KernelFunction, elements: list[Value]) -> Value:
    """Returns words of the elements of several vectors."""
    while len(elements) > 1:
        type = elements[0].type
        wide = type_of(f"i{2 * type.bits}", type.width)
        elements = [f.bitcast(interleaved(f, *pair), wide) for pair in zip(elements[::2], elements[1::2], strict=True)]
    return elements[0]


@record
class ComputedRow(Row):
    """Access to a row of a computed operand, the context in which its index is bound, and what its groups share."""

    resume: Resume = nullcontext
    shared: Shared = field(default_factory=dict)


@record
class ComputedMatrix(StreamedMatrix):
    """A matrix whose rows are the free, and whose columns the contracted indices of a computed operand."""

    emitter: OperandEmitter
    batch: IndexValue

    @property
    def parts(self) -> int:
        return self.emitter.parts

    @property
    def order(self) -> Sequence[int] | None:
        return self.emitter.order

    def row(self, row: IndexValue, ahead: int = 0) -> ComputedRow:
        e, axes, f = self.emitter, self.emitter.operand, self.emitter.f
        with e.at(axes.batch, self.batch), e.at(axes.free, row):
            resume = e.held()
        later = f.minimum(f.add(row, ahead), axes.free.extent - 1)  # must exist: indices of gathered weights are read

        def prefetch(at: IndexValue) -> None:
            if axes.is_in_memory:
                e.prefetch((axes.batch, self.batch), (axes.free, later), (axes.contracted, at))

        return self._row(resume, prefetch, {})

    def _row(self, resume: Resume, prefetch: Callable[[IndexValue], None], shared: Shared) -> ComputedRow:
        def load(at: IndexValue, mask: Value | None) -> list[Value]:
            e, contracted = self.emitter, self.emitter.operand.contracted
            with resume(), e.sharing(shared), e.lanes_along(contracted, mask):
                (found,) = e.elements(contracted, at, 1)
            return found

        return ComputedRow(load, prefetch, resume, shared)

    def words(self, row: ComputedRow, at: IndexValue, count: int) -> list[Value]:
        """Returns adjacent elements of a row as bf16 (i16) (`OperandEmitter.words`)."""
        with row.resume():
            return self.emitter.words(at, count)

    def bytes(self, row: ComputedRow, at: IndexValue, codes: ByteCodes, offset: int = 0) -> list[Value]:
        """Returns the words of a block of codes from an element of K on, larger by an offset."""
        with row.resume():
            values = [value + offset for value in codes.values]
            return self.emitter.bytes(at, codes.left(self.emitter.f, at), values, codes.halves)

    def factors(self, row: ComputedRow, at: IndexValue, count: int) -> Value:
        """Returns the factors of `count` groups of a row, the first of which has the element of K, in a vector."""
        with row.resume():
            return self.emitter.factors(self.emitter.f.divide(at, self.emitter.operand.contracted.size), count)

    def within(self, rows: Sequence[Row], first: IndexValue, last: IndexValue, most: int) -> Sequence[Row]:
        if not self.emitter.operand.of_groups:
            return rows
        computed = [row for row in rows if isinstance(row, ComputedRow)]
        shared = self.emitter.shared_values([row.resume for row in computed], first, last, most)
        return [self._row(row.resume, row.prefetch, own) for row, own in zip(computed, shared, strict=True)]

    @property
    def group(self) -> int:
        return self.emitter.operand.contracted.size if self.order is not None else 0

    def in_group(self, rows: Sequence[Row], at: IndexValue) -> Sequence[ComputedRow]:
        computed = [row for row in rows if isinstance(row, ComputedRow)]
        contexts = [self.emitter.with_table(row.resume, row.shared, at) for row in computed]
        return [self._row(own, row.prefetch, row.shared) for own, row in zip(contexts, computed, strict=True)]

    def columns(self, first: IndexValue, count: int) -> Columns:
        def load(at: IndexValue, mask: Value | None) -> Iterator[list[Value]]:
            e, axes = self.emitter, self.emitter.operand
            with e.lanes_along(axes.free, mask), e.at(axes.batch, self.batch), e.at(axes.free, at):
                yield from e.elements(axes.contracted, first, count)

        return load

    def scaled(self, sums: Value, row: IndexValue, mask: Value | None) -> Value:
        e, axes, lanes = self.emitter, self.emitter.operand, sums.type.width
        if axes.factor is None:
            return sums
        along_rows = e.lanes_along(axes.free, mask, lanes) if lanes else nullcontext()
        with along_rows, e.at(axes.batch, self.batch), e.at(axes.free, row):
            factor = e.factor(lanes)
        return e.f.fmuladd(sums, factor, constant(sums.type, 0))  # sums of zeros are not negative


@record
class MatrixOfCodes(ComputedMatrix):
    """A matrix of codes as words of bytes, in which columns are counted."""

    codes: ByteCodes

    @property
    def parts(self) -> int:
        return len(self.codes.halves)

    def _row(self, resume: Resume, prefetch: Callable[[IndexValue], None], shared: Shared) -> ComputedRow:
        def element(at: IndexValue) -> IndexValue:
            return self.emitter.f.multiply(at, BYTES_OF_WORD)

        def load(at: IndexValue, mask: Value | None) -> list[Value]:
            return self.bytes(row, element(at), self.codes, self.codes.offset)

        row = ComputedRow(load, lambda at: prefetch(element(at)), resume, shared)
        return row


@record
class Vectors:
    """Memory of the vectors that a matrix is multiplied by, and of the result, in a task.

    The vectors of words of an `instruction` may have `corrections`, which are added to their sums.
    """

    f: KernelFunction
    vectors: Matrix
    base: Value
    out: Matrix
    target: Value
    instruction: DotInstruction | None = None
    corrections: Sequence[Value] = ()

    def plus_product(self, part: Value, factor: Value, total: Value | None) -> Value:
        """Returns a sum with products of elements of the matrix and of a vector added; without one, these products."""
        f = self.f
        if self.instruction is not None:
            return self.instruction.multiply_add(f, part, factor, constant(part.type, 0) if total is None else total)
        if total is None:
            return f.binary(multiplication(part.type), part, factor)
        return f.multiply_add(part, factor, total)

    def store(self, total: Value, row: IndexValue, vector: int, mask: Value | None = None) -> None:
        """Stores sums, of one row or of as many rows as they have lanes, to the result."""
        f = self.f
        if self.corrections:
            correction = self.corrections[vector]
            width = total.type.width
            total = f.binary(addition(total.type), total, f.splat(correction, width) if width else correction)
        f.store_as(total, self.target_address(row, vector), self.out.type, mask)

    def address(self, at: IndexValue, vector: int) -> Value:
        """Returns the address of an element of a vector."""
        f = self.f
        return f.at(
            self.base, f.add(f.multiply(at, self.vectors.row), vector * self.vectors.column), self.vectors.element
        )

    def target_address(self, row: IndexValue, vector: int) -> Value:
        """Returns the address of an element of the result."""
        f = self.f
        return f.at(self.target, f.add(f.multiply(row, self.out.row), vector * self.out.column), self.out.element)
