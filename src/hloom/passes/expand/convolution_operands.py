"""convolution-operands: a large window over a small input is a small window over a large one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ConvolutionDimensionNumbers, WindowDimension
from hloom.ops.convolution import Convolution
from hloom.ops.transpose import Reverse
from hloom.passes.expand.maker import Maker, expand_all

WORTH_SWAPPING = 2
"""How many times larger than the input the window has to be."""


@dataclass(frozen=True)
class ConvolutionOperandSwapper:
    """Before: a window of 30x30 over a padded input of 3x3. After: the input as the window over the reversed kernel.

    out[o] = sum over w of in[o + w - p] k[w] is, with i = o + w - p, the sum over i of in[i] k[i - o + p]: a window of
    the input's size, which runs backward, over k reversed. Each output then costs as many products as the input has
    elements, and not as many as the window has.
    """

    name: ClassVar[str] = "convolution-operands"

    def run(self, module: Module) -> int:
        return expand_all(module, {"convolution": _swap})


def _swap(make: Maker, old: Instruction, module: Module) -> Instruction | None:
    op, (image, kernel) = old.op, old.operands
    assert isinstance(op, Convolution)
    numbers = op.dimension_numbers
    sizes = [image.shape.dimensions[d] for d in numbers.input_spatial_dimensions]
    window = op.window
    if op.feature_group_count != 1 or op.batch_group_count != 1 or not all(w.is_plain for w in window):
        return None
    if math.prod(d.size for d in window) < WORTH_SWAPPING * math.prod(sizes) or 0 in sizes:
        return None
    backward = [d for d, w in zip(numbers.kernel_spatial_dimensions, window, strict=True) if not w.window_reversal]
    turned = make(Reverse(dimensions=tuple(backward)), kernel) if backward else kernel
    swapped = tuple(
        WindowDimension(
            size=size,
            padding_low=w.padding_low + size - w.size,
            padding_high=w.padding_high + size - w.size,
            window_reversal=True,
        )
        for w, size in zip(window, sizes, strict=True)
    )
    new = op.replace(
        window=swapped, dimension_numbers=_swapped(numbers), operand_precision=tuple(reversed(op.operand_precision))
    )
    return make(new, turned, image, shape=old.shape)


def _swapped(n: ConvolutionDimensionNumbers) -> ConvolutionDimensionNumbers:
    """Output features become the batch, and the batch becomes the output features."""
    return ConvolutionDimensionNumbers(
        n.kernel_output_feature_dimension,
        n.kernel_input_feature_dimension,
        n.kernel_spatial_dimensions,
        n.input_batch_dimension,
        n.input_feature_dimension,
        n.input_spatial_dimensions,
        n.output_feature_dimension,
        n.output_batch_dimension,
        n.output_spatial_dimensions,
    )
