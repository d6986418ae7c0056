"""Tiles in LLVM IR: squares of lanes x lanes elements that are read along one loop and turned to run along another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.backends.cpu.element_types import load_element, memory_element
from hloom.backends.cpu.index_emitter import index_parts
from hloom.backends.cpu.llvm_text import I64, Builder, Value, constant, mask_constant, type_of
from hloom.loops.expressions import Load, walk
from hloom.loops.index import Variable
from hloom.loops.nest import Nest
from hloom.loops.schedule import tile_step

if TYPE_CHECKING:
    from hloom.backends.cpu.nest_emitter import NestEmitter


def emit_tiles(e: NestEmitter, depth: int, first: Value, last: Value) -> None:
    """Blocks of lanes x lanes; what does not fill a block runs row by row."""
    tile, vector = e.nest.schedule.transposed, e.nest.schedule.vector
    assert tile is not None and vector is not None
    lanes = e.nest.schedule.lanes
    b = e.builder
    chunked = depth == 0 and e.nest.schedule.chunk
    tiled_end = tile.extent // tile_step(tile, lanes) * tile_step(tile, lanes)
    vector_end = vector.extent // lanes * lanes
    end = constant(I64, tiled_end)
    if chunked:
        end = b.intrinsic("smin", last, end)

    step = tile_step(tile, lanes)

    def block_row(row: Value, _: list[Value]) -> list[Value]:
        e.loop(constant(I64, 0), constant(I64, vector_end), lanes, [], lambda column, _: blocks(row, column))
        if vector_end < vector.extent:
            rest = constant(I64, vector_end)
            e.loop(row, b.binary("add", row, constant(I64, step)), 1, [], lambda r, _: edge(r, rest))
        return []

    def blocks(row: Value, column: Value) -> list[Value]:
        end = b.binary("add", row, constant(I64, step))
        return e.loop(row, end, lanes, [], lambda r, _: block(r, column), single=step == lanes)

    def block(row: Value, column: Value) -> list[Value]:
        e.vector, e.lanes = vector, lanes
        with e.bound(vector, column):
            turned = turn_loads(e, tile, row)
            for k in range(lanes):
                at = b.binary("add", row, constant(I64, k)) if k else row
                with e.bound(tile, at):
                    for load, vectors in turned:
                        e.scopes[-1][id(load)] = load_element(b, vectors[k], load.type)
                    e.emit_loops(depth + 2)
        e.vector, e.lanes = None, 0
        return []

    def edge(row: Value, column: Value) -> list[Value]:
        with e.bound(tile, row):
            first_column = 0 if column.text == "0" else vector_end
            part = vector.extent - first_column
            e.vector, e.lanes = vector, lanes
            whole = part // lanes * lanes

            def step(value: Value, _: list[Value]) -> list[Value]:
                with e.bound(vector, value):
                    e.emit_loops(depth + 2)
                return []

            if whole:
                e.loop(column, constant(I64, first_column + whole), lanes, [], step)
            if part % lanes:
                e.tail = mask_constant(part % lanes, lanes)
                step(constant(I64, first_column + whole), [])
                e.tail = None
            e.vector, e.lanes = None, 0
        return []

    if tiled_end and vector_end:
        e.guarded(
            b.compare("slt", first, end),
            lambda: e.loop(first, end, step, [], block_row),
            bool(chunked),
        )
    else:
        end = first
    if tiled_end < tile.extent or not vector_end:
        start = b.intrinsic("smax", first, constant(I64, tiled_end)) if vector_end else first
        zero = constant(I64, 0)
        e.guarded(
            b.compare("slt", start, last),
            lambda: e.loop(start, last, 1, [], lambda row, _: edge(row, zero)),
            True,
        )


def turn_loads(e: NestEmitter, tile: Variable, row: Value) -> list[tuple[Load, list[Value]]]:
    """The loads that are contiguous along the tile's rows, read as vectors and transposed."""
    b, vector = e.builder, e.vector
    assert vector is not None
    result = []
    for load in turned_loads(e.nest, tile, vector):
        pieces = []
        element = memory_element(load.type)
        for k in range(e.lanes):
            e.variables[tile] = row
            offset, _, _ = index_parts(e, load.index, ignore=True)
            del e.variables[tile]
            shifted = b.binary("add", offset, constant(I64, k * load.index.coefficient(vector)))
            pointer = b.element_pointer(Value(f"%b{load.buffer}", type_of("ptr")), shifted, element)
            pieces.append(b.load(pointer, type_of(element, e.lanes), load.type.byte_width))
            e.scopes[-1].pop(("terms", load.index.terms), None)
        result.append((load, transpose_vectors(b, pieces)))
    return result


def turned_loads(nest: Nest, tile: Variable, vector: Variable) -> list[Load]:
    """The loads that are contiguous along `tile` and not along `vector`: those that a tile turns."""
    return [
        e
        for e in walk(nest.values)
        if isinstance(e, Load)
        and e.in_bounds
        and not e.type.is_complex
        and e.index.is_affine_in(tile)
        and e.index.is_affine_in(vector)
        and e.index.coefficient(tile) == 1
        and e.index.coefficient(vector) > 1
        and e.variables <= set(nest.loops)
    ]


def transpose_vectors(b: Builder, rows: list[Value]) -> list[Value]:
    """The columns of a square of registers, in log2(n) rounds of two-register shuffles."""
    n = len(rows)
    distance = n // 2
    while distance:
        new = list(rows)
        for i in range(n):
            if i & distance:
                continue
            j = i | distance
            low = [k if not k & distance else n + (k ^ distance) for k in range(n)]
            high = [(k | distance) if not k & distance else n + k for k in range(n)]
            new[i] = b.shuffle(rows[i], rows[j], low)
            new[j] = b.shuffle(rows[i], rows[j], high)
        rows = new
        distance //= 2
    return rows
