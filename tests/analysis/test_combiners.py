"""Combiners that are monoids, and the independent parts of others."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.analysis.monoids import CombinerPart, independent_parts, monoid_of
from hloom.ir import Computation
from hloom.ops.elementwise_binary import Add, Maximum, Multiply


def combiner(body: str, types: list[str]) -> Computation:
    """A combiner with accumulators a0, a1, .. and values v0, v1, .."""
    count = len(types)
    lines = [f"a{k} = {type}[] parameter({k})" for k, type in enumerate(types)]
    lines += [f"v{k} = {type}[] parameter({count + k})" for k, type in enumerate(types)]
    module = hl.parse(f"HloModule m  ENTRY e {{ {' '.join(lines)} {body} }}")
    return module.entry


@pytest.mark.parametrize(
    ("body", "type", "monoid"),
    [
        ("ROOT r = f32[] add(v0, a0)", "f32", Add),
        ("ROOT r = f32[] add(a0, a0)", "f32", None),
        ("ROOT r = f32[] subtract(a0, v0)", "f32", None),
        ("n = f32[] negate(v0) ROOT r = f32[] add(a0, n)", "f32", None),
        ("ROOT r = c64[] add(a0, v0)", "c64", Add),
        ("ROOT r = c64[] multiply(a0, v0)", "c64", None),
    ],
)
def test_combiners_of_one_accumulator(body: str, type: str, monoid: type | None) -> None:
    assert monoid_of(combiner(body, [type])) is monoid
    assert independent_parts(combiner(body, [type])) == [CombinerPart((0,), monoid)]


@pytest.mark.parametrize(
    ("results", "parts"),
    [
        (["add(a0, v0)", "maximum(v1, a1)", "multiply(a2, v2)"], {(0,): Add, (1,): Maximum, (2,): Multiply}),
        (["add(a0, v0)", "add(a1, v0)", "add(a2, v2)"], {(0, 1): None, (2,): Add}),
        (["add(a0, v0)", "add(a1, v2)", "subtract(a2, v2)"], {(0,): Add, (1, 2): None}),
        (["add(a1, v0)", "add(a2, v1)", "add(a0, v2)"], {(0, 1, 2): None}),
        (["subtract(a0, v0)", "add(a1, a1)", "add(v2, v2)"], {(0,): None, (1,): None, (2,): None}),
    ],
)
def test_combiners_of_several_accumulators(results: list[str], parts: dict[tuple[int, ...], type | None]) -> None:
    body = " ".join(f"r{k} = f32[] {result}" for k, result in enumerate(results))
    found = independent_parts(combiner(f"{body} ROOT r = (f32[], f32[], f32[]) tuple(r0, r1, r2)", ["f32"] * 3))
    assert {part.accumulators: part.monoid for part in found} == parts


def test_results_that_are_no_tuple_of_their_own_are_one_part() -> None:
    body = "t = (f32[], f32[]) tuple(a0, v1) ROOT r = (f32[], f32[]) opt-barrier(t)"
    assert independent_parts(combiner(body, ["f32"] * 2)) == [CombinerPart((0, 1), None)]
