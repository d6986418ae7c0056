"""cse: instructions and computations that are merged, and others."""

from __future__ import annotations

import time

import hloom as hl
from hloom.passes.simplify.common_subexpressions import CommonSubexpressionElimination
from hloom.verifier import verify_module
from passes.modules import check_same_results, inputs, module

CSE = CommonSubexpressionElimination()


def test_equal_instructions_are_merged_through_their_operands() -> None:
    before = module(
        "a = f32[4] sine(x); b1 = f32[4] sine(x); a2 = f32[4] negate(a); b2 = f32[4] negate(b1); ROOT r = f32[4] add(a2, b2)"
    )
    after = check_same_results(before, CSE.run, inputs(before))
    assert [i.opcode for i in after.entry.instructions] == ["parameter", "sine", "negate", "add"]


def test_constants_are_compared_by_their_bits() -> None:
    before = hl.parse("""HloModule m
ENTRY e {
  a = f32[] constant(0)
  b = f32[] constant(-0)
  c = f32[] constant(0)
  d = s32[] constant(0)
  ROOT r = (f32[], f32[], f32[], s32[]) tuple(a, b, c, d)
}
""")
    assert CSE.run(before) == 1
    assert [o.name for o in before.entry.root.operands] == ["a", "b", "a", "d"]


def test_equal_computations_are_merged_first() -> None:
    before = hl.parse("""HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
g {
  left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT sum = f32[] add(left, right)
}
h {
  left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT sum = f32[] add(right, left)
}
ENTRY e {
  x = f32[4] parameter(0)
  z = f32[] constant(0)
  i = f32[] reduce(x, z), dimensions={0}, to_apply=f
  j = f32[] reduce(x, z), dimensions={0}, to_apply=g
  k = f32[] reduce(x, z), dimensions={0}, to_apply=h
  ROOT r = (f32[], f32[], f32[]) tuple(i, j, k)
}
""")
    assert CSE.run(before) == 2
    assert [o.name for o in before.entry.root.operands] == ["i", "i", "k"]
    verify_module(before)


def test_random_values_tokens_barriers_and_annotated_instructions_are_not_merged() -> None:
    lines = [
        "f32[4] rng(s, s), distribution=rng_uniform",
        "token[] after-all()",
        "f32[4] opt-barrier(x)",
    ]
    for line in lines:
        body = f"a = {line}; b1 = {line}; ROOT r = ({line.split()[0]}, {line.split()[0]}) tuple(a, b1)"
        assert CSE.run(module(body, like="x s")) == 0, line
    sharded = "a = f32[4] negate(x), sharding={replicated}; b1 = f32[4] negate(x); ROOT r = f32[4] add(a, b1)"
    assert CSE.run(module(sharded)) == 0
    ordered = "a = f32[4] negate(x); b1 = f32[4] negate(x), control-predecessors={a}; ROOT r = f32[4] add(a, b1)"
    assert CSE.run(module(ordered)) == 0


def test_ten_thousand_instructions_take_well_under_a_second() -> None:
    lines = ["a0 = f32[4] negate(x)"]
    for k in range(5000):
        lines += [f"b{k} = f32[4] add(a{k}, x)", f"a{k + 1} = f32[4] add(a{k}, x)"]
    big = module("; ".join([*lines, "ROOT r = f32[4] add(a5000, b4999)"]))
    started = time.perf_counter()
    assert CSE.run(big) == 5000
    assert time.perf_counter() - started < 1
