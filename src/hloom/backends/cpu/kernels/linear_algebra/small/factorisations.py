"""Factorisations and triangular solves of matrices, whose elements are vectors: one matrix in each lane."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hloom.backends.cpu.elements.functions.lanes import Lanes, at_least, muladd, sqrt, where, with_sign_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.linear_algebra.small.scalars import (
    Scalar,
    Sum,
    chosen,
    conjugate,
    difference,
    from_real,
    less_product,
    magnitude,
    negated,
    parts_of,
    plus_product,
    product,
    quotient,
    real_part,
    scalar,
)
from hloom.lir import IndexValue, Type, Value, constant
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.system.records import record
from hloom.target import CACHE_LINE

MAX_UNROLLED = 6
"""Iterations of the longest loop that is unrolled."""
SWAPPED = 4
"""Columns in which rows are swapped together."""
SIDES = 8
"""Right-hand sides whose unknowns are computed together."""
REFLECTED = 4
"""Columns that are reflected together."""


@record
class MatrixLanes:
    """An array of vectors, each lane of which holds the elements of one matrix; complex ones have two `parts`."""

    f: KernelFunction
    memory: Value
    type: Type
    strides: tuple[int, ...] = (1,)
    parts: int = 1
    is_conjugate: bool = False

    @classmethod
    def at(
        cls, f: KernelFunction, memory: Value, type: Type, sizes: tuple[int, ...], parts: int = 1
    ) -> MatrixLanes:  # fmt: skip
        """Returns the matrices of these sizes in memory, in row-major order."""
        return cls(f, memory, type, tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes))) or (1,), parts)

    @property
    def transposed(self) -> MatrixLanes:
        """A transposed view of the matrices."""
        return replace(self, strides=self.strides[::-1])

    def copied(self, elements: int) -> MatrixLanes:
        """Returns a copy, which LLVM may keep in registers, of matrices that have `elements` elements."""
        copy = replace(self, memory=self.f.stack_array(self.type, self.parts * elements))
        source, target = (replace(each, strides=(1,)) for each in (self, copy))
        for k in range(elements):
            target[k] = source[k]
        return copy

    @property
    def conjugated(self) -> MatrixLanes:
        """The matrices with the conjugates of their elements, to be read."""
        return replace(self, is_conjugate=not self.is_conjugate)

    def number(self, value: float) -> Scalar:
        """Returns a constant as an element."""
        return scalar([Lanes(self.f, constant(self.type, x)) for x in (value, 0)[: self.parts]])

    @property
    def _align(self) -> int:
        return min(CACHE_LINE // 2, self.type.bits // 8)

    def __getitem__(self, indices: IndexValue | tuple[IndexValue, ...]) -> Scalar:
        loaded = [self.f.load(address, self.type, self._align) for address in self._addresses(indices)]
        element = scalar([Lanes(self.f, value) for value in loaded])
        return conjugate(element) if self.is_conjugate else element

    def __setitem__(self, indices: IndexValue | tuple[IndexValue, ...], value: Scalar) -> None:
        for part, address in zip(parts_of(value), self._addresses(indices), strict=True):
            self.f.store(part.value, address, self._align)

    def _addresses(self, indices: IndexValue | tuple[IndexValue, ...]) -> list[Value]:
        f, components = self.f, indices if isinstance(indices, tuple) else (indices,)
        positions = [f.multiply(index, stride) for index, stride in zip(components, self.strides, strict=True)]
        first = f.multiply(functools.reduce(f.add, positions), self.parts)
        return [
            f.at(self.memory, f.multiply(f.add(first, part), self.type.width), self.type.element)
            for part in range(self.parts)
        ]


def steps(
    f: KernelFunction, first: IndexValue, stop: IndexValue, max_unrolled: int = MAX_UNROLLED
) -> Iterator[IndexValue]:
    """Yields the index of a loop, or all indices of a short one: elements of small matrices are in registers then."""
    if isinstance(first, int) and isinstance(stop, int) and stop - first <= max_unrolled:
        yield from range(first, stop)
        return
    with f.each(first, stop) as index:
        yield index


def _groups_of_steps(f: KernelFunction, first: IndexValue, stop: int, size: int) -> Iterator[list[IndexValue]]:
    """Yields the indices of a loop in groups of a size, and one by one those left; all of a short loop together."""
    if isinstance(first, int) and stop - first <= MAX_UNROLLED:
        yield [*range(first, stop)]
        return
    whole = f.subtract(stop, f.remainder(f.subtract(stop, first), size))
    with f.each(first, whole, size) as index:
        yield [f.add(index, k) for k in range(size)]
    with f.each(whole, stop) as index:
        yield [index]


def record_failure(info: MatrixLanes, failed: Lanes, step: IndexValue) -> None:
    """Records the 1-based index of the first step that failed, in each lane of `info`."""
    before = real_part(info[0])
    info[0] = where(failed & before.equals(0), _one_based(info, step), before)


def _one_based(array: MatrixLanes, index: IndexValue) -> Lanes:
    """An index plus 1, in each lane of an array of integers."""
    f, type = array.f, array.type
    return Lanes(f, f.splat(f.convert("trunc", f.index(f.add(index, 1)), type.element), type.width))


def _getrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """LU factorisation with partial pivoting: rows are swapped so that each pivot is the largest of its column.

    Rows that are in memory are passed for swaps only if any lane needs one.
    """
    (a, pivots, info), (m, n) = arrays, call.operands[0].sizes
    info[0] = info.number(0)
    for step in steps(f, 0, min(m, n)):
        pivots[step] = pivot_row = _find_pivot(a, m, step, pivots)
        is_elsewhere = ~pivot_row.equals(_one_based(pivots, step))
        with f.when(None if max(m, n) <= MAX_UNROLLED else f.any_lane(is_elsewhere.value)):
            _swap_rows(a, (m, n), step, pivot_row, pivots)
        pivot = a[step, step]
        is_zero = magnitude(pivot).equals(0.0)
        record_failure(info, is_zero, step)
        divisor = chosen(is_zero, a.number(1), pivot)
        below = f.add(step, 1)
        for i in steps(f, below, m):
            a[i, step] = factor = quotient(a[i, step], divisor)
            for j in steps(f, below, n):
                a[i, j] = less_product(a[i, j], factor, a[step, j])
    return a


def _find_pivot(a: MatrixLanes, m: int, step: IndexValue, pivots: MatrixLanes) -> Lanes:
    """Returns the 1-based row of the largest magnitude in a column from the diagonal on; the diagonal's row if all are
    NaN.
    """
    f = a.f
    row, largest = Sum(f, _one_based(pivots, step)), Sum(f, Lanes(f, constant(a.type, -1)))
    for i in steps(f, step, m):
        size, before = magnitude(a[i, step]), real_part(largest.get())
        is_larger = size > before
        largest.set(where(is_larger, size, before))
        row.set(where(is_larger, _one_based(pivots, i), real_part(row.get())))
    return real_part(row.get())


def _swap_rows(a: MatrixLanes, sizes: tuple[int, int], row: IndexValue, other: Lanes, pivots: MatrixLanes) -> None:
    """Swaps a row with a later one, whose 1-based index each lane has."""
    f, (m, n) = a.f, sizes
    width = SWAPPED if n % SWAPPED == 0 else 1
    for group in steps(f, 0, n // width):
        columns = [f.add(f.multiply(group, width), k) for k in range(width)]
        uppers = [a[row, j] for j in columns]
        found = [Sum(f, upper) for upper in uppers]
        for i in steps(f, f.add(row, 1), m):
            is_target = other.equals(_one_based(pivots, i))
            for j, upper, lower_one in zip(columns, uppers, found, strict=True):
                lower = a[i, j]
                lower_one.set(chosen(is_target, lower, lower_one.get()))
                a[i, j] = chosen(is_target, upper, lower)
        for j, lower_one in zip(columns, found, strict=True):
            a[row, j] = lower_one.get()


def _laswp(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Swaps of elements of a vector, one after another, with those that the pivots say; these are clamped."""
    (a, pivots), (m,), (count,) = arrays, call.operands[0].sizes, call.operands[1].sizes
    for k in steps(f, 0, count):
        pivot = f.intrinsic("smax", real_part(pivots[k]).value, constant(pivots.type, 1))
        row = Lanes(f, f.intrinsic("smin", pivot, constant(pivots.type, m)))
        upper = a[k]
        found = Sum(f, upper)
        for i in steps(f, 0, m):
            is_target, lower = row.equals(_one_based(pivots, i)), a[i]
            found.set(chosen(is_target, lower, found.get()))
            a[i] = chosen(is_target, upper, lower)
        a[k] = found.get()
    return a


