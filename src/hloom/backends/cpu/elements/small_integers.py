"""Arithmetic on small integers in floats of 16 bits, the results of which need no rounding."""

from __future__ import annotations

import itertools

import ml_dtypes

from hloom.affine import Expression
from hloom.loops.expressions import Apply, Constant
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add, Multiply, Subtract


def is_exact(expression: Apply) -> bool:
    """Whether a sum, difference or product is of converted integers, or integral constants, that are so few that the
    type has all results, as that of a quantised weight and its zero point.
    """
    op, type = expression.op, expression.type
    if not isinstance(op, (Add, Subtract, Multiply)) or not (type.is_float and type.bits == 16):
        return False
    left, right = map(_range, expression.operands)
    if left is None or right is None:
        return False
    largest = max(abs(op.function(float(x), float(y))) for x, y in itertools.product(left, right))
    return bool(largest <= 2 ** (ml_dtypes.finfo(type.dtype).nmant + 1))


def _range(operand: Expression) -> tuple[int, int] | None:
    """Returns the least and the largest value of an integer; None for other operands."""
    if isinstance(operand, Constant):
        value = float(operand.value)
        return (int(value), int(value)) if value.is_integer() else None
    if isinstance(operand, Apply) and isinstance(operand.op, Convert) and operand.operands[0].type.is_integer:
        limits = ml_dtypes.iinfo(operand.operands[0].type.dtype)
        return int(limits.min), int(limits.max)
    return None
