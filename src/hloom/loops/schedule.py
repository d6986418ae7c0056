"""Schedules nests: chooses the vector loop and its lanes, tiles to transpose, values to keep, and parallel chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from hloom.affine import Expression, Variable
from hloom.loops.expressions import ReductionResult, is_function_call, walk
from hloom.loops.interleaved_accesses import (
    MAX_LANES,
    interleaved_loops,
    is_shared,
    is_transposable,
    max_record_length,
    needs_transposition,
)
from hloom.loops.lanes import emulates_masks, fitting_lanes, native_lanes, stride_score
from hloom.loops.locality import strip_mine, strip_mine_tiles
from hloom.loops.nest import (
    Kernel,
    Nest,
    Schedule,
    expression_cost,
    loads_of,
)
from hloom.loops.split_reduction import split_reductions
from hloom.loops.staging import stage
from hloom.loops.transformations import collapse, collapse_reductions, split_at_divisors
from hloom.loops.unrolling import pair_rows, unroll, unroll_choices, unroll_short_loops
from hloom.target import (
    CACHE_LINE,
    L2_BYTES,
    MAX_CACHED_COLUMN,
    MAX_UNROLLED_REDUCTION,
    MIN_PARALLEL_WORK,
    MIN_TASK_WORK,
    MIN_UNROLLED_WORK,
    PAGE_BYTES,
    UNROLLED_CHAINS,
    UNROLLED_COLUMNS,
    UNROLLED_COLUMNS_ALONE,
    UNROLLED_ELEMENTS,
    UNROLLED_WORK,
    WIDE_REGISTERS_BYTES,
    Target,
    UnrollTable,
    align_up,
    unroll_factor,
)

CHUNKS_PER_THREAD = 8
"""The largest number of chunks for each thread: they need no preparation, so more are worthwhile than for kernels."""
SQUARES_PER_STEP, RUNS_PER_THREAD = 4, 2
"""Squares of a tile that are loaded together, and longer runs for each thread, at least."""
NARROW_BYTES = 2
"""The largest element size for which a vector of `lanes` elements is much shorter than a cache line."""
FAR_BYTES = 512
"""The distance of rows below which they stay in the L1 cache while their vectors are stored."""
TILES_PER_THREAD = 8
"""The number of tiles for each thread below which the threads share the vector loop instead."""
MIN_VECTOR_EXTENT = 8
"""The smallest extent of contiguous loops that are vectorised in preference to interleaved accesses."""
INTERLEAVED_SCORE = 3.0
"""The score of a vector loop whose interleaved accesses are transposed in registers instead of being scattered."""
MIN_UNROLLED_EXTENT = 1024
"""The smallest extent of a loop whose remainder counts little however long its vectors are."""


def schedule(kernel: Kernel, target: Target) -> None:
    """Transforms the nests of the kernel, splits long reductions, and gives each nest its schedule."""
    nests = []
    for nest in kernel.nests:
        loops = [loop for loop in nest.loops if loop.extent != 1]
        nest = nest.with_loops(loops, Schedule(sum_lanes=target.sum_lanes))
        nest = split_at_divisors(collapse(nest, kernel.space), kernel.space)
        nest = unroll_choices(nest, kernel.space)
        if target.batch_invariant:
            # Collapsing and splitting reductions change the order of sums, and depend on the other loops.
            nests.append(unroll_short_loops(nest, kernel.space))
        else:
            nest = unroll_short_loops(collapse_reductions(nest, kernel.space), kernel.space)
            nests += split_reductions(kernel, nest)
    kernel.nests = [_schedule_nest(kernel, nest, target) for nest in nests]


def _schedule_nest(kernel: Kernel, nest: Nest, target: Target) -> Nest:
    nest = nest.with_loops(loop for loop in nest.loops if loop.extent != 1)
    vector = _vector_loop(nest, target.vector_bytes)
    interleaved = interleaved_loops(nest, vector, target.vector_bytes) if vector else []
    nest = unroll(nest, kernel.space, interleaved)
    nest, row_count = pair_rows(nest, kernel.space, vector, target.vector_bytes)
    tile = _tile_loop(nest, vector) if vector and not interleaved else None
    nest = _order_loops(nest, vector, tile)
    nest = stage(kernel, nest, vector) if vector else nest
    vector = vector if vector in nest.loops else None
    lanes = _lanes(nest, vector, tile, target.vector_bytes, row_count) if vector else 0
    nest = stage(kernel, nest, vector, lanes) if vector and tile is None else nest
    if vector and tile is None:
        nest, vector = strip_mine(nest, kernel.space, vector, lanes)
    elif vector and tile and nest.loops == (tile, vector) and tile.extent < target.threads * TILES_PER_THREAD * lanes:
        nest, vector = strip_mine_tiles(nest, kernel.space, vector)
    width = _tile_width(nest, tile, vector, lanes) if vector and tile else 0
    step = _tile_step(nest, tile, vector, (lanes, width), target.threads) if vector and tile else 0
    chunk = _chunk(nest, {vector: lanes, tile: step}, target)
    tiled = replace(nest.schedule, transposed=tile, tile_step=step, tile_width=width)
    return nest.with_schedule(replace(tiled, vector=vector, lanes=lanes, chunk=chunk))


# The vector loop


def _vector_loop(nest: Nest, vector_bytes: int) -> Variable | None:
    """The loop along which most accesses are contiguous; None if reductions should be vectorised along their own."""
    if any(map(is_function_call, [*nest.expressions, *walk([e for f in nest.reductions for e in f.combine])])):
        # Functions may contain loops, which might not end for the values of inactive lanes.
        return None
    shared = nest.loops if nest.is_perfect else nest.loops[-1:]
    longest = max((loop.extent for loop in shared), default=0)
    loops = [loop for loop in shared if loop.extent >= 4 or loop.extent == longest]
    interleaved = [loop for loop in loops if interleaved_loops(nest, loop, vector_bytes)]
    if nest.reductions and interleaved and not any(_is_contiguous(nest, loop) for loop in loops):
        return max(interleaved, key=lambda loop: (_contiguity(nest, loop), loop.extent))
    best, best_score = None, 0.0
    for loop in loops:
        score = _contiguity(nest, loop) + (0.1 if loop is nest.loops[-1] else 0.0)
        score += INTERLEAVED_SCORE if loop in interleaved else 0.0
        if best is None or score > best_score:
            best, best_score = loop, score
    if best is None:
        return None
    for reduction in nest.reductions:
        if not (reduction.monoid and reduction.over) or best not in reduction.variables:
            continue
        loads = loads_of(reduction.values)
        if is_shared(reduction, best):
            continue
        inner = max(sum(stride_score(load.index, v) for load in loads) for v in reduction.over)
        if inner > sum(stride_score(load.index, best) for load in loads) and max(v.extent for v in reduction.over) >= 8:
            return None
    return best


def _is_contiguous(nest: Nest, loop: Variable) -> bool:
    """Whether all accesses are contiguous (loads may be invariant) and all reductions vary along the loop."""
    scores = [stride_score(load.index, loop) for load in nest.loads]
    scores += [stride_score(store.index, loop) - 1 for store in nest.stores]
    return (
        loop.extent >= MIN_VECTOR_EXTENT
        and min(scores) >= 0
        and all(loop in reduction.variables for reduction in nest.reductions)
    )


def _contiguity(nest: Nest, loop: Variable) -> float:
    """The sum of the stride scores of all accesses along the loop, with stores counted twice."""
    score = sum(2.0 * stride_score(store.index, loop) for store in nest.stores)
    for load in nest.loads:
        score += stride_score(load.index, loop)
    return score


def _tile_loop(nest: Nest, vector: Variable) -> Variable | None:
    """A loop along which a load is contiguous that is not contiguous along the vector loop; None if there is none."""
    if nest.reductions or len(nest.stores) != 1:
        return None
    for load in nest.loads:
        for loop in nest.loops:
            if (
                loop is not vector
                and min(loop.extent, vector.extent) >= MAX_LANES
                and is_transposable(load, loop, vector)
            ):
                return loop
    return None


def _reduction_invariant_loops(nest: Nest, vector: Variable | None) -> list[Variable]:
    """Loops in which all reductions are invariant: these are computed before them, for vectors of columns."""
    if vector is None or not nest.reductions or len(nest.stores) > 1:
        return []
    if not all(vector in reduction.variables for reduction in nest.reductions):
        return []
    found = [
        v for v in nest.loops if v is not vector and all(v not in reduction.variables for reduction in nest.reductions)
    ]
    return found if math.prod(loop.extent for loop in found) <= MAX_CACHED_COLUMN else []


def _order_loops(nest: Nest, vector: Variable | None, tile: Variable | None) -> Nest:
    """Moves the tile's and the vector loop inwards, and inside them the loops that use reductions of columns.

    If the outermost of the other loops is too short for the threads, the longest one becomes the outermost.
    """
    last = [loop for loop in (tile, vector) if loop is not None] + _reduction_invariant_loops(nest, vector)
    others = [loop for loop in nest.loops if loop not in last]
    if nest.is_perfect and not nest.reads_written_buffers and others and others[0].extent < 8:
        others.sort(key=lambda loop: -loop.extent)
    return nest.with_loops([*others, *last])


def _tile_width(nest: Nest, tile: Variable, vector: Variable, lanes: int) -> int:
    """The number of elements of a row that are stored together: a cache line of narrow ones if rows are far apart, and
    begin at one.
    """
    widest, index = max(_transposed_sizes(nest, tile, vector), default=CACHE_LINE), nest.stores[0].index
    distance = index.coefficient(tile) * widest if index.is_affine_in(tile) else 0
    is_far, width = distance >= FAR_BYTES and distance % CACHE_LINE == 0, CACHE_LINE // widest
    return width if is_far and widest <= NARROW_BYTES and lanes < width <= vector.extent else lanes


def _transposed_sizes(nest: Nest, tile: Variable, vector: Variable) -> list[int]:
    """The bytes of elements of each load that is transposed."""
    return [load.type.byte_width for load in nest.loads if is_transposable(load, tile, vector)]


def _tile_step(nest: Nest, tile: Variable, vector: Variable, square: tuple[int, int], threads: int) -> int:
    """The number of iterations of a tile loop that are loaded together: several squares of lanes, for longer runs.

    Squares of whole cache lines use each line once, so that runs over matrices in memory may be as long as a page: the
    processor foresees reads in a page, and need not foresee writes. Shorter ones leave each thread some runs.
    """
    (lanes, width), sizes = square, _transposed_sizes(nest, tile, vector)
    least = lanes * SQUARES_PER_STEP
    is_large = tile.extent * vector.extent * min(sizes) > L2_BYTES
    step = PAGE_BYTES // max(sizes) if is_large and min(sizes) * width >= CACHE_LINE else least
    runs = RUNS_PER_THREAD * threads if tile is nest.loops[0] else 1
    while step > least and (tile.extent % step or tile.extent < step * runs):
        step //= 2
    return step if tile.extent % step == 0 else lanes


# The number of lanes


def _lanes(nest: Nest, vector: Variable, tile: Variable | None, vector_bytes: int, row_count: int) -> int:
    """The number of lanes of the vector loop: several registers for cheap values, and for reductions side by side.

    An iteration of the loop is for several rows that are alike.
    """
    expressions = nest.expressions
    width = native_lanes(expressions, vector_bytes)
    if tile is not None or needs_transposition(nest, vector, max_record_length(nest, vector, vector_bytes)):
        return min(width, MAX_LANES)
    if emulates_masks(expressions, vector_bytes):
        return fitting_lanes(min(width, 16), 1, vector.extent)
    cost = _iteration_cost(nest, vector)
    is_alone = len(nest.stores) == 1
    if any(vector in reduction.variables for reduction in nest.reductions):
        table = UNROLLED_COLUMNS_ALONE if is_alone else UNROLLED_COLUMNS
    else:
        table = _unrolling(nest, vector, cost * nest.iterations, vector_bytes) if is_alone else UNROLLED_ELEMENTS
    return fitting_lanes(width * unroll_factor(cost / row_count, table), width, vector.extent)


def _iteration_cost(nest: Nest, vector: Variable) -> int:
    """The cost of an iteration of the vector loop: all steps of reductions that are unrolled, and one of others."""
    short = [f.over for f in nest.reductions if math.prod(v.extent for v in f.over) <= MAX_UNROLLED_REDUCTION]
    unrolled = frozenset(chain.from_iterable(short))

    def copies(e: Expression) -> int:
        over = e.reduction.over if isinstance(e, ReductionResult) else ()
        return math.prod(v.extent for v in unrolled.intersection(e.variables.union(over)))

    return sum(copies(e) * expression_cost(e) for e in nest.expressions if vector in e.variables)


def _unrolling(nest: Nest, vector: Variable, work: float, vector_bytes: int) -> UnrollTable:
    """The unrolling of the vector loop of a nest with one result, without reductions along it."""
    is_contiguous = all(stride_score(load.index, vector) >= 0 for load in nest.loads)
    is_wide = vector_bytes >= WIDE_REGISTERS_BYTES
    if work >= MIN_UNROLLED_WORK and is_wide and is_contiguous and vector.extent >= MIN_UNROLLED_EXTENT:
        return UNROLLED_WORK
    return UNROLLED_CHAINS if work >= MIN_PARALLEL_WORK else UNROLLED_ELEMENTS


# Threads


def _chunk(nest: Nest, steps: Mapping[Variable | None, int], target: Target) -> int:
    """The number of iterations of the outermost loop in a chunk; 0 if the nest runs on one thread.

    `steps` has the numbers of iterations of loops that stay together.
    """
    cost = nest.cost
    if not nest.loops or not target.is_worth_threads(cost):
        return 0
    first = nest.loops[0]
    step = steps.get(first, 1)
    chunks = min(CHUNKS_PER_THREAD * target.threads, cost // MIN_TASK_WORK, -(-first.extent // step))
    if chunks <= 1:
        return 0
    each = -(-first.extent // chunks)
    return align_up(each, step)
