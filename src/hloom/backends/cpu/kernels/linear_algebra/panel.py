"""The panel of an LU factorisation: columns as rows of memory, factored a few at a time.

Each column finds its pivot, swaps it to the diagonal, is divided by it, and is subtracted from the next ones of its
few. Then their product with the rows of U is subtracted from the columns after them, by tiles in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.blocks import FEW, Inner, Square, record_failure, store_number
from hloom.lir import I64, PTR, IndexValue, Value, constant, lane_indices

GROUPS = (8, 4, 2, 1)
"""Columns that are changed together."""


def panel_functions(name: str, square: Square, pitch: int) -> list[KernelFunction]:
    """Returns `name.factor(panel, rows, first, swaps, info)` and the functions that it calls.

    The panel has `square.block` columns of `rows` elements, `pitch` elements apart. Pivots are stored as LAPACK does,
    as rows of the matrix from 1 on, of which `first` precede the panel; `info` gets the first row without a pivot.
    """
    panel = _Panel(name, square, pitch)
    functions = [panel.factor(), panel.pivot(), panel.scale(), panel.rest(), *map(panel.eliminate, GROUPS)]
    factors = Columns(name, square, square.block)
    return [*functions, Inner(_Lines(square.order, square.type, FEW), factors.at).update(f"{name}.subtract")]


class _Lines(Square):
    """The columns of a panel as rows of memory, an odd number of lines apart, so that they lie in different sets."""

    @property
    def pitch(self) -> int:
        """Distance of rows."""
        return self.padded + self.line


class Columns:
    """The columns of a panel, `pitch` elements apart, and the vectors of their elements."""

    def __init__(self, name: str, square: Square, pitch: int) -> None:
        self.name, self.square, self.type, self.pitch = name, square, square.type, pitch

    def at(self, f: KernelFunction, panel: Value, column: IndexValue, row: IndexValue) -> Value:
        """Returns the address of an element of the panel."""
        return f.at(panel, f.add(f.multiply(column, self.pitch), row), self.type.element)

    def element(self, f: KernelFunction, column: Value, row: IndexValue) -> Value:
        """Loads an element of a column."""
        return f.load(f.at(column, row, self.type.element), self.type.scalar, self.square.bytes)

    def load(self, f: KernelFunction, column: Value, row: IndexValue) -> Value:
        """Loads a vector of a column."""
        return f.load(f.at(column, row, self.type.element), self.type, self.square.bytes)

    def store(self, f: KernelFunction, value: Value, column: Value, row: IndexValue) -> None:
        """Stores a vector of a column."""
        f.store(value, f.at(column, row, self.type.element), self.square.bytes)

    def magnitudes(self, f: KernelFunction, row: IndexValue) -> Value:
        """Loads a vector of `column` without its signs, as integers, which have the order of the magnitudes."""
        word = self.type.integer
        bits = f.bitcast(self.load(f, f["column"], row), word)
        return f.binary("and", bits, constant(word, (1 << self.type.bits - 1) - 1))

    def groups(self, f: KernelFunction, start: IndexValue, stop: IndexValue) -> Iterator[tuple[int, Value]]:
        """Yields in loops groups of the columns from `start` to `stop`: their number, and the first."""
        for count in GROUPS:
            left = f.subtract(stop, start)
            end = f.add(start, f.subtract(left, f.remainder(left, count)))
            with f.each(start, end, count) as first:
                yield count, first
            start = end

    def vector_of(self, f: KernelFunction, row: Value) -> Value:
        """Returns the first row of the vector that a row is in."""
        return f.binary("and", row, constant(I64, -self.type.width))

    def splat(self, f: KernelFunction, row: IndexValue) -> Value:
        """Returns a row's index in all lanes."""
        word = self.type.integer
        index = f.index(row)
        return f.splat(index if word.scalar is I64 else f.convert("trunc", index, word.element), word.width)

    def lanes(self, f: KernelFunction, row: IndexValue) -> Value:
        """Returns the rows of the lanes of a vector that starts at a row."""
        return f.binary("add", self.splat(f, row), lane_indices(self.type.integer))


