"""Operations on windows: reduce-window, select-and-scatter (spec 98, 107, WIN-1 to WIN-6)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hloom.affine import Index
from hloom.ops.attributes import Window, WindowDimension
from hloom.ops.context import Computation, Context
from hloom.ops.elementwise_binary import check_actual_sizes
from hloom.ops.indexing import Indexing, Indices, Range, Read
from hloom.ops.kinds import COMPUTATION, WINDOW
from hloom.ops.operation import Operation, attribute
from hloom.ops.reduce import Arrays, check_reduction, combine
from hloom.ops.rules import check_array, check_computation, result_shape
from hloom.ops.scatter import apply_updates
from hloom.ops.traits import AppliesScalar, Reduction
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import Array, Value

Marked = tuple[Arrays, Array]
"""Arrays, and a mask of the elements that are present, as opposed to padding and holes."""


def check_window(op: Operation, clause: str, window: Window, sizes: Sequence[int]) -> list[int]:
    """Checks a window over dimensions of the given sizes (WIN-6); returns the number of positions along each
    (WIN-2).
    """
    if len(window) != len(sizes):
        op.reject(clause, f"the window needs {len(sizes)} dimensions, got {len(window)}")
    for d in window:
        if d.size < 1 or d.stride < 1 or d.window_dilation < 1 or d.base_dilation < 1:
            op.reject("WIN-6", f"window size, stride and dilations must be >= 1, got {d}")
    return [d.count(size) for d, size in zip(window, sizes, strict=True)]


def cumulative_dimension(window: Window, sizes: tuple[int, ...]) -> int | None:
    """Returns the dimension along which a window computes a forward or backward scan; None for other windows."""
    found = [d for d, w in enumerate(window) if w != WindowDimension()]
    if len(found) != 1:
        return None
    (dimension,) = found
    size, w = sizes[dimension], window[dimension]
    for padding in ((size - 1, 0), (0, size - 1)):
        if w == WindowDimension(size, 1, *padding, window_reversal=w.window_reversal):
            return dimension
    return None


class ReduceWindow(Reduction, Operation, opcode="reduce-window"):
    """Reduces the elements of each window position by the combiner `computation` (REDUCEWINDOW-1).

    The accumulator starts as the initial value and is the left argument; padding and holes are skipped
    (REDUCEWINDOW-2). The sizes of the result are the numbers of window positions (WIN-2).
    """

    see_also = ("select-and-scatter", "convolution")
    operands = {
        "*operands": "arrays of equal dimensions",
        "*init_values": "scalar for each operand, from which each reduction starts",
    }
    window: Window = attribute(WINDOW, default=(), doc="size, stride, padding and dilations in each dimension")
    computation: Computation = attribute(
        COMPUTATION,
        text="to_apply",
        proto="called_computation_ids",
        doc="combiner of accumulators and elements: a scalar of each operand, twice",
    )

    def infer(self, operands: tuple[Shape, ...], init_values: tuple[Shape, ...]) -> Shape:
        check_reduction(self, "REDUCEWINDOW-7", operands, init_values, self.computation)
        counts = check_window(self, "REDUCEWINDOW-7", self.window, operands[0].dimensions)
        shapes = [Shape.array(operand.element_type, counts, operand.dynamic_dimensions) for operand in operands]
        return result_shape(shapes)

    def evaluate(self, ctx: Context, operands: Arrays, init_values: Arrays) -> Value:
        check_actual_sizes(*operands)
        arrays = operands
        present = np.ones(arrays[0].shape, bool)
        for axis, d in enumerate(self.window):
            if d != WindowDimension():
                arrays, present = _reduce_window_axis(ctx, self.computation, arrays, present, axis, d)
        init = tuple(np.broadcast_to(value, present.shape) for value in init_values)
        reduced = combine(ctx, self.computation, init, arrays) if present.size else init
        results = tuple(np.where(present, new, old) for new, old in zip(reduced, init, strict=True))
        return results if len(results) > 1 else results[0]

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        inner: list[Index] = []
        conditions: list[Range] = []
        for i, d, size in zip(index, self.window, at.operands[0].dimensions, strict=True):
            step = at.space.scale(at.reduction(d.size, len(inner)), d.window_dilation)
            position = at.space.shift(at.space.add(at.space.scale(i, d.stride), step), -d.padding_low)
            element, inside = at.dilated(position, size, d.base_dilation)
            inner.append(element)
            conditions += inside
        half = len(at.operands) // 2
        values = [Read(k, tuple(inner), tuple(conditions)) for k in range(half)]
        return [*values, *(Read(half + k, ()) for k in range(half))]


def _reduce_window_axis(
    ctx: Context, computation: Computation, arrays: Arrays, present: Array, axis: int, window: WindowDimension
) -> Marked:
    """Reduces the windows along one axis; `present` marks elements, as opposed to padding and holes.

    A run of 2k elements is reduced from two runs of k, so that a window of n elements takes log2(n) steps; runs for the
    binary digits of n are concatenated to the window.
    """
    base = window.dilated_base(arrays[0].shape[axis])
    low, high = window.padding_low, window.padding_high
    arrays = tuple(np.moveaxis(_padded(np.moveaxis(a, axis, 0), window, base, low, high), 0, -1) for a in arrays)
    present = np.moveaxis(_padded(np.moveaxis(present, axis, 0), window, base, low, high), 0, -1)
    starts = np.arange(_positions(present.shape[-1], window)) * window.stride
    run: Marked = arrays, present
    result: Marked | None = None
    offset, length = 0, 1
    while True:
        if window.size & length:
            piece = _part(run, starts + offset * window.window_dilation)
            result = piece if result is None else _join(ctx, computation, result, piece)
            offset += length
        if length * 2 > window.size:
            break
        step = length * window.window_dilation
        rest = max(0, run[1].shape[-1] - step)
        run = _join(ctx, computation, _part(run, slice(rest)), _part(run, slice(step, None)))
        length *= 2
    assert result is not None
    return tuple(np.moveaxis(a, -1, axis) for a in result[0]), np.moveaxis(result[1], -1, axis)


def _part(run: Marked, index: Array | slice) -> Marked:
    """Returns elements along the last axis."""
    return tuple(a[..., index] for a in run[0]), run[1][..., index]


def _positions(padded: int, window: WindowDimension) -> int:
    return 0 if padded < window.dilated_size else (padded - window.dilated_size) // window.stride + 1


def _padded(array: Array, window: WindowDimension, base: int, low: int, high: int) -> Array:
    """Dilates and pads the first axis with zeros; negative padding removes elements (WIN-4)."""
    dilated = np.zeros((base, *array.shape[1:]), array.dtype)
    dilated[:: window.base_dilation] = array
    size = max(0, base + low + high)
    result = np.zeros((size, *array.shape[1:]), array.dtype)
    first, last = max(0, low), min(size, base + low)
    if first < last:
        result[first:last] = dilated[first - low : last - low]
    return result


def _join(ctx: Context, computation: Computation, left: Marked, right: Marked) -> Marked:
    """Combines two runs where both are present; elsewhere takes the one that is."""
    reduced = combine(ctx, computation, left[0], right[0]) if left[1].size else left[0]
    both = left[1] & right[1]
    values = tuple(
        np.where(both, f, np.where(left[1], a, b)) for f, a, b in zip(reduced, left[0], right[0], strict=True)
    )
    return values, left[1] | right[1]


class SelectAndScatter(AppliesScalar, Operation, opcode="select-and-scatter"):
    """Selects one element of each window, and combines `source` into the selected positions (SELECTANDSCATTER-1 to -3).

    `source` has an element for each window position; the result has the operand's shape, and starts as `init_value`.
    Padding is never selected; `select` decides between equal elements, with the one at the lower index as its left
    argument.
    """

    operands = {
        "operand": "array in whose windows elements are selected",
        "source": "value for each window position",
        "init_value": "scalar with which the result is filled before",
    }
    window: Window = attribute(WINDOW, default=(), doc="size, stride and padding in each dimension")
    select: Computation = attribute(
        COMPUTATION, proto="called_computation_ids.0", doc="comparison of two elements: whether the first is selected"
    )
    scatter: Computation = attribute(
        COMPUTATION, proto="called_computation_ids.1", doc="combiner of the values that reach one element"
    )

    def infer(self, operand: Shape, source: Shape, init_value: Shape) -> Shape:
        check_array(self, "SELECTANDSCATTER-4", operand, source, init_value)
        counts = check_window(self, "SELECTANDSCATTER-4", self.window, operand.dimensions)
        element = scalar(operand.element_type)
        pred = scalar(PrimitiveType.PRED)
        check_computation(self, "SELECTANDSCATTER-4", self.select, [element, element], pred, "select")
        check_computation(self, "SELECTANDSCATTER-4", self.scatter, [element, element], element, "scatter")
        if source.element_type is not operand.element_type or list(source.dimensions) != counts:
            self.reject("SELECTANDSCATTER-4", f"source must be {operand.element_type}{counts}, got {source}")
        if not init_value.compatible(element):
            self.reject("SELECTANDSCATTER-4", f"the initial value is {element}, got {init_value}")
        return operand.without_layout()

    def evaluate(self, ctx: Context, operand: Array, source: Array, init_value: Array) -> Array:
        result = np.full(operand.size, init_value, operand.dtype)
        if source.size and operand.size:
            chosen, found = self._select(ctx, operand, source.shape)
            positions, values = chosen[found], source[found]
            apply_updates(ctx, self.scatter, [result], positions, [values])
        return result.reshape(operand.shape)

    def _select(self, ctx: Context, operand: Array, counts: tuple[int, ...]) -> tuple[Array, Array]:
        """The linear index of each window's selected element, and whether the window holds any element."""
        flat = operand.reshape(-1)
        chosen = np.zeros(counts, np.int64)
        best = np.zeros(counts, operand.dtype)
        found = np.zeros(counts, bool)
        grids = np.ogrid[tuple(slice(count) for count in counts)] if counts else []
        for offsets in itertools.product(*(range(d.size) for d in self.window)):
            linear = np.zeros((1,) * len(counts), np.int64)
            inside = np.ones((1,) * len(counts), bool)
            for grid, k, d, size in zip(grids, offsets, self.window, operand.shape, strict=True):
                position = grid * d.stride + k * d.window_dilation - d.padding_low
                index = position // d.base_dilation
                inside = inside & (position >= 0) & (position % d.base_dilation == 0) & (index < size)
                linear = linear * size + index
            linear, inside = np.broadcast_to(linear, counts), np.broadcast_to(inside, counts)
            value = flat[np.where(inside, linear, 0)]
            keep = found & ctx.map(self.select, best, value)
            take = inside & ~keep
            chosen, best, found = np.where(take, linear, chosen), np.where(take, value, best), found | inside
        return chosen, found
