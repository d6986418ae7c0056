"""Matrices in memory, as operands and results of products: real, complex, or in words of several elements of K."""

from __future__ import annotations

from typing import TypeVar

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import IndexValue, Type, Value, constant, type_of
from hloom.system.records import record
from hloom.types import PrimitiveType

Steps = TypeVar("Steps", bound=IndexValue)


@record
class Words:
    """Elements of K in words of 32 bits, for dot-product instructions.

    Each word has `count` of the `total` elements, which are `distance` apart in memory; the last one is padded with
    zeros. `flipped`: sign bits are flipped, so that signed elements become unsigned ones, larger by half of the range.
    """

    count: int
    total: int
    distance: int
    flipped: bool = False

    @property
    def bits(self) -> int:
        """Bits of an element in a word."""
        return 32 // self.count

    @property
    def is_ragged(self) -> bool:
        """Whether the last word is padded."""
        return self.total % self.count != 0


@record
class Matrix:
    """A matrix of real numbers in memory, with distances in elements.

    `paired` is a complex matrix whose columns are viewed as twice as many real ones, if the pairs are not contiguous:
    `column` is then the distance between pairs. With `words`, K counts words. One that is `computed` is not in memory:
    neighbours at distance 1 are computed together.
    """

    type: PrimitiveType
    row: int
    column: int
    paired: bool = False
    words: Words | None = None
    computed: bool = False

    @property
    def element(self) -> str:
        """LLVM's type of an element in memory."""
        return memory_element(self.type)

    @property
    def has_contiguous_rows(self) -> bool:
        """Whether the elements of a row are contiguous."""
        return self.column == 1 and not self.paired

    @property
    def per_step(self) -> int:
        """Elements of K in a step of the product."""
        return self.words.count if self.words else 1

    def has_contiguous_k(self, distance: int) -> bool:
        """Whether elements of K are contiguous; without words they are `distance` apart, which is `row` or `column`."""
        return not self.paired and (self.words.distance if self.words else distance) == 1

    def elements(self, steps: Steps) -> int | Steps:
        """Returns the elements of K in all steps; the last word may not be full."""
        return self.words.total if self.words else steps

    def elements_left(self, f: KernelFunction, steps: IndexValue, step: IndexValue) -> IndexValue:
        """Returns the elements of K from a step on."""
        return f.subtract(self.elements(steps), f.multiply(step, self.per_step))

    def offset(self, f: KernelFunction, row: IndexValue, column: IndexValue) -> IndexValue:
        """Returns the offset of an element, in elements."""
        return element_offset(f, (row, column), (self.row, self.column), self.paired)

    def load_step(
        self,
        f: KernelFunction,
        pointer: Value,
        type: Type,
        left: IndexValue,
        mask: Value | None = None,
        distance: IndexValue | None = None,
    ) -> Value:
        """Loads one step of K, for neighbours across K: an element or a word of each. `left` elements of K remain.

        The elements of a word are `distance` apart, if it is given, else as the matrix says.
        """
        words = self.words
        if words is None:
            return f.load_as(pointer, self.type, type, mask)
        word = type.of("i32")
        whole = self._shifted_elements(f, pointer, word, 0, mask)
        for i in range(1, words.count):
            apart = words.distance if distance is None else distance
            address = f.at(pointer, f.multiply(i, apart), self.element)
            exists = f.compare("ugt", f.index(left), f.index(i)) if words.is_ragged else None
            part = self._shifted_elements(
                f, address if exists is None else f.select(exists, address, pointer), word, i, mask
            )
            if exists is not None:
                part = f.binary("and", part, _broadcast_mask(f, exists, word))
            whole = f.binary("or", whole, part)
        return self.finished(f, whole, type)

    def load_steps(self, f: KernelFunction, pointer: Value, type: Type, left: IndexValue | None) -> Value:
        """Loads consecutive steps of K, whose elements are contiguous; lanes past the remaining `left` elements are
        zero.
        """
        words = self.words
        width = self.per_step * type.width
        mask = None if left is None else f.first_lanes(left, width)
        if words is None:
            return f.load_as(pointer, self.type, type, mask)
        parts = f.load_as(pointer, self._load_type(words), type_of(f"i{words.bits}", width), mask)
        return self.finished(f, f.bitcast(parts, type.of("i32")), type)

    def _shifted_elements(self, f: KernelFunction, pointer: Value, word: Type, index: int, mask: Value | None) -> Value:
        """Loads elements and shifts them to their position in words."""
        assert self.words is not None
        source, bits = self._load_type(self.words), self.words.bits
        part = f.load_as(pointer, source, word, mask)
        if source.is_signed:
            part = f.binary("and", part, constant(word, (1 << bits) - 1))
        return f.binary("shl", part, constant(word, index * bits)) if index else part

    def _load_type(self, words: Words) -> PrimitiveType:
        """Returns the type as which elements are loaded: unsigned if they are as wide as in the word."""
        return self.type.unsigned if self.type.bits == words.bits else self.type

    def finished(self, f: KernelFunction, word: Value, type: Type) -> Value:
        """Returns words of elements as they are in memory as those that instructions multiply."""
        assert self.words is not None
        if self.words.flipped:
            highest = sum(1 << (self.words.bits * (i + 1) - 1) for i in range(self.words.count))
            word = f.binary("xor", word, constant(word.type, highest))
        return word if word.type is type else f.bitcast(word, type)


def element_offset(
    f: KernelFunction,
    position: tuple[IndexValue, IndexValue],
    distances: tuple[IndexValue, IndexValue],
    paired: bool,
) -> IndexValue:
    """Returns the offset of the element in a row and a column of a matrix, by the distances of rows and columns."""
    (row, column), (of_rows, of_columns) = position, distances
    along_row = f.multiply(column, of_columns)
    if paired:
        along_row = f.add(f.multiply(f.divide(column, 2), of_columns), f.remainder(column, 2))
    return f.add(f.multiply(row, of_rows), along_row)


def _broadcast_mask(f: KernelFunction, condition: Value, type: Type) -> Value:
    """Returns all bits of all lanes set if a condition holds, else none."""
    bits = f.select(condition, constant(type.scalar, -1), constant(type.scalar, 0))
    return f.splat(bits, type.width) if type.width else bits
