"""convolution-patches: convolutions of few windows, and the dots that compute them."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, convolution_module, interpreted
from hloom.passes import clone_module, run_passes
from hloom.passes.optimize.convolution_patches import ConvolutionPatches

PATCHES = {
    "padding": "f32[1,3,4,5] f32[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
    "features first": "f32[1,5,3,4] f32[16,5,3,3] size=3x3 pad=1_1x1_1 bf01_oi01->bf01",
    "features of the kernel before its window": "f32[1,3,4,5] f32[16,5,3,3] size=3x3 pad=1_1x1_1 b01f_oi01->b01f",
    "window before the features, image's after": "f32[2,5,3,4] f32[3,3,5,30] size=3x3 pad=1_1x1_1 bf01_01io->fb01",
    "images beside each other": "f32[5,3,4,2] f32[3,3,5,30] size=3x3 pad=1_1x1_1 f01b_01io->01bf",
    "strides": "f32[2,7,6,5] f32[3,2,5,24] size=3x2 stride=2x3 pad=0_1x-1_2 b01f_01io->b01f",
    "dilation and reversal": "f32[2,7,6,5] f32[3,2,5,48] size=3x2 pad=1_0x1_1 rhs_dilate=2x3 rhs_reversal=1x0 b01f_01io->b01f",
    "one axis": "f32[2,6,5] f32[3,5,12] size=3 pad=1_1 b0f_0io->b0f",
    "padding of elements": "f32[1,3,4,5] f32[1,1,5,30] size=1x1 pad=1_0x0_1 b01f_01io->b01f",
    "bf16": "bf16[1,3,4,5] bf16[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
    "complex": "c64[1,3,4,5] c64[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
    "integers": "s8[1,3,4,5] s8[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
}

OTHERS = {
    "many windows": "f32[2,3,4,5] f32[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
    "holes": "f32[1,3,3,5] f32[3,3,5,30] size=3x3 pad=1_1x1_1 lhs_dilate=2x1 b01f_01io->b01f",
    "groups": "f32[1,3,4,10] f32[3,3,5,30] size=3x3 pad=1_1x1_1 b01f_01io->b01f feature_group_count=2",
    "features between images and axes": "f32[2,5,3,4] f32[30,5,3,3] size=3x3 pad=1_1x1_1 bf01_oi01->bf01",
    "output features before the input's": "f32[1,3,4,5] f32[3,3,16,5] size=3x3 pad=1_1x1_1 b01f_01oi->b01f",
    "axes of the window in another order": "f32[1,3,4,5] f32[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_10io->b01f",
    "no zero": "f8e8m0fnu[1,3,4,5] f8e8m0fnu[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
    "no axes": "f32[5,2] f32[16,5] fb_oi->fb",
    "nothing": "f32[0,3,4,5] f32[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("line", PATCHES.values(), ids=PATCHES)
def test_dots_have_the_results_of_convolutions(line: str) -> None:
    module = convolution_module(line)
    after = clone_module(module)
    assert run_passes(after, ConvolutionPatches(min_kernel=1), verify=True)[0].changes == 1
    assert "convolution" not in {i.opcode for i in after.instructions()}
    arrays = arrays_for(module)
    (want,) = interpreted(module, *arrays)  # of small multiples of 1/4: sums are exact
    np.testing.assert_array_equal(interpreted(after, *arrays)[0], want)
    np.testing.assert_array_equal(hl.compile(after)(*arrays), want)


@pytest.mark.parametrize("line", OTHERS.values(), ids=OTHERS)
def test_other_convolutions_stay(line: str) -> None:
    assert ConvolutionPatches(min_kernel=1).run(convolution_module(line)) == 0


def test_small_kernels_and_large_windows_stay() -> None:
    line = "f32[1,3,4,5] f32[3,3,5,16] size=3x3 pad=1_1x1_1 b01f_01io->b01f"
    assert ConvolutionPatches().run(convolution_module(line)) == 0
    assert ConvolutionPatches(min_kernel=1, max_taps=8).run(convolution_module(line)) == 0


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_kernels_that_are_not_finite_meet_padding(number: float) -> None:
    module = convolution_module("f32[1,3,3,128] f32[3,3,128,64] size=3x3 pad=1_1x1_1 b01f_01io->b01f")
    x, k = arrays_for(module)
    k[0, 0, 0, 5] = number
    np.testing.assert_array_equal(hl.compile(module)(x, k), interpreted(module, x, k)[0])
