"""Sums of the columns of a matrix, each times its elements of a few vectors: a tile of the result stays in the L1 cache
while a few columns at a time are added to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hloom.backends.cpu.kernels.kernel_function import size_of
from hloom.backends.cpu.kernels.products.streamed_matrix import StreamedMatrix, Vectors
from hloom.backends.cpu.kernels.products.sums import add_pairwise, chain_length, move_sums, multiplication
from hloom.lir import IndexValue, Value, constant
from hloom.target import L1_BYTES

COLUMNS_PER_ITERATION = 8
TILE_BYTES = L1_BYTES // 4  # of the result
MIN_CHAIN_ITERATIONS = 64  # over K, whose products are added in one chain


@dataclass(frozen=True)
class ColumnSums:
    """Writes the loops over tiles of rows and over K; with `is_ragged` the last vector of rows is not full."""

    matrix: StreamedMatrix
    work: Vectors
    is_ragged: bool

    @property
    def tile_rows(self) -> int:
        """Rows of a tile, which has a line of sums for each vector."""
        type = self.work.type
        return max(TILE_BYTES // size_of(type.element) // self.work.count // type.width, 1) * type.width

    def emit(self, first: IndexValue, count: IndexValue) -> None:
        """Writes the sums of `count` rows from `first` on."""
        f, work, type, k = self.work.f, self.work, self.work.type, self.work.k
        whole = k // COLUMNS_PER_ITERATION * COLUMNS_PER_ITERATION
        block = COLUMNS_PER_ITERATION * chain_length(k // COLUMNS_PER_ITERATION, MIN_CHAIN_ITERATIONS)
        size = self.tile_rows * work.count
        totals = f.slot(type.scalar, size)
        tile = f.slot(type.scalar, size) if whole > block else totals
        with f.loop(count, self.tile_rows) as part:
            start = f.add(first, part.index)
            rows = f.minimum(self.tile_rows, f.subtract(count, part.index))
            with f.loop(size, type.width) as loop:
                for address in dict.fromkeys((totals, tile)):
                    f.store(constant(type, 0), f.at(address, loop.index, type.element), 64)
            if whole:
                with f.loop(whole, block) as blocks:
                    end = f.minimum(f.add(blocks.index, block), whole)
                    with f.loop(end, COLUMNS_PER_ITERATION, first=blocks.index) as columns:
                        self._add_columns(tile, columns.index, COLUMNS_PER_ITERATION, start, rows)
                    if tile is not totals:
                        move_sums(f, type, tile, totals, size)
            if k > whole:
                self._add_columns(totals, whole, k - whole, start, rows)
            self._store_tile(totals, start, rows)

    def _add_columns(self, tile: Value, first: IndexValue, count: int, start: IndexValue, rows: IndexValue) -> None:
        """Adds the sums of `count` columns from `first` on, each times its elements of the vectors, to the tile."""
        f, work, type = self.work.f, self.work, self.work.type
        factors = [
            [f.load_as(work.address(f.add(first, i), vector), work.vectors.type, type.scalar) for i in range(count)]
            for vector in range(work.count)
        ]
        columns = self.matrix.columns(first, count)
        with f.loop(rows, type.width) as loop:
            parts = columns(f.add(start, loop.index), self._mask(rows, loop.index))
            for vector, own in enumerate(factors):
                address = f.at(tile, f.add(loop.index, vector * self.tile_rows), type.element)
                total = f.binary(multiplication(type), parts[0], f.splat(own[0], type.width))
                for part, factor in zip(parts[1:], own[1:], strict=True):
                    total = f.multiply_add(part, f.splat(factor, type.width), total)
                f.store(add_pairwise(f, f.load(address, type, 64), total), address, 64)

    def _store_tile(self, tile: Value, start: IndexValue, rows: IndexValue) -> None:
        f, work, type = self.work.f, self.work, self.work.type
        is_contiguous = work.out.row == 1
        step, part = (type.width, type) if is_contiguous else (1, type.scalar)
        with f.loop(rows, step) as loop:
            mask = self._mask(rows, loop.index) if is_contiguous else None
            for vector in range(work.count):
                line = f.at(tile, f.add(loop.index, vector * self.tile_rows), type.element)
                value = f.load(line, part, size_of(type.element))
                f.store_as(value, work.target_address(f.add(start, loop.index), vector), work.out.type, mask)

    def _mask(self, rows: IndexValue, at: IndexValue) -> Value | None:
        """Returns the lanes of a vector from `at` on that are rows; None if no vector ends past the last row."""
        f = self.work.f
        return f.first_lanes(f.subtract(rows, at), self.work.type.width) if self.is_ragged else None
