"""Scatters into operands that no cache holds: index vectors are first sorted into bins, each a part of the operand that
a core's cache holds.

Tasks with equal shares of the index vectors count those of each bin, and, once the counts are summed, write them bin by
bin: a stable counting sort, after which each bin has its index vectors in their original order. Then bins are updated
side by side, each by one thread.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.kernels.code import aligned
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.lir import I64, IndexValue, Value, constant
from hloom.system.records import record
from hloom.target import L2_BYTES, TASKS_PER_THREAD, Target

MAX_BIN_BYTES = L2_BYTES // 2
MAX_BINS = 1024
MIN_BIN_INDICES = 64
"""Index vectors of a bin, on average, beside which its count costs nothing."""
_ROW_SHIFT = 32
"""An entry of a bin is a word, `row:32 | index vector:32`."""


@record(slots=True)
class Bins:
    """Bins of `1 << shift` rows of an operand, where a row is a window; `indices` index vectors in `shares` tasks."""

    rows: int
    shift: int
    indices: int
    shares: int

    @property
    def count(self) -> int:
        """The number of bins."""
        return -(-self.rows >> self.shift)

    @property
    def counts_bytes(self) -> int:
        """Bytes of the counts of one task: one for each bin, and one for index vectors outside of the operand."""
        return aligned(8 * (self.count + 1))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the counts of all tasks, the first entry of each bin, and the entries."""
        return (self.shares + 1) * self.counts_bytes + 8 * self.indices


def choose_bins(rows: int, row_bytes: int, indices: int, target: Target) -> Bins | None:
    """Returns the bins of an operand with `rows` windows; None if sorting does not pay."""
    largest = max(1, min(MAX_BIN_BYTES // row_bytes, rows // (TASKS_PER_THREAD * target.threads)))
    shift = max(largest.bit_length() - 1, (rows // MAX_BINS).bit_length())
    bins = Bins(rows, shift, indices, TASKS_PER_THREAD * target.threads)
    fits = max(rows, indices) < 1 << _ROW_SHIFT - 1
    return bins if fits and indices >= MIN_BIN_INDICES * bins.count else None


Row = Callable[[KernelFunction, IndexValue], tuple[Value, Value]]
"""Writes code for the row of an index vector, and whether it is inside of the operand."""


class BinSort:
    """Writes the tasks that sort index vectors into bins, in a workspace.

    `unpack` returns the address of the workspace in a task, after making the arrays known to `row`.
    """

    def __init__(self, name: str, bins: Bins, unpack: Callable[[KernelFunction], Value], row: Row) -> None:
        self.name, self.bins, self.unpack, self.row = name, bins, unpack, row

    def run(self, f: KernelFunction, context: Value, on: tuple[Value, Value] | None) -> list[KernelFunction]:
        """Calls the tasks, and returns their functions."""
        f.run_chunks(f"{self.name}.count", context, self.bins.shares, on)
        f.call_void(f"{self.name}.offsets", context, constant(I64, 0))
        f.run_chunks(f"{self.name}.sort", context, self.bins.shares, on)
        return [self._count(), self._offsets(), self._sort()]

    def bin(self, f: KernelFunction, workspace: Value) -> tuple[Value, Value]:
        """Returns the first entry of the task's bin, and that of the next one."""
        starts = self._counts(f, workspace, self.bins.shares)
        first, last = (f.load(f.at(starts, f.add(f["chunk"], k), "i64"), I64, 8) for k in (0, 1))
        return first, last

    def entry(self, f: KernelFunction, workspace: Value, entry: IndexValue) -> tuple[Value, Value]:
        """Returns an entry's row and index vector."""
        word = f.load(self._entry(f, workspace, entry), I64, 8)
        mask = constant(I64, (1 << _ROW_SHIFT) - 1)
        return f.binary("lshr", word, constant(I64, _ROW_SHIFT)), f.binary("and", word, mask)

    def _count(self) -> KernelFunction:
        """Counts the index vectors of each bin in a share of them."""
        f = task_function(f"{self.name}.count")
        counts = self._counts(f, self.unpack(f), f["chunk"])
        f.fill(counts, 0, self.bins.counts_bytes)
        with f.each(*self._share(f)) as index:
            slot = f.at(counts, self._bin_and_row(f, index)[0], "i64")
            f.store(f.binary("add", f.load(slot, I64, 8), constant(I64, 1)), slot, 8)
        return f

    def _offsets(self) -> KernelFunction:
        """Replaces each count by the position of the first entry that it counts."""
        f, bins = task_function(f"{self.name}.offsets"), self.bins
        workspace = self.unpack(f)
        starts, total = self._counts(f, workspace, bins.shares), f.variable(constant(I64, 0))
        with f.each(0, bins.count + 1) as bin:
            f.store(total.get(), f.at(starts, bin, "i64"), 8)
            with f.each(0, bins.shares) as share:
                slot = f.at(self._counts(f, workspace, share), bin, "i64")
                counted = f.load(slot, I64, 8)
                f.store(total.get(), slot, 8)
                total.set(f.binary("add", total.get(), counted))
        return f

    def _sort(self) -> KernelFunction:
        """Writes the entries of a share of the index vectors."""
        f = task_function(f"{self.name}.sort")
        workspace = self.unpack(f)
        counts = self._counts(f, workspace, f["chunk"])
        with f.each(*self._share(f)) as index:
            bin, row = self._bin_and_row(f, index)
            slot = f.at(counts, bin, "i64")
            position = f.load(slot, I64, 8)
            f.store(f.binary("add", position, constant(I64, 1)), slot, 8)
            high = f.binary("shl", row, constant(I64, _ROW_SHIFT))
            f.store(f.binary("or", high, f.index(index)), self._entry(f, workspace, position), 8)
        return f

    def _share(self, f: KernelFunction) -> tuple[IndexValue, IndexValue]:
        first, count = f.share(self.bins.indices, 1, self.bins.shares, f["chunk"])
        return first, f.add(first, count)

    def _bin_and_row(self, f: KernelFunction, index: IndexValue) -> tuple[Value, Value]:
        """Returns the bin and row of an index vector; those outside of the operand are in a bin after all others."""
        row, is_inside = self.row(f, index)
        bin = f.binary("lshr", row, constant(I64, self.bins.shift))
        return f.select(is_inside, bin, constant(I64, self.bins.count)), row

    def _counts(self, f: KernelFunction, workspace: Value, share: IndexValue) -> Value:
        return f.at(workspace, f.multiply(share, self.bins.counts_bytes), "i8")

    def _entry(self, f: KernelFunction, workspace: Value, entry: IndexValue) -> Value:
        entries = f.at(workspace, (self.bins.shares + 1) * self.bins.counts_bytes, "i8")
        return f.at(entries, entry, "i64")
