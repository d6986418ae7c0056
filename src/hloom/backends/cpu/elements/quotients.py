"""Quotients of bf16 with a common divisor, computed as products with its reciprocal: both round to the same bf16.

A quotient of two numbers of 8 bits is either a bf16, or its distance from the middle between two adjacent ones is at
least 2^-17 of it, since a number of 9 bits times the divisor is never the dividend. The f32 product with the reciprocal
in f32 is closer than 2^-22. Subnormal quotients may lie in the middle, but there the product is rounded to multiples of
2^-149, of which the error of the reciprocal is less than half of one.
"""

from __future__ import annotations

from hloom.affine import Expression
from hloom.lir import Builder, Value, constant
from hloom.loops.expressions import Apply
from hloom.ops.elementwise_binary import Divide
from hloom.types import PrimitiveType

_LARGE = 2.0**64
"""Divisors beyond it, or below its inverse, are scaled: reciprocals would overflow, or be subnormal and inexact."""

Reciprocal = tuple[Value, Value]
"""A power of two, and the reciprocal of its product with a divisor."""


def is_quotient(expression: Expression) -> bool:
    """Whether an expression is a quotient that equals a product with the reciprocal of its divisor, rounded."""
    return isinstance(expression, Apply) and isinstance(expression.op, Divide) and expression.type is PrimitiveType.BF16


def reciprocal(b: Builder, divisor: Value) -> Reciprocal:
    """Emits the reciprocal of a divisor."""
    magnitude = b.intrinsic("fabs", divisor)

    def number(value: float) -> Value:
        return constant(divisor.type, value)

    scale = b.select(b.compare("ogt", magnitude, number(_LARGE)), number(1 / _LARGE), number(1.0))
    scale = b.select(b.compare("olt", magnitude, number(1 / _LARGE)), number(_LARGE), scale)
    return scale, b.binary("fdiv", number(1.0), b.binary("fmul", divisor, scale))


def quotient(b: Builder, dividend: Value, by: Reciprocal) -> Value:
    """Emits the quotient in f32, which has to be rounded to bf16.

    A scaled dividend overflows, or loses bits, only where the quotient is infinite or zero.
    """
    scale, inverse = (b.splat(value, dividend.type.width) for value in by)
    return b.binary("fmul", b.binary("fmul", dividend, scale), inverse)
