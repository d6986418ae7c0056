"""The context that the tasks of one row share: named words in memory."""

from __future__ import annotations

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.sort.records import Records
from hloom.backends.cpu.llvm.text import I64, PTR, Type, Value


class RowContext:
    """The words of a context: addresses of the row in each operand and result, the columns read and written, counts, a
    step.
    """

    def __init__(self, name: str, operands: int, results: int, records: Records, size: int, parts: int) -> None:
        self.name, self.records, self.size, self.parts = name, records, size, parts
        self.names = [f"operand{k}" for k in range(operands)] + [f"result{k}" for k in range(results)]
        for group in ("from", "to", "spare"):
            self.names += [f"{group}{c}" for c in range(len(records.columns))]
        self.names += ["counts", "step"]

    def put(self, f: KernelFunction, context: Value, name: str, value: Value) -> None:
        """Stores one word."""
        f.store(value, f.at(context, self.names.index(name), "i64"), 8)

    def put_all(self, f: KernelFunction, context: Value, group: str, values: list[Value]) -> None:
        """Stores a group of words: `group`0, `group`1, .."""
        for index, value in enumerate(values):
            self.put(f, context, f"{group}{index}", value)

    def pointers(self, f: KernelFunction, group: str) -> list[Value]:
        """Loads a group of addresses (operand0, operand1, ..) in a task."""
        names = [name for name in self.names if name.rstrip("0123456789") == group]
        return [self._word(f, f["context"], name, PTR) for name in names]

    def step(self, f: KernelFunction) -> Value:
        """Loads the step in a task."""
        return self._word(f, f["context"], "step", I64)

    def counts(self, f: KernelFunction, context: Value) -> Value:
        """Loads the address of the counts."""
        return self._word(f, context, "counts", PTR)

    def _word(self, f: KernelFunction, context: Value, name: str, type: Type) -> Value:
        return f.load(f.at(context, self.names.index(name), "i64"), type, 8)

    def task(self, phase: str) -> KernelFunction:
        """Returns an empty task for a phase of the sort."""
        return task_function(f"{self.name}.{phase}")