class _Panel(Columns):
    """Writes the functions of a panel."""

    def factor(self) -> KernelFunction:
        f = KernelFunction(f"{self.name}.factor", panel=PTR, rows=I64, first=I64, swaps=PTR, info=PTR)
        position = f.slot(I64, 1)
        with f.loop(self.square.block, FEW) as few:
            end = f.index(f.add(few.index, FEW))
            with f.loop(end, first=few.index) as j:
                column, step = self.at(f, f["panel"], j.index, 0), f.index(j.index)
                f.call_void(f"{self.name}.pivot", column, step, f["rows"], position)
                row = f.load(position, I64, 8)
                store_number(f, f.at(f["swaps"], f.add(f["first"], step), "i32"), f.add(f["first"], row))
                with f.loop(self.square.block) as c:
                    self._swap(f, self.at(f, f["panel"], c.index, 0), step, row)
                f.call_void(f"{self.name}.scale", column, step, f["rows"], f["first"], f["info"])
                self._eliminate(f, step, f.add(step, 1), end, f["rows"])
            with f.unless(f.compare("eq", end, f.index(self.square.block))):
                f.call_void(f"{self.name}.rest", f["panel"], f["rows"], end)
        return f

    def rest(self) -> KernelFunction:
        """Writes `name(panel, rows, end)`, which subtracts the few columns before `end` from those after them.

        Rows of U, and those down to the next whole tile, are computed as within the few; U is transposed for tiles.
        """
        f, square = KernelFunction(f"{self.name}.rest", panel=PTR, rows=I64, end=I64), self.square
        first, factors = f.index(f.subtract(f["end"], FEW)), f.slot(self.type.scalar, FEW * square.block)
        row = f.multiply(f.ceil_divide(f["end"], square.slab), square.slab)
        with f.each(first, f["end"]) as j:
            self._eliminate(f, j, f["end"], square.block, f.index(row))
        with f.each(f["end"], square.block) as c, f.loop(FEW) as s:
            value = self.element(f, self.at(f, f["panel"], c, 0), f.add(first, s.index))
            position = f.add(f.multiply(s.index, square.block), c)
            f.store(value, f.at(factors, position, self.type.element), square.bytes)
        with f.each(row, f["rows"], square.slab) as r, f.each(f["end"], square.block, square.tile_rows) as c:
            rows, target = self.at(f, f["panel"], first, r), self.at(f, f["panel"], c, r)
            f.call_void(f"{self.name}.subtract", f.at(factors, c, self.type.element), rows, target)
        return f

    def _eliminate(self, f: KernelFunction, step: Value, start: IndexValue, stop: IndexValue, rows: Value) -> None:
        """Subtracts a column from others, in the rows below its diagonal up to `rows`."""
        column = self.at(f, f["panel"], step, 0)
        for count, first in self.groups(f, start, stop):
            others = self.at(f, f["panel"], first, 0)
            f.call_void(f"{self.name}.eliminate{count}", column, others, step, rows)

    def pivot(self) -> KernelFunction:
        """Writes `name(column, row, rows, position)`, which finds the largest magnitude from a row on.

        Of equal ones it is the first. They are compared as integers, which have the order of non-negative floats.
        """
        f = KernelFunction(f"{self.name}.pivot", column=PTR, row=I64, rows=I64, position=PTR)
        type, word = self.type, self.type.integer
        start = self.vector_of(f, f["row"])
        row, lanes = self.splat(f, f["row"]), self.lanes(f, start)
        is_before = f.compare("ult", lanes, row)
        slots = [
            f.variable(f.select(is_before, constant(word, 0), self.magnitudes(f, start))),
            f.variable(f.select(is_before, row, lanes)),
        ]
        with f.each(f.add(start, type.width), f["rows"], type.width) as i:
            found, best = self.magnitudes(f, i), slots[0].get()
            is_larger = f.compare("ugt", found, best)
            slots[1].set(f.select(is_larger, self.lanes(f, i), slots[1].get()))
            slots[0].set(f.select(is_larger, found, best))
        best, positions = (slot.get() for slot in slots)
        largest = f.call(f"llvm.vector.reduce.umax.{word.suffix}", word.scalar, best)
        is_largest = f.compare("eq", best, f.splat(largest, type.width))
        candidates = f.select(is_largest, positions, constant(word, np.iinfo(f"i{type.bits // 8}").max))
        first = f.call(f"llvm.vector.reduce.umin.{word.suffix}", word.scalar, candidates)
        f.store(first if word.bits == 64 else f.convert("zext", first, "i64"), f["position"], 8)
        return f

    def scale(self) -> KernelFunction:
        """Writes `name(column, row, rows, first, info)`, which divides a column below its pivot by it."""
        f = KernelFunction(f"{self.name}.scale", column=PTR, row=I64, rows=I64, first=I64, info=PTR)
        type, pivot = self.type, self.element(f, f["column"], f["row"])
        is_zero = f.compare("oeq", pivot, constant(type.scalar, 0))
        record_failure(f, f["info"], is_zero, f.add(f["first"], f["row"]))
        smallest = constant(type.scalar, 2.0**-126 if type.bits == 32 else 2.0**-1022)
        is_exact = f.compare("oge", f.intrinsic("fabs", pivot), smallest)
        factor = f.splat(f.binary("fdiv", constant(type.scalar, 1), pivot), type.width)
        divisor = f.splat(pivot, type.width)
        with f.when(is_exact):
            self._below(f, lambda i, value: [f.binary("fmul", value[0], factor)], [f["column"]])
        with f.unless(f.binary("or", is_exact, is_zero)):
            self._below(f, lambda i, value: [f.binary("fdiv", value[0], divisor)], [f["column"]])
        return f

    def eliminate(self, count: int) -> KernelFunction:
        """Writes `name(column, others, row, rows)`, which subtracts a column below its pivot from `count` others."""
        f = KernelFunction(f"{self.name}.eliminate{count}", column=PTR, others=PTR, row=I64, rows=I64)
        others = [self.at(f, f["others"], k, 0) for k in range(count)]
        factors = [f.splat(f.fneg(self.element(f, other, f["row"])), self.type.width) for other in others]

        def subtract(i: IndexValue, values: list[Value]) -> list[Value]:
            lower = self.load(f, f["column"], i)
            return [f.fmuladd(factor, lower, value) for factor, value in zip(factors, values, strict=True)]

        self._below(f, subtract, others)
        return f

    def _below(
        self, f: KernelFunction, changed: Callable[[IndexValue, list[Value]], list[Value]], columns: list[Value]
    ) -> None:
        """Changes the elements of columns below a row."""
        type, start = self.type, self.vector_of(f, f["row"])
        is_below = f.compare("ugt", self.lanes(f, start), self.splat(f, f["row"]))
        values = [self.load(f, column, start) for column in columns]
        for column, value, new in zip(columns, values, changed(start, values), strict=True):
            self.store(f, f.select(is_below, new, value), column, start)
        with f.each(f.add(start, type.width), f["rows"], type.width) as i:
            values = [self.load(f, column, i) for column in columns]
            for column, value in zip(columns, changed(i, values), strict=True):
                self.store(f, value, column, i)

    def _swap(self, f: KernelFunction, column: Value, row: IndexValue, other: IndexValue) -> None:
        values = [self.element(f, column, position) for position in (row, other)]
        for value, position in zip(reversed(values), (row, other), strict=True):
            f.store(value, f.at(column, position, self.type.element), self.square.bytes)
