"""Emission of loads and stores: contiguous, strided, gathered or scattered, masked, non-temporal."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hloom.affine import Index, Quotient, RuntimeIndex
from hloom.backends.cpu.elements.memory import load_lanes, store_lanes
from hloom.backends.cpu.elements.records import has_blocks, load_records
from hloom.backends.cpu.elements.types import (
    Element,
    element_of,
    load_element,
    map_parts,
    memory_element,
    parts,
    store_element,
)
from hloom.backends.cpu.nests.indices import LaneIndex, lane_index
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, Constant, Value, constant, lane_indices, mask_constant, type_of, zero
from hloom.loops.expressions import Load
from hloom.loops.nest import BufferType
from hloom.target import CACHE_LINE, L2_BYTES, L3_BYTES
from hloom.types import PrimitiveType

MIN_NONTEMPORAL_BYTES = L3_BYTES * 5 // 4
"""The smallest memory traffic of a kernel with non-temporal stores, in bytes: more than the last-level cache holds."""


def active_mask(e: NestState) -> Value | None:
    """The mask of the lanes that may access memory; None for all lanes."""
    if e.tail is None:
        return e.mask
    return e.tail if e.mask is None else e.logical_and(e.tail, e.mask)


def emit_load(e: NestState, load: Load) -> Element:
    """Emits a load with the cheapest instructions for its access pattern."""
    b, type = e.builder, load.type
    mask = active_mask(e) if not load.in_bounds or e.tail is not None else None
    if e.vector is not None and e.vector in load.index.variables and not type.is_complex:
        quotient = _repetition(e, load.index)
        if quotient is not None:
            return repeated_load(e, load, quotient, mask)
    pointer, relative = e.origin(load)
    index = lane_index(e, relative)
    if not load.in_bounds:
        index = replace(index, base=guarded_index(e, index.base, e.lanes - 1 if index.stride == -1 else 0))
    if index.is_uniform:
        return load_lanes(b, element_address(e, pointer, index.base, type), type)
    if mask is not None:
        mask = b.splat(mask, e.lanes)
    if index.has_stride(1):
        return load_lanes(b, element_address(e, pointer, index.base, type), type, e.lanes, mask)
    if index.has_stride(-1):
        return reversed_load(e, pointer, index.base, type, mask)
    if index.extra is None and 2 <= index.stride <= 4 and not type.is_complex:
        return strided_loads(e, pointer, index, type, [0], mask)[0]
    return gather(e, pointer, index, type, mask)


def element_address(e: NestState, pointer: Value, base: Value, type: PrimitiveType) -> Value:
    """The address of the element at an index."""
    if type.is_complex:
        two = constant(I64, 2)
        base = constant(I64, 2 * base.number) if isinstance(base, Constant) else e.builder.binary("mul", base, two)
    return e.builder.element_pointer(pointer, base, memory_element(type))


def guarded_index(e: NestState, index: Value, otherwise: int = 0) -> Value:
    """The index if some lane of the current mask is on, else `otherwise`, which is inside the buffer.

    Loads without a mask must not leave the buffer, and a masked load with all lanes off takes hundreds of cycles if its
    address is not mapped.
    """
    if e.mask is None:
        return index
    condition = e.builder.any_lane(e.mask)
    return e.builder.select(condition, index, constant(I64, otherwise))


def reversed_load(e: NestState, pointer: Value, base: Value, type: PrimitiveType, mask: Value | None) -> Element:
    """Emits the load of a vector with stride -1: a contiguous load that ends at the first lane's element, reversed."""
    b, reversed_lanes = e.builder, range(e.lanes - 1, -1, -1)
    first = b.binary("sub", base, constant(I64, e.lanes - 1))
    mask = None if mask is None else b.shuffle(mask, None, reversed_lanes)
    found = load_lanes(b, element_address(e, pointer, first, type), type, e.lanes, mask)
    return map_parts(lambda part: b.shuffle(part, None, reversed_lanes), found)


