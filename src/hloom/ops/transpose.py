"""Permutations of elements: transpose, reverse (spec 101, 113)."""

from __future__ import annotations

import numpy as np

from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import INTS
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimensions
from hloom.ops.traits import Movement
from hloom.shape import Ints, Shape
from hloom.values import Array


class Transpose(Movement, Operation, opcode="transpose", builder="transpose"):
    """Permutes dimensions: result dimension i is operand dimension `permutation[i]` (TRANSPOSE-1)."""

    see_also = ("reverse", "copy")
    operands = {"operand": "array of any type"}
    cost = 0
    permutation: Ints = attribute(INTS, text="dimensions", proto="dimensions", doc="a permutation of 0 .. rank-1")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "TRANSPOSE-2", operand)
        if sorted(self.permutation) != list(range(operand.rank)):
            self.reject(
                "TRANSPOSE-2",
                f"permutation must be one of 0 .. {operand.rank - 1} for {operand}, got {list(self.permutation)}",
            )
        return Shape.array(
            operand.element_type,
            (operand.dimensions[d] for d in self.permutation),
            (operand.dynamic_dimensions[d] for d in self.permutation),
        )

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return operand.transpose(self.permutation)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        return [Read(0, tuple(index[self.permutation.index(d)] for d in range(len(index))))]


class Reverse(Movement, Operation, opcode="reverse", builder="rev"):
    """Reverses the order of elements along `dimensions`: index i becomes N - 1 - i (REV-1).

    N is the actual size of a dynamic dimension.
    """

    operands = {"operand": "array of any type"}
    cost = 0
    dimensions: Ints = attribute(INTS, doc="dimensions in which the order is reversed")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "REV-2", operand)
        check_dimensions(self, "REV-2", self.dimensions, operand.rank)
        return operand.without_layout()

    def evaluate(self, ctx: Context, operand: Array) -> Array:
        return np.flip(operand, self.dimensions)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        sizes = enumerate(zip(index, at.result.dimensions, strict=True))
        flipped = (at.space.shift(at.space.scale(i, -1), n - 1) if d in self.dimensions else i for d, (i, n) in sizes)
        return [Read(0, tuple(flipped))]
