"""convolution-products: convolutions whose windows are elements or the whole image, and the dots that compute them."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, convolution_module, interpreted
from hloom.ops.attributes import Precision
from hloom.passes import clone_module, run_passes
from hloom.passes.optimize.convolution_products import ConvolutionProducts

PRODUCTS = {
    "points": "f32[2,5,4,3] f32[1,1,3,7] size=1x1 b01f_01io->b01f",
    "features first": "f32[2,5,4,3] f32[7,3,1,1] size=1x1 b01f_oi01->fb01",
    "one image, features before its axes": "f32[1,3,5,4] f32[7,3,1,1] size=1x1 bf01_oi01->bf01",
    "one feature": "f32[2,3,5,4] f32[1,3,1,1] size=1x1 bf01_oi01->bf01",
    "strides": "f32[2,5,4,3] f32[1,1,3,7] size=1x1 stride=2x3 b01f_01io->b01f",
    "strides over part": "f32[2,7,8,3] f32[1,1,3,7] size=1x1 stride=2x3 pad=-1_-2x0_-3 b01f_01io->b01f",
    "dilation and reversal of an element": "f32[2,5,4,3] f32[1,1,3,7] size=1x1 rhs_dilate=2x3 rhs_reversal=1x1 b01f_01io->b01f",
    "whole windows": "f32[2,5,4,3] f32[5,4,3,7] size=5x4 b01f_01io->b01f",
    "whole windows in another order": "f32[2,5,4,3] f32[7,4,3,5] size=5x4 b01f_o1i0->b01f",
    "a whole window and an element": "f32[2,5,4,3] f32[5,1,3,7] size=5x1 b01f_01io->b01f",
    "a dilated window": "f32[2,5,8,3] f32[3,3,3,7] size=3x3 pad=0_0x-1_-2 rhs_dilate=2x2 b01f_01io->b01f",
    "gradient of a kernel of 1 x 1": "f32[2,5,4,3] f32[2,5,4,7] size=5x4 f01b_i01o->01bf",
    "gradient with strides": "f32[2,5,6,3] f32[2,3,3,7] size=3x3 pad=0_0x0_-1 rhs_dilate=2x2 f01b_i01o->01bf",
    "gradient of an image": "f32[2,5,4,7] f32[1,1,3,7] size=1x1 rhs_reversal=1x1 b01f_01oi->b01f",
    "no axes": "f32[4,3] f32[3,7] - bf_io->bf",
    "integers": "s8[2,5,4,3] s8[1,1,3,7] size=1x1 b01f_01io->b01f",
    "complex": "c64[2,5,4,3] c64[1,1,3,7] size=1x1 b01f_01io->b01f",
    "bf16": "bf16[2,5,4,3] bf16[1,1,3,7] size=1x1 b01f_01io->b01f",
    "no features": "f32[2,5,4,0] f32[1,1,0,7] size=1x1 b01f_01io->b01f",
    "no images": "f32[0,5,4,3] f32[1,1,3,7] size=1x1 b01f_01io->b01f",
}

OTHERS = {
    "padding": "f32[2,5,4,3] f32[1,1,3,7] size=1x1 pad=1_0x0_0 b01f_01io->b01f",
    "padding of a whole window": "f32[2,5,4,3] f32[5,4,3,7] size=5x4 pad=0_0x1_1 b01f_01io->b01f",
    "holes": "f32[2,5,4,3] f32[1,1,3,7] size=1x1 lhs_dilate=2x1 b01f_01io->b01f",
    "overlap": "f32[2,5,4,3] f32[3,3,3,7] size=3x3 b01f_01io->b01f",
    "reversal": "f32[2,5,4,3] f32[5,4,3,7] size=5x4 rhs_reversal=1x0 b01f_01io->b01f",
    "features before the axes of images": "f32[2,3,5,4] f32[7,3,1,1] size=1x1 bf01_oi01->bf01",
    "groups": "f32[2,5,4,6] f32[1,1,3,8] size=1x1 b01f_01io->b01f feature_group_count=2",
    "groups of the batch": "f32[2,5,4,3] f32[1,1,3,8] size=1x1 b01f_01io->b01f batch_group_count=2",
    "nothing": "f32[2,3,4,3] f32[5,1,3,7] size=5x1 b01f_01io->b01f",
}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("line", PRODUCTS.values(), ids=PRODUCTS)
def test_dots_have_the_results_of_convolutions(line: str) -> None:
    module = convolution_module(line)
    after = clone_module(module)
    assert run_passes(after, ConvolutionProducts(), verify=True)[0].changes == 1
    assert {i.opcode for i in after.instructions()} <= {"parameter", "slice", "reshape", "dot"}
    arrays = arrays_for(module)
    (want,) = interpreted(module, *arrays)  # of small multiples of 1/4: sums are exact
    np.testing.assert_array_equal(interpreted(after, *arrays)[0], want)
    np.testing.assert_array_equal(hl.compile(module)(*arrays), want)


@pytest.mark.parametrize("line", OTHERS.values(), ids=OTHERS)
def test_other_convolutions_stay(line: str) -> None:
    assert ConvolutionProducts().run(convolution_module(line)) == 0


def test_precisions_stay_with_their_operands() -> None:
    module = convolution_module(PRODUCTS["features first"])
    root = module.entry.root
    root.op = root.op.replace(operand_precision=(Precision.HIGHEST, Precision.DEFAULT))
    assert ConvolutionProducts().run(module) == 1
    (dot,) = (i for i in module.instructions() if i.opcode == "dot")
    assert [operand.opcode for operand in dot.operands] == ["reshape", "parameter"]
    assert dot.op.operand_precision == (Precision.DEFAULT, Precision.HIGHEST)
