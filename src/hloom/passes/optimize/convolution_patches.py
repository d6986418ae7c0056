"""convolution-patches: convolutions with large kernels and few windows are dots of a copy of their windows."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.attributes import PaddingDimension, SliceDimension, WindowDimension
from hloom.ops.convolution import Convolution
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.slice import Slice
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.passes.optimize.convolution_products import is_image_first, product_of
from hloom.shape import scalar
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class ConvolutionPatches:
    """Before: convolution(%x, %k), with at most as many windows as output features. After: dot(%windows, %k), where
    %windows concatenates slices of the padded %x, one for each element of a window.

    A convolution packs its kernel, which takes longer than to copy the windows if each element of the kernel has fewer
    products than an element of a window. A dot packs a part of it just before the products. Left alone are convolutions
    with groups, with a dilated image, with a small kernel or very large windows, of a type without zeros for the
    padding, and those of which a dot would have the kernel or the result in another order.
    """

    name: ClassVar[str] = "convolution-patches"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Convolution,)
    min_kernel: int = 1 << 16
    """Elements of the kernel."""
    max_taps: int = 32
    """Elements of a window, each of which is an instruction."""

    def run(self, module: Module) -> int:
        """Replaces the convolutions; returns their number."""
        return expand_each(module, Convolution, lambda op, build, old, _: self._product(op, build, old))

    def _product(self, op: Convolution, build: OpBuilder, old: Instruction) -> Instruction | None:
        n, (image, kernel) = op.dimension_numbers, old.operands
        feature, inputs = n.input_feature_dimension, n.kernel_input_feature_dimension
        image_first = is_image_first(op, old.shape, {feature})
        if image_first is None or not _has_adjacent_terms(op) or not self._pays(op, old):
            return None
        window, sizes = n.kernel_spatial_dimensions, kernel.shape.dimensions
        windows = _windows(op, build, image, feature if window[0] < inputs else feature + 1)
        merged = sorted((window[0], inputs, n.kernel_output_feature_dimension))
        taps = math.prod(w.size for w in op.window)
        weights = build.reshape(kernel, tuple(taps if d == window[0] else sizes[d] for d in merged))
        terms = tuple(k for k, d in enumerate(merged) if d != n.kernel_output_feature_dimension)
        return product_of(op, build, old, (windows, (feature, feature + 1)), (weights, terms), image_first)

    def _pays(self, op: Convolution, old: Instruction) -> bool:
        features = old.shape.dimensions[op.dimension_numbers.output_feature_dimension]
        taps, elements = math.prod(w.size for w in op.window), old.operands[1].shape.element_count
        is_plain = bool(op.window) and all(w.base_dilation == 1 for w in op.window)
        has_zero = old.operands[0].shape.element_type is not PrimitiveType.F8E8M0FNU
        has_few = 0 < old.shape.element_count <= features**2
        return is_plain and has_zero and has_few and elements >= self.min_kernel and taps <= self.max_taps


def _has_adjacent_terms(op: Convolution) -> bool:
    """Whether the kernel's dimensions of window and input features are adjacent, those of the window in order."""
    n = op.dimension_numbers
    window, inputs = n.kernel_spatial_dimensions, n.kernel_input_feature_dimension
    order = [*window, inputs] if inputs > max(window, default=inputs) else [inputs, *window]
    return order == [*range(order[0], order[0] + len(order))]


def _windows(op: Convolution, build: OpBuilder, image: Instruction, dimension: int) -> Instruction:
    """Returns the image with the spatial dimensions of the result, and the elements of windows at `dimension`."""
    n, sizes = op.dimension_numbers, image.shape.dimensions
    edges = [PaddingDimension() for _ in sizes]
    for d, w in zip(n.input_spatial_dimensions, op.window, strict=True):
        edges[d] = PaddingDimension(w.padding_low, w.padding_high)
    padded = build(Pad(padding_config=tuple(edges)), image, build.zeros(scalar(image.shape.element_type)))
    parts = []
    for offsets in itertools.product(*map(_offsets, op.window)):
        slices = [SliceDimension(0, size) for size in sizes]
        for d, w, first in zip(n.input_spatial_dimensions, op.window, offsets, strict=True):
            slices[d] = SliceDimension(first, first + (w.count(sizes[d]) - 1) * w.stride + 1, w.stride)
        part = build(Slice(slice=tuple(slices)), padded)
        parts.append(build.reshape(part, part.shape.insert_dimension(dimension, 1).dimensions))
    return build(Concatenate(dimension=dimension), *parts)


def _offsets(w: WindowDimension) -> list[int]:
    """Returns the offset in the image of each element of a window."""
    offsets = [k * w.window_dilation for k in range(w.size)]
    return offsets[::-1] if w.window_reversal else offsets
