"""part-sums: sums with padded parts, in loops, add to the part alone; arrays that may have -0 are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, interpreted
from hloom.passes import clone_module
from hloom.passes.optimize.part_sums import PartSums
from hloom.prove import Proved, prove
from passes.modules import check_same_results

DYNAMIC = "dynamic-update-slice(zeros, u, i, k0)"
PADDED = "pad(u, zero), padding=1_4x0_0"


def loop(
    padded: str = DYNAMIC, init: str = "broadcast(zero), dimensions={}", rows: int = 6, u: str = "one"
) -> hl.Module:
    """A loop over rows: row i is set to `u`-dependent values, then a row that is computed from it is added."""
    sum = "add(set, padded)"
    return hl.parse(f"""HloModule m
body {{ s = (s32[], f32[{rows},3], f32[1,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{rows},3] get-tuple-element(s), index=1
  given = f32[1,3] get-tuple-element(s), index=2
  k0 = s32[] constant(0)
  k1 = s32[] constant(1)
  zero = f32[] constant(0)
  fours = f32[] constant(4)
  zeros = f32[{rows},3] broadcast(zero), dimensions={{}}
  one = f32[1,3] broadcast(fours), dimensions={{}}
  next = s32[] add(i, k1)
  set = f32[{rows},3] dynamic-update-slice(x, {"one" if u == "one" else "given"}, next, k0)
  row = f32[1,3] dynamic-slice(x, i, k0), dynamic_slice_sizes={{1,3}}
  u = f32[1,3] multiply(row, given)
  padded = f32[{rows},3] {padded}
  sum = f32[{rows},3] {sum}
  ROOT t = (s32[], f32[{rows},3], f32[1,3]) tuple(next, sum, given) }}
condition {{ s = (s32[], f32[{rows},3], f32[1,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT l = pred[] compare(i, n), direction=LT }}
ENTRY e {{ given = f32[1,3] parameter(0)
  whole = f32[{rows},3] parameter(1)
  k0 = s32[] constant(0)
  zero = f32[] constant(0)
  minus = f32[] constant(-0)
  x = f32[{rows},3] {init}
  s = (s32[], f32[{rows},3], f32[1,3]) tuple(k0, x, given)
  w = (s32[], f32[{rows},3], f32[1,3]) while(s), condition=condition, body=body
  ROOT r = f32[{rows},3] get-tuple-element(w), index=1 }}""")


def arrays(rows: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((rows, 3)).astype(np.float32)
    whole[0] = -0.0
    return [np.asarray([[-2.0, -0.0, np.nan]], np.float32), whole]


@pytest.mark.parametrize("padded", [DYNAMIC, PADDED])
def test_only_the_part_is_added(padded: str) -> None:
    after = check_same_results(loop(padded), PartSums().run, arrays())
    sums = [i.shape.dimensions for i in after.instructions() if i.opcode == "add" and i.shape.rank == 2]
    assert sums == [(1, 3)]


def test_the_loop_is_equal_for_all_arguments() -> None:
    before = loop()
    after = clone_module(before)
    assert PartSums().run(after) == 1
    assert isinstance(prove(before, after), Proved)


@pytest.mark.parametrize(
    "unchanged",
    [
        loop(init="copy(whole)"),
        loop(init="broadcast(minus), dimensions={}"),
        loop(u="given"),
        loop(DYNAMIC.replace("zeros", "x")),
        loop(PADDED.replace("zero)", "minus)").replace("minus", "fours")),
        loop(PADDED.replace("1_4", "0_0"), rows=1),
    ],
    ids=["argument", "minus zero", "written from an argument", "no zeros", "padding of fours", "whole"],
)
def test_other_sums_stay(unchanged: hl.Module) -> None:
    assert PartSums().run(clone_module(unchanged)) == 0


def test_native_code_updates_rows_in_place() -> None:
    """Rows are read before and after the update of another one; results are those of the interpreter."""
    module = loop(rows=600)
    for want, got in zip(interpreted(module, *arrays(600)), compiled(module, *arrays(600)), strict=True):
        np.testing.assert_array_equal(got, want)
