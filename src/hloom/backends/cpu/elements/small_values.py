"""Arithmetic on small values in floats of 16 bits: sums of integers, which need no rounding, and products in bf16.

The product p of two numbers of bf16 has at most 16 significant bits, and f32 has it. 65537 p, rounded to the 24 bits of
f32, is 65536 p plus the nearest bf16, ties to even, since the last bit that is kept is that of the bf16, 65536 p being
a multiple of twice its value. With multiples of one factor at hand, a product and a multiply-add are the rounded one.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from hloom.affine import Expression
from hloom.lir import Builder, Value, constant
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Constant, Where
from hloom.numerics import has_infinity
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add, Multiply, Subtract
from hloom.ops.kinds import INT
from hloom.ops.operation import Operation, attribute
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Array

_SPLITTER = 65537
"""The multiple of a product that is rounded; one less is subtracted."""
_MIN_NUMBER, _MAX_NUMBER = 2.0**-20, 2.0**18
"""Magnitudes of small values other than zero."""
_MIN_FACTOR, _MAX_FACTOR = 2.0**-100, 2.0**90
"""Magnitudes of factors, beyond which results, or multiples of them, may be subnormal or overflow."""


def is_exact(expression: Apply) -> bool:
    """Whether a sum, difference or product is of converted integers, or integral constants, that are so few that the
    type has all results, as that of a quantised weight and its zero point.
    """
    is_sum = isinstance(expression.op, (Add, Subtract, Multiply))
    return is_sum and expression.type.is_float and expression.type.bits == 16 and integers_of(expression) is not None


def integers_of(expression: Expression) -> tuple[int, int] | None:
    """Returns the least and the largest value of floats that are integers without any rounding: converted ones,
    integral constants, and sums, differences and products of these that are so few that the type has all; else None.
    """
    if not expression.type.is_float:
        return None
    found = _range(expression)
    if found is None:
        return None
    return found if max(map(abs, found)) <= 2 << expression.type.mantissa_bits else None


def _range(expression: Expression) -> tuple[int, int] | None:
    if isinstance(expression, Constant):
        value = float(expression.value)
        return (int(value), int(value)) if value.is_integer() else None
    if isinstance(expression, Where):
        return _union(expression.then, expression.otherwise)
    if not isinstance(expression, Apply):
        return None
    op, operands = expression.op, expression.operands
    if isinstance(op, Convert) and operands[0].type.is_integer:
        return operands[0].type.limits
    if isinstance(op, SmallInteger):
        return op.least, op.most
    if not isinstance(op, (Add, Subtract, Multiply)):
        return None
    left, right = map(integers_of, operands)
    if left is None or right is None:
        return None
    values = [int(op.function(float(x), float(y))) for x, y in itertools.product(left, right)]
    return min(values), max(values)


def _union(*expressions: Expression) -> tuple[int, int] | None:
    found = [limits for limits in map(integers_of, expressions) if limits is not None]
    return (min(low for low, _ in found), max(high for _, high in found)) if len(found) == len(expressions) else None


class Magnitudes(NamedTuple):
    """The least magnitude of numbers other than zero, and the largest one."""

    least: float
    largest: float


def magnitudes_of(expression: Expression) -> Magnitudes | None:
    """Returns the magnitudes of integers (`integers_of`) or of converted narrow floats that are small; None for other
    floats.
    """
    limits = integers_of(expression)
    if limits is not None:
        return Magnitudes(1, max(map(abs, limits)))
    if not isinstance(expression, Apply) or not isinstance(expression.op, Convert):
        return None
    source = expression.operands[0].type
    if not source.is_float or source.bits > 8 or not _has_small_values(source.dtype):
        return None
    found = ml_dtypes.finfo(source.dtype)
    return Magnitudes(float(found.smallest_subnormal), float(found.max))


class SmallInteger(Operation):
    """A number if it is an integer between two, as zero points usually are; NaN for another one."""

    opcode = "small-integer"
    operands = {"number": "a number of f32"}
    elementwise = True
    least: int = attribute(INT, text="", proto="", doc="the least integer")
    most: int = attribute(INT, text="", proto="", doc="the largest integer")

    def infer(self, number: Shape) -> Shape:
        return number

    def evaluate(self, ctx: Any, number: Array) -> Array:
        is_small = (np.rint(number) == number) & (number >= self.least) & (number <= self.most)
        return np.where(is_small, number, np.float32(np.nan)).astype(np.float32)

    def holds(self, b: Builder, number: Value) -> Value:
        """Whether a number is such an integer."""
        is_large = b.compare("oge", number, constant(number.type, float(self.least)))
        is_small = b.binary("and", is_large, b.compare("ole", number, constant(number.type, float(self.most))))
        return b.binary("and", is_small, b.compare("oeq", b.intrinsic("rint", number), number))


def small_integer(op: SmallInteger, b: Builder, e: Apply, number: Value) -> Value:
    """Emits a small integer."""
    return b.select(op.holds(b, number), number, constant(number.type, float("nan")))


class Multiple(Operation):
    """A multiple of a factor in bf16. Beyond the magnitudes of factors it is the factor, times zero if `is_less`: their
    products are not rounded.
    """

    opcode = "multiple"
    operands = {"factor": "a number of bf16"}
    elementwise = True
    is_less: int = attribute(INT, text="", proto="", doc="whether it is the multiple that is subtracted")

    def infer(self, factor: Shape) -> Shape:
        return factor.with_element_type(PrimitiveType.F32)

    def evaluate(self, ctx: Any, factor: Array) -> Array:
        factor = factor.astype(np.float32)
        is_usual = (np.abs(factor) >= _MIN_FACTOR) & (np.abs(factor) <= _MAX_FACTOR)
        multiple = factor * np.float32(_SPLITTER - self.is_less)
        return np.where(is_usual, multiple, 0 if self.is_less else factor).astype(np.float32)


def multiple_of(op: Multiple, b: Builder, e: Apply, factor: Value) -> Value:
    """Emits a multiple."""
    magnitude = b.intrinsic("fabs", factor)
    is_large = b.compare("oge", magnitude, constant(factor.type, _MIN_FACTOR))
    is_usual = b.binary("and", is_large, b.compare("ole", magnitude, constant(factor.type, _MAX_FACTOR)))
    multiple = b.binary("fmul", factor, constant(factor.type, float(_SPLITTER - op.is_less)))
    return b.select(is_usual, multiple, constant(factor.type, 0) if op.is_less else factor)


class RoundedProduct(Operation):
    """The product of a small value and a factor, rounded to bf16, given two multiples of the factor."""

    opcode = "rounded-product"
    operands = {"number": "a small value", "multiple": "its multiple", "less": "the multiple that is subtracted"}
    elementwise = True

    def infer(self, number: Shape, multiple: Shape, less: Shape) -> Shape:
        return multiple

    def evaluate(self, ctx: Any, number: Array, multiple: Array, less: Array) -> Array:
        number = number.astype(np.float32)
        return number * multiple - number * less


def rounded_product(op: RoundedProduct, b: Builder, e: Apply, number: Value, multiple: Value, less: Value) -> Value:
    """Emits a rounded product; that with `less` is exact, so that a multiply-add may be fused or not."""
    return b.fmuladd(b.fneg(number), less, b.binary("fmul", number, multiple))


def as_rounded_product(space: ExpressionSpace, number: Expression, factor: Expression) -> Expression | None:
    """Returns the product of two numbers of bf16 as a rounded product; None unless the first one is small."""
    if factor.type is not PrimitiveType.BF16 or not _is_small(number):
        return None
    multiples = (space.apply(Multiple(is_less=is_less), PrimitiveType.F32, factor) for is_less in (0, 1))
    return space.apply(RoundedProduct(), PrimitiveType.F32, number, *multiples)


def _is_small(number: Expression) -> bool:
    """Whether all values of an expression of bf16 are zero or have magnitudes of small values, or are NaN."""
    if not isinstance(number, Apply) or number.type is not PrimitiveType.BF16:
        return False
    if is_exact(number):
        return True
    source = number.operands[0].type
    if not isinstance(number.op, Convert) or source.bits > 8 or source.is_pred:
        return False
    return source.is_integer or _has_small_values(source.dtype)


def _has_small_values(type: Any) -> bool:
    """Whether the numbers of a narrow float type are small; infinity is not."""
    limits = ml_dtypes.finfo(type)
    are_small = float(limits.smallest_subnormal) >= _MIN_NUMBER and float(limits.max) <= _MAX_NUMBER
    return are_small and not has_infinity(type)
