"""Emission of tiled transpositions: squares of lanes x lanes elements, loaded along one loop and used along another."""

from __future__ import annotations

from hloom.affine import Variable
from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.elements.types import load_element, memory_element
from hloom.backends.cpu.nests.indices import lane_index
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, IndexValue, Value, constant, mask_constant, type_of
from hloom.loops.expressions import Load, walk
from hloom.loops.interleaved_accesses import is_transposable
from hloom.loops.nest import Nest

BLOCKS_ACROSS = 2
"""Adjacent blocks that follow each other: processors read, and memory writes, two adjacent cache lines at once."""


def emit_tiles(e: NestState, depth: int, first: IndexValue, last: IndexValue) -> None:
    """Emits the tile loop in blocks of lanes x lanes iterations; the remaining iterations run row by row."""
    tile, vector, lanes = e.nest.schedule.transposed, e.nest.schedule.vector, e.nest.schedule.lanes
    assert tile is not None and vector is not None
    b, step = e.builder, e.nest.schedule.tile_step
    vector_end = vector.extent // lanes * lanes
    tiled_end = tile.extent // step * step if vector_end else 0

    def emit_rows(row: Value) -> None:
        """Emits `step` rows: whole blocks, several adjacent ones at each row, and then the remainder of each row."""
        start, end = 0, b.binary("add", row, constant(I64, step))
        for width in dict.fromkeys((e.nest.schedule.tile_width, lanes)):
            for across in (BLOCKS_ACROSS * width, width) if step > lanes == width else (width,):
                columns = range(start, start + (vector_end - start) // across * across, across)
                emit_blocks((row, end), columns, width)
                start = columns.stop
        if vector_end < vector.extent:
            e.counted_loop(row, end, 1, lambda r: _row(e, depth, r, vector_end))

    def emit_blocks(rows: tuple[Value, Value], columns: range, width: int) -> None:
        def emit_columns(column: Value) -> None:
            last = b.binary("add", column, constant(I64, columns.step))
            e.counted_loop(
                *rows, lanes, lambda r: e.counted_loop(column, last, width, lambda c: _block(e, depth, (r, c), width))
            )

        if columns:
            e.counted_loop(columns.start, columns.stop, columns.step, emit_columns)

    if tiled_end:
        end, has_blocks = b.index(tiled_end), None
        if isinstance(first, Value) and isinstance(last, Value):
            end = b.intrinsic("umin", last, end)
            has_blocks = b.compare("ult", first, end)
        with b.when(has_blocks):
            e.counted_loop(first, end, step, emit_rows)
    if tiled_end < tile.extent:
        start = b.intrinsic("umax", b.index(first), b.index(tiled_end))
        with b.when(b.compare("ult", start, b.index(last))):
            e.counted_loop(start, last, 1, lambda row: _row(e, depth, row, 0))


def _block(e: NestState, depth: int, at: tuple[Value, Value], width: int) -> None:
    """Emits a block of lanes rows and `width` columns from a row and a column on."""
    tile, vector, lanes = e.nest.schedule.transposed, e.nest.schedule.vector, e.nest.schedule.lanes
    assert tile is not None and vector is not None
    (row, column), b = at, e.builder
    e.vector, e.lanes = vector, width
    with e.bound(vector, column):
        transposed = load_transposed(e, tile, row)
        for k in range(lanes):
            lane_row = b.binary("add", row, constant(I64, k)) if k else row
            with e.bound(tile, lane_row):
                for load, vectors in transposed:
                    e.scopes[-1][id(load)] = load_element(b, vectors[k], load.type)
                e.emit_loops(depth + 2)
    e.vector, e.lanes = None, 0


def _row(e: NestState, depth: int, row: Value, first_column: int) -> None:
    """Emits one row from a column on: whole vectors, and the remainder as a masked vector."""
    tile, vector, lanes = e.nest.schedule.transposed, e.nest.schedule.vector, e.nest.schedule.lanes
    assert tile is not None and vector is not None
    rest = (vector.extent - first_column) % lanes
    whole_end = vector.extent - rest

    def emit_iterations(column: Value) -> None:
        with e.bound(vector, column):
            e.emit_loops(depth + 2)

    e.vector, e.lanes = vector, lanes
    with e.bound(tile, row):
        if first_column < whole_end:
            e.counted_loop(first_column, whole_end, lanes, emit_iterations)
        if rest:
            e.tail = mask_constant(rest, lanes)
            emit_iterations(constant(I64, whole_end))
            e.tail = None
    e.vector, e.lanes = None, 0


def load_transposed(e: NestState, tile: Variable, row: Value) -> list[tuple[Load, list[Value]]]:
    """Emits the loads of `transposed_loads` as vectors along the tile loop, several squares side by side, and
    transposes these.
    """
    b, vector, lanes = e.builder, e.vector, e.nest.schedule.lanes
    assert vector is not None
    result = []
    for load in transposed_loads(e.nest, tile, vector):
        element = memory_element(load.type)

        def piece(column: int, load: Load = load, element: str = element) -> Value:
            e.variables[tile] = row
            offset = lane_index(e, load.index, uncached=True).base
            del e.variables[tile]
            shifted = b.binary("add", offset, constant(I64, column * load.index.coefficient(vector)))
            pointer = b.element_pointer(e.pointers[load.buffer], shifted, element)
            e.scopes[-1].pop(("terms", load.index.terms), None)
            return b.load(pointer, type_of(element, lanes), load.type.byte_width)

        rows = [b.concatenated([piece(c + k) for c in range(0, e.lanes, lanes)]) for k in range(lanes)]
        result.append((load, transpose(b, rows)))
    return result


def transposed_loads(nest: Nest, tile: Variable, vector: Variable) -> list[Load]:
    """The loads that are contiguous along `tile` and not along `vector`."""
    return [
        e
        for e in walk(nest.values)
        if isinstance(e, Load) and is_transposable(e, tile, vector) and e.variables <= set(nest.loops)
    ]
