"""Chooses how a nest runs: which loop is vectorised, how wide, what is turned in registers, what the threads share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hloom.loops.expressions import Apply, ExpressionSpace, Fold, Load, Where, is_function_call, walk
from hloom.loops.index import Expression, Index, Variable
from hloom.loops.locality import in_strips, strips_of_tiles
from hloom.loops.nest import (
    BufferType,
    Kernel,
    Nest,
    Store,
    collapse,
    collapse_folds,
    divide,
    loads_of,
    nest_cost,
    substitute,
    weight,
)
from hloom.loops.split_reduction import split_reductions
from hloom.passes.fusion.fusion import LARGEST_COLUMN

PARALLEL_COST = 40_000
"""Work, in element additions, below which a nest runs on one thread."""
CHUNK_COST = 20_000
STAGE_WEIGHT = 8
"""Expressions that cost as much are kept rather than computed again."""
STAGED_ELEMENTS = 1 << 14
TILED_SQUARES = 4
TILES_PER_THREAD = 8
MOST_LANES = 16
"""Of the squares that are turned in registers."""
INTERLEAVED = 4
"""The most vectors that are stored as one, element by element in turns."""
INTERLEAVED_SCORE = 3.0
"""What vectors gain that are turned in registers instead of being scattered."""
UNROLLED_LOOP = 4
"""Loops of at most so many iterations may be written out around a fold."""


def schedule(kernel: Kernel, vector_bytes: int, threads: int) -> None:
    """Gives every nest of the kernel its loops and schedule."""
    nests = []
    for nest in kernel.nests:
        nest = replace(nest, loops=tuple(loop for loop in nest.loops if loop.extent != 1))
        nest = collapse_folds(divide(collapse(nest, kernel.space), kernel.space), kernel.space)
        nests += split_reductions(kernel, _write_out_short_loops(nest, kernel.space))
    kernel.nests = [_schedule_nest(kernel, nest, vector_bytes, threads) for nest in nests]


def _schedule_nest(kernel: Kernel, nest: Nest, vector_bytes: int, threads: int) -> Nest:
    nest = replace(nest, loops=tuple(loop for loop in nest.loops if loop.extent != 1))
    vector = _vector_loop(nest, vector_bytes)
    interleaved = _interleaved_loop(nest, vector, vector_bytes) if vector else None
    tile = _tile_loop(nest, vector) if vector and interleaved is None else None
    nest = _order_loops(nest, vector, tile, interleaved)
    nest = _stage(kernel, nest, vector)
    lanes = _lanes(nest, vector, tile, interleaved, vector_bytes) if vector else 0
    if vector and tile is None:
        nest, vector = in_strips(nest, kernel.space, vector, interleaved, lanes)
    elif vector and tile and nest.loops == (tile, vector) and tile.extent < threads * TILES_PER_THREAD * lanes:
        nest, vector = strips_of_tiles(nest, kernel.space, vector)
    chunk = _chunk(nest, vector, tile, lanes, threads)
    chosen = replace(nest.schedule, vector=vector, lanes=lanes, transposed=tile, interleaved=interleaved, chunk=chunk)
    return replace(nest, schedule=chosen)


# Which loop is vectorised


def _vector_loop(nest: Nest, vector_bytes: int) -> Variable | None:
    """The loop along which most of memory is contiguous; None where folds are better run along their own loops."""
    if any(map(is_function_call, [*nest.expressions, *walk([e for f in nest.folds for e in f.combine])])):
        # Functions may hold loops: they must not see the values of lanes that do not count.
        return None
    best, best_score = None, 0.0
    for loop in nest.loops:
        if loop.extent < 4 and loop.extent < max(v.extent for v in nest.loops):
            continue
        score = _contiguity(nest, loop) + (0.1 if loop is nest.loops[-1] else 0.0)
        if _interleaved_loop(nest, loop, vector_bytes) is not None:
            score += INTERLEAVED_SCORE
        if best is None or score > best_score:
            best, best_score = loop, score
    if best is None:
        return None
    for fold in nest.folds:
        if not (fold.opcode and fold.over) or best not in fold.variables:
            continue
        loads = loads_of(fold.values)
        own = max(sum(_unit(load.index, v) for load in loads) for v in fold.over)
        if own > sum(_unit(load.index, best) for load in loads) and max(v.extent for v in fold.over) >= 8:
            return None
    return best


def _contiguity(nest: Nest, loop: Variable) -> float:
    score = sum(2.0 * _unit(store.index, loop) for store in nest.stores)
    for load in nest.loads:
        score += _unit(load.index, loop)
    return score


def _unit(index: Index, loop: Variable) -> float:
    """How well vectors along the loop read or write at the index."""
    if loop not in index.variables:
        return 0.0
    if not index.is_affine_in(loop):
        return -1.0
    coefficient = index.coefficient(loop)
    return 1.0 if coefficient == 1 else -0.25 if 0 < coefficient <= 4 else -1.0


def _tile_loop(nest: Nest, vector: Variable) -> Variable | None:
    """A loop along which loads are contiguous that are not along the vector loop."""
    if nest.folds or len(nest.stores) != 1:
        return None
    for load in nest.loads:
        for loop in nest.loops:
            if loop is not vector and min(loop.extent, vector.extent) >= MOST_LANES and is_turned(load, loop, vector):
                return loop
    return None


def is_turned(load: Load, loop: Variable, vector: Variable) -> bool:
    """Whether a load may be made of rows along a loop that are turned in registers to run along the vector loop."""
    return load.in_bounds and not load.type.is_complex and _is_across(load.index, loop, vector)


def _is_across(index: Index, loop: Variable, vector: Variable) -> bool:
    """Whether the elements of a loop are neighbours, and those of the vector loop are not."""
    affine = index.is_affine_in(loop) and index.is_affine_in(vector)
    return affine and index.coefficient(loop) == 1 and index.coefficient(vector) > 1


def _interleaved_loop(nest: Nest, vector: Variable, vector_bytes: int) -> Variable | None:
    """A short loop whose elements are neighbours in the result, or in an operand, where those of the vector loop are
    apart: either between them, or in rows that are turned in registers where the processor has masks for these."""
    short = [loop for loop in nest.loops if loop is not vector and loop.extent <= MOST_LANES]
    if not short or nest.folds or len(nest.stores) != 1 or nest.stores[0].value.type.is_complex:
        return None
    rows, index = _row_lanes(nest, vector, vector_bytes), nest.stores[0].index
    for loop in short:
        if is_one_vector(index, vector, loop):
            return loop
        if loop.extent <= rows and (has_rows(index, vector, loop) or _loads_of_rows(nest, vector, loop)):
            return loop
    return None


def is_one_vector(index: Index, vector: Variable, loop: Variable) -> bool:
    """Whether a few vectors lie in memory as one, element by element in turns."""
    return loop.extent <= INTERLEAVED and is_dense(index, vector, loop)


def is_dense(index: Index, vector: Variable, loop: Variable) -> bool:
    """Whether the elements of a loop lie between those of the vector loop, and nothing else does."""
    return has_rows(index, vector, loop) and index.coefficient(vector) == loop.extent


def has_rows(index: Index, vector: Variable, loop: Variable) -> bool:
    """Whether the elements of a loop are neighbours, and those of the vector loop at least that far apart."""
    return _is_across(index, loop, vector) and index.coefficient(vector) >= loop.extent


def _loads_of_rows(nest: Nest, vector: Variable, loop: Variable) -> list[Load]:
    return [load for load in nest.loads if is_turned(load, loop, vector) and has_rows(load.index, vector, loop)]


def _row_lanes(nest: Nest, vector: Variable, vector_bytes: int) -> int:
    """The longest rows that are turned in registers, of which there are as many; 0: none."""
    lanes = min(MOST_LANES, _native_lanes(nest.expressions, vector_bytes))
    types = [nest.stores[0].value.type, *(load.type for load in nest.loads)]
    masked = all(type.bits >= _masked_bits(vector_bytes) for type in types)
    return lanes if masked and vector.extent >= lanes else 0


def _loops_along_columns(nest: Nest, vector: Variable | None) -> list[Variable]:
    """Loops that need the same folds in each round: these are computed before them, for vectors of columns."""
    if vector is None or not nest.folds or len(nest.stores) > 1:
        return []
    if not all(vector in fold.variables for fold in nest.folds):
        return []
    found = [v for v in nest.loops if v is not vector and all(v not in fold.variables for fold in nest.folds)]
    return found if math.prod(loop.extent for loop in found) <= LARGEST_COLUMN else []


def _order_loops(nest: Nest, vector: Variable | None, tile: Variable | None, interleaved: Variable | None) -> Nest:
    """The vector loop innermost but for one whose vectors it interleaves, and those that use the folds of columns; the
    tile's around it, of the others the largest outermost if it gives threads work."""
    last = [loop for loop in (tile, vector, interleaved) if loop is not None] + _loops_along_columns(nest, vector)
    others = [loop for loop in nest.loops if loop not in last]
    if len(nest.stores) == 1 and not nest.reads_what_it_writes and others and others[0].extent < 8:
        others.sort(key=lambda loop: -loop.extent)
    return replace(nest, loops=(*others, *last))


