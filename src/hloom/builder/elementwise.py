"""Builder methods for element-wise operations that broadcast, and changes of type (spec 8, 14, 22, 29 to 56, 106)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.broadcasting import Broadcasting, BroadcastPair, broadcast_shapes
from hloom.builder.arguments import dimensions_or_none, element_type, element_type_of, makes
from hloom.builder.core import BuilderCore
from hloom.builder.xla_op import XlaOp
from hloom.errors import RuleError
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.operation import OPERATIONS
from hloom.shape import UNBOUNDED, Shape, scalar
from hloom.types import PrimitiveType


class ElementwiseMethods(BuilderCore):
    """Methods for element-wise operations that broadcast, and changes of element type."""

    def _binary(self, opcode: str, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None) -> XlaOp:
        lhs, rhs = self._operands(lhs, rhs)
        plan = broadcast_shapes(opcode, lhs.shape, rhs.shape, dimensions_or_none(opcode, broadcast_dimensions))
        return self._add(OPERATIONS[opcode](), self._joined(lhs, rhs, plan))

    def _compare(
        self, direction: str, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None, total_order: bool
    ) -> XlaOp:
        lhs, rhs = self._operands(lhs, rhs)
        plan = broadcast_shapes("compare", lhs.shape, rhs.shape, dimensions_or_none("compare", broadcast_dimensions))
        element_type = lhs.shape.element_type
        kind = None
        if total_order and element_type.is_float:
            kind = ComparisonType.TOTALORDER
        elif total_order and element_type.is_complex:
            raise RuleError("compare", "TOTALORDER-2", f"complex numbers have no total order, got {lhs.shape}")
        op = OPERATIONS["compare"](direction=ComparisonDirection(direction), type=kind)
        return self._add(op, self._joined(lhs, rhs, plan))

    def _joined(self, lhs: XlaOp, rhs: XlaOp, plan: BroadcastPair) -> tuple[XlaOp, XlaOp]:
        """Brings both operands to their joint shape."""
        left, right = self._widen(lhs, plan.lhs), self._widen(rhs, plan.rhs)
        return self._sized_as(left, plan.lhs, right), self._sized_as(right, plan.rhs, left)

    def _sized_as(self, operand: XlaOp, plan: Broadcasting, other: XlaOp) -> XlaOp:
        """Gives the new dimensions of a broadcast operand the dynamic sizes of the other one (SETDIMENSIONSIZE-3)."""
        kept = {target for d, target in enumerate(plan.dimensions) if d not in plan.expanded}
        for d, dynamic in enumerate(other.shape.dynamic_dimensions):
            if dynamic and d not in kept and other.shape.dimensions[d] != UNBOUNDED:
                size = self._add(OPERATIONS["get-dimension-size"](dimension=d), (other,))
                op, shape = OPERATIONS["set-dimension-size"](dimension=d), operand.shape.with_dynamic(d)
                operand = self._add(op, (operand, size), shape)
        return operand

    def _widen(self, operand: XlaOp, plan: Broadcasting) -> XlaOp:
        """Adds the reshape and broadcast that bring an operand to the joint shape (BC-20)."""
        if plan.is_identity:
            return operand
        shape = operand.shape
        kept = [d for d in range(shape.rank) if d not in plan.expanded]
        if plan.expanded:
            # Dimensions of size 1 that grow are removed first: HLO's broadcast does not stretch dimensions.
            squeezed = Shape.array(
                shape.element_type,
                (shape.dimensions[d] for d in kept),
                (shape.dynamic_dimensions[d] for d in kept),
            )
            operand = self._add(OPERATIONS["reshape"](), (operand,), squeezed)
        targets = [plan.dimensions[d] for d in kept]
        if operand.shape.dimensions == plan.shape.dimensions and targets == list(range(plan.shape.rank)):
            return operand
        dynamic = [False] * plan.shape.rank
        for d, target in zip(kept, targets, strict=True):
            dynamic[target] = shape.dynamic_dimensions[d]
        result = Shape.array(shape.element_type, plan.shape.dimensions, dynamic)
        return self._add(OPERATIONS["broadcast"](broadcast_dimensions=targets), (operand,), result)

    @makes("clamp")
    def clamp(self, min: Any, operand: Any, max: Any) -> XlaOp:
        """Clamps elements to [min, max]; `min` and `max` may be scalars (CLAMP-1, CLAMP-2)."""
        operand = self._operand(operand, element_type_of(min, max))
        min, max = (self._operand(bound, operand.shape.element_type) for bound in (min, max))
        return self._add(OPERATIONS["clamp"](), (min, operand, max))

    @makes("select")
    def select(self, pred: Any, on_true: Any, on_false: Any) -> XlaOp:
        """Selects `on_true` where `pred`, else `on_false`; also whole tuples, by a scalar `pred` (SELECT-1 to
        SELECT-3).
        """
        pred = self._operand(pred, PrimitiveType.PRED)
        on_true, on_false = self._operands(on_true, on_false)
        if on_true.shape.is_tuple or on_false.shape.is_tuple:
            if not pred.shape.compatible(scalar(PrimitiveType.PRED)) or not on_true.shape.compatible(on_false.shape):
                raise RuleError(
                    "select",
                    "SELECT-4",
                    f"tuples of one shape are selected by pred[], got {pred.shape}, {on_true.shape}, {on_false.shape}",
                )
            return self.conditional(pred, on_true, lambda x: x, on_false, lambda x: x)
        return self._add(OPERATIONS["select"](), (pred, on_true, on_false))

    @makes("convert", new_element_type="element type of the result, as hl.f32 or its name")
    def convert_element_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Converts elements to another type (CONVERT-1)."""
        operand = self._array(operand, "convert", "CONVERT-6")
        new = element_type(new_element_type)
        return self._add(OPERATIONS["convert"](), (operand,), operand.shape.without_layout().with_element_type(new))

    @makes("bitcast-convert", new_element_type="element type of the result, as hl.f32 or its name")
    def bitcast_convert_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Reinterprets the bits as another element type (BITCASTCONVERT-1 to -3)."""
        operand = self._array(operand, "bitcast-convert", "BITCASTCONVERT-6")
        new, shape = element_type(new_element_type), operand.shape
        old_bits, new_bits = shape.element_type.bits, new.bits
        sizes, dynamic = list(shape.dimensions), list(shape.dynamic_dimensions)
        if old_bits > new_bits:
            sizes.append(old_bits // new_bits)
            dynamic.append(False)
        elif old_bits < new_bits:
            sizes, dynamic = sizes[:-1], dynamic[:-1]
        return self._add(OPERATIONS["bitcast-convert"](), (operand,), Shape.array(new, sizes, dynamic))
