"""Radix sort of records by unsigned keys, lowest digit first: digits are counted, then records move to their places.

Each thread counts and moves a part of the row; within a digit the parts stay in order, so the sort is stable.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.sort.context import RowContext
from hloom.backends.cpu.kernels.sort.merge import Place
from hloom.backends.cpu.kernels.sort.records import load_raw, store_raw
from hloom.backends.cpu.llvm.text import I32, I64, Value, constant

LONG_ROW = 1 << 15
"""Rows of so many elements have longer digits."""


class RadixSort:
    def __init__(self, row: RowContext) -> None:
        self.row, self.records, self.size, self.parts = row, row.records, row.size, row.parts
        assert row.records.key is not None
        bits = row.records.key.bits
        self.digit = 11 if row.size >= LONG_ROW and bits >= 32 else 8
        self.steps = -(-bits // self.digit)
        self.counts_bytes = 4 * self.parts << self.digit

    def functions(self) -> list[KernelFunction]:
        return [self._count(), self._move()]

    def sort(self, f: KernelFunction, context: Value, sets: Sequence[list[Value]], on: Place) -> None:
        """Sorts the column `sets[0]`; `sets[2]` and `sets[1]` take turns as the target."""
        source, spare, target = sets
        for step in range(self.steps):
            self.row.put_all(f, context, "from", source)
            self.row.put_all(f, context, "to", target)
            self.row.put(f, context, "step", constant(I64, step * self.digit))
            f.run_chunks(f"{self.row.name}.count", context, self.parts, on)
            self._add_up(f, context)
            f.run_chunks(f"{self.row.name}.move", context, self.parts, on)
            source, target, spare = target, spare, target

    def _add_up(self, f: KernelFunction, context: Value) -> None:
        """Counts become the first places of each digit in each part."""
        counts = self.row.counts(f, context)
        total = f.variable(constant(I32, 0))
        with f.each(0, 1 << self.digit) as digit, f.each(0, self.parts) as part:
            place = f.at(counts, f.add(f.multiply(part, 1 << self.digit), digit), "i32")
            count, before = f.load(place, I32, 4), total.get()
            f.store(before, place, 4)
            total.set(f.binary("add", before, count))

    def _part(self, phase: str) -> tuple[KernelFunction, Value, Value, Value, Value]:
        """A task: the column it reads, its counts, and the positions of its part."""
        f = self.row.task(phase)
        (source,) = self.row.pointers(f, "from")
        counts = f.at(self.row.counts(f, f["context"]), f.multiply(f["chunk"], 1 << self.digit), "i32")
        first, length = f.share(self.size, 1, self.parts, f["chunk"])
        return f, source, counts, f.index(first), f.index(f.add(first, length))

    def _digit(self, f: KernelFunction, record: Value, shift: Value) -> Value:
        key = self.records.key_of(f, record)
        wide = key if key.type.bits == 64 else f.convert("zext", key, "i64")
        return f.binary("and", f.binary("lshr", wide, shift), constant(I64, (1 << self.digit) - 1))

    def _count(self) -> KernelFunction:
        f, source, counts, first, last = self._part("count")
        shift = self.row.step(f)
        with f.each(0, 1 << self.digit) as digit:
            f.store(constant(I32, 0), f.at(counts, digit, "i32"), 4)
        with f.each(first, last) as index:
            record = load_raw(f, source, index, self.records.columns[0])
            place = f.at(counts, self._digit(f, record, shift), "i32")
            f.store(f.binary("add", f.load(place, I32, 4), constant(I32, 1)), place, 4)
        return f

    def _move(self) -> KernelFunction:
        f, source, counts, first, last = self._part("move")
        (target,) = self.row.pointers(f, "to")
        shift = self.row.step(f)
        with f.each(first, last) as index:
            record = load_raw(f, source, index, self.records.columns[0])
            place = f.at(counts, self._digit(f, record, shift), "i32")
            at = f.load(place, I32, 4)
            f.store(f.binary("add", at, constant(I32, 1)), place, 4)
            store_raw(f, record, target, f.convert("zext", at, "i64"))
        return f
