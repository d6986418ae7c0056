"""Factorisations and triangular solves of matrices, whose elements are vectors: one matrix in each lane."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.lir import IndexValue, Type, Value, constant
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.target import CACHE_LINE


@dataclass(frozen=True)
class MatrixLanes:
    """An array of vectors, each lane of which holds the elements of one matrix."""

    f: KernelFunction
    memory: Value
    type: Type
    strides: tuple[int, ...] = (1,)

    @classmethod
    def of(cls, f: KernelFunction, type: Type, sizes: tuple[int, ...] = (1,)) -> MatrixLanes:
        """Allocates matrices of these sizes on the stack, in row-major order."""
        return cls.at(f, f.slot(type, math.prod(sizes)), type, sizes)

    @classmethod
    def at(cls, f: KernelFunction, memory: Value, type: Type, sizes: tuple[int, ...]) -> MatrixLanes:
        """Returns the matrices of these sizes in memory, in row-major order."""
        return cls(f, memory, type, tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes))) or (1,))

    @property
    def transposed(self) -> MatrixLanes:
        """A transposed view of the matrices."""
        return replace(self, strides=self.strides[::-1])

    @property
    def _align(self) -> int:
        return min(CACHE_LINE // 2, self.type.bits // 8)

    def __getitem__(self, indices: IndexValue | tuple[IndexValue, ...]) -> Value:
        return self.f.load(self._address(indices), self.type, self._align)

    def __setitem__(self, indices: IndexValue | tuple[IndexValue, ...], value: Value) -> None:
        self.f.store(value, self._address(indices), self._align)

    def _address(self, indices: IndexValue | tuple[IndexValue, ...]) -> Value:
        f, components = self.f, indices if isinstance(indices, tuple) else (indices,)
        parts = [f.multiply(index, stride) for index, stride in zip(components, self.strides, strict=True)]
        return f.at(self.memory, f.multiply(functools.reduce(f.add, parts), self.type.width), self.type.element)


def _subtract_product(f: KernelFunction, value: Value, a: Value, b: Value) -> Value:
    return f.fmuladd(f.fneg(a), b, value)


def _record_failure(f: KernelFunction, info: MatrixLanes, failed: Value, step: Value) -> None:
    """Records the 1-based index of the first step that failed, in each lane of `info`."""
    before = info[0]
    is_first = f.binary("and", failed, f.compare("eq", before, constant(before.type, 0)))
    info[0] = f.select(is_first, _one_based(f, step, before.type), before)


def _one_based(f: KernelFunction, index: Value, type: Type) -> Value:
    """An index plus 1, in each lane."""
    return f.splat(f.convert("trunc", f.index(f.add(index, 1)), type.element), type.width)


def _potrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Cholesky factorisation, column by column. LAPACK's upper triangle is the lower one of a row-major matrix."""
    (matrix, info), (n, _) = arrays, call.operands[0].sizes
    a = matrix if call.arguments[0] == "U" else matrix.transposed
    info[0] = constant(info.type, 0)
    with f.each(0, n) as j:
        diagonal = a[j, j]
        _record_failure(f, info, f.compare("ule", diagonal, constant(diagonal.type, 0)), j)
        a[j, j] = root = f.intrinsic("sqrt", diagonal)
        below = f.index(f.add(j, 1))
        with f.each(below, n) as i:
            a[i, j] = f.binary("fdiv", a[i, j], root)
        with f.each(below, n) as i:
            factor = a[i, j]
            with f.each(below, f.add(i, 1)) as k:
                a[i, k] = _subtract_product(f, a[i, k], factor, a[k, j])
    return matrix


