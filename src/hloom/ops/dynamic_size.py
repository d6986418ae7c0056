"""Dimensions with sizes known at run time: get-dimension-size, set-dimension-size (spec 85, 86)."""

from __future__ import annotations

import numpy as np

from hloom.errors import RunError
from hloom.ops.context import Context
from hloom.ops.kinds import DIMENSION
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimension
from hloom.ops.traits import NoWork
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import Array

S32 = scalar(PrimitiveType.S32)


class GetDimensionSize(NoWork, Operation, opcode="get-dimension-size", builder="get_dimension_size"):
    """Returns the size of a dimension as s32[], the actual one if the dimension is dynamic (GETDIMENSIONSIZE-1)."""

    see_also = ("set-dimension-size",)
    operands = {"operand": "array of any type"}
    dimension: int = attribute(DIMENSION, text="dimensions", proto="dimensions", doc="dimension whose size is returned")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "GETDIMENSIONSIZE-2", operand)
        check_dimension(self, "GETDIMENSIONSIZE-2", self.dimension, operand.rank)
        return S32

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return np.asarray(operand.shape[self.dimension], np.int32)


class SetDimensionSize(NoWork, Operation, opcode="set-dimension-size"):
    """Makes a dimension dynamic, with the run-time size `size`; elements beyond it are ignored (SETDIMENSIONSIZE-1,
    -2).

    The bound as a constant makes the dimension static again (SETDIMENSIONSIZE-5).
    """

    see_also = ("dynamic-reshape",)
    operands = {
        "operand": "array of any type",
        "size": "size at run time: s32[], in [0, bound]",
    }
    dimension: int = attribute(DIMENSION, text="dimensions", proto="dimensions", doc="dimension that becomes dynamic")

    def check(self, result: Shape, operand: Shape, size: Shape) -> None:
        check_array(self, "SETDIMENSIONSIZE-5", operand, result)
        check_dimension(self, "SETDIMENSIONSIZE-5", self.dimension, operand.rank)
        if not size.compatible(S32):
            self.reject("SETDIMENSIONSIZE-5", f"the size is s32[], got {size}")
        others = [flag for d, flag in enumerate(operand.dynamic_dimensions) if d != self.dimension]
        if (
            result.element_type is not operand.element_type
            or result.dimensions != operand.dimensions
            or [flag for d, flag in enumerate(result.dynamic_dimensions) if d != self.dimension] != others
        ):
            self.reject("SETDIMENSIONSIZE-1", f"only dimension {self.dimension} changes, got {result} from {operand}")

    def evaluate(self, ctx: Context, operand: Array, size: Array) -> Array:
        d, bound, new = self.dimension, ctx.shape.dimensions[self.dimension], int(size)
        if not 0 <= new <= bound:
            raise RunError(f"SETDIMENSIONSIZE-5: size {new} of dimension {d} must be in [0, {bound}]")
        if new < bound and not ctx.shape.dynamic_dimensions[d]:
            raise RunError(
                f"SETDIMENSIONSIZE-5: size {new} makes dimension {d} dynamic, but {ctx.shape} is static there"
            )
        kept = operand[(slice(None),) * d + (slice(new),)]
        missing = new - kept.shape[d]
        return np.pad(kept, [(0, missing if axis == d else 0) for axis in range(kept.ndim)]) if missing else kept
