"""Rewrites of small programs, right and wrong ones: lines before and after, separated by `;`.

Ideas are from Hacker's Delight, Alive's and TensorRight's collections, and public reports of wrong simplifications.
"""

from __future__ import annotations

import hloom as hl
from hlo_text import module_text

PARAMETERS = """
x = f32[4] parameter(0)
y = f32[4] parameter(1)
i = s32[4] parameter(2)
j = s32[4] parameter(3)
u = u8[4] parameter(4)
p = pred[4] parameter(5)
k = s32[] parameter(6)
h = f16[4] parameter(7)
m = f32[2,3] parameter(8)
v = s8[4] parameter(9)
w = s8[4] parameter(10)
q = pred[4] parameter(11)
l = s32[] parameter(12)
c = pred[] parameter(13)
a = s8[2,3] parameter(14)
b = s8[3,2] parameter(15)
zero = f32[] constant(0)
inf = f32[4] constant({inf, inf, inf, inf})
one = s32[4] constant({1, 1, 1, 1})
none = s32[4] constant({0, 0, 0, 0})
signs = s32[4] constant({31, 31, 31, 31})
fone = f32[4] constant({1, 1, 1, 1})
two = f32[4] constant({2, 2, 2, 2})
half = f32[4] constant({0.5, 0.5, 0.5, 0.5})
three = u8[4] constant({3, 3, 3, 3})
seven = u8[4] constant({7, 7, 7, 7})
eight = u8[4] constant({8, 8, 8, 8})
origin = s32[] constant(0)
"""

COMPUTATIONS = """
keys {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
below {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
plus {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b)
}
greatest {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] maximum(a, b)
}
negated {
  a = f32[4] parameter(0)
  ROOT r = f32[4] negate(a)
}
same {
  ROOT a = f32[4] parameter(0)
}
condition {
  t = (s32[], s32[4]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  three = s32[] constant(3)
  ROOT r = pred[] compare(n, three), direction=LT
}
body {
  t = (s32[], s32[4]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  e = s32[4] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  d = s32[4] add(e, e)
  ROOT r = (s32[], s32[4]) tuple(next, d)
}
"""


def program(lines: str) -> hl.Module:
    """Returns a module of the parameters and some lines."""
    return hl.parse(module_text(PARAMETERS + lines.replace("; ", "\n"), COMPUTATIONS))


