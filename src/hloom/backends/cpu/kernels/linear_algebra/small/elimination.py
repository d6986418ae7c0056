"""Linear systems a x = b of small matrices, one in each lane, by Gaussian elimination with partial pivoting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hloom.backends.cpu.elements.functions.lanes import Lanes, muladd, where
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.small.factorisations import MAX_UNROLLED, MatrixLanes, steps
from hloom.backends.cpu.kernels.linear_algebra.small.scalars import Sum, real_part
from hloom.lir import IndexValue, Type, Value
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.system.records import record

STEPS = 4
"""Steps after which the columns right of them are passed once for all."""
KEPT = 20
"""Elements of the pivots' rows in registers, of which there are 32."""
SWAPPED = 8
"""Columns that are swapped together: both rows fill half of the registers."""


def gesv(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Solves the systems; of a zero pivot come infinities or NaN, as from getrf, laswp and two calls of trsm.

    Right-hand sides are further columns of the matrix, so that multiples of rows are subtracted in one pass, which
    also finds the next pivot. Matrices that are in memory have steps by panels, of as many columns; columns right of a
    panel are passed once for all of its steps, which subtract from each element in the same order. Rows are passed for
    swaps only if any lane needs one: matrices with a heavy diagonal do not. The unknowns of a right-hand side are
    computed in registers.
    """
    a, b = arrays
    system = _System(a, b, call.operands[0].sizes[0], call.operands[1].sizes[1])
    pivots = system.eliminate()
    for side in steps(f, 0, system.sides, 1):
        system.substitute(side, pivots)
    return b


class _Largest:
    """The first of the largest magnitudes of a column, row after row; NaN and the first row's number if all are NaN."""

    def __init__(self, f: KernelFunction, like: Lanes, row: Lanes) -> None:
        self._size, self._value, self._row = (Sum(f, x) for x in (like.like(-1.0), like.like(math.nan), row))

    def add(self, value: Lanes, row: Lanes) -> None:
        """Considers the element of a row."""
        is_larger = abs(value) > real_part(self._size.get())
        for kept, new in ((self._size, abs(value)), (self._value, value), (self._row, row)):
            kept.set(where(is_larger, new, real_part(kept.get())))

    @property
    def value(self) -> Lanes:
        """The element."""
        return real_part(self._value.get())

    @property
    def row(self) -> Lanes:
        """The number of its row."""
        return real_part(self._row.get())


class _Pivot:
    """A pivot, the number of its row, and a reciprocal in two factors.

    The reciprocal of a subnormal number may overflow: it is multiplied by a power of two first, and so is what is
    divided by it.
    """

    def __init__(self, row: Lanes, value: Lanes) -> None:
        self.row, self.value = row, value
        self._power = where(abs(value) < value.pick(2.0**-126, 2.0**-1022), 2.0**64, value.like(1.0))
        self._reciprocal = 1.0 / (value * self._power)

    def divide(self, x: Lanes) -> Lanes:
        """x divided by the pivot."""
        return x * self._power * self._reciprocal

    def factor(self, below: Lanes) -> Lanes:
        """An element below the pivot, which is not larger, divided by it: zero by zero is zero."""
        return below * self._power * where(self.value.equals(0.0), 1.0, self._reciprocal)


@record
class _System:
    a: MatrixLanes
    b: MatrixLanes
    order: int
    sides: int

    @property
    def f(self) -> KernelFunction:
        return self.a.f

    @property
    def rows(self) -> Type:
        """The type of the numbers of rows, one in each lane."""
        return self.a.type.of("i32")

    def get(self, i: IndexValue, j: int) -> Lanes:
        """An element of the matrix or, right of it, of the right-hand sides."""
        return real_part(self.a[i, j] if j < self.order else self.b[i, j - self.order])

    def set(self, i: IndexValue, j: int, value: Lanes) -> None:
        """Changes an element."""
        if j < self.order:
            self.a[i, j] = value
        else:
            self.b[i, j - self.order] = value

    def largest_of_column(self) -> _Largest:
        """Finds the first pivot."""
        largest = _Largest(self.f, self.get(0, 0), self._number(0))
        for i in steps(self.f, 0, self.order):
            largest.add(self.get(i, 0), self._number(i))
        return largest

    def eliminate(self) -> list[_Pivot]:
        """Makes the matrix an upper triangle; returns the pivots. Below the diagonal are multiples of rows."""
        columns, pivots, largest = range(self.order + self.sides), list[_Pivot](), self.largest_of_column()
        is_whole = self.order <= MAX_UNROLLED
        for first in range(0, self.order, self.order if is_whole else STEPS):
            panel = range(first, columns.stop if is_whole else min(self.order, first + STEPS))
            for step in panel[: self.order - first]:
                pivots.append(_Pivot(largest.row, largest.value))
                with self.f.when(None if is_whole else self._is_elsewhere(pivots[-1], step)):
                    for block in _blocks(columns[step if is_whole else first :], SWAPPED):
                        self._swap(step, pivots[-1], block)
                largest = self._subtract(step, pivots[-1], panel[step + 1 - first :])
            for block in _blocks(columns[panel.stop :], KEPT // STEPS):
                self._subtract_panel(panel, block, largest if block[0] == panel.stop < self.order else None)
        return pivots

    def _swap(self, step: int, pivot: _Pivot, columns: range) -> None:
        """Swaps elements of the diagonal's row with those of the pivot's, which are in other rows in each lane."""
        f, uppers = self.f, [self.get(step, j) for j in columns]
        found = [Sum(f, upper) for upper in uppers]
        for i in steps(f, step + 1, self.order):
            is_pivot = self._is_row(pivot.row, i)
            for j, upper, each in zip(columns, uppers, found, strict=True):
                lower = self.get(i, j)
                each.set(where(is_pivot, lower, real_part(each.get())))
                self.set(i, j, where(is_pivot, upper, lower))
        for j, each in zip(columns, found, strict=True):
            self.set(step, j, real_part(each.get()))

    def _subtract(self, step: int, pivot: _Pivot, columns: range) -> _Largest:
        """Subtracts multiples of the pivot's row, which is on the diagonal, from those below, in some columns; stores
        the multiples, and returns the largest elements of the first column.
        """
        f, largest = self.f, _Largest(self.f, pivot.value, self._number(step + 1))
        for block in _blocks(columns, KEPT) or [columns]:
            uppers = [self.get(step, j) for j in block]
            for i in steps(f, step + 1, self.order):
                factor = self.get(i, step)
                if block[:1] == columns[:1]:
                    factor = -pivot.factor(factor)
                    self.set(i, step, factor)
                values = [muladd(factor, upper, self.get(i, j)) for j, upper in zip(block, uppers, strict=True)]
                for j, value in zip(block, values, strict=True):
                    self.set(i, j, value)
                if values and block[0] == columns[0]:
                    largest.add(values[0], self._number(i))
        return largest

    def _subtract_panel(self, panel: range, columns: range, largest: _Largest | None) -> None:
        """Does the steps of a panel in some columns right of it, and finds the largest elements of the first one."""
        f, uppers = self.f, [[self.get(i, j) for j in columns] for i in panel]
        for (row, step), (j, column) in itertools.product(enumerate(panel), enumerate(columns)):
            for k in range(row):
                uppers[row][j] = muladd(self.get(step, panel[k]), uppers[k][j], uppers[row][j])
            self.set(step, column, uppers[row][j])
        for i in steps(f, panel.stop, self.order):
            factors = [self.get(i, step) for step in panel]
            for j, column in enumerate(columns):
                value = self.get(i, column)
                for factor, upper in zip(factors, uppers, strict=True):
                    value = muladd(factor, upper[j], value)
                self.set(i, column, value)
                if largest and not j:
                    largest.add(value, self._number(i))

    def substitute(self, side: IndexValue, pivots: Sequence[_Pivot]) -> None:
        """Computes the unknowns of a right-hand side from the last one on."""
        left = [real_part(self.b[i, side]) for i in range(self.order)]
        for step in reversed(range(self.order)):
            left[step] = pivots[step].divide(left[step])
            for i in range(step):
                left[i] = muladd(-self.get(i, step), left[step], left[i])
        for i, unknown in enumerate(left):
            self.b[i, side] = unknown

    def _is_elsewhere(self, pivot: _Pivot, step: int) -> Value:
        """Whether the pivot of any lane is below the diagonal."""
        return self.f.any_lane((~self._is_row(pivot.row, step)).value)

    def _is_row(self, row: Lanes, i: IndexValue) -> Lanes:
        return row.equals(self._number(i))

    def _number(self, i: IndexValue) -> Lanes:
        """The number of a row, in each lane."""
        f = self.f
        return Lanes(f, f.splat(f.convert("trunc", f.index(i), "i32"), self.rows.width))


def _blocks(columns: range, most: int) -> list[range]:
    """Divides columns into as few blocks as possible, of about the same size."""
    count = -(-len(columns) // most)
    return [columns[len(columns) * k // count : len(columns) * (k + 1) // count] for k in range(count)]
