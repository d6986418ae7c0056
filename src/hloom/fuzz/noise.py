"""Rounding noise: the results that the specification allows, found by running with perturbed roundings.

An operation with a clause about its accuracy (UNARY-2, or a reduction of unspecified order, REDUCE-4) has many allowed
results, and operations after it amplify the differences: a comparison may change, a difference may cancel. The
interpreter runs several times with a random error in each such operation, as large as the clause allows; the spread of
the results is the tolerance. A program without such operations has no spread, and is compared bit for bit. Prior art:
Monte Carlo arithmetic (Parker, 1997; Verificarlo, Denis et al., 2016).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hloom.api import prepare
from hloom.backends.interpreter.executable import InterpreterExecutable
from hloom.faults.case import Case
from hloom.fuzz.feeds import feed, written
from hloom.ir import Computation
from hloom.literal import extreme
from hloom.numerics import convert, widen
from hloom.ops.batch_norm import BatchNorm
from hloom.ops.collectives import AllReduce, ReduceScatter
from hloom.ops.compare import Compare
from hloom.ops.context import Context
from hloom.ops.convolution import Convolution
from hloom.ops.custom_call import CustomCall
from hloom.ops.dot import DotDimensions, accumulator
from hloom.ops.elementwise_binary import Add, And, Atan2, Divide, Maximum, Minimum, Multiply, Or, Power, Xor
from hloom.ops.elementwise_unary import Abs, Sign, Sqrt
from hloom.ops.fft import Fft
from hloom.ops.kinds import RESULT_ACCURACY
from hloom.ops.linear_algebra import Cholesky, TriangularSolve
from hloom.ops.operation import Operation
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.ops.select import Select
from hloom.ops.structure import Constant, Parameter, Tuple
from hloom.runtime.executable import Executable, RunOptions
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import BY_DTYPE
from hloom.values import Array, Value

ULPS = 3.0
"""The error of an operation with a stated accuracy, in units in the last place: that of UNARY-2, and one more."""
SUM_ULPS = 4.0
"""The relative error of the operands of sums and products, in units in the last place."""
STEP_ULPS = 1.0
"""The error of an operation of a combiner, and of the result of a sum."""
NARROW_STEP_ULPS = 0.5
"""The error of combiners of types below 32 bits, whose sums others keep in a wider type."""
BY_NORM = (Fft, Cholesky, TriangularSolve, Convolution)
"""Operations whose error is relative to the largest element of an operand, as with Winograd's algorithm."""
SUMS = (DotDimensions, BatchNorm, *BY_NORM)
"""Operations that sum products in an order of their own."""
REDUCTIONS = (Reduce, ReduceWindow, SelectAndScatter, AllReduce, ReduceScatter)
"""Operations that combine elements by a computation in an order of their own; small scatters have one (SCATTER-7)."""
EXACT = (Maximum, Minimum, And, Or, Xor, Compare, Select, Parameter, Constant, Tuple)
"""Operations of combiners for which the order does not count."""
FACTORISATIONS = re.compile("lapack_.(?!laswp)|Qr|LuDecomposition|Eigh|ProductOf|tridiagonal|cpu_csr")
"""The names of targets that factorise, solve or multiply."""
LIMITS = (np.maximum, np.minimum)
"""Functions that leave only the factors beyond 1, and only those below it."""
COMPLEX_ROUNDED = (Multiply, Divide, Abs, Sign, Sqrt, Power)
"""Operations whose results for complex numbers depend on the formula."""


@record
class Error:
    """The error of an operation in units in the last place: of its result, and of its operands, each relative to the
    element or to the largest one of the array.
    """

    result: float = 0.0
    operands: float = 0.0
    by_norm: bool = False
    flushes: bool = False
    """Whether subnormal operands and results may be zero."""
    reorders: bool = False
    """Whether narrow floats are combined in other orders, and rounded in each step or in the end."""


Noise = Callable[[Operation, Sequence[Shape]], Error | None]
"""Returns the error of an operation with some shapes, the result first; None if it is exact."""


