"""Matrix transposition: squares as wide as a cache line in registers, and narrower matrices as long vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import PTR, IndexValue, Value, type_of
from hloom.target import CACHE_LINE


class Transposes:
    """The functions of a kernel that transpose matrices, one for each element width and size, and calls of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: dict[str, KernelFunction] = {}

    def emit(self, f: KernelFunction, source: Value, target: Value, width: int, sizes: tuple[int, int]) -> None:
        """Calls the transposition of an m x n matrix at `source` to n x m at `target`; elements have `width` bytes."""
        name = f"{self.name}.transpose{8 * width}.{sizes[0]}.{sizes[1]}"
        if name not in self.functions:
            self.functions[name] = _Transpose(KernelFunction(name, source=PTR, target=PTR), width, *sizes).write()
        f.call_void(name, source, target)


class _Transpose:
    """Writes the function for one element width and size."""

    def __init__(self, f: KernelFunction, width: int, m: int, n: int) -> None:
        self.f, self.width, self.m, self.n = f, width, m, n
        self.element, self.lanes = f"i{8 * width}", CACHE_LINE // width
        self.align = min(width, 8)
        """The alignment of elements: complex ones have that of their parts."""

    def write(self) -> KernelFunction:
        m, n, lanes = self.m, self.n, self.lanes
        if m >= lanes and n >= lanes:
            for column in self._starts(n):
                for row in self._starts(m):
                    self._square(row, column)
        elif m >= lanes:
            for row in self._starts(m):
                self._short_rows(row)
        elif n >= lanes:
            for column in self._starts(n):
                self._short_columns(column)
        else:
            self._elements()
        return self.f

    def _starts(self, size: int) -> Iterator[IndexValue]:
        """Yields the first of each `lanes` rows or columns, in a loop; the last ones overlap those before."""
        whole = size // self.lanes * self.lanes
        with self.f.loop(whole, self.lanes) as loop:
            yield loop.index
        if whole < size:
            yield size - self.lanes

    def _square(self, row: IndexValue, column: IndexValue) -> None:
        """Transposes a square, half a line of columns at a time: two rows that fill a line take an instruction with the
        load, and one shuffle fewer. Fetches the lines that the next square writes, where there is one.
        """
        f, lanes, half = self.f, self.lanes, self.lanes // 2
        starts = column, f.add(column, half)
        rows = [[self._every_row(f.add(row, k), start, half) for start in starts] for k in range(half)]
        for k in range(lanes if self.m > lanes else 0):
            f.prefetch(self._target(f.add(row, lanes), f.add(column, k)), writes=True)
        for start, lines in zip(starts, zip(*rows, strict=True), strict=True):
            self._store(transpose(f, lines), (self._target(row, f.add(start, k)) for k in range(half)))

    def _short_rows(self, row: IndexValue) -> None:
        """Transposes rows of less than a line, which are adjacent: columns by 16 bytes, the last ones overlapping those
        before, or where rows have less by picking elements.
        """
        f, n, lanes, few = self.f, self.n, self.lanes, 16 // self.width
        if few == 1 or n < few:
            lines = self._load(self._source(row, k * lanes) for k in range(n))
            columns = [_picked(f, lines, [divmod(k * n + j, lanes) for k in range(lanes)]) for j in range(n)]
            self._store(columns, (self._target(row, j) for j in range(n)))
            return
        for first in (*range(0, n - few, few), n - few):
            columns = transpose(f, [self._every_row(f.add(row, k), first, few) for k in range(few)])
            self._store(columns, (self._target(row, first + j) for j in range(few)))

    def _every_row(self, row: IndexValue, column: IndexValue, few: int) -> Value:
        """Returns `few` elements of every row whose number after `row` is a multiple of it, those of a line."""
        f, part = self.f, type_of(self.element, few)
        sources = [self._source(f.add(row, k), column) for k in range(0, self.lanes, few)]
        return f.concatenated([f.load(source, part, self.align) for source in sources])

    def _short_columns(self, column: IndexValue) -> None:
        """Transposes columns of less than a line, which become adjacent."""
        f, m, lanes = self.f, self.m, self.lanes
        rows = self._load(self._source(i, column) for i in range(m))
        positions = [divmod(position, m) for position in range(m * lanes)]
        parts = (positions[start : start + lanes] for start in range(0, m * lanes, lanes))
        lines = [_picked(f, rows, [(i, lane) for lane, i in part]) for part in parts]
        self._store(lines, (self._target(k * lanes, column) for k in range(m)))

    def _elements(self) -> None:
        f, type = self.f, type_of(self.element)
        with f.each(0, self.m) as row, f.each(0, self.n) as column:
            f.store(f.load(self._source(row, column), type, self.align), self._target(row, column), self.align)

    def _load(self, addresses: Iterator[Value]) -> list[Value]:
        vector = type_of(self.element, self.lanes)
        return [self.f.load(address, vector, self.align) for address in addresses]

    def _store(self, lines: Sequence[Value], addresses: Iterator[Value]) -> None:
        for line, address in zip(lines, addresses, strict=True):
            self.f.store(line, address, self.align)

    def _source(self, row: IndexValue, column: IndexValue) -> Value:
        f = self.f
        return f.at(f["source"], f.add(f.multiply(row, self.n), column), self.element)

    def _target(self, row: IndexValue, column: IndexValue) -> Value:
        f = self.f
        return f.at(f["target"], f.add(f.multiply(column, self.m), row), self.element)


def _picked(f: KernelFunction, vectors: Sequence[Value], positions: Sequence[tuple[int, int]]) -> Value:
    """Returns the elements at positions, each a vector and its lane."""
    first, *others = dict.fromkeys(vector for vector, _ in positions)
    result, width = f.shuffle(vectors[first], None, [lane for _, lane in positions]), len(positions)
    for other in others:
        lanes = [width + lane if vector == other else k for k, (vector, lane) in enumerate(positions)]
        result = f.shuffle(result, vectors[other], lanes)
    return result
