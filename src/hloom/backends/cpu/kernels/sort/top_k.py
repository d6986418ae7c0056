"""`topk`: a short list of the best is maintained while a row is scanned; for longer lists the rows are sorted.

Before, the best key of each lane of a vector is found. They are keys of different elements, so that the kth of them
bounds the result: hardly any element that is not part of it enters the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.sort.keys import natural_key
from hloom.backends.cpu.kernels.sort.records import KeyedPositions, Rows, load_raw, raw_type, store_raw
from hloom.backends.cpu.kernels.sort.rows import SortRows
from hloom.backends.cpu.kernels.sort.sort import MAX_ROW
from hloom.ir import Instruction
from hloom.lir import I64, PTR, Value, constant, type_of
from hloom.ops.sort import TopK
from hloom.target import Target, align_up

MAX_INSERTION_LENGTH = 8
"""Length up to which lists are always maintained by insertion."""
MAX_BOUNDED_LENGTH, MIN_BOUNDED_VECTORS = 16, 8
"""Length of lists, and vectors in a row, for which finding a bound costs less than what it saves."""


def emit(op: TopK, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a topk; None for element types without native arithmetic."""
    operand = instruction.operands[0].shape
    size, count = operand.dimensions[-1], math.prod(operand.dimensions[:-1])
    if not has_native_arrays(instruction) or size > MAX_ROW:
        return None
    if not op.k or not count:
        return code_of(name, [entry_function(name, instruction)])
    rows = Rows(count, size, 1)
    key = natural_key(operand.element_type, descending=op.largest)
    records = KeyedPositions([operand.element_type], key, rows, writes_positions=True)
    if not _is_short(op.k, size):
        return SortRows(name, instruction, rows, records, in_place=False, target=target, result_size=op.k).code()
    return _Selection(name, instruction, rows, records, op.k, target).code()


def _is_short(k: int, size: int) -> bool:
    """Whether a list of k is cheaper to maintain than a row to sort: about k ln(size / k) elements enter it."""
    return k <= MAX_INSERTION_LENGTH or k * k * (1 + math.log(size / k)) < 8 * size


