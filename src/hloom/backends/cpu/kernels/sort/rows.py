"""Sorts of the rows of arrays: several rows at once, or each row on all threads."""

from __future__ import annotations

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.sort import quick
from hloom.backends.cpu.kernels.sort.context import RowContext, RowField
from hloom.backends.cpu.kernels.sort.merge import MergeSort, ParallelFor
from hloom.backends.cpu.kernels.sort.quick import QuickSort
from hloom.backends.cpu.kernels.sort.radix import RadixSort
from hloom.backends.cpu.kernels.sort.records import Records, Rows, raw_type
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Value
from hloom.target import TASKS_PER_THREAD, Target
from hloom.types import PrimitiveType

MIN_RADIX_SIZE = 256
"""Elements from which rows that are ordered by a key are sorted digit by digit."""
ELEMENT_COST = 20
"""Cost of an element of a row, in additions."""
MAX_SCRATCH_BYTES = 1 << 22
"""Scratch of all threads up to which there are several shares of rows for each thread."""


class SortRows:
    """Writes the functions of a sort of `rows`, of which the first `result_size` elements are results (None: all)."""

    def __init__(
        self, name: str, instruction: Instruction, rows: Rows, records: Records, in_place: bool, target: Target,
        result_size: int | None = None,
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.rows, self.records, self.in_place = name, instruction, rows, records, in_place
        self.result_rows = Rows(rows.count, rows.size if result_size is None else result_size, rows.stride)
        self.operand_types = [shape.element_type for shape in instruction.operand_shapes]
        self.result_types = [shape.element_type for shape in instruction.shape.leaves()]
        self.splits_rows = target.is_worth_threads(rows.size * ELEMENT_COST) and rows.count < target.threads
        parts = target.threads if self.splits_rows else 1
        counts = len(self.operand_types), len(self.result_types)
        self.row = RowContext(f"{name}.row", *counts, records, rows.size, parts)
        self.algorithm = self._algorithm(target.vector_bytes)
        self.row_bytes = self._set_bytes() * (1 if in_place else 2) + aligned(self.algorithm.counts_bytes)
        self.shares = self._shares(target)

    def _algorithm(self, vector_bytes: int) -> QuickSort | RadixSort | MergeSort:
        if (self.in_place or self.records.are_distinct) and quick.supports(self.records, self.rows.size, vector_bytes):
            return QuickSort(self.row, vector_bytes)
        by_digits = self.records.key is not None and len(self.records.columns) == 1 and self.rows.size >= MIN_RADIX_SIZE
        return RadixSort(self.row) if by_digits else MergeSort(self.row)

    def _set_bytes(self) -> int:
        return sum(aligned(self.rows.size * column.bits // 8) for column in self.records.columns)

    def _shares(self, target: Target) -> int:
        """The number of tasks among which the rows are divided."""
        if self.splits_rows:
            return 1
        fits = TASKS_PER_THREAD * target.threads * self.row_bytes <= MAX_SCRATCH_BYTES
        return target.tasks(self.rows.count if fits else min(self.rows.count, target.threads))

    def code(self) -> KernelCode:
        """Returns the code of the sort."""
        functions = [*self.algorithm.functions(), self._rows(), self._entry()]
        if not self.in_place:
            functions += [self._prepare(), self._finish()]
        return code_of(self.name, functions, self.shares * self.row_bytes)

    def _entry(self) -> KernelFunction:
        f = entry_function(self.name, self.instruction)
        f.run_chunks(f"{self.name}.rows", f.pack(*f.parameters), self.shares, f.threads)
        return f

    def _rows(self) -> KernelFunction:
        """Sorts one share of the rows."""
        f = task_function(f"{self.name}.rows")
        count = len(self.operand_types)
        words = f.unpack(f["context"], *[PTR] * (count + len(self.result_types) + 3))
        *arrays, scratch, pool, parallel_for = words
        context = f.slot(I64, self.row.words)
        scratch = f.at(scratch, f.multiply(f["chunk"], self.row_bytes), "i8")
        sets = self._column_sets(f, scratch)
        counts = f.at(scratch, self.row_bytes - aligned(self.algorithm.counts_bytes), "i8")
        self.row.put(f, context, RowField.COUNTS, [counts])
        on = (pool, parallel_for) if self.splits_rows else None
        first, length = f.share(self.rows.count, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, length)) as row:
            operands = self._row_of(f, arrays[:count], self.operand_types, self.rows, row)
            results = self._row_of(f, arrays[count:], self.result_types, self.result_rows, row)
            self._sort_row(f, context, operands, results, sets, on)
        return f

    def _column_sets(self, f: KernelFunction, scratch: Value) -> list[list[Value]]:
        """Returns the columns of each set that is in the scratch."""
        sets, offset = [], 0
        for _ in range(1 if self.in_place else 2):
            columns = []
            for column in self.records.columns:
                columns.append(f.at(scratch, offset, "i8"))
                offset += aligned(self.rows.size * column.bits // 8)
            sets.append(columns)
        return sets

    def _row_of(
        self, f: KernelFunction, arrays: list[Value], types: list[PrimitiveType], rows: Rows, row: IndexValue
    ) -> list[Value]:
        start = rows.start(f, row)
        return [f.at(array, start, raw_type(type).element) for array, type in zip(arrays, types, strict=True)]

    def _sort_row(
        self, f: KernelFunction, context: Value, operands: list[Value], results: list[Value], sets: list[list[Value]],
        on: ParallelFor,
    ) -> None:  # fmt: skip
        """Sorts one row, so that its records end in `final`: an odd number of passes starts with `other` as target."""
        final, other = (results, sets[0]) if self.in_place else (sets[0], sets[1])
        start, spare = (other, final) if self.algorithm.passes % 2 else (final, other)
        if self.in_place:
            self.algorithm.sort(f, context, (operands, start, spare), on)
            return
        row = self.row
        row.put(f, context, RowField.OPERANDS, operands)
        row.put(f, context, RowField.RESULTS, results)
        row.put(f, context, RowField.TARGET, start)
        f.run_chunks(f"{row.name}.prepare", context, row.parts, on)
        self.algorithm.sort(f, context, (start, start, spare), on)
        row.put(f, context, RowField.SOURCE, final)
        f.run_chunks(f"{row.name}.finish", context, row.parts, on)

    def _prepare(self) -> KernelFunction:
        f = self.row.task("prepare")
        operands, columns = (self.row.get(f, f["context"], field) for field in (RowField.OPERANDS, RowField.TARGET))
        first, length = f.share(self.rows.size, 1, self.row.parts, f["chunk"])
        with f.each(first, f.add(first, length)) as position:
            self.records.prepare(f, operands, columns, position)
        return f

    def _finish(self) -> KernelFunction:
        f = self.row.task("finish")
        fields = (RowField.SOURCE, RowField.OPERANDS, RowField.RESULTS)
        columns, operands, results = (self.row.get(f, f["context"], field) for field in fields)
        first, length = f.share(self.result_rows.size, 1, self.row.parts, f["chunk"])
        with f.each(first, f.add(first, length)) as position:
            self.records.finish(f, columns, operands, results, position)
        return f
