"""constant_folding: instructions that are evaluated at compile time, and others."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.passes.simplify.constant_folding import ConstantFolding
from passes.modules import check_same_results, module


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("a = f32[] constant(2); ROOT r = f32[] power(a, a)", 4),
        ("a = s32[3] constant({1, 2, 3}); b1 = s32[3] negate(a); ROOT r = s32[3] reverse(b1), dimensions={0}", [-3, -2, -1]),
        ("a = f32[2] constant({1, 2}); z1 = f32[] constant(0); ROOT r = f32[] reduce(a, z1), dimensions={0}, to_apply=sum", 3),
        ("a = f32[] constant(3); b1 = f32[2] broadcast(a), dimensions={}; z1 = f32[] constant(1);"
         " ROOT r = f32[] reduce(b1, z1), dimensions={0}, to_apply=sum", 7),
        ("a = f32[2] constant({1, 2}); ROOT r = f32[] dot(a, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}", 5),
        ("a = f32[1,1] constant({{7}}); ROOT r = f32[] reshape(a)", 7),
    ],
)  # fmt: skip
def test_evaluated(body: str, value: object) -> None:
    after = check_same_results(module(body), ConstantFolding().run, [])
    root = after.entry.root
    assert root.opcode == "constant" and np.array_equal(root.op.literal.value, value)  # type: ignore[attr-defined]
    assert len(after.entry.instructions) == 1


@pytest.mark.parametrize(
    "body",
    [
        "a = f32[] constant(1); ROOT r = f32[100] broadcast(a), dimensions={}",
        "ROOT r = s32[100] iota(), iota_dimension=0",
        "a = f32[] constant(1); b1 = f32[2] broadcast(a), dimensions={}; ROOT r = f32[2] negate(b1)",
        "a = f32[] constant(1); b1 = f32[20000] broadcast(a), dimensions={};"
        " ROOT r = f32[] reduce(b1, a), dimensions={0}, to_apply=sum",
        "a = f32[] constant(1); ROOT r = f32[4] rng(a, a), distribution=rng_uniform",
        "a = f32[] constant(1); ROOT r = f32[] negate(a), control-predecessors={a}",
        "a = f32[] constant(1); ROOT r = (f32[]) tuple(a)",
        "a = f32[1] constant({1}); s1 = f32[] constant(0); ROOT r = f32[100000] pad(a, s1), padding=0_99999",
    ],
)
def test_not_evaluated(body: str) -> None:
    assert ConstantFolding().run(module(body)) == 0


def test_limits_are_options() -> None:
    body = "a = f32[4] constant({1, 2, 3, 4}); ROOT r = f64[4] convert(a)"
    assert ConstantFolding(max_bytes=31).run(module(body)) == 0
    assert ConstantFolding(max_steps=3).run(module(body)) == 0
    assert ConstantFolding(max_bytes=32).run(module(body)) == 1


def test_the_layout_is_kept() -> None:
    text = "HloModule m\nENTRY e {\n a = s32[2,2]{0,1} constant({{1,2},{3,4}})\n ROOT r = s32[2,2]{0,1} negate(a)\n}\n"
    after = check_same_results(hl.parse(text), ConstantFolding().run, [])
    assert str(after.entry.root.shape) == "s32[2,2]{0,1}"


@pytest.mark.filterwarnings("error")
def test_infinities_are_evaluated_without_warnings() -> None:
    quotient = module("a = f32[] constant(1); z1 = f32[] constant(0); ROOT r = f32[] divide(a, z1)")
    ConstantFolding().run(quotient)
    assert quotient.entry.root.op.literal.value == np.inf  # type: ignore[attr-defined]
