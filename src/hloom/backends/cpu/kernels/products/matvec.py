"""Matrix times vector as LLVM IR: the matrix is read once, in memory order.

If K is contiguous, a few rows at a time are multiplied by the vector, with several sums each (`_dot`). If M is
contiguous, a tile of the result stays in the L1 cache while a few columns at a time are added to it (`_axpy`). Either
way blocks of K are summed from zero, and their sums added up, so that no chain of additions is long (GEN-13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.sums import (
    MIN_GROUP_BLOCKS,
    addition,
    chain_length,
    move_sums,
    multiplication,
)
from hloom.lir import I64, PTR, IndexValue, Type, Value, constant
from hloom.target import L1_BYTES, Target

ROWS_PER_ITERATION = 4  # of `_dot`
UNROLL = 4  # vectors of each row in an iteration of `_dot`
COLUMNS_PER_ITERATION = 8  # of `_axpy`
TILE_BYTES = L1_BYTES // 4  # of the result
MIN_CHAIN_ITERATIONS = 64  # over K, whose products are added in one chain
MIN_TASK_BYTES = 128 << 10  # of the matrix


@dataclass(frozen=True)
class Matvec:
    """out[b, i] = sum over k of matrix[b, i, k] * vector[b, k]. `vector.row` and `out.row` are the distances of
    elements.
    """

    batch: int
    m: int
    k: int
    matrix: Matrix
    vector: Matrix
    out: Matrix
    batch_strides: tuple[int, int, int]

    @property
    def has_contiguous_rows(self) -> bool:
        """Whether elements of K are contiguous in the matrix and in the vector."""
        return self.matrix.column == 1 and (self.vector.row == 1 or self.k == 1)

    @property
    def is_streamed(self) -> bool:
        """Whether there is code for these distances."""
        paired = self.matrix.paired or self.vector.paired or self.out.paired
        return not paired and (self.has_contiguous_rows or self.matrix.row == 1)

    def shares(self, type: Type, target: Target) -> int:
        """Returns the number of tasks among which the rows of one product are divided."""
        parts = self.batch * self.m * self.k * size_of(type.element) // MIN_TASK_BYTES
        wanted = math.ceil(target.tasks(parts) / self.batch)
        return max(1, min(wanted, self.m // max(ROWS_PER_ITERATION, type.width)))

    def task(self, name: str, type: Type, shares: int) -> KernelFunction:
        """Returns `name(context, chunk)`: one share of the rows of one product; the context starts with the three
        pointers.
        """
        f = KernelFunction(name, context=PTR, chunk=I64)
        context, chunk = f.parameters
        batch_index, share = f.divide(chunk, shares), f.remainder(chunk, shares)
        pointers: list[Value] = []
        for i, part in enumerate((self.matrix, self.vector, self.out)):
            base = f.load(f.at(context, i, "i64"), PTR, 8)
            pointers.append(f.at(base, f.multiply(batch_index, self.batch_strides[i]), part.element))
        emit, unit = (self._dot, ROWS_PER_ITERATION) if self.has_contiguous_rows else (self._axpy, type.width)
        emit(f, type, pointers, *f.share(self.m, unit, shares, share))
        return f

    def _dot(self, f: KernelFunction, type: Type, pointers: list[Value], first: IndexValue, rows: IndexValue) -> None:
        matrix, vector, out = pointers
        with f.loop(rows, ROWS_PER_ITERATION) as loop:
            last = f.subtract(rows, 1)  # rows past the last one repeat it
            row_indices = [f.add(first, f.minimum(f.add(loop.index, i), last)) for i in range(ROWS_PER_ITERATION)]
            row_addresses = [f.at(matrix, f.multiply(row, self.matrix.row), self.matrix.element) for row in row_indices]
            for row, total in zip(row_indices, self._dots(f, type, row_addresses, vector), strict=True):
                f.store_as(total, f.at(out, f.multiply(row, self.out.row), self.out.element), self.out.type)

    def _dots(self, f: KernelFunction, type: Type, row_addresses: list[Value], vector: Value) -> list[Value]:
        """Returns the products of rows and the vector: whole iterations, then the remaining vectors, the last one
        masked.
        """
        count, width = len(row_addresses), type.width
        zeros = [constant(type, 0)] * (UNROLL * count)
        step = UNROLL * width
        whole, blocks = self.k // step * step, [step * iterations for iterations in _block_iterations(self.k // step)]
        sums, totals = [*zeros], _additive_identities(type, count)
        if blocks:
            totals = self._block_sums(f, row_addresses, vector, (0, whole), blocks, zeros)
        elif whole:
            sums = self._sum_iterations(f, row_addresses, vector, (0, whole), zeros)
        for j, at in enumerate(range(whole, self.k, width)):
            part = slice(j * count, (j + 1) * count)
            sums[part] = self._add_products(f, row_addresses, vector, at, self.k - at, sums[part])
        return [_horizontal_sum(f, _add_pairwise(f, total, *sums[i::count])) for i, total in enumerate(totals)]

    def _block_sums(
        self,
        f: KernelFunction,
        row_addresses: list[Value],
        vector: Value,
        part_of_k: tuple[IndexValue, IndexValue],
        blocks: list[int],
        zeros: list[Value],
    ) -> list[Value]:
        """Returns the sums over a part of K, a vector for each row: in blocks of the first size, and these in blocks of
        the next.
        """
        (first, end), count = part_of_k, len(row_addresses)
        with f.loop(end, blocks[0], _additive_identities(zeros[0].type, count), first) as loop:
            block = loop.index, f.minimum(f.add(loop.index, blocks[0]), end)
            if len(blocks) > 1:
                sums = self._block_sums(f, row_addresses, vector, block, blocks[1:], zeros)
            else:
                sums = self._sum_iterations(f, row_addresses, vector, block, zeros)
            loop.carried = [_add_pairwise(f, total, *sums[i::count]) for i, total in enumerate(loop.carried)]
        return loop.carried

    def _sum_iterations(
        self,
        f: KernelFunction,
        row_addresses: list[Value],
        vector: Value,
        part_of_k: tuple[IndexValue, IndexValue],
        sums: list[Value],
    ) -> list[Value]:
        """Adds the products of a part of K, an integral number of iterations, to the sums."""
        (first, end), count, width = part_of_k, len(row_addresses), sums[0].type.width
        with f.loop(end, UNROLL * width, sums, first) as loop:
            for j in range(UNROLL):
                part = slice(j * count, (j + 1) * count)
                start = f.add(loop.index, j * width)
                loop.carried[part] = self._add_products(f, row_addresses, vector, start, width, loop.carried[part])
        return loop.carried

    def _add_products(
        self, f: KernelFunction, row_addresses: list[Value], vector: Value, at: IndexValue, left: int, sums: list[Value]
    ) -> list[Value]:
        type = sums[0].type
        mask = f.first_lanes(left, type.width) if left < type.width else None
        factor = f.load_as(f.at(vector, at, self.vector.element), self.vector.type, type, mask)
        parts = [f.load_as(f.at(row, at, self.matrix.element), self.matrix.type, type, mask) for row in row_addresses]
        return [f.multiply_add(part, factor, total) for part, total in zip(parts, sums, strict=True)]

    def _axpy(self, f: KernelFunction, type: Type, pointers: list[Value], first: IndexValue, rows: IndexValue) -> None:
        max_rows = TILE_BYTES // size_of(type.element)
        whole = self.k // COLUMNS_PER_ITERATION * COLUMNS_PER_ITERATION
        block = COLUMNS_PER_ITERATION * chain_length(self.k // COLUMNS_PER_ITERATION, MIN_CHAIN_ITERATIONS)
        totals = f.slot(type.scalar, max_rows)
        tile = f.slot(type.scalar, max_rows) if whole > block else totals
        with f.loop(rows, max_rows) as part:
            start = f.add(first, part.index)
            tile_rows = f.minimum(max_rows, f.subtract(rows, part.index))
            with f.loop(tile_rows, type.width) as loop:
                for address in dict.fromkeys((totals, tile)):
                    f.store(constant(type, 0), f.at(address, loop.index, type.element), 64)
            matrix = f.at(pointers[0], start, self.matrix.element)
            if whole:
                with f.loop(whole, block) as blocks:
                    end = f.minimum(f.add(blocks.index, block), whole)
                    with f.loop(end, COLUMNS_PER_ITERATION, first=blocks.index) as columns:
                        self._add_columns(
                            f, type, matrix, pointers[1], tile, columns.index, COLUMNS_PER_ITERATION, tile_rows
                        )
                    if tile is not totals:
                        move_sums(f, type, tile, totals, tile_rows)
            if self.k > whole:
                self._add_columns(f, type, matrix, pointers[1], totals, whole, self.k - whole, tile_rows)
            out = f.at(pointers[2], f.multiply(start, self.out.row), self.out.element)
            self._store_tile(f, type, totals, out, tile_rows)

    def _add_columns(
        self,
        f: KernelFunction,
        type: Type,
        matrix: Value,
        vector: Value,
        tile: Value,
        first: IndexValue,
        count: int,
        rows: IndexValue,
    ) -> None:
        """Adds the sum of `count` columns from `first` on, each times its element of the vector, to the tile."""
        columns = [f.add(first, i) for i in range(count)]
        factors, lines = [], []
        for column in columns:
            pointer = f.at(vector, f.multiply(column, self.vector.row), self.vector.element)
            factors.append(f.splat(f.load_as(pointer, self.vector.type, type.scalar), type.width))
            lines.append(f.at(matrix, f.multiply(column, self.matrix.column), self.matrix.element))
        with f.loop(rows, type.width) as loop:
            address = f.at(tile, loop.index, type.element)
            mask = self._mask(f, type, rows, loop.index)
            parts = [
                f.load_as(f.at(line, loop.index, self.matrix.element), self.matrix.type, type, mask) for line in lines
            ]
            total = f.binary(multiplication(type), parts[0], factors[0])
            for part, factor in zip(parts[1:], factors[1:], strict=True):
                total = f.multiply_add(part, factor, total)
            f.store(_add_pairwise(f, f.load(address, type, 64), total), address, 64)

    def _store_tile(self, f: KernelFunction, type: Type, tile: Value, out: Value, rows: IndexValue) -> None:
        is_contiguous = self.out.row == 1
        step, part = (type.width, type) if is_contiguous else (1, type.scalar)
        with f.loop(rows, step) as loop:
            value = f.load(f.at(tile, loop.index, type.element), part, size_of(type.element))
            mask = self._mask(f, type, rows, loop.index) if is_contiguous else None
            f.store_as(value, f.at(out, f.multiply(loop.index, self.out.row), self.out.element), self.out.type, mask)

    def _mask(self, f: KernelFunction, type: Type, rows: IndexValue, at: IndexValue) -> Value | None:
        """Returns the lanes of a vector from `at` on that are rows; None if no vector ends past the last row."""
        return f.first_lanes(f.subtract(rows, at), type.width) if self.m % type.width else None


def _block_iterations(count: int) -> list[int]:
    """Returns the lengths of nested blocks of `count` iterations, outermost first; none if one chain suffices."""
    blocks = math.ceil(count / MIN_CHAIN_ITERATIONS)
    group = chain_length(blocks, MIN_GROUP_BLOCKS)
    if blocks <= 1:
        return []
    return [MIN_CHAIN_ITERATIONS * group, MIN_CHAIN_ITERATIONS] if blocks > group else [MIN_CHAIN_ITERATIONS]


def _additive_identities(type: Type, count: int) -> list[Value]:
    """Vectors of -0.0 or 0, the addition of which LLVM removes."""
    return [constant(type, -0.0 if type.is_float else 0)] * count


def _add_pairwise(f: KernelFunction, total: Value, *sums: Value) -> Value:
    """Adds sums to a total, after adding them in pairs."""
    add, rest = addition(total.type), [*sums]
    while len(rest) > 1:
        rest = [f.binary(add, a, b) for a, b in zip(rest[::2], rest[1::2], strict=True)]
    return f.binary(add, total, rest[0])


def _horizontal_sum(f: KernelFunction, vector: Value) -> Value:
    """The sum of all lanes."""
    scalar = vector.type.scalar
    if not scalar.is_float:
        return f.call(f"llvm.vector.reduce.add.{vector.type.suffix}", scalar, vector)
    return f.call(
        f"llvm.vector.reduce.fadd.{vector.type.suffix}", scalar, constant(scalar, -0.0), vector, flags="reassoc"
    )
