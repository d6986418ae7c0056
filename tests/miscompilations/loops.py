"""Loops whose iterations are counted wrongly, and arrays that are overwritten while they are read."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

S32, F32 = np.int32, np.float32
PLUS = "plus {; a = f32[] parameter(0); b = f32[] parameter(1); ROOT r = f32[] add(a, b); }"


def counted(step: int, limit: int, direction: str) -> str:
    """Returns the computations of a loop that adds `step` to a counter while it compares with `limit`."""
    return f"""condition {{
    t = (s32[]) parameter(0); i = s32[] get-tuple-element(t), index=0
    n = s32[] constant({limit}); ROOT less = pred[] compare(i, n), direction={direction}
    }}
    body {{
    t = (s32[]) parameter(0); i = s32[] get-tuple-element(t), index=0
    s = s32[] constant({step}); next = s32[] add(i, s); ROOT r = (s32[]) tuple(next)
    }}"""


def counter(start: int, step: int, limit: int, direction: str) -> str:
    """Returns a module whose result is the counter after a loop."""
    entry = f"""i = s32[] constant({start}); t = (s32[]) tuple(i)
    w = (s32[]) while(t), condition=condition, body=body; ROOT r = s32[] get-tuple-element(w), index=0"""
    return module("counter", entry, counted(step, limit, direction))


BLOCKS = """inner_condition {
t = (s32[], f32[23,4], f32[2,23,2]) parameter(0)
i = s32[] get-tuple-element(t), index=0; n = s32[] constant(2); ROOT less = pred[] compare(i, n), direction=LT
}
inner_body {
t = (s32[], f32[23,4], f32[2,23,2]) parameter(0)
i = s32[] get-tuple-element(t), index=0; b = f32[23,4] get-tuple-element(t), index=1
o = f32[2,23,2] get-tuple-element(t), index=2
zero = s32[] constant(0); one = s32[] constant(1); two = s32[] constant(2); next = s32[] add(i, one)
start = s32[] multiply(i, two); s = f32[23,2] dynamic-slice(b, zero, start), dynamic_slice_sizes={23,2}
e = f32[1,23,2] reshape(s); u = f32[2,23,2] dynamic-update-slice(o, e, i, zero, zero)
ROOT r = (s32[], f32[23,4], f32[2,23,2]) tuple(next, b, u)
}
condition {
t = (s32[], f32[61,4], f32[3,2,23,2]) parameter(0)
i = s32[] get-tuple-element(t), index=0; n = s32[] constant(3); ROOT less = pred[] compare(i, n), direction=LT
}
body {
t = (s32[], f32[61,4], f32[3,2,23,2]) parameter(0)
i = s32[] get-tuple-element(t), index=0; x = f32[61,4] get-tuple-element(t), index=1
o = f32[3,2,23,2] get-tuple-element(t), index=2
zero = s32[] constant(0); one = s32[] constant(1); step = s32[] constant(19); next = s32[] add(i, one)
start = s32[] multiply(i, step); b = f32[23,4] dynamic-slice(x, start, zero), dynamic_slice_sizes={23,4}
f = f32[] constant(0); e = f32[2,23,2] broadcast(f), dimensions={}
s = (s32[], f32[23,4], f32[2,23,2]) tuple(zero, b, e)
w = (s32[], f32[23,4], f32[2,23,2]) while(s), condition=inner_condition, body=inner_body
y = f32[2,23,2] get-tuple-element(w), index=2; z = f32[1,2,23,2] reshape(y)
u = f32[3,2,23,2] dynamic-update-slice(o, z, i, zero, zero, zero)
ROOT r = (s32[], f32[61,4], f32[3,2,23,2]) tuple(next, x, u)
}"""
ROWS = np.arange(1, 241, dtype=F32).reshape(60, 4)
PADDED = np.concatenate([ROWS, np.zeros((1, 4), F32)])

CASES = [
    Case(
        "step-beyond-the-limit",
        ("tensorflow/tensorflow#123067", "openxla/xla#48454"),
        "WHILE-1",
        "The condition 0 < 1 holds once: one iteration adds 2. The number of iterations is rounded up, not down to 0.",
        counter(0, 2, 1, "LT"),
        (),
        np.array(2, S32),
    ),
    Case(
        "step-that-does-not-divide",
        ("tensorflow/tensorflow#123067", "openxla/xla#48454"),
        "WHILE-1",
        "0, 3, 6 are below 7: three iterations give 9.",
        counter(0, 3, 7, "LT"),
        (),
        np.array(9, S32),
    ),
    Case(
        "empty-inclusive-loop",
        ("openxla/xla#48454",),
        "WHILE-1",
        "5 <= 4 does not hold: no iteration.",
        counter(5, 1, 4, "LE"),
        (),
        np.array(5, S32),
    ),
    Case(
        "shifted-slice-written-back",
        ("openxla/xla#49176",),
        "DYNAMICUPDATESLICE-3",
        "Rows 0 to 2 are written to rows 1 to 3, all as they were before: 1, 1, 2, 3; not the first one four times.",
        module(
            "shifted_slice",
            """x = s32[4,1,1] parameter(0); one = s32[] constant(1); zero = s32[] constant(0)
            o = s32[4,1,1] broadcast(one), dimensions={}; b = s32[4,1,1] add(x, o)
            s = s32[3,1,1] slice(b), slice={[0:3], [0:1], [0:1]}
            d = s32[4,1,1] dynamic-update-slice(b, s, one, zero, zero); ROOT r = s32[1,4,1] reshape(d)""",
        ),
        (np.arange(4, dtype=S32).reshape(4, 1, 1),),
        np.array([[[1], [1], [2], [3]]], S32),
    ),
    Case(
        "shifted-rows-written-back",
        ("openxla/xla#49176",),
        "DYNAMICUPDATESLICE-3",
        "Eight rows of sixteen, moved down by one.",
        module(
            "shifted_rows",
            """x = s32[8,16] parameter(0); one = s32[] constant(1); zero = s32[] constant(0)
            o = s32[8,16] broadcast(one), dimensions={}; b = s32[8,16] add(x, o)
            s = s32[7,16] slice(b), slice={[0:7], [0:16]}
            d = s32[8,16] dynamic-update-slice(b, s, one, zero); ROOT r = s32[1,8,16] reshape(d)""",
        ),
        (np.arange(128, dtype=S32).reshape(8, 16),),
        np.concatenate([np.arange(16), np.arange(112)]).astype(S32).reshape(1, 8, 16) + 1,
    ),
    Case(
        "shifted-sum-written-back",
        ("jax-ml/jax#7461",),
        "DYNAMICUPDATESLICE-3",
        "Each element but the first becomes 1 + its left neighbour as it was, 0: 1, not a count.",
        module(
            "shifted_sum",
            """x = f32[8] parameter(0); i = s32[] constant(1); one = f32[] constant(1)
            s = f32[7] slice(x), slice={[0:7]}; o = f32[7] broadcast(one), dimensions={}
            a = f32[7] add(s, o); ROOT r = f32[8] dynamic-update-slice(x, a, i)""",
        ),
        (np.zeros(8, F32),),
        np.array([0, 1, 1, 1, 1, 1, 1, 1], F32),
    ),
    Case(
        "padded-rows-in-nested-loops",
        ("jax-ml/jax#39120",),
        "PAD-1",
        "Blocks of 23 rows, at a distance of 19, in column pairs: the last row of the last block is the padding, 0.",
        module(
            "padded_rows",
            """x = f32[60,4] parameter(0); f = f32[] constant(0); zero = s32[] constant(0)
            p = f32[61,4] pad(x, f), padding=0_1x0_0; e = f32[3,2,23,2] broadcast(f), dimensions={}
            t = (s32[], f32[61,4], f32[3,2,23,2]) tuple(zero, p, e)
            w = (s32[], f32[61,4], f32[3,2,23,2]) while(t), condition=condition, body=body
            ROOT r = f32[3,2,23,2] get-tuple-element(w), index=2""",
            BLOCKS,
        ),
        (ROWS,),
        np.stack([PADDED[19 * i : 19 * i + 23].reshape(23, 2, 2).transpose(1, 0, 2) for i in range(3)]),
    ),
    Case(
        "conjunction-with-one",
        ("openxla/stablehlo#2633",),
        "AND-1",
        "The bits of 6 and 1 are disjoint: 0, and 7 together. Only all bits set are an identity (StableHLO's passes).",
        module(
            "conjunction_with_one",
            """x = s32[2] parameter(0); one = s32[] constant(1); o = s32[2] broadcast(one), dimensions={}
            a = s32[2] and(x, o); b = s32[2] or(x, o); ROOT r = (s32[2], s32[2]) tuple(a, b)""",
        ),
        (np.array([6, 7], S32),),
        (np.array([0, 1], S32), np.array([7, 7], S32)),
    ),
    Case(
        "grouped-narrow-convolution",
        ("openxla/xla#49123", "pytorch/pytorch#19912"),
        "CONVGENERAL-7",
        "Two groups of two features, 1 x 1: out = {-2 - 1, -2 + 1, 0 + 1, 0 - 1} with the kernel {1, 1}, {1, -1}.",
        module(
            "grouped_convolution",
            """x = s8[1,4,1,1] parameter(0); w = s8[4,2,1,1] parameter(1)
            ROOT r = s8[1,4,1,1] convolution(x, w), window={size=1x1}, dim_labels=bf01_oi01->bf01,
              feature_group_count=2""",
        ),
        (
            np.array([-2, -1, 0, 1], np.int8).reshape(1, 4, 1, 1),
            np.array([[1, 1], [1, -1], [1, 1], [1, -1]], np.int8).reshape(4, 2, 1, 1),
        ),
        np.array([-3, -1, 1, -1], np.int8).reshape(1, 4, 1, 1),
    ),
]
