"""Products of the rows of a matrix and a few vectors: several rows at a time, with several sums for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import Row, StreamedMatrix, Vectors
from hloom.backends.cpu.kernels.products.sums import MIN_GROUP_BLOCKS, add_pairwise, addition, chain_length
from hloom.lir import IndexValue, Type, Value, constant
from hloom.system.records import record
from hloom.target import L1_BYTES, align_up

ROWS_PER_ITERATION = 4
SUMS, MANY_SUMS = 16, 24  # vectors of them in 16 and in 32 registers
SUMS_OF_HALVES = 8  # beside words of halves of bytes, all of which LLVM loads first
SUMS_OF_TABLES = 4  # in 16 registers, beside tables of codes and several vectors that are looked up together
VECTORS_OF_TABLE = 2  # of halves of bytes, which share a scale more often than not
VECTORS_BYTES = L1_BYTES * 3 // 4  # of the parts of several vectors that stay in the first cache
MAX_BLOCKS = 64  # of K, whose sums are added in one chain
GROUPS_OF_TILE = 32  # groups of rows, whose sums of blocks are kept
MIN_CHAIN_ITERATIONS = 64  # over K, whose products are added in one chain


@record
class RowSums:
    """Writes the loops over rows and over K, for a matrix of `m` rows and `count` vectors of `k` elements. The sums of
    an iteration, vectors of `type`, are ordered by part of K, vector and row.
    """

    matrix: StreamedMatrix
    work: Vectors
    type: Type
    m: int
    k: int
    count: int
    is_short: bool = False

    @property
    def rows(self) -> int:
        """Rows of an iteration."""
        has_many = self.matrix.parts > 1 or (self.matrix.order is not None and self.count > 2)
        most = ROWS_PER_ITERATION // 2 if has_many else ROWS_PER_ITERATION
        return min(max(2, min(most, self._sums // self.count)), self.m)

    @property
    def _sums(self) -> int:
        """Vectors of sums in registers: more where there are more registers, and one of each vector takes many."""
        if self.is_short:
            return self.count
        is_wide = self.type.width * self.type.bits == 512
        if self.count == 1 and self.matrix.parts > 1 and not is_wide:
            return SUMS_OF_TABLES
        if self.count == 1 and self.matrix.order:
            return SUMS_OF_HALVES
        return MANY_SUMS if self.count > 4 and is_wide else SUMS

    @property
    def unroll(self) -> int:
        """Vectors of each row in an iteration over K."""
        return max(1, self._sums // (self.rows * self.count))

    @property
    def results(self) -> int:
        """Results of an iteration over rows."""
        return self.rows * self.count

    @property
    def block(self) -> int:
        """Elements of K of which several vectors stay in the first cache, since each group of rows reads them anew.

        Words are multiplied faster than the matrix is read, which is in longer pieces without blocks.
        """
        if self.count == 1 or self.work.instruction is not None:
            return self.k
        fitting = VECTORS_BYTES // (self.count * size_of(self.type.element))
        return align_up(math.ceil(self.k / min(math.ceil(self.k / fitting), MAX_BLOCKS)), self.step)

    def emit(self, first: IndexValue, count: IndexValue) -> None:
        """Writes the products of `count` rows from `first` on; the last ones of the matrix may repeat others."""
        f, k, block = self.work.f, self.k, self.block
        if k <= block:
            with self._groups(first, count) as (_, rows):
                self._store(rows, self._sums_of_part(rows, 0, k))
            return
        height, whole = GROUPS_OF_TILE * self.rows, k // block * block
        totals = f.slot(self.type, GROUPS_OF_TILE * self.results)
        with f.loop(count, height) as tile:
            start, left = f.add(first, tile.index), f.minimum(height, f.subtract(count, tile.index))
            f.fill(totals, 0, GROUPS_OF_TILE * self.results * self.type.width * size_of(self.type.element))
            with f.loop(whole, block) as part:
                self._add_part(totals, start, left, (part.index, block))
            if k > whole:
                self._add_part(totals, start, left, (whole, k - whole))
            with self._groups(start, left) as (at, rows):
                self._store(rows, [f.load(total, self.type, 64) for total in self._totals(totals, at)])

    @contextmanager
    def _groups(self, first: IndexValue, count: IndexValue) -> Iterator[tuple[IndexValue, list[IndexValue]]]:
        """Writes a loop over groups of rows, of which it yields the position of the first one, and the indices."""
        f = self.work.f
        with f.loop(count, self.rows) as loop:
            start = f.minimum(f.add(first, loop.index), self.m - self.rows)
            yield loop.index, [f.add(start, i) for i in range(self.rows)]

    def _add_part(self, totals: Value, first: IndexValue, count: IndexValue, part: tuple[IndexValue, int]) -> None:
        """Adds the sums over a part of K, its first element and their number, to the totals of a tile."""
        f = self.work.f
        with self._groups(first, count) as (at, rows):
            for sums, total in zip(self._sums_of_part(rows, *part), self._totals(totals, at), strict=True):
                f.store(f.binary(addition(self.type), f.load(total, self.type, 64), sums), total, 64)

    def _totals(self, totals: Value, at: IndexValue) -> list[Value]:
        """Returns the addresses of the totals of the group of rows at a position in a tile."""
        f, width = self.work.f, self.type.width
        own = f.multiply(at, self.count * width)
        return [f.at(totals, f.add(own, i * width), self.type.element) for i in range(self.results)]

    def _store(self, rows: list[IndexValue], sums: list[Value]) -> None:
        """Stores the results of a group of rows."""
        for i, total in enumerate(horizontal_sums(self.work.f, sums)):
            vector, row = divmod(i, self.rows)
            self.work.store(self.matrix.scaled(total, rows[row], None), rows[row], vector)

    @property
    def step(self) -> int:
        """Elements of K in an iteration."""
        least = VECTORS_OF_TABLE if self.matrix.order else self.matrix.parts
        return max(self.unroll, least) * self.type.width

    def _sums_of_part(self, indices: list[IndexValue], first: IndexValue, count: int) -> list[Value]:
        """Returns vectors of the products of rows and vectors over `count` elements of K: those of whole iterations,
        then the remaining vectors of K, the last one masked.
        """
        f, type, step = self.work.f, self.type, self.step
        rows = [self.matrix.row(row, self.rows) for row in indices]
        zeros = [constant(type, 0)] * (self.unroll * self.results)
        whole, blocks = count // step * step, [step * iterations for iterations in _block_iterations(count // step)]
        sums, totals = [*zeros], _additive_identities(type, self.results)
        part = first, f.add(first, whole)
        if blocks:
            totals = self._block_sums(rows, part, blocks, zeros)
        elif whole:
            sums = self._sum_iterations(self.matrix.within(rows, *part, whole), part, zeros)
        self._add_products(rows, f.add(first, whole), count - whole, sums)
        return [add_pairwise(f, total, *sums[i :: self.results]) for i, total in enumerate(totals)]

    def _block_sums(
        self, rows: list[Row], part_of_k: tuple[IndexValue, IndexValue], blocks: list[int], zeros: list[Value]
    ) -> list[Value]:
        """Returns the sums over a part of K, a vector for each result: in blocks of the first size, and these in blocks
        of the next.
        """
        f, (first, end) = self.work.f, part_of_k
        with f.loop(end, blocks[0], _additive_identities(zeros[0].type, self.results), first) as loop:
            block = loop.index, f.minimum(f.add(loop.index, blocks[0]), end)
            if len(blocks) > 1:
                sums = self._block_sums(rows, block, blocks[1:], zeros)
            else:
                sums = self._sum_iterations(self.matrix.within(rows, *block, blocks[0]), block, zeros)
            loop.carried = [add_pairwise(f, total, *sums[i :: self.results]) for i, total in enumerate(loop.carried)]
        return loop.carried

    def _sum_iterations(
        self, rows: Sequence[Row], part_of_k: tuple[IndexValue, IndexValue], sums: list[Value]
    ) -> list[Value]:
        """Adds the products of a part of K, an integral number of iterations, to the sums: of whole groups of several
        iterations, or of a part of one group.
        """
        f, (first, end), group = self.work.f, part_of_k, self.matrix.group
        if not self._has_whole_groups:
            return self._add_iterations(rows, part_of_k, sums)
        with f.loop(end, group, sums, first) as loop:
            last = f.minimum(f.add(loop.index, group), end)
            loop.carried = self._add_iterations(
                self.matrix.in_group(rows, loop.index), (loop.index, last), loop.carried
            )
        return loop.carried

    @property
    def _has_whole_groups(self) -> bool:
        """Whether the elements of groups take several iterations, and no part of K has parts of two groups."""
        group, chain = self.matrix.group, MIN_CHAIN_ITERATIONS * self.step
        if group <= self.step or group % self.step or (chain % group and group % chain):
            return False
        return self.block == self.k or self.block % group == 0

    def _add_iterations(
        self, rows: Sequence[Row], part_of_k: tuple[IndexValue, IndexValue], sums: list[Value]
    ) -> list[Value]:
        """Adds the products of iterations from the first to the last (excluded) of a part of K."""
        f, (first, end) = self.work.f, part_of_k
        with f.loop(end, self.step, sums, first) as loop:
            for row in rows:
                row.prefetch(loop.index)
            self._add_products(rows, loop.index, self.step, loop.carried)
        return loop.carried

    def _add_products(self, rows: Sequence[Row], first: IndexValue, count: int, sums: list[Value]) -> None:
        """Adds the products of `count` elements of K from `first` on to the sums, each vector to one of `unroll`."""
        f, width = self.work.f, self.type.width
        lanes = self.matrix.parts * width
        for start in range(0, count, lanes):
            mask = f.first_lanes(count - start, lanes) if count - start < lanes else None
            loaded = [row.load(f.add(first, start), mask) for row in rows]
            for j, at in enumerate(range(start, min(start + lanes, count), width)):
                position = at // width % self.unroll * self.results
                own = slice(position, position + self.results)
                sums[own] = self._with_products(f.add(first, at), count - at, [parts[j] for parts in loaded], sums[own])

    def _with_products(self, at: IndexValue, left: int, parts: list[Value], sums: list[Value]) -> list[Value]:
        """Returns the sums of all vectors with the products of parts of rows added."""
        f, work, type = self.work.f, self.work, self.type
        mask = f.first_lanes(left, type.width) if left < type.width else None
        mask = f.shuffle(mask, None, self.matrix.order) if mask is not None and self.matrix.order else mask
        added = []
        for vector in range(self.count):
            factor = f.load_as(work.address(at, vector), work.vectors.type, type, mask)
            own = sums[vector * self.rows : (vector + 1) * self.rows]
            added += [work.plus_product(part, factor, total) for part, total in zip(parts, own, strict=True)]
        return added


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


def horizontal_sums(f: KernelFunction, vectors: list[Value]) -> list[Value]:
    """Returns the sums of all lanes of each vector.

    Two vectors become one, with the halves of each added, while there are two: fewer instructions than for each alone.
    """
    width, count, levels = vectors[0].type.width, len(vectors), 0
    add = addition(vectors[0].type)
    while len(vectors) > 1 and width >> levels > 1:
        levels += 1
        each = width >> levels
        starts = range(0, 2 * width, 2 * each)
        lanes = [[start + half + lane for start in starts for lane in range(each)] for half in (0, each)]
        pairs = zip(vectors[::2], [*vectors[1::2], *vectors[-1:]], strict=False)
        vectors = [f.binary(add, f.shuffle(a, b, lanes[0]), f.shuffle(a, b, lanes[1])) for a, b in pairs]
    each = width >> levels
    while each > 1:
        each //= 2
        lanes_of_half = [(lane + each) % width for lane in range(width)]
        vectors = [f.binary(add, vector, f.shuffle(vector, None, lanes_of_half)) for vector in vectors]
    return [f.extract(vectors[i >> levels], i % (1 << levels) * (width >> levels)) for i in range(count)]


def horizontal_sum(f: KernelFunction, vector: Value) -> Value:
    """The sum of all lanes."""
    scalar = vector.type.scalar
    if not scalar.is_float:
        return f.call(f"llvm.vector.reduce.add.{vector.type.suffix}", scalar, vector)
    return f.call(
        f"llvm.vector.reduce.fadd.{vector.type.suffix}", scalar, constant(scalar, -0.0), vector, flags="reassoc"
    )
