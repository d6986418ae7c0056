"""scan: a computation along a dimension with loop-carried values (a later addition to XLA)."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from hloom.errors import RunError
from hloom.ops.context import Computation, Context
from hloom.ops.kinds import BOOL, COMPUTATION, DIMENSION, INT, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_computation, check_dimension, result_shapes
from hloom.shape import Shape
from hloom.values import Array, Value


class TriState(enum.Enum):
    """A boolean attribute that may be unspecified."""

    TRI_STATE_UNSPECIFIED, TRI_STATE_TRUE, TRI_STATE_FALSE = "unspecified", "true", "false"


class Scan(Operation, opcode="scan"):
    """Computes (outputs.., carries..) = computation(slices of inputs.., carries..) for each index along a dimension.

    A later addition to XLA. The operands are the inputs, then `num_carries` initial carries; the result is the tuple of
    the stacked outputs and the final carries (a single one is not a tuple). A slice is an input without the dimension.
    `jax.lax.scan` is such a loop; a while loop states the same with dynamic-slice and dynamic-update-slice, and hloom
    compiles it as one.
    """

    operands = {"*operands": "inputs, whose slices the computation gets, then initial carries"}
    scan_dimension: int = attribute(
        DIMENSION, text="dimensions", proto="dimensions", doc="dimension of the inputs, and of the stacked outputs"
    )
    is_reverse: bool = attribute(BOOL, default=False, doc="whether the last index comes first")
    is_associative: TriState = attribute(
        EnumKind(TriState),
        default=TriState.TRI_STATE_UNSPECIFIED,
        doc="whether the computation is known to be associative; no effect here",
    )
    num_carries: int = attribute(INT, default=0, doc="number of carries")
    computation: Computation = attribute(
        COMPUTATION,
        text="to_apply",
        proto="called_computation_ids",
        doc="function from slices and carries to slices of the outputs and next carries",
    )

    def canonical(self, operands: Sequence[Shape]) -> Operation:
        """Replaces UNSPECIFIED by FALSE: HLO text without the attribute means not associative."""
        unspecified = self.is_associative is TriState.TRI_STATE_UNSPECIFIED
        return self.replace(is_associative=TriState.TRI_STATE_FALSE) if unspecified else self

    def _split(self, operands: tuple[Shape, ...]) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
        count = len(operands) - self.num_carries
        if not 0 <= self.num_carries <= len(operands) or not count:
            self.reject("GEN-3", f"needs inputs and {self.num_carries} carries, got {len(operands)} operands")
        return operands[:count], operands[count:]

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        check_array(self, "GEN-3", *operands)
        inputs, carries = self._split(operands)
        d = self.scan_dimension
        for shape in inputs:
            check_dimension(self, "GEN-4", d, shape.rank)
            if shape.dimensions[d] != inputs[0].dimensions[d]:
                self.reject("GEN-4", f"inputs have one size along dimension {d}, got {', '.join(map(str, inputs))}")
        slices = [shape.delete_dimensions([d]).without_layout() for shape in inputs]
        check_computation(self, "GEN-8", self.computation, [*slices, *carries], None)
        returned = self.computation.result_shape
        results = result_shapes(returned)
        ends = results[len(results) - self.num_carries :]
        if len(results) < self.num_carries or any(not a.compatible(b) for a, b in zip(ends, carries, strict=True)):
            self.reject("GEN-8", f"to_apply must return outputs and then the carries, it returns {returned}")
        count = inputs[0].dimensions[d]
        outputs = [self._stacked(shape, count) for shape in results[: len(results) - self.num_carries]]
        shapes = [*outputs, *(carry.without_layout() for carry in carries)]
        return shapes[0] if len(shapes) == 1 and not returned.is_tuple else Shape.tuple_of(shapes)

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        """Accepts a single result both as such and as a tuple of one."""
        super().check(Shape.tuple_of([result]) if result.is_array and self._gives_one(operands) else result, operands)

    def _gives_one(self, operands: tuple[Shape, ...]) -> bool:
        inferred = self.infer(operands)
        return inferred.is_tuple and len(inferred.elements) == 1

    def _stacked(self, shape: Shape, count: int) -> Shape:
        check_array(self, "GEN-8", shape)
        if self.scan_dimension > shape.rank:
            self.reject("GEN-4", f"outputs of {shape} cannot be stacked along dimension {self.scan_dimension}")
        return shape.insert_dimension(self.scan_dimension, count).without_layout()

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        count = len(operands) - self.num_carries
        inputs, carries = operands[:count], operands[count:]
        d = self.scan_dimension
        steps = {array.shape[d] for array in inputs}
        if len(steps) > 1:
            raise RunError(f"SETDIMENSIONSIZE-3: inputs have the actual sizes {sorted(steps)} along dimension {d}")
        stacked: list[list[Array]] = []
        order = range(inputs[0].shape[d])
        for step in reversed(order) if self.is_reverse else order:
            value = ctx.call(self.computation, *(np.take(array, step, d) for array in inputs), *carries)
            results = value if isinstance(value, tuple) else (value,)
            stacked.append(list(results[: len(results) - self.num_carries]))
            carries = tuple(results[len(results) - self.num_carries :])
        if self.is_reverse:
            stacked.reverse()
        shapes = result_shapes(ctx.shape)
        outputs = [
            np.stack([step[k] for step in stacked], d)
            if stacked
            else np.zeros(shape.dimensions, shape.element_type.dtype)
            for k, shape in enumerate(shapes[: len(shapes) - self.num_carries])
        ]
        values = (*outputs, *carries)
        return values if ctx.shape.is_tuple else values[0]