class Noisy:
    """An operation of a plan with errors in its operands and its result."""

    def __init__(self, op: Any, rng: np.random.Generator, error: Error) -> None:
        self.op, self.rng, self.error = op, rng, error
        self.opcode, self.bind = op.opcode, op.bind

    def evaluate(self, ctx: Context, *operands: Any) -> Value:
        """Computes the value with errors; where an intermediate result may overflow, it is NaN or not."""
        error = self.error
        if isinstance(self.op, (DotDimensions, Convolution)):
            operands = (*_summed(ctx.shape, operands[:2]), *operands[2:])
        changed = [perturbed(self.rng, operand, error.operands, by_norm=error.by_norm) for operand in operands]
        if error.flushes and self.rng.random() < 0.5:
            changed = [flushed(operand) for operand in changed]
        # Errors of a Fourier transform are relative to the norm of its result (Higham, 2002, section 24.1).
        value = self._reordered(ctx, changed) if error.reorders else self.op.evaluate(ctx, *changed)
        value = perturbed(self.rng, value, error.result, by_norm=isinstance(self.op, Fft))
        if error.flushes and self.rng.random() < 0.5:
            value = flushed(value)
        is_solution = isinstance(self.op, (Cholesky, TriangularSolve, CustomCall))
        if is_solution and not all(map(_is_finite, (value, self.op.evaluate(ctx, *operands)))):
            # Which elements of the solution of a singular system are infinite depends on the order.
            return _mixed(self.rng, value, None)
        if self.op.elementwise and any(np.iscomplexobj(operand) for operand in operands):
            # Which part of a complex number that leaves the range is NaN depends on the formula.
            return _mixed(self.rng, value, sum(map(np.abs, operands), start=np.abs(value)))
        if isinstance(self.op, (Reduce, ReduceWindow)) and any(map(_is_product, self.op.computations)):
            extremes = (self.op.evaluate(ctx, *(_beyond_one(o, limit) for o in operands)) for limit in LIMITS)
            return _mixed(self.rng, value, _outside(*extremes))
        if (error.operands or isinstance(self.op, REDUCTIONS)) and any(map(_is_wide, operands)):
            return self._unsettled(ctx, value, operands)
        return value

    def _reordered(self, ctx: Context, operands: Sequence[Any]) -> Value:
        """Reduces narrow floats in another order: rounded in each step, or, where these are sums, only in the end."""
        arrays, inits = operands
        for d in self.op.dimensions:
            order = self.rng.permutation(arrays[0].shape[d])
            arrays = tuple(np.take(array, order, axis=d) for array in arrays)
        function = _function_of(self.op.computation)
        if function is None or self.rng.random() < 0.5:
            return self.op.evaluate(ctx, arrays, inits)
        array, init = (convert(x, np.dtype(np.float64)) for x in (arrays[0], inits[0]))
        return convert(np.asarray(function(init, function.reduce(array, axis=self.op.dimensions))), arrays[0].dtype)

    def _unsettled(self, ctx: Context, value: Value, operands: Sequence[Any]) -> Value:
        """Returns the value with elements that may overflow or not, depending on the order, replaced at random."""
        if isinstance(self.op, BatchNorm) and self.rng.random() < 0.5:
            # Numbers divided by an infinite variance are 0, as those without deviations are.
            return self.op.evaluate(ctx, np.zeros_like(operands[0]), *operands[1:])
        if self.error.by_norm or isinstance(self.op, BatchNorm) or any(_is_product(c) for c in self.op.computations):
            return _mixed(self.rng, value, None)
        return _mixed(self.rng, value, self.op.evaluate(ctx, *map(_finite_sizes, operands)))


def _summed(result: Shape, factors: Sequence[Array]) -> list[Array]:
    """Factors in the type of the sum, in which they have errors (DOT-3), unless all are integers."""
    computing = accumulator(*(BY_DTYPE[factor.dtype] for factor in factors), result.element_type)
    return list(factors) if BY_DTYPE[computing].is_integer else [convert(factor, computing) for factor in factors]


def _is_wide(operand: Any) -> bool:
    """Whether an operand has values whose squares or sums may leave the range of the type."""
    if isinstance(operand, tuple):
        return any(map(_is_wide, operand))
    if not _is_inexact(operand) or not operand.size:
        return False
    limits = ml_dtypes.finfo(operand.real.dtype if operand.dtype.kind == "c" else operand.dtype)
    sizes = np.abs(widen(operand))
    return not bool(np.all((sizes < float(limits.max) ** 0.4) & ((sizes == 0) | (sizes > float(limits.tiny) ** 0.4))))


def _function_of(combiner: Computation) -> np.ufunc | None:
    """The function of a combiner that is one sum or product."""
    functions: dict[type[Operation], np.ufunc] = {Add: np.add, Multiply: np.multiply}
    return functions.get(type(combiner.root.op)) if len(combiner.instructions) == 3 else None


def _is_product(combiner: Computation) -> bool:
    return any(isinstance(i.op, Multiply) for i in combiner.instructions)