def tile_step(tile: Variable, lanes: int) -> int:
    """Rows of a tile that are worked on together: several squares of lanes, so that each visit reads longer runs."""
    return lanes * TILED_SQUARES if tile.extent % (lanes * TILED_SQUARES) == 0 else lanes


# How wide


def _lanes(nest: Nest, vector: Variable, tile: Variable | None, interleaved: Variable | None, vector_bytes: int) -> int:
    expressions = nest.expressions
    width = _native_lanes(expressions, vector_bytes)
    if tile is not None or (interleaved is not None and _turns(nest, vector, interleaved, vector_bytes)):
        return min(width, MOST_LANES)
    if _emulates_masks(expressions, vector_bytes):
        return _fitting(min(width, 16), 1, vector.extent)
    cost = sum(weight(e) for e in expressions)
    folds = [f for f in nest.folds if vector in f.variables]
    only_folds = folds and len(nest.stores) == 1  # not rows that are written out
    factor = 8 if folds and cost <= 10 else 4 if folds and cost <= 24 else 2 if cost <= 12 or only_folds else 1
    return _fitting(width * factor, width, vector.extent)


def _turns(nest: Nest, vector: Variable, interleaved: Variable, vector_bytes: int) -> bool:
    """Whether rows along the interleaved loop are turned in registers."""
    return stores_rows(nest, vector, interleaved) or bool(turned_rows(nest, vector, interleaved, vector_bytes))


