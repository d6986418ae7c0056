"""Plans of matrix products: the normal form, the tile in registers, the blocks in caches, the tasks.

A product is first brought to one form (`normalised`): batches that are only more rows or columns are collapsed into
them, rows of the result are contiguous if possible, and complex matrices are viewed as real ones of twice the size.
Then `make_plan` chooses the tile, the blocks and the packing:

- B is read in place ("direct") if packing would not pay, packed by each task on its stack, whole if it is small
  ("private") or each panel before its use ("panels"), or packed once by all threads into the workspace ("shared").
- A task computes a block of the result. It reads its rows of A in place if K is contiguous there, or packs them on its
  stack, one block of K at a time.

Blocks of K are added up in order (see sums.py), and tasks share no sums, so the result does not depend on the number of
threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hloom.backends.cpu.kernels.code import align_up
from hloom.backends.cpu.kernels.kernel_function import size_of
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.sums import block_length, group_length
from hloom.backends.cpu.kernels.products.tile import Tile
from hloom.backends.cpu.kernels.products.tile_choice import MAX_VECTORS, cheapest_tile, cheapest_tile_of_registers
from hloom.lir import Type
from hloom.target import L1_BYTES, L2_BYTES, L3_BYTES, MIN_TASK_WORK, TASKS_PER_THREAD, Target
from hloom.types import PrimitiveType

MAX_PACKED_B_BYTES = L3_BYTES // 4  # stays in the cache
STACK_BYTES = L2_BYTES // 8  # for each of: a block of A, partial sums, a private B
MAX_DIRECT_BYTES = L2_BYTES // 4  # of a B that is read in place
MIN_STREAMED_BYTES = L3_BYTES  # of a B that is read from memory
MAX_STREAMED_ROWS = 32  # of the result: few enough that memory is the bottleneck
STREAMED_DEPTH = 64  # of a block of K, if B is read from memory
FIXED_BLOCK_BYTES = 1 << 10  # of a column in a block of K, if sums are batch-invariant
MIN_COLUMNS = 512  # of a packed B, to amortise packing A
MAX_LATENCY_BOUND_SUMS = 4  # in registers: additions wait for each other
PANEL_BYTES = L1_BYTES * 7 // 8  # of A, for a block of K
MAX_DIRECT_ROWS = 512  # of a block of K, if B is read in place: each may be in another page
MULTIPLY_ADD_COST = 0.625  # in additions
MIN_PRODUCT_WORK = 5 * MIN_TASK_WORK  # of the smallest task, which packs operands
REGISTER_DEPTH = 1024  # words of a block of K for tile registers, which are loaded from the second cache as fast
MIN_PANEL_ROWS = 256  # of a block of A, if each packs B anew
MIN_PACKED_ROWS = 128  # of a block of A on the stack, for which a panel of B is read once
MIN_ALIGNED_ROWS = 128  # of a result, whose B is packed even if it is small
PANEL_OF_B_BYTES = L2_BYTES // 4  # which the second cache holds
BLOCK_BYTES = L2_BYTES // 2  # of a block of A in place, or for tile registers, for which a panel of B is read once


@dataclass(frozen=True)
class MatmulSpec:
    """out[b, i, j] = sum over k of lhs[b, i, k] * rhs[b, k, j].

    Strides are in elements: of lhs along (batch, m, k), of rhs along (batch, k, n), of out along (batch, m, n). Sums
    are kept in f32 for f16 and bf16; integers wrap around.
    """

    batch: int
    m: int
    n: int
    k: int
    lhs_type: PrimitiveType
    rhs_type: PrimitiveType
    out_type: PrimitiveType
    lhs_strides: tuple[int, int, int]
    rhs_strides: tuple[int, int, int]
    out_strides: tuple[int, int, int]

    @property
    def is_complex(self) -> bool:
        """Whether the elements are complex."""
        return self.out_type.is_complex

    def transposed(self) -> MatmulSpec:
        """Returns the product of the transposes, in reverse order, which is the transpose of the result."""
        (a0, a1, a2), (b0, b1, b2), (c0, c1, c2) = self.lhs_strides, self.rhs_strides, self.out_strides
        strides = (b0, b2, b1), (a0, a2, a1), (c0, c2, c1)
        return MatmulSpec(self.batch, self.n, self.m, self.k, self.rhs_type, self.lhs_type, self.out_type, *strides)

    def collapsed(self) -> MatmulSpec:
        """Returns the product with its batch collapsed into rows, if all share one rhs and rows are evenly spaced."""
        (a0, a1, a2), b, (c0, c1, c2) = self.lhs_strides, self.rhs_strides, self.out_strides
        if b[0] != 0 or self.batch == 1:
            return self
        if self.m == 1:
            return replace(self, batch=1, m=self.batch, lhs_strides=(0, a0, a2), out_strides=(0, c0, c2))
        if a0 == self.m * a1 and c0 == self.m * c1:
            return replace(self, batch=1, m=self.batch * self.m)
        return self


@dataclass(frozen=True)
class Product:
    """A batch of real products C = A B; with `is_complex`, n and k count real and imaginary parts."""

    batch: int
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    batch_strides: tuple[int, int, int]
    is_complex: bool
    swapped: bool  # A is the right operand of the spec, B the left

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch * self.m * self.n * self.k

    def transposed(self) -> Product:
        """Returns the product of the transposes, in reverse order."""
        a, b, c = (replace(matrix, row=matrix.column, column=matrix.row) for matrix in (self.b, self.a, self.c))
        of_a, of_b, of_c = self.batch_strides
        strides, swapped = (of_b, of_a, of_c), not self.swapped
        return replace(self, m=self.n, n=self.m, a=a, b=b, c=c, batch_strides=strides, swapped=swapped)


def normalised(spec: MatmulSpec, fixed_order: bool = False) -> Product:
    """Returns the product in normal form; with `fixed_order` one that adds up products as it does for other sizes."""
    spec = spec.collapsed().transposed().collapsed().transposed()
    swapped = _swap_pays(spec, fixed_order)
    if swapped:
        spec = spec.transposed()
    (a0, a1, a2), (b0, b1, b2), (c0, c1, c2) = spec.lhs_strides, spec.rhs_strides, spec.out_strides
    m, n, k = spec.m, spec.n, spec.k
    view = _real_view if spec.is_complex else Matrix
    a = view(spec.lhs_type, a1 if m > 1 else 0, a2 if k > 1 else 1)
    b = view(spec.rhs_type, b1 if k > 1 else 0, b2 if n > 1 else 1)
    c = view(spec.out_type, c1 if m > 1 else 0, c2 if n > 1 else 1)
    parts = 2 if spec.is_complex else 1
    strides = parts * a0, parts * b0, parts * c0
    return Product(spec.batch, m, parts * n, parts * k, a, b, c, strides, spec.is_complex, swapped)


def _swap_pays(spec: MatmulSpec, fixed_order: bool) -> bool:
    """Whether the transposed product is cheaper: a matrix times a vector, or contiguous rows of the result.

    With `fixed_order` vectors are matrices of one row, and complex products, whose parts it would reorder, stay.
    """
    if fixed_order and spec.is_complex:
        return False
    if spec.n == 1 or spec.m == 1:
        return spec.m > 1 if fixed_order else spec.n > 1
    return spec.out_strides[1] == 1 != spec.out_strides[2]


def _real_view(type: PrimitiveType, row: int, column: int) -> Matrix:
    if column == 1:
        return Matrix(type.real, 2 * row, 1)
    return Matrix(type.real, 2 * row, 2 * column, paired=True)


@dataclass(frozen=True)
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
        return self.b_storage == "direct" and _streams(self.product, self.tile.type)

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


def make_plan(
    p: Product, vector: Type, target: Target, in_tile_registers: bool = False, shares_b: bool = False
) -> MatmulPlan:
    """Returns the plan of a product, whose sums are in vectors of type `vector`; with `shares_b`, tasks pack no B."""
    if in_tile_registers:
        tile = cheapest_tile_of_registers(p.m, p.n, vector)
    else:  # memory is read faster in long pieces
        is_long = target.vector_bytes == 64 and _streams(p, vector)
        tile = cheapest_tile(p.m, p.n, vector, target.vector_bytes, MAX_VECTORS if is_long else 1)
    parallel = target.is_worth_threads(p.work * MULTIPLY_ADD_COST)
    threads = target.threads if parallel else 1
    a_is_direct = _reads_a_in_place(p, tile, in_tile_registers)
    packs_panels = a_is_direct and not (in_tile_registers or shares_b)
    b_storage = _choose_b_storage(p, tile, threads, packs_panels)
    depth = _depth(p, tile, b_storage == "direct", a_is_direct, in_tile_registers, target.batch_invariant)
    columns = p.n
    if b_storage == "shared":
        passes = math.ceil(p.n / max(MIN_COLUMNS, MAX_PACKED_B_BYTES // (p.k * size_of(vector.element))))
        columns = min(p.n, align_up(math.ceil(p.n / passes), tile.columns))
    fixed_order = target.batch_invariant
    blocks = 1, 1, parallel, fixed_order, in_tile_registers
    whole = MatmulPlan(p, tile, depth, columns, b_storage, a_is_direct, *blocks)
    return _split_into_tasks(whole, threads)


def _reads_a_in_place(p: Product, tile: Tile, in_tile_registers: bool) -> bool:
    """Whether A needs no packing."""
    needs_no_conversion = p.a.element == tile.type.element and not p.a.paired and p.a.words is None
    if in_tile_registers:  # whose rows have to be whole
        return needs_no_conversion and p.a.column == 1 and p.k % tile.type.width == 0 and p.m >= tile.rows
    is_small = p.m % tile.rows == 0 and p.m * p.k * size_of(tile.type.element) <= STACK_BYTES
    return needs_no_conversion and (p.a.column == 1 or is_small)


def _depth(
    p: Product, tile: Tile, b_is_direct: bool, a_is_direct: bool, in_tile_registers: bool, is_fixed: bool
) -> int:
    """Returns the steps of a block of K, for operands that are read in place or packed; they depend on no threads."""
    size = size_of(tile.type.element)
    block_of_k = min(PANEL_BYTES // (tile.rows * size), PANEL_OF_B_BYTES // (tile.columns * size))
    if is_fixed:
        block_of_k = FIXED_BLOCK_BYTES // size
    elif in_tile_registers:
        block_of_k = REGISTER_DEPTH
    elif b_is_direct:
        block_of_k = min(block_of_k, STREAMED_DEPTH if _streams(p, tile.type) else MAX_DIRECT_ROWS)
    elif not a_is_direct and block_of_k < p.k <= group_length(p.k):  # without groups, whose sums the stack holds
        block_of_k = min(block_of_k, STACK_BYTES // (min(p.m, MIN_PACKED_ROWS) * size))
    blocks = math.ceil(p.k / block_of_k)
    return p.k if blocks == 1 else align_up(math.ceil(p.k / blocks), tile.type.width)


def _streams(p: Product, vector: Type) -> bool:
    """Whether B is read in place, and from memory."""
    is_large = p.k * p.n * size_of(vector.element) > MIN_STREAMED_BYTES and p.n >= MAX_VECTORS * vector.width
    return is_large and p.m <= MAX_STREAMED_ROWS and _can_read_in_place(p, vector)


def _can_read_in_place(p: Product, vector: Type) -> bool:
    """Whether vectors of B can be read in place."""
    return not p.b.computed and p.b.element == vector.element and p.b.has_contiguous_rows and not p.is_complex


def _can_pack_panels(p: Product) -> bool:
    """Whether parts of B can be packed, some steps of K at a time."""
    is_plain = not (p.b.computed or p.b.paired or p.is_complex) and p.b.words is None
    return is_plain and 1 in (p.b.row, p.b.column)


def _choose_b_storage(p: Product, tile: Tile, threads: int, packs_panels: bool) -> str:
    if p.b.computed:
        return "shared"
    size = align_up(p.k, tile.type.width) * align_up(p.n, tile.columns) * size_of(tile.type.element)
    can_pack = packs_panels and _can_pack_panels(p) and _has_rows_for_panels(p, tile, threads)
    # Vectors of an array that is not aligned cross cache lines, which many rows pay for more than for a copy.
    is_small = size <= MAX_DIRECT_BYTES and not (can_pack and p.m >= MIN_ALIGNED_ROWS and p.k <= MAX_DIRECT_ROWS)
    if _can_read_in_place(p, tile.type) and (is_small or p.m <= 2 * tile.rows or _streams(p, tile.type)):
        return "direct"
    if size <= STACK_BYTES and (threads == 1 or p.batch >= threads or p.m >= 64 * threads):
        return "private"
    return "panels" if can_pack else "shared"


def _has_rows_for_panels(p: Product, tile: Tile, threads: int) -> bool:
    """Whether each block of rows has so many that packing B costs little."""
    blocks = _row_blocks_of_panels(p, tile, _wanted_tasks(p, p.n, threads) / p.batch)
    return blocks == 1 or p.m >= blocks * MIN_PANEL_ROWS


def _wanted_tasks(p: Product, columns: int, threads: int) -> float:
    """Returns how many tasks the threads want for all products of a batch, of a number of columns."""
    return 1 if threads == 1 else min(_most_tasks(p, columns), TASKS_PER_THREAD * threads)


def _most_tasks(p: Product, columns: int) -> float:
    """Returns how many tasks of all products of a batch are worth their start."""
    return p.batch * p.m * columns * p.k * MULTIPLY_ADD_COST / MIN_PRODUCT_WORK


def _row_blocks_of_panels(p: Product, tile: Tile, wanted: float) -> int:
    """Returns the number of blocks of rows, each of which packs all of B, and is read from the cache for each panel."""
    size_of_a = p.m * p.k * size_of(tile.type.element)
    return max(math.ceil(wanted / math.ceil(p.n / tile.columns)), math.ceil(size_of_a / MAX_PACKED_B_BYTES))


def _split_into_tasks(undivided: MatmulPlan, threads: int) -> MatmulPlan:
    """Returns the plan with its tasks: blocks that fit the caches and the stack, and enough of them for the threads."""
    p, tile, size = undivided.product, undivided.tile, size_of(undivided.tile.type.element)
    batch = 1 if undivided.b_storage == "shared" else p.batch
    wanted = math.ceil(_wanted_tasks(replace(p, batch=batch), undivided.columns, threads) / batch)
    is_on_stack = not (undivided.a_is_direct or undivided.in_tile_registers)
    bytes_of_a = STACK_BYTES if is_on_stack else BLOCK_BYTES
    max_fitting = max(1, bytes_of_a // (tile.rows * (undivided.depth + tile.type.width) * size))
    useful = min(wanted, undivided.row_tiles // 4, p.m // 64 if undivided.b_storage == "private" else p.m)
    if undivided.b_storage == "shared" and undivided.a_is_direct:
        # Each block of rows reads all of a large B, whereas groups of columns find A in the second cache.
        useful = min(useful, math.ceil(wanted / undivided.column_tiles))
    blocks = max(math.ceil(undivided.row_tiles / max_fitting), useful, 1)
    if blocks > 1:
        blocks = min(align_up(blocks, threads), undivided.row_tiles)
    if undivided.b_storage == "panels":
        blocks = _row_blocks_of_panels(p, tile, wanted)
        if undivided.has_partial_sums:
            blocks = max(blocks, math.ceil(undivided.row_tiles / _max_tiles_of_sums(undivided)))
    with_rows = replace(undivided, row_blocks=blocks)
    if undivided.b_storage == "private":
        return with_rows
    if undivided.b_storage == "panels" and threads > 1:
        # Each task packs its own panels, so more of them cost nothing, and threads end together.
        wanted = math.ceil(_most_tasks(p, undivided.columns) / batch)
    groups = min(math.ceil(wanted / blocks), undivided.column_tiles)
    if undivided.finds_groups_in_cache:
        groups = max(groups, _groups_for_the_cache(undivided))
    if undivided.has_partial_sums:
        max_fitting = max(1, _max_tiles_of_sums(undivided) // with_rows.row_tiles)
        groups = max(groups, math.ceil(undivided.column_tiles / max_fitting))
    return replace(with_rows, column_groups=groups)


def _groups_for_the_cache(plan: MatmulPlan) -> int:
    """Returns into how many groups of columns to divide a shared B so that the second cache holds one; each task packs
    its rows of A, which many columns have to pay for.
    """
    size = plan.product.k * plan.columns * size_of(plan.tile.type.element)
    return max(1, min(math.ceil(size / BLOCK_BYTES), plan.columns // MIN_COLUMNS))


def _max_tiles_of_sums(plan: MatmulPlan) -> int:
    """Returns how many tiles of partial sums fit the stack."""
    levels = 2 if plan.has_groups else 1
    return STACK_BYTES // (levels * plan.tile.size * size_of(plan.tile.type.element))
