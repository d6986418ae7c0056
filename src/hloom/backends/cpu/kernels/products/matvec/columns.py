"""Sums of the columns of a matrix, each times its elements of a few vectors.

A task adds up the columns of one block of K, a few at a time, in a tile that stays in the cache, and another task adds
the sums of the blocks. The rows of a task are many, because memory is read faster in long pieces.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import StreamedMatrix, Vectors
from hloom.backends.cpu.kernels.products.sums import add_pairwise, addition, chain_length
from hloom.lir import IndexValue, Type, Value, constant
from hloom.system.records import record
from hloom.target import L1_BYTES, align_up

ELEMENTS_PER_ITERATION = 8  # of K: as many lines of memory are read side by side
MAX_TOTALS = 8  # vectors of sums, in 16 registers, of columns that are loaded one by one
TILE_BYTES = L1_BYTES // 2  # of the sums
MIN_CHAIN_ITERATIONS = 64  # over K, whose products are added in one chain


@record
class ColumnSums:
    """Plan of a product with `m` rows and `count` vectors of `k` elements, in vectors of `type`.

    The sums of a block of K are vectors of rows, with one for each of the product's vectors side by side. The matrix
    is read `lanes` rows at a time; a column has `per_column` elements of K.
    """

    m: int
    k: int
    count: int
    type: Type
    lanes: int
    per_column: int = 1

    @property
    def step(self) -> int:
        """Columns of an iteration."""
        return max(1, ELEMENTS_PER_ITERATION // self.per_column)

    @property
    def block(self) -> int:
        """Columns of a block of K."""
        return self.step * chain_length(self.k // self.step, MIN_CHAIN_ITERATIONS)

    @property
    def whole(self) -> int:
        """Columns of whole iterations; the others belong to the last block."""
        return self.k // self.step * self.step

    @property
    def blocks(self) -> int:
        """Number of blocks of K."""
        return max(1, math.ceil(self.whole / self.block))

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return max(TILE_BYTES // size_of(self.type.element) // self.count // self.lanes, 1) * self.lanes

    @property
    def sums(self) -> int:
        """Sums of one block of K."""
        return align_up(self.m, self.lanes) * self.count

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the sums of all blocks of one product; 0 if there is one block."""
        return self.blocks * self.sums * size_of(self.type.element) if self.blocks > 1 else 0

    def shares(self, wanted: int) -> int:
        """Returns among how many tasks to divide the rows of a block of K, for a number of tasks in all."""
        return max(1, min(math.ceil(wanted / self.blocks), math.ceil(self.m / self.tile_rows)))


@record
class BlockOfColumns:
    """Writes the sums of one block of K for a share of the rows: to the result, or as sums of the block."""

    plan: ColumnSums
    matrix: StreamedMatrix
    work: Vectors
    sums: Value

    def emit(self, block: IndexValue, first: IndexValue, count: IndexValue) -> None:
        """Writes the sums of `count` rows from `first` on, in tiles."""
        f, plan, type = self.work.f, self.plan, self.plan.type
        size = plan.tile_rows * plan.count
        tile = f.slot(type.scalar, size)
        with f.loop(count, plan.tile_rows) as part:
            start = f.add(first, part.index)
            rows = f.minimum(plan.tile_rows, f.subtract(count, part.index))
            set_to_zero(f, type, tile, size)
            for_columns(f, plan, block, lambda column, count: self.add_columns(tile, column, count, start, rows))
            self.finish(tile, block, start, rows)

    def finish(self, tile: Value, block: IndexValue, start: IndexValue, rows: IndexValue) -> None:
        """Writes the sums in a tile."""
        if self.plan.blocks > 1:
            self._keep(tile, block, start, rows)
        else:
            sums = functools.partial(self._sums, tile)
            store_sums(self.plan, self.matrix, self.work, sums, start, rows)

    def add_columns(self, tile: Value, first: IndexValue, count: int, start: IndexValue, rows: IndexValue) -> None:
        """Adds the sums of `count` columns from `first` on, each times its elements of the vectors, to the tile."""
        f, work, type = self.work.f, self.work, self.plan.type
        factors = [
            [f.load_as(work.address(f.add(first, i), vector), work.vectors.type, type.scalar) for i in range(count)]
            for vector in range(self.plan.count)
        ]
        columns = self.matrix.columns(first, count)
        with f.loop(rows, self.plan.lanes) as loop:
            loaded = columns(f.add(start, loop.index), mask_of(self.plan, f, rows, loop.index, self.plan.lanes))
            parts = self.plan.lanes // type.width
            if parts * self.plan.count <= MAX_TOTALS and type.width * type.bits < 512:
                totals = self._products(loaded, factors, range(parts))
            else:
                held, each = [*loaded], ((j, [own]) for j in range(parts) for own in factors)
                totals = (total for j, own in each for total in self._products(held, own, [j]))
            for i, total in enumerate(totals):
                j, vector = divmod(i, self.plan.count)
                address = self._address(tile, f.add(loop.index, j * type.width), vector)
                f.store(add_pairwise(f, f.load(address, type, 64), total), address, 64)

    def _products(
        self, columns: Iterable[list[Value]], factors: list[list[Value]], parts: Sequence[int]
    ) -> Iterator[Value]:
        """Returns the sums of products of parts of columns and their factors, by part and vector."""
        f, totals = self.work.f, dict[tuple[int, int], Value]()
        for i, column in enumerate(columns):
            for j in parts:
                for vector, own in enumerate(factors):
                    factor = f.splat(own[i], self.plan.type.width)
                    totals[j, vector] = self.work.plus_product(column[j], factor, totals.get((j, vector)))
        return iter(totals.values())

    def _address(self, base: Value, row: IndexValue, vector: int) -> Value:
        """Returns the address of a vector of sums."""
        f, plan = self.work.f, self.plan
        return f.at(base, f.add(f.multiply(row, plan.count), vector * plan.type.width), plan.type.element)

    def _sums(self, tile: Value, at: IndexValue, vector: int) -> Value:
        return self.work.f.load(self._address(tile, at, vector), self.plan.type, 64)

    def _keep(self, tile: Value, block: IndexValue, start: IndexValue, rows: IndexValue) -> None:
        """Copies the tile to the sums of the block."""
        f, plan, type = self.work.f, self.plan, self.plan.type
        target = f.at(self.sums, f.add(f.multiply(block, plan.sums), f.multiply(start, plan.count)), type.element)
        vectors = f.multiply(f.ceil_divide(rows, type.width), plan.count)
        with f.loop(f.multiply(vectors, type.width), type.width) as loop:
            value = f.load(f.at(tile, loop.index, type.element), type, 64)
            f.store(value, f.at(target, loop.index, type.element), 64)


