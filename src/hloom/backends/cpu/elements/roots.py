"""Comparisons of square roots and moduli with constants, as comparisons of what the root is taken of.

A rounded root never decreases, so it is below a constant exactly where its operand is below the smallest number whose
rounded root is not. A processor takes a root in the time of some ten other instructions.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np

from hloom.affine import Expression
from hloom.backends.cpu.elements.functions.complex_arithmetic import is_infinite, squared_modulus
from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.backends.cpu.elements.types import Element
from hloom.lir import Builder, Value
from hloom.loops.expressions import Apply, Constant
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.elementwise_unary import Abs, Sqrt
from hloom.types import PrimitiveType

_BELOW = (ComparisonDirection.LT, ComparisonDirection.LE)
_STRICT = (ComparisonDirection.GT, ComparisonDirection.LE)
_DIRECTIONS = {*_BELOW, *_STRICT, ComparisonDirection.GE}
_TYPES = (PrimitiveType.F32, PrimitiveType.F64)
_RANGE = 2.0**40
"""Constants up to it, and down to its inverse, have squares in range; of larger and smaller moduli the squares may
overflow and underflow, which does not change the result."""


def is_root_comparison(expression: Expression) -> bool:
    """Whether an expression compares a square root, or the modulus of a complex number, with a constant."""
    if not isinstance(expression, Apply) or not isinstance(expression.op, Compare):
        return False
    root, bound = expression.operands
    if not isinstance(root, Apply) or not isinstance(bound, Constant) or root.type not in _TYPES:
        return False
    is_root = isinstance(root.op, Sqrt) or (isinstance(root.op, Abs) and root.operands[0].type.is_complex)
    has_order = expression.op.direction in _DIRECTIONS and not expression.op.is_total_order
    return is_root and has_order and 1 / _RANGE <= float(bound.value) <= _RANGE


def compare_root(b: Builder, expression: Apply, operand: Element) -> Value:
    """Emits a comparison of the root or modulus of `operand`, whose result for NaN is false as well."""
    direction, bound = cast(Compare, expression.op).direction, cast(Constant, expression.operands[1])
    limit = _smallest_square(bound.type.dtype, float(bound.value), direction in _STRICT)
    if isinstance(operand, tuple):
        z = Lanes(b, operand[0]), Lanes(b, operand[1])
        square = squared_modulus(z)
        return (square < limit if direction in _BELOW else (square >= limit) | is_infinite(z)).value
    square = Lanes(b, operand)
    return ((square >= 0.0) & (square < limit) if direction in _BELOW else square >= limit).value


@functools.cache
def _smallest_square(dtype: Any, bound: float, is_strict: bool) -> float:
    """Returns the smallest number of a type whose rounded root reaches the bound, or is above it."""
    limit = dtype.type(bound)
    square = limit * limit

    def reaches(number: Any) -> bool:
        return bool(np.sqrt(number) > limit if is_strict else np.sqrt(number) >= limit)

    while not reaches(square):
        square = np.nextafter(square, dtype.type(np.inf))
    while reaches(below := np.nextafter(square, dtype.type(0))):
        square = below
    return float(square)
