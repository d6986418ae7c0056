"""Element-wise selection: select, clamp (spec 14, 106)."""

from __future__ import annotations

import numpy as np

from hloom.numerics import compute
from hloom.ops.context import Context
from hloom.ops.elementwise_binary import Maximum, Minimum, check_actual_sizes, joint_shape
from hloom.ops.operation import Operation
from hloom.ops.rules import check_array, check_same_type
from hloom.shape import Shape
from hloom.values import Array


class Select(Operation, opcode="select"):
    """Selects elements of `on_true` where `pred` is true, else of `on_false` (SELECT-1, SELECT-2).

    The result has the shape of `on_true`.
    """

    see_also = ("clamp", "conditional")
    operands = {
        "pred": "PRED: a choice for each element, or a scalar for all",
        "on_true": "array of elements chosen by true",
        "on_false": "array of elements chosen by false, of the shape of `on_true`",
    }
    elementwise = True

    def infer(self, pred: Shape, on_true: Shape, on_false: Shape) -> Shape:
        check_array(self, "SELECT-4", pred, on_true, on_false)
        if not pred.element_type.is_pred:
            self.reject("SELECT-4", f"the first operand has element type pred, got {pred}")
        check_same_type(self, "SELECT-4", on_true, on_false)
        shape = joint_shape(self, "SELECT-4", on_true, on_false)
        if not pred.is_scalar and pred.dimensions != shape.dimensions:
            self.reject("SELECT-4", f"pred is a scalar or has the dimensions of {shape}, got {pred}")
        return shape

    def evaluate(self, ctx: Context, pred: Array, on_true: Array, on_false: Array) -> Array:
        check_actual_sizes(pred, on_true, on_false)
        return np.where(pred, on_true, on_false)


class Clamp(Operation, opcode="clamp"):
    """Clamps elements to [`min`, `max`]: min(max(`min`, operand), `max`); NaN in any of the three gives NaN (CLAMP-1,
    CLAMP-3).
    """

    operands = {
        "min": "lower bound: a scalar, or one for each element",
        "operand": "array of integers or floats",
        "max": "upper bound: a scalar, or one for each element",
    }
    elementwise = True

    def infer(self, min: Shape, operand: Shape, max: Shape) -> Shape:
        check_array(self, "CLAMP-3", min, operand, max)
        check_same_type(self, "CLAMP-3", min, operand, max)
        if operand.element_type.is_complex:
            self.reject("CLAMP-3", f"complex numbers have no order, got {operand}")
        for bound in (min, max):
            if not bound.is_scalar and bound.dimensions != operand.dimensions:
                self.reject("CLAMP-2", f"min and max are scalars or have the shape of {operand}, got {bound}")
        return joint_shape(self, "CLAMP-2", operand, *(bound for bound in (min, max) if not bound.is_scalar))

    def evaluate(self, ctx: Context, min: Array, operand: Array, max: Array) -> Array:
        check_actual_sizes(min, operand, max)
        return compute(lambda low, x, high: Minimum.function(Maximum.function(low, x), high), min, operand, max)
