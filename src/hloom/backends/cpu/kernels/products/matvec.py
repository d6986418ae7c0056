"""Matrix times vector as LLVM IR: the matrix is read once, in the order in which it lies in memory.

Where K is contiguous, a few rows at a time are multiplied by the vector, with several sums each (`_dot`). Where M is
contiguous, a strip of the result stays in the L1 cache while a few columns at a time are added to it (`_axpy`). Either
way blocks of K are summed from zero, and their sums added up, so that no chain of additions is long (GEN-13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.sums import (
    GROUP_BLOCKS,
    addition,
    chain_length,
    move_sums,
    multiplication,
)
from hloom.backends.cpu.llvm.function import Function, size_of
from hloom.backends.cpu.llvm.text import I64, PTR, Index, Type, Value, constant

ROWS_AT_ONCE = 4  # of `_dot`
UNROLL = 4  # vectors of each row in a round of `_dot`
COLUMNS_AT_ONCE = 8  # of `_axpy`
STRIP_BYTES = 8 << 10  # of the result
BLOCK_ROUNDS = 64  # of K that are added up in one chain, at least
TASK_BYTES = 128 << 10  # of the matrix that are worth a task


@dataclass(frozen=True)
class Matvec:
    """out[b, i] = sum over k of matrix[b, i, k] * vector[b, k]: `vector.row` and `out.row` are the distances."""

    batch: int
    m: int
    k: int
    matrix: Matrix
    vector: Matrix
    out: Matrix
    batch_strides: tuple[int, int, int]

    @property
    def has_contiguous_rows(self) -> bool:
        return self.matrix.column == 1 and (self.vector.row == 1 or self.k == 1)

    @property
    def is_streamed(self) -> bool:
        """Whether there is code for these distances."""
        paired = self.matrix.paired or self.vector.paired or self.out.paired
        return not paired and (self.has_contiguous_rows or self.matrix.row == 1)

    def shares(self, type: Type, threads: int) -> int:
        """Into how many tasks the rows of one product are divided."""
        work = self.batch * self.m * self.k * size_of(type.element) // TASK_BYTES
        wanted = math.ceil(min(work, 4 * threads) / self.batch) if threads > 1 else 1
        return max(1, min(wanted, self.m // max(ROWS_AT_ONCE, type.width)))

    def task(self, name: str, type: Type, shares: int) -> Function:
        """`name(context, chunk)`: one share of the rows of one product; the context starts with the three pointers."""
        f = Function(name, context=PTR, chunk=I64)
        context, chunk = f.parameters
        number, share = f.divide(chunk, shares), f.remainder(chunk, shares)
        pointers: list[Value] = []
        for i, part in enumerate((self.matrix, self.vector, self.out)):
            base = f.load(f.at(context, i, "i64"), PTR, 8)
            pointers.append(f.at(base, f.multiply(number, self.batch_strides[i]), part.element))
        write, unit = (self._dot, ROWS_AT_ONCE) if self.has_contiguous_rows else (self._axpy, type.width)
        write(f, type, pointers, *f.share(self.m, unit, shares, share))
        return f

    def _dot(self, f: Function, type: Type, pointers: list[Value], first: Index, rows: Index) -> None:
        matrix, vector, out = pointers
        with f.loop(rows, ROWS_AT_ONCE) as loop:
            last = f.subtract(rows, 1)  # rows past the last repeat it
            numbers = [f.add(first, f.minimum(f.add(loop.index, i), last)) for i in range(ROWS_AT_ONCE)]
            lines = [f.at(matrix, f.multiply(row, self.matrix.row), self.matrix.element) for row in numbers]
            for row, total in zip(numbers, self._dots(f, type, lines, vector), strict=True):
                f.store_as(total, f.at(out, f.multiply(row, self.out.row), self.out.element), self.out.type)

    def _dots(self, f: Function, type: Type, lines: list[Value], vector: Value) -> list[Value]:
        """The products of rows and the vector: whole rounds, then the vectors that are left, the last one masked."""
        count, width = len(lines), type.width
        zeros = [constant(type, 0)] * (UNROLL * count)
        step = UNROLL * width
        whole, blocks = self.k // step * step, [step * rounds for rounds in _block_rounds(self.k // step)]
        sums, totals = [*zeros], _nothing(type, count)
        if blocks:
            totals = self._block_sums(f, lines, vector, (0, whole), blocks, zeros)
        elif whole:
            sums = self._rounds(f, lines, vector, (0, whole), zeros)
        for j, at in enumerate(range(whole, self.k, width)):
            part = slice(j * count, (j + 1) * count)
            sums[part] = self._add_products(f, lines, vector, at, self.k - at, sums[part])
        return [_total(f, _sum(f, total, *sums[i::count])) for i, total in enumerate(totals)]

    def _block_sums(
        self,
        f: Function,
        lines: list[Value],
        vector: Value,
        part_of_k: tuple[Index, Index],
        blocks: list[int],
        zeros: list[Value],
    ) -> list[Value]:
        """The sums over a part of K, a vector for each row: of blocks of the first size, and these of the next ones."""
        (first, end), count = part_of_k, len(lines)
        with f.loop(end, blocks[0], _nothing(zeros[0].type, count), first) as loop:
            block = loop.index, f.minimum(f.add(loop.index, blocks[0]), end)
            if len(blocks) > 1:
                found = self._block_sums(f, lines, vector, block, blocks[1:], zeros)
            else:
                found = self._rounds(f, lines, vector, block, zeros)
            loop.carried = [_sum(f, total, *found[i::count]) for i, total in enumerate(loop.carried)]
        return loop.carried

    def _rounds(
        self, f: Function, lines: list[Value], vector: Value, part_of_k: tuple[Index, Index], sums: list[Value]
    ) -> list[Value]:
        """Sums with the products of a part of K added, a whole number of steps."""
        (first, end), count, width = part_of_k, len(lines), sums[0].type.width
        with f.loop(end, UNROLL * width, sums, first) as loop:
            for j in range(UNROLL):
                part = slice(j * count, (j + 1) * count)
                at = f.add(loop.index, j * width)
                loop.carried[part] = self._add_products(f, lines, vector, at, width, loop.carried[part])
        return loop.carried

    def _add_products(
        self, f: Function, lines: list[Value], vector: Value, at: Index, left: int, sums: list[Value]
    ) -> list[Value]:
        type = sums[0].type
        mask = f.first_lanes(left, type.width) if left < type.width else None
        factor = f.load_as(f.at(vector, at, self.vector.element), self.vector.type, type, mask)
        parts = [f.load_as(f.at(line, at, self.matrix.element), self.matrix.type, type, mask) for line in lines]
        return [f.multiply_add(part, factor, total) for part, total in zip(parts, sums, strict=True)]

    def _axpy(self, f: Function, type: Type, pointers: list[Value], first: Index, rows: Index) -> None:
        length = STRIP_BYTES // size_of(type.element)
        whole = self.k // COLUMNS_AT_ONCE * COLUMNS_AT_ONCE
        block = COLUMNS_AT_ONCE * chain_length(self.k // COLUMNS_AT_ONCE, BLOCK_ROUNDS)
        totals = f.slot(type.scalar, length)
        strip = f.slot(type.scalar, length) if whole > block else totals
        with f.loop(rows, length) as part:
            start = f.add(first, part.index)
            here = f.minimum(length, f.subtract(rows, part.index))
            with f.loop(here, type.width) as loop:
                for place in dict.fromkeys((totals, strip)):
                    f.store(constant(type, 0), f.at(place, loop.index, type.element), 64)
            matrix = f.at(pointers[0], start, self.matrix.element)
            if whole:
                with f.loop(whole, block) as blocks:
                    end = f.minimum(f.add(blocks.index, block), whole)
                    with f.loop(end, COLUMNS_AT_ONCE, first=blocks.index) as columns:
                        self._add_columns(f, type, matrix, pointers[1], strip, columns.index, COLUMNS_AT_ONCE, here)
                    if strip is not totals:
                        move_sums(f, type, strip, totals, here)
            if self.k > whole:
                self._add_columns(f, type, matrix, pointers[1], totals, whole, self.k - whole, here)
            out = f.at(pointers[2], f.multiply(start, self.out.row), self.out.element)
            self._store_strip(f, type, totals, out, here)

    def _add_columns(
        self, f: Function, type: Type, matrix: Value, vector: Value, strip: Value, first: Index, count: int, rows: Index
    ) -> None:
        """Adds the sum of `count` columns from `first` on, each times its element of the vector, to the strip."""
        columns = [f.add(first, i) for i in range(count)]
        factors, lines = [], []
        for column in columns:
            pointer = f.at(vector, f.multiply(column, self.vector.row), self.vector.element)
            factors.append(f.splat(f.load_as(pointer, self.vector.type, type.scalar), type.width))
            lines.append(f.at(matrix, f.multiply(column, self.matrix.column), self.matrix.element))
        with f.loop(rows, type.width) as loop:
            place = f.at(strip, loop.index, type.element)
            mask = self._mask(f, type, rows, loop.index)
            parts = [
                f.load_as(f.at(line, loop.index, self.matrix.element), self.matrix.type, type, mask) for line in lines
            ]
            total = f.binary(multiplication(type), parts[0], factors[0])
            for part, factor in zip(parts[1:], factors[1:], strict=True):
                total = f.multiply_add(part, factor, total)
            f.store(_sum(f, f.load(place, type, 64), total), place, 64)

    def _store_strip(self, f: Function, type: Type, strip: Value, out: Value, rows: Index) -> None:
        contiguous = self.out.row == 1
        step, part = (type.width, type) if contiguous else (1, type.scalar)
        with f.loop(rows, step) as loop:
            value = f.load(f.at(strip, loop.index, type.element), part, size_of(type.element))
            mask = self._mask(f, type, rows, loop.index) if contiguous else None
            f.store_as(value, f.at(out, f.multiply(loop.index, self.out.row), self.out.element), self.out.type, mask)

    def _mask(self, f: Function, type: Type, rows: Index, at: Index) -> Value | None:
        """The lanes of a vector from `at` on that are rows; None where vectors never end past the last row."""
        return f.first_lanes(f.subtract(rows, at), type.width) if self.m % type.width else None


def _block_rounds(count: int) -> list[int]:
    """How many of `count` steps groups of blocks and blocks have: no groups of few blocks, no blocks of few steps."""
    blocks = math.ceil(count / BLOCK_ROUNDS)
    group = chain_length(blocks, GROUP_BLOCKS)
    if blocks <= 1:
        return []
    return [BLOCK_ROUNDS * group, BLOCK_ROUNDS] if blocks > group else [BLOCK_ROUNDS]


def _nothing(type: Type, count: int) -> list[Value]:
    """Vectors to add to which LLVM knows to change nothing."""
    return [constant(type, -0.0 if type.is_float else 0)] * count


def _sum(f: Function, total: Value, *sums: Value) -> Value:
    """A total and the sums, these added in pairs first."""
    add, rest = addition(total.type), [*sums]
    while len(rest) > 1:
        rest = [f.binary(add, a, b) for a, b in zip(rest[::2], rest[1::2], strict=True)]
    return f.binary(add, total, rest[0])


def _total(f: Function, vector: Value) -> Value:
    """The sum of all lanes."""
    scalar = vector.type.scalar
    if not scalar.is_float:
        return f.call(f"llvm.vector.reduce.add.{vector.type.suffix}", scalar, vector)
    return f.call(
        f"llvm.vector.reduce.fadd.{vector.type.suffix}", scalar, constant(scalar, -0.0), vector, flags="reassoc"
    )
