"""tuple-simplifier: tuples of the elements of a tuple."""

from __future__ import annotations

import numpy as np

import hloom as hl
from hloom.passes.simplify.tuple_simplifier import TupleSimplifier
from passes.modules import check_same_results

TUPLES = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  p = (f32[], s32[]) parameter(1)
  t = (f32[], (f32[], s32[])) tuple(x, p)
  a = (f32[], s32[]) get-tuple-element(t), index=1
  b = f32[] get-tuple-element(a), index=0
  c = s32[] get-tuple-element(a), index=1
  ROOT r = (f32[], s32[]) tuple(b, c)
}
"""


def test_tuples_taken_apart_and_joined_again() -> None:
    after = check_same_results(hl.parse(TUPLES), TupleSimplifier().run, [np.float32(1), (np.float32(2), np.int32(3))])
    assert [i.name for i in after.entry.instructions] == ["x", "p"]
    assert after.entry.root.name == "p"


def test_a_part_of_a_tuple_is_not_the_tuple() -> None:
    part = TUPLES.replace("ROOT r = (f32[], s32[]) tuple(b, c)", "ROOT r = (f32[]) tuple(b)").replace(
        "  c = s32[] get-tuple-element(a), index=1\n", ""
    )
    after = hl.parse(part)
    TupleSimplifier().run(after)
    assert after.entry.root.opcode == "tuple"
