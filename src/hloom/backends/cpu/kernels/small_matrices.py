"""Batched factorisations and triangular solves of small matrices, vectorised over the batch: one matrix in each lane.

LAPACK's routines take one matrix; for small ones, the overhead of the calls would dominate. A group of matrices, one
for each lane, is transposed into lanes, factored by loops over their elements, and transposed back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.transpose import Transposes
from hloom.ir import Instruction
from hloom.lir import PTR, IndexValue, Type, Value, constant, type_of
from hloom.runtime.custom_calls.fortran import Matrices, RoutineCall
from hloom.target import CACHE_LINE, Target

MIN_COUNT = 4
"""Matrices of the smallest batch that is vectorised."""
MAX_ORDER = 16
MAX_ELEMENTS = 512
"""Elements of the largest operand, for example of the right-hand sides of a triangular system."""
ELEMENT_COST = 0.3125
"""Cost of an element of an operand, in additions, for each row of a matrix."""


def emit(name: str, instruction: Instruction, call: RoutineCall, target: Target) -> KernelCode | None:
    """Returns the code of a call of BLAS or LAPACK; None for other routines and types, larger matrices and small
    batches.
    """
    routine, letter = call.routine[1:], call.routine[0]
    largest = max(call.operands, key=lambda matrices: matrices.elements)
    min_count = 1 if target.batch_invariant else MIN_COUNT
    if letter not in "sd" or routine not in _EMITTERS or call.count < min_count or largest.elements > MAX_ELEMENTS:
        return None
    if not min(call.operands[0].sizes) or max(call.operands[0].sizes) > MAX_ORDER:
        return None
    return _GroupLoop(name, instruction, call, target).code()


@dataclass(frozen=True)
class _Lanes:
    """An array of vectors on the stack, each lane of which holds the elements of one matrix."""

    f: KernelFunction
    memory: Value
    type: Type
    strides: tuple[int, ...] = (1,)

    @classmethod
    def of(cls, f: KernelFunction, type: Type, sizes: tuple[int, ...] = (1,)) -> _Lanes:
        """Allocates matrices of these sizes, in row-major order."""
        strides = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        return cls(f, f.slot(type, math.prod(sizes)), type, strides or (1,))

    @property
    def transposed(self) -> _Lanes:
        """A transposed view of the matrices."""
        return replace(self, strides=self.strides[::-1])

    def __getitem__(self, indices: IndexValue | tuple[IndexValue, ...]) -> Value:
        return self.f.load(self._address(indices), self.type, CACHE_LINE // 2)

    def __setitem__(self, indices: IndexValue | tuple[IndexValue, ...], value: Value) -> None:
        self.f.store(value, self._address(indices), CACHE_LINE // 2)

    def _address(self, indices: IndexValue | tuple[IndexValue, ...]) -> Value:
        f, components = self.f, indices if isinstance(indices, tuple) else (indices,)
        parts = [f.multiply(index, stride) for index, stride in zip(components, self.strides, strict=True)]
        return f.at(self.memory, f.multiply(functools.reduce(f.add, parts), self.type.width), self.type.element)


class _GroupLoop:
    """Writes the loop over groups of matrices."""

    def __init__(self, name: str, instruction: Instruction, call: RoutineCall, target: Target) -> None:
        self.name, self.instruction, self.call = name, instruction, call
        self.type = type_of(
            "float" if call.routine[0] == "s" else "double", CACHE_LINE // call.operands[0].dtype.itemsize
        )
        self.groups = -(-call.count // self.type.width)
        work = sum(matrices.elements for matrices in call.operands) * max(call.operands[0].sizes) * call.count
        self.shares = target.tasks(self.groups, work * ELEMENT_COST)
        self.transposes = Transposes(name)

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        on = f.threads_if(self.shares > 1)
        f.run_chunks(f"{self.name}.groups", f.pack(*f.parameters[:-3]), self.shares, on)
        return code_of(self.name, [self._groups(), *self.transposes.functions.values(), f])

    def _groups(self) -> KernelFunction:
        """Writes the task that computes a share of the groups."""
        f, call, width = task_function(f"{self.name}.groups"), self.call, self.type.width
        words = f.unpack(f["context"], *[PTR] * (len(call.operands) + len(call.results)))
        operands, results = words[: len(call.operands)], words[len(call.operands) :]
        scratch = f.slot(self.type, max(matrices.elements for matrices in (*call.operands, *call.results)))
        inputs = [_Lanes.of(f, self.type, m.sizes) for m in call.operands]
        types = [self.type if m.dtype == call.operands[0].dtype else self.type.of("i32") for m in call.results[1:]]
        extra_results = [_Lanes.of(f, t, m.sizes) for t, m in zip(types, call.results[1:], strict=True)]
        first, count = f.share(self.groups, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, count)) as group:
            start = f.index(f.multiply(group, width))
            left = f.index(f.minimum(width, f.subtract(call.count, start)))
            for array, lanes, matrices in zip(operands, inputs, call.operands, strict=True):
                self._load_group(array, lanes, matrices, (start, left, scratch))
            changed = _EMITTERS[call.routine[1:]](f, call, [*inputs, *extra_results])
            for array, lanes, matrices in zip(results, [changed, *extra_results], call.results, strict=True):
                self._store_group(lanes, array, matrices, (start, left, scratch))
        return f

    def _load_group(self, array: Value, lanes: _Lanes, matrices: Matrices, group: tuple[Value, Value, Value]) -> None:
        """Transposes a group of matrices into lanes; a last group that is not full is padded with copies of its last
        matrix.
        """
        f, (start, left, scratch), width = lanes.f, group, self.type.width
        matrices_address = self._at(f, array, start, matrices)
        with f.unless(self._is_full(f, left)), f.each(0, width) as lane:
            index = f.minimum(lane, f.subtract(left, 1))
            f.copy(
                self._at(f, scratch, lane, matrices), self._at(f, matrices_address, index, matrices), matrices.byte_size
            )
        source = f.select(self._is_full(f, left), matrices_address, scratch)
        self.transposes.emit(f, source, lanes.memory, lanes.type.bits // 8, (width, matrices.elements))

    def _store_group(self, lanes: _Lanes, array: Value, matrices: Matrices, group: tuple[Value, Value, Value]) -> None:
        """Transposes lanes back to a group of matrices, without the padding."""
        f, (start, left, scratch), width = lanes.f, group, self.type.width
        matrices_address = self._at(f, array, start, matrices)
        target = f.select(self._is_full(f, left), matrices_address, scratch)
        self.transposes.emit(f, lanes.memory, target, lanes.type.bits // 8, (matrices.elements, width))
        with f.unless(self._is_full(f, left)):
            f.copy(matrices_address, scratch, f.multiply(left, matrices.byte_size))

    def _is_full(self, f: KernelFunction, left: Value) -> Value:
        return f.compare("eq", left, f.index(self.type.width))

    def _at(self, f: KernelFunction, array: Value, index: IndexValue, matrices: Matrices) -> Value:
        return f.at(array, f.multiply(index, matrices.byte_size), "i8")


def _subtract_product(f: KernelFunction, value: Value, a: Value, b: Value) -> Value:
    return f.fmuladd(f.fneg(a), b, value)


def _record_failure(f: KernelFunction, info: _Lanes, failed: Value, step: Value) -> None:
    """Records the 1-based index of the first step that failed, in each lane of `info`."""
    before = info[0]
    is_first = f.binary("and", failed, f.compare("eq", before, constant(before.type, 0)))
    info[0] = f.select(is_first, _one_based(f, step, before.type), before)


def _one_based(f: KernelFunction, index: Value, type: Type) -> Value:
    """An index plus 1, in each lane."""
    return f.splat(f.convert("trunc", f.index(f.add(index, 1)), type.element), type.width)


def _potrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[_Lanes]) -> _Lanes:
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


def _getrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[_Lanes]) -> _Lanes:
    """LU factorisation with partial pivoting: rows are swapped so that each pivot is the largest of its column."""
    (a, pivots, info), (m, n) = arrays, call.operands[0].sizes
    scratch = _Lanes.of(f, info.type), _Lanes.of(f, a.type)
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


def _find_pivot(f: KernelFunction, a: _Lanes, m: int, step: Value, scratch: tuple[_Lanes, _Lanes]) -> Value:
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


def _swap_rows(f: KernelFunction, a: _Lanes, sizes: tuple[int, int], row: Value, other: Value) -> None:
    """Swaps a row with a later one, whose 1-based index each lane has."""
    m, n = sizes
    with f.each(f.add(row, 1), m) as i:
        is_target = f.compare("eq", other, _one_based(f, i, other.type))
        with f.each(0, n) as j:
            upper, lower = a[row, j], a[i, j]
            a[row, j] = f.select(is_target, lower, upper)
            a[i, j] = f.select(is_target, upper, lower)


def _trsm(f: KernelFunction, call: RoutineCall, arrays: Sequence[_Lanes]) -> _Lanes:
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


def _geqrf(f: KernelFunction, call: RoutineCall, arrays: Sequence[_Lanes]) -> _Lanes:
    """QR factorisation by Householder reflections I - tau v v^T, each of which zeroes a column below the diagonal,
    where v is stored.
    """
    (a, taus), (m, n) = arrays, call.operands[0].sizes
    sums, zero = _Lanes.of(f, a.type), constant(a.type, 0)
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


def _orgqr(f: KernelFunction, call: RoutineCall, arrays: Sequence[_Lanes]) -> _Lanes:
    """The product of Householder reflections, applied to the columns of the identity matrix from last to first."""
    (a, taus), (m, n), (count,) = arrays, call.operands[0].sizes, call.operands[1].sizes
    sums, zero, one = _Lanes.of(f, a.type), constant(a.type, 0), constant(a.type, 1)
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


def _norm(f: KernelFunction, a: _Lanes, sums: _Lanes, rows: tuple[Value, int], column: Value) -> Value:
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


def _apply_reflection(f: KernelFunction, a: _Lanes, sums: _Lanes, sizes: tuple[int, int], k: Value, tau: Value) -> None:
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


_EMITTERS = {"potrf": _potrf, "getrf": _getrf, "trsm": _trsm, "geqrf": _geqrf, "orgqr": _orgqr}