def emit_side_by_side(
    f: KernelFunction,
    plan: ColumnSums,
    batch: int,
    of_product: Callable[[IndexValue], BlockOfColumns],
    block: IndexValue,
) -> None:
    """Writes the sums of one block of K for all products of a batch, whose columns alternate in memory."""
    type = plan.type
    tiles = f.slot(type.scalar, batch * plan.sums)

    def tile(product: IndexValue) -> Value:
        return f.at(tiles, f.multiply(product, plan.sums), type.element)

    def add(column: IndexValue, count: int) -> None:
        with f.loop(batch) as product:
            of_product(product.index).add_columns(tile(product.index), column, count, 0, plan.m)

    set_to_zero(f, type, tiles, batch * plan.sums)
    for_columns(f, plan, block, add)
    with f.loop(batch) as product:
        of_product(product.index).finish(tile(product.index), block, 0, plan.m)


def set_to_zero(f: KernelFunction, type: Type, sums: Value, count: int) -> None:
    """Sets sums to zero, in vectors of a type."""
    with f.loop(count, type.width) as loop:
        f.store(constant(type, 0), f.at(sums, loop.index, type.element), 64)


def for_columns(f: KernelFunction, plan: ColumnSums, block: IndexValue, add: Callable[[IndexValue, int], None]) -> None:
    """Writes the loop over a block of K, which calls `add(column, count)`; the last block has the remaining columns."""
    whole = plan.whole
    if whole:
        first = f.multiply(block, plan.block)
        end = f.minimum(f.add(first, plan.block), whole)
        with f.loop(end, plan.step, first=first) as columns:
            add(columns.index, plan.step)
    if plan.k > whole:
        is_last = f.compare("eq", f.index(block), f.index(plan.blocks - 1)) if plan.blocks > 1 else None
        with f.when(is_last):
            add(whole, plan.k - whole)


def store_sums(
    plan: ColumnSums,
    matrix: StreamedMatrix,
    work: Vectors,
    sums: Callable[[IndexValue, int], Value],
    start: IndexValue,
    rows: IndexValue,
) -> None:
    """Stores `sums(row, vector)`, of rows counted from `start` on, to the result."""
    f, type = work.f, plan.type
    with f.loop(rows, type.width) as loop:
        mask = mask_of(plan, f, rows, loop.index, type.width)
        for vector in range(plan.count):
            value = matrix.scaled(sums(loop.index, vector), f.add(start, loop.index), mask)
            if work.out.row == 1:
                work.store(value, f.add(start, loop.index), vector, mask)
                continue
            left = f.minimum(f.subtract(rows, loop.index), type.width)
            stored = f.slot(type, 1)
            f.store(value, stored, 64)
            with f.loop(left) as lane:
                one = f.load(f.at(stored, lane.index, type.element), type.scalar, size_of(type.element))
                work.store(one, f.add(f.add(start, loop.index), lane.index), vector)


def add_blocks(
    plan: ColumnSums, matrix: StreamedMatrix, work: Vectors, sums: Value, first: IndexValue, count: IndexValue
) -> None:
    """Writes the sums over all blocks of `count` rows from `first` on to the result."""
    f, type = work.f, plan.type

    def total(at: IndexValue, vector: int) -> Value:
        row = f.multiply(f.add(first, at), plan.count)
        own = f.at(sums, f.add(row, vector * type.width), type.element)
        start = f.load(own, type, 64)
        with f.loop(plan.blocks, carried=[start], first=1) as block:
            value = f.load(f.at(own, f.multiply(block.index, plan.sums), type.element), type, 64)
            block.carried = [f.binary(addition(type), block.carried[0], value)]
        return block.carried[0]

    store_sums(plan, matrix, work, total, first, count)


def mask_of(plan: ColumnSums, f: KernelFunction, rows: IndexValue, at: IndexValue, lanes: int) -> Value | None:
    """Returns which of some lanes from `at` on are rows; None if none are past the last row."""
    return f.first_lanes(f.subtract(rows, at), lanes) if plan.m % lanes else None
