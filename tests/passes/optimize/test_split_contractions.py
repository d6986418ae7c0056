"""split-contractions: dots of long vectors as sums of dots over parts of the vectors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import dot_module
from hloom.passes.optimize.split_contractions import SplitContractions


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "sides"),
    [
        ("f32[4000,16]", "f32[4000,24]", "f32[16,24]", (0, 0)),
        ("f64[9,4000]", "f64[4000,8]", "f64[9,8]", (1, 0)),
        ("f32[3,4000,4]", "f32[12,4000]", "f32[3,4,12]", (1, 1)),
    ],
)
def test_parts_have_the_same_sum(lhs: str, rhs: str, out: str, sides: tuple[int, int]) -> None:
    module = dot_module(lhs, rhs, out, f"lhs_contracting_dims={{{sides[0]}}}, rhs_contracting_dims={{{sides[1]}}}")
    random = np.random.default_rng(0)
    x, y = (
        random.integers(-9, 10, i.shape.dimensions).astype(i.shape.element_type.dtype) for i in module.entry.parameters
    )
    assert SplitContractions().run(module) == 1
    assert [i.shape.dimensions[0] for i in module.entry.instructions if i.opcode == "dot"] == [8]
    np.testing.assert_array_equal(hl.compile(module)(x, y), np.tensordot(x, y, (sides[:1], sides[1:])))


@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [
        ("f32[2000,16]", "f32[2000,24]", "f32[16,24]"),
        ("f32[4001,16]", "f32[4001,24]", "f32[16,24]"),
        ("f32[4000,4]", "f32[4000,24]", "f32[4,24]"),
        ("f32[4000,512]", "f32[4000,24]", "f32[512,24]"),
        ("s32[4000,16]", "s32[4000,24]", "s32[16,24]"),
        ("bf16[4000,16]", "bf16[4000,24]", "bf16[16,24]"),
    ],
)
def test_other_dots_stay_whole(lhs: str, rhs: str, out: str) -> None:
    assert SplitContractions().run(dot_module(lhs, rhs, out, "lhs_contracting_dims={0}, rhs_contracting_dims={0}")) == 0
