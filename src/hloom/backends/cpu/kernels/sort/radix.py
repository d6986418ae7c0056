"""Radix sort of records by unsigned keys, lowest digit first: digits are counted, then records move to their positions.

Each thread counts and moves a part of the row; within a digit the parts stay in order, so the sort is stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.backends.cpu.elements.types import resized
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.sort.context import RowContext, RowField
from hloom.backends.cpu.kernels.sort.merge import ParallelFor
from hloom.backends.cpu.kernels.sort.records import load_raw, store_raw
from hloom.lir import I32, I64, IndexValue, Value, constant, type_of

MIN_LONG_DIGIT_SIZE = 1 << 15
"""Elements of a row from which digits have 11 bits instead of 8."""
LANES = 16
"""Records whose digits are computed at once."""

Visit = Callable[[IndexValue, Value], object]
"""A function of a position and its digit."""


class RadixSort:
    """Writes the functions of a radix sort of one row."""

    def __init__(self, row: RowContext) -> None:
        self.row, self.records, self.size, self.parts = row, row.records, row.size, row.parts
        assert row.records.key is not None
        bits = row.records.key.bits
        self.digit_bits = 11 if row.size >= MIN_LONG_DIGIT_SIZE and bits >= 32 else 8
        self.passes = -(-bits // self.digit_bits)
        self.counts_bytes = 4 * self.parts << self.digit_bits

    def functions(self) -> list[KernelFunction]:
        """Returns the functions that `sort` calls."""
        return [self._count(), self._move()]

    def sort(self, f: KernelFunction, context: Value, sets: Sequence[list[Value]], on: ParallelFor) -> None:
        """Sorts the column `sets[0]`; `sets[2]` and `sets[1]` are the target alternately."""
        source, spare, target = sets
        for step in range(self.passes):
            self.row.put(f, context, RowField.SOURCE, source)
            self.row.put(f, context, RowField.TARGET, target)
            self.row.put(f, context, RowField.STEP, [constant(I64, step * self.digit_bits)])
            f.run_chunks(f"{self.row.name}.count", context, self.parts, on)
            self._prefix_sum(f, context)
            f.run_chunks(f"{self.row.name}.move", context, self.parts, on)
            source, target, spare = target, spare, target

    def _prefix_sum(self, f: KernelFunction, context: Value) -> None:
        """Replaces counts by the first position of each digit in each part."""
        (counts,) = self.row.get(f, context, RowField.COUNTS)
        total = f.variable(constant(I32, 0))
        with f.each(0, 1 << self.digit_bits) as digit, f.each(0, self.parts) as part:
            address = f.at(counts, f.add(f.multiply(part, 1 << self.digit_bits), digit), "i32")
            count, before = f.load(address, I32, 4), total.get()
            f.store(before, address, 4)
            total.set(f.binary("add", before, count))

    def _part(self, phase: str) -> tuple[KernelFunction, Value, Value, Value, Value]:
        """Returns a task, the column it reads, its counts, and the positions of its part."""
        f = self.row.task(phase)
        (source,), (counts,) = (self.row.get(f, f["context"], field) for field in (RowField.SOURCE, RowField.COUNTS))
        counts = f.at(counts, f.multiply(f["chunk"], 1 << self.digit_bits), "i32")
        first, length = f.share(self.size, 1, self.parts, f["chunk"])
        return f, source, counts, f.index(first), f.index(f.add(first, length))

    def _count(self) -> KernelFunction:
        f, source, counts, first, last = self._part("count")
        with f.each(0, 1 << self.digit_bits) as digit:
            f.store(constant(I32, 0), f.at(counts, digit, "i32"), 4)
        self._visit_digits(f, source, (first, last), lambda _, digit: self._post_increment(f, counts, digit))
        return f

    def _move(self) -> KernelFunction:
        f, source, counts, first, last = self._part("move")
        (target,) = self.row.get(f, f["context"], RowField.TARGET)

        def move(index: IndexValue, digit: Value) -> None:
            record = load_raw(f, source, index, self.records.columns[0])
            store_raw(f, record, target, self._post_increment(f, counts, digit))

        self._visit_digits(f, source, (first, last), move)
        return f

    def _post_increment(self, f: KernelFunction, counts: Value, digit: Value) -> Value:
        """Increments the count of a digit; returns the count before."""
        address = f.at(counts, digit, "i32")
        count = f.load(address, I32, 4)
        f.store(f.binary("add", count, constant(I32, 1)), address, 4)
        return f.convert("zext", count, "i64")

    def _visit_digits(self, f: KernelFunction, source: Value, part: tuple[Value, Value], visit: Visit) -> None:
        """Visits positions with their digits, which are computed in vectors, and then read from the stack."""
        (first, last), type = part, self.records.columns[0]
        (shift,), digits = self.row.get(f, f["context"], RowField.STEP), f.slot(I32, LANES)
        whole = f.index(f.subtract(last, f.remainder(f.subtract(last, first), LANES)))
        with f.each(first, whole, LANES) as start:
            records = f.load(f.at(source, start, type.element), type_of(type.element, LANES), min(8, type.bits // 8))
            f.store(self._digit(f, records, shift), digits, 4)
            for lane in range(LANES):
                digit = f.load(f.at(digits, lane, "i32"), I32, 4)
                visit(f.add(start, lane), f.convert("zext", digit, "i64"))
        with f.each(whole, last) as index:
            visit(index, f.convert("zext", self._digit(f, load_raw(f, source, index, type), shift), "i64"))

    def _digit(self, f: KernelFunction, records: Value, shift: Value) -> Value:
        """Returns the digit of one record, or of a vector of them, as i32."""
        key = self.records.key_of(f, records)
        shift = resized(f, shift, key.type.element)
        shifted = f.binary("lshr", key, f.splat(shift, key.type.width) if key.type.width else shift)
        return resized(f, f.binary("and", shifted, constant(key.type, (1 << self.digit_bits) - 1)), "i32")
