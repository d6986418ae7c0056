"""Masked accesses to memory, divided where all lanes of a constant mask are on, or all off.

Masks of AVX-512 are registers, and cost nothing. Elsewhere a masked store takes some fourteen cycles, later loads wait
for it, and LLVM accesses narrow elements lane by lane. So vectors of which a remainder is accessed become parts of
powers of two lanes: those of a constant mask, or those of the bits of a count.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from hloom.lir.builder import InstructionBuilder
from hloom.lir.instructions import FirstLanes
from hloom.lir.types import I1, I32, I64, PTR, Type, type_of
from hloom.lir.values import Constant, IndexValue, Value, constant, lane_indices, mask_constant, zero
from hloom.system.records import record
from hloom.target import MASK_REGISTERS_BYTES, min_masked_bits


class Builder(InstructionBuilder):
    """Appends instructions; masked accesses of vectors longer than registers are divided."""

    def any_lane(self, mask: Value) -> Value:
        """Returns whether any lane of a mask is on, as i1."""
        return self.call(f"llvm.vector.reduce.or.{mask.type.suffix}", I1, mask) if mask.type.width else mask

    def first_lanes(self, count: IndexValue, width: int) -> Value:
        """Returns the mask of the lanes below `count`."""
        if isinstance(count, int):
            return mask_constant(count, width)
        lane = type_of("i32", width)
        splat = self.splat(self.convert("trunc", count, lane.element), width)
        return self.append(FirstLanes(self.name(), lane_indices(lane), splat, count))

    def load_masked(
        self, pointer: Value, type: Type, align: int, mask: Value | None, rest: Value | None = None
    ) -> Value:
        """Loads the lanes of a mask, None for all; the others are those of `rest`, all alike, by default zeros.

        LLVM 22 reads inactive lanes if it splits a vector over registers of which one has no active lane and the mask
        is partly constant. So vectors are split into registers here.
        """
        if mask is None:
            return self.load(pointer, type, align)
        rest = rest if rest is not None else zero(type)
        if isinstance(mask, FirstLanes) and type.bits < min_masked_bits(self.register_bytes):
            return self._load_first(pointer, align, mask.count, rest)
        loaded: list[Value] = []
        for part in mask_parts(mask, self._lanes(type), self.divides_masks):
            loaded.append(self._load_part(pointer, type, align, part, mask, rest))
            while len(loaded) > 1 and loaded[-1].type.width == loaded[-2].type.width:
                loaded[-2:] = [self.joined(*loaded[-2:])]
        return functools.reduce(self.joined, loaded)

    def _load_first(self, pointer: Value, align: int, count: Value, rest: Value) -> Value:
        """Loads the lanes below a count: all of them, or a part for each of its bits, from the last one on."""
        is_whole, start = self.compare("uge", count, constant(I64, rest.type.width)), self.block
        with self.when(is_whole):
            whole, end = self.load(pointer, rest.type, align), self.block
        whole, start = self.phi(rest.type, (rest, start), (whole, end)), self.block
        with self.unless(is_whole):
            lanes = self.shuffle(rest, None, [0])
            while lanes.type.width < rest.type.width:
                lanes = self._load_bit(pointer, align, count, lanes, rest)
            end = self.block
        return self.phi(rest.type, (whole, start), (lanes, end))

    def _load_bit(self, pointer: Value, align: int, count: Value, lanes: Value, rest: Value) -> Value:
        """Puts a part before the lanes that follow it if the count has its bit, else lanes of `rest` behind them."""
        width = lanes.type.width
        bit, before = (self.binary("and", count, constant(I64, bits)) for bits in (width, -2 * width))
        without, start = self.joined(lanes, self.shuffle(rest, None, range(width))), self.block
        with self.when(self.compare("ne", bit, constant(I64, 0))):
            part = self.load(self.element_pointer(pointer, before, rest.type.element), lanes.type, align)
            joined, end = self.joined(part, lanes), self.block
        return self.phi(joined.type, (without, start), (joined, end))

    def _load_part(self, pointer: Value, type: Type, align: int, part: MaskPart, mask: Value, rest: Value) -> Value:
        type = type_of(type.element, len(part.lanes))
        if part.on is False:
            return self.shuffle(rest, None, part.lanes)
        address = self.element_pointer(pointer, constant(I64, part.lanes.start), type.element)
        if part.on:
            return self.load(address, type, align)
        mask, rest = (self.shuffle(each, None, part.lanes) for each in (mask, rest))
        return self.call(f"llvm.masked.load.{type.suffix}.p0", type, address, constant(I32, align), mask, rest)

    def store_masked(self, value: Value, pointer: Value, align: int, mask: Value | None) -> None:
        """Stores the lanes of a mask, None for all.

        LLVM 22 stores too many bytes if it combines a truncation with a store of one constant lane. Such a lane is
        stored as a scalar; other masks of stores that may follow a truncation depend on a condition that LLVM does not
        know, except of its own stack: that the pointer is not null.
        """
        if mask is None:
            self.store(value, pointer, align)
            return
        if isinstance(mask, FirstLanes) and self.divides_masks:
            self._store_first(value, pointer, align, mask.count)
            return
        register = self._lanes(value.type) if isinstance(mask, Constant) else value.type.width
        for part in mask_parts(mask, register, self.divides_masks):
            if part.on is not False:
                one = part.on and len(part.lanes) == 1
                own = self.extract(value, part.lanes[0]) if one else self.shuffle(value, None, part.lanes)
                address = self.element_pointer(pointer, constant(I64, part.lanes.start), value.type.element)
                self._store_part(own, address, align, None if part.on else self.shuffle(mask, None, part.lanes))

    def _store_first(self, value: Value, pointer: Value, align: int, count: Value) -> None:
        """Stores the lanes below a count: all of them, or a part for each of its bits."""
        width = value.type.width
        is_whole = self.compare("uge", count, constant(I64, width))
        with self.when(is_whole):
            self.store(value, pointer, align)
        with self.unless(is_whole):
            while width > 1:
                width //= 2
                bit = self.binary("and", count, constant(I64, width))
                has_part, low = self.compare("ne", bit, constant(I64, 0)), self.shuffle(value, None, range(width))
                with self.when(has_part):
                    self.store(low if width > 1 else self.extract(low, 0), pointer, align)
                if width > 1:
                    value = self.select(has_part, self.shuffle(value, None, range(width, 2 * width)), low)
                    pointer = self.element_pointer(pointer, bit, value.type.element)

    def _store_part(self, value: Value, pointer: Value, align: int, mask: Value | None) -> None:
        if mask is None:
            self.store(value, pointer, align)
            return
        if isinstance(mask, Constant) and sum(map(bool, mask.lanes)) == 1:
            lane = [*map(bool, mask.lanes)].index(True)
            address = self.element_pointer(pointer, constant(I64, lane), value.type.element)
            self.store(self.extract(value, lane), address, align)
            return
        if not value.type.is_float and value.type.bits < 64:
            is_somewhere = self.compare("ne", pointer, constant(PTR, 0))
            mask = self.binary("and", mask, self.splat(is_somewhere, value.type.width))
        self.call_void(f"llvm.masked.store.{value.type.suffix}.p0", value, pointer, constant(I32, align), mask)

    @property
    def divides_masks(self) -> bool:
        """Whether accesses with masks cost more than several without."""
        return self.register_bytes < MASK_REGISTERS_BYTES

    def _lanes(self, type: Type) -> int:
        """Returns the number of elements in a register."""
        return 8 * self.register_bytes // type.bits

    def gather(self, pointers: Value, type: Type, align: int, mask: Value) -> Value:
        """Loads the lanes of a mask from an address each; the others are zero."""
        name = f"llvm.masked.gather.{type.suffix}.v{type.width}p0"
        return self.call(name, type, pointers, constant(I32, align), mask, zero(type))

    def scatter(self, value: Value, pointers: Value, align: int, mask: Value) -> None:
        """Stores the lanes of a mask to an address each."""
        name = f"llvm.masked.scatter.{value.type.suffix}.v{value.type.width}p0"
        self.call_void(name, value, pointers, constant(I32, align), mask)


@record(slots=True)
class MaskPart:
    """Adjacent lanes of a masked vector: all `on`, all off, or None if their mask has to be looked at."""

    lanes: range
    on: bool | None


def mask_parts(mask: Value, register_lanes: int, divides: bool) -> Iterator[MaskPart]:
    """Yields the parts of a masked vector, from the first lane to the last.

    Registers have a part each, but those that a constant mask turns on or off together are in parts of powers of two
    registers, which begin at a multiple of their length: an access without a mask costs LLVM as much as one of a
    register. Registers of which a constant mask turns on some lanes have several parts if it `divides`.
    """
    states = [_state(mask, lanes) for lanes in _registers(mask.type.width, register_lanes)]
    start = 0
    while start < len(states):
        count = 1
        while states[start] is not None and _is_run(states, start, 2 * count):
            count *= 2
        first = start * register_lanes
        lanes = range(first, min(first + count * register_lanes, mask.type.width))
        yield from _halves(mask, lanes) if divides and isinstance(mask, Constant) else [MaskPart(lanes, states[start])]
        start += count


def _halves(mask: Constant, lanes: range) -> Iterator[MaskPart]:
    """Yields lanes in halves of halves .., each of which is all on, or all off; first halves are powers of two."""
    on, half = _state(mask, lanes), 1 << (len(lanes) - 1).bit_length() >> 1
    if on is None:
        yield from _halves(mask, lanes[:half])
        yield from _halves(mask, lanes[half:])
    else:
        yield MaskPart(lanes, on)


def _registers(width: int, register_lanes: int) -> list[range]:
    return [range(start, min(start + register_lanes, width)) for start in range(0, width, register_lanes)]


def _state(mask: Value, lanes: range) -> bool | None:
    """Whether all lanes are on; None if some are off, or unknown."""
    values = {mask.lanes[lane] for lane in lanes} if isinstance(mask, Constant) else set[object]()
    return bool(values.pop()) if values in ({True}, {False}) else None


def _is_run(states: Sequence[bool | None], start: int, count: int) -> bool:
    part = states[start : start + count]
    return start % count == 0 and len(part) == count and set(part) == {states[start]}
