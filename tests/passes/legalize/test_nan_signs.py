"""GEN-7, TOTALORDER-1: computed NaNs are positive where their sign is observed; NaNs in data keep their sign."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.passes.legalize.nan_signs import NanSigns

HEAD = """HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
plain { a = f32[] parameter(0)
  b = f32[] parameter(1)
  nan = f32[] constant(nan)
  an = pred[] compare(a, a), direction=NE
  bn = pred[] compare(b, b), direction=NE
  x = f32[] select(an, nan, a)
  y = f32[] select(bn, nan, b)
  ROOT r = pred[] compare(x, y), direction=LT, type=TOTALORDER
}
less.with { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
body { s = (f32[4], s32[]) parameter(0)
  x = f32[4] get-tuple-element(s), index=0
  k = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = f32[4] negate(x)
  y = f32[4] subtract(m, x)
  n = s32[] add(k, one)
  ROOT t = (f32[4], s32[]) tuple(y, n)
}
more { s = (f32[4], s32[]) parameter(0)
  k = s32[] get-tuple-element(s), index=1
  three = s32[] constant(3)
  ROOT r = pred[] compare(k, three), direction=LT
}
first { a = f32[4] parameter(0)
  ROOT r = f32[4] log(a)
}
second { ROOT a = f32[4] parameter(0)
}
last { a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  k = s32[] constant(0)
"""
LOOK = "ROOT r = u32[4] bitcast-convert(v)"
# What is looked at, and how many instructions are settled.
CASES = [
    ("v = f32[4] log(x);" + LOOK, 1),
    ("v = f32[4] subtract(x, y); w = f32[4] negate(v); ROOT r = u32[4] bitcast-convert(w)", 1),
    ("v = f32[4] reverse(x), dimensions={0};" + LOOK, 0),
    ("p = pred[4] compare(x, y), direction=LT; l = f32[4] sqrt(x); v = f32[4] select(p, l, y);" + LOOK, 1),
    ("v = f32[4] add(x, y); ROOT r = pred[4] compare(v, x), direction=LT", 0),
    ("v = f32[4] add(x, y); ROOT r = pred[4] compare(v, x), direction=LT, type=TOTALORDER", 1),
    ("v = f32[4] add(x, y); t = (f32[4], s32[4]) topk(v), k=4, largest=true; ROOT i = s32[4] get-tuple-element(t), index=1", 1),
    ("v = f32[4] add(x, y); ROOT r = f32[4] sort(v), dimensions={0}, to_apply=less", 1),
    ("v = f32[4] add(x, y); ROOT r = f32[4] sort(v), dimensions={0}, to_apply=plain", 0),
    ("v = f32[4] add(x, y); i = s32[4] iota(), iota_dimension=0; t = (f32[4], s32[4]) sort(v, i), dimensions={0}, "
     "to_apply=less.with; ROOT r = s32[4] get-tuple-element(t), index=1", 1),
    ("a = (f32[4], s32[]) tuple(x, k); w = (f32[4], s32[]) while(a), condition=more, body=body; "
     "v = f32[4] get-tuple-element(w), index=0;" + LOOK, 1),
    ("v = f32[4] conditional(k, x, y), branch_computations={first, second};" + LOOK, 1),
    ("v = f32[4] call(x), to_apply=first;" + LOOK, 1),
    ("c = s32[4] bitcast-convert(x); v = f32[4] convert(c);" + LOOK, 0),
    ("v = f32[4] add(x, y); ROOT r = f4e2m1fn[4] convert(v)", 1),
    ("v = f32[4] add(x, y); ROOT r = bf16[4] convert(v)", 0),
    ('v = f32[4] custom-call(x), custom_call_target="Sharding";' + LOOK, 0),
    ('l = f32[4] sqrt(x); v = f32[4] custom-call(l), custom_call_target="Sharding";' + LOOK, 1),
    ("i = s32[4,1] iota(), iota_dimension=0; v = f32[4] scatter(x, i, y), update_window_dims={}, "
     "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last;" + LOOK, 0),
    ("v = f32[4] all-gather(x), dimensions={0}, replica_groups={{0}};" + LOOK, 0),
    ("v = f32[4] collective-permute(x), source_target_pairs={{0,0}};" + LOOK, 0),
    ("l = f32[4] sqrt(x); s = (f32[4], f32[4]) collective-permute-start(l), source_target_pairs={{0,0}}; "
     "v = f32[4] collective-permute-done(s);" + LOOK, 1),
    ("s = (f32[4], f32[4], u32[]) copy-start(x); v = f32[4] copy-done(s);" + LOOK, 0),
    ("s = ((f32[4]), f32[4], s32[]) async-start(x), calls=first; v = f32[4] async-done(s), calls=first;" + LOOK, 1),
    ("s = ((f32[4]), f32[4], s32[]) async-start(x), calls=second; v = f32[4] async-done(s), calls=second;" + LOOK, 0),
]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("body", "settled"), CASES)
def test_only_computed_and_observed_nans_are_changed(body: str, settled: int) -> None:
    text = HEAD + body.replace(";", "\n") + "\n}"
    module = hl.parse(text)
    assert NanSigns().run(module) == settled
    hl.verifier.verify_module(module)
    assert NanSigns().run(module) == 0
    values = np.array([np.nan, -np.nan, np.inf, -1.0], np.float32)
    for y in (values, values[::-1], -values):
        one, other = (hl.compile(text, backend)(values, y.copy()) for backend in ("interpreter", "cpu"))
        if settled or np.asarray(one).dtype.kind in "ub":
            assert np.array_equal(np.asarray(one).view(np.uint8), np.asarray(other).view(np.uint8))
        else:  # of computed NaNs in results, which processors give either sign
            np.testing.assert_array_equal(np.asarray(one, np.float32), np.asarray(other, np.float32))


def test_data_keep_their_signs() -> None:
    """TOTALORDER-1: -NaN is the least, NaN the greatest."""
    text = HEAD + "ROOT r = f32[4] sort(x), dimensions={0}, to_apply=less\n}"
    x = np.array([np.nan, 1.0, -np.nan, -np.inf], np.float32)
    for backend in ("interpreter", "cpu"):
        found = np.asarray(hl.compile(text, backend)(x, x))
        assert np.isnan(found[[0, 3]]).all() and np.signbit(found).tolist() == [True, True, False, False]
