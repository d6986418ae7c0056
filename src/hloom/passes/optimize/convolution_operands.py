"""convolution-operands: swaps the operands of convolutions whose window is larger than the input."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.convolution import Convolution
from hloom.ops.transpose import Reverse
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.system.records import record


@record
class ConvolutionOperandSwapper:
    """Before: a window of 30x30 over a padded input of 3x3. After: the input as the window over the reversed kernel.

    out[o] = sum over w of in[o + w - p] k[w] is, with i = o + w - p, the sum over i of in[i] k[i - o + p]: a window of
    the input's size over the reversed k. The number of products for each output is then the number of elements of the
    input instead of that of the window.
    """

    name: ClassVar[str] = "convolution-operands"
    operations: ClassVar[tuple[type, ...]] = (Convolution,)

    def run(self, module: Module) -> int:
        """Swaps operands; returns the number of convolutions changed."""
        return expand_each(module, Convolution, _swap)


def _swap(op: Convolution, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    image, kernel = old.operands
    exchanged = op.exchanged(image.shape.dimensions)
    if exchanged is None:
        return None
    new, backward = exchanged
    window = build(Reverse(dimensions=backward), kernel) if backward else kernel
    return build(new, window, image, shape=old.shape)
