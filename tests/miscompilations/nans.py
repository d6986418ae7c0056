"""NaN, infinities and signed zeros, which simplifiers, vector instructions and reductions drop."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

F16, F32, F64 = np.float16, np.float32, np.float64
NAN, INF = np.nan, np.inf
MAXIMUM = "largest {; a = f32[] parameter(0); b = f32[] parameter(1); ROOT r = f32[] maximum(a, b); }"
MINIMUM = "least {; a = f16[] parameter(0); b = f16[] parameter(1); ROOT r = f16[] minimum(a, b); }"
ARGMAX = """index_of_largest {
a = f32[] parameter(0); i = s32[] parameter(1); b = f32[] parameter(2); j = s32[] parameter(3)
above = pred[] compare(a, b), direction=GT; unordered = pred[] compare(a, a), direction=NE
first = pred[] or(above, unordered)
equal = pred[] compare(a, b), direction=EQ; earlier = pred[] compare(i, j), direction=LT
tie = pred[] and(equal, earlier); keeps = pred[] or(first, tie)
v = f32[] select(first, a, b); k = s32[] select(keeps, i, j)
ROOT r = (f32[], s32[]) tuple(v, k)
}"""

CASES = [
    Case(
        "maximum-of-nan",
        ("tensorflow/tensorflow#116992", "openxla/xla#49174"),
        "MAX-1",
        "The maximum of NaN and a number is NaN, on either side.",
        module("maximum_of_nan", "x = f32[2] parameter(0); y = f32[2] parameter(1); ROOT r = f32[2] maximum(x, y)"),
        (np.array([5, NAN], F32), np.array([NAN, 5], F32)),
        np.array([NAN, NAN], F32),
    ),
    Case(
        "maximum-with-own-root",
        ("openxla/xla#49174",),
        "MAX-1",
        "The root of a negative number is NaN, and so is its maximum with the number, in f16 as in f32.",
        module("maximum_with_own_root", "x = f16[3] parameter(0); s = f16[3] sqrt(x); ROOT r = f16[3] maximum(x, s)"),
        (np.array([4, -0.0905, 0.25], F16),),
        np.array([4, NAN, 0.5], F16),
    ),
    Case(
        "largest-element-with-nan",
        ("tensorflow/tensorflow#116992", "tensorflow/tensorflow#119990", "tensorflow/tensorflow#118077"),
        "MAX-1",
        "A reduction by maximum over a NaN is NaN, whatever the order.",
        module(
            "largest_element",
            """x = f32[5] parameter(0); low = f32[] constant(-inf)
            ROOT r = f32[] reduce(x, low), dimensions={0}, to_apply=largest""",
            MAXIMUM,
        ),
        (np.array([7, NAN, -2.5, 11, 0.25], F32),),
        np.array(NAN, F32),
    ),
    Case(
        "largest-of-a-segment-with-nan",
        ("tensorflow/tensorflow#118375",),
        "SCATTER-3",
        "A segment with a NaN has the maximum NaN, wherever it stands; the other segment has 9.",
        module(
            "segment_maximum",
            """low = f32[] constant(-inf); o = f32[2] broadcast(low), dimensions={}
            s = s32[6] parameter(1); x = f32[6] parameter(0)
            ROOT r = f32[2] scatter(o, s, x), update_window_dims={}, inserted_window_dims={0},
              scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=largest""",
            MAXIMUM,
        ),
        (np.array([7, NAN, 2, 9, 4, 6], F32), np.array([0, 0, 0, 1, 1, 1], np.int32)),
        np.array([NAN, 9], F32),
    ),
    Case(
        "relu6-of-nan",
        ("tensorflow/tensorflow#119628",),
        "CLAMP-3",
        "A NaN that is clamped to [0, 6] stays NaN.",
        module(
            "relu6",
            """x = f32[4] parameter(0); low = f32[] constant(0); high = f32[] constant(6)
            a = f32[4] broadcast(low), dimensions={}; b = f32[4] broadcast(high), dimensions={}
            ROOT r = f32[4] clamp(a, x, b)""",
        ),
        (np.array([NAN, -1, 3, INF], F32),),
        np.array([NAN, 0, 3, 6], F32),
    ),
    Case(
        "index-of-the-largest-with-nan",
        ("tensorflow/tensorflow#118177", "tensorflow/tensorflow#120232", "jax-ml/jax#3193"),
        "REDUCE-8",
        "The reduction prefers a NaN to every number: its index is 2.",
        module(
            "index_of_the_largest",
            """x = f32[4] parameter(0); i = s32[4] iota(), iota_dimension=0
            low = f32[] constant(-inf); zero = s32[] constant(0)
            p = (f32[], s32[]) reduce(x, i, low, zero), dimensions={0}, to_apply=index_of_largest
            ROOT r = s32[] get-tuple-element(p), index=1""",
            ARGMAX,
        ),
        (np.array([4, 5.5, NAN, 6], F32),),
        np.array(2, np.int32),
    ),
    Case(
        "rank-among-nans",
        ("tensorflow/tensorflow#118376", "tensorflow/tensorflow#120236"),
        "COMPARE-2",
        "No comparison with NaN is true, so 0.7 exceeds all but none exceeds it: the count of larger elements is 0.",
        module(
            "rank_among_nans",
            """x = f32[4] parameter(0); t = f32[1] slice(x), slice={[2:3]}; s = f32[] reshape(t)
            b = f32[4] broadcast(s), dimensions={}; g = pred[4] compare(x, b), direction=GT
            c = s32[4] convert(g); zero = s32[] constant(0)
            ROOT r = s32[] reduce(c, zero), dimensions={0}, to_apply=plus""",
            "plus {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] add(a, b); }",
        ),
        (np.array([0.5, NAN, 0.7, 0.6], F32),),
        np.array(0, np.int32),
    ),
    Case(
        "largest-of-negative-zeros",
        ("openxla/xla#5544", "jax-ml/jax#17531"),
        "MAX-1",
        "The maximum of 8193 zeros with a minus sign is one of them; not the initial value -inf.",
        module(
            "largest_of_negative_zeros",
            """x = f32[8193] parameter(0); low = f32[] constant(-inf)
            ROOT r = f32[] reduce(x, low), dimensions={0}, to_apply=largest""",
            MAXIMUM,
        ),
        (np.full(8193, -0.0, F32),),
        np.array(-0.0, F32),
    ),
    Case(
        "largest-of-many-with-nan",
        ("tensorflow/tensorflow#116992", "tensorflow/tensorflow#118077"),
        "MAX-1",
        "The maximum of 8193 numbers, of which one is NaN, is NaN; XLA calls a library for long reductions.",
        module(
            "largest_of_many",
            """x = f32[8193] parameter(0); low = f32[] constant(-inf)
            ROOT r = f32[] reduce(x, low), dimensions={0}, to_apply=largest""",
            MAXIMUM,
        ),
        (np.where(np.arange(8193) == 5000, NAN, 1).astype(F32),),
        np.array(NAN, F32),
    ),
    Case(
        "least-of-many-with-nan",
        ("tensorflow/tensorflow#116992",),
        "MIN-1",
        "The minimum of a row with a NaN is NaN, in f16 as well.",
        module(
            "least_of_many",
            """x = f16[2,16385] parameter(0); high = f16[] constant(inf)
            ROOT r = f16[2] reduce(x, high), dimensions={1}, to_apply=least""",
            MINIMUM,
        ),
        (np.where(np.arange(2 * 16385) == 20000, NAN, 1).astype(F16).reshape(2, 16385),),
        np.array([1, NAN], F16),
    ),
    Case(
        "least-of-a-long-row",
        ("openxla/xla#7112", "jax-ml/jax#18573"),
        "REDUCE-1",
        "The minimum of 16385 ones is 1; not 0.",
        module(
            "least_of_a_long_row",
            """x = f16[2,16385,1] parameter(0); high = f16[] constant(inf)
            ROOT r = f16[2] reduce(x, high), dimensions={1,2}, to_apply=least""",
            MINIMUM,
        ),
        (np.ones((2, 16385, 1), F16),),
        np.ones(2, F16),
    ),
    Case(
        "angle-of-the-origin",
        ("openxla/xla#44705", "openxla/xla#46594"),
        "ATAN2-1",
        "The exclusive or of two equal comparisons is false, and atan2(0, 0) is 0; not NaN.",
        module(
            "angle_of_the_origin",
            """x = f32[4] parameter(0); y = f32[4] parameter(1)
            p = pred[4] compare(x, y), direction=LT; q = pred[4] compare(x, y), direction=LT
            z = pred[4] xor(p, q); c = f32[4] convert(z); ROOT r = f32[4] atan2(c, c)""",
        ),
        (np.array([1, 2, 3, NAN], F32), np.array([2, 1, 3, 0], F32)),
        np.zeros(4, F32),
    ),
    Case(
        "angle-of-signed-zeros",
        ("openxla/xla#39463",),
        "ATAN2-1",
        "The angle has the sign of the first operand: atan2(-1, 0) is -pi/2, atan2(-0, -1) is -pi.",
        module(
            "angle_of_signed_zeros",
            "x = f64[4] parameter(0); y = f64[4] parameter(1); ROOT r = f64[4] atan2(x, y)",
        ),
        (np.array([-1, 1, -0.0, 0]), np.array([0, -0.0, -1, -1.0])),
        np.array([-np.pi / 2, np.pi / 2, -np.pi, np.pi]),
        ulps=1,
    ),
    Case(
        "remainder-by-infinity",
        ("pytorch/pytorch#198057",),
        "REM-1",
        "fmod is exact: x rem inf is x, 1e20 rem 3 is 2, -0 rem 1 is -0, in vectors as in single elements.",
        module("remainder", "x = f32[8] parameter(0); y = f32[8] parameter(1); ROOT r = f32[8] remainder(x, y)"),
        (
            np.array([5.5, -5.5, 0, 1e20, 2147483648, 7, 1, -0.0], F32),
            np.array([INF, -INF, INF, 3, 3, 0.75, 0.125, 1], F32),
        ),
        np.array([5.5, -5.5, 0, 2, 2, 0.25, 0, -0.0], F32),
    ),
    Case(
        "angle-outside-of-the-domain-as-an-integer",
        ("tensorflow/tensorflow#126212",),
        "CONVERT-3",
        "asin is NaN beyond 1 and the minimum keeps it (MIN-1), which converts to 0, as do 0.8 and 0.52; the report "
        "expects the least integer.",
        module(
            "angle_as_integer",
            """x = f32[4] parameter(0); one = f32[4] constant({1, 1, 1, 1}); most = f32[4] constant({0.8, 0.8, 0.8, 0.8})
            q = f32[4] multiply(x, x); d = f32[4] subtract(one, q); c = f32[4] sqrt(d); b = f32[4] add(one, c)
            h = f32[4] atan2(x, b); a = f32[4] add(h, h); m = f32[4] minimum(a, most); ROOT r = s32[4] convert(m)""",
        ),
        (np.array([0.5, 1, 2, -3], F32),),
        np.zeros(4, np.int32),
    ),
    Case(
        "exponential-of-nan-from-a-constant",
        ("jax-ml/jax#29537",),
        "EXP-1",
        "x NaN is NaN, and so is e to that; not a subnormal number.",
        module(
            "exponential_of_nan",
            "x = f64[] parameter(0); n = f64[] constant(nan); p = f64[] multiply(x, n); ROOT r = f64[] exponential(p)",
        ),
        (np.array(0.123),),
        np.array(NAN),
    ),
    Case(
        "sum-with-zero",
        ("openxla/xla#47290",),
        "ADD-1",
        "IEEE: -0 + 0 is 0; not -0. (The report names the pass algsimp, without the module.)",
        module("sum_with_zero", "x = f32[2] parameter(0); z = f32[2] constant({0, 0}); ROOT r = f32[2] add(x, z)"),
        (np.array([-0.0, 1], F32),),
        np.array([0, 1], F32),
    ),
]
