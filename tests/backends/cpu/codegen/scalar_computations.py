"""Scalar computations with every opcode that may stand in one, for combiners, comparators and maps."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_text import module_text

# opcode -> a computation `key` of one f32 in (0, 1); names of other computations may follow its own.
_UNARY = [
    "abs", "acos", "asin", "asinh", "atanh", "cbrt", "ceil", "copy", "cosine", "cosh", "erf", "exponential",
    "exponential-minus-one", "floor", "log", "log-plus-one", "logistic", "negate", "opt-barrier", "round-nearest-afz",
    "round-nearest-even", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip
_BINARY = ["add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract"]
_BITS_UNARY = ["count-leading-zeros", "not", "popcnt"]
_BITS_BINARY = ["and", "or", "xor", "shift-left", "shift-right-arithmetic", "shift-right-logical"]

_BITS = "  n = s32[] bitcast-convert(x)\n  five = s32[] constant(5)\n"
_ROOT_OF_BITS = "  ROOT r = f32[] convert(m)\n"
_HALF = "  half = f32[] constant(0.5)\n"
_ARRAY = "  c = f32[4] constant({0.75, 0.25, 1, 0.5})\n  xs = f32[4] broadcast(x), dimensions={}\n"
_SUM = "  zero = f32[] constant(0)\n  ROOT r = f32[] reduce(v, zero), dimensions={0}, to_apply=sum\n"
ORDINARY = {*_UNARY, *_BINARY, *_BITS_UNARY, *_BITS_BINARY} - {"cosine", "power", "popcnt", "shift-left"}
"""Element-wise keys beyond one of each sort."""
_INDEX = "  four = f32[] constant(4)\n  f = f32[] multiply(x, four)\n  i = s32[] convert(f)\n"

KEYS: dict[str, str] = {
    **{opcode: f"  ROOT r = f32[] {opcode}(x)\n" for opcode in _UNARY},
    **{opcode: f"{_HALF}  ROOT r = f32[] {opcode}(x, half)\n" for opcode in _BINARY},
    **{opcode: f"{_BITS}  m = s32[] {opcode}(n)\n{_ROOT_OF_BITS}" for opcode in _BITS_UNARY},
    **{opcode: f"{_BITS}  m = s32[] {opcode}(n, five)\n{_ROOT_OF_BITS}" for opcode in _BITS_BINARY},
    "acosh": f"{_HALF}  two = f32[] add(x, half)\n  three = f32[] add(two, half)\n  ROOT r = f32[] acosh(three)\n",
    "bitcast": "  ROOT r = f32[] bitcast(x)\n",
    "bitcast-convert": f"{_BITS}  ROOT r = f32[] bitcast-convert(n)\n",
    "bitcast-convert of narrow floats": "  h = bf16[] convert(x)\n  n = u16[] bitcast-convert(h)\n"
    "  ROOT r = f32[] convert(n)\n",
    "broadcast": "  ROOT r = f32[] broadcast(x), dimensions={}\n",
    "clamp": f"{_HALF}  one = f32[] constant(0.9)\n  ROOT r = f32[] clamp(half, x, one)\n",
    "compare": f"{_HALF}  p = pred[] compare(x, half), direction=GE\n  ROOT r = f32[] convert(p)\n",
    "complex, real, imag": f"{_HALF}  z = c64[] complex(x, half)\n  w = c64[] multiply(z, z)\n  a = f32[] real(w)\n"
    "  b = f32[] imag(w)\n  ROOT r = f32[] add(a, b)\n",
    "is-finite": "  p = pred[] is-finite(x)\n  ROOT r = f32[] convert(p)\n",
    "reduce-precision": "  ROOT r = f32[] reduce-precision(x), exponent_bits=5, mantissa_bits=7\n",
    "reshape": "  v = f32[1] reshape(x)\n  ROOT r = f32[] reshape(v)\n",
    "select": f"{_HALF}  p = pred[] compare(x, half), direction=GE\n  ROOT r = f32[] select(p, x, half)\n",
    "transpose": "  ROOT r = f32[] transpose(x), dimensions={}\n",
    "tuple, get-tuple-element": f"{_HALF}  t = (f32[], f32[]) tuple(half, x)\n"
    "  ROOT r = f32[] get-tuple-element(t), index=1\n",
    "call": "  ROOT r = f32[] call(x), to_apply=halved\n",
    "map": "  ROOT r = f32[] map(x), dimensions={}, to_apply=halved\n",
    "fusion": "  ROOT r = f32[] fusion(x), kind=kLoop, calls=halved\n",
    "conditional": f"{_HALF}  p = pred[] compare(x, half), direction=GE\n"
    "  ROOT r = f32[] conditional(p, x, x), true_computation=halved, false_computation=same\n",
    "conditional with a loop": f"{_INDEX}  ROOT r = f32[] conditional(i, x, x, x), "
    "branch_computations={halved, looped, same}\n",
    "while": "  ROOT r = f32[] call(x), to_apply=looped\n",
    "constant": f"{_ARRAY}  v = f32[4] add(c, xs)\n{_SUM}",
    "concatenate": f"{_ARRAY}  v = f32[8] concatenate(c, xs), dimensions={{0}}\n{_SUM}",
    "convolution": f"{_ARRAY}  a = f32[1,4,1] reshape(c)\n  w = f32[2,1,1] broadcast(x), dimensions={{}}\n"
    "  o = f32[1,3,1] convolution(a, w), window={size=2}, dim_labels=b0f_0io->b0f\n  v = f32[3] reshape(o)\n" + _SUM,
    "dot": f"{_ARRAY}  ROOT r = f32[] dot(c, xs), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}\n",
    "dynamic-slice": f"{_ARRAY}{_INDEX}  s = f32[1] dynamic-slice(c, i), dynamic_slice_sizes={{1}}\n"
    "  ROOT r = f32[] reshape(s)\n",
    "dynamic-update-slice": f"{_ARRAY}{_INDEX}  s = f32[1] reshape(x)\n  v = f32[4] dynamic-update-slice(c, s, i)\n{_SUM}",
    "gather": f"{_ARRAY}{_INDEX}  j = s32[1,1] reshape(i)\n  v = f32[1] gather(c, j), offset_dims={{}}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}\n" + _SUM,
    "iota": f"{_ARRAY}  k = f32[4] iota(), iota_dimension=0\n  v = f32[4] multiply(k, xs)\n{_SUM}",
    "pad": f"{_ARRAY}  v = f32[7] pad(c, x), padding=1_2\n{_SUM}",
    "reduce": f"{_ARRAY}  v = f32[4] multiply(c, xs)\n{_SUM}",
    "reduce-window": f"{_ARRAY}  v = f32[3] reduce-window(c, x), window={{size=2}}, to_apply=sum\n{_SUM}",
    "reverse": f"{_ARRAY}  b = f32[4] reverse(c), dimensions={{0}}\n  v = f32[4] multiply(b, xs)\n{_SUM}",
    "scan": f"{_ARRAY}  zero0 = f32[] constant(0)\n  s = (f32[4], f32[]) scan(c, x), dimensions={{0}}, num_carries=1, "
    "to_apply=step\n  ROOT r = f32[] get-tuple-element(s), index=1\n",
    "scatter": f"{_ARRAY}{_INDEX}  j = s32[1,1] reshape(i)\n  u = f32[1] reshape(x)\n  v = f32[4] scatter(c, j, u), "
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=sum\n" + _SUM,
    "slice": f"{_ARRAY}  v = f32[2] slice(xs), slice={{[1:3]}}\n{_SUM}",
    "sort": f"{_ARRAY}  m = f32[4] subtract(c, xs)\n  o = f32[4] sort(m), dimensions={{0}}, to_apply=less\n"
    "  v = f32[2] slice(o), slice={[1:3]}\n" + _SUM,
}

_COMPUTATIONS = """
halved {
  x = f32[] parameter(0)
  h = f32[] constant(0.5)
  ROOT r = f32[] multiply(x, h)
}
same {
  ROOT x = f32[] parameter(0)
}
step {
  x = f32[] parameter(0)
  c = f32[] parameter(1)
  s = f32[] add(x, c)
  ROOT r = (f32[], f32[]) tuple(s, s)
}
few {
  t = (s32[], f32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
next {
  t = (s32[], f32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  a = f32[] get-tuple-element(t), index=1
  b = f32[] get-tuple-element(t), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[] multiply(a, b)
  ROOT r = (s32[], f32[], f32[]) tuple(j, c, b)
}
looped {
  x = f32[] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[], f32[]) tuple(z, x, x)
  w = (s32[], f32[], f32[]) while(t), condition=few, body=next
  ROOT r = f32[] get-tuple-element(w), index=1
}
"""

# Of two values the one with the smaller key, and of equal keys the smaller value: any order of a reduction gives the same.
_USERS = """
key {
  x = f32[] parameter(0)
KEY}
before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ka = f32[] call(a), to_apply=key
  kb = f32[] call(b), to_apply=key
  lt = pred[] compare(ka, kb), direction=LT
  eq = pred[] compare(ka, kb), direction=EQ
  la = pred[] compare(a, b), direction=LT
  tie = pred[] and(eq, la)
  ROOT r = pred[] or(lt, tie)
}
first {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = pred[] call(a, b), to_apply=before
  ROOT r = f32[] select(p, a, b)
}
"""

USES = {
    "sort": "f32[ROWS,COLUMNS] sort(x), dimensions={1}, to_apply=before",
    "reduce": "f32[ROWS] reduce(x, start), dimensions={1}, to_apply=first",
    "reduce-window": "f32[ROWS,COLUMNS] reduce-window(x, start), window={size=1x3 pad=0_0x1_1}, to_apply=first",
    "map": "f32[ROWS,COLUMNS] map(x), dimensions={0,1}, to_apply=key",
    "scatter": "f32[ROWS,COLUMNS] scatter(x, at, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=first",
    "select-and-scatter": "f32[ROWS,COLUMNS] select-and-scatter(x, s, start), "
    "window={size=1x2 stride=1x2}, select=before, scatter=first",
    "all-reduce": "f32[ROWS,COLUMNS] all-reduce(x), replica_groups={}, to_apply=first",
}

_ENTRY = """x = f32[ROWS,COLUMNS] parameter(0)
u = f32[ROWS,COLUMNS] parameter(1)
s = f32[ROWS,HALF] parameter(2)
at = s32[ROWS,1] parameter(3)
start = f32[] constant(0.625)
"""


def use(key: str, users: Sequence[str] = (*USES,), rows: int = 6, columns: int = 20) -> str:
    """A module where `users` apply a scalar computation that holds the text of KEYS[key] (or of any other text).

    Its parameters are f32[rows, columns] twice, f32[rows, columns / 2] and s32[rows, 1] below `rows`. The result is a
    tuple of what they give.
    """
    computations = _COMPUTATIONS + _USERS.replace("KEY", KEYS.get(key, key))
    lines = [f"use{k} = {USES[user]}" for k, user in enumerate(users)]
    root = f"ROOT r = tuple({', '.join(f'use{k}' for k in range(len(users)))})"
    entry = "\n".join([_ENTRY, *lines, root]).replace("ROWS", str(rows)).replace("COLUMNS", str(columns))
    return module_text(entry.replace("HALF", str(columns // 2)), computations)
