"""Matrix transposition: tiles as wide as a cache line in registers, remaining rows and columns element by element."""

from __future__ import annotations

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
        self.element = f"i{8 * width}"
        self.align = min(width, 8)
        """The alignment of elements: complex ones have that of their parts."""

    def write(self) -> KernelFunction:
        f, lanes = self.f, CACHE_LINE // self.width
        whole_rows, whole_columns = self.m // lanes * lanes, self.n // lanes * lanes
        if whole_rows and whole_columns:
            with f.loop(whole_columns, lanes) as column, f.loop(whole_rows, lanes) as row:
                self._square(row.index, column.index, lanes)
        else:
            whole_rows = whole_columns = 0
        self._elements(0, whole_rows, whole_columns, self.n)
        self._elements(whole_rows, self.m, 0, self.n)
        return f

    def _square(self, row: IndexValue, column: IndexValue, lanes: int) -> None:
        f, vector = self.f, type_of(self.element, lanes)
        lines = [f.load(self._source(f.add(row, k), column), vector, self.align) for k in range(lanes)]
        for k, line in enumerate(transpose(f, lines)):
            f.store(line, self._target(row, f.add(column, k)), self.align)

    def _elements(self, first_row: int, last_row: int, first_column: int, last_column: int) -> None:
        f, type = self.f, type_of(self.element)
        if first_row < last_row and first_column < last_column:
            with f.each(first_row, last_row) as row, f.each(first_column, last_column) as column:
                value = f.load(self._source(row, column), type, self.align)
                f.store(value, self._target(row, column), self.align)

    def _source(self, row: IndexValue, column: IndexValue) -> Value:
        f = self.f
        return f.at(f["source"], f.add(f.multiply(row, self.n), column), self.element)

    def _target(self, row: IndexValue, column: IndexValue) -> Value:
        f = self.f
        return f.at(f["target"], f.add(f.multiply(column, self.m), row), self.element)
