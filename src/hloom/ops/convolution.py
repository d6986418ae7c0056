"""convolution: sums of products over windows, with any dilations, groups and dimension order (spec 20, 21)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.numerics import convert, pairwise_sum
from hloom.ops.attributes import ConvolutionDimensionNumbers, Precision, Window, WindowDimension
from hloom.ops.context import Context
from hloom.ops.dot import accumulator, check_product_types, matmul
from hloom.ops.kinds import DIM_LABELS, INT, PRECISIONS, WINDOW
from hloom.ops.operation import Operation, attribute
from hloom.ops.reduce_window import check_window
from hloom.ops.rules import check_array
from hloom.shape import Ints, Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

MIN_WINDOW_IMAGE_RATIO = 2
"""The minimum ratio of window to image, in elements, at which the operands are swapped."""


class Convolution(Operation, opcode="convolution"):
    """Convolves `lhs` with the kernel `rhs`: sums of products over windows and input features (CONVGENERAL-1 to -10).

    `dim_labels` assigns batch, feature and spatial dimensions. The window's sizes are those of the kernel.
    `feature_group_count` divides input and output features, `batch_group_count` the batch and the output features; at
    most one of them exceeds 1. Output sizes along spatial dimensions are the numbers of window positions (WIN-2).
    """

    operands = {
        "lhs": "input: batch, features, and spatial dimensions",
        "rhs": "kernel: input features, output features, and the window's dimensions",
    }
    window: Window = attribute(
        WINDOW, default=(), doc="size, stride, padding, dilations and reversal in each spatial dimension"
    )
    dimension_numbers: ConvolutionDimensionNumbers = attribute(
        DIM_LABELS,
        text="dim_labels",
        proto="convolution_dimension_numbers",
        doc="meaning of the dimensions of input, kernel and result",
    )
    feature_group_count: int = attribute(INT, default=1, doc="number of groups of features that are convolved apart")
    batch_group_count: int = attribute(INT, default=1, doc="number of groups of the batch that are convolved apart")
    operand_precision: tuple[Precision, ...] = attribute(
        PRECISIONS,
        default=(),
        proto="precision_config.operand_precision",
        doc="precision of each operand; above the default, sums are direct (no Winograd)",
    )

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        check_array(self, "CONVGENERAL-11", lhs, rhs)
        check_product_types(self, "CONVGENERAL-11", lhs, rhs, None)
        return self.result_shape(lhs, rhs, lhs.element_type)

    def check(self, result: Shape, lhs: Shape, rhs: Shape) -> None:
        check_array(self, "CONVGENERAL-11", lhs, rhs, result)
        check_product_types(self, "CONVGENERAL-11", lhs, rhs, result)
        self.check_declared(result, self.result_shape(lhs, rhs, result.element_type))

    def result_shape(self, lhs: Shape, rhs: Shape, element_type: PrimitiveType) -> Shape:
        """Checks the operands and returns the result shape with an element type."""
        n = self.dimension_numbers
        self._check_dim_labels(lhs, rhs)
        counts = check_window(
            self, "CONVGENERAL-11", self.window, [lhs.dimensions[d] for d in n.input_spatial_dimensions]
        )
        for d, kernel in zip(self.window, n.kernel_spatial_dimensions, strict=True):
            if d.size != rhs.dimensions[kernel]:
                self.reject("CONVGENERAL-11", f"window size {d.size} must be that of dimension {kernel} of {rhs}")
        batch, features = lhs.dimensions[n.input_batch_dimension], lhs.dimensions[n.input_feature_dimension]
        outputs = rhs.dimensions[n.kernel_output_feature_dimension]
        inputs = rhs.dimensions[n.kernel_input_feature_dimension]
        groups, batch_groups = self.feature_group_count, self.batch_group_count
        if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
            self.reject("CONVGENERAL-11", f"group counts are >= 1, one of them 1, got {groups} and {batch_groups}")
        if features % groups or outputs % groups or inputs * groups != features:
            self.reject(
                "CONVGENERAL-7",
                f"feature_group_count {groups} must divide {features} input and {outputs} output features, and the "
                f"kernel must have {features}/{groups} input features, got {inputs}",
            )
        if batch % batch_groups or outputs % batch_groups:
            self.reject("CONVGENERAL-9", f"batch_group_count {batch_groups} must divide {batch} and {outputs}")
        sizes = [0] * lhs.rank
        sizes[n.output_batch_dimension] = batch // batch_groups
        sizes[n.output_feature_dimension] = outputs
        for number, count in zip(n.output_spatial_dimensions, counts, strict=True):
            sizes[number] = count
        dynamic = [False] * lhs.rank
        dynamic[n.output_batch_dimension] = lhs.dynamic_dimensions[n.input_batch_dimension]
        return Shape.array(element_type, sizes, dynamic)

    def _check_dim_labels(self, lhs: Shape, rhs: Shape) -> None:
        n = self.dimension_numbers
        if lhs.rank != rhs.rank or lhs.rank < 2:
            self.reject("CONVGENERAL-11", f"operands have one rank of at least 2, got {lhs} and {rhs}")
        for what, dimensions in (
            ("input", (n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions)),
            (
                "kernel",
                (n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, *n.kernel_spatial_dimensions),
            ),
            ("output", (n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions)),
        ):
            if sorted(dimensions) != list(range(lhs.rank)):
                self.reject("CONVGENERAL-1", f"{what} dimension numbers must be 0 .. {lhs.rank - 1}, got {dimensions}")

    @property
    def has_groups(self) -> bool:
        """Whether groups of features, or of the batch, are convolved apart."""
        return self.feature_group_count > 1 or self.batch_group_count > 1

    def exchanged(self, image: Ints) -> tuple[Convolution, Ints] | None:
        """Returns the convolution with swapped operands if the window is much larger than the image, else None.

        The second result are the dimensions in which the kernel must be reversed first. Each output then costs as many
        products as the image has elements; padding applies to the kernel (CONVGENERAL-3).
        """
        n, window = self.dimension_numbers, self.window
        sizes = [image[d] for d in n.input_spatial_dimensions]
        if self.has_groups or 0 in sizes or not all(w.is_plain for w in window):
            return None
        if math.prod(d.size for d in window) < MIN_WINDOW_IMAGE_RATIO * math.prod(sizes):
            return None
        backward = tuple(d for d, w in zip(n.kernel_spatial_dimensions, window, strict=True) if not w.window_reversal)
        exchanged = tuple(
            WindowDimension(
                size=size,
                padding_low=w.padding_low + size - w.size,
                padding_high=w.padding_high + size - w.size,
                window_reversal=True,
            )
            for w, size in zip(window, sizes, strict=True)
        )
        precision = tuple(reversed(self.operand_precision))
        return self.replace(window=exchanged, dimension_numbers=n.exchanged, operand_precision=precision), backward

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        exchanged = self.exchanged(lhs.shape)
        if exchanged is not None:
            op, backward = exchanged
            return op.evaluate(ctx, np.flip(rhs, backward), lhs)
        n = self.dimension_numbers
        computing = accumulator(BY_DTYPE[lhs.dtype], BY_DTYPE[rhs.dtype], ctx.shape.element_type)
        base = lhs.transpose(n.input_batch_dimension, *n.input_spatial_dimensions, n.input_feature_dimension)
        kernel = rhs.transpose(
            *n.kernel_spatial_dimensions, n.kernel_input_feature_dimension, n.kernel_output_feature_dimension
        )
        result = self._convolve(convert(base, computing), convert(kernel, computing), lhs.dtype, rhs.dtype)
        order = [0] * result.ndim
        order[n.output_batch_dimension], order[n.output_feature_dimension] = 0, result.ndim - 1
        for i, d in enumerate(n.output_spatial_dimensions):
            order[d] = i + 1
        return convert(result.transpose(order), ctx.shape.element_type.dtype)

    def _convolve(self, base: Array, kernel: Array, lhs: np.dtype[Any], rhs: np.dtype[Any]) -> Array:
        """Convolves [batch, spatial.., features] with [spatial.., inputs, outputs] to [batch, spatial.., outputs]."""
        window = self.window
        padded = _dilate_and_pad(base, window)
        counts = [d.count(size) for d, size in zip(window, base.shape[1:-1], strict=True)]
        groups, batch_groups = self.feature_group_count, self.batch_group_count
        batch, inputs, outputs = base.shape[0] // batch_groups, kernel.shape[-2], kernel.shape[-1]
        count = groups * batch_groups
        rows = math.prod([batch, *counts])

        def products(offsets: tuple[int, ...]) -> Array:
            """Products with one window element: [groups, rows, outputs of a group]."""
            part = padded[(slice(None), *(
                slice(k * d.window_dilation, k * d.window_dilation + (c - 1) * d.stride + 1 if c else 0, d.stride)
                for k, d, c in zip(offsets, window, counts, strict=True)
            ))]  # fmt: skip
            # Move groups to the front: slices of the batch or of the features, with their slice of outputs.
            split = part.reshape(batch_groups, batch, *counts, groups, inputs)
            factors = np.moveaxis(split, -2, 1).reshape(count, -1, inputs) if split.size else np.zeros(
                (count, rows, inputs), base.dtype)  # fmt: skip
            taps = tuple(d.size - 1 - k if d.window_reversal else k for k, d in zip(offsets, window, strict=True))
            weights = kernel[taps].reshape(inputs, count, outputs // count).transpose(1, 0, 2)
            product = _grouped_product(factors, weights, lhs, rhs)
            meets = _meets_elements(window, offsets, counts)
            return product if meets.all() else np.where(np.tile(meets, batch)[:, None], product, 0)

        elements = itertools.product(*(range(d.size) for d in window))
        total = pairwise_sum(map(products, elements), np.zeros((count, rows, outputs // count), base.dtype))
        return np.moveaxis(total.reshape(count, batch, *counts, outputs // count), 0, -2).reshape(
            batch, *counts, outputs
        )


def _meets_elements(window: Window, offsets: Sequence[int], counts: Sequence[int]) -> Array:
    """Whether a window element meets an element or padding, not a hole, for each output in row-major order."""
    meets = np.ones((), bool)
    for k, d, count in zip(offsets, window, counts, strict=True):
        position = np.arange(count) * d.stride + k * d.window_dilation - d.padding_low
        meets = np.logical_and.outer(meets, position % d.base_dilation == 0)
    return meets.reshape(-1)


def _grouped_product(rows: Array, weights: Array, lhs: np.dtype[Any], rhs: np.dtype[Any]) -> Array:
    """Multiplies [groups, rows, inputs] by [groups, inputs, outputs]; depthwise kernels need no matrix product."""
    if rows.shape[-1] == 1:
        return rows * weights
    return matmul(rows, weights, lhs, rhs)


def _dilate_and_pad(base: Array, window: Window) -> Array:
    """Inserts zeros in holes and padding; negative padding removes elements (WIN-1, WIN-4)."""
    spatial = base.shape[1:-1]
    dilated_sizes = [d.dilated_base(size) for d, size in zip(window, spatial, strict=True)]
    sizes = [max(0, n + d.padding_low + d.padding_high) for n, d in zip(dilated_sizes, window, strict=True)]
    dilated = np.zeros((base.shape[0], *dilated_sizes, base.shape[-1]), base.dtype)
    dilated[(slice(None), *(slice(None, None, d.base_dilation) for d in window))] = base
    result = np.zeros((base.shape[0], *sizes, base.shape[-1]), base.dtype)
    source, target = [], []
    for d, n, size in zip(window, dilated_sizes, sizes, strict=True):
        first, last = max(0, d.padding_low), max(0, min(size, n + d.padding_low))
        last = max(first, last)
        target.append(slice(first, last))
        source.append(slice(first - d.padding_low, last - d.padding_low))
    if all(t.stop > t.start for t in target):
        result[(slice(None), *target)] = dilated[(slice(None), *source)]
    return result
