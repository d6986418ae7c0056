"""Emission of interleaved accesses: each lane loads or stores its own record of adjacent elements.

All accesses to the records are done together. With a small stride, the records of all lanes are one long vector, which
shuffles (de)interleave. Otherwise each record is a masked vector, and the square of registers is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hloom.affine import Index
from hloom.backends.cpu.elements.memory import repeated_lanes
from hloom.backends.cpu.elements.records import has_blocks, store_records
from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.elements.types import Element, load_element, memory_element, store_element
from hloom.backends.cpu.nests.indices import LaneIndex, lane_index
from hloom.backends.cpu.nests.memory import active_mask, strided_loads
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, Builder, Value, constant, mask_constant, poison, type_of
from hloom.loops.expressions import Load
from hloom.loops.interleaved_accesses import AccessGroup
from hloom.loops.nest import Store


def load_group(e: NestState, group: AccessGroup[Load]) -> None:
    """Emits the loads of a group, and records their values in the current scope."""
    elements = _load_one_vector(e, group) if group.has_small_stride else _load_transposed(e, group)
    e.scopes[-1].update({id(load): element for load, element in zip(group.accesses, elements, strict=True)})


def _load_one_vector(e: NestState, group: AccessGroup[Load]) -> list[Element]:
    load = group.accesses[0]
    index = LaneIndex(lane_index(e, group.first).base, group.stride)
    return strided_loads(e, e.pointers[load.buffer], index, load.type, group.offsets, e.tail)


def _load_transposed(e: NestState, group: AccessGroup[Load]) -> list[Element]:
    b, load = e.builder, group.accesses[0]
    type = type_of(memory_element(load.type), e.lanes)
    mask = mask_constant(group.length, e.lanes)
    pointers = _record_pointers(e, load.buffer, group, type.element)
    records = [b.load_masked(pointer, type, load.type.byte_width, mask) for pointer in pointers]
    elements = transpose(b, _padded(records, e.lanes))
    return [load_element(b, elements[k], load.type) for k in group.offsets]


def store_group(e: NestState, group: AccessGroup[Store], values: Sequence[Element]) -> None:
    """Emits the stores of a group; `values` are the vectors, in the order of the accesses."""
    if group.is_one_vector:
        _store_one_vector(e, group.accesses[0].buffer, group.first, values)
    else:
        _store_transposed(e, group, values)


def _store_transposed(e: NestState, group: AccessGroup[Store], values: Sequence[Element]) -> None:
    """Transposes the vectors to records, and stores these; dense ones are first concatenated to whole vectors."""
    buffer, length = group.accesses[0].buffer, group.length
    b, type = e.builder, e.buffers[buffer].type
    elements = [store_element(b, cast(Value, e.splat(value, e.lanes)), type) for value in values]
    pointers = _record_pointers(e, buffer, group, memory_element(type))
    records = transpose(b, _padded(elements, e.lanes))[: len(pointers)]
    if not group.is_dense:
        for record, pointer in zip(records, pointers, strict=True):
            b.store(b.shuffle(record, None, range(length)), pointer, type.byte_width)
        return
    for start in range(0, len(records) * length, e.lanes):
        pointer = b.element_pointer(pointers[0], constant(I64, start), memory_element(type))
        b.store(_concatenated(b, records, length, start), pointer, type.byte_width)


def _concatenated(b: Builder, records: list[Value], length: int, start: int) -> Value:
    """A vector of the elements from `start` on of the concatenated records, each of `length` elements.

    The last vector may be shorter.
    """
    width = records[0].type.width
    last = min(start + width, len(records) * length) - 1
    positions = [divmod(min(start + lane, last), length) for lane in range(width)]
    (first, offset), (final, _) = positions[0], positions[-1]
    result = records[first]
    if offset:
        lanes = [offset if record == first else lane for lane, (record, offset) in enumerate(positions)]
        result = b.shuffle(result, None, lanes)
    for k in range(first + 1, final + 1):
        lanes = [width + offset if record == k else lane for lane, (record, offset) in enumerate(positions)]
        result = b.shuffle(result, records[k], lanes)
    return result if last == start + width - 1 else b.shuffle(result, None, range(last + 1 - start))


def _store_one_vector(e: NestState, buffer: int, index: Index, values: Sequence[Element]) -> None:
    """Interleaves the vectors, and stores them as one: the first element of each, then the second of each .."""
    b, type, count = e.builder, e.buffers[buffer].type, len(values)
    base = lane_index(e, index).base
    stored = [store_element(b, cast(Value, e.splat(value, e.lanes)), type) for value in values]
    mask, pointer = active_mask(e), b.element_pointer(e.pointers[buffer], base, memory_element(type))
    if mask is None and has_blocks(b, stored[0].type, count):
        store_records(b, pointer, stored)
        return
    if count > 2:
        stored = [b.joined(stored[0], stored[1]), b.joined(stored[2], stored[-1])]
    order = [k * e.lanes + lane for lane in range(e.lanes) for k in range(count)]
    mask = repeated_lanes(b, b.splat(mask, e.lanes), count) if mask is not None else None
    b.store_masked(b.shuffle(stored[0], stored[1], order), pointer, type.byte_width, mask)


def _record_pointers(
    e: NestState, buffer: int, group: AccessGroup[Load] | AccessGroup[Store], element: str
) -> list[Value]:
    """The addresses of the records of the active lanes."""
    assert e.vector is not None
    b, active = e.builder, e.lanes if e.tail is None else e.vector.extent % e.lanes
    base = lane_index(e, group.first).base
    indices = [b.binary("add", base, constant(I64, lane * group.stride)) if lane else base for lane in range(active)]
    return [b.element_pointer(e.pointers[buffer], index, element) for index in indices]


def _padded(vectors: list[Value], count: int) -> list[Value]:
    return vectors + [poison(vectors[0].type)] * (count - len(vectors))
