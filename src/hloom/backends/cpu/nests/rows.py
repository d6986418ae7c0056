"""Loads and stores of short rows, of which each lane has its own: all elements of the rows that are wanted, at once.

Rows are loaded under a mask and turned in registers, a row for each lane; rows of the result are turned and stored
likewise. What is as dense as a few vectors, element by element in turns, is read and stored as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hloom.backends.cpu.elements.types import Element, load_element, memory_element, store_element
from hloom.backends.cpu.llvm.text import I64, PTR, Builder, Value, constant, mask_constant, type_of
from hloom.backends.cpu.nests.indices import index_parts
from hloom.backends.cpu.nests.memory import active_mask, repeated, strided_loads, vector_store
from hloom.backends.cpu.nests.state import NestState
from hloom.loops.expressions import Load
from hloom.loops.index import Index
from hloom.loops.nest import Store
from hloom.loops.rows import Rows


def load_rows(e: NestState, rows: Rows[Load]) -> None:
    """Loads what is wanted of the rows of all lanes, and remembers it."""
    columns = _in_turns(e, rows) if rows.is_interleaved else _turned(e, rows)
    e.scopes[-1].update({id(load): column for load, column in zip(rows.accesses, columns, strict=True)})


def _in_turns(e: NestState, rows: Rows[Load]) -> list[Element]:
    load = rows.accesses[0]
    base, *_ = index_parts(e, rows.first)
    return strided_loads(e, Value(f"%b{load.buffer}", PTR), base, load.type, rows.apart, rows.columns, e.tail)


def _turned(e: NestState, rows: Rows[Load]) -> list[Element]:
    b, load = e.builder, rows.accesses[0]
    type = type_of(memory_element(load.type), e.lanes)
    mask = mask_constant(rows.length, e.lanes)
    pointers = _row_pointers(e, load.buffer, rows, type.element)
    lines = [b.load_masked(at, type, load.type.byte_width, mask) for at in pointers]
    columns = transpose_vectors(b, _padded(lines, e.lanes))
    return [load_element(b, columns[k], load.type) for k in rows.columns]


def store_rows(e: NestState, rows: Rows[Store], values: Sequence[Element]) -> None:
    """Stores vectors, of which each has an element of the row of each lane."""
    if rows.is_one_vector:
        _store_in_turns(e, rows.accesses[0].buffer, rows.first, values)
    else:
        _store_turned(e, rows, values)


def _store_turned(e: NestState, rows: Rows[Store], values: Sequence[Element]) -> None:
    """Rows that lie one behind the other are joined to whole vectors."""
    buffer, length = rows.accesses[0].buffer, rows.length
    b, type = e.builder, e.buffers[buffer].type
    columns = [store_element(b, cast(Value, e.splat(value, e.lanes)), type) for value in values]
    pointers = _row_pointers(e, buffer, rows, memory_element(type))
    lines = transpose_vectors(b, _padded(columns, e.lanes))[: len(pointers)]
    if not rows.is_dense:
        for row, at in zip(lines, pointers, strict=True):
            b.store(b.shuffle(row, None, range(length)), at, type.byte_width)
        return
    for start in range(0, len(lines) * length, e.lanes):
        at = b.element_pointer(pointers[0], constant(I64, start), memory_element(type))
        b.store(_joined_rows(b, lines, length, start), at, type.byte_width)


def _joined_rows(b: Builder, rows: list[Value], length: int, start: int) -> Value:
    """A vector of the elements of rows one behind the other, so many of each, from one of them on; a shorter one at the
    end of them."""
    width = rows[0].type.width
    last = min(start + width, len(rows) * length) - 1
    places = [divmod(min(start + lane, last), length) for lane in range(width)]
    (top, first), (bottom, _) = places[0], places[-1]
    found = rows[top]
    if first:
        found = b.shuffle(found, None, [column if row == top else lane for lane, (row, column) in enumerate(places)])
    for number in range(top + 1, bottom + 1):
        lanes = [width + column if row == number else lane for lane, (row, column) in enumerate(places)]
        found = b.shuffle(found, rows[number], lanes)
    return found if last == start + width - 1 else b.shuffle(found, None, range(last + 1 - start))


def _store_in_turns(e: NestState, buffer: int, index: Index, values: Sequence[Element]) -> None:
    """Stores vectors element by element in turns: the first of each, then the second of each."""
    b, type, count = e.builder, e.buffers[buffer].type, len(values)
    base, _, _ = index_parts(e, index)
    stored = [store_element(b, cast(Value, e.splat(value, e.lanes)), type) for value in values]
    if count > 2:
        stored = [b.joined(stored[0], stored[1]), b.joined(stored[2], stored[-1])]
    order = [k * e.lanes + lane for lane in range(e.lanes) for k in range(count)]
    mask = active_mask(e)
    mask = repeated(e, b.splat(mask, e.lanes), count) if mask is not None else None
    at = b.element_pointer(Value(f"%b{buffer}", PTR), base, memory_element(type))
    vector_store(e, b.shuffle(stored[0], stored[1], order), at, type.byte_width, mask)


def _row_pointers(e: NestState, buffer: int, rows: Rows[Load] | Rows[Store], element: str) -> list[Value]:
    """Where the rows of the lanes that count begin."""
    assert e.vector is not None
    b, active = e.builder, e.lanes if e.tail is None else e.vector.extent % e.lanes
    base, *_ = index_parts(e, rows.first)
    places = [b.binary("add", base, constant(I64, lane * rows.apart)) if lane else base for lane in range(active)]
    return [b.element_pointer(Value(f"%b{buffer}", PTR), place, element) for place in places]


def _padded(vectors: list[Value], count: int) -> list[Value]:
    return vectors + [Value("poison", vectors[0].type)] * (count - len(vectors))


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
