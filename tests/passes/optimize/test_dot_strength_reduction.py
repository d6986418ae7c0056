"""dot-strength-reduction: dots over small contracted dimensions as sums of element-wise products."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import dot_module
from hloom.faults import Case
from hloom.passes.optimize.dot_strength_reduction import DotStrengthReduction

CONTRACTED = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dimensions"),
    [
        ("f32[5,4]", "f32[4,6]", "f32[5,6]", CONTRACTED),
        ("f32[4,5]", "f32[4,6]", "f32[5,6]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f64[5,1]", "f64[1,6]", "f64[5,6]", CONTRACTED),
        ("s32[5,12]", "s32[12,6]", "s32[5,6]", CONTRACTED),
        ("c64[5,3]", "c64[3,6]", "c64[5,6]", CONTRACTED),
        ("f32[7]", "f32[7]", "f32[]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[4]", "f32[4,6]", "f32[6]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        (
            "f32[2,3,7,2]", "f32[3,2,2,9]", "f32[2,7,9]",
            "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={3,1}, rhs_contracting_dims={2,0}",
        ),
        (
            "f32[40,50]", "f32[6,50,40]", "f32[40,6]",
            "lhs_batch_dims={0}, rhs_batch_dims={2}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ),
        (
            "f32[20,6,8]", "f32[8,1,20]", "f32[8,6,1]",
            "lhs_batch_dims={2}, rhs_batch_dims={0}, lhs_contracting_dims={0}, rhs_contracting_dims={2}",
        ),
        ("f32[3,5]", "f32[6,3,2]", "f32[5,6,2]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    ],
)  # fmt: skip
def test_the_reduction_has_the_same_results(lhs: str, rhs: str, out: str, dimensions: str) -> None:
    module = dot_module(lhs, rhs, out, dimensions)
    case = Case.random(module, seed=0)
    expected = hl.compile(module, "interpreter")(*case.arguments or ())
    assert DotStrengthReduction().run(module) == 1
    assert "dot" not in [i.opcode for i in module.entry.instructions]
    for backend in ("interpreter", "cpu"):
        np.testing.assert_allclose(hl.compile(module, backend)(*case.arguments or ()), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dimensions"),
    [
        ("f32[5,13]", "f32[13,6]", "f32[5,6]", CONTRACTED),
        ("f32[5,0]", "f32[0,6]", "f32[5,6]", CONTRACTED),
        ("f32[5,4]", "f32[6,4]", "f32[5,6]", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
        ("f32[5,4]", "f32[4]", "f32[5]", CONTRACTED),
        ("bf16[5,4]", "bf16[4,6]", "bf16[5,6]", CONTRACTED),
        ("s8[5,4]", "s8[4,6]", "s32[5,6]", CONTRACTED),
        (
            "f32[40,2,50]", "f32[6,50,40]", "f32[40,2,6]",
            "lhs_batch_dims={0}, rhs_batch_dims={2}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        ),
        (
            "f32[4,50]", "f32[6,50,4]", "f32[4,6]",
            "lhs_batch_dims={0}, rhs_batch_dims={2}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ),
        ("f32[5,2]", "f32[5,2]", "f32[5]", "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    ],
)  # fmt: skip
def test_other_dots_are_left_alone(lhs: str, rhs: str, out: str, dimensions: str) -> None:
    assert DotStrengthReduction().run(dot_module(lhs, rhs, out, dimensions)) == 0


@pytest.mark.parametrize(("root", "changes"), [("d", 1), ("(f32[40], f32[40,30]) tuple(d, t)", 0)])
def test_products_with_a_vector_compute_their_matrix(root: str, changes: int) -> None:
    """A matrix that has another user is stored anyway."""
    text = f"""ENTRY e {{ x = f32[40,30] parameter(0)
  v = f32[30] parameter(1)
  t = f32[40,30] tanh(x)
  d = f32[40] dot(t, v), {CONTRACTED}
  ROOT r = {"f32[40] copy(d)" if root == "d" else root} }}"""
    assert DotStrengthReduction().run(hl.parse(text)) == changes
