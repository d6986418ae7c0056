"""The panel of an LU factorisation: columns as rows of memory, factored one by one.

Each column finds its pivot, swaps it to the diagonal, is divided by it, and is subtracted from the columns after it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.blocks import Square, record_failure, store_number
from hloom.lir import I64, PTR, IndexValue, Value, constant, lane_indices


def panel_functions(name: str, square: Square, pitch: int) -> list[KernelFunction]:
    """Returns `name.factor(panel, rows, first, swaps, info)` and the functions that it calls.

    The panel has `square.block` columns of `rows` elements, `pitch` elements apart. Pivots are stored as LAPACK does,
    as rows of the matrix from 1 on, of which `first` precede the panel; `info` gets the first row without a pivot.
    """
    panel = _Panel(name, square, pitch)
    return [panel.factor(), panel.pivot(), panel.scale(), panel.eliminate()]


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
        with f.loop(self.square.block) as j:
            column = self.at(f, f["panel"], j.index, 0)
            f.call_void(f"{self.name}.pivot", column, f.index(j.index), f["rows"], position)
            row = f.load(position, I64, 8)
            store_number(f, f.at(f["swaps"], f.add(f["first"], j.index), "i32"), f.add(f["first"], row))
            with f.loop(self.square.block) as c:
                self._swap(f, self.at(f, f["panel"], c.index, 0), f.index(j.index), row)
            f.call_void(f"{self.name}.scale", column, f.index(j.index), f["rows"], f["first"], f["info"])
            with f.each(f.add(j.index, 1), self.square.block) as c:
                f.call_void(f"{self.name}.eliminate", column, self.at(f, f["panel"], c, 0), f.index(j.index), f["rows"])
        return f

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
        with f.unless(is_zero):
            divisor = f.splat(pivot, type.width)
            self._below(f, lambda i, value: f.binary("fdiv", value, divisor), f["column"])
        return f

    def eliminate(self) -> KernelFunction:
        """Writes `name(column, other, row, rows)`, which subtracts a column below its pivot from another one."""
        f = KernelFunction(f"{self.name}.eliminate", column=PTR, other=PTR, row=I64, rows=I64)
        factor = f.splat(f.fneg(self.element(f, f["other"], f["row"])), self.type.width)
        self._below(f, lambda i, value: f.fmuladd(factor, self.load(f, f["column"], i), value), f["other"])
        return f

    def _below(self, f: KernelFunction, changed: Callable[[IndexValue, Value], Value], array: Value) -> None:
        """Changes the elements of a column below a row."""
        type, start = self.type, self.vector_of(f, f["row"])
        is_below = f.compare("ugt", self.lanes(f, start), self.splat(f, f["row"]))
        value = self.load(f, array, start)
        self.store(f, f.select(is_below, changed(start, value), value), array, start)
        with f.each(f.add(start, type.width), f["rows"], type.width) as i:
            self.store(f, changed(i, self.load(f, array, i)), array, i)

    def _swap(self, f: KernelFunction, column: Value, row: IndexValue, other: IndexValue) -> None:
        values = [self.element(f, column, position) for position in (row, other)]
        for value, position in zip(reversed(values), (row, other), strict=True):
            f.store(value, f.at(column, position, self.type.element), self.square.bytes)
