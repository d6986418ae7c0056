"""Arguments on which results are compared where a solver does not decide: special numbers and all magnitudes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import ml_dtypes
import numpy as np

from hloom.analysis.counted_loop import trip_count
from hloom.comparison import Tolerance
from hloom.faults.case import interpret
from hloom.files.arrays import flat
from hloom.ir import Instruction, Module
from hloom.numerics import convert
from hloom.ops.broadcast import Iota
from hloom.ops.control_flow import While
from hloom.ops.elementwise_binary import Atan2, Maximum, Minimum, Power
from hloom.ops.elementwise_unary import AccurateUnary, Sqrt
from hloom.ops.operation import Operation
from hloom.ops.sort import Sort
from hloom.ops.traits import CallLike, Identity, Movement, Structural
from hloom.prove.equivalence import difference
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import TOKEN_VALUE, Array, Value

Found = tuple[tuple[Value, ...], Value, Value, str]
"""Arguments on which two results differ, both results, and how they differ."""
TRIALS = 96
"""Arguments that are tried."""
SPECIAL_FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 1.5, 10.0, 0.1, np.inf, -np.inf, np.nan, 16777217.0),
    *(sign * 10.0**power for power in (5, 10, 20, 30, 38) for sign in (1, -1)),
    *(sign * value for value in (1e-20, 1e-30, 88.0, 89.0, 100.0, 130.0) for sign in (1, -1)),
]
"""Among them numbers whose exponentials, squares or products leave the range of f32."""
SPECIAL_INTEGERS = (0, 1, -1, 2, 3, 5, 7, 12, 31, 64, 100)


def trials(module: Module, count: int) -> Iterator[tuple[Value, ...]]:
    """Yields arguments of a module: special numbers, or random ones in every third trial.

    All are random if sums, which may overflow in one order only, are open.
    """
    is_open = has_open_sums(module)
    for seed in range(count):
        random = np.random.default_rng(seed)
        yield tuple(_value(random, shape, seed % 3 != 2 and not is_open) for shape in module.entry.parameter_shapes)


def _value(random: np.random.Generator, shape: Shape, special: bool) -> Value:
    if shape.is_tuple:
        return tuple(_value(random, element, special) for element in shape.elements)
    if not shape.is_array:
        return TOKEN_VALUE
    type, sizes = shape.element_type, shape.dimensions
    if type.is_complex:
        parts = [_floats(random, type.real, sizes, special) for _ in range(2)]
        return (parts[0] + 1j * parts[1]).astype(type.dtype)
    if type.is_float:
        return _floats(random, type, sizes, special)
    if type.is_pred:
        return np.asarray(random.random(sizes) < 0.5)
    return _integers(random, type, sizes, special)


def _floats(random: np.random.Generator, type: PrimitiveType, sizes: Sequence[int], special: bool) -> Array:
    if special:
        return convert(random.choice(SPECIAL_FLOATS, sizes), type.dtype)
    return convert(np.asarray(random.standard_normal(sizes)), type.dtype)


def _integers(random: np.random.Generator, type: PrimitiveType, sizes: Sequence[int], special: bool) -> Array:
    low, high = type.limits
    if special:
        known = [low, low + 1, high, high - 1, *(v for v in SPECIAL_INTEGERS if low <= v <= high)]
        return np.asarray(np.array(known, object)[random.integers(len(known), size=sizes)], type.dtype)
    return np.asarray(random.integers(max(low, -8), min(high, 12), sizes, endpoint=True), type.dtype)


def tried(module: Module, run: Callable[[Sequence[Value]], Value], count: int = TRIALS) -> Found | None:
    """Compares a module with code for it, `run`, on trial arguments; returns the first on which the results differ.

    Trials in which the interpreter meets a subnormal number are left out, since XLA flushes those to zero (GEN-7).
    Results of functions whose last digits are open may differ in these. Modules with loops that run for an unknown
    number of iterations are not tried: these numbers would be arbitrary, too.
    """
    if any(isinstance(i.op, While) and trip_count(i) is None for i in module.instructions()):
        return None
    tolerance = SameBits() if is_exact(module) else Tolerance(relative=1e-3)
    for arguments in trials(module, count):
        seen: list[Value] = []
        expected = interpret(module, arguments, lambda _instruction, _operands, value, seen=seen: seen.append(value))
        if any(map(_is_subnormal, flat((*arguments, *seen)))):
            continue
        result = run(arguments)
        found = tolerance.difference(result, expected)
        if found:
            return arguments, expected, result, found
    return None


@record
class SameBits(Tolerance):
    """No tolerance: zeros of both signs differ, all NaNs are equal."""

    def difference(self, value: Value, expected: Value) -> str | None:
        """Describes the first difference of a value from the expected one; None if there is none."""
        return difference(expected, value) or None


def is_exact(module: Module) -> bool:
    """Whether the clauses fix all bits of the results: no functions such as exp, and no sums, whose order is open."""
    functions = (AccurateUnary, Power, Atan2)
    return not has_open_sums(module) and not any(
        isinstance(i.op, functions) and not isinstance(i.op, Sqrt) and _has_floats(i) for i in module.instructions()
    )


def has_open_sums(module: Module) -> bool:
    """Whether a module combines floats in an order that is open (GEN-13), as sums and products of matrices do."""
    return any(_has_floats(instruction) and _is_open(instruction.op) for instruction in module.instructions())


def _is_open(op: Operation) -> bool:
    if op.elementwise or isinstance(op, (Movement, Structural, Identity, CallLike, Sort, Iota)):
        return False
    combined = [i.op for computation in op.computations for i in computation.instructions]
    return not combined or not all(isinstance(o, (Structural, Maximum, Minimum)) for o in combined)


def _has_floats(instruction: Instruction) -> bool:
    return any(leaf.element_type.is_float or leaf.element_type.is_complex for leaf in instruction.shape.leaves())


def _is_subnormal(array: Array) -> bool:
    type = BY_DTYPE[array.dtype]
    if type.is_complex:
        return _is_subnormal(array.real) or _is_subnormal(array.imag)
    if not type.is_float or not array.size:
        return False
    tiny = float(ml_dtypes.finfo(array.dtype).smallest_normal)
    magnitude = np.abs(array.astype(np.float64))
    return bool(((magnitude > 0) & (magnitude < tiny)).any())