RIGHT = [
    # Integers
    ("ROOT r = s32[4] add(i, j)", "ROOT r = s32[4] add(j, i)"),
    ("n = s32[4] negate(j); ROOT r = s32[4] subtract(i, n)", "ROOT r = s32[4] add(i, j)"),
    ("n = s32[4] not(i); ROOT r = s32[4] add(n, one)", "ROOT r = s32[4] negate(i)"),
    ("e = s32[4] xor(i, j); n = s32[4] and(i, j); t = s32[4] add(n, n); ROOT r = s32[4] add(e, t)",
     "ROOT r = s32[4] add(i, j)"),
    ("o = s32[4] or(i, j); n = s32[4] and(i, j); ROOT r = s32[4] subtract(o, n)", "ROOT r = s32[4] xor(i, j)"),
    ("o = s32[4] or(i, j); n = s32[4] and(i, j); ROOT r = s32[4] add(o, n)", "ROOT r = s32[4] add(i, j)"),
    ("n = s32[4] not(j); s = s32[4] add(i, n); ROOT r = s32[4] add(s, one)", "ROOT r = s32[4] subtract(i, j)"),
    ("d = s32[4] subtract(i, one); ROOT r = s32[4] and(i, d)",
     "n = s32[4] negate(i); e = s32[4] and(i, n); ROOT r = s32[4] subtract(i, e)"),
    ("g = s32[4] maximum(i, j); e = s32[4] minimum(i, j); ROOT r = s32[4] add(g, e)", "ROOT r = s32[4] add(i, j)"),
    ("n = s8[4] negate(v); ROOT r = s8[4] maximum(v, n)", "ROOT r = s8[4] abs(v)"),
    ("g = pred[4] compare(i, j), direction=LT; ROOT r = s32[4] select(g, i, j)", "ROOT r = s32[4] minimum(i, j)"),
    ("g = pred[4] compare(i, j), direction=GE; ROOT r = pred[4] not(g)", "ROOT r = pred[4] compare(i, j), direction=LT"),
    ("ROOT r = u8[4] divide(u, eight)", "ROOT r = u8[4] shift-right-logical(u, three)"),
    ("ROOT r = u8[4] remainder(u, eight)", "ROOT r = u8[4] and(u, seven)"),
    ("ROOT r = u8[4] multiply(u, eight)", "ROOT r = u8[4] shift-left(u, three)"),
    ("s = s32[4] shift-right-arithmetic(i, signs); e = s32[4] xor(i, s); ROOT r = s32[4] subtract(e, s)",
     "ROOT r = s32[4] abs(i)"),
    ("ROOT r = s32[4] shift-right-arithmetic(i, signs)",
     "g = pred[4] compare(i, none), direction=LT; n = s32[4] convert(g); ROOT r = s32[4] negate(n)"),
    ("n = u8[4] not(u); f = u8[4] popcnt(n); ROOT r = u8[4] subtract(eight, f)", "ROOT r = u8[4] popcnt(u)"),
    ("e = s32[4] xor(i, j); ROOT r = s32[4] xor(e, j)", "ROOT r = s32[4] copy(i)"),
    ("n = s32[4] and(i, j); ROOT r = s32[4] not(n)",
     "e = s32[4] not(i); f = s32[4] not(j); ROOT r = s32[4] or(e, f)"),
    ("o = s32[4] or(i, j); ROOT r = s32[4] and(i, o)", "ROOT r = s32[4] copy(i)"),
    ("s = s8[4] add(v, w); ROOT r = s8[4] multiply(v, s)",
     "e = s8[4] multiply(v, v); f = s8[4] multiply(v, w); ROOT r = s8[4] add(e, f)"),
    ("e = s32[4] convert(v); ROOT r = s8[4] convert(e)", "ROOT r = s8[4] copy(v)"),
    ("e = s32[4] convert(v); f = s32[4] convert(w); s = s32[4] add(e, f); ROOT r = s8[4] convert(s)",
     "ROOT r = s8[4] add(v, w)"),
    # Predicates
    ("n = pred[4] not(p); ROOT r = f32[4] select(n, y, x)", "ROOT r = f32[4] select(p, x, y)"),
    ("s = f32[4] select(p, x, y); ROOT r = f32[4] select(p, s, fone)", "ROOT r = f32[4] select(p, x, fone)"),
    ("n = pred[4] and(p, q); ROOT r = f32[4] select(n, x, y)",
     "s = f32[4] select(q, x, y); ROOT r = f32[4] select(p, s, y)"),
    ("ROOT r = pred[4] compare(p, q), direction=EQ", "e = pred[4] xor(p, q); ROOT r = pred[4] not(e)"),
    # Floats
    ("ROOT r = f32[4] add(x, y)", "ROOT r = f32[4] add(y, x)"),
    ("ROOT r = f32[4] multiply(x, fone)", "ROOT r = f32[4] divide(x, fone)"),
    ("n = f32[4] negate(y); ROOT r = f32[4] add(x, n)", "ROOT r = f32[4] subtract(x, y)"),
    ("n = f32[4] negate(x); ROOT r = f32[4] abs(n)", "ROOT r = f32[4] abs(x)"),
    ("ROOT r = f32[4] multiply(x, two)", "ROOT r = f32[4] add(x, x)"),
    ("ROOT r = f32[4] divide(x, two)", "ROOT r = f32[4] multiply(x, half)"),
    ("n = f32[4] negate(fone); ROOT r = f32[4] multiply(x, n)", "ROOT r = f32[4] negate(x)"),
    ("e = f32[4] negate(x); f = f32[4] negate(y); g = f32[4] maximum(e, f); ROOT r = f32[4] negate(g)",
     "ROOT r = f32[4] minimum(x, y)"),
    ("e = f32[4] abs(x); ROOT r = f32[4] multiply(e, e)", "ROOT r = f32[4] multiply(x, x)"),
    ("e = f32[4] floor(x); ROOT r = f32[4] floor(e)", "ROOT r = f32[4] floor(x)"),
    ("n = f32[4] negate(x); e = f32[4] floor(n); ROOT r = f32[4] negate(e)", "ROOT r = f32[4] ceil(x)"),
    ("e = f32[4] convert(h); d = f32[4] abs(e); ROOT r = f16[4] convert(d)", "ROOT r = f16[4] abs(h)"),
    ("e = f32[4] convert(h); ROOT r = f16[4] convert(e)", "ROOT r = f16[4] copy(h)"),
    ("ROOT r = pred[4] compare(x, y), direction=LT", "ROOT r = pred[4] compare(y, x), direction=GT"),
    ("e = pred[4] compare(x, y), direction=EQ; ROOT r = pred[4] not(e)", "ROOT r = pred[4] compare(x, y), direction=NE"),
    ("e = f32[4] abs(x); ROOT r = pred[4] compare(e, inf), direction=LT", "ROOT r = pred[4] is-finite(x)"),
    ("e = f32[4] maximum(y, x); ROOT r = f32[4] minimum(e, fone)", "ROOT r = f32[4] clamp(y, x, fone)"),
    ("e = f32[4] exponential(x); ROOT r = f32[4] select(p, e, e)", "ROOT r = f32[4] exponential(x)"),
    ("e = f32[4] select(p, x, y); ROOT r = f32[4] tanh(e)",
     "f = f32[4] tanh(x); g = f32[4] tanh(y); ROOT r = f32[4] select(p, f, g)"),
    # Movement
    ("t = f32[3,2] transpose(m), dimensions={1,0}; ROOT r = f32[2] slice(f32[6] reshape(t)), slice={[4:6]}",
     "s = f32[2,1] slice(m), slice={[0:2], [2:3]}; ROOT r = f32[2] reshape(s)"),
    ("d = f32[2] dynamic-slice(x, k), dynamic_slice_sizes={2}; ROOT r = f32[2] negate(d)",
     "n = f32[4] negate(x); ROOT r = f32[2] dynamic-slice(n, k), dynamic_slice_sizes={2}"),
    ("d = f32[2] dynamic-slice(x, k), dynamic_slice_sizes={2}; ROOT r = f32[4] dynamic-update-slice(x, d, k)",
     "ROOT r = f32[4] copy(x)"),
    ("ROOT r = f32[4] dynamic-update-slice(x, y, k)", "ROOT r = f32[4] copy(y)"),
    ("e = f32[8] concatenate(x, y), dimensions={0}; ROOT r = f32[4] slice(e), slice={[4:8]}", "ROOT r = f32[4] copy(y)"),
    ("e = f32[8] concatenate(x, y), dimensions={0}; ROOT r = f32[8] reverse(e), dimensions={0}",
     "e = f32[4] reverse(x), dimensions={0}; f = f32[4] reverse(y), dimensions={0}; "
     "ROOT r = f32[8] concatenate(f, e), dimensions={0}"),
    ("ROOT r = f32[2] pad(x, zero), padding=-1_-1", "ROOT r = f32[2] slice(x), slice={[1:3]}"),
    ("e = f32[6] pad(x, zero), padding=1_1; ROOT r = f32[4] slice(e), slice={[1:5]}", "ROOT r = f32[4] copy(x)"),
    ("e = f32[3,2] transpose(m), dimensions={1,0}; ROOT r = f32[2,3] transpose(e), dimensions={1,0}",
     "ROOT r = f32[2,3] copy(m)"),
    ("e = s8[2,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}; "
     "ROOT r = s8[2,2] transpose(e), dimensions={1,0}",
     "ROOT r = s8[2,2] dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    ("e = s32[8] concatenate(i, j), dimensions={0}; ROOT r = s32[] reduce(e, origin), dimensions={0}, to_apply=plus",
     "e = s32[] reduce(i, origin), dimensions={0}, to_apply=plus; "
     "ROOT r = s32[] reduce(j, e), dimensions={0}, to_apply=plus"),
    ("e = s32[4] sort(i), dimensions={0}, to_apply=below; ROOT r = s32[4] sort(e), dimensions={0}, to_apply=below",
     "ROOT r = s32[4] sort(i), dimensions={0}, to_apply=below"),
    ("ROOT r = (f32[4], s32[4]) sort(x, i), dimensions={0}, to_apply=keys",
     "n = f32[4] negate(x); nn = f32[4] negate(n); ROOT r = (f32[4], s32[4]) sort(nn, i), dimensions={0}, to_apply=keys"),
    # Control flow
    ("ROOT r = f32[4] conditional(c, x, x), true_computation=negated, false_computation=same",
     "n = f32[4] negate(x); e = pred[4] broadcast(c), dimensions={}; ROOT r = f32[4] select(e, n, x)"),
    ("t = (s32[], s32[4]) tuple(origin, i); g = (s32[], s32[4]) while(t), condition=condition, body=body; "
     "ROOT r = s32[4] get-tuple-element(g), index=1",
     "e = s32[4] add(i, i); f = s32[4] add(e, e); ROOT r = s32[4] add(f, f)"),
]  # fmt: skip

