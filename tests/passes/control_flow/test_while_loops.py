"""Loops: trip counts, loops that run at most once, and loop-invariant code motion."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.analysis.counted_loop import CountedLoop, counted_loop, resolve
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.passes import clone_module, run_passes, simplification_pipeline
from hloom.passes.control_flow.while_loops import (
    WhileLoopInvariantCodeMotion,
    WhileLoopSimplifier,
    loops_of,
)
from hloom.passes.simplify.dead_code import DeadCodeElimination
from passes.modules import check_same_results, difference, run

LOOP = """HloModule m
condition {
  t = (s32[], f32[4], f32[4], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  limit = s32[] get-tuple-element(t), index=3
  n = s32[] constant(LIMIT)
  ROOT less = pred[] compare(i, END), direction=DIRECTION
}
body {
  t = (s32[], f32[4], f32[4], s32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[4] get-tuple-element(t), index=1
  w = f32[4] get-tuple-element(t), index=2
  limit = s32[] get-tuple-element(t), index=3
  step = s32[] constant(STEP)
  j = s32[] add(i, step)
  s = f32[4] sine(w)
  y = f32[4] add(x, s)
  ROOT r = (s32[], f32[4], f32[4], s32[]) tuple(j, y, w, limit)
}
ENTRY e {
  start = s32[] constant(START)
  limit = s32[] constant(LIMIT)
  x = f32[4] parameter(0)
  w = f32[4] parameter(1)
  t = (s32[], f32[4], f32[4], s32[]) tuple(start, x, w, limit)
  r = (s32[], f32[4], f32[4], s32[]) while(t), condition=condition, body=body
  ROOT y = f32[4] get-tuple-element(r), index=1
}
"""

ARRAYS = [np.float32([1, 2, 3, 4]), np.float32([0.5, np.inf, -1, np.nan])]


def loop_module(start: int = 0, limit: int = 5, step: int = 1, direction: str = "LT", end: str = "n") -> hl.Module:
    values = {"START": start, "LIMIT": limit, "STEP": step, "DIRECTION": direction, "END": end}
    text = LOOP
    for name, value in values.items():
        text = text.replace(name, str(value))
    return hl.parse(text)


@pytest.mark.parametrize(
    ("options", "trips"),
    [
        ({}, 5),
        ({"end": "limit"}, 5),
        ({"start": 5}, 0),
        ({"start": 9}, 0),
        ({"step": 2}, 3),
        ({"direction": "LE"}, 6),
        ({"start": 5, "limit": 0, "step": -2, "direction": "GT"}, 3),
        ({"start": 5, "limit": 0, "step": -1, "direction": "GE"}, 6),
        ({"step": -1}, None),
        ({"step": 0}, None),
        ({"direction": "NE"}, None),
        ({"limit": 2147483647, "step": 2}, None),  # overflows before it reaches the limit
    ],
)
def test_trip_counts(options: dict[str, object], trips: int | None) -> None:
    (loop,) = loops_of(loop_module(**options))  # type: ignore[arg-type]
    found = counted_loop(loop)
    assert (found.trips if found else None) == trips
    if found:
        assert found == CountedLoop(0, int(options.get("start", 0)), int(options.get("step", 1)), found.trips)  # type: ignore[call-overload]


def test_trip_counts_are_found_through_fusions() -> None:
    fused = loop_module(limit=500)
    run_passes(fused, cpu_pipeline())
    (loop,) = loops_of(fused)
    assert "fusion" in {i.opcode for computation in loop.op.computations for i in computation.instructions}
    assert counted_loop(loop) == CountedLoop(index=0, start=0, step=1, trips=500)


FUSED_REDUCTION = """HloModule m
least { a = f32[] parameter(0)  b = s32[] parameter(1)  c = f32[] parameter(2)  d = s32[] parameter(3)
  p = pred[] compare(a, c), direction=LE
  e = f32[] select(p, a, c)  f = s32[] select(p, b, d)
  ROOT t = (f32[], s32[]) tuple(e, f) }
fused { x = f32[8] parameter(0)  n = s32[8] iota(), iota_dimension=0  inf = f32[] constant(inf)  zero = s32[] constant(0)
  ROOT r = (f32[], s32[]) reduce(x, n, inf, zero), dimensions={0}, to_apply=least }
body { s = (s32[], f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0  x = f32[8] get-tuple-element(s), index=1
  r = (f32[], s32[]) fusion(x), kind=kLoop, calls=fused
  at = s32[] get-tuple-element(r), index=1  one = s32[] constant(1)  next = s32[] add(i, one)
  ROOT t = (s32[], f32[8], s32[]) tuple(next, x, at) }
condition { s = (s32[], f32[8], s32[]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[8] parameter(0)  zero = s32[] constant(0)  s = (s32[], f32[8], s32[]) tuple(zero, x, zero)
  w = (s32[], f32[8], s32[]) while(s), condition=condition, body=body
  ROOT at = s32[] get-tuple-element(w), index=2 }
"""


def test_state_may_come_from_a_fusion_whose_root_is_a_reduction_of_several_arrays() -> None:
    module = hl.parse(FUSED_REDUCTION)
    (while_,) = loops_of(module)
    at = while_.op.body.root.operands[2]
    assert resolve(at).instruction is at
    assert hl.compile(module)(np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)) == 1


@pytest.mark.parametrize("start", [3, 4, 5, 9])
def test_loops_that_run_at_most_once_are_removed(start: int) -> None:
    after = check_same_results(loop_module(start), WhileLoopSimplifier().run, ARRAYS)
    assert len(loops_of(after)) == (start == 3)


def test_invariant_instructions_are_computed_before_the_loop() -> None:
    after = check_same_results(loop_module(), WhileLoopInvariantCodeMotion().run, ARRAYS)
    assert any(i.opcode == "sine" for i in after.entry.instructions)
    (loop,) = loops_of(after)
    assert len(loop.shape.elements) == 5
    assert "sine" not in [i.opcode for c in loop.op.computations for i in c.instructions]
    assert WhileLoopInvariantCodeMotion().run(after) == 0
    run_passes(after, simplification_pipeline(), verify=True)
    assert difference(run(loop_module(), ARRAYS), run(after, ARRAYS)) is None


def test_dead_elements_of_the_loop_state_are_removed() -> None:
    before = loop_module()
    after = check_same_results(before, DeadCodeElimination().run, ARRAYS)
    (loop,) = loops_of(after)
    assert [str(shape) for shape in loop.shape.elements] == ["s32[]", "f32[4]", "f32[4]"]


def test_loops_over_whole_tuples_and_shared_bodies_are_left_alone() -> None:
    whole = hl.parse(LOOP.replace("LIMIT", "5").replace("START", "0").replace("STEP", "1").replace("END", "n")
                     .replace("DIRECTION", "LT").replace("ROOT y = f32[4] get-tuple-element(r), index=1",
                     "ROOT y = ((s32[], f32[4], f32[4], s32[])) tuple(r)"))  # fmt: skip
    assert DeadCodeElimination().run(clone_module(whole)) == 1  # the limit that the condition does not use
    check_same_results(whole, DeadCodeElimination().run, ARRAYS)
    shared = hl.parse(
        whole.to_text().replace("tuple(r)", "tuple(r2)").replace("ROOT y", "r2 = (s32[], f32[4], f32[4], s32[]) "
        "while(r), condition=condition, body=body\n  ROOT y")
    )  # fmt: skip
    assert WhileLoopInvariantCodeMotion().run(shared) == 0
