"""Constants that are tuples, wherever the text has them."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.files.arrays import flat

COMPUTATIONS = """HloModule m
same { ROOT p = (s32[], f32[3]) parameter(0) }
below { p = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT l = pred[] compare(i, n), direction=LT }
next { p = (s32[], f32[3]) parameter(0)
  k = (s32[], f32[3]) constant((1, {1,2,3}))
  i = s32[] get-tuple-element(p), index=0
  j = s32[] get-tuple-element(k), index=0
  x = f32[3] get-tuple-element(p), index=1
  y = f32[3] get-tuple-element(k), index=1
  a = s32[] add(i, j)
  b = f32[3] add(x, y)
  ROOT t = (s32[], f32[3]) tuple(a, b) }
"""
PAIR = "k = (s32[], f32[3]) constant((0, {3,1,2}))\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ROOT r = () constant(())", []),
        ("ROOT r = (s32[], (f32[2], pred[2])) constant((7, ({1,-2}, {1,0})))", [7, [1, -2], [True, False]]),
        (f"{PAIR} ROOT r = f32[3] get-tuple-element(k), index=1", [[3, 1, 2]]),
        (f"{PAIR} ROOT r = ((s32[], f32[3])) tuple(k)", [0, [3, 1, 2]]),
        (f"{PAIR} ROOT r = (s32[], f32[3]) copy(k)", [0, [3, 1, 2]]),
        (f"{PAIR} ROOT r = (s32[], f32[3]) opt-barrier(k)", [0, [3, 1, 2]]),
        (f"{PAIR} ROOT r = (s32[], f32[3]) call(k), to_apply=same", [0, [3, 1, 2]]),
        (f"{PAIR} ROOT r = (s32[], f32[3]) while(k), condition=below, body=next", [4, [7, 9, 14]]),
        (
            f"{PAIR} x = pred[] parameter(0)\n"
            "ROOT r = (s32[], f32[3]) conditional(x, k, k), true_computation=same, false_computation=next",
            [1, [4, 3, 5]],
        ),
    ],
)
def test_constants_may_be_tuples(body: str, expected: list[object]) -> None:
    """GEN-12: a constant is a literal of any shape."""
    text = f"{COMPUTATIONS}ENTRY e {{ {body} }}"
    results = hl.compile(text)(*[False] * ("conditional" in body))
    assert [leaf.tolist() for leaf in flat(results)] == expected
