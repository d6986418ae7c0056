"""Instances of patterns: valid modules that match, the same ones in each run."""

from __future__ import annotations

import itertools

import pytest

import hloom as hl
from hloom.instances.draw import Instance
from hloom.passes.pattern import parse_pattern
from hloom.prove.verdicts import instances
from hloom.verifier import verify_module

PATTERNS = (
    "add(x, negate(y))", "select(not(p), x, $c)", "elementwise(reshape*)", "reduce(*)", "sort(*)", "constant(*)",
    "dot(transpose(x), y)", "scatter(*)", "gather(broadcast*)", "dynamic-update-slice(*)", "convolution(x, y)",
    "concatenate(slice*)", "get-tuple-element(tuple(*))", "map(*)", "clamp(a, clamp(a, x, b), b)", "reduce-window(*)",
)  # fmt: skip


def drawn(pattern: str, type: hl.PrimitiveType) -> list[Instance]:
    return [*itertools.islice(instances("test", pattern, type), 20)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_instances_are_valid_and_match(pattern: str) -> None:
    made = [instance for type in (hl.f32, hl.s32, hl.pred) for instance in drawn(pattern, type)]
    assert len(made) >= 5
    for instance in made:
        verify_module(instance.module)
        (root,) = (i for i in instance.module.entry.instructions if i.name == instance.root)
        found = parse_pattern(pattern)
        assert found.opcode in ("elementwise", root.opcode) and found.match_operands(root, {})


def test_instances_are_the_same_in_each_run() -> None:
    texts = [[instance.module.to_text() for instance in drawn("pad(x, c)", hl.f32)] for _ in range(2)]
    assert texts[0] == texts[1] and len({*texts[0]}) > 10


def test_instances_have_shared_names_special_values_and_empty_arrays() -> None:
    text = "\n".join(instance.module.to_text() for instance in instances("test", "add(x, $c)", hl.f32))
    assert "constant(-0.0)" in text and "constant(nan)" in text and "[0" in text
    assert any(len({*instance.module.entry.root.operands}) == 1 for instance in drawn("multiply(x, y)", hl.s32))
