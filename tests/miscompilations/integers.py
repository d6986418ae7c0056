"""Integers that wrap, are shifted out, are narrow, or count iterations."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from miscompilations.case import Case, module

S8, S32, U32, S64 = np.int8, np.int32, np.uint32, np.int64
BASE = np.array([12, 7, 20, 15, 11], S8)
PLUS = "plus {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] add(a, b); }"


def rounded_down_loop() -> str:
    """Divides v by each later element in turn, rounding to minus infinity, in a loop."""
    state = "(s32[], s32[], s32[3])"
    parts = f"""t = {state} parameter(0); i = s32[] get-tuple-element(t), index=0
    v = s32[] get-tuple-element(t), index=1; x = s32[3] get-tuple-element(t), index=2"""
    return f"""condition {{
    {parts}
    n = s32[] constant(3); ROOT less = pred[] compare(i, n), direction=LT
    }}
    body {{
    {parts}
    one = s32[] constant(1); next = s32[] add(i, one)
    e = s32[1] dynamic-slice(x, i), dynamic_slice_sizes={{1}}; d = s32[] reshape(e)
    q = s32[] divide(v, d); m = s32[] remainder(v, d); zero = s32[] constant(0)
    inexact = pred[] compare(m, zero), direction=NE
    sv = s32[] sign(v); sd = s32[] sign(d); opposite = pred[] compare(sv, sd), direction=NE
    lower = pred[] and(inexact, opposite); minus = s32[] subtract(q, one)
    w = s32[] select(lower, minus, q)
    ROOT r = {state} tuple(next, w, x)
    }}"""


def exchange_loop() -> str:
    """Rounds of a cipher: x and y are exchanged after an addition, a rotation and an exclusive or."""
    state = "(s32[], u32[], u32[])"
    parts = f"""t = {state} parameter(0); i = s32[] get-tuple-element(t), index=0
    x = u32[] get-tuple-element(t), index=1; y = u32[] get-tuple-element(t), index=2"""
    return f"""condition {{
    {parts}
    n = s32[] constant(5); ROOT less = pred[] compare(i, n), direction=LT
    }}
    body {{
    {parts}
    one = s32[] constant(1); next = s32[] add(i, one)
    s = u32[] add(x, y); left = u32[] constant(13); right = u32[] constant(19)
    a = u32[] shift-left(y, left); b = u32[] shift-right-logical(y, right); o = u32[] or(a, b)
    w = u32[] xor(o, s)
    ROOT r = {state} tuple(next, w, s)
    }}"""


def exchanged(x: int, y: int) -> tuple[np.ndarray, np.ndarray]:
    for _ in range(5):
        s = (x + y) % 2**32
        x, y = ((y << 13 | y >> 19) % 2**32) ^ s, s
    return np.array(x, U32), np.array(y, U32)


CASES = [
    Case(
        "absolute-of-wrapped-square",
        (
            "tensorflow/tensorflow#118178",
            "tensorflow/tensorflow#120233",
            "tensorflow/tensorflow#117142",
            "openxla/xla#46628",
        ),
        "GEN-6",
        "12 * 12 wraps to -112 in s8, which is negative, so its absolute value 112 is selected.",
        module(
            "absolute_of_wrapped_square",
            """x = s8[5] parameter(0); p = s8[5] multiply(x, x); a = s8[5] abs(p)
            z = s8[] constant(0); b = s8[5] broadcast(z), dimensions={}
            n = pred[5] compare(p, b), direction=LT; ROOT r = s8[5] select(n, a, p)""",
        ),
        (BASE,),
        np.array([112, 49, 112, 31, 121], S8),
    ),
    Case(
        "absolute-value-of-wrapped-square",
        ("tensorflow/tensorflow#62517", "openxla/xla#46628"),
        "ABS-1",
        "A square that wrapped is negative: |(-112)| is 112.",
        module("absolute_value", "x = s8[5] parameter(0); p = s8[5] multiply(x, x); ROOT r = s8[5] abs(p)"),
        (BASE,),
        np.array([112, 49, 112, 31, 121], S8),
    ),
    Case(
        "sign-of-the-least-absolute-value",
        ("openxla/xla#46628",),
        "ABS-1",
        "|-128| is -128 in s8, so it is less than 0.",
        module(
            "sign_of_absolute_value",
            """x = s8[2] parameter(0); a = s8[2] abs(x); z = s8[] constant(0)
            b = s8[2] broadcast(z), dimensions={}; ROOT r = pred[2] compare(a, b), direction=LT""",
        ),
        (np.array([-128, 5], S8),),
        np.array([True, False]),
    ),
    Case(
        "absolute-value-of-a-wrapped-count",
        ("openxla/xla#46628",),
        "GEN-6",
        "Index 128 of a count in s8 wraps to -128; its comparison with 0 shows it.",
        module(
            "wrapped_count",
            """i = s8[130] iota(), iota_dimension=0; z = s8[] constant(0)
            b = s8[130] broadcast(z), dimensions={}; n = pred[130] compare(i, b), direction=LT
            ROOT r = pred[3] slice(n), slice={[127:130]}""",
        ),
        (),
        np.array([False, True, True]),
    ),
    Case(
        "wrapped-power",
        ("openxla/xla#46628",),
        "POW-2",
        "12^2 wraps to -112 in s8, as a power too: it is less than 0.",
        module(
            "wrapped_power",
            """x = s8[2] parameter(0); two = s8[] constant(2); e = s8[2] broadcast(two), dimensions={}
            p = s8[2] power(x, e); z = s8[] constant(0); b = s8[2] broadcast(z), dimensions={}
            ROOT r = pred[2] compare(p, b), direction=LT""",
        ),
        (np.array([12, 3], S8),),
        np.array([True, False]),
    ),
    Case(
        "mean-of-large-integers",
        ("tensorflow/tensorflow#102043",),
        "GEN-6",
        "The sum wraps, and the division truncates toward zero.",
        module(
            "mean_of_large_integers",
            """x = s32[4] parameter(0); zero = s32[] constant(0)
            s = s32[] reduce(x, zero), dimensions={0}, to_apply=plus
            n = s32[] constant(4); ROOT r = s32[] divide(s, n)""",
            PLUS,
        ),
        (np.array([-2000000000, -2000000000, -1, 0], S32),),
        np.array((-4000000001 + 2**32) // 4, S32),
    ),
    Case(
        "rounded-down-division-in-a-loop",
        ("jax-ml/jax#9604",),
        "DIV-1",
        "2 // 2 is 1, and 1 // -3 is -1, rounded to minus infinity; not 0.",
        module(
            "rounded_down_division",
            """x = s32[3] parameter(0); one = s32[] constant(1)
            f = s32[1] slice(x), slice={[0:1]}; v = s32[] reshape(f)
            t = (s32[], s32[], s32[3]) tuple(one, v, x)
            w = (s32[], s32[], s32[3]) while(t), condition=condition, body=body
            ROOT r = s32[] get-tuple-element(w), index=1""",
            rounded_down_loop(),
        ),
        (np.array([2, 2, -3], S32),),
        np.array(-1, S32),
    ),
    Case(
        "exchange-in-a-loop",
        ("iree-org/iree#24927",),
        "GEN-6",
        "All results of an iteration are computed from the values before it: an exchange loses neither (IREE).",
        module(
            "exchange",
            """i = s32[] constant(0); x = u32[] parameter(0); y = u32[] parameter(1)
            t = (s32[], u32[], u32[]) tuple(i, x, y)
            w = (s32[], u32[], u32[]) while(t), condition=condition, body=body
            a = u32[] get-tuple-element(w), index=1; b = u32[] get-tuple-element(w), index=2
            ROOT r = (u32[], u32[]) tuple(a, b)""",
            exchange_loop(),
        ),
        (np.array(0x9E3779B9, U32), np.array(0x1BD11BDA, U32)),
        exchanged(0x9E3779B9, 0x1BD11BDA),
    ),
    Case(
        "shift-by-the-width",
        ("pytorch/pytorch#143566", "pytorch/pytorch#143555"),
        "SHIFTLEFT-1",
        "An amount of 64 or more shifts everything out of an s64; the processor takes it modulo 64.",
        module("shift", "x = s64[4] parameter(0); y = s64[4] parameter(1); ROOT r = s64[4] shift-left(x, y)"),
        (np.full(4, 1000, S64), np.array([64, 65, -1, 1], S64)),
        np.array([0, 0, 0, 2000], S64),
    ),
    Case(
        "arithmetic-shift-by-the-width",
        ("pytorch/pytorch#118265",),
        "SHIFTRIGHTARITHMETIC-1",
        "An amount outside of [0, bits) leaves only the sign.",
        module(
            "shift", "x = s16[4] parameter(0); y = s16[4] parameter(1); ROOT r = s16[4] shift-right-arithmetic(x, y)"
        ),
        (np.array([-5, 5, -5, 5], np.int16), np.array([16, 16, -1, -1], np.int16)),
        np.array([-1, 0, -1, 0], np.int16),
    ),
    Case(
        "products-beyond-32-bits",
        ("pytorch/pytorch#175966", "pytorch/pytorch#183901"),
        "GEN-6",
        "Counts in s64 times 10^9 need more than 32 bits, and have them.",
        module(
            "products",
            """i = s64[11] iota(), iota_dimension=0; x = s64[1] parameter(0); s = s64[] reshape(x)
            b = s64[11] broadcast(s), dimensions={}; ROOT r = s64[11] multiply(i, b)""",
        ),
        (np.array([10**9], S64),),
        np.arange(11, dtype=S64) * 10**9,
    ),
    Case(
        "narrow-factors",
        ("iree-org/iree#8491",),
        "CONVGENERAL-12",
        "Products of s8 are summed in s32: -128 * -128 * 4 is 65536.",
        module(
            "narrow_factors",
            """x = s8[2,4] parameter(0); y = s8[4,1] parameter(1)
            ROOT r = s32[2,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
        ),
        (np.array([[-128] * 4, [127] * 4], S8), np.full((4, 1), -128, S8)),
        np.array([[65536], [-65024]], S32),
    ),
    Case(
        "narrow-equality",
        ("openxla/xla#9431", "jax-ml/jax#19762"),
        "REDUCE-1",
        "Two rows that equal a vector of s8 in all elements: both conjunctions are true.",
        module(
            "narrow_equality",
            """x = s8[12] parameter(0); c = s8[12] constant({1,1,0,0,0,0,0,1,1,0,0,0})
            b = s8[2,12] broadcast(c), dimensions={1}; a = s8[2,12] broadcast(x), dimensions={1}
            e = pred[2,12] compare(a, b), direction=EQ; t = pred[] constant(true)
            ROOT r = pred[2] reduce(e, t), dimensions={1}, to_apply=all""",
            "all {; a = pred[] parameter(0); b = pred[] parameter(1); ROOT r = pred[] and(a, b); }",
        ),
        (np.array([1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0], S8),),
        np.array([True, True]),
    ),
    Case(
        "widened-four-bit-integers",
        ("jax-ml/jax#17672",),
        "CONVERT-4",
        "Negative values of s4 keep their sign in s8.",
        module("widened", "x = s4[16] parameter(0); ROOT r = s8[16] convert(x)"),
        (np.arange(-8, 8).astype(ml_dtypes.int4),),
        np.arange(-8, 8, dtype=S8),
    ),
]
