"""Modules on which passes are proved that look for more than a pattern; `T` is the element type."""

from __future__ import annotations

INLINE = """HloModule m
f { a = T[2] parameter(0)
  b = T[2] parameter(1)
  ROOT r = T[2] add(a, b) }
ENTRY e { x = T[2] parameter(0)
  y = T[2] parameter(1)
  z = T[2] call(x, y), to_apply=f
  ROOT r = T[2] call(z, x), to_apply=f }"""

KNOWN_BRANCH = """HloModule m
f { a = T[2] parameter(0)
  ROOT r = T[2] add(a, a) }
g { a = T[2] parameter(0)
  ROOT r = T[2] multiply(a, a) }
ENTRY e { x = T[2] parameter(0)
  p = pred[] constant(false)
  y = T[2] conditional(p, x, x), true_computation=f, false_computation=g
  k = s32[] constant(-3)
  ROOT r = T[2] conditional(k, y, x), branch_computations={f, g} }"""

EQUAL_BRANCHES = """HloModule m
f { a = T[2] parameter(0)
  ROOT r = T[2] add(a, a) }
ENTRY e { x = T[2] parameter(0)
  p = pred[] parameter(1)
  ROOT r = T[2] conditional(p, x, x), true_computation=f, false_computation=f }"""

_LOOP = """HloModule m
goes { s = (s32[], T[2], T[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT r = pred[] compare(i, n), direction=LT }
step { s = (s32[], T[2], T[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = T[2] get-tuple-element(s), index=1
  c = T[2] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = T[2] multiply(c, c)
  y = T[2] add(x, d)
  ROOT r = (s32[], T[2], T[2]) tuple(j, y, c) }
ENTRY e { x = T[2] parameter(0)
  c = T[2] parameter(1)
  i = s32[] constant(0)
  s = (s32[], T[2], T[2]) tuple(i, x, c)
  w = (s32[], T[2], T[2]) while(s), condition=goes, body=step
  ROOT r = T[2] get-tuple-element(w), index=1 }"""
LOOPS = tuple(_LOOP.replace("TRIPS", trips) for trips in ("0", "1", "3"))

ARG_MAX = """HloModule m
best { v = T[] parameter(0)
  i = s32[] parameter(1)
  w = T[] parameter(2)
  j = s32[] parameter(3)
  b = pred[] compare(v, w), direction=GT
  n = pred[] compare(v, v), direction=NE
  keep = pred[] or(b, n)
  e = pred[] compare(v, w), direction=EQ
  l = pred[] compare(i, j), direction=LT
  t = pred[] and(e, l)
  own = pred[] or(keep, t)
  x = T[] select(keep, v, w)
  k = s32[] select(own, i, j)
  ROOT r = (T[], s32[]) tuple(x, k) }
ENTRY e { x = T[3] parameter(0)
  n = s32[3] iota(), iota_dimension=0
  m = T[] constant(-inf)
  z = s32[] constant(0)
  r = (T[], s32[]) reduce(x, n, m, z), dimensions={0}, to_apply=best
  ROOT y = s32[] get-tuple-element(r), index=1 }"""

BATCH_NORMS = tuple(
    f"""HloModule m
ENTRY e {{ x = T[2,3] parameter(0)
  s = T[3] parameter(1)
  a = T[3] parameter(2)
  b = T[3] parameter(3)
  c = T[3] parameter(4)
  g = T[2,3] parameter(5)
  ROOT r = {operation}, epsilon=0.001, feature_index=1 }}"""
    for operation in (
        "T[2,3] batch-norm-inference(x, s, a, b, c)",
        "(T[2,3], T[3], T[3]) batch-norm-training(x, s, a)",
        "(T[2,3], T[3], T[3]) batch-norm-grad(x, s, a, b, g)",
    )
)

SCANS = tuple(
    f"""HloModule m
f {{ x = T[2] parameter(0)
  c = T[2] parameter(1)
  s = T[2] subtract(c, x)
  p = T[2] multiply(s, x)
  ROOT r = (T[2], T[2]) tuple(p, s) }}
ENTRY e {{ x = T[2,{length}] parameter(0)
  c = T[2] parameter(1)
  ROOT r = (T[2,{length}], T[2]) scan(x, c), dimensions={{1}}, num_carries=1, to_apply=f, is_reverse={is_reverse} }}"""
    for length, is_reverse in ((3, "false"), (3, "true"), (0, "false"))
)

MIXED_PRECISION = tuple(
    f"""HloModule m
sum {{ a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT r = f64[] add(a, b) }}
ENTRY e {{ x = T[2,2] parameter(0)
  y = f32[2,2] parameter(1)
  z = f64[] parameter(2)
  ROOT r = {operation} }}"""
    for operation in (
        "T[2,2] add(x, y)",
        "f32[2,2] multiply(x, y)",
        "T[2] reduce(x, z), dimensions={1}, to_apply=sum",
    )
)