WRONG = [
    # Integers
    ("ROOT r = s32[4] subtract(i, j)", "ROOT r = s32[4] subtract(j, i)"),
    ("e = s32[4] add(i, one); ROOT r = pred[4] compare(e, i), direction=GT",
     "ROOT r = pred[4] compare(one, one), direction=EQ"),
    ("ROOT r = s32[4] abs(s32[4] negate(i))", "ROOT r = s32[4] negate(i)"),
    ("e = s8[4] multiply(v, v); ROOT r = s8[4] abs(e)", "ROOT r = s8[4] multiply(v, v)"),
    ("e = s8[4] abs(v); n = s8[] constant(0); z = s8[4] broadcast(n), dimensions={}; "
     "ROOT r = pred[4] compare(e, z), direction=LT", "ROOT r = pred[4] compare(p, p), direction=NE"),
    ("ROOT r = s32[4] and(i, one)", "ROOT r = s32[4] copy(i)"),
    ("ROOT r = u8[4] shift-left(u8[4] shift-right-logical(u, u), u)", "ROOT r = u8[4] add(u, u)"),
    ("ROOT r = s8[4] divide(v, w)", "n = s8[4] divide(s8[4] negate(v), w); ROOT r = s8[4] negate(n)"),
    ("n = s8[] constant(2); e = s8[4] broadcast(n), dimensions={}; ROOT r = s8[4] divide(v, e)",
     "n = s8[] constant(1); e = s8[4] broadcast(n), dimensions={}; ROOT r = s8[4] shift-right-arithmetic(v, e)"),
    ("ROOT r = s32[4] remainder(i, j)", "d = s32[4] divide(i, j); ROOT r = s32[4] subtract(i, s32[4] multiply(j, j))"),
    ("e = s8[4] convert(i); ROOT r = s32[4] convert(e)", "ROOT r = s32[4] copy(i)"),
    # Floats
    ("ROOT r = f32[4] subtract(x, x)", "ROOT r = f32[4] broadcast(zero), dimensions={}"),
    ("z = f32[4] broadcast(zero), dimensions={}; ROOT r = f32[4] add(x, z)", "ROOT r = f32[4] copy(x)"),
    ("z = f32[4] broadcast(zero), dimensions={}; ROOT r = f32[4] multiply(x, z)",
     "ROOT r = f32[4] broadcast(zero), dimensions={}"),
    ("e = f32[4] subtract(x, y); ROOT r = f32[4] negate(e)", "ROOT r = f32[4] subtract(y, x)"),
    ("e = f32[4] multiply(x, x); ROOT r = f32[4] sqrt(e)", "ROOT r = f32[4] abs(x)"),
    ("e = f32[4] exponential(x); ROOT r = f32[4] log(e)", "ROOT r = f32[4] copy(x)"),
    ("e = f32[4] add(x, y); ROOT r = f32[4] subtract(e, y)", "ROOT r = f32[4] copy(x)"),
    ("ROOT r = f32[4] divide(x, x)", "ROOT r = f32[4] add(fone, f32[4] subtract(x, x))"),
    ("ROOT r = pred[4] compare(x, y), direction=LT", "n = pred[4] compare(x, y), direction=GE; ROOT r = pred[4] not(n)"),
    ("ROOT r = f32[4] maximum(x, y)", "g = pred[4] compare(x, y), direction=GT; ROOT r = f32[4] select(g, x, y)"),
    ("e = s32[4] convert(x); ROOT r = f32[4] convert(e)", "ROOT r = f32[4] round-nearest-even(x)"),
    ("ROOT r = f16[4] convert(f32[4] add(f32[4] convert(h), x))", "ROOT r = f16[4] add(h, f16[4] convert(x))"),
    ("e = f16[4] convert(x); ROOT r = f32[4] convert(e)", "ROOT r = f32[4] copy(x)"),
    # Movement
    ("ROOT r = f32[3,2] transpose(m), dimensions={1,0}", "ROOT r = f32[3,2] reshape(m)"),
    ("ROOT r = f32[4] reverse(x), dimensions={0}",
     "s = f32[3] slice(x), slice={[1:4]}; ROOT r = f32[4] pad(s, zero), padding=0_1"),
    ("d = f32[2] dynamic-slice(x, k), dynamic_slice_sizes={2}; ROOT r = f32[2] negate(d)",
     "d = f32[2] dynamic-slice(x, origin), dynamic_slice_sizes={2}; ROOT r = f32[2] negate(d)"),
    ("d = f32[2] dynamic-slice(x, k), dynamic_slice_sizes={2}; ROOT r = f32[1] dynamic-slice(d, l), dynamic_slice_sizes={1}",
     "s = s32[] add(k, l); ROOT r = f32[1] dynamic-slice(x, s), dynamic_slice_sizes={1}"),
    ("s = f32[2] slice(x), slice={[0:2]}; ROOT r = f32[4] dynamic-update-slice(x, s, k)",
     "s = f32[2] slice(x), slice={[1:3]}; ROOT r = f32[4] dynamic-update-slice(x, s, k)"),
    ("ROOT r = f32[2] reduce(m, zero), dimensions={1}, to_apply=largest",
     "ROOT r = f32[2] reduce(m, zero), dimensions={1}, to_apply=sum"),
    ("ROOT r = f32[] reduce(f32[4] multiply(x, y), zero), dimensions={0}, to_apply=largest",
     "ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=largest"),
    ("ROOT r = s32[] reduce(i, origin), dimensions={0}, to_apply=greatest",
     "e = s32[4] sort(i), dimensions={0}, to_apply=below; s = s32[1] slice(e), slice={[3:4]}; ROOT r = s32[] reshape(s)"),
    # Control flow
    ("ROOT r = f32[4] conditional(c, x, x), true_computation=negated, false_computation=same",
     "e = pred[4] broadcast(c), dimensions={}; n = f32[4] negate(x); ROOT r = f32[4] select(e, x, n)"),
]  # fmt: skip
