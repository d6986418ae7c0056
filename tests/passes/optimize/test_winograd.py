"""Winograd's filtering against direct sums, of small integers: both are exact, so they are equal."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, interpreted, module_text
from hloom.passes import clone_module
from hloom.passes.optimize.winograd.convolution import WinogradConvolution
from hloom.verifier import verify_module

HIGHEST = ", operand_precision={highest,highest}"
CASES = {
    "channels last": "f32[2,8,6,3], f32[3,3,3,5], size=3x3 pad=1_1x1_1, b01f_01io->b01f",
    "channels first": "f32[2,3,8,6], f32[5,3,3,3], size=3x3 pad=1_1x1_1, bf01_oi01->bf01",
    "odd sizes": "f32[3,7,5,2], f32[3,3,2,4], size=3x3 pad=1_1x1_1, b01f_01io->b01f",
    "no padding": "f32[1,7,8,2], f32[3,3,2,4], size=3x3, b01f_01io->b01f",
    "wide and negative padding": "f32[2,7,8,2], f32[3,3,2,4], size=3x3 pad=4_2x-1_-2, b01f_01io->b01f",
    "backward": "f32[2,6,6,2], f32[3,3,4,2], size=3x3 pad=1_1x1_1 rhs_reversal=1x1, b01f_01oi->b01f",
    "mixed order": "f32[6,2,3,7], f32[4,3,3,3], size=3x3 pad=0_1x1_0 rhs_reversal=0x1, 0bf1_o0i1->1f0b",
    "a line": "f32[2,9,3], f32[3,3,4], size=3 pad=1_1, b0f_0io->b0f",
    "along one axis": "f32[2,5,9,3], f32[1,3,3,4], size=1x3 pad=0_0x1_1, b01f_01io->b01f",
    "a volume": "f32[1,5,4,6,2], f32[3,3,3,2,3], size=3x3x3 pad=1_1x1_1x1_1, b012f_012io->b012f",
    "narrow floats": "bf16[2,6,6,3], bf16[3,3,3,4], size=3x3 pad=1_1x1_1, b01f_01io->b01f",
    "f64": "f64[2,6,6,3], f64[3,3,3,4], size=3x3 pad=1_1x1_1, b01f_01io->b01f",
    "gradient of a window": "f32[2,8,6,3], f32[2,8,6,5], size=8x6 pad=1_1x1_1, f01b_i01o->01bf",
    "gradient of a window, odd sizes": "f32[2,7,5,3], f32[2,7,5,4], size=7x5 pad=1_1x1_1, f01b_i01o->01bf",
    "gradient of a window, channels first": "f32[2,3,8,6], f32[2,5,6,4], size=6x4, fb01_io01->bf01",
    "gradient of a window, backward": "f32[2,3,7], f32[2,5,7], size=7 pad=1_1 rhs_reversal=1, fb0_io0->b0f",
    "gradient along one axis": "f32[2,5,9,3], f32[2,5,9,4], size=5x9 pad=0_0x1_1, f01b_i01o->01bf",
}


def _module(case: str, more: str = "") -> hl.Module:
    lhs, rhs, window, labels = case.split(", ")
    call = f"convolution(x, w), window={{{window}}}, dim_labels={labels}{more}"
    return hl.parse(module_text(f"x = {lhs} parameter(0)\n w = {rhs} parameter(1)\n ROOT c = {call}"))


def _integers(module: hl.Module) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = [parameter.shape for parameter in module.entry.parameters]
    return [generator.integers(-4, 5, shape.dimensions).astype(shape.element_type.dtype) for shape in shapes]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("block_bytes", [1 << 20, 4 << 10, 1], ids=["one block", "blocks", "least blocks"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_filtering_is_equal_to_direct_sums(case: str, block_bytes: int) -> None:
    direct = _module(case)
    arrays = _integers(direct)
    filtered = clone_module(direct)
    assert WinogradConvolution(move_cost=0, window_cost=0, block_bytes=block_bytes).run(filtered) == 1
    verify_module(filtered)
    assert all(i.opcode != "convolution" for i in filtered.instructions())
    assert block_bytes > 1 or any(i.opcode == "while" for i in filtered.instructions())
    (expected,), (found,) = interpreted(direct, *arrays), interpreted(filtered, *arrays)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "case",
    [
        "f32[2,8,6,3], f32[3,3,3,5], size=3x3 stride=2x1 pad=1_1x1_1, b01f_01io->b01f",
        "f32[2,8,6,3], f32[3,3,3,5], size=3x3 lhs_dilate=2x1 pad=1_1x1_1, b01f_01io->b01f",
        "f32[2,8,6,3], f32[3,3,3,5], size=3x3 rhs_dilate=1x2 pad=1_1x1_1, b01f_01io->b01f",
        "f32[2,8,6,3], f32[5,5,3,5], size=5x5 pad=2_2x2_2, b01f_01io->b01f",
        "f32[2,8,6,3], f32[2,3,3,5], size=2x3, b01f_01io->b01f",
        "f32[2,8,6,3], f32[1,1,3,5], size=1x1, b01f_01io->b01f",
        "s32[2,8,6,3], s32[3,3,3,5], size=3x3, b01f_01io->b01f",
        "c64[2,8,6,3], c64[3,3,3,5], size=3x3, b01f_01io->b01f",
    ],
)
def test_other_convolutions_are_left_alone(case: str) -> None:
    assert WinogradConvolution(move_cost=0, window_cost=0).run(_module(case)) == 0


def test_grouped_and_precise_convolutions_are_left_alone() -> None:
    case = CASES["channels last"].replace("f32[3,3,3,5]", "f32[3,3,1,6]")
    assert WinogradConvolution(move_cost=0, window_cost=0).run(_module(case, ", feature_group_count=3")) == 0
    precise = _module(CASES["channels last"], HIGHEST)
    assert WinogradConvolution(move_cost=0, window_cost=0).run(precise) == 0


def test_few_features_do_not_pay() -> None:
    many = "f32[8,56,56,64], f32[3,3,64,64], size=3x3 pad=1_1x1_1, b01f_01io->b01f"
    assert WinogradConvolution().run(_module(many)) == 1
    assert WinogradConvolution().run(_module(many.replace("64]", "8]").replace("64,8]", "8,8]"))) == 0


def test_rounding_errors_are_similar_to_those_of_direct_sums() -> None:
    """Errors against sums in f64, of compiled programs with and without the pass."""
    module = _module("f32[1,28,28,128], f32[3,3,128,128], size=3x3 pad=1_1x1_1, b01f_01io->b01f")
    precise = _module("f32[1,28,28,128], f32[3,3,128,128], size=3x3 pad=1_1x1_1, b01f_01io->b01f", HIGHEST)
    x, w = (a.standard_normal for a in (np.random.default_rng(0), np.random.default_rng(1)))
    arrays = x((1, 28, 28, 128)).astype(np.float32), w((3, 3, 128, 128)).astype(np.float32)
    exact = _module("f64[1,28,28,128], f64[3,3,128,128], size=3x3 pad=1_1x1_1, b01f_01io->b01f", HIGHEST)
    (expected,) = compiled(exact, *(a.astype(np.float64) for a in arrays))
    errors = [np.sqrt(np.mean((compiled(m, *arrays)[0] - expected) ** 2)) for m in (module, precise)]
    assert 0.8 * errors[1] < errors[0] < 1.25 * errors[1]
    assert errors[0] != errors[1]