def _getrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """LU factorisation with partial pivoting: rows are swapped so that each pivot is the largest of its column."""
    (a, pivots, info), (m, n) = arrays, call.operands[0].sizes
    scratch = MatrixLanes.of(f, info.type), MatrixLanes.of(f, a.type)
    info[0] = constant(info.type, 0)
    with f.each(0, min(m, n)) as step:
        pivots[step] = pivot_row = _find_pivot(f, a, m, step, scratch)
        _swap_rows(f, a, (m, n), step, pivot_row)
        pivot = a[step, step]
        is_zero = f.compare("oeq", pivot, constant(pivot.type, 0))
        _record_failure(f, info, is_zero, step)
        divisor = f.select(is_zero, constant(pivot.type, 1), pivot)
        below = f.index(f.add(step, 1))
        with f.each(below, m) as i:
            a[i, step] = factor = f.binary("fdiv", a[i, step], divisor)
            with f.each(below, n) as j:
                a[i, j] = _subtract_product(f, a[i, j], factor, a[step, j])
    return a


def _find_pivot(
    f: KernelFunction, a: MatrixLanes, m: int, step: Value, scratch: tuple[MatrixLanes, MatrixLanes]
) -> Value:
    """Returns the 1-based row of the largest magnitude in a column from the diagonal on; the diagonal's row if all are
    NaN.
    """
    row, largest = scratch
    row[0] = _one_based(f, step, row.type)
    largest[0] = constant(a.type, -1)
    with f.each(step, m) as i:
        magnitude = f.intrinsic("fabs", a[i, step])
        is_larger = f.compare("ogt", magnitude, largest[0])
        largest[0] = f.select(is_larger, magnitude, largest[0])
        row[0] = f.select(is_larger, _one_based(f, i, row.type), row[0])
    return row[0]


def _swap_rows(f: KernelFunction, a: MatrixLanes, sizes: tuple[int, int], row: Value, other: Value) -> None:
    """Swaps a row with a later one, whose 1-based index each lane has."""
    m, n = sizes
    with f.each(f.add(row, 1), m) as i:
        is_target = f.compare("eq", other, _one_based(f, i, other.type))
        with f.each(0, n) as j:
            upper, lower = a[row, j], a[i, j]
            a[row, j] = f.select(is_target, lower, upper)
            a[i, j] = f.select(is_target, upper, lower)


