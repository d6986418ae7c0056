"""Access to a matrix that is read once, as vectors along a row or along several adjacent columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed_operand import OperandEmitter
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.lir import IndexValue, Type, Value

Row = Callable[[IndexValue, Value | None], list[Value]]
"""Loads adjacent vectors of a row, from a column on; lanes outside the mask, which is one of all, are zero."""
Columns = Callable[[IndexValue, Value | None], list[list[Value]]]
"""Loads adjacent vectors of each of several columns, from a row on."""


class StreamedMatrix(ABC):
    """A matrix of a batch."""

    @property
    def parts(self) -> int:
        """Number of vectors that are loaded together."""
        return 1

    @abstractmethod
    def row(self, row: IndexValue) -> Row:
        """Returns access to a row whose elements are contiguous."""

    @abstractmethod
    def columns(self, first: IndexValue, count: int) -> Columns:
        """Returns access to adjacent columns, each of contiguous elements."""


@dataclass(frozen=True)
class StoredMatrix(StreamedMatrix):
    """A matrix in memory."""

    f: KernelFunction
    type: Type
    matrix: Matrix
    base: Value

    def row(self, row: IndexValue) -> Row:
        address = self.f.at(self.base, self.f.multiply(row, self.matrix.row), self.matrix.element)
        return lambda at, mask: [self._vector(address, at, mask)]

    def columns(self, first: IndexValue, count: int) -> Columns:
        f, matrix = self.f, self.matrix
        indices = [f.add(first, i) for i in range(count)]
        lines = [f.at(self.base, f.multiply(column, matrix.column), matrix.element) for column in indices]
        return lambda at, mask: [[self._vector(line, at, mask)] for line in lines]

    def _vector(self, line: Value, at: IndexValue, mask: Value | None) -> Value:
        return self.f.load_as(self.f.at(line, at, self.matrix.element), self.matrix.type, self.type, mask)


@dataclass(frozen=True)
class ComputedMatrix(StreamedMatrix):
    """A matrix whose rows are the free, and whose columns the contracted indices of a computed operand."""

    emitter: OperandEmitter
    batch: IndexValue

    @property
    def parts(self) -> int:
        return self.emitter.parts

    def row(self, row: IndexValue) -> Row:
        def load(at: IndexValue, mask: Value | None) -> list[Value]:
            e, axes = self.emitter, self.emitter.operand
            with e.lanes_along(axes.contracted, mask), e.at(axes.batch, self.batch), e.at(axes.free, row):
                return e.elements(axes.contracted, at, 1)[0]

        return load

    def columns(self, first: IndexValue, count: int) -> Columns:
        def load(at: IndexValue, mask: Value | None) -> list[list[Value]]:
            e, axes = self.emitter, self.emitter.operand
            with e.lanes_along(axes.free, mask), e.at(axes.batch, self.batch), e.at(axes.free, at):
                return e.elements(axes.contracted, first, count)

        return load


@dataclass(frozen=True)
class Vectors:
    """Memory of the vectors that a matrix is multiplied by, and of the result, in a task."""

    f: KernelFunction
    vectors: Matrix
    base: Value
    out: Matrix
    target: Value

    def address(self, at: IndexValue, vector: int) -> Value:
        """Returns the address of an element of a vector."""
        f = self.f
        return f.at(
            self.base, f.add(f.multiply(at, self.vectors.row), vector * self.vectors.column), self.vectors.element
        )

    def target_address(self, row: IndexValue, vector: int) -> Value:
        """Returns the address of an element of the result."""
        f = self.f
        return f.at(self.target, f.add(f.multiply(row, self.out.row), vector * self.out.column), self.out.element)
