"""The choice of a plan (matmul_plan.py): the tile, the blocks, the packing and the tasks of a product."""

from __future__ import annotations

import math
from dataclasses import replace

from hloom.backends.cpu.kernels.kernel_function import size_of
from hloom.backends.cpu.kernels.products.blocked.matmul_plan import MatmulPlan, can_read_in_place, streams
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST, Product
from hloom.backends.cpu.kernels.products.sums import group_length
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.backends.cpu.kernels.products.tiles.tile_choice import MAX_VECTORS, cheapest_tile, cheapest_tile_of_registers
from hloom.lir import Type
from hloom.target import L1_BYTES, L2_BYTES, L3_BYTES, MIN_TASK_WORK, TASKS_PER_THREAD, Target, align_up

MAX_PACKED_B_BYTES = L3_BYTES // 4  # stays in the cache
STACK_BYTES = L2_BYTES // 8  # for each of: a block of A, partial sums, a private B
MAX_DIRECT_BYTES = L2_BYTES // 4  # of a B that is read in place
STREAMED_DEPTH = 64  # of a block of K, if B is read from memory
FIXED_BLOCK_BYTES = 1 << 10  # of a column in a block of K, if sums are batch-invariant
MIN_COLUMNS = 512  # of a packed B, to amortise packing A
PANEL_BYTES = L1_BYTES * 7 // 8  # of A, for a block of K
MAX_DIRECT_ROWS = 512  # of a block of K, if B is read in place: each may be in another page
MIN_PRODUCT_WORK = 5 * MIN_TASK_WORK  # of the smallest task, which packs operands
REGISTER_DEPTH = 1024  # words of a block of K for tile registers, which are loaded from the second cache as fast
MIN_PANEL_ROWS = 256  # of a block of A, if each packs B anew
MIN_PACKED_ROWS = 128  # of a block of A on the stack, for which a panel of B is read once
MIN_ALIGNED_ROWS = 128  # of a result, whose B is packed even if it is small
PANEL_OF_B_BYTES = L2_BYTES // 4  # which the second cache holds
BLOCK_BYTES = L2_BYTES // 2  # of a block of A in place, or for tile registers, for which a panel of B is read once


def make_plan(
    p: Product, vector: Type, target: Target, in_tile_registers: bool = False, shares_b: bool = False
) -> MatmulPlan:
    """Returns the plan of a product, whose sums are in vectors of type `vector`; with `shares_b`, tasks pack no B."""
    if in_tile_registers:
        tile = cheapest_tile_of_registers(p.m, p.n, vector)
    else:  # memory is read faster in long pieces
        is_long = target.vector_bytes == 64 and streams(p, vector)
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
        block_of_k = min(block_of_k, STREAMED_DEPTH if streams(p, tile.type) else MAX_DIRECT_ROWS)
    elif not a_is_direct and block_of_k < p.k <= group_length(p.k):  # without groups, whose sums the stack holds
        block_of_k = min(block_of_k, STACK_BYTES // (min(p.m, MIN_PACKED_ROWS) * size))
    blocks = math.ceil(p.k / block_of_k)
    return p.k if blocks == 1 else align_up(math.ceil(p.k / blocks), tile.type.width)


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
    if can_read_in_place(p, tile.type) and (is_small or p.m <= 2 * tile.rows or streams(p, tile.type)):
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
