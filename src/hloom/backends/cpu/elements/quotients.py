"""Quotients with a common divisor, computed as products with its reciprocal, which are the same numbers.

A quotient of two numbers of 8 bits, those of bf16, is either a bf16, or its distance from the middle between two
adjacent ones is at least 2^-17 of it, since a number of 9 bits times the divisor is never the dividend. The f32 product
with the reciprocal in f32 is closer than 2^-22. Subnormal quotients may lie in the middle, but there the product is
rounded to multiples of 2^-149, of which the error of the reciprocal is less than half of one.

Of f32, the product q with the rounded reciprocal r is corrected by the remainder, x - d q, times r (Markstein, 1990):
the sum is closer to the quotient than any middle is. The remainder is exact unless numbers are very small, and where q
overflows the sum is NaN; vectors that have such numbers, other than +0, are divided.
"""

from __future__ import annotations

import math

from hloom.affine import Expression
from hloom.backends.cpu.elements.avx512 import has_avx512
from hloom.lir import Builder, Value, constant, type_of
from hloom.loops.expressions import Apply
from hloom.ops.elementwise_binary import Divide
from hloom.types import PrimitiveType

_LARGE = 2.0**64
"""Divisors of bf16 beyond it, or below its inverse, are scaled: reciprocals would overflow, or be inexact."""
_DIVISORS = 2.0**30
"""Divisors of f32 beyond it, or below its inverse, divide."""
_LEAST = 2.0**-70
"""The least quotient of f32 that is corrected."""

Reciprocal = tuple[Value, Value]
"""The reciprocal of a divisor of f32, and the divisor; of bf16, a power of two, and the reciprocal of its product with
the divisor.
"""


def is_quotient(expression: Expression) -> bool:
    """Whether an expression is a quotient that can be computed from the reciprocal of its divisor."""
    if not isinstance(expression, Apply) or not isinstance(expression.op, Divide):
        return False
    is_f32 = expression.type is PrimitiveType.F32 and has_avx512(type_of("float", 16))
    return is_f32 or expression.type is PrimitiveType.BF16


def reciprocal(b: Builder, divisor: Value, type: PrimitiveType) -> Reciprocal:
    """Emits the reciprocal of a scalar divisor."""
    magnitude = b.intrinsic("fabs", divisor)

    def number(value: float) -> Value:
        return constant(divisor.type, value)

    if type is PrimitiveType.F32:
        has_size = (b.compare("oge", magnitude, number(1 / _DIVISORS)), b.compare("ole", magnitude, number(_DIVISORS)))
        return b.select(b.binary("and", *has_size), b.binary("fdiv", number(1.0), divisor), number(math.nan)), divisor
    scale = b.select(b.compare("ogt", magnitude, number(_LARGE)), number(1 / _LARGE), number(1.0))
    scale = b.select(b.compare("olt", magnitude, number(1 / _LARGE)), number(_LARGE), scale)
    return scale, b.binary("fdiv", number(1.0), b.binary("fmul", divisor, scale))


def quotient(b: Builder, dividend: Value, by: Reciprocal, type: PrimitiveType) -> Value:
    """Emits the quotients of a vector; those of bf16 in f32, which have to be rounded to bf16.

    A scaled dividend overflows, or loses bits, only where the quotient is infinite or zero.
    """
    first, second = (b.splat(value, dividend.type.width) for value in by)
    if type is PrimitiveType.F32:
        return _corrected(b, dividend, first, second)
    return b.binary("fmul", b.binary("fmul", dividend, first), second)


def _corrected(b: Builder, x: Value, inverse: Value, divisor: Value) -> Value:
    """Emits quotients of f32: products that are corrected, or divisions where that is not exact."""
    word = x.type.integer
    product = b.binary("fmul", x, inverse)
    remainder = b.intrinsic("fma", b.fneg(divisor), product, x)
    found = b.stack_array(x.type, 1)
    near = b.intrinsic("fma", remainder, inverse, product)
    b.store(near, found, _align(x))
    is_outside = b.compare("ult", b.intrinsic("fabs", near), constant(x.type, _LEAST))
    with b.when(b.any_lane(is_outside)):
        is_zero = b.binary("or", b.bitcast(x, word), b.bitcast(near, word))
        must_divide = b.binary("and", is_outside, b.compare("ne", is_zero, constant(word, 0)))
        with b.when(b.any_lane(must_divide)):
            b.store(b.binary("fdiv", x, divisor), found, _align(x))
    return b.load(found, x.type, _align(x))


def _align(value: Value) -> int:
    return value.type.bits // 8