class _Selection:
    """Writes the functions that keep the k best records of each row, best first."""

    def __init__(
        self, name: str, instruction: Instruction, rows: Rows, records: KeyedPositions, k: int, target: Target,
    ) -> None:  # fmt: skip
        self.name, self.instruction, self.rows, self.records, self.k = name, instruction, rows, records, k
        self.type = instruction.operands[0].shape.element_type
        self.record = records.columns[0]
        self.lanes = target.vector_bytes // (records.half // 8)
        self.shares = target.tasks(rows.count)

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        f.run_chunks(f"{self.name}.rows", f.pack(*f.parameters), self.shares, f.threads)
        return code_of(self.name, [self._rows(), f])

    def _rows(self) -> KernelFunction:
        f = task_function(f"{self.name}.rows")
        operand, values, positions = f.unpack(f["context"], PTR, PTR, PTR)
        best = f.slot(self.record, self.k)
        first, count = f.share(self.rows.count, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, count)) as row_index:
            row = f.at(operand, f.multiply(row_index, self.rows.size), raw_type(self.type).element)
            self._select(f, row, best)
            start = f.multiply(row_index, self.k)
            results = [f.at(values, start, raw_type(self.type).element), f.at(positions, start, "i32")]
            with f.each(0, self.k) as rank:
                self.records.finish(f, [best], [row], results, rank)
        return f

    def _select(self, f: KernelFunction, row: Value, best: Value) -> None:
        """Inserts the elements that precede the last element of the list, and the first ones of a list without bound.

        A bounded list begins empty.
        """
        with f.each(0, self.k) as rank:
            store_raw(f, constant(self.record, -1), best, rank)
        bound = self._bound(f, row)
        head = 0 if bound else min(self.rows.size, align_up(self.k, self.lanes))
        whole = head + (self.rows.size - head) // self.lanes * self.lanes
        self._insert_each(f, row, best, 0, head)
        with f.each(head, whole, self.lanes) as start, self._candidates(f, row, best, start, bound) as position:
            self._insert(f, row, best, position)
        self._insert_each(f, row, best, whole, self.rows.size)

    def _bound(self, f: KernelFunction, row: Value) -> Value | None:
        """Returns the kth of the least keys of the lanes of a vector, or None if the row is too short."""
        lanes = max(self.lanes, 1 << (2 * self.k - 1).bit_length())
        if self.k > MAX_BOUNDED_LENGTH or self.rows.size < MIN_BOUNDED_VECTORS * lanes:
            return None
        least = f.variable(self._keys(f, row, constant(I64, 0), lanes))
        with f.each(lanes, self.rows.size // lanes * lanes, lanes) as start:
            least.set(f.intrinsic("umin", least.get(), self._keys(f, row, start, lanes)))
        keys, word = least.get(), type_of(f"i{lanes}")
        memory = f.slot(keys.type, 1)
        f.store(keys, memory, 1)
        with f.loop(lanes, carried=[constant(keys.type.scalar, -1)]) as lane:
            key, bound = load_raw(f, memory, lane.index, keys.type.scalar), lane.carried[0]
            not_after = f.bitcast(f.compare("ule", keys, f.splat(key, lanes)), word)
            count = f.call(f"llvm.ctpop.{word.suffix}", word, not_after)
            is_bound = f.compare("uge", count, constant(word, self.k))
            lane.carried[0] = f.select(is_bound, f.intrinsic("umin", bound, key), bound)
        return lane.carried[0]

    def _keys(self, f: KernelFunction, row: Value, start: Value, lanes: int) -> Value:
        """Returns the keys of some elements."""
        return self.records.key.emit(f, f.load_lanes(f.element_at(row, start, self.type), self.type, lanes))

    @contextmanager
    def _candidates(
        self, f: KernelFunction, row: Value, best: Value, start: Value, bound: Value | None
    ) -> Iterator[Value]:
        """Yields the positions in a vector whose keys are less than that of the list's last record, if it has as many,
        and not above the bound.
        """
        keys = self._keys(f, row, start, self.lanes)
        last = load_raw(f, best, constant(I64, self.k - 1), self.record)
        is_better = f.compare("ult", keys, f.splat(self.records.key_of(f, last), self.lanes))
        word = type_of(f"i{self.lanes}")
        found = f.bitcast(is_better, word)
        if bound is not None:
            is_short = f.compare("eq", last, constant(self.record, -1))
            within = f.bitcast(f.compare("ule", keys, f.splat(bound, self.lanes)), word)
            found = f.binary("and", within, f.select(is_short, constant(word, -1), found))
        left = f.variable(found)
        with f.repeat(lambda: f.compare("ne", left.get(), constant(word, 0))):
            bits = left.get()
            lane = f.call(f"llvm.cttz.{word.suffix}", word, bits, constant(type_of("i1"), 1))
            yield f.index(f.add(start, f.convert("zext", lane, "i64")))
            left.set(f.binary("and", bits, f.binary("sub", bits, constant(word, 1))))

    def _insert_each(self, f: KernelFunction, row: Value, best: Value, first: int, stop: int) -> None:
        """Inserts a range of elements."""
        if first < stop:
            with f.loop(stop, first=first) as loop:
                self._insert(f, row, best, f.index(loop.index))

    def _insert(self, f: KernelFunction, row: Value, best: Value, position: Value) -> None:
        element = f.load_lanes(f.element_at(row, position, self.type), self.type)
        new = self.records.record(f, element, position)
        last = constant(I64, self.k - 1)
        with f.when(f.compare("ult", new, load_raw(f, best, last, self.record))):
            self.records.insert(f, [new], [best], constant(I64, 0), last)
