"""Arrays by repetition or counting: broadcast, iota (spec 9, 10, 89)."""

from __future__ import annotations

import numpy as np

from hloom.numerics import convert
from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import INT, INTS
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimension, check_dimensions, check_moved
from hloom.ops.traits import Movement
from hloom.shape import UNBOUNDED, Ints, Shape
from hloom.values import Array


class Broadcast(Movement, Operation, opcode="broadcast"):
    """Repeats the operand along new dimensions: dimension i becomes `broadcast_dimensions[i]` (BROADCASTINDIM-1).

    `broadcast_dimensions` has an entry for each operand dimension; entries are distinct, in any order, and sizes equal
    (BROADCASTINDIM-4).
    """

    see_also = ("reshape", "iota")
    mixes_precision = False
    operands = {"operand": "array to repeat"}
    cost = 0
    broadcast_dimensions: Ints = attribute(
        INTS,
        default=(),
        text="dimensions",
        proto="dimensions",
        always_printed=True,
        doc="the result dimension of each operand dimension; none for a scalar",
    )

    def check(self, result: Shape, operand: Shape) -> None:
        check_moved(self, "BROADCAST-3", operand, result)
        dimensions = self.broadcast_dimensions
        if len(dimensions) != operand.rank:
            self.reject(
                "BROADCASTINDIM-3", f"dimensions needs {operand.rank} entries for {operand}, got {list(dimensions)}"
            )
        check_dimensions(self, "BROADCASTINDIM-3", dimensions, result.rank)
        for d, target in enumerate(dimensions):
            if UNBOUNDED in (operand.dimensions[d], result.dimensions[target]):
                continue
            if (operand.dimensions[d], operand.dynamic_dimensions[d]) != (
                result.dimensions[target],
                result.dynamic_dimensions[target],
            ):
                self.reject("BROADCASTINDIM-3", f"dimension {d} of {operand} must equal dimension {target} of {result}")
        for d in range(result.rank):
            if result.dynamic_dimensions[d] and result.dimensions[d] != UNBOUNDED and d not in dimensions:
                self.reject("SETDIMENSIONSIZE-3", f"new dimension {d} of {result} must be static")

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        dimensions = self.broadcast_dimensions
        sizes = list(ctx.shape.dimensions)
        order = np.argsort(dimensions, kind="stable") if dimensions else ()
        aligned = [1] * len(sizes)
        for d, target in enumerate(dimensions):
            aligned[target] = sizes[target] = operand.shape[d]
        return np.broadcast_to(operand.transpose(order).reshape(aligned), sizes)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        return [Read(0, tuple(index[d] for d in self.broadcast_dimensions))]


class Iota(Operation, opcode="iota"):
    """Counts 0, 1, 2, .. along `iota_dimension`, constant along the other dimensions (IOTA-1).

    The result is an array of integers, floats or complex numbers; narrow integers wrap (IOTA-3).
    """

    cost = 0
    iota_dimension: int = attribute(INT, proto="dimensions", doc="dimension along which the values count")

    def check(self, result: Shape) -> None:
        check_array(self, "IOTA-3", result)
        check_dimension(self, "IOTA-3", self.iota_dimension, result.rank, "iota_dimension")
        if result.element_type.is_pred:
            self.reject("IOTA-3", f"counts in integers, floats or complex numbers, got {result}")

    def evaluate(self, ctx: Context) -> Array:
        sizes = ctx.shape.dimensions
        if 0 in sizes:
            return np.zeros(sizes, ctx.shape.element_type.dtype)
        counted = convert(np.arange(sizes[self.iota_dimension]), ctx.shape.element_type.dtype)
        aligned = [1] * len(sizes)
        aligned[self.iota_dimension] = len(counted)
        return np.broadcast_to(counted.reshape(aligned), sizes)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        return []