def _trsm(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """Triangular solve: each unknown, once computed, is eliminated from the remaining equations.

    LAPACK sees the transposes of row-major matrices: its right side is the left side here, its upper triangle the
    lower.
    """
    n = call.operands[0].sizes[0]
    columns = call.operands[1].elements // n
    side, triangle, transposed, diagonal = call.arguments[:4]
    is_left, is_lower = side == "R", (triangle == "U") == (transposed == "N")
    # x a = b is a^T x^T = b^T.
    forward = is_lower if is_left else not is_lower
    a = arrays[0] if (transposed == "N") == is_left else arrays[0].transposed
    b = arrays[1] if is_left else arrays[1].transposed
    with f.each(0, n) as step:
        i = step if forward else f.index(f.subtract(n - 1, step))
        if diagonal == "N":
            divisor = a[i, i]
            with f.each(0, columns) as c:
                b[i, c] = f.binary("fdiv", b[i, c], divisor)
        with f.each(f.add(i, 1) if forward else 0, n if forward else i) as k:
            factor = a[k, i]
            with f.each(0, columns) as c:
                b[k, c] = _subtract_product(f, b[k, c], factor, b[i, c])
    return b


def _geqrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """QR factorisation by Householder reflections I - tau v v^T, each of which zeroes a column below the diagonal,
    where v is stored.
    """
    (a, taus), (m, n) = arrays, call.operands[0].sizes
    sums, zero = MatrixLanes.of(f, a.type), constant(a.type, 0)
    with f.each(0, min(m, n)) as k:
        below = f.index(f.add(k, 1))
        alpha, norm = a[k, k], _norm(f, a, sums, (below, m), k)
        beta = f.fneg(f.intrinsic("copysign", _hypotenuse(f, f.intrinsic("fabs", alpha), norm), alpha))
        is_identity = f.compare("oeq", norm, zero)
        tau = f.select(is_identity, zero, f.binary("fdiv", f.binary("fsub", beta, alpha), beta))
        divisor = f.select(is_identity, constant(a.type, 1), f.binary("fsub", alpha, beta))
        with f.each(below, m) as i:
            a[i, k] = f.binary("fdiv", a[i, k], divisor)
        taus[k] = tau
        a[k, k] = f.select(is_identity, alpha, beta)
        _apply_reflection(f, a, sums, (m, n), k, tau)
    return a


def _orgqr(f: KernelFunction, call: RoutineCall, arrays: Sequence[MatrixLanes]) -> MatrixLanes:
    """The product of Householder reflections, applied to the columns of the identity matrix from last to first."""
    (a, taus), (m, n), (count,) = arrays, call.operands[0].sizes, call.operands[1].sizes
    sums, zero, one = MatrixLanes.of(f, a.type), constant(a.type, 0), constant(a.type, 1)
    with f.each(count, n) as j:
        with f.each(0, m) as i:
            a[i, j] = zero
        a[j, j] = one
    with f.each(0, count) as step:
        k = f.index(f.subtract(count - 1, step))
        tau = taus[k]
        _apply_reflection(f, a, sums, (m, n), k, tau)
        with f.each(0, k) as i:
            a[i, k] = zero
        a[k, k] = f.binary("fsub", one, tau)
        with f.each(f.add(k, 1), m) as i:
            a[i, k] = f.fneg(f.binary("fmul", a[i, k], tau))
    return a


def _norm(f: KernelFunction, a: MatrixLanes, sums: MatrixLanes, rows: tuple[Value, int], column: Value) -> Value:
    """Euclidean norm of part of a column, scaled so that the squares neither overflow nor underflow."""
    zero = constant(a.type, 0)
    sums[0] = zero
    with f.each(*rows) as i:
        magnitude = f.intrinsic("fabs", a[i, column])
        sums[0] = f.select(f.compare("ogt", magnitude, sums[0]), magnitude, sums[0])
    largest = sums[0]
    scale = f.select(f.compare("oeq", largest, zero), constant(a.type, 1), largest)
    sums[0] = zero
    with f.each(*rows) as i:
        scaled = f.binary("fdiv", a[i, column], scale)
        sums[0] = f.fmuladd(scaled, scaled, sums[0])
    return f.binary("fmul", scale, f.intrinsic("sqrt", sums[0]))


def _hypotenuse(f: KernelFunction, a: Value, b: Value) -> Value:
    """sqrt(a^2 + b^2) of non-negative values, without overflow or underflow of the squares."""
    is_larger = f.compare("ogt", a, b)
    larger, smaller = f.select(is_larger, a, b), f.select(is_larger, b, a)
    ratio = f.binary("fdiv", smaller, larger)
    return f.binary("fmul", larger, f.intrinsic("sqrt", f.fmuladd(ratio, ratio, constant(a.type, 1))))


def _apply_reflection(
    f: KernelFunction, a: MatrixLanes, sums: MatrixLanes, sizes: tuple[int, int], k: Value, tau: Value
) -> None:
    """Applies I - tau v v^T to the columns after k, where v is 1 followed by column k below the diagonal."""
    m, n = sizes
    below = f.index(f.add(k, 1))
    with f.each(below, n) as j:
        sums[0] = a[k, j]
        with f.each(below, m) as i:
            sums[0] = f.fmuladd(a[i, k], a[i, j], sums[0])
        projection = f.binary("fmul", tau, sums[0])
        a[k, j] = f.binary("fsub", a[k, j], projection)
        with f.each(below, m) as i:
            a[i, j] = _subtract_product(f, a[i, j], a[i, k], projection)


EMITTERS = {"potrf": _potrf, "getrf": _getrf, "trsm": _trsm, "geqrf": _geqrf, "orgqr": _orgqr}
"""Writers of the code of each routine, which return the array that becomes the first result."""
