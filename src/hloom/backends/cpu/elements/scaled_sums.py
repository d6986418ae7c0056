"""Sums with a constant, times a power of two, as one multiply-add with the same bits: (x + a) c = c x + c a.

Scaling by a power of two commutes with rounding while nothing is subnormal, and x + a, unless it is zero, is at least
half of the distance between adjacent numbers near a.
"""

from __future__ import annotations

import math

from hloom.affine import Expression
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant
from hloom.loops.expressions import Apply, Constant
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.types import PrimitiveType

_TYPES = (PrimitiveType.F32, PrimitiveType.F64)
_RANGE = 2.0**30
"""Bounds of both constants, whose products and rounding errors are far from the ends of f32."""


def sum_and_factor(expression: Expression) -> tuple[Expression, float, float] | None:
    """Returns x, a and c of an expression (x + a) c that is a multiply-add; None for others."""
    if not isinstance(expression, Apply) or not isinstance(expression.op, Multiply) or expression.type not in _TYPES:
        return None
    total, factor = _with_constant_last(expression)
    if not isinstance(factor, Constant) or not isinstance(total, Apply) or not isinstance(total.op, Add):
        return None
    x, addend = _with_constant_last(total)
    if not isinstance(addend, Constant) or not processor().has_fma:
        return None
    a, c = float(addend.value), float(factor.value)
    fits = all(1 / _RANGE <= abs(number) <= _RANGE for number in (a, c))
    return (x, a, c) if fits and c > 0 and math.frexp(c)[0] == 0.5 else None


def _with_constant_last(expression: Apply) -> tuple[Expression, Expression]:
    a, b = expression.operands
    return (b, a) if isinstance(a, Constant) else (a, b)


def scaled_sum(b: Builder, x: Value, a: float, c: float) -> Value:
    """Emits (x + a) c."""
    return b.intrinsic("fma", x, constant(x.type, c), constant(x.type, c * a))
