"""Schedules nests: chooses the vector loop and its lanes, tiles to transpose, values to keep, and parallel chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from hloom.affine import Expression, Index, Variable
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, InRange, Reduction, ReductionResult, is_function_call, walk
from hloom.loops.interleaved_accesses import (
    MAX_LANES,
    interleaved_loops,
    is_shared,
    is_transposable,
    max_record_length,
    needs_transposition,
    unroll,
)
from hloom.loops.lanes import emulates_masks, fitting_lanes, native_lanes, stride_score
from hloom.loops.locality import strip_mine, strip_mine_tiles
from hloom.loops.nest import (
    BufferType,
    Kernel,
    Nest,
    Schedule,
    Store,
    expression_cost,
    loads_of,
    reductions_of,
)
from hloom.loops.split_reduction import split_reductions
from hloom.loops.transformations import collapse, collapse_reductions, split_at_divisors, split_loop
from hloom.target import (
    CACHE_LINE,
    L2_BYTES,
    MAX_CACHED_COLUMN,
    MAX_CACHED_ROW,
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
    unroll_factor,
)

CHUNKS_PER_THREAD = 8
"""The largest number of chunks for each thread: they need no preparation, so more are worthwhile than for kernels."""
MIN_STAGED_COST = 8
"""The smallest cost of an expression that is kept rather than computed again, in additions."""
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
MAX_PAIRED_ROW, MAX_PAIRED_ROW_OF_SHORT_VECTORS = 2048, 128
"""The longest row of which two are computed side by side: for longer ones, the latencies of a row count less. Where
vectors are shorter than a cache line, two rows leave each too few registers.
"""
MIN_UNROLLED_EXTENT = 1024
"""The smallest extent of a loop whose remainder counts little however long its vectors are."""
MAX_UNROLLED_LOOP = 4
"""The largest extent of a loop around a reduction that is unrolled."""
MAX_ORDERED = 3
"""The largest number of elements whose balanced tree adds them up in order."""


def schedule(kernel: Kernel, target: Target) -> None:
    """Transforms the nests of the kernel, splits long reductions, and gives each nest its schedule."""
    nests = []
    for nest in kernel.nests:
        loops = [loop for loop in nest.loops if loop.extent != 1]
        nest = nest.with_loops(loops, Schedule(sum_lanes=target.sum_lanes))
        nest = split_at_divisors(collapse(nest, kernel.space), kernel.space)
        nest = _unroll_choices(nest, kernel.space)
        if target.batch_invariant:
            # Collapsing and splitting reductions change the order of sums, and depend on the other loops.
            nests.append(_unroll_short_loops(nest, kernel.space))
        else:
            nest = _unroll_short_loops(collapse_reductions(nest, kernel.space), kernel.space)
            nests += split_reductions(kernel, nest)
    kernel.nests = [_schedule_nest(kernel, nest, target) for nest in nests]


def _schedule_nest(kernel: Kernel, nest: Nest, target: Target) -> Nest:
    nest = nest.with_loops(loop for loop in nest.loops if loop.extent != 1)
    vector = _vector_loop(nest, target.vector_bytes)
    interleaved = interleaved_loops(nest, vector, target.vector_bytes) if vector else []
    nest = unroll(nest, kernel.space, interleaved)
    nest, row_count = _pair_rows(nest, kernel.space, vector, target.vector_bytes)
    tile = _tile_loop(nest, vector) if vector and not interleaved else None
    nest = _order_loops(nest, vector, tile)
    nest = _stage(kernel, nest, vector) if vector else nest
    vector = vector if vector in nest.loops else None
    lanes = _lanes(nest, vector, tile, target.vector_bytes, row_count) if vector else 0
    nest = _stage(kernel, nest, vector, lanes) if vector and tile is None else nest
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


# Shared work


def _unroll_short_loops(nest: Nest, space: ExpressionSpace) -> Nest:
    """Unrolls a short innermost loop around reductions, so that the reductions share their loops and operands.

    Reductions of what its copies compute as well are unrolled with it, as for a distance beside its coordinates.
    """
    if not nest.reductions or len(nest.loops) < 2 or nest.loops[-1].extent > MAX_UNROLLED_LOOP:
        return nest
    loop = nest.loops[-1]
    repeated = [f for f in nest.reductions if _is_repeated(f, nest, space, loop)]
    return unroll(nest, space, [*(f.over[0] for f in repeated), loop])


def _is_repeated(reduction: Reduction, nest: Nest, space: ExpressionSpace, loop: Variable) -> bool:
    """Whether the copies of a loop compute parts of all values of a reduction of as many elements."""
    if len(reduction.over) != 1 or not reduction.over[0].extent == loop.extent <= MAX_ORDERED:
        return False
    variable = reduction.over[0]
    beside = [f for f in nest.reductions if variable in f.over]
    if any(len(f.over) > 1 or not f.monoid or nest.has_fixed_order(f) for f in beside):
        return False
    values = space.substitute(reduction.values, {variable: space.indices.of(loop)})
    return any(isinstance(e, Apply) and loop in e.variables for e in {*walk(values)}.intersection(nest.expressions))


def _unroll_choices(nest: Nest, space: ExpressionSpace) -> Nest:
    """Unrolls short reductions whose variable chooses what they read, as an operand of a concatenation: each copy has
    one choice."""
    short = [f for f in nest.reductions if f.monoid and len(f.over) == 1 and f.over[0].extent <= MAX_UNROLLED_LOOP]
    chosen = [f.over[0] for f in short if not nest.has_fixed_order(f) and _chooses(f.over[0], f.values)]
    return unroll(nest, space, chosen)


def _chooses(variable: Variable, values: Sequence[Expression]) -> bool:
    """Whether a condition depends on a variable alone."""
    return any(isinstance(e, InRange) and e.variables == {variable} for e in walk(values))


def _pair_rows(nest: Nest, space: ExpressionSpace, vector: Variable | None, vector_bytes: int) -> tuple[Nest, int]:
    """Unrolls a loop over rows that are reduced several times, so that each hides the latencies of the other.

    Between two passes over a row there is a reduction of lanes and arithmetic on its result, which nothing overlaps.
    That pays for elements of at most 16 bits, whose conversions take longer than reading them from memory. Returns the
    new nest, and the number of rows in an iteration.
    """
    if len(nest.loops) != 2 or vector is not nest.loops[-1] or len(nest.stores) != 1:
        return nest, 1
    rows = nest.loops[0]
    is_chained = any(reductions_of(reduction.values) for reduction in nest.reductions)
    if not is_chained or any(f.variables != {rows} or not f.monoid for f in nest.reductions):
        return nest, 1
    longest = MAX_PAIRED_ROW if vector_bytes >= CACHE_LINE else MAX_PAIRED_ROW_OF_SHORT_VECTORS
    if rows.extent % 2 or vector.extent > longest or any(load.type.bits > 16 for load in nest.loads):
        return nest, 1
    nest, _, inner = split_loop(nest, space, rows, 2, f"{rows.name}p")
    return unroll(nest, space, [inner]), 2


def _stage(kernel: Kernel, nest: Nest, vector: Variable, lanes: int = 0) -> Nest:
    """Keeps expensive values in scratch buffers if a reduction computes them and a loop uses them again.

    Without `lanes`, the reductions are of rows, which the vector loop uses; otherwise of a vector of columns. If the
    vector loop only stores such a value, the reduction stores it instead.
    """
    space = kernel.space
    computed = {id(e) for e in nest.expressions}
    staged = []
    replaced: dict[int, Expression] = {}
    remaining = nest.stores
    for reduction in nest.reductions:
        user = _user_loop(nest, reduction, vector, lanes)
        found = None if user is None else _used_again(space, reduction, user, computed - replaced.keys())
        if user is None or found is None:
            continue
        inner, (expression, counterpart) = reduction.over[0], found
        store = _store_in_reduction(kernel, nest, reduction, counterpart)
        if store is not None:
            index = space.substitute_index(store.index, {user: space.indices.of(inner)})
            staged.append((expression, store.buffer, index))
            remaining = tuple(each for each in remaining if each is not store)
            continue
        buffer, size = len(kernel.buffers), inner.extent * max(lanes, 1)
        type = expression.type.computation_type  # as registers hold it: no narrow float is rounded again
        kernel.buffers.append(BufferType(type, size, "scratch"))
        space.buffer_sizes.append(size)
        staged.append((expression, buffer, _slot(space, inner, vector, lanes)))
        replaced[id(counterpart)] = space.load(type, buffer, _slot(space, user, vector, lanes))
    if not staged:
        return nest
    values = space.replace([store.value for store in remaining], replaced, in_reductions=False)
    stores = tuple(replace(s, value=v) for s, v in zip(remaining, values, strict=True))
    kept = (*nest.schedule.staged, *staged)
    nest = replace(nest, stores=stores, schedule=replace(nest.schedule, staged=kept))
    is_used = any(vector in store.index.variables for store in stores)
    return nest if is_used else nest.with_loops(loop for loop in nest.loops if loop is not vector)


def _used_again(
    space: ExpressionSpace, reduction: Reduction, user: Variable, computed: Set[int]
) -> tuple[Expression, Expression] | None:
    """An expensive value of a reduction, and its counterpart in the iterations of a loop, whose ids are `computed`;
    None if there is none.
    """
    inner = reduction.over[0]
    for expression in _expensive(reduction.values, inner):
        counterpart = space.substitute([expression], {inner: space.indices.of(user)}, in_reductions=False)[0]
        if id(counterpart) in computed and counterpart is not expression:
            return expression, counterpart
    return None


def _store_in_reduction(kernel: Kernel, nest: Nest, reduction: Reduction, value: Expression) -> Store | None:
    """The store of a value that a reduction can store, since nothing reads later what it overwrites; else None."""
    store = next((store for store in nest.stores if store.value is value), None)
    if nest.is_perfect or store is None or kernel.buffers[store.buffer].type is not value.type.computation_type:
        return None
    others = walk([other.value for other in nest.stores if other is not store])
    own = {*loads_of([*reduction.values, *reduction.initial])}
    overwritten = {store.buffer, *(read for written, read in kernel.in_place if written == store.buffer)}
    is_read = any(load.buffer in overwritten and load not in own for load in loads_of(others))
    return None if is_read or value in others else store


def _user_loop(nest: Nest, reduction: Reduction, vector: Variable, lanes: int) -> Variable | None:
    """The loop whose iterations may use the values that a reduction reduces; None if they cannot be kept."""
    if len(reduction.over) != 1 or not reduction.monoid or (vector in reduction.variables) != bool(lanes):
        return None
    extent = reduction.over[0].extent
    inside = nest.loops[nest.loops.index(vector) + 1 :] if lanes else (vector,)
    loops = [loop for loop in inside if loop.extent == extent and loop not in reduction.variables]
    return loops[0] if loops and extent * max(lanes, 1) <= MAX_CACHED_ROW else None


def _slot(space: ExpressionSpace, loop: Variable, vector: Variable, lanes: int) -> Index:
    """The index in a scratch buffer of the value of an iteration: of a row, or of a vector of columns."""
    at = space.indices.of(loop)
    if not lanes:
        return at
    return space.indices.linear([at, space.indices.remainder(space.indices.of(vector), lanes)], [lanes, 1])


def _expensive(values: Sequence[Expression], inner: Variable) -> list[Expression]:
    """The expressions that are worth keeping, from users to operands."""
    found: list[Expression] = []
    for expression in reversed(walk(values)):
        if isinstance(expression, Apply) and inner in expression.variables:
            work = sum(expression_cost(e) for e in walk([expression]) if inner in e.variables)
            found += [expression] * (work >= MIN_STAGED_COST)
    return found


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
    return -(-each // step) * step