def stores_rows(nest: Nest, vector: Variable, interleaved: Variable) -> bool:
    """Whether the result consists of rows along the interleaved loop that are not stored as one vector."""
    index = nest.stores[0].index
    return has_rows(index, vector, interleaved) and not is_one_vector(index, vector, interleaved)


def turned_rows(nest: Nest, vector: Variable, interleaved: Variable, vector_bytes: int) -> list[Load]:
    """The loads of rows along the interleaved loop that are not read as one vector."""
    if interleaved.extent > _row_lanes(nest, vector, vector_bytes):
        return []
    found = _loads_of_rows(nest, vector, interleaved)
    return [load for load in found if load.index.coefficient(vector) > INTERLEAVED]


def _emulates_masks(expressions: Sequence[Expression], vector_bytes: int) -> bool:
    """Whether there are conditional loads that the processor does one element after another."""
    narrow = any(isinstance(e, Load) and e.type.bits < _masked_bits(vector_bytes) for e in expressions)
    return narrow and any(isinstance(e, Where) for e in expressions)


def _masked_bits(vector_bytes: int) -> float:
    """The least elements that the processor loads and stores under masks; LLVM writes a branch a lane for others.

    AVX-512 has masks for all elements, AVX for those of 32 bits and more, others have none.
    """
    return 8 if vector_bytes >= 64 else 32 if vector_bytes == 32 else math.inf


def _native_lanes(expressions: Sequence[Expression], vector_bytes: int) -> int:
    """Lanes of one register of the widest element that is computed with."""
    widths = [e.type.real.bits for e in expressions if isinstance(e, (Apply, Load)) and not e.type.is_pred]
    wide = sum(bits == 64 for bits in widths)
    # A few wide steps among narrow ones take two registers each.
    widest = 64 if 4 * wide > len(widths) else 32
    if all(e.type.is_pred or (e.type.is_integer and e.type.bits <= 8) for e in expressions):
        contiguous = all(atom_is_variable for e in expressions for i in e.indices for atom_is_variable in _plain(i))
        return vector_bytes if contiguous else 16
    return vector_bytes * 8 // widest


def _plain(index: Index) -> list[bool]:
    """Whether each part of an index is a loop variable."""
    return [isinstance(atom, Variable) for atom, _ in index.terms]


