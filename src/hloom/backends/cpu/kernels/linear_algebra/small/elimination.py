"""Linear systems a x = b of small matrices, one in each lane, by Gaussian elimination with partial pivoting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloom.backends.cpu.elements.functions.lanes import Lanes, muladd, where
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.small.factorisations import MatrixLanes, steps
from hloom.backends.cpu.kernels.linear_algebra.small.scalars import Sum, real_part
from hloom.lir import IndexValue, Type
from hloom.runtime.custom_calls.fortran import RoutineCall

COLUMNS = 8
"""Columns that are swapped and eliminated together: with both rows of the swap they fill half of 32 registers."""


def gesv(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Solves the systems; of a zero pivot come infinities or NaN, as from getrf, laswp and two calls of trsm.

    Right-hand sides are further columns of the matrix, so that rows are swapped, and multiples of them subtracted,
    in one pass; the factors below the diagonal are not kept in order, since nobody reads them.
    """
    a, b = arrays
    system = _System(a, b, call.operands[0].sizes[0], call.operands[1].sizes[1])
    for step in range(system.order):
        system.eliminate(step)
    for step in reversed(range(system.order)):
        system.substitute(step)
    return b


@dataclass(frozen=True)
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

    def eliminate(self, step: int) -> None:
        """Swaps the pivot of a column to the diagonal, and subtracts multiples of its row from those below."""
        row, pivot = self._pivot(step)
        upper = self.get(step, step)
        scales = self._scales(pivot)
        for i in steps(self.f, step + 1, self.order):
            below = where(self._is_row(row, i), upper, self.get(i, step))
            self.set(i, step, below * scales[0] * scales[1])
        self.set(step, step, pivot)
        columns = range(step + 1, self.order + self.sides)
        blocks = -(-len(columns) // COLUMNS)
        for k in range(blocks):
            self._eliminate(step, row, columns[len(columns) * k // blocks : len(columns) * (k + 1) // blocks])

    def _eliminate(self, step: int, row: Lanes, columns: range) -> None:
        f, uppers = self.f, [self.get(step, j) for j in columns]
        found = [Sum(f, upper) for upper in uppers]
        for i in steps(f, step + 1, self.order):
            is_pivot = self._is_row(row, i)
            for j, each in zip(columns, found, strict=True):
                each.set(where(is_pivot, self.get(i, j), real_part(each.get())))
        pivots = [real_part(each.get()) for each in found]
        for i in steps(f, step + 1, self.order):
            is_pivot, factor = self._is_row(row, i), -self.get(i, step)
            for j, upper, pivot in zip(columns, uppers, pivots, strict=True):
                self.set(i, j, muladd(factor, pivot, where(is_pivot, upper, self.get(i, j))))
        for j, pivot in zip(columns, pivots, strict=True):
            self.set(step, j, pivot)

    def _pivot(self, step: int) -> tuple[Lanes, Lanes]:
        """Returns the row of the first of the largest magnitudes from the diagonal on, and its element.

        It is the diagonal's if all are NaN.
        """
        f = self.f
        first = self.get(step, step)
        largest = Sum(f, where(first.compare("uno", first), -1.0, abs(first)))
        row, pivot = Sum(f, self._number(step)), Sum(f, first)
        for i in steps(f, step + 1, self.order):
            value = self.get(i, step)
            is_larger = abs(value) > real_part(largest.get())
            largest.set(where(is_larger, abs(value), real_part(largest.get())))
            pivot.set(where(is_larger, value, real_part(pivot.get())))
            row.set(where(is_larger, self._number(i), real_part(row.get())))
        return real_part(row.get()), real_part(pivot.get())

    def _scales(self, pivot: Lanes) -> tuple[Lanes, Lanes]:
        """Returns two factors whose product is the reciprocal of a pivot; 1 of zero, which has only zeros below it.

        The reciprocal of a subnormal number may overflow: it is multiplied by a power of two first, and so are the
        elements below it, which are not larger.
        """
        power = where(abs(pivot) < pivot.pick(2.0**-126, 2.0**-1022), 2.0**64, pivot.like(1.0))
        divisor = where(pivot.equals(0.0), 1.0, pivot * power)
        return power, 1.0 / divisor

    def substitute(self, step: int) -> None:
        """Computes an unknown of each right-hand side, and eliminates it from the equations above."""
        divisor = self.get(step, step)
        columns = range(self.order, self.order + self.sides)
        unknowns = [self.get(step, j) / divisor for j in columns]
        for j, unknown in zip(columns, unknowns, strict=True):
            self.set(step, j, unknown)
        for i in steps(self.f, 0, step):
            factor = -self.get(i, step)
            for j, unknown in zip(columns, unknowns, strict=True):
                self.set(i, j, muladd(factor, unknown, self.get(i, j)))

    def _is_row(self, row: Lanes, i: IndexValue) -> Lanes:
        return row.equals(self._number(i))

    def _number(self, i: IndexValue) -> Lanes:
        """The number of a row, in each lane."""
        f = self.f
        return Lanes(f, f.splat(f.convert("trunc", f.index(i), "i32"), self.rows.width))