def strided_loads(
    e: NestState, pointer: Value, index: LaneIndex, type: PrimitiveType, offsets: Sequence[int], mask: Value | None
) -> list[Element]:
    """Emits one long load and, for each offset, a shuffle that takes every stride-th element from there on.

    Elements between those of a remainder are loaded with them.
    """
    b, element, stride = e.builder, memory_element(type), index.stride
    length = (e.lanes - 1) * stride + offsets[-1] + 1
    pointer, vector = b.element_pointer(pointer, index.base, element), type_of(element, e.lanes)
    if mask is None and offsets[-1] == stride - 1 and has_blocks(b, vector, stride):
        records = load_records(b, pointer, vector, stride)
        return [load_element(b, records[k], type) for k in offsets]
    if isinstance(mask, Constant):
        mask = mask_constant(length - stride * (e.lanes - sum(map(bool, mask.lanes))), length)
    elif mask is not None:
        no_lanes = zero(mask.type)
        mask = b.shuffle(mask, no_lanes, [k // stride if k % stride in offsets else e.lanes for k in range(length)])
    whole = b.load_masked(pointer, type_of(element, length), type.byte_width, mask)
    return [load_element(b, b.shuffle(whole, None, range(k, length, stride)), type) for k in offsets]


def _repetition(e: NestState, index: Index) -> Quotient | None:
    """The atom i // d of an index that is otherwise the same in all lanes, if d divides their number; else None."""
    (atom, coefficient), *more = [(a, c) for a, c in index.terms if e.vector in a.variables]
    if more or coefficient != 1 or not isinstance(atom, Quotient) or e.vector is None:
        return None
    return atom if atom.operand.is_atom(e.vector) and e.lanes % atom.divisor == 0 else None


def repeated_load(e: NestState, load: Load, quotient: Quotient, mask: Value | None) -> Element:
    """Emits the load of adjacent elements, each of which several lanes share."""
    b, element, times = e.builder, memory_element(load.type), quotient.divisor
    others = Index(tuple(term for term in load.index.terms if term[0] is not quotient), load.index.constant)
    base = lane_index(e, others).base
    assert e.vector is not None
    start = b.binary("add", base, b.binary("udiv", e.variables[e.vector], constant(I64, times)))
    start = start if load.in_bounds else guarded_index(e, start)
    pointer = b.element_pointer(e.pointers[load.buffer], start, element)
    if mask is not None:
        whole = b.splat(mask, e.lanes)
        # The remainder has the first of the lanes that share an element if it has any.
        is_first = isinstance(whole, Constant)
        phases = [b.shuffle(whole, None, range(phase, e.lanes, times)) for phase in range(1 if is_first else times)]
        mask = functools.reduce(lambda a, c: b.binary("or", a, c), phases)
    part = b.load_masked(pointer, type_of(element, e.lanes // times), load.type.byte_width, mask)
    return load_element(b, b.shuffle(part, None, [lane // times for lane in range(e.lanes)]), load.type)


def gather(e: NestState, pointer: Value, index: LaneIndex, type: PrimitiveType, mask: Value | None) -> Element:
    """Emits a gather."""
    b, vector = e.builder, type_of(memory_element(type), e.lanes)
    mask = mask if mask is not None else _all_lanes(e)
    addresses = lane_pointers(e, pointer, index, type)
    found = [b.gather(pointers, vector, type.real.byte_width, mask) for pointers in addresses]
    return element_of(found) if type.is_complex else load_element(b, found[0], type)


def lane_pointers(e: NestState, pointer: Value, index: LaneIndex, type: PrimitiveType) -> Iterator[Value]:
    """Emits the vector of the lanes' addresses; for complex elements, one for each part."""
    b, element = e.builder, memory_element(type)
    count = 2 if type.is_complex else 1
    offsets = lane_offsets(e, index, count)
    base = b.binary("mul", index.base, constant(I64, 2)) if type.is_complex else index.base
    start = b.element_pointer(pointer, base, element)
    for part in range(count):
        origin = b.element_pointer(start, constant(I64, part), element) if part else start
        yield b.element_pointer(origin, offsets, element)


def _all_lanes(e: NestState) -> Value:
    return constant(type_of("i1", e.lanes), True)


def lane_offsets(e: NestState, index: LaneIndex, factor: int) -> Value:
    """Emits factor * (stride * lane + extra) as a vector."""
    b = e.builder
    wide = type_of(e.index_element, e.lanes)
    offsets = index.extra
    if index.stride:
        affine = b.binary("mul", lane_indices(wide), constant(wide, index.stride))
        offsets = affine if offsets is None else b.binary("add", offsets, affine)
    assert offsets is not None
    return b.binary("mul", offsets, constant(wide, factor)) if factor != 1 else offsets


def emit_store(e: NestState, buffer: int, index: Index, value: Element) -> None:
    """Emits a store with the cheapest instructions for its access pattern."""
    b, type = e.builder, e.buffers[buffer].type
    pointer, at = e.pointers[buffer], lane_index(e, index)
    if at.is_uniform:
        store_lanes(b, value, element_address(e, pointer, at.base, type), type)
        return
    value = e.splat(value, e.lanes)
    mask = active_mask(e)
    mask = b.splat(mask, e.lanes) if mask is not None else None
    if not at.has_stride(1):
        scatter(e, pointer, at, value, type, mask)
        return
    address = element_address(e, pointer, at.base, type)
    if isinstance(value, Value) and mask is None and is_nontemporal(e, buffer, index):
        b.store(store_element(b, value, type), address, CACHE_LINE, is_nontemporal=True)
    else:
        store_lanes(b, value, address, type, mask)


def is_nontemporal(e: NestState, buffer: int, index: Index) -> bool:
    """Whether stores to a buffer are non-temporal: those that write whole cache lines of a large result."""
    kind = e.buffers[buffer]
    per_line = CACHE_LINE // kind.type.byte_width
    return (
        kind.role == "output"
        and e.lanes % per_line == 0
        and index.constant % per_line == 0
        and all(c % per_line == 0 for atom, c in index.terms if atom is not e.vector)
        and pays_nontemporal(e.buffers, e.nest.loads, kind.byte_size)
    )


def pays_nontemporal(buffers: Sequence[BufferType], loads: Sequence[Load], written: int) -> bool:
    """Whether non-temporal stores of `written` bytes pay: the last-level cache cannot hold the traffic of the kernel.

    A kernel that mostly writes has no operands worth keeping in the caches, and is as fast with normal stores.
    """
    if written * len(buffers) < MIN_NONTEMPORAL_BYTES:
        return False
    # A kernel may read only a part of an operand larger than the result, such as a table, and rows of a table often.
    gathered = {load.buffer for load in loads if _is_gathered(load) and buffers[load.buffer].byte_size > L2_BYTES}
    read = sum(
        written if k in gathered else min(kind.byte_size, written)
        for k, kind in enumerate(buffers)
        if kind.role == "input"
    )
    return read + written >= MIN_NONTEMPORAL_BYTES and 2 * read >= written


def _is_gathered(load: Load) -> bool:
    """Whether a loop computes where a load reads."""
    return any(isinstance(atom, RuntimeIndex) and atom.variables for atom, _ in load.index.terms)


def scatter(
    e: NestState, pointer: Value, index: LaneIndex, value: Element, type: PrimitiveType, mask: Value | None
) -> None:
    """Emits a scatter."""
    b = e.builder
    mask = mask if mask is not None else _all_lanes(e)
    addresses = lane_pointers(e, pointer, index, type)
    for part, pointers in zip(parts(value), addresses, strict=True):
        stored = part if type.is_complex else store_element(b, part, type)
        b.scatter(stored, pointers, type.real.byte_width, mask)
