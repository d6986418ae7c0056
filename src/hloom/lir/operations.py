"""Arithmetic of the interpreter: instructions and intrinsics on NumPy scalars and vectors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hloom.lir.types import Type
from hloom.lir.values import Constant

Data = Any
"""A NumPy scalar, or an array with an element for each lane; addresses are int64."""
_DTYPES: dict[str, type[np.generic]] = {
    "half": np.float16, "float": np.float32, "double": np.float64, "ptr": np.int64,
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def dtype_of(type: Type) -> np.dtype[Any]:
    """Returns the type of the elements of a value, signed for integers."""
    return np.dtype(_DTYPES[type.element])


def as_type(value: Any, type: Type) -> Data:
    """Returns numbers as a value of a type."""
    array = np.asarray(value).astype(dtype_of(type))
    return array if type.width else array[()]


def constant_value(constant: Constant) -> Data:
    """Returns the value of a constant; unspecified lanes are zero."""
    lanes = [lane if lane is not None else 0 for lane in constant.lanes]
    if not constant.type.is_float and constant.type.element != "i1":
        size = 1 << constant.type.bits
        lanes = [(int(lane) + size // 2) % size - size // 2 for lane in lanes]
    return as_type(lanes if constant.type.width else lanes[0], constant.type)


def unsigned(a: Data) -> Data:
    """Returns integers with the same bits, unsigned; truth values as numbers."""
    return a.astype(np.uint8) if a.dtype == np.bool_ else a.view(f"u{a.dtype.itemsize}")


def _on_unsigned(function: Callable[..., Data]) -> Callable[..., Data]:
    return lambda *operands: np.asarray(function(*map(unsigned, operands))).astype(operands[0].dtype)


def _truncated(divide: Callable[[int, int], int]) -> Callable[[Data, Data], Data]:
    """Returns the function of `divide` on the truncated quotient and the remainder of signed integers."""

    def each(a: Any, b: Any) -> int:
        quotient = abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1)
        return divide(quotient, int(a) - quotient * int(b))

    return lambda a, b: np.vectorize(each, otypes=[a.dtype])(a, b)


BINARY: dict[str, Callable[[Data, Data], Data]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide, "frem": np.fmod,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "ashr": np.right_shift, "lshr": _on_unsigned(np.right_shift),
    "udiv": _on_unsigned(np.floor_divide), "urem": _on_unsigned(np.remainder),
    "sdiv": _truncated(lambda quotient, _: quotient), "srem": _truncated(lambda _, rest: rest),
}  # fmt: skip
_ORDERS: dict[str, Callable[[Data, Data], Data]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def compare(predicate: str, a: Data, b: Data) -> Data:
    """Returns a comparison by a predicate of LLVM."""
    if a.dtype.kind == "f":
        nan = np.isnan(a) | np.isnan(b)
        if predicate in ("ord", "uno"):
            return nan if predicate == "uno" else ~nan
        holds = _ORDERS[predicate[1:]](a, b)
        return (holds | nan) if predicate[0] == "u" else (holds & ~nan)
    if predicate[0] == "u":
        return _ORDERS[predicate[1:]](unsigned(a), unsigned(b))
    return _ORDERS[predicate.removeprefix("s")](a, b)


def convert(opcode: str, a: Data, type: Type) -> Data:
    """Returns a conversion by an opcode of LLVM."""
    if opcode == "bitcast":
        bits = np.atleast_1d(a)
        if bits.dtype == np.bool_ and not type.width:
            number = sum(int(bit) << k for k, bit in enumerate(bits))
            return as_type(number - (1 << type.bits) * (number >> (type.bits - 1)), type)
        found = bits.view(dtype_of(type))
        return found if type.width else found[0]
    if opcode in ("zext", "uitofp"):
        return as_type(unsigned(a), type)
    if opcode == "trunc" and type.element == "i1":
        return as_type(a & 1, type)
    if a.dtype == np.bool_ and opcode in ("sext", "sitofp"):
        return as_type(-a.astype(np.int8), type)
    return as_type(a, type)


def _fma(a: Data, b: Data, c: Data) -> Data:
    def each(x: Any, y: Any, z: Any) -> float:
        x, y, z = float(x), float(y), float(z)
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)) or x * y + z == 0:
            return float(x * y + z)
        return float(Fraction(x) * Fraction(y) + Fraction(z))

    return np.vectorize(each, otypes=[a.dtype])(a, b, c)[()]


def _saturated(a: Data, b: Data) -> Data:
    return np.where(unsigned(a) > unsigned(b), a - b, a.dtype.type(0))[()]


def _leading_zeros(a: Data, _: Data) -> Data:
    bits = 8 * a.dtype.itemsize
    return np.vectorize(lambda x: bits - int(x).bit_length(), otypes=[a.dtype])(unsigned(a))[()]


def _population(a: Data) -> Data:
    return np.vectorize(lambda x: int(x).bit_count(), otypes=[a.dtype])(unsigned(a))[()]


def _funnel(high: Data, low: Data, amount: Data) -> Data:
    """Returns the upper halves of pairs of words that are shifted to the left."""
    bits = 8 * high.dtype.itemsize

    def each(x: Any, y: Any, n: Any) -> int:
        return (int(x) << bits | int(y)) << int(n) % bits >> bits & (1 << bits) - 1

    found = np.vectorize(each, otypes=[unsigned(high).dtype])(unsigned(high), unsigned(low), unsigned(amount))
    return found[()].view(high.dtype)


INTRINSICS: dict[str, Callable[..., Data]] = {
    "umin": _on_unsigned(np.minimum), "umax": _on_unsigned(np.maximum), "smin": np.minimum, "smax": np.maximum,
    "minimum": np.minimum, "maximum": np.maximum, "usub.sat": _saturated, "fma": _fma, "fmuladd": _fma,
    "fabs": np.abs, "copysign": np.copysign, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "rint": np.rint, "roundeven": np.rint, "arithmetic.fence": lambda a: a, "ctlz": _leading_zeros,
    "ctpop": _population, "fshl": _funnel,
}  # fmt: skip
"""The intrinsics without memory, by their names without types."""
_REDUCTIONS: dict[str, Callable[[Data, Data], Data]] = {
    name: BINARY[name] for name in ("add", "mul", "and", "or", "xor", "fadd", "fmul")
} | {
    "umin": INTRINSICS["umin"], "umax": INTRINSICS["umax"], "smin": np.minimum, "smax": np.maximum,
    "fmin": np.fmin, "fmax": np.fmax, "fminimum": np.minimum, "fmaximum": np.maximum,
}  # fmt: skip


def reduction(name: str, operands: Sequence[Data]) -> Data:
    """Returns the reduction of a vector's lanes, with the initial value before it if there is one."""
    *start, lanes = operands
    return functools.reduce(_REDUCTIONS[name], [*start, *lanes])
