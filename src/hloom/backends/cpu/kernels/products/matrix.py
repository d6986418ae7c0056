"""Matrices in memory, as the functions of a product read them: real, complex, or by words of several elements of K."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.backends.cpu.llvm.function import ELEMENTS, Function, size_of
from hloom.backends.cpu.llvm.text import Index, Type, Value, constant, type_of


@dataclass(frozen=True)
class Words:
    """Elements of K in words of 32 bits, for instructions that multiply and add all elements of two words at once.

    Each word has `count` of the `total` elements, `distance` apart in memory; the last one is filled up with zeros.
    `flipped`: their highest bits are inverted, so that signed elements are unsigned ones, more by half of the range.
    """

    count: int
    total: int
    distance: int
    flipped: bool = False

    @property
    def bits(self) -> int:
        """Of an element in the word."""
        return 32 // self.count

    @property
    def is_ragged(self) -> bool:
        return self.total % self.count != 0


@dataclass(frozen=True)
class Matrix:
    """A matrix of real numbers in memory, distances in elements.

    `paired` is a complex matrix whose columns are seen as twice as many real ones, where the pairs are not contiguous:
    `column` is then the distance between pairs. With `words`, K counts words.
    """

    type: str
    row: int
    column: int
    paired: bool = False
    words: Words | None = None

    @property
    def element(self) -> str:
        return ELEMENTS[self.type]

    @property
    def has_contiguous_rows(self) -> bool:
        return self.column == 1 and not self.paired

    @property
    def per_step(self) -> int:
        """Elements of K in a step of the product."""
        return self.words.count if self.words else 1

    def has_contiguous_k(self, distance: int) -> bool:
        """Whether elements of K follow each other; without words they are `distance` apart, `row` or `column`."""
        return not self.paired and (self.words.distance if self.words else distance) == 1

    def elements(self, steps: int) -> int:
        """How many elements of K all its steps have: the last word may not be full."""
        return self.words.total if self.words else steps

    def elements_left(self, f: Function, steps: int, step: Index) -> Index:
        """How many of them are left at a step."""
        return f.subtract(self.elements(steps), f.multiply(step, self.per_step))

    def offset(self, f: Function, row: Index, column: Index) -> Index:
        along_row = f.multiply(column, self.column)
        if self.paired:
            along_row = f.add(f.multiply(f.divide(column, 2), self.column), f.remainder(column, 2))
        return f.add(f.multiply(row, self.row), along_row)

    def load_step(self, f: Function, pointer: Value, type: Type, left: Index, mask: Value | None = None) -> Value:
        """One step of K, of neighbours across K: an element or a word of each. `left` elements of K are left."""
        words = self.words
        if words is None:
            return f.load_as(pointer, self.type, type, mask)
        word = type.of("i32")
        whole = self._shifted_elements(f, pointer, word, 0, mask)
        for i in range(1, words.count):
            address = f.at(pointer, i * words.distance, self.element)
            exists = f.compare("ugt", f.index(left), f.index(i)) if words.is_ragged else None
            part = self._shifted_elements(
                f, address if exists is None else f.select(exists, address, pointer), word, i, mask
            )
            if exists is not None:
                part = f.binary("and", part, _broadcast_mask(f, exists, word))
            whole = f.binary("or", whole, part)
        return self._finished(f, whole, type)

    def load_steps(self, f: Function, pointer: Value, type: Type, left: Index | None) -> Value:
        """Neighbouring steps of K, where its elements are contiguous; lanes past the `left` ones are zero."""
        words = self.words
        width = self.per_step * type.width
        mask = None if left is None else f.first_lanes(left, width)
        if words is None:
            return f.load_as(pointer, self.type, type, mask)
        parts = f.load_as(pointer, self._load_type(words), type_of(f"i{words.bits}", width), mask)
        return self._finished(f, f.bitcast(parts, type.of("i32")), type)

    def _shifted_elements(self, f: Function, pointer: Value, word: Type, index: int, mask: Value | None) -> Value:
        """Elements in their place of words."""
        assert self.words is not None
        source, bits = self._load_type(self.words), self.words.bits
        part = f.load_as(pointer, source, word, mask)
        if source.startswith("s"):
            part = f.binary("and", part, constant(word, (1 << bits) - 1))
        return f.binary("shl", part, constant(word, index * bits)) if index else part

    def _load_type(self, words: Words) -> str:
        """The type as which elements are loaded: unsigned where they are as wide as in the word."""
        return f"u{words.bits}" if 8 * size_of(self.element) == words.bits else self.type

    def _finished(self, f: Function, word: Value, type: Type) -> Value:
        assert self.words is not None
        if self.words.flipped:
            highest = sum(1 << (self.words.bits * (i + 1) - 1) for i in range(self.words.count))
            word = f.binary("xor", word, constant(word.type, highest))
        return word if word.type is type else f.bitcast(word, type)


def _broadcast_mask(f: Function, condition: Value, type: Type) -> Value:
    """All bits of all lanes where a condition holds, else none."""
    bits = f.select(condition, constant(type.scalar, -1), constant(type.scalar, 0))
    return f.splat(bits, type.width) if type.width else bits
