"""dce: removal of unused instructions, and preservation of effects."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.verifier import verify_module
from passes.modules import module


def opcodes(of: hl.Module) -> list[str]:
    return [i.opcode for i in of.entry.instructions]


def test_unused_instructions_and_computations_are_removed_but_not_parameters() -> None:
    before = module("a = f32[4] negate(x); b1 = f32[4] sine(a); ROOT r = f32[4] cosine(y)")
    assert DeadCodeElimination().run(before) == 2 + 4  # instructions, computations
    assert opcodes(before) == ["parameter", "parameter", "cosine"]
    assert len(before.computations) == 1
    verify_module(before)


def test_effects_and_their_operands_are_kept() -> None:
    before = hl.parse("""HloModule m
effect {
  x = f32[] parameter(0)
  t = token[] after-all()
  ROOT o = token[] outfeed(x, t), outfeed_shape=f32[]
}
ENTRY e {
  x = f32[] parameter(0)
  a = f32[] negate(x)
  b = token[] call(a), to_apply=effect
  c = f32[] sine(x)
  d = f32[] cosine(c)
  ROOT r = f32[] tan(x), control-predecessors={c}
}
""")
    assert DeadCodeElimination().run(before) == 1
    assert opcodes(before) == ["parameter", "negate", "call", "sine", "tan"]
    verify_module(before)


def test_the_first_of_several_roots_stays_the_root() -> None:
    before = module("ROOT r = f32[4] negate(x); a = f32[4] sine(x)")
    DeadCodeElimination().run(before)
    assert before.entry.root.opcode == "negate"


@pytest.mark.parametrize("kind", ["all-reduce", "collective-permute"])
def test_a_start_that_stays_keeps_its_done(kind: str) -> None:
    """GEN-11: collectives have effects on the other devices; COLL-7: each start has one done."""
    more, result = (
        (", to_apply=s", "s32[3]") if kind == "all-reduce" else (", source_target_pairs={}", "(s32[3], s32[3])")
    )
    made = hl.parse(f"""s {{ a = s32[] parameter(0)
      b = s32[] parameter(1)
      ROOT c = s32[] add(a, b) }}
    ENTRY e {{ x = s32[3] parameter(0)
      start = {result} {kind}-start(x){more}
      done = s32[3] {kind}-done(start)
      ROOT r = s32[3] negate(x) }}""")
    DeadCodeElimination().run(made)
    verify_module(made)
    assert opcodes(made) == ["parameter", f"{kind}-start", f"{kind}-done", "negate"]
