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
from hloom.target import CACHE_LINE

NARROW_BYTES = 2
"""The largest element size for which a vector of `lanes` elements is much shorter than a cache line."""
BLOCKS_ACROSS = 2
"""Adjacent blocks that follow each other: processors read, and memory writes, two adjacent cache lines at once."""
FAR_BYTES = 512
"""The distance of rows below which they stay in the L1 cache while their vectors are stored."""


def emit_tiles(e: NestState, depth: int, first: IndexValue, last: IndexValue) -> None:
    """Emits the tile loop in blocks of lanes x lanes iterations; the remaining iterations run row by row."""
    tile, vector, lanes = e.nest.schedule.transposed, e.nest.schedule.vector, e.nest.schedule.lanes
    assert tile is not None and vector is not None
    b, step = e.builder, e.nest.schedule.tile_step
    vector_end = vector.extent // lanes * lanes
    tiled_end = tile.extent // step * step if vector_end else 0
    wide = _staged_width(e, tile, vector)
    wide_end = vector_end // wide * wide if wide > lanes else 0
    pair = lanes * BLOCKS_ACROSS if step > lanes else lanes
    paired_end = wide_end + (vector_end - wide_end) // pair * pair

    def emit_rows(row: Value) -> None:
        """Emits `step` rows: whole blocks, and then the remainder of each row."""
        end = b.binary("add", row, constant(I64, step))
        if wide_end:
            e.counted_loop(0, wide_end, wide, lambda column: _staged_blocks(e, depth, (row, step), (column, wide)))
        if wide_end < paired_end:
            e.counted_loop(wide_end, paired_end, pair, lambda column: emit_blocks(row, end, column, pair))
        if paired_end < vector_end:
            e.counted_loop(paired_end, vector_end, lanes, lambda column: emit_blocks(row, end, column, lanes))
        if vector_end < vector.extent:
            e.counted_loop(row, end, 1, lambda r: _row(e, depth, r, vector_end))

    def emit_blocks(row: Value, end: Value, column: Value, columns: int) -> None:
        if step == lanes:
            _block(e, depth, row, column)
        else:
            last = b.binary("add", column, constant(I64, columns))
            e.counted_loop(
                row, end, lanes, lambda r: e.counted_loop(column, last, lanes, lambda c: _block(e, depth, r, c))
            )

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


def allocate_transposed(e: NestState) -> None:
    """Allocates the stack memory in which `_staged_blocks` keeps transposed blocks."""
    tile, vector, lanes = e.nest.schedule.transposed, e.nest.schedule.vector, e.nest.schedule.lanes
    if tile is not None and vector is not None and _staged_width(e, tile, vector) > lanes:
        for load in transposed_loads(e.nest, tile, vector):
            count, element = e.nest.schedule.tile_step * _staged_width(e, tile, vector), memory_element(load.type)
            e.transposed.append(e.builder.stack_array(type_of(element), count, CACHE_LINE))


def _staged_width(e: NestState, tile: Variable, vector: Variable) -> int:
    """The number of elements of a row that are stored together: a cache line of narrow ones if rows are far apart."""
    lanes, index = e.nest.schedule.lanes, e.nest.stores[0].index
    widest = max((load.type.byte_width for load in transposed_loads(e.nest, tile, vector)), default=CACHE_LINE)
    is_far = index.is_affine_in(tile) and index.coefficient(tile) * widest >= FAR_BYTES
    wide = CACHE_LINE // widest if e.nest.schedule.tile_step > lanes else lanes
    return wide if is_far and widest <= NARROW_BYTES and lanes < wide <= vector.extent else lanes


def _staged_blocks(e: NestState, depth: int, rows: tuple[Value, int], columns: tuple[Value, int]) -> None:
    """Emits adjacent blocks, transposed into stack memory first, so that cache lines of results are written whole."""
    tile, vector, b = e.nest.schedule.transposed, e.nest.schedule.vector, e.builder
    assert tile is not None and vector is not None
    (row, step), (column, wide) = rows, columns
    e.vector, e.lanes = vector, e.nest.schedule.lanes

    def address(k: int, load: Load, r: Value, c: IndexValue) -> Value:
        offset = b.binary("add", b.binary("mul", r, constant(I64, wide)), b.index(c))
        return b.element_pointer(e.transposed[k], offset, memory_element(load.type))

    def transpose_block(r: Value, c: Value) -> None:
        with e.bound(vector, b.binary("add", column, c)):
            for k, (load, vectors) in enumerate(load_transposed(e, tile, b.binary("add", row, r))):
                for n, elements in enumerate(vectors):
                    lane_row = b.binary("add", r, constant(I64, n))
                    b.store(elements, address(k, load, lane_row, c), load.type.byte_width)

    def emit_row(r: Value) -> None:
        for c in range(0, wide, e.lanes):
            with e.bound(vector, b.binary("add", column, constant(I64, c))), e.bound(tile, b.binary("add", row, r)):
                for k, load in enumerate(transposed_loads(e.nest, tile, vector)):
                    type = type_of(memory_element(load.type), e.lanes)
                    elements = b.load(address(k, load, r, c), type, load.type.byte_width)
                    e.scopes[-1][id(load)] = load_element(b, elements, load.type)
                e.emit_loops(depth + 2)

    e.counted_loop(0, wide, e.lanes, lambda c: e.counted_loop(0, step, e.lanes, lambda r: transpose_block(r, c)))
    e.counted_loop(0, step, 1, emit_row)
    e.vector, e.lanes = None, 0


def _block(e: NestState, depth: int, row: Value, column: Value) -> None:
    """Emits a block of lanes x lanes iterations from a row and a column on."""
    tile, vector, b = e.nest.schedule.transposed, e.nest.schedule.vector, e.builder
    assert tile is not None and vector is not None
    e.vector, e.lanes = vector, e.nest.schedule.lanes
    with e.bound(vector, column):
        transposed = load_transposed(e, tile, row)
        for k in range(e.lanes):
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
    """Emits the loads of `transposed_loads` as vectors along the tile loop, and transposes these."""
    b, vector = e.builder, e.vector
    assert vector is not None
    result = []
    for load in transposed_loads(e.nest, tile, vector):
        pieces = []
        element = memory_element(load.type)
        for k in range(e.lanes):
            e.variables[tile] = row
            offset = lane_index(e, load.index, uncached=True).base
            del e.variables[tile]
            shifted = b.binary("add", offset, constant(I64, k * load.index.coefficient(vector)))
            pointer = b.element_pointer(e.pointers[load.buffer], shifted, element)
            pieces.append(b.load(pointer, type_of(element, e.lanes), load.type.byte_width))
            e.scopes[-1].pop(("terms", load.index.terms), None)
        result.append((load, transpose(b, pieces)))
    return result


def transposed_loads(nest: Nest, tile: Variable, vector: Variable) -> list[Load]:
    """The loads that are contiguous along `tile` and not along `vector`."""
    return [
        e
        for e in walk(nest.values)
        if isinstance(e, Load) and is_transposable(e, tile, vector) and e.variables <= set(nest.loops)
    ]
