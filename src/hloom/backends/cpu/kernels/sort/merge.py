"""Merge sort: short runs by rank or insertion, then merges of two, alternating between two sets of columns.

Runs start at fixed positions, so the result does not depend on the number of threads, even if the comparator is
inconsistent.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.sort.context import RowContext, RowField
from hloom.lir import I64, PTR, Type, Value, constant, type_of

RUN_LENGTH = 16
"""Elements of a run that is sorted at once."""
BLOCK_SIZE = RUN_LENGTH << 10
"""Elements that one task sorts, level after level, while they are in the cache."""

ParallelFor = tuple[Value, Value] | None
"""The address of a pool and of its `parallel_for`; None runs chunks sequentially."""


class MergeSort:
    """Writes the functions of a merge sort of one row."""

    def __init__(self, row: RowContext) -> None:
        self.row, self.records, self.size = row, row.records, row.size
        self.passes = 0
        while RUN_LENGTH << self.passes < self.size:
            self.passes += 1
        self.counts_bytes = 0

    def functions(self) -> list[KernelFunction]:
        """Returns the functions that `sort` calls."""
        return [self._merge(), self._block(), self._level()]

    def sort(self, f: KernelFunction, context: Value, sets: Sequence[list[Value]], on: ParallelFor) -> None:
        """Sorts the columns `sets[0]`; `sets[1]`, which may be `sets[0]`, and `sets[2]` are the target alternately."""
        row, (_, target, spare) = self.row, sets
        for field, columns in zip((RowField.SOURCE, RowField.TARGET, RowField.SPARE), sets, strict=True):
            row.put(f, context, field, columns)
        f.run_chunks(f"{row.name}.block", context, -(-self.size // BLOCK_SIZE), on)
        width = min(BLOCK_SIZE, RUN_LENGTH << self.passes)
        if self._passes_per_block() % 2:
            target, spare = spare, target
        while width < self.size:
            row.put(f, context, RowField.SOURCE, target)
            row.put(f, context, RowField.TARGET, spare)
            row.put(f, context, RowField.STEP, [constant(I64, width)])
            f.run_chunks(f"{row.name}.level", context, -(-self.size // (2 * width)), on)
            target, spare, width = spare, target, 2 * width

    def _passes_per_block(self) -> int:
        return min(self.passes, (BLOCK_SIZE // RUN_LENGTH).bit_length() - 1)

    def _block(self) -> KernelFunction:
        """Writes the task that sorts one block: its runs, then all merges inside of it."""
        f = self.row.task("block")
        fields = (RowField.SOURCE, RowField.TARGET, RowField.SPARE)
        source, target, spare = (self.row.get(f, f["context"], field) for field in fields)
        first = f.index(f.multiply(f["chunk"], BLOCK_SIZE))
        end = f.index(f.minimum(f.add(first, BLOCK_SIZE), self.size))
        with f.each(first, end, RUN_LENGTH) as start:
            self._sort_run(f, source, target, start, f.index(f.minimum(f.add(start, RUN_LENGTH), end)))
        current, other = [f.variable(p) for p in target], [f.variable(p) for p in spare]
        width = f.variable(constant(I64, RUN_LENGTH))
        limit = constant(I64, RUN_LENGTH << self._passes_per_block())
        with f.repeat(lambda: f.compare("ult", width.get(), limit)):
            step = width.get()
            sources, targets = [v.get() for v in current], [v.get() for v in other]
            with f.each(first, end, f.add(step, step)) as start:
                self._invoke_merge(f, sources, targets, start, step, end)
            for variable, pointer in zip([*current, *other], [*targets, *sources], strict=True):
                variable.set(pointer)
            width.set(f.index(f.add(step, step)))
        return f

    def _level(self) -> KernelFunction:
        """Writes the task that merges one pair of runs of `step` elements."""
        f = self.row.task("level")
        (step,) = self.row.get(f, f["context"], RowField.STEP)
        start = f.binary("mul", f["chunk"], f.index(f.add(step, step)))
        source, target = (self.row.get(f, f["context"], field) for field in (RowField.SOURCE, RowField.TARGET))
        self._invoke_merge(f, source, target, start, step, self.size)
        return f

    def _invoke_merge(
        self, f: KernelFunction, source: list[Value], target: list[Value], start: Value, step: Value, end: Value | int
    ) -> None:
        middle = f.minimum(f.add(start, step), end)
        stop = f.minimum(f.add(start, f.add(step, step)), end)
        f.call_void(f"{self.row.name}.merge", *source, *target, start, f.index(middle), f.index(stop))

    def _sort_run(self, f: KernelFunction, source: list[Value], target: list[Value], start: Value, end: Value) -> None:
        if self.records.are_distinct and self.records.columns[0].bits == 64:
            self._sort_by_rank(f, source[0], target[0], start, end)
        else:
            self._insertion_sort(f, source, target, start, end)

    def _sort_by_rank(self, f: KernelFunction, source: Value, target: Value, start: Value, end: Value) -> None:
        """Stores each record of a run at its rank, the count of smaller records; lanes past the end are maximal."""
        vector = type_of("i64", RUN_LENGTH)
        greatest, mask = constant(vector, -1), f.first_lanes(f.subtract(end, start), RUN_LENGTH)
        address = f.at(source, start, "i64")
        records = f.load_masked(address, vector, 8, mask, greatest)
        rank: Value = constant(vector, 0)
        for lane in range(RUN_LENGTH):
            is_less = f.compare("ult", f.shuffle(records, None, [lane] * RUN_LENGTH), records)
            rank = f.select(is_less, f.binary("add", rank, constant(vector, 1)), rank)
        f.scatter(records, f.element_pointer(f.at(target, start, "i64"), rank, "i64"), 8, mask)

    def _insertion_sort(
        self, f: KernelFunction, source: list[Value], target: list[Value], start: Value, end: Value
    ) -> None:
        """Sorts a run from `source` into `target`, which may be the same memory."""
        with f.each(start, end) as index:
            self.records.insert(f, self.records.load(f, source, index), target, start, index)

    def _merge(self) -> KernelFunction:
        """Writes `(from.., to.., first, middle, end)`: one merge without branches on data."""
        columns = range(len(self.records.columns))
        parameters: dict[str, Type] = {f"{group}{c}": PTR for group in ("from", "to") for c in columns}
        f = KernelFunction(f"{self.row.name}.merge", **parameters, first=I64, middle=I64, end=I64)
        source, target = [f[f"from{c}"] for c in columns], [f[f"to{c}"] for c in columns]
        left, right, out = f.variable(f["first"]), f.variable(f["middle"]), f.variable(f["first"])

        def both_are_left() -> Value:
            inside = f.compare("ult", left.get(), f["middle"])
            return f.binary("and", inside, f.compare("ult", right.get(), f["end"]))

        with f.repeat(both_are_left):
            a, b, at = left.get(), right.get(), out.get()
            x, y = self.records.load(f, source, a), self.records.load(f, source, b)
            takes_right = self.records.less(f, y, x)
            chosen = [f.select(takes_right, v, u) for u, v in zip(x, y, strict=True)]
            self.records.store(f, chosen, target, at)
            step = f.convert("zext", takes_right, "i64")
            right.set(f.binary("add", b, step))
            left.set(f.binary("add", a, f.binary("xor", step, constant(I64, 1))))
            out.set(f.index(f.add(at, 1)))
        remaining = f.select(f.compare("ult", left.get(), f["middle"]), left.get(), right.get())
        length = f.subtract(f["end"], out.get())
        for column, type in enumerate(self.records.columns):
            to, from_ = (f.at(p[column], i, type.element) for p, i in ((target, out.get()), (source, remaining)))
            f.copy(to, from_, f.multiply(length, type.bits // 8))
        return f
