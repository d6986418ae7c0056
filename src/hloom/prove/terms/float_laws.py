"""Laws of floats, which hold for all numbers: infinities, NaNs and zeros of both signs among them.

Each is proved on small formats by exhaustion (`tests/prove/test_laws.py`).
"""

from __future__ import annotations

import functools

import numpy as np

from hloom.numerics import convert
from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.operation import Operation
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.functions import Terms, apply, converted
from hloom.prove.terms.term import Term, constant, from_code
from hloom.types import PrimitiveType
from hloom.values import Array

_T = PrimitiveType
SIGNED_ZEROS = frozenset({_T.F16, _T.BF16, _T.F32, _T.F64, _T.F8E5M2, _T.F8E4M3, _T.F8E3M4, _T.F8E4M3FN})
"""Formats in which every number, zero too, has a negative."""


def of_floats(op: Operation, type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    """Returns the normal form of an operation on floats; None if there is no law."""
    if type not in SIGNED_ZEROS:
        return None
    match op:
        case binary.Add():
            return _sum(type, operands, is_number)
        case binary.Subtract():
            terms = (operands[0], _negated(operands[1]))
            return _sum(type, terms, is_number) or apply(binary.Add(), type, terms)
        case binary.Multiply() | binary.Divide() if is_number:
            return _product(op, type, operands)
        case unary.Negate() if is_number:
            return _negated(operands[0])
        case unary.Abs() if is_number and isinstance(operands[0].op, (unary.Negate, unary.Abs)):
            return apply(op, type, operands[0].operands)
    return None


def _sum(type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    """x + -0 is x, x + x is x * 2."""
    x, y = operands
    zero = constant(type, binary.Add.identity(type).astype(type.dtype))
    if is_number and zero in (x, y):
        return x if y is zero else y
    return apply(binary.Multiply(), type, (x, constant(type, 2))) if x is y else None


def _negated(x: Term) -> Term:
    return x.operands[0] if isinstance(x.op, unary.Negate) else apply(unary.Negate(), x.type, (x,))


def _product(op: Operation, type: PrimitiveType, operands: Terms) -> Term | None:
    """The sign of a product is that of its factors; a power of two is a factor, not a divisor; x * 1 is x."""
    positive = [_without_sign(x) for x in operands]
    is_negative = sum(x is not y for x, y in zip(operands, positive, strict=True)) % 2 == 1
    x, y = positive
    reciprocal = _reciprocal(y) if isinstance(op, binary.Divide) else None
    if reciprocal is not None:
        op, y = binary.Multiply(), reciprocal
    one = constant(type, 1)
    if y is one or (x is one and isinstance(op, binary.Multiply)):
        product = x if y is one else y
    else:
        product = apply(op, type, (x, y))
    return _negated(product) if is_negative else product


def _without_sign(x: Term) -> Term:
    if isinstance(x.op, unary.Negate):
        return x.operands[0]
    if x.known is None or not x.known >> (x.type.bits - 1) or np.isnan(_number(x)):
        return x
    return from_code(x.type, x.known & ((1 << (x.type.bits - 1)) - 1))


def _number(x: Term) -> float:
    return float(from_codes(x.type, [x.known or 0])[0])


def _reciprocal(x: Term) -> Term | None:
    """Returns 1 / x if it is a number of the format, as for powers of two; None otherwise."""
    if x.known is None:
        return None
    value = _number(x)
    if not np.isfinite(value) or np.frexp(value)[0] != 0.5 or not np.isfinite(1 / value):
        return None
    reciprocal = constant(x.type, np.asarray(1 / value, x.type.dtype))
    return reciprocal if _number(reciprocal) == 1 / value else None


def converted_twice(x: Term, type: PrimitiveType) -> Term | None:
    """Returns the conversion of a converted element without the step between, if that loses nothing (CONVERT-2)."""
    (source,), middle = x.operands, x.type
    if source.type.is_integer and middle.is_integer and type.is_integer and type.bits <= middle.bits:
        return converted(source, type)
    if not is_exact(source.type, middle):
        return None
    if source.type is type:
        return source
    is_rounded_twice = source.type.is_integer and type.is_float and type.bits < 32 and middle is _T.F64
    is_clamped = source.type.is_integer and middle.is_float and type.is_integer and not is_exact(source.type, type)
    if is_rounded_twice or is_clamped:
        return None
    return converted(source, type)


@functools.cache
def is_exact(source: PrimitiveType, target: PrimitiveType) -> bool:
    """Whether a conversion keeps every value, so that the conversion back returns it."""
    if source is target:
        return True
    if source.is_complex or target.is_complex or source.is_pred or target.is_pred:
        return source.is_pred and not target.is_complex
    if source.bits <= 16:
        return _keeps(source, from_codes(source, np.arange(1 << source.bits)), target)
    if source.is_integer and target.is_integer:
        return source.bits + (target.is_signed and not source.is_signed) <= target.bits and (
            target.is_signed or not source.is_signed
        )
    digits = 24 if source is _T.F32 else 53 if source is _T.F64 else source.bits
    return target is _T.F64 and digits <= 53


def _keeps(source: PrimitiveType, all_values: Array, target: PrimitiveType) -> bool:
    with np.errstate(all="ignore"):
        there = convert(all_values, target.dtype)
        back = convert(there, source.dtype)
    before, after = (array.astype(np.float64) for array in (all_values, back))
    same = (before == after) & (np.signbit(before) == np.signbit(after)) | np.isnan(before) & np.isnan(after)
    between = there.astype(np.float64)
    return bool((same & ((between == before) | np.isnan(before))).all())
