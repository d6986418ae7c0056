"""Tiles of sums that the inner loop of a product keeps in registers, and their store from memory to the result."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.backends.cpu.kernels.products.matrix import Matrix, element_offset
from hloom.backends.cpu.kernels.products.sums import addition
from hloom.lir import I1, I64, PTR, Function, IndexValue, Type, Value
from hloom.system.records import record
from hloom.types import PrimitiveType

LONG_CALL = 1 << 12  # multiply-adds of vectors, beside which a call costs nothing


@record
class Tile:
    """Sums in registers: `rows` x `vectors` vectors of `type`."""

    rows: int
    vectors: int
    type: Type

    @property
    def columns(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.type.width

    @property
    def size(self) -> int:
        """Elements of the tile."""
        return self.rows * self.columns

    def takes_long(self, steps: int) -> bool:
        """Whether adding up `steps` steps takes so long that the cost of calling the kernel does not matter."""
        return steps * self.rows * self.vectors >= LONG_CALL


def tile_function(name: str, write: Callable[[KernelFunction], None]) -> Function:
    """Returns the shared function `(a, b, c, partial, steps, rows, columns, first, last, distances)` of a kernel.

    `first` and `last` say whether the block of K is the first or the last one.
    """
    parameters = {"a": PTR, "b": PTR, "c": PTR, "partial": PTR, "steps": I64, "rows": I64, "columns": I64}
    return shared_function(name, write, **parameters, first=I1, last=I1, distances=PTR)


@record
class TileStore:
    """The store of the first `rows` and `columns` of a tile to C, whose elements have these distances.

    Tiles at the last rows and columns of the result may be ragged: parts of them are outside of it. With `adds`, the
    sums of all blocks of K but the first are added to the result. Where the product takes subnormal numbers for zero,
    so may rounding to bf16, which is one instruction then.
    """

    tile: Tile
    c: Matrix
    distances: tuple[IndexValue, IndexValue]
    has_ragged_rows: bool
    has_ragged_columns: bool
    flushes: bool = False
    adds: bool = False

    def is_whole(self, f: KernelFunction, last: Value | None) -> Value | None:
        """Whether a tile is finished, which it is in the last block of K, and all of it in the result; None: always."""
        conditions = [last] if last is not None else []
        if self.has_ragged_rows:
            conditions.append(f.compare("eq", f["rows"], f.index(self.tile.rows)))
        if self.has_ragged_columns:
            conditions.append(f.compare("eq", f["columns"], f.index(self.tile.columns)))
        return functools.reduce(lambda a, b: f.binary("and", a, b), conditions) if conditions else None

    def copy(self, f: KernelFunction, sums: Value) -> None:
        """Copies finished sums from memory to the result."""
        c, rows, columns = f["c"], f["rows"], f["columns"]
        with f.loop(rows) as row:
            line = f.at(sums, f.multiply(row.index, self.tile.columns), self.tile.type.element)
            if self.c.has_contiguous_rows:
                offset = f.multiply(row.index, self.distances[0])
                self._copy_row(f, line, f.at(c, offset, self.c.element), columns)
            else:
                self._scatter_row(f, line, c, row.index, columns)

    def _copy_row(self, f: KernelFunction, line: Value, target: Value, columns: Value) -> None:
        type = self.tile.type
        for start in range(0, self.tile.columns, type.width):
            value = f.load(f.at(line, start, type.element), type, 64)
            left = f.left(columns, start) if self.has_ragged_columns else type.width
            address, stored = f.at(target, start, self.c.element), self.c.type
            if self.adds:
                mask = f.first_lanes(left, type.width) if self.has_ragged_columns else None
                total = f.binary(addition(type), f.load_as(address, stored, type, mask), value)
                value = f.select(f["first"], value, total)
            if self.flushes and stored is PrimitiveType.BF16:
                value, stored = f.bitcast(f.convert("fptrunc", value, "bfloat"), type.of("i16")), PrimitiveType.U16
            f.store_first(value, address, stored, left)

    def _scatter_row(self, f: KernelFunction, line: Value, c: Value, row: IndexValue, columns: Value) -> None:
        type = self.tile.type
        with f.loop(columns) as column:
            value = f.load(f.at(line, column.index, type.element), type.scalar, size_of(type.element))
            offset = element_offset(f, (row, column.index), self.distances, self.c.paired)
            f.store_as(value, f.at(c, offset, self.c.element), self.c.type)
