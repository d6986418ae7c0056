"""The builder with index arithmetic and tasks.

A task is a function `void (ptr context, i64 chunk)` that threads run once for each chunk. It captures values, pointers
and i64s, by their words in the context, memory of the function that runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.lir.function import Function
from hloom.lir.instructions import AtomicUpdate, CompareExchange
from hloom.lir.masked_builder import Builder
from hloom.lir.types import I1, I64, VOID, Type, struct_of
from hloom.lir.values import IndexValue, Value, index_value


class FunctionBuilder(Builder):
    """Builder of functions with loops over arrays; index arithmetic on Python integers is evaluated at once."""

    # Tasks

    def pack(self, *words: Value, context: Value | None = None) -> Value:
        """Stores words (pointers and i64) consecutively in a context, by default a new one on the stack."""
        context = context if context is not None else self.slot(I64, max(1, len(words)))
        for position, word in enumerate(words):
            self.store(word, self.at(context, position, "i64"), 8)
        return context

    def unpack(self, context: Value, *types: Type) -> list[Value]:
        """Loads the words that `pack` stored, as values of the given types."""
        return [self.load(self.at(context, k, "i64"), type, 8) for k, type in enumerate(types)]

    def run_chunks(
        self, task: str | Function, context: Value, chunks: IndexValue, on: tuple[Value, Value] | None
    ) -> None:
        """Calls a task, of a name or shared, for each chunk: on the threads of `on`, a pool and its `parallel_for`, or
        serially if it is None or there is one.
        """
        symbol = self.task_symbol(task) if isinstance(task, str) else self.address_of(task)
        if on is not None and chunks != 1:
            pool, parallel_for = on
            self.call_pointer(parallel_for, VOID, pool, symbol, context, index_value(chunks))
        elif isinstance(chunks, int):
            with self.loop(chunks) as chunk:
                self.call_pointer(symbol, VOID, context, index_value(chunk.index))
        else:
            with self.each(0, chunks) as index:
                self.call_pointer(symbol, VOID, context, index)

    def atomic_update(self, opcode: str, pointer: Value, value: Value, order: str = "monotonic") -> Value:
        """Changes a value in memory by `add`, `sub` or `xchg`; returns the old one."""
        return self.append(AtomicUpdate(self.name(), opcode, pointer, value, order))

    def compare_exchange(self, pointer: Value, expected: Value, value: Value, orders: str) -> Value:
        """Stores a value if memory has the expected one; returns the old one."""
        type = struct_of(value.type, I1)
        return self.extract_field(self.append(CompareExchange(self.name(), type, pointer, expected, value, orders)), 0)

    # Indices

    def at(self, base: Value, offset: IndexValue, element: str) -> Value:
        """Returns the address of the element at an offset, in elements."""
        return base if offset == 0 else self.element_pointer(base, index_value(offset), element)

    def add(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Adds indices without overflow."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0 or a == 0:
            return a if b == 0 else b
        return self.binary("add", self.index(a), self.index(b), "nuw nsw")

    def subtract(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Subtracts indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return self.binary("sub", self.index(a), self.index(b), "nsw")

    def left(self, count: IndexValue, start: IndexValue) -> IndexValue:
        """Returns max(count - start, 0), how many of `count` items are left from `start` on."""
        if isinstance(count, int) and isinstance(start, int):
            return max(count - start, 0)
        return self.intrinsic("usub.sat", self.index(count), self.index(start)) if start != 0 else count

    def multiply(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Multiplies indices without overflow."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.binary("mul", self.index(a), self.index(b), "nuw nsw")

    def divide(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Divides an index, rounding down."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return a if b == 1 else self.binary("udiv", self.index(a), self.index(b))

    def ceil_divide(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Divides an index, rounding up."""
        return self.divide(self.add(a, self.subtract(b, 1)), b)

    def remainder(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Returns an index modulo another one."""
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        return 0 if b == 1 else self.binary("urem", self.index(a), self.index(b))

    def digits(self, number: IndexValue, bases: Sequence[IndexValue]) -> list[IndexValue]:
        """Returns the digits of a number, one for each base, after a first digit without a limit."""
        digits: list[IndexValue] = []
        for base in reversed(bases):
            digits.insert(0, self.remainder(number, base))
            number = self.divide(number, base)
        return [number, *digits]

    def minimum(self, a: IndexValue, b: IndexValue) -> IndexValue:
        """Returns the smaller index."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("umin", self.index(a), self.index(b))

    def share(
        self, total: IndexValue, unit: int, shares: IndexValue, share: IndexValue
    ) -> tuple[IndexValue, IndexValue]:
        """Returns start and length of one of `shares` even shares of `total`, in multiples of `unit` except
        the last."""
        if shares == 1:
            return 0, total
        units = self.ceil_divide(total, unit)
        first = self.multiply(self.divide(self.multiply(units, share), shares), unit)
        end = self.multiply(self.divide(self.multiply(units, self.add(share, 1)), shares), unit)
        return first, self.subtract(self.minimum(end, total), first)
