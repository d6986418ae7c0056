"""The context that the tasks of one row share: named words in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import Enum

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.sort.records import Records
from hloom.lir import I64, PTR, Value


class RowField(Enum):
    """Groups of words in the context of a row."""

    OPERANDS = "operands"
    """Addresses of the row in each operand."""
    RESULTS = "results"
    SOURCE = "source"
    """Addresses of the columns of records that are read."""
    TARGET = "target"
    SPARE = "spare"
    COUNTS = "counts"
    """Address of the counts of an algorithm."""
    STEP = "step"
    """A number that the passes of an algorithm differ in."""


class RowContext:
    """The layout of the context, and facts about the row: its records, their number, the tasks that share them."""

    def __init__(self, name: str, operands: int, results: int, records: Records, size: int, parts: int) -> None:
        self.name, self.records, self.size, self.parts = name, records, size, parts
        columns = len(records.columns)
        self.counts = dict(zip(RowField, (operands, results, columns, columns, columns, 1, 1), strict=True))
        self.starts = dict(zip(RowField, itertools.accumulate(self.counts.values(), initial=0), strict=False))
        self.words = sum(self.counts.values())

    def put(self, f: KernelFunction, context: Value, field: RowField, values: Sequence[Value]) -> None:
        """Stores the words of a field."""
        for k, value in enumerate(values):
            f.store(value, f.at(context, self.starts[field] + k, "i64"), 8)

    def get(self, f: KernelFunction, context: Value, field: RowField) -> list[Value]:
        """Loads the words of a field."""
        first, type = self.starts[field], I64 if field is RowField.STEP else PTR
        return [f.load(f.at(context, first + k, "i64"), type, 8) for k in range(self.counts[field])]

    def task(self, phase: str) -> KernelFunction:
        """Returns an empty task for a phase of the sort."""
        return task_function(f"{self.name}.{phase}")