def _fitting(lanes: int, least: int, extent: int) -> int:
    """Fewer lanes where the loop is short: a power of two that wastes little."""
    while lanes > least and extent < lanes:
        lanes //= 2
    while lanes > 4 and extent <= lanes // 2:
        lanes //= 2
    return lanes


def fold_lanes(folds: Sequence[Fold], vector_bytes: int) -> tuple[Variable | None, int]:
    """The loop along which folds of scalars run in lanes, and how many; None where they cannot."""
    if not all(fold.opcode for fold in folds):
        return None, 0
    values = [value for fold in folds for value in fold.values]
    loads = loads_of(values)
    best = max(folds[0].over, key=lambda v: (sum(_unit(load.index, v) for load in loads), v.extent), default=None)
    if best is None or best.extent < 8:
        return None, 0
    expressions = walk(values)
    width = _native_lanes(expressions, vector_bytes)
    cost = sum(weight(e) for e in expressions)
    factor = 8 if cost <= 8 else 4 if cost <= 30 else 2 if cost <= 60 else 1
    if _emulates_masks(expressions, vector_bytes):
        width, factor = min(width, 16), 1
    factor = max(1, factor // len(folds))
    return best, _fitting(width * factor, width, best.extent)


# Work that is shared


def _write_out_short_loops(nest: Nest, space: ExpressionSpace) -> Nest:
    """Short loops around folds become one store for each iteration, so that the folds share their loops and work."""
    if not nest.folds:
        return nest
    for loop in nest.loops:
        if loop.extent <= UNROLLED_LOOP and len(nest.loops) > 1 and loop is nest.loops[-1]:
            stores: list[Store] = []
            for k in range(loop.extent):
                stores += substitute(nest, space, {loop: space.indices.constant(k)}).stores
            nest = replace(nest, loops=tuple(v for v in nest.loops if v is not loop), stores=tuple(stores))
    return nest


def _stage(kernel: Kernel, nest: Nest, vector: Variable | None) -> Nest:
    """Keeps costly values of a row that a fold computes and the vector loop needs again."""
    if vector is None or len(nest.loops) < 1:
        return nest
    space = kernel.space
    wanted = nest.expressions
    outside = {id(e): e for e in wanted}
    staged = []
    replaced: dict[int, Expression] = {}
    for fold in nest.folds:
        if len(fold.over) != 1 or fold.over[0].extent != vector.extent or vector.extent > STAGED_ELEMENTS:
            continue
        if vector in fold.variables or not fold.opcode:
            continue
        own = fold.over[0]
        for expression in _costly(fold.values, own):
            twin = space.substitute([expression], {own: space.indices.of(vector)}, in_folds=False)[0]
            if id(twin) in outside and id(twin) not in replaced and twin is not expression:
                buffer = len(kernel.buffers)
                kernel.buffers.append(BufferType(expression.type, vector.extent, "scratch"))
                space.buffer_sizes.append(vector.extent)
                staged.append((expression, buffer, space.indices.of(own)))
                replaced[id(twin)] = space.load(expression.type, buffer, space.indices.of(vector))
                break
    if not staged:
        return nest
    values = space.replace(nest.values, replaced, in_folds=False)
    stores = tuple(replace(s, value=v) for s, v in zip(nest.stores, values, strict=True))
    return replace(nest, stores=stores, schedule=replace(nest.schedule, staged=tuple(staged)))


def _costly(values: Sequence[Expression], own: Variable) -> list[Expression]:
    """Expressions worth keeping, the largest first."""
    found: list[Expression] = []
    for expression in reversed(walk(values)):
        if isinstance(expression, Apply) and own in expression.variables:
            work = sum(weight(e) for e in walk([expression]) if own in e.variables)
            found += [expression] * (work >= STAGE_WEIGHT)
    return found


# Threads


def _chunk(nest: Nest, vector: Variable | None, tile: Variable | None, lanes: int, threads: int) -> int:
    """How many iterations of the first loop a thread takes at a time; 0: the nest runs on one thread."""
    cost = nest_cost(nest)
    if threads <= 1 or not nest.loops or cost < PARALLEL_COST:
        return 0
    first = nest.loops[0]
    step = tile_step(first, lanes) if first is tile else lanes if first is vector else 1
    pieces = min(threads * 8, max(1, cost // CHUNK_COST), -(-first.extent // step))
    if pieces <= 1:
        return 0
    each = -(-first.extent // pieces)
    return -(-each // step) * step
