"""Matrices in memory as they are, transposed, or from their last row or column on, and copies between them by tiles."""

from __future__ import annotations

from dataclasses import replace

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.lir import IndexValue, Value, type_of
from hloom.system.records import record


@record(slots=True)
class View:
    """A matrix of `sizes`, whose rows, or columns if it is transposed, lie `pitch` elements apart.

    Of axes that are `reversed` the last row or column in memory is the first one here.
    """

    memory: Value
    element: str
    sizes: tuple[int, int]
    pitch: int
    is_transposed: bool = False
    reversed: tuple[bool, bool] = (False, False)

    @property
    def swapped(self) -> View:
        """The transpose."""
        return replace(self, sizes=self.sizes[::-1], is_transposed=not self.is_transposed, reversed=self.reversed[::-1])

    def at(self, f: KernelFunction, i: IndexValue, j: IndexValue, side: int = 1) -> Value:
        """Returns the address of an element, or the lowest one of a square."""
        own = [
            f.subtract(size - side, index) if is_reversed else index
            for size, index, is_reversed in zip(self.sizes, (i, j), self.reversed, strict=True)
        ]
        row, column = own[::-1] if self.is_transposed else own
        return f.at(self.memory, f.index(f.add(f.multiply(f.index(row), self.pitch), column)), self.element)

    def load(self, f: KernelFunction, i: IndexValue, j: IndexValue, side: int) -> list[Value]:
        """Loads a square as rows."""
        first, type = self.at(f, i, j, side), type_of(self.element, side)
        lines = [f.load(f.at(first, k * self.pitch, self.element), type, size_of(self.element)) for k in range(side)]
        lines = self._ordered(f, lines)
        return transpose(f, lines) if self.is_transposed else lines

    def store(self, f: KernelFunction, rows: list[Value], i: IndexValue, j: IndexValue) -> None:
        """Stores a square, given as rows."""
        first = self.at(f, i, j, len(rows))
        for k, line in enumerate(self._ordered(f, transpose(f, rows) if self.is_transposed else rows)):
            f.store(line, f.at(first, k * self.pitch, self.element), size_of(self.element))

    def _ordered(self, f: KernelFunction, lines: list[Value]) -> list[Value]:
        """Returns the lines of a square in memory in the order of the view, or those of the view in that of memory."""
        along, across = self.reversed if self.is_transposed else self.reversed[::-1]
        lanes = range(len(lines) - 1, -1, -1)
        lines = [f.shuffle(line, None, lanes) for line in lines] if along else lines
        return lines[::-1] if across else lines


def copy_square(f: KernelFunction, source: View, target: View, i: IndexValue, j: IndexValue, side: int) -> None:
    """Copies the elements of a square that both matrices have."""
    if source.is_transposed and target.is_transposed:
        source, target, i, j = source.swapped, target.swapped, j, i
    sizes = [min(pair) for pair in zip(source.sizes, target.sizes, strict=True)]
    last = [f.index(size - side) for size in sizes]
    fits = [f.compare("sle", f.index(x), end) for x, end in zip((i, j), last, strict=True)]
    is_whole = f.binary("and", fits[0], fits[1])
    with f.when(is_whole):
        target.store(f, source.load(f, i, j, side), i, j)
    with f.unless(is_whole):
        ends = [f.minimum(f.add(x, side), size) for x, size in zip((i, j), sizes, strict=True)]
        with f.each(i, ends[0]) as row, f.each(j, ends[1]) as column:
            type, align = type_of(source.element), size_of(source.element)
            f.store(f.load(source.at(f, row, column), type, align), target.at(f, row, column), align)
