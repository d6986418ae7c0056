"""Cholesky factorisations of small matrices, one in each lane."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hloom.backends.cpu.elements.functions.lanes import Lanes, muladd, sqrt, where
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.small.factorisations import (
    MAX_UNROLLED,
    MatrixLanes,
    record_failure,
    steps,
)
from hloom.backends.cpu.kernels.linear_algebra.small.scalars import (
    conjugate,
    from_real,
    less_product,
    product,
    real_part,
)
from hloom.lir import IndexValue
from hloom.runtime.custom_calls.fortran import RoutineCall

BLOCK = 4
"""Rows and columns of squares that are kept in registers."""
MAX_COPIED = 16
"""Iterations of the longest loop over the rows or columns of a result that is unrolled."""


def potrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Cholesky factorisation. LAPACK's upper triangle is the lower one of a row-major matrix."""
    (matrix, info), (n, _) = arrays, call.operands[0].sizes
    _factorise(f, matrix if call.arguments[0] == "U" else matrix.transposed, info, n)
    return matrix


def _factorise(f: KernelFunction, a: MatrixLanes, info: MatrixLanes, n: int) -> None:
    """Replaces the lower triangle by the factor, column by column; large ones by blocks, in the same order."""
    info[0] = info.number(0)
    if n > MAX_UNROLLED and n % BLOCK == 0 and a.parts == 1:
        for block in steps(f, 0, n // BLOCK):
            _factorise_block(f, a, info, f.multiply(block, BLOCK), n)
        return
    for j in steps(f, 0, n):
        diagonal = real_part(a[j, j])
        record_failure(info, diagonal.compare("ule", 0.0), j)
        root = sqrt(diagonal)
        a[j, j], scale = from_real(root, a.number(0)), 1.0 / root
        below = f.add(j, 1)
        for i in steps(f, below, n):
            a[i, j] = product(a[i, j], scale)
        for i in steps(f, below, n):
            factor = a[i, j]
            for k in steps(f, below, f.add(i, 1)):
                a[i, k] = less_product(a[i, k], factor, conjugate(a[k, j]))


def _factorise_block(f: KernelFunction, a: MatrixLanes, info: MatrixLanes, first: IndexValue, n: int) -> None:
    """Computes some columns of a factor, and subtracts their product from the triangle right of them.

    Squares of `BLOCK` rows are in registers, and loops run over squares.
    """
    square, scales, after = _Square(a, first, first, is_lower=True), list[Lanes](), f.add(first, BLOCK)
    for j in range(BLOCK):
        record_failure(info, square[j, j].compare("ule", 0.0), f.add(first, j))
        square[j, j] = sqrt(square[j, j])
        scales.append(1.0 / square[j, j])
        for i in range(j + 1, BLOCK):
            square[i, j] = square[i, j] * scales[j]
            for k in range(j + 1, i + 1):
                square[i, k] = muladd(-square[i, j], square[k, j], square[i, k])
    square.store()
    with f.each(after, n, BLOCK) as row:
        below = _Square(a, row, first)
        for i, j in itertools.product(range(BLOCK), repeat=2):
            for k in range(j):
                below[i, j] = muladd(-below[i, k], square[j, k], below[i, j])
            below[i, j] = below[i, j] * scales[j]
        below.store()
    with f.each(after, n, BLOCK) as row:
        with f.each(after, row, BLOCK) as column:
            _subtract_product(a, _Square(a, row, column), first)
        _subtract_product(a, _Square(a, row, row, is_lower=True), first)


class _Square:
    """A square of `BLOCK` rows in registers, or its lower triangle."""

    def __init__(self, a: MatrixLanes, row: IndexValue, column: IndexValue, is_lower: bool = False) -> None:
        self.a, self.row, self.column = a, row, column
        inside = [(i, j) for i in range(BLOCK) for j in range(i + 1 if is_lower else BLOCK)]
        self.values = {at: real_part(a[self._index(*at)]) for at in inside}

    def _index(self, i: int, j: int) -> tuple[IndexValue, IndexValue]:
        return self.a.f.add(self.row, i), self.a.f.add(self.column, j)

    def __getitem__(self, at: tuple[int, int]) -> Lanes:
        return self.values[at]

    def __setitem__(self, at: tuple[int, int], value: Lanes) -> None:
        self.values[at] = value

    def store(self) -> None:
        """Stores the elements where they were loaded from."""
        for at, value in self.values.items():
            self.a[self._index(*at)] = value


def _subtract_product(a: MatrixLanes, square: _Square, first: IndexValue) -> None:
    """Subtracts the product of the rows of a square and those of its columns, in some columns of the factor."""
    f = a.f
    for k in range(BLOCK):
        rows, columns = (
            [real_part(a[f.add(start, i), f.add(first, k)]) for i in range(BLOCK)]
            for start in (square.row, square.column)
        )
        for i, j in square.values:
            square[i, j] = muladd(-rows[i], columns[j], square[i, j])
    square.store()


def cholesky(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Cholesky factors with zeros in the other triangle, and NaN in place of those that do not exist."""
    (a,), (n, _) = arrays, call.operands[0].sizes
    is_symmetric, is_whole = map(bool, call.arguments)
    for i in steps(f, 0, n, MAX_COPIED) if is_symmetric else ():
        for j in steps(f, i, n, MAX_COPIED):
            a[j, i] = (real_part(a[j, i]) + real_part(a[i, j])) * 0.5
    integers = a.type.of("i32")
    info = MatrixLanes.at(f, f.slot(integers, 1), integers, (1,))
    info = info.copied(1) if n <= MAX_UNROLLED else info
    _factorise(f, a, info, n)
    fails, zero = ~real_part(info[0]).equals(0), real_part(a.number(0))
    for i in steps(f, 0, n, MAX_COPIED):
        for j in steps(f, f.add(i, 1), n, MAX_COPIED):
            a[i, j] = zero
    with f.when(None if n <= MAX_UNROLLED else f.any_lane(fails.value)):
        for i in steps(f, 0, n, MAX_COPIED):
            for j in steps(f, 0, n if is_whole else f.add(i, 1), MAX_COPIED):
                a[i, j] = where(fails, math.nan, real_part(a[i, j]))
    return a
