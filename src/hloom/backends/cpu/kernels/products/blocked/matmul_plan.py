"""The plan of a matrix product by blocks: the tile in registers, the blocks in caches, the tasks.

- B is read in place ("direct") if packing would not pay, packed by each task on its stack, whole if it is small
  ("private") or each panel before its use ("panels"), or packed once by all threads into the workspace ("shared").
- A task computes a block of the result. It reads its rows of A in place if K is contiguous there, or packs them on its
  stack, one block of K at a time.

Blocks of K are added up in order (see sums.py), and tasks share no sums, so the result does not depend on the number of
threads.
"""

from __future__ import annotations

import math

from hloom.backends.cpu.kernels.kernel_function import size_of
from hloom.backends.cpu.kernels.products.product import Product
from hloom.backends.cpu.kernels.products.sums import block_length, group_length
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.backends.cpu.kernels.products.tiles.tile_choice import MAX_VECTORS
from hloom.lir import Type
from hloom.system.records import record
from hloom.target import L3_BYTES

MIN_STREAMED_BYTES = L3_BYTES  # of a B that is read from memory
MAX_STREAMED_ROWS = 32  # of the result: few enough that memory is the bottleneck
MAX_LATENCY_BOUND_SUMS = 4  # in registers: additions wait for each other


@record
class MatmulPlan:
    """Tile, blocks and tasks of a product.

    `depth` is the number of steps in a block of K, `columns` the columns of B that are packed at once, and `b_storage`
    where the kernel reads B: "direct", "private", "panels" or "shared". The tasks divide the rows into `row_blocks`,
    and `columns` into `column_groups`, of whole tiles. With `fixed_order`, blocks depend on K and the element
    types alone. Sums `in_tile_registers` are those of tile_registers.py.
    """

    product: Product
    tile: Tile
    depth: int
    columns: int
    b_storage: str
    a_is_direct: bool
    row_blocks: int
    column_groups: int
    parallel: bool
    fixed_order: bool = False
    in_tile_registers: bool = False

    @property
    def tasks(self) -> int:
        """Number of tasks of a product."""
        return self.row_blocks * self.column_groups

    @property
    def finds_groups_in_cache(self) -> bool:
        """Whether tasks of one group of columns follow each other, since B is shared and rows of A are packed."""
        return self.b_storage == "shared" and not (self.a_is_direct or self.in_tile_registers)

    @property
    def streams_b(self) -> bool:
        """Whether B is read in place from memory."""
        return self.b_storage == "direct" and streams(self.product, self.tile.type)

    @property
    def adds_to_result(self) -> bool:
        """Whether K has several blocks, between which the result holds the sums.

        It does not where rows of an A that is read in place are repeated, which would be added twice.
        """
        c, has_blocks = self.product.c, self.depth < self.product.k
        is_plain = c.has_contiguous_rows and c.element == self.tile.type.element
        return has_blocks and is_plain and not (self.a_is_direct or self.in_tile_registers or self.has_groups)

    @property
    def has_partial_sums(self) -> bool:
        """Whether K has several blocks, between which the stack holds the sums."""
        return self.depth < self.product.k and not self.adds_to_result

    @property
    def summed_steps(self) -> int:
        """Steps of a block of K that the kernel sums from zero."""
        if not self.tile.type.is_float or self.in_tile_registers:
            return self.depth
        is_latency_bound = self.tile.rows * self.tile.vectors <= MAX_LATENCY_BOUND_SUMS and not self.fixed_order
        return block_length(self.depth, self.product.k, 2 if is_latency_bound or self.product.is_complex else 1)

    @property
    def group(self) -> int:
        """Steps of K that are added in one chain; an integral number of blocks."""
        return self.depth * max(1, group_length(self.product.k) // self.depth)

    @property
    def has_groups(self) -> bool:
        """Whether blocks are added in several chains."""
        return self.group < self.product.k and self.tile.type.is_float

    @property
    def has_ragged_columns(self) -> bool:
        """Whether the last tile of a row has fewer columns."""
        return self.product.n % self.tile.columns != 0

    @property
    def has_ragged_rows(self) -> bool:
        """Whether the last panel of a packed A has fewer rows than the tile."""
        return self.product.m % self.tile.rows != 0 and not self.a_is_direct

    @property
    def repeats_rows(self) -> bool:
        """Whether the last tile overlaps the preceding one, since an A that is read in place has no padding."""
        return self.product.m % self.tile.rows != 0 and self.a_is_direct

    @property
    def row_tiles(self) -> int:
        """The largest number of tiles along the rows of a task's block."""
        return math.ceil(math.ceil(self.product.m / self.tile.rows) / self.row_blocks)

    @property
    def column_tiles(self) -> int:
        """The largest number of tiles along the columns of a task's block."""
        return math.ceil(math.ceil(self.columns / self.tile.columns) / self.column_groups)


def streams(p: Product, vector: Type) -> bool:
    """Whether B is read in place, and from memory."""
    is_large = p.k * p.n * size_of(vector.element) > MIN_STREAMED_BYTES and p.n >= MAX_VECTORS * vector.width
    return is_large and p.m <= MAX_STREAMED_ROWS and can_read_in_place(p, vector)


def can_read_in_place(p: Product, vector: Type) -> bool:
    """Whether vectors of B can be read in place."""
    return not p.b.computed and p.b.element == vector.element and p.b.has_contiguous_rows and not p.is_complex
