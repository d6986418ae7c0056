"""Sorting: sort, topk (spec 111, 112)."""

from __future__ import annotations

import numpy as np

from hloom.numerics import total_order_key, widen
from hloom.ops.context import Computation, Context
from hloom.ops.elementwise_binary import check_actual_sizes
from hloom.ops.kinds import BOOL, COMPUTATION, DIMENSION, INT
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_computation, check_dimension, result_shape
from hloom.ops.traits import AppliesScalar
from hloom.shape import Shape, scalar
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array, Value


class Sort(AppliesScalar, Operation, opcode="sort"):
    """Sorts the operands together along a dimension by a less-than comparator; always stable (SORT-1 to SORT-5).

    `comparator` takes two elements of each operand and returns PRED. A comparator that is not a strict weak order still
    gives a permutation of the input (SORT-6). The result has the operands' shapes, and is a tuple if there are several.
    """

    see_also = ("topk",)
    operands = {"*operands": "arrays of equal dimensions, which are sorted together"}
    dimension: int = attribute(
        DIMENSION, text="dimensions", proto="dimensions", doc="dimension along which the operands are sorted"
    )
    is_stable: bool = attribute(BOOL, default=False, doc="whether equal elements must keep their order; they always do")
    comparator: Computation = attribute(
        COMPUTATION, text="to_apply", proto="called_computation_ids", doc="less-than on two elements of each operand"
    )

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        if not operands:
            self.reject("SORT-7", "needs at least one operand")
        check_array(self, "SORT-7", *operands)
        first = operands[0]
        for operand in operands:
            if not operand.same_dimensions(first):
                self.reject("SORT-7", f"operands have equal dimensions, got {', '.join(map(str, operands))}")
        check_dimension(self, "SORT-7", self.dimension, first.rank)
        parameters = [scalar(operand.element_type) for operand in operands for _ in range(2)]
        check_computation(self, "SORT-3", self.comparator, parameters, scalar(PrimitiveType.PRED), "comparator")
        shapes = [operand.without_layout() for operand in operands]
        return result_shape(shapes)

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        check_actual_sizes(*operands)
        size = operands[0].shape[self.dimension]
        moved = [np.moveaxis(operand, self.dimension, -1) for operand in operands]
        sizes = moved[0].shape
        rows = [array.reshape(-1, size) if array.size else array.reshape(0, size) for array in moved]
        order = _merge_sort(ctx, self.comparator, rows) if rows[0].size else np.zeros(rows[0].shape, np.int64)
        results = tuple(
            np.moveaxis(np.take_along_axis(row, order, 1).reshape(sizes), -1, self.dimension) for row in rows
        )
        return results if len(results) > 1 else results[0]


def _merge_sort(ctx: Context, comparator: Computation, rows: list[Array]) -> Array:
    """The stable order of each row by a merge sort of runs of 1, 2, 4, .. elements, for all rows at once."""
    count, size = rows[0].shape
    order = np.broadcast_to(np.arange(size), (count, size)).copy()
    row_indices = np.arange(count)[:, None]

    def less(left: Array, right: Array) -> Array:
        arguments = []
        for row in rows:
            arguments += [row[row_indices, left], row[row_indices, right]]
        result: Array = ctx.map(comparator, *arguments)
        return result

    width = 1
    while width < size:
        order = _merge_runs(order, width, less)
        width *= 2
    return order


def _merge_runs(order: Array, width: int, less: object) -> Array:
    """Merges each run of `width` elements with the next one.

    An element of the left run moves by the number of smaller elements in the right run, found by binary search. These
    numbers are made ascending, so that even an inconsistent comparator gives a permutation.
    """
    count, size = order.shape
    position = np.arange(size)
    start = position // (2 * width) * (2 * width)
    middle = np.minimum(start + width, size)
    end = np.minimum(start + 2 * width, size)
    is_left = position < middle
    left = position[is_left]
    low = np.broadcast_to(middle[left], (count, len(left))).copy()
    high = np.broadcast_to(end[left], (count, len(left))).copy()
    left_items = order[:, left]
    for _ in range(int(width).bit_length()):
        searching = low < high
        probe = (low + high) // 2
        right_items = np.take_along_axis(order, np.minimum(probe, size - 1), 1)
        goes_before = less(right_items, left_items) & searching  # type: ignore[operator]
        low = np.where(goes_before, probe + 1, low)
        high = np.where(searching & ~goes_before, probe, high)
    target = left + (low - middle[left])
    target = _ascending_in_runs(target, left // (2 * width))
    result = np.empty_like(order)
    taken = np.zeros(order.shape, bool)
    np.put_along_axis(result, target, left_items, 1)
    np.put_along_axis(taken, target, True, 1)
    result[~taken] = order[:, ~is_left].reshape(-1)
    return result


def _ascending_in_runs(target: Array, run: Array) -> Array:
    """Raises targets so that they are strictly ascending within each run; runs are disjoint already."""
    rank = target - np.arange(target.shape[1])
    shift = run * (4 * target.shape[1] + 4)
    raised = np.maximum.accumulate(rank + shift, axis=1) - shift
    return raised + np.arange(target.shape[1])


class TopK(AppliesScalar, Operation, opcode="topk", builder="top_k"):
    """Takes the k largest (or smallest) elements along the last dimension, best first; (values, s32 indices) (TOPK-1).

    Of equal elements the one with the lower index comes first; floats are compared in total order (TOPK-2, TOPK-3).
    """

    operands = {"operand": "array of integers or floats"}
    k: int = attribute(INT, doc="number of elements to take, at most the size of the last dimension")
    largest: bool = attribute(BOOL, default=True, doc="whether the largest are taken, else the smallest")

    def infer(self, operand: Shape) -> Shape:
        check_array(self, "TOPK-4", operand)
        if not operand.rank or not 0 <= self.k <= operand.dimensions[-1] or operand.element_type.is_complex:
            self.reject("TOPK-4", f"k must be in [0, last size] of an ordered array, got {self.k} of {operand}")
        values = Shape.array(
            operand.element_type, (*operand.dimensions[:-1], self.k), (*operand.dynamic_dimensions[:-1], False)
        )
        return Shape.tuple_of([values, values.with_element_type(PrimitiveType.S32)])

    def evaluate(self, ctx: Context, operand: Array) -> Value:
        return top_k(operand, self.k, self.largest)


def top_k(operand: Array, k: int, largest: bool) -> tuple[Array, Array]:
    """Returns the values and s32 indices of the k best elements along the last dimension."""
    key = total_order_key(operand) if BY_DTYPE[operand.dtype].is_float else widen(operand)
    if largest:
        # The complement reverses the order of integers without overflow, and a stable sort keeps lower indices first.
        key = ~key
    order = np.argsort(key, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(operand, order, -1), order.astype(np.int32)
