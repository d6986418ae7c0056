"""Loads and stores of elements in memory: one, or a vector of adjacent ones."""

from __future__ import annotations

from hloom.backends.cpu.elements.types import Element, load_element, memory_element, store_element
from hloom.lir import I64, Builder, FirstLanes, Type, Value, constant, type_of
from hloom.types import PrimitiveType


def load_lanes(b: Builder, address: Value, type: PrimitiveType, lanes: int = 0, mask: Value | None = None) -> Element:
    """Loads one element, or a vector of `lanes` consecutive elements; lanes outside the mask are zero."""
    element, align = memory_element(type), type.real.byte_width
    if not type.is_complex:
        return load_element(b, b.load_masked(address, type_of(element, lanes), align, mask), type)
    if not lanes:
        real = b.load(address, type_of(element), align)
        return real, b.load(b.element_pointer(address, constant(I64, 1), element), type_of(element), align)
    # Two vectors, since LLVM takes long to select lanes of one of twice the size.
    low, high = (_load_half(b, address, type_of(element, lanes), align, mask, k) for k in range(2))
    return b.shuffle(low, high, range(0, 2 * lanes, 2)), b.shuffle(low, high, range(1, 2 * lanes, 2))


def _load_half(b: Builder, address: Value, type: Type, align: int, mask: Value | None, half: int) -> Value:
    """Loads the first or second half of the parts of complex elements."""
    first = half * type.width
    lanes = [k // 2 for k in range(first, first + type.width)]
    part = None if mask is None else b.shuffle(mask, None, lanes)
    return b.load_masked(b.element_pointer(address, constant(I64, first), type.element), type, align, part)


def store_lanes(b: Builder, value: Element, address: Value, type: PrimitiveType, mask: Value | None = None) -> None:
    """Stores an element or a vector of consecutive elements; with a mask, only its lanes."""
    align = type.real.byte_width
    if isinstance(value, Value):
        b.store_masked(store_element(b, value, type), address, align, mask)
        return
    lanes = value[0].type.width
    if lanes:
        b.store_masked(interleaved(b, *value), address, align, repeated_lanes(b, mask, 2))
    else:
        b.store(value[0], address, align)
        b.store(value[1], b.element_pointer(address, constant(I64, 1), memory_element(type)), align)


def interleaved(b: Builder, first: Value, second: Value) -> Value:
    """Returns the lanes of two vectors alternately, as memory has real and imaginary parts."""
    lanes = first.type.width
    return b.shuffle(first, second, [k // 2 + k % 2 * lanes for k in range(2 * lanes)])


def repeated_lanes(b: Builder, mask: Value | None, count: int) -> Value | None:
    """The mask with each lane repeated `count` times, for as many adjacent elements."""
    if isinstance(mask, FirstLanes):
        return b.first_lanes(b.binary("mul", mask.count, constant(I64, count)), count * mask.type.width)
    return None if mask is None else b.shuffle(mask, None, [k // count for k in range(count * mask.type.width)])
