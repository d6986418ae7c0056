"""arg-max: reductions that become two reductions, with the same indices."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.passes import clone_module
from hloom.passes.optimize.arg_max import MIN_LENGTH, ArgMax
from passes.modules import check_same_results

LENGTH = MIN_LENGTH
FIRST = """b = pred[] compare(v, w), direction=GT
  n = pred[] compare(v, v), direction=NE
  keep = pred[] or(b, n)
  e = pred[] compare(v, w), direction=EQ
  l = pred[] compare(i, j), direction=LT
  t = pred[] and(e, l)
  own = pred[] or(keep, t)
  x = T[] select(keep, v, w)
  k = s32[] select(own, i, j)"""
EQUAL_BY_INDEX = """keep = pred[] compare(v, w), direction=GE
  x = T[] select(keep, v, w)
  c = s32[] select(keep, i, j)
  e = pred[] compare(v, w), direction=EQ
  least = s32[] minimum(i, j)
  k = s32[] select(e, least, c)"""
LAST = FIRST.replace("compare(i, j), direction=LT", "compare(i, j), direction=GT")
TOTAL = FIRST.replace("direction=GT", "direction=GT, type=TOTALORDER", 1)


def arg_max(combiner: str, type: str = "f32", init: str = "-inf", reads: str = "index") -> hl.Module:
    value = "value = T[6] get-tuple-element(r), index=0\n  c = s32[6] convert(value)\n  " if reads == "both" else ""
    text = f"""HloModule m
best {{ v = T[] parameter(0)
  i = s32[] parameter(1)
  w = T[] parameter(2)
  j = s32[] parameter(3)
  {combiner}
  ROOT r = (T[], s32[]) tuple(x, k) }}
ENTRY e {{ x = T[6,{LENGTH}] parameter(0)
  counts = s32[{LENGTH}] iota(), iota_dimension=0
  n = s32[6,{LENGTH}] broadcast(counts), dimensions={{1}}
  m = T[] constant({init})
  z = s32[] constant(0)
  r = (T[6], s32[6]) reduce(x, n, m, z), dimensions={{1}}, to_apply=best
  index = s32[6] get-tuple-element(r), index=1
  {value}ROOT y = s32[6] {"add(index, c)" if value else "copy(index)"} }}"""
    return hl.parse(text.replace("T[", f"{type}["))


def rows(type: str) -> np.ndarray:
    """An array with equal values, constant rows, infinities, and for floats NaN and both zeros."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, (6, LENGTH)).astype(np.float32)
    x[1], x[2, 5:] = 3, 3
    if type == "s32":
        return x.astype(np.int32)
    x[3], x[4, 7], x[4, 20], x[5, 3:5], x[5, 9] = -np.inf, np.nan, np.nan, np.inf, -np.inf
    x[2, :5] = -0.0
    return x


@pytest.mark.parametrize(
    ("combiner", "type", "init"),
    [
        (FIRST, "f32", "-inf"),
        (FIRST.replace("GT", "LT", 1), "f32", "inf"),
        (FIRST, "s32", "-2147483648"),
        (EQUAL_BY_INDEX, "s32", "-2147483648"),
        (EQUAL_BY_INDEX.replace("GE", "LE"), "s32", "2147483647"),
    ],
    ids=["largest", "smallest", "integers", "equal values by index", "smallest, equal values by index"],
)
def test_the_index_of_the_extremum_is_computed_by_two_reductions(combiner: str, type: str, init: str) -> None:
    module = arg_max(combiner, type, init)
    after = check_same_results(module, ArgMax().run, [rows(type)])
    reductions = [i for i in after.entry.instructions if i.opcode == "reduce" and not i.shape.is_tuple]
    assert len(reductions) == 2
    x = rows(type)
    largest = "direction=G" in combiner
    expected = x.argmax(1) if largest else x.argmin(1)
    np.testing.assert_array_equal(hl.compile(module)(x), expected)


@pytest.mark.parametrize(
    "module",
    [
        arg_max(LAST),
        arg_max(EQUAL_BY_INDEX),  # keeps the second of a NaN and a number
        arg_max(TOTAL),
        arg_max(FIRST, init="0"),
        arg_max(FIRST, reads="both"),
        arg_max(FIRST.replace("compare(v, v)", "compare(v, w)")),
    ],
    ids=["the last", "NaN not kept", "total order", "no identity", "the value is read", "another choice"],
)
def test_other_reductions_are_left_alone(module: hl.Module) -> None:
    assert ArgMax().run(clone_module(module)) == 0