def _beyond_one(operand: Any, limit: np.ufunc) -> Any:
    """The absolute values on one side of 1, and 1 for others and for zeros."""
    if not _is_inexact(operand):
        return operand
    sizes = np.abs(widen(operand))
    return limit(np.where(sizes == 0, 1, np.where(np.isnan(sizes), np.inf, sizes)), 1).astype(operand.dtype)


def _outside(large: Any, small: Any) -> Any:
    """Infinity where the product of all large factors, or of all small ones, is outside of the range of the type."""
    if isinstance(large, tuple):
        return tuple(map(_outside, large, small))
    if not _is_inexact(large):
        return large
    limits, (most, least) = ml_dtypes.finfo(large.real.dtype), (np.abs(widen(array)) for array in (large, small))
    return np.where((most < float(limits.max)) & (least > float(limits.tiny)), 0, np.inf)


def _is_finite(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not _is_inexact(value) or bool(np.isfinite(widen(value)).all())


def _finite_sizes(operand: Any) -> Any:
    """The absolute values, zero where they are not finite."""
    if isinstance(operand, tuple):
        return tuple(map(_finite_sizes, operand))
    if not _is_inexact(operand):
        return operand
    if operand.dtype.kind == "c":
        # A product of complex numbers that are not finite depends on the formula.
        return np.where(np.isfinite(operand), np.abs(operand), np.inf).astype(operand.dtype)
    return np.where(np.isfinite(widen(operand)), np.abs(operand), np.zeros((), operand.dtype)).astype(operand.dtype)


def _mixed(rng: np.random.Generator, value: Any, sizes: Any) -> Any:
    """Replaces elements by NaN, 0 or the extremes of their type at random: those whose sum of absolute values is not
    finite, or all, and then integers, too, such as pivots.

    Half of the time all get the same, so that each element of large arrays is seen to have each value.
    """
    if isinstance(value, tuple):
        return tuple(_mixed(rng, v, s) for v, s in zip(value, sizes or [None] * len(value), strict=True))
    if sizes is None and value.dtype.kind in "iu":
        return rng.choice(np.array([np.iinfo(value.dtype).min, 0, np.iinfo(value.dtype).max], value.dtype), value.shape)
    if not _is_inexact(value):
        return value
    open_ = np.ones(value.shape, bool) if sizes is None else ~np.isfinite(widen(np.asarray(sizes)))
    either, drawn = np.empty(value.shape, value.dtype), value.shape if rng.random() < 0.5 else ()
    for part in (either.real, either.imag) if value.dtype.kind == "c" else (either,):
        lowest, highest = (extreme(BY_DTYPE[part.dtype], highest=highest) for highest in (False, True))
        part[...] = rng.choice(np.array([np.zeros_like(lowest), np.nan, lowest, highest], part.dtype), drawn)
    return np.where(open_, either, value)


def perturbed(rng: np.random.Generator, value: Any, ulps: float, *, by_norm: bool) -> Any:
    """Returns floats and complex numbers with an error of up to `ulps` units in the last place."""
    if isinstance(value, tuple):
        return tuple(perturbed(rng, element, ulps, by_norm=by_norm) for element in value)
    if not ulps or not _is_inexact(value) or not value.size:
        return value
    sizes = np.abs(widen(value)).astype(np.longdouble)
    finite = np.isfinite(sizes)
    if by_norm:
        sizes = np.full(sizes.shape, np.max(sizes, where=finite, initial=0))
    sizes = np.where(finite, sizes, 0)
    if value.dtype.kind == "c":
        made = np.empty(value.shape, value.dtype)
        made.real, made.imag = (_shifted(rng, part, sizes, ulps) for part in (value.real, value.imag))
        return made
    return _shifted(rng, value, sizes, ulps)


def _shifted(rng: np.random.Generator, value: Any, sizes: Any, ulps: float) -> Any:
    """Returns an array with errors of up to `ulps` units in the last place of numbers of some sizes."""
    limits = ml_dtypes.finfo(value.dtype)
    unit = np.maximum(sizes * float(limits.eps), np.where(sizes == 0, 0, np.longdouble(limits.smallest_subnormal)))
    error = rng.uniform(-1, 1, value.shape) * ulps * unit
    moved = widen(value).astype(np.longdouble) + error
    if value.dtype != np.float64:
        moved = moved.astype(np.float64)  # from which there are conversions to narrow types
    return np.where(error == 0, value, moved.astype(value.dtype))


def flushed(value: Any) -> Any:
    """Returns floats and complex numbers with zeros of the same sign for subnormal numbers."""
    if isinstance(value, tuple):
        return tuple(map(flushed, value))
    if not _is_inexact(value):
        return value
    if value.dtype.kind == "c":
        made = np.empty(value.shape, value.dtype)
        made.real, made.imag = flushed(np.asarray(value.real)), flushed(np.asarray(value.imag))
        return made
    sizes = widen(value)
    zero = np.copysign(0.0, sizes).astype(value.dtype)
    return np.where(np.abs(sizes) < float(ml_dtypes.finfo(value.dtype).tiny), zero, value)


def _is_inexact(value: Any) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    element_type = BY_DTYPE.get(value.dtype)
    return element_type is not None and (element_type.is_float or element_type.is_complex)


def noise_of(op: Operation, shapes: Sequence[Shape]) -> Error | None:
    """Returns the error that the specification allows an operation; None if it is exact."""
    if not has_rounding(shapes):
        return None
    if isinstance(op, REDUCTIONS) and not all(map(order_is_free, op.computations)):
        if has_wide_type(shapes[0]):
            return Error(STEP_ULPS, SUM_ULPS)
        return Error(reorders=True) if isinstance(op, Reduce) else Error(NARROW_STEP_ULPS)
    if isinstance(op, SUMS) or is_factorisation(op):
        is_rounded_sum = isinstance(op, (DotDimensions, Convolution)) and not has_wide_type(shapes[0])
        return Error(0.0 if is_rounded_sum else STEP_ULPS, SUM_ULPS, isinstance(op, (*BY_NORM, CustomCall)))
    if isinstance(op, COMPLEX_ROUNDED) and any(s.is_array and s.element_type.is_complex for s in shapes):
        return Error(ULPS)
    stated = any(field.kind is RESULT_ACCURACY for field in op.fields) and not isinstance(op, Sqrt)
    return Error(ULPS) if stated or isinstance(op, Atan2 | Power) else None


def has_wide_type(shape: Shape) -> bool:
    """Whether sums of this shape are not rounded from a wider type."""
    return any(leaf.is_array and leaf.element_type.bits >= 32 for leaf in shape.leaves())


def is_factorisation(op: Operation) -> bool:
    """Whether an operation calls a routine of linear algebra, such as LAPACK's, but for those that swap rows."""
    return isinstance(op, CustomCall) and bool(FACTORISATIONS.match(op.target_name))


def order_is_free(combiner: Computation) -> bool:
    """Whether a combiner gives the same bits in any order."""
    return all(isinstance(i.op, EXACT) or not has_rounding([i.shape]) for i in combiner.instructions)


def has_rounding(shapes: Sequence[Shape]) -> bool:
    """Whether some shapes have floats or complex numbers."""
    leaves = [leaf.element_type for shape in shapes for leaf in shape.leaves() if leaf.is_array]
    return any(leaf.is_float or leaf.is_complex for leaf in leaves)


def on_replicas(executable: Executable, case: Case) -> Value:
    """Runs an executable with the arguments of a case on each replica.

    Returns the result, or a tuple of several, and of the items of outfeeds.
    """
    arguments, devices = case.arguments or (), getattr(executable, "devices", ())
    feed(case.module, devices)
    results = executable.run_replicas([arguments] * case.module.replica_count)
    every = (*results, *written(case.module, devices))
    return every[0] if len(every) == 1 else every


class NoisyRuns:
    """The interpreter on a module, with other errors in each run."""

    def __init__(self, case: Case, noise: Noise) -> None:
        self.case, self.rng, self.is_exact = case, np.random.default_rng(0), True
        module = prepare(case.module)
        self.executable = InterpreterExecutable(module, RunOptions(module.replica_count, seed=0))
        combiners: set[int] = set()
        for plan in reversed(self.executable.plans.values()):
            for step in plan.steps:
                error = noise(step.op, [step.instruction.shape, *step.instruction.operand_shapes])
                if error is not None and not error.reorders:
                    combiners.update(map(id, step.op.computations))
                elif id(plan.computation) in combiners:
                    error = Error(STEP_ULPS if has_wide_type(step.instruction.shape) else NARROW_STEP_ULPS)
                if error is not None:
                    self.is_exact = False
                    step.op = Noisy(step.op, self.rng, error)  # type: ignore[assignment]

    def __call__(self) -> Value:
        """Returns the result of a run."""
        return on_replicas(self.executable, self.case)
