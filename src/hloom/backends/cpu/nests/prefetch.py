"""Prefetches of rows that the processor does not foresee: gathered ones, and the next one while this one is in use."""

from __future__ import annotations

from hloom.affine import Index, RuntimeIndex, Variable
from hloom.backends.cpu.nests.indices import lane_index
from hloom.backends.cpu.nests.memory import element_address
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, Value, constant
from hloom.loops.expressions import Load
from hloom.target import CACHE_LINE, L1_BYTES, L2_BYTES

DISTANCE_BYTES = 8 << 10
"""The distance of a prefetched line from the one of the same position in the current row, at least one row."""

ROWS_AHEAD = 16
"""Iterations between the prefetch of a gathered row and its use."""


def prefetch_row(e: NestState, load: Load) -> None:
    """Prefetches the lines of a later row that correspond to the current vector: see the functions that decide it."""
    if _is_of_gathered_row(e, load):
        _prefetch_gathered(e, load)
        return
    if _is_of_second_pass(e, load):
        _prefetch_vector(e, load, lane_index(e, load.index).base, load.index.coefficient(e.nest.loops[0]))
        return
    column = _gathered_column(e, load)
    if column is None or e.tail is not None:
        return
    b, (rows, vector), size = e.builder, e.nest.loops[-2:], load.type.byte_width
    length, stride = column.high - column.low + 1, load.index.coefficient(rows)
    lines = -(-length * size // CACHE_LINE)
    count = -(-lines * e.lanes // vector.extent)
    others = tuple(term for term in load.index.terms if term[0] is not column)
    ahead = max(1, DISTANCE_BYTES // (stride * size)) * stride
    start = lane_index(e, Index(others, load.index.constant + column.low + ahead)).base
    first = b.binary("mul", b.binary("udiv", e.variables[vector], constant(I64, e.lanes)), constant(I64, count))
    for k in range(count):
        line = b.binary("mul", b.binary("add", first, constant(I64, k)), constant(I64, CACHE_LINE // size))
        b.prefetch(element_address(e, e.pointers[load.buffer], b.binary("add", start, line), load.type))


def _prefetch_gathered(e: NestState, load: Load) -> None:
    """Prefetches the lines of the current vector in the row of a later iteration, whose index is loaded for that."""
    b, rows = e.builder, e.nest.loops[-2]
    later = b.binary("add", e.variables[rows], constant(I64, ROWS_AHEAD))
    later = b.intrinsic("umin", later, constant(I64, rows.high))
    scopes, variables = e.scopes, e.variables
    e.scopes, e.variables = [{}], {**variables, rows: later}
    base = lane_index(e, load.index).base
    e.scopes, e.variables = scopes, variables
    _prefetch_vector(e, load, base)


def _prefetch_vector(e: NestState, load: Load, start: Value, ahead: int = 0) -> None:
    """Prefetches the lines of a vector that starts at an element, or some elements ahead of it."""
    b, size = e.builder, load.type.byte_width
    for line in range(0, e.lanes * size, CACHE_LINE):
        later = b.binary("add", start, constant(I64, ahead + line // size))
        b.prefetch(element_address(e, e.pointers[load.buffer], later, load.type))


def _is_of_gathered_row(e: NestState, load: Load) -> bool:
    """Whether a load is of a vector in a row, of an array that no private cache holds, that the rows' loop gathers."""
    loops, vector = e.nest.loops, e.vector
    if len(loops) < 2 or vector is not loops[-1] or not load.in_bounds or e.tail is not None or load.type.is_complex:
        return False
    if load.index.coefficient(vector) != 1 or e.buffers[load.buffer].byte_size <= L2_BYTES:
        return False
    gathered = [atom for atom, _ in load.index.terms if isinstance(atom, RuntimeIndex)]
    return bool(gathered) and all(atom.variables == {loops[-2]} for atom in gathered)


def _gathered_column(e: NestState, load: Load) -> RuntimeIndex | None:
    """The index in a row of a load of rows from memory, of each of which most lines are read; None for other loads."""
    loops, vector = e.nest.loops, e.vector
    if len(loops) < 2 or vector is not loops[-1] or not load.in_bounds or load.type.is_complex:
        return None
    varying = [(atom, c) for atom, c in load.index.terms if vector in atom.variables]
    if len(varying) != 1 or varying[0][1] != 1 or not isinstance(varying[0][0], RuntimeIndex):
        return None
    column = varying[0][0]
    return column if _reads_whole_rows(e, load, column, loops[-2]) else None


def _reads_whole_rows(e: NestState, load: Load, column: RuntimeIndex, rows: Variable) -> bool:
    length, size = column.high - column.low + 1, load.type.byte_width
    is_row = rows not in column.variables and load.index.is_affine_in(rows) and load.index.coefficient(rows) >= length
    is_dense = e.nest.loops[-1].extent * CACHE_LINE >= length * size
    return is_row and is_dense and length * size <= L1_BYTES // 2 and e.buffers[load.buffer].byte_size > L2_BYTES


def _is_of_second_pass(e: NestState, load: Load) -> bool:
    """Whether a load is of a row that a reduction has read before, of an array that no private cache holds.

    In this pass the processor computes on cached elements, and would leave memory idle.
    """
    loops = e.nest.loops
    if len(loops) not in (1, 2) or e.vector in (None, loops[0]) or e.tail is not None:
        return False
    if not load.in_bounds or load.type.is_complex:
        return False
    row = _row_start(load, e.vector)
    if row is None or not 0 < load.index.coefficient(loops[0]) * load.type.byte_width <= L1_BYTES:
        return False
    if e.buffers[load.buffer].byte_size <= L2_BYTES:
        return False
    alike = [other for other in e.nest.loads if other.buffer == load.buffer]
    passes = {v for other in alike for v in other.index.variables if _row_start(other, v) == row}
    in_order = dict.fromkeys([*(v for reduction in e.nest.reductions for v in reduction.over), *loops])
    return [v for v in in_order if v in passes][1:2] == [e.vector]


def _row_start(load: Load, vector: Variable) -> Index | None:
    """The index of the first element of a row that a load reads along a loop; None if it reads no contiguous row."""
    index = load.index
    if vector not in index.variables or not index.is_affine_in(vector) or index.coefficient(vector) != 1:
        return None
    return Index(tuple(term for term in index.terms if term[0] is not vector), index.constant)
