"""Comparisons: compare (spec 45 to 56)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from hloom.numerics import total_order_key, widen
from hloom.ops.attributes import ComparisonDirection, ComparisonOrder, ComparisonType
from hloom.ops.context import Context
from hloom.ops.elementwise_binary import check_actual_sizes, joint_shape
from hloom.ops.kinds import EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_same_type
from hloom.shape import Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

FUNCTIONS: dict[ComparisonDirection, Any] = {
    ComparisonDirection.EQ: operator.eq,
    ComparisonDirection.NE: operator.ne,
    ComparisonDirection.GE: operator.ge,
    ComparisonDirection.GT: operator.gt,
    ComparisonDirection.LE: operator.le,
    ComparisonDirection.LT: operator.lt,
}
"""The functions on NumPy arrays."""


class Compare(Operation, opcode="compare"):
    """Compares `lhs` and `rhs` element by element; the result is PRED (COMPARE-1).

    Floats are compared by IEEE 754, where comparisons with NaN are false except NE (COMPARE-2), or with
    `type=TOTALORDER` by -NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN (TOTALORDER-1). Complex numbers support
    EQ and NE only (COMPARE-3).
    """

    see_also = ("select", "sort")
    operands = {
        "lhs": "left array",
        "rhs": "right array, of the shape and type of `lhs`",
    }
    elementwise = True
    direction: ComparisonDirection = attribute(
        EnumKind(ComparisonDirection),
        proto="comparison_direction",
        doc="comparison, such as GE for greater or equal",
    )
    type: ComparisonType | None = attribute(
        EnumKind(ComparisonType),
        default=None,
        proto="comparison_type",
        doc="kind of comparison; that of the element type if not given",
    )
    order: ComparisonOrder | None = attribute(
        EnumKind(ComparisonOrder), default=None, proto="comparison_order", doc="alternative to `type`"
    )

    @property
    def is_total_order(self) -> bool:
        """Whether floats are compared by TOTALORDER-1."""
        return self.type is ComparisonType.TOTALORDER or self.order is ComparisonOrder.TOTAL

    def canonical(self, operands: Sequence[Shape]) -> Operation:
        """Removes the order, and a type other than TOTALORDER, which the operands' element type implies."""
        if (self.type is None and self.order is None) or not operands or not operands[0].is_array:
            return self
        total = operands[0].element_type.is_float and self.order is ComparisonOrder.TOTAL
        if total or self.type is ComparisonType.TOTALORDER:
            return self.replace(type=ComparisonType.TOTALORDER, order=None)
        return self.replace(type=None, order=None)

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check_array(self, "COMPARE-1", lhs, rhs)
        check_same_type(self, "GEN-5", lhs, rhs)
        element_type = lhs.element_type
        if self.order is not None:
            return self.canonical([lhs, rhs]).infer(lhs, rhs)
        if element_type.is_complex and (
            self.direction not in (ComparisonDirection.EQ, ComparisonDirection.NE)
            or self.type is ComparisonType.TOTALORDER
        ):
            self.reject("COMPARE-3", f"complex numbers have no order: EQ or NE, got {self.direction.value} of {lhs}")
        if self.type is ComparisonType.TOTALORDER and not element_type.is_float:
            self.reject("TOTALORDER-2", f"TOTALORDER is a type for floats, got {lhs}")
        return joint_shape(self, "COMPARE-1", lhs, rhs).with_element_type(PrimitiveType.PRED)

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        check_actual_sizes(lhs, rhs)
        if self.is_total_order and BY_DTYPE[lhs.dtype].is_float:
            lhs, rhs = total_order_key(lhs), total_order_key(rhs)
        else:
            lhs, rhs = widen(lhs), widen(rhs)
        result: Array = FUNCTIONS[self.direction](lhs, rhs)
        return result
