"""Distances in memory that shared functions read, so that their code does not depend on sizes."""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import I64, Global, IndexValue, Value, index_value
from hloom.system.records import record

ROWS_OF_REGISTER = 5
"""Rows that are addressed from one register if their distance is not constant: one plus a multiple of the distance."""


@record
class Distances:
    """Numbers that code depends on: those that are `fixed` are constants of the code, others are read from memory."""

    values: tuple[IndexValue, ...]
    fixed: tuple[bool, ...]

    @property
    def kinds(self) -> str:
        """The fixed numbers, and n for others, as part of the name of a function."""
        return "_".join(str(value) if fixed else "n" for value, fixed in zip(self.values, self.fixed, strict=True))

    def table(self, name: str) -> Global:
        """Returns a constant that holds the numbers."""
        return Global(name, [index_value(value) for value in self.values])

    def read(self, f: KernelFunction, table: Value) -> list[IndexValue]:
        """Returns the numbers, those that are not fixed from a table."""
        pairs = enumerate(zip(self.values, self.fixed, strict=True))
        return [value if fixed else f.load(f.at(table, k, "i64"), I64, 8) for k, (value, fixed) in pairs]


def addresses_of_rows(
    f: KernelFunction, first: Value, distance: IndexValue, count: int, element: str
) -> Callable[[IndexValue], list[Value]]:
    """Returns a function that returns the addresses, at an offset along rows, of `count` rows from the first on."""
    together = count if isinstance(distance, int) else min(count, ROWS_OF_REGISTER)
    starts = [f.at(first, f.multiply(i, distance), element) for i in range(0, count, together)]
    offsets = [f.multiply(i, distance) for i in range(together)]

    def at(along: IndexValue) -> list[Value]:
        moved = [f.at(start, along, element) for start in starts]
        return [f.at(moved[i // together], offsets[i % together], element) for i in range(count)]

    return at
