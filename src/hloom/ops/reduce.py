"""Reduction and mapping by a computation: reduce, map (spec 90, 95)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ops.context import Computation, Context
from hloom.ops.elementwise_binary import check_actual_sizes
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import COMPUTATION, INTS
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_computation, check_dimensions, reduction_signature, result_shape
from hloom.ops.traits import AppliesScalar, Reduction
from hloom.shape import Ints, Shape, scalar
from hloom.values import Array, Value

Arrays = tuple[Array, ...]


def combine(ctx: Context, computation: Computation, left: Arrays, right: Arrays) -> Arrays:
    """Applies a combiner element by element: `left` holds the accumulated values, `right` the next ones."""
    value = ctx.map(computation, *left, *right)
    return value if len(left) > 1 else (value,)


def reduce_axis(ctx: Context, computation: Computation, arrays: Arrays) -> Arrays:
    """Reduces the last axis, of size >= 1, as a balanced tree that preserves order: as accurate as pairwise
    summation.
    """
    while (size := arrays[0].shape[-1]) > 1:
        even = size - size % 2
        reduced = combine(
            ctx,
            computation,
            tuple(array[..., 0:even:2] for array in arrays),
            tuple(array[..., 1:even:2] for array in arrays),
        )
        if size % 2:
            reduced = tuple(np.concatenate([f, a[..., -1:]], -1) for f, a in zip(reduced, arrays, strict=True))
        arrays = reduced
    return tuple(array[..., 0] for array in arrays)


def check_reduction(
    op: Operation, clause: str, operands: tuple[Shape, ...], init_values: tuple[Shape, ...], computation: Computation
) -> None:
    """Checks operands of equal dimensions, scalar initial values of their types, and the combiner's signature
    (REDUCE-9).
    """
    if not operands:
        op.reject(clause, "needs at least one operand")
    check_array(op, clause, *operands, *init_values)
    for operand, init in zip(operands, init_values, strict=True):
        if operand.dimensions != operands[0].dimensions:
            op.reject(clause, f"operands have equal dimensions, got {', '.join(map(str, operands))}")
        if not init.is_scalar or init.element_type is not operand.element_type:
            op.reject(clause, f"the initial value of {operand} is {operand.element_type}[], got {init}")
    parameters, result = reduction_signature([operand.element_type for operand in operands])
    check_computation(op, clause, computation, parameters, result)


class Reduce(Reduction, Operation, opcode="reduce"):
    """Reduces each operand along `dimensions` by the combiner `computation` (REDUCE-1 to REDUCE-8).

    The operands have equal dimensions; the result has those not in `dimensions`, and is a tuple if there are several
    operands. The initial value is combined once, as the left argument; it is the result of an empty reduction
    (REDUCE-3, -10).
    """

    see_also = ("reduce-window", "scan", "map", "all-reduce")
    operands = {
        "*operands": "arrays of equal dimensions",
        "*init_values": "scalar for each operand, from which the reduction starts",
    }
    dimensions: Ints = attribute(INTS, doc="dimensions to reduce; the result lacks them")
    computation: Computation = attribute(
        COMPUTATION,
        text="to_apply",
        proto="called_computation_ids",
        doc="combiner of accumulators and elements: a scalar of each operand, twice",
    )

    def infer(self, operands: tuple[Shape, ...], init_values: tuple[Shape, ...]) -> Shape:
        check_reduction(self, "REDUCE-9", operands, init_values, self.computation)
        check_dimensions(self, "REDUCE-9", self.dimensions, operands[0].rank)
        kept = [d for d in range(operands[0].rank) if d not in self.dimensions]
        shapes = [
            Shape.array(
                operand.element_type,
                (operand.dimensions[d] for d in kept),
                (operand.dynamic_dimensions[d] for d in kept),
            )
            for operand in operands
        ]
        return result_shape(shapes)

    def evaluate(self, ctx: Context, operands: Arrays, init_values: Arrays) -> Value:
        check_actual_sizes(*operands)
        kept = [d for d in range(operands[0].ndim) if d not in self.dimensions]
        kept_sizes = [operands[0].shape[d] for d in kept]
        count = int(np.prod([operands[0].shape[d] for d in self.dimensions], dtype=np.int64))
        order = [*kept, *sorted(self.dimensions)]
        init = tuple(np.broadcast_to(value, kept_sizes) for value in init_values)
        if count and operands[0].size:
            rows = tuple(operand.transpose(order).reshape(*kept_sizes, count) for operand in operands)
            init = combine(ctx, self.computation, init, reduce_axis(ctx, self.computation, rows))
        return init if len(init) > 1 else init[0]

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        kept, half = iter(index), len(at.operands) // 2
        inner = tuple(
            at.reduction(size, d) if d in self.dimensions else next(kept)
            for d, size in enumerate(at.operands[0].dimensions)
        )
        return [Read(k, inner if k < half else ()) for k in range(2 * half)]


class Map(AppliesScalar, Operation, opcode="map"):
    """Applies a computation of scalars to the elements at equal indices of all operands (MAP-1, MAP-2).

    The result has the operands' dimensions, and the element type that the computation returns.
    """

    operands = {"*operands": "arrays of equal dimensions"}
    cost = 20
    dimensions: Ints = attribute(INTS, default=(), always_printed=True, doc="all dimensions, in order; may be omitted")
    computation: Computation = attribute(
        COMPUTATION, text="to_apply", proto="called_computation_ids", doc="function of a scalar of each operand"
    )

    def canonical(self, operands: Sequence[Shape]) -> Operation:
        named = self.dimensions or not operands
        return self if named else self.replace(dimensions=tuple(range(operands[0].rank)))

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        if not operands:
            self.reject("MAP-3", "needs at least one operand")
        check_array(self, "MAP-3", *operands)
        first = operands[0]
        for operand in operands:
            if not operand.same_dimensions(first):
                self.reject("MAP-3", f"operands have equal dimensions, got {', '.join(map(str, operands))}")
        if self.dimensions != tuple(range(first.rank)):
            self.reject(
                "MAP-3", f"dimensions are all of {list(range(first.rank))} in order, got {list(self.dimensions)}"
            )
        parameters = [scalar(operand.element_type) for operand in operands]
        check_computation(self, "MAP-2", self.computation, parameters, None)
        result = self.computation.result_shape
        if not result.is_scalar:
            self.reject("MAP-2", f"{self.computation.name} must return a scalar, it returns {result}")
        return Shape.array(result.element_type, first.dimensions, first.dynamic_dimensions)

    def evaluate(self, ctx: Context, operands: Arrays) -> Array:
        check_actual_sizes(*operands)
        mapped: Array = ctx.map(self.computation, *operands)
        return mapped

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        return [Read(k, index) for k in range(len(at.operands))]