def _trsm(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Triangular solve: the products of a row with the unknowns before it are subtracted from its right-hand sides.

    LAPACK sees the transposes of row-major matrices: its right side is the left side here, its upper triangle the
    lower.
    """
    n = call.operands[0].sizes[0]
    columns = call.operands[1].elements // n
    side, triangle, transposed, diagonal = call.arguments[:4]
    is_left, is_lower = side == "R", (triangle == "U") == (transposed == "N")
    # x a = b is a^T x^T = b^T.
    forward = is_lower if is_left else not is_lower
    given = arrays[0].conjugated if transposed == "C" else arrays[0]
    a = given if (transposed == "N") == is_left else given.transposed
    b = arrays[1] if is_left else arrays[1].transposed
    whole = columns - columns % SIDES
    for block in steps(f, 0, whole // SIDES, 1):
        _substitute(a, b, [f.add(f.multiply(block, SIDES), c) for c in range(SIDES)], n, forward, diagonal == "U")
    if columns > whole:
        _substitute(a, b, [*range(whole, columns)], n, forward, diagonal == "U")
    return b


def _substitute(
    a: MatrixLanes, b: MatrixLanes, sides: Sequence[IndexValue], n: int, forward: bool, is_unit: bool
) -> None:
    """Replaces some right-hand sides by the unknowns, row by row: sums of products are in registers."""
    f = a.f
    for step in steps(f, 0, n):
        i = step if forward else f.subtract(n - 1, step)
        left = [Sum(f, b[i, c]) for c in sides]
        for known in steps(f, 0, step):
            k = known if forward else f.subtract(n - 1, known)
            factor = a[i, k]
            for c, each in zip(sides, left, strict=True):
                each.set(less_product(each.get(), factor, b[k, c]))
        divisor = a[i, i]
        for c, each in zip(sides, left, strict=True):
            b[i, c] = each.get() if is_unit else quotient(each.get(), divisor)


def _geqrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """QR factorisation by Householder reflections I - tau v v^H, each of which zeroes a column below the diagonal,
    where v is stored, and makes the diagonal real. Their adjoints are applied.
    """
    (a, taus), (m, n) = arrays, call.operands[0].sizes
    for k in steps(f, 0, min(m, n)):
        below = f.add(k, 1)
        alpha, norm = a[k, k], _norm(a, (below, m), k)
        real, *imaginary = parts_of(alpha)
        size = _hypotenuse(abs(real), abs(imaginary[0])) if imaginary else abs(real)
        beta = -with_sign_of(_hypotenuse(size, norm), real)
        is_identity = norm.equals(0.0)
        for part in imaginary:
            is_identity = is_identity & part.equals(0.0)
        wide_beta = from_real(beta, alpha)
        divisor = chosen(is_identity, a.number(1), difference(alpha, wide_beta))
        for i in steps(f, below, m):
            a[i, k] = quotient(a[i, k], divisor)
        taus[k] = tau = chosen(is_identity, a.number(0), quotient(difference(wide_beta, alpha), beta))
        a[k, k] = chosen(is_identity, alpha, wide_beta)
        _apply_reflection(a, (m, n), k, conjugate(tau))
    return a


def _orgqr(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """The product of Householder reflections, applied to the columns of the identity matrix from last to first."""
    (a, taus), (m, n), (count,) = arrays, call.operands[0].sizes, call.operands[1].sizes
    zero, one = a.number(0), a.number(1)
    for j in steps(f, count, n):
        for i in steps(f, 0, m):
            a[i, j] = zero
        a[j, j] = one
    for step in steps(f, 0, count):
        k = f.subtract(count - 1, step)
        tau = taus[k]
        _apply_reflection(a, (m, n), k, tau)
        for i in steps(f, 0, k):
            a[i, k] = zero
        a[k, k] = difference(one, tau)
        for i in steps(f, f.add(k, 1), m):
            a[i, k] = negated(product(a[i, k], tau))
    return a


def _norm(a: MatrixLanes, rows: tuple[IndexValue, int], column: IndexValue) -> Lanes:
    """Euclidean norm of part of a column, scaled so that the squares neither overflow nor underflow."""
    f, zero = a.f, Lanes(a.f, constant(a.type, 0))
    largest, squares = Sum(f, zero), Sum(f, zero)
    for i in steps(f, *rows):
        for part in parts_of(a[i, column]):
            largest.set(at_least(real_part(largest.get()), abs(part)))
    found = real_part(largest.get())
    scale = where(found.equals(0.0), 1.0, found)
    for i in steps(f, *rows):
        for part in parts_of(a[i, column]):
            scaled = part / scale
            squares.set(muladd(scaled, scaled, real_part(squares.get())))
    return scale * sqrt(real_part(squares.get()))


def _hypotenuse(a: Lanes, b: Lanes) -> Lanes:
    """sqrt(a^2 + b^2) of non-negative values, without overflow or underflow of the squares."""
    is_larger = a > b
    larger, smaller = where(is_larger, a, b), where(is_larger, b, a)
    ratio = smaller / where(larger.equals(0.0), 1.0, larger)
    return larger * sqrt(muladd(ratio, ratio, 1.0))


def _apply_reflection(a: MatrixLanes, sizes: tuple[int, int], k: IndexValue, tau: Scalar) -> None:
    """Applies I - tau v v^H to the columns after k, where v is 1 followed by column k below the diagonal."""
    f, (m, n) = a.f, sizes
    below = f.add(k, 1)
    for columns in _groups_of_steps(f, below, n, REFLECTED):
        totals = [Sum(f, a[k, j]) for j in columns]
        for i in steps(f, below, m):
            factor = conjugate(a[i, k])
            for j, total in zip(columns, totals, strict=True):
                total.set(plus_product(total.get(), factor, a[i, j]))
        projections = [product(tau, total.get()) for total in totals]
        for j, projection in zip(columns, projections, strict=True):
            a[k, j] = difference(a[k, j], projection)
        for i in steps(f, below, m):
            factor = a[i, k]
            for j, projection in zip(columns, projections, strict=True):
                a[i, j] = less_product(a[i, j], factor, projection)


EMITTERS = {
    "getrf": _getrf, "laswp": _laswp, "trsm": _trsm, "geqrf": _geqrf, "orgqr": _orgqr, "ungqr": _orgqr,
}  # fmt: skip
"""Writers of the code of routines, which return the array that becomes the first result."""
