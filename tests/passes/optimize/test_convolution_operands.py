"""convolution-operands: convolutions with swapped operands have the same results."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, interpreted
from hloom.passes import clone_module, run_passes
from hloom.passes.optimize.convolution_operands import ConvolutionOperandSwapper

CONVOLUTIONS = [
    "f32[2,3,6,5] f32[4,3,9,8] window={size=9x8 pad=8_8x7_7} dim_labels=bf01_oi01->bf01",
    "f32[2,3,3,4] f32[4,3,9,8] window={size=9x8 pad=5_9x7_6} dim_labels=bf01_oi01->bf01",
    "f32[1,2,3,2] f32[7,6,2,3] window={size=7x6 pad=4_8x5_3 rhs_reversal=1x1} dim_labels=b01f_01io->b01f",
    "f32[1,3,3,2] f32[7,7,2,2] window={size=7x7 pad=6_6x6_6 rhs_dilate=2x1} dim_labels=b01f_01io->b01f",
    "f32[1,3,3,2] f32[7,7,2,2] window={size=7x7 pad=6_6x6_6 lhs_dilate=2x3} dim_labels=b01f_01io->b01f",
    "f32[1,3,3,2] f32[7,7,2,2] window={size=7x7 stride=2x1 pad=6_6x6_6} dim_labels=b01f_01io->b01f",
    "f32[2,3,3,4] f32[7,7,2,6] window={size=7x7 pad=6_6x6_6} dim_labels=b01f_01io->b01f, feature_group_count=2",
    "f32[4,3,3,2] f32[7,7,2,6] window={size=7x7 pad=6_6x6_6} dim_labels=b01f_01io->b01f, batch_group_count=2",
    "f32[1,3,3,2] f32[9,9,2,2] window={size=9x9 pad=-1_9x8_-1} dim_labels=b01f_01io->b01f",
]


@pytest.mark.parametrize("line", CONVOLUTIONS)
def test_convolutions_with_large_windows_have_the_same_results(line: str) -> None:
    data, window, attributes = line.split(" ", 2)
    module = hl.parse(
        "HloModule m\nENTRY e {\n"
        f"  x = {data} parameter(0)\n  w = {window} parameter(1)\n  ROOT r = convolution(x, w), {_with_commas(attributes)}\n}}"
    )
    after = clone_module(module)
    changes = run_passes(after, ConvolutionOperandSwapper(), verify=True)[0].changes
    x, w = arrays_for(module)
    (want,), (got,) = interpreted(module, x, w), interpreted(after, x, w)
    np.testing.assert_array_equal(got, want)  # small multiples of 1/4: sums are exact
    stays = any(word in line for word in ("group", "stride", "dilate"))
    assert changes == (0 if stays else 1)


def _with_commas(attributes: str) -> str:
    return attributes.replace("} dim_labels", "}, dim_labels")
