"""Arithmetic of floats: constants that are combined, products that are contracted, and rounding that is left out."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from miscompilations.case import Case, module

F32, F64, BF16 = np.float32, np.float64, ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
COLUMNS = np.linspace(-3, 3, 4 * 8 * 32, dtype=F32).reshape(4, 8, 32)
COLUMN = COLUMNS[:, :, 16].astype(F64)
ALGSIMP = ("openxla/xla#47290",)
"""The report names the pass algsimp, without modules."""


def with_constants(name: str, lines: str, **constants: str) -> str:
    """Returns a module on `x`, `f32[2]`, and scalar constants, broadcast to that shape."""
    made = (
        f"{k}s = f32[] constant({v}); {k} = f32[2] broadcast({k}s), dimensions={{}}; " for k, v in constants.items()
    )
    return module(name, f"x = f32[2] parameter(0); {''.join(made)}{lines}")


CASES = [
    Case(
        "complex-quotients-side-by-side",
        ("jax-ml/jax#23958",),
        "DIV-1",
        "With x = 1 + i, y = 1, z = 2: (10 - 6i) / 34, twice (16 + 4i) / 34, (2 - 8i) / 34; not a real part of 30 / 34.",
        module(
            "complex_quotients",
            """x = c64[1] parameter(0); y = f32[1] parameter(1); z = f32[1] parameter(2); cy = c64[1] convert(y)
            cz = c64[1] convert(z); p = f32[1] multiply(y, z); c = c64[1] convert(p); yx = c64[1] multiply(cy, x)
            zx = c64[1] multiply(cz, x); s = c64[1] add(c, yx); d = c64[1] add(s, zx); g = f32[1] subtract(z, y)
            cg = c64[1] convert(g); e = c64[1] multiply(cg, x); q0 = c64[1] divide(c, d); cx = c64[1] multiply(c, x)
            q1 = c64[1] divide(cx, d); n = c64[1] subtract(c, e); q2 = c64[1] divide(n, d)
            ROOT r = c64[4] concatenate(q0, q1, q1, q2), dimensions={0}""",
        ),
        (np.array([1 + 1j], np.complex64), np.array([1], F32), np.array([2], F32)),
        (np.array([10 - 6j, 16 + 4j, 16 + 4j, 2 - 8j]) / 34).astype(np.complex64),
        ulps=2,
    ),
    Case(
        "sum-with-two-constants",
        ALGSIMP,
        "GEN-7",
        "1 + 1e30 is 1e30 in f32, and 1e30 less is 0; the constants are not added to each other first.",
        with_constants("sum", "a = f32[2] add(x, c); ROOT r = f32[2] subtract(a, c)", c="1e30"),
        (np.full(2, 1, F32),),
        np.full(2, 0, F32),
    ),
    Case(
        "product-with-two-constants",
        ALGSIMP,
        "GEN-7",
        "0 * 1e30 is 0, and again; the product of the constants is infinite, and 0 inf is NaN.",
        with_constants("product", "a = f32[2] multiply(x, c); ROOT r = f32[2] multiply(a, c)", c="1e30"),
        (np.full(2, 0, F32),),
        np.full(2, 0, F32),
    ),
    Case(
        "product-with-large-and-small-constants",
        ALGSIMP,
        "GEN-7",
        "2^-60 2^-100 is 0 in f32, below all subnormal numbers, and stays 0; not 2^-60.",
        with_constants(
            "product", "a = f32[2] multiply(x, c); ROOT r = f32[2] multiply(a, d)", c="7.888609e-31", d="1.2676506e30"
        ),
        (np.full(2, 2.0**-60, F32),),
        np.full(2, 0, F32),
    ),
    Case(
        "quotient-and-product",
        ALGSIMP,
        "GEN-7",
        "0 / 1e-30 is 0, and 1e30 times that is 0; the quotient of the constants is infinite, and 0 inf is NaN.",
        with_constants("quotient", "a = f32[2] divide(x, c); ROOT r = f32[2] multiply(a, d)", c="1e-30", d="1e30"),
        (np.full(2, 0, F32),),
        np.full(2, 0, F32),
    ),
    Case(
        "division-twice",
        ALGSIMP,
        "GEN-7",
        "2^100 / 2^90 / 2^90 is 2^-80; not 2^100 over the infinite product of the constants.",
        with_constants(
            "division_twice", "a = f32[2] divide(x, c); ROOT r = f32[2] divide(a, c)", c="1.2379400392853803e27"
        ),
        (np.full(2, 2.0**100, F32),),
        np.full(2, 2.0**-80, F32),
    ),
    Case(
        "division-by-a-quotient",
        ALGSIMP,
        "DIV-1",
        "2^100 / (2^100 / 2^60) is 2^60; not the infinite 2^100 2^60 over 2^100.",
        with_constants(
            "division_by_a_quotient", "a = f32[2] divide(c, x); ROOT r = f32[2] divide(c, a)", c="1.2676506e30"
        ),
        (np.full(2, 2.0**60, F32),),
        np.full(2, 2.0**60, F32),
    ),
    Case(
        "division-by-a-large-constant",
        ALGSIMP,
        "DIV-1",
        "4 / 2^127 is 2^-125, a normal number; the reciprocal of 2^127 is subnormal, and flushed to 0 it gives 0.",
        with_constants("division", "ROOT r = f32[2] divide(x, c)", c="1.7014118e38"),
        (np.full(2, 4, F32),),
        np.full(2, 2.0**-125, F32),
    ),
    Case(
        "power-of-exponential",
        ALGSIMP,
        "POW-1",
        "e^inf is inf, and inf^0 is 1; not e^(inf 0), a NaN.",
        module(
            "power_of_exponential",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            e = f32[1] exponential(x); ROOT r = f32[1] power(e, y)""",
        ),
        (np.array([INF], F32), np.array([0], F32)),
        np.array([1], F32),
    ),
    Case(
        "quotient-of-exponentials",
        ALGSIMP,
        "EXP-1",
        "Both exponentials are infinite, and inf / inf is NaN; not e^(x - y).",
        module(
            "quotient_of_exponentials",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            a = f32[1] exponential(x); b = f32[1] exponential(y); ROOT r = f32[1] divide(a, b)""",
        ),
        (np.array([100], F32), np.array([99], F32)),
        np.array([NAN], F32),
    ),
    Case(
        "logarithm-of-reciprocal-root",
        ALGSIMP,
        "RSQRT-1",
        "rsqrt(-0) is -inf, whose logarithm is NaN; not -0.5 log(-0) = inf.",
        module("logarithm_of_reciprocal_root", "x = f32[1] parameter(0); s = f32[1] rsqrt(x); ROOT r = f32[1] log(s)"),
        (np.array([-0.0], F32),),
        np.array([NAN], F32),
    ),
    Case(
        "products-contracted",
        ("openxla/xla#41579",),
        "GEN-7",
        "Both products are rounded to one number, and their difference is 0; a fused multiply-add keeps the digits of one.",
        module(
            "products_contracted",
            """a = f32[1] parameter(0); b = f32[1] parameter(1); x = f32[1] parameter(2)
            p = f32[1] multiply(a, x); q = f32[1] multiply(b, x); ROOT r = f32[1] add(p, q)""",
        ),
        (np.array([1e20], F32), np.array([-1e20], F32), np.array([1e10], F32)),
        np.array([0], F32),
    ),
    Case(
        "difference-of-exponentials",
        ("openxla/xla#41579",),
        "EXP-1",
        "Both exponentials are infinite: inf - inf is NaN; not the difference from an unrounded product.",
        module(
            "difference_of_exponentials",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            a = f32[1] exponential(x); b = f32[1] exponential(y); ROOT r = f32[1] subtract(a, b)""",
        ),
        (np.array([1e20], F32), np.array([1e20], F32)),
        np.array([NAN], F32),
    ),
    Case(
        "square-contracted",
        ("openxla/xla#41579",),
        "GEN-7",
        "The square of 1e10, rounded to f32, equals the rounded 1e20: the difference is 0; not the rounding error.",
        module(
            "square_contracted",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            s = f32[1] multiply(x, x); ROOT r = f32[1] subtract(s, y)""",
        ),
        (np.array([1e10], F32), np.array([F32(1e10) * F32(1e10)], F32)),
        np.array([0], F32),
    ),
    Case(
        "narrow-and-widen",
        ("openxla/xla#41605",),
        "CONVERT-2",
        "1 + 2^-10 is rounded to bf16, which is 1; dropping both conversions keeps the digits.",
        module("narrow_and_widen", "x = f32[2] parameter(0); b = bf16[2] convert(x); ROOT r = f32[2] convert(b)"),
        (np.array([1 + 2.0**-10, 1 / 3], F32),),
        np.array([1, 1 / 3], BF16).astype(F32),
    ),
    Case(
        "narrow-sum-and-its-error",
        ("jax-ml/jax#23007",),
        "GEN-7",
        "Each result of bf16 is rounded: 1 + 2^-10 is 1, so the part that was lost is 2^-10; not 0.",
        module(
            "narrow_sum",
            """x = bf16[1] parameter(0); y = bf16[1] parameter(1)
            s = bf16[1] add(x, y); d = bf16[1] subtract(s, x); ROOT r = bf16[1] subtract(y, d)""",
        ),
        (np.array([1], BF16), np.array([2.0**-10], BF16)),
        np.array([2.0**-10], BF16),
    ),
    Case(
        "narrow-logistic",
        ("tensorflow/tensorflow#62206", "tensorflow/tensorflow#62252"),
        "LOGISTIC-1",
        "The logistic of 0.5 and 6 in f32, rounded once to bf16.",
        module("narrow_logistic", "x = bf16[2] parameter(0); ROOT r = bf16[2] logistic(x)"),
        (np.array([0.5, 6], BF16),),
        (1 / (1 + np.exp(-np.array([0.5, 6])))).astype(BF16),
    ),
    Case(
        "masked-scores",
        ("jax-ml/jax#6566",),
        "GEN-7",
        "-1e30 times 0 is -0, and the scores stay as they are, less their maximum.",
        module(
            "masked_scores",
            """s = f32[2] parameter(0); m = f32[] parameter(1); one = f32[] constant(1); big = f32[] constant(-1e30)
            d = f32[] subtract(one, m); p = f32[] multiply(big, d); b = f32[2] broadcast(p), dimensions={}
            t = f32[2] add(s, b); low = f32[] constant(-inf)
            h = f32[] reduce(t, low), dimensions={0}, to_apply=largest
            hb = f32[2] broadcast(h), dimensions={}; ROOT r = f32[2] subtract(t, hb)""",
            "largest {; a = f32[] parameter(0); b = f32[] parameter(1); ROOT r = f32[] maximum(a, b); }",
        ),
        (np.array([0.75, 0.5], F32), np.array(1, F32)),
        np.array([0, -0.25], F32),
    ),
    Case(
        "lost-addend",
        ("jax-ml/jax#8022",),
        "GEN-7",
        "1e30 + 1 is 1e30 in f32, so x - (x + y) + y is y.",
        module(
            "lost_addend",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            s = f32[1] add(x, y); d = f32[1] subtract(x, s); ROOT r = f32[1] add(d, y)""",
        ),
        (np.array([1e30], F32), np.array([1], F32)),
        np.array([1], F32),
    ),
    Case(
        "variance-of-equal-values",
        ("tensorflow/tensorflow#118179", "tensorflow/tensorflow#120234"),
        "BATCHNORMTRAINING-4",
        "The variance is computed from deviations, which are 0 for equal values.",
        module(
            "variance",
            """x = f32[4,1] parameter(0); s = f32[1] parameter(1)
            p = (f32[4,1], f32[1], f32[1]) batch-norm-training(x, s, s), epsilon=0.001, feature_index=1
            ROOT r = f32[1] get-tuple-element(p), index=2""",
        ),
        (np.full((4, 1), 7.5e10, F32), np.array([1], F32)),
        np.array([0], F32),
    ),
    Case(
        "narrow-sum-with-a-double",
        ("pytorch/pytorch#185605",),
        "CONVERT-2",
        "The f64 scalar is rounded to bf16 before it is added: 0.1 - 0.1 is 0 in bf16.",
        module(
            "narrow_sum_with_a_double",
            """x = bf16[4] parameter(0); y = f64[] parameter(1); n = bf16[] convert(y)
            b = bf16[4] broadcast(n), dimensions={}; ROOT r = bf16[4] add(x, b)""",
        ),
        (np.array([0, 0.1, -0.2, 1], BF16), np.array(-0.1)),
        np.array([0, 0.1, -0.2, 1], BF16) + np.array(-0.1, BF16),
    ),
    Case(
        "angles-of-many",
        ("jax-ml/jax#39352",),
        "ATAN2-1",
        "The angles of 64 points, each that of a single one; not zeros or the arguments from 50 elements on.",
        module(
            "angles",
            """x = f32[64] parameter(0); one = f32[] constant(1); b = f32[64] broadcast(one), dimensions={}
            ROOT r = f32[64] atan2(x, b)""",
        ),
        (np.linspace(-5, 5, 64, dtype=F32),),
        np.arctan(np.linspace(-5, 5, 64, dtype=F32).astype(F64)).astype(F32),
        ulps=4,
    ),
    Case(
        "functions-side-by-side",
        ("pytorch/pytorch#185702",),
        "CONCATENATE-1",
        "Three functions of one column of a larger array, interleaved: each element is that of its own function.",
        module(
            "side_by_side",
            """l = f32[4,8,32] parameter(0); c = f32[4,8,1] slice(l), slice={[0:4], [0:8], [16:17]}
            a = f32[4,8,1] exponential(c); b = f32[4,8,1] erf(c); d = f32[4,8,1] multiply(c, c)
            ROOT r = f32[4,8,3] concatenate(a, b, d), dimensions={2}""",
        ),
        (COLUMNS,),
        np.stack([np.exp(COLUMN), [[math.erf(x) for x in row] for row in COLUMN], COLUMN**2], -1).astype(F32),
        ulps=4,
    ),
]
