"""Records that a sort moves: the elements of all operands, or one integer of key and position for each row element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from hloom.backends.cpu.elements.types import Element, load_element, memory_element, resized
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation
from hloom.backends.cpu.kernels.sort.keys import SortKey
from hloom.lir import IndexValue, Type, Value, constant, type_of
from hloom.system.records import record
from hloom.types import PrimitiveType


@record(slots=True)
class Rows:
    """The rows of an array along a dimension; adjacent elements of a row are `stride` elements apart."""

    count: int
    size: int
    stride: int

    def start(self, f: KernelFunction, row: IndexValue) -> IndexValue:
        """Returns the offset of the first element of a row."""
        outer = f.multiply(f.divide(row, self.stride), self.size * self.stride)
        return f.add(outer, f.remainder(row, self.stride))


def raw_type(type: PrimitiveType) -> Type:
    """Returns the integer type that holds an element while it is moved."""
    return type_of(f"i{8 * type.byte_width}")


def load_raw(f: KernelFunction, base: Value, index: IndexValue, type: Type) -> Value:
    """Loads an element as an integer of a type."""
    return f.load(f.at(base, index, type.element), type, min(8, type.bits // 8))


def store_raw(f: KernelFunction, value: Value, base: Value, index: IndexValue) -> None:
    """Stores an integer that holds an element."""
    f.store(value, f.at(base, index, value.type.element), min(8, value.type.bits // 8))


def decoded(f: KernelFunction, raw: Value, type: PrimitiveType) -> Element:
    """Returns the elements that integers hold."""
    part = type_of(memory_element(type), raw.type.width)
    if type.is_complex:
        high = f.binary("lshr", raw, constant(raw.type, part.bits))
        real, imaginary = (f.convert("trunc", half, f"i{part.bits}") for half in (raw, high))
        return f.bitcast(real, part), f.bitcast(imaginary, part)
    return load_element(f, f.bitcast(raw, part), type)


class Records(ABC):
    """Records in `columns` of integers. `prepare` fills them from the operands of a row, `finish` writes the results.

    Both get the addresses of the first elements of a row, and handle one position.
    """

    columns: list[Type]
    key: SortKey | None
    are_distinct = False
    """Whether no two records are equal; they are then compared as unsigned integers."""

    def load(self, f: KernelFunction, columns: Sequence[Value], position: Value) -> list[Value]:
        """Loads a record."""
        return [load_raw(f, column, position, type) for column, type in zip(columns, self.columns, strict=True)]

    def store(self, f: KernelFunction, record: Sequence[Value], columns: Sequence[Value], position: Value) -> None:
        """Stores a record."""
        for value, column in zip(record, columns, strict=True):
            store_raw(f, value, column, position)

    def insert(
        self, f: KernelFunction, record: Sequence[Value], columns: Sequence[Value], first: Value, end: Value
    ) -> None:
        """Inserts a record into those in order from `first` on; greater ones move up, the last one to `end`."""
        hole = f.variable(end)
        before: list[Value] = []

        def belongs_further_down() -> Value:
            at = hole.get()
            inside = f.compare("ugt", at, first)
            previous = f.select(inside, f.index(f.subtract(at, 1)), first)
            before[:] = self.load(f, columns, previous)
            return f.binary("and", inside, self.less(f, record, before))

        with f.repeat(belongs_further_down):
            at = hole.get()
            self.store(f, before, columns, at)
            hole.set(f.index(f.subtract(at, 1)))
        self.store(f, record, columns, hole.get())

    @abstractmethod
    def less(self, f: KernelFunction, a: Sequence[Value], b: Sequence[Value]) -> Value:
        """Whether record `a` is less than record `b`."""

    @abstractmethod
    def key_of(self, f: KernelFunction, record: Value) -> Value:
        """Returns the key of a record."""

    @abstractmethod
    def prepare(self, f: KernelFunction, operands: list[Value], columns: list[Value], position: Value) -> None:
        """Stores the record of a position."""

    @abstractmethod
    def finish(self, f: KernelFunction, columns: list[Value], operands: list[Value], results: list[Value],
               position: Value) -> None:  # fmt: skip
        """Stores the results of a position."""


class ElementRecords(Records):
    """Records of the elements of all operands, moved together."""

    def __init__(self, types: list[PrimitiveType], comparator: ScalarComputation, key: SortKey | None, rows: Rows):
        self.types, self.comparator, self.key, self.rows = types, comparator, key, rows
        self.columns = [raw_type(type) for type in types]

    def less(self, f: KernelFunction, a: Sequence[Value], b: Sequence[Value]) -> Value:
        if self.key is not None:
            keys = [self.key.emit(f, decoded(f, r[self.key.operand], self.types[self.key.operand])) for r in (a, b)]
            return f.compare("ult", keys[0], keys[1])
        arguments = [decoded(f, raw, t) for t, x, y in zip(self.types, a, b, strict=True) for raw in (x, y)]
        (result,) = self.comparator.emit(f, arguments)
        assert isinstance(result, Value)
        return result

    def key_of(self, f: KernelFunction, record: Value) -> Value:
        assert self.key is not None
        return self.key.emit(f, decoded(f, record, self.types[0]))

    def prepare(self, f: KernelFunction, operands: list[Value], columns: list[Value], position: Value) -> None:
        for operand, column, type in zip(operands, columns, self.columns, strict=True):
            raw = load_raw(f, operand, f.multiply(position, self.rows.stride), type)
            store_raw(f, raw, column, position)

    def finish(self, f: KernelFunction, columns: list[Value], operands: list[Value], results: list[Value],
               position: Value) -> None:  # fmt: skip
        for column, result, type in zip(columns, results, self.columns, strict=True):
            store_raw(f, load_raw(f, column, position, type), result, f.multiply(position, self.rows.stride))


class KeyedPositions(Records):
    """Records of key and position in one integer, the key in the upper half: all are distinct, so any sort of them is
    stable.
    """

    key: SortKey
    are_distinct = True

    def __init__(self, types: list[PrimitiveType], key: SortKey, rows: Rows, writes_positions: bool = False) -> None:
        self.types, self.key, self.rows, self.writes_positions = types, key, rows, writes_positions
        self.half = max(32, key.bits)
        self.columns = [type_of(f"i{2 * self.half}")]

    def less(self, f: KernelFunction, a: Sequence[Value], b: Sequence[Value]) -> Value:
        return f.compare("ult", a[0], b[0])

    def key_of(self, f: KernelFunction, record: Value) -> Value:
        high = f.binary("lshr", record, constant(record.type, self.half))
        return f.convert("trunc", high, f"i{self.key.bits}")

    def record(self, f: KernelFunction, element: Element, position: Value) -> Value:
        """Returns the record of an element at a position."""
        key, (record,) = self.key.emit(f, element), self.columns
        high = f.binary("shl", f.convert("zext", key, record.element), constant(record, self.half))
        return f.binary("or", high, resized(f, position, record.element))

    def position_of(self, f: KernelFunction, record: Value) -> Value:
        """Returns the position in a record, as i64."""
        return resized(f, f.convert("trunc", record, f"i{self.half}"), "i64")

    def prepare(self, f: KernelFunction, operands: list[Value], columns: list[Value], position: Value) -> None:
        type = self.types[self.key.operand]
        address = f.element_at(operands[self.key.operand], f.multiply(position, self.rows.stride), type)
        store_raw(f, self.record(f, f.load_lanes(address, type), position), columns[0], position)

    def finish(self, f: KernelFunction, columns: list[Value], operands: list[Value], results: list[Value],
               position: Value) -> None:  # fmt: skip
        source = self.position_of(f, load_raw(f, columns[0], position, self.columns[0]))
        target = f.multiply(position, self.rows.stride)
        for operand, result, type in zip(operands, results, self.types, strict=False):
            raw = load_raw(f, operand, f.multiply(source, self.rows.stride), raw_type(type))
            store_raw(f, raw, result, target)
        if self.writes_positions:
            store_raw(f, f.convert("trunc", source, "i32"), results[-1], target)
