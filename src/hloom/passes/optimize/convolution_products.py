"""convolution-products: convolutions whose windows are single elements or the whole image are dots."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.attributes import SliceDimension
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.slice import Slice
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.shape import Ints, Shape
from hloom.system.records import record

Side = tuple[Instruction, Ints]
"""An operand of a dot, and its contracting dimensions."""


@record
class ConvolutionProducts:
    """Before: convolution(%x, %k), along each dimension with windows of one element, or with one window. After: a dot
    of %x, or of the slice of it that strides and dilation read, and %k: summed over features and whole windows.

    A dot reads in place what a convolution copies, and has kernels for more element types. Convolutions with groups,
    with padding, with dilation of the image or with reversed windows are left alone, and so are those whose result no
    dot has in the same order.
    """

    name: ClassVar[str] = "convolution-products"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Convolution,)

    def run(self, module: Module) -> int:
        """Replaces the convolutions; returns their number."""
        return expand_each(module, Convolution, _product)


def _product(op: Convolution, build: OpBuilder, old: Instruction, _: Module) -> Instruction | None:
    n, (image, kernel), summed = op.dimension_numbers, old.operands, _summed_dimensions(op)
    parts, image_first = _parts_read(op, image.shape), is_image_first(op, old.shape, summed)
    if parts is None or image_first is None:
        return None
    kept = sorted([n.kernel_output_feature_dimension, *summed.values()])
    left = image if all(map(_is_all, parts, image.shape.dimensions)) else build(Slice(slice=parts), image)
    right = build.reshape(kernel, tuple(kernel.shape.dimensions[d] for d in kept))
    terms = tuple(map(kept.index, summed.values()))
    return product_of(op, build, old, (left, tuple(summed)), (right, terms), image_first)


def product_of(
    op: Convolution, build: OpBuilder, old: Instruction, image: Side, kernel: Side, image_first: bool
) -> Instruction:
    """Builds the dot of an image and a kernel, each with its contracting dimensions, for a convolution."""
    precision = op.operand_precision if image_first else tuple(reversed(op.operand_precision))
    (lhs, of_lhs), (rhs, of_rhs) = (image, kernel) if image_first else (kernel, image)
    dot = Dot(lhs_contracting_dims=of_lhs, rhs_contracting_dims=of_rhs, operand_precision=precision)
    product = build(dot, lhs, rhs, shape=dot.result_shape(lhs.shape, rhs.shape, old.shape.element_type))
    return build.reshape(product, old.shape.dimensions)


def _parts_read(op: Convolution, image: Shape) -> tuple[SliceDimension, ...] | None:
    """Returns the elements of the image that the dot reads along each dimension; None if windows do not allow one."""
    parts = [SliceDimension(0, size) for size in image.dimensions]
    for d, w in zip(op.dimension_numbers.input_spatial_dimensions, op.window, strict=True):
        outputs = w.count(image.dimensions[d])
        count, stride = (outputs, w.stride) if w.size == 1 else (w.size, w.window_dilation)
        is_padded = w.padding_low > 0 or w.padding_high > 0 or w.base_dilation > 1
        if is_padded or outputs == 0 or (w.size != 1 and (outputs != 1 or w.window_reversal)):
            return None
        parts[d] = SliceDimension(-w.padding_low, -w.padding_low + (count - 1) * stride + 1, stride)
    return tuple(parts)


def _is_all(part: SliceDimension, size: int) -> bool:
    return part.limit - part.start == size and (part.stride == 1 or size == 1)


def _summed_dimensions(op: Convolution) -> dict[int, int]:
    """Returns the dimensions of the image over which the dot sums, in order, and those of the kernel."""
    n = op.dimension_numbers
    spatial = zip(n.input_spatial_dimensions, n.kernel_spatial_dimensions, op.window, strict=True)
    pairs = [(d, k) for d, k, w in spatial if w.size != 1]
    return dict(sorted([*pairs, (n.input_feature_dimension, n.kernel_input_feature_dimension)]))


def is_image_first(op: Convolution, result: Shape, summed: Collection[int]) -> bool | None:
    """Whether the image is the first operand of the dot that has the elements of the result in order; None if no dot
    has. `summed` are the image's contracting dimensions.
    """
    if op.has_groups:
        return None
    n = op.dimension_numbers
    outputs = {n.input_batch_dimension: n.output_batch_dimension}
    outputs |= dict(zip(n.input_spatial_dimensions, n.output_spatial_dimensions, strict=True))
    free = [outputs[d] for d in sorted(outputs) if d not in summed]
    if _is_in_order([*free, n.output_feature_dimension], result):
        return True
    return False if _is_in_order([n.output_feature_dimension, *free], result) else None


def _is_in_order(dimensions: Iterable[int], result: Shape) -> bool:
    order = [d for d in dimensions if result.dimensions[d] != 1]
    return order == sorted(order)
