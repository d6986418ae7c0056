"""Chooses how a nest runs: which loop is vectorised, how wide, what is turned in registers, what the threads share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hloom.loops.expressions import Apply, ExpressionSpace, is_function_call, walk
from hloom.loops.index import Expression, Variable
from hloom.loops.interleaved_accesses import (
    MAX_LANES,
    interleaved_loops,
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
    collapse,
    collapse_reductions,
    expression_cost,
    loads_of,
    nest_cost,
    split_at_divisors,
)
from hloom.loops.split_reduction import split_reductions
from hloom.passes.fusion.access_patterns import MAX_COLUMN

MIN_PARALLEL_COST = 160_000
"""Work, in element additions, below which a nest runs on one thread."""
MIN_CHUNK_COST = 20_000
MIN_STAGED_COST = 8
"""Expressions that cost as much are kept rather than computed again."""
MAX_STAGED_ELEMENTS = 1 << 14
SQUARES_PER_STEP = 4
TILES_PER_THREAD = 8
MIN_VECTOR_EXTENT = 8
"""Loops of at least so many iterations are better vectors than rows that are turned."""
INTERLEAVED_SCORE = 3.0
"""What vectors gain whose rows are turned in registers instead of being scattered."""
MAX_UNROLLED_LOOP = 4
"""Loops of at most so many iterations may be written out around a reduction."""


def schedule(kernel: Kernel, vector_bytes: int, threads: int) -> None:
    """Gives every nest of the kernel its loops and schedule."""
    nests = []
    for nest in kernel.nests:
        nest = replace(nest, loops=tuple(loop for loop in nest.loops if loop.extent != 1))
        nest = collapse_reductions(split_at_divisors(collapse(nest, kernel.space), kernel.space), kernel.space)
        nests += split_reductions(kernel, _unroll_short_loops(nest, kernel.space))
    kernel.nests = [_schedule_nest(kernel, nest, vector_bytes, threads) for nest in nests]


def _schedule_nest(kernel: Kernel, nest: Nest, vector_bytes: int, threads: int) -> Nest:
    nest = replace(nest, loops=tuple(loop for loop in nest.loops if loop.extent != 1))
    vector = _vector_loop(nest, vector_bytes)
    interleaved = interleaved_loops(nest, vector, vector_bytes) if vector else []
    nest = unroll(nest, kernel.space, interleaved)
    tile = _tile_loop(nest, vector) if vector and not interleaved else None
    nest = _order_loops(nest, vector, tile)
    nest = _stage(kernel, nest, vector)
    lanes = _lanes(nest, vector, tile, vector_bytes) if vector else 0
    if vector and tile is None:
        nest, vector = strip_mine(nest, kernel.space, vector, lanes)
    elif vector and tile and nest.loops == (tile, vector) and tile.extent < threads * TILES_PER_THREAD * lanes:
        nest, vector = strip_mine_tiles(nest, kernel.space, vector)
    chunk = _chunk(nest, vector, tile, lanes, threads)
    chosen = replace(nest.schedule, vector=vector, lanes=lanes, transposed=tile, chunk=chunk)
    return replace(nest, schedule=chosen)


# Which loop is vectorised


def _vector_loop(nest: Nest, vector_bytes: int) -> Variable | None:
    """The loop along which most of memory is contiguous; None where reductions are better run along their own loops."""
    if any(map(is_function_call, [*nest.expressions, *walk([e for f in nest.reductions for e in f.combine])])):
        # Functions may hold loops: they must not see the values of lanes that do not count.
        return None
    longest = max((loop.extent for loop in nest.loops), default=0)
    loops = [loop for loop in nest.loops if loop.extent >= 4 or loop.extent == longest]
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
        if not (reduction.opcode and reduction.over) or best not in reduction.variables:
            continue
        loads = loads_of(reduction.values)
        inner = max(sum(stride_score(load.index, v) for load in loads) for v in reduction.over)
        if inner > sum(stride_score(load.index, best) for load in loads) and max(v.extent for v in reduction.over) >= 8:
            return None
    return best


def _is_contiguous(nest: Nest, loop: Variable) -> bool:
    """Whether all that vectors along the loop read and write is contiguous, with reductions side by side."""
    scores = [stride_score(load.index, loop) for load in nest.loads]
    scores += [stride_score(store.index, loop) - 1 for store in nest.stores]
    return (
        loop.extent >= MIN_VECTOR_EXTENT
        and min(scores) >= 0
        and all(loop in reduction.variables for reduction in nest.reductions)
    )


def _contiguity(nest: Nest, loop: Variable) -> float:
    score = sum(2.0 * stride_score(store.index, loop) for store in nest.stores)
    for load in nest.loads:
        score += stride_score(load.index, loop)
    return score


def _tile_loop(nest: Nest, vector: Variable) -> Variable | None:
    """A loop along which loads are contiguous that are not along the vector loop."""
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
    """Loops that need the same reductions in each round: these are computed before them, for vectors of columns."""
    if vector is None or not nest.reductions or len(nest.stores) > 1:
        return []
    if not all(vector in reduction.variables for reduction in nest.reductions):
        return []
    found = [
        v for v in nest.loops if v is not vector and all(v not in reduction.variables for reduction in nest.reductions)
    ]
    return found if math.prod(loop.extent for loop in found) <= MAX_COLUMN else []


def _order_loops(nest: Nest, vector: Variable | None, tile: Variable | None) -> Nest:
    """The vector loop innermost but for those that use the reductions of columns, the tile's around it, of the others
    the largest outermost if it gives threads work.
    """
    last = [loop for loop in (tile, vector) if loop is not None] + _reduction_invariant_loops(nest, vector)
    others = [loop for loop in nest.loops if loop not in last]
    if nest.is_perfect and not nest.reads_written_buffers and others and others[0].extent < 8:
        others.sort(key=lambda loop: -loop.extent)
    return replace(nest, loops=(*others, *last))


def tile_step(tile: Variable, lanes: int) -> int:
    """Rows of a tile that are worked on together: several squares of lanes, so that each visit reads longer runs."""
    return lanes * SQUARES_PER_STEP if tile.extent % (lanes * SQUARES_PER_STEP) == 0 else lanes


# How wide


def _lanes(nest: Nest, vector: Variable, tile: Variable | None, vector_bytes: int) -> int:
    expressions = nest.expressions
    width = native_lanes(expressions, vector_bytes)
    if tile is not None or needs_transposition(nest, vector, max_record_length(nest, vector, vector_bytes)):
        return min(width, MAX_LANES)
    if emulates_masks(expressions, vector_bytes):
        return fitting_lanes(min(width, 16), 1, vector.extent)
    cost = sum(expression_cost(e) for e in expressions)
    reductions = [f for f in nest.reductions if vector in f.variables]
    only_reductions = reductions and len(nest.stores) == 1  # not rows that are written out
    factor = (
        8
        if reductions and cost <= 10
        else 4
        if reductions and cost <= 24
        else 2
        if cost <= 12 or only_reductions
        else 1
    )
    return fitting_lanes(width * factor, width, vector.extent)


# Work that is shared


def _unroll_short_loops(nest: Nest, space: ExpressionSpace) -> Nest:
    """Short loops around reductions become one store for each iteration, so that the reductions share their loops and
    work.
    """
    is_short = len(nest.loops) > 1 and nest.loops[-1].extent <= MAX_UNROLLED_LOOP
    return unroll(nest, space, nest.loops[-1:]) if nest.reductions and is_short else nest


def _stage(kernel: Kernel, nest: Nest, vector: Variable | None) -> Nest:
    """Keeps costly values of a row that a reduction computes and the vector loop needs again."""
    if vector is None or len(nest.loops) < 1:
        return nest
    space = kernel.space
    wanted = nest.expressions
    outside = {id(e): e for e in wanted}
    staged = []
    replaced: dict[int, Expression] = {}
    for reduction in nest.reductions:
        if len(reduction.over) != 1 or reduction.over[0].extent != vector.extent or vector.extent > MAX_STAGED_ELEMENTS:
            continue
        if vector in reduction.variables or not reduction.opcode:
            continue
        inner = reduction.over[0]
        for expression in _expensive(reduction.values, inner):
            counterpart = space.substitute([expression], {inner: space.indices.of(vector)}, in_reductions=False)[0]
            if id(counterpart) in outside and id(counterpart) not in replaced and counterpart is not expression:
                buffer = len(kernel.buffers)
                type = expression.type.computation_type  # as registers hold it: no narrow float is rounded again
                kernel.buffers.append(BufferType(type, vector.extent, "scratch"))
                space.buffer_sizes.append(vector.extent)
                staged.append((expression, buffer, space.indices.of(inner)))
                replaced[id(counterpart)] = space.load(type, buffer, space.indices.of(vector))
                break
    if not staged:
        return nest
    values = space.replace(nest.values, replaced, in_reductions=False)
    stores = tuple(replace(s, value=v) for s, v in zip(nest.stores, values, strict=True))
    return replace(nest, stores=stores, schedule=replace(nest.schedule, staged=tuple(staged)))


def _expensive(values: Sequence[Expression], inner: Variable) -> list[Expression]:
    """Expressions worth keeping, the largest first."""
    found: list[Expression] = []
    for expression in reversed(walk(values)):
        if isinstance(expression, Apply) and inner in expression.variables:
            work = sum(expression_cost(e) for e in walk([expression]) if inner in e.variables)
            found += [expression] * (work >= MIN_STAGED_COST)
    return found


# Threads


def _chunk(nest: Nest, vector: Variable | None, tile: Variable | None, lanes: int, threads: int) -> int:
    """How many iterations of the first loop a thread takes at a time; 0: the nest runs on one thread."""
    cost = nest_cost(nest)
    if threads <= 1 or not nest.loops or cost < MIN_PARALLEL_COST:
        return 0
    first = nest.loops[0]
    step = tile_step(first, lanes) if first is tile else lanes if first is vector else 1
    chunks = min(threads * 8, max(1, cost // MIN_CHUNK_COST), -(-first.extent // step))
    if chunks <= 1:
        return 0
    each = -(-first.extent // chunks)
    return -(-each // step) * step
