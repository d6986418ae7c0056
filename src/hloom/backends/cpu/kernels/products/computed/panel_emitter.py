"""Emission of many adjacent rows of a computed operand, also of those whose neighbours are the halves of a byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from hloom.affine import Expression
from hloom.backends.cpu.elements.byte_tables import (
    CODES,
    LANES,
    codes_of_pairs,
    lanes_of_pairs,
    look_up_codes,
    look_up_pairs,
    table_of_codes,
    words_of_codes,
)
from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter, Resume
from hloom.backends.cpu.kernels.products.computed.tabulated import Coded
from hloom.lir import IndexValue, Value, constant, type_of

WORDS = type_of("i16", LANES // 2)


class PanelEmitter(OperandEmitter):
    """Emits elements of many rows, of which two neighbours may be the halves of a byte."""

    @property
    def coded(self) -> Coded:
        """The halves, and what the elements of a row share."""
        assert self.operand.of_rows is not None
        return self.operand.of_rows

    def words_of_rows(self, at: IndexValue, count: int) -> list[Value]:
        """Returns the words of an element of K and the next one, or zero, of 64 rows from the bound one on, in the
        order of `look_up_pairs`.
        """
        f, function = self.f, self.coded.function
        rows = [self._codes_of_rows(f.add(at, step)) for step in range(count)]
        words = look_up_pairs(f, rows[0], rows[-1], words_of_codes(function.table), function.is_swapped)
        low = constant(words[0].type, 0xFFFF)
        return words if count == 2 else [f.binary("and", each, low) for each in words]

    def with_pairs(self, rows: Sequence[Resume]) -> Resume:
        """Returns the context of 64 adjacent rows, of which each of `rows` has 16, with what their elements share along
        K in the lanes of `pairs_of_rows`.
        """
        f, found = self.f, dict[int, list[Value]]()
        for part in self.coded.shared:
            shared = []
            for resume in rows:
                with resume(), self.lanes_along(self.operand.free, None):
                    value = self.value(part)
                    assert isinstance(value, Value)
                    shared.append(value)
            whole = f.concatenated(shared)
            found[id(part)] = [f.shuffle(whole, None, lanes_of_pairs(number)) for number in range(2 * len(rows))]

        @contextmanager
        def resume_with_pairs() -> Iterator[None]:
            with rows[0]():
                self.scopes[-1]["pairs"] = found
                yield

        return resume_with_pairs

    def pairs_of_rows(self, at: IndexValue, count: int) -> list[Value]:
        """Returns an element of K and the next one, or itself, of 64 rows, in the lanes of `codes_of_pairs`."""
        f, function, shared, found = self.f, self.coded.function, self.known("pairs"), list[Value]()
        rows = [self._codes_of_rows(f.add(at, step)) for step in range(count)]
        table = table_of_codes(f, function.table)
        for i, codes in enumerate(codes_of_pairs(f, rows[0], rows[-1], function.is_swapped)):
            own = {part: vectors[i] for part, vectors in shared.items()}
            found.append(self._value_of(look_up_codes(f, codes, table), own))
        return found

    def table_of(self, shared: Mapping[Expression, Value]) -> Value:
        """Returns the elements of all codes in a row, given what its elements share, such as a scale."""
        own = {id(part): self.f.splat(value, CODES) for part, value in shared.items()}
        with self._lanes(self.operand.contracted.within, CODES, None):
            return self._value_of(table_of_codes(self.f, self.coded.function.table), own)

    def _value_of(self, decoded: Value, shared: Mapping[int, Value]) -> Value:
        """Returns elements, given the values of their codes, and by id what elements share."""
        self.scopes.append({id(self.coded.part): decoded, **shared})
        value = self.value(self.operand.value)
        self.scopes.pop()
        assert isinstance(value, Value)
        return value

    def transposed_codes(self, at: IndexValue, count: int) -> list[Value]:
        """Returns the codes of 128 rows from the bound one on and of 8 elements of K, of which `count` exist: each four
        rows have theirs in 16 bytes, a word of 16 bits for each element of K, in the order of 8 x 4 of a transposition.
        """
        f = self.f
        lines = [self._codes_of_rows(f.add(at, min(element, count - 1)), LANES) for element in range(8)]
        return transpose_squares(f, [f.bitcast(line, WORDS) for line in lines])

    def look_up_row(self, codes: Value, number: int, table: Value) -> Value:
        """Returns the words of one of the four rows of codes along K, given its table twice."""
        f = self.f
        shift = constant(WORDS, 4 * (number ^ self.coded.function.is_swapped))
        return f.call("llvm.x86.avx512.permvar.hi.512", WORDS, table, f.binary("lshr", codes, shift))

    def _codes_of_rows(self, at: IndexValue, count: int = LANES // 2) -> Value:
        """Returns the bytes that have the codes of an element of K, of twice as many rows from the bound one on."""
        f, axes, function = self.f, self.operand, self.coded.function
        byte, within = f.divide(self.variables[axes.free.within], 2), self._within(axes.contracted, at)
        assert function.half is not None
        with self.in_group(axes.contracted, at), self.bound(axes.contracted.within, within):  # noqa: SIM117
            with self._lanes(axes.free.within, 2 * count, None), self.bound(function.half, f.index(byte)):
                return self._bytes(function.load, None, count)
