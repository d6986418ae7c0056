"""Functions and their inverses: a simplifier drops both, although the value between them has lost digits, or all."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

F32 = np.float32
INF = np.inf

CASES = [
    Case(
        "logarithm-of-exponential",
        ("openxla/xla#42732", "jax-ml/jax#38099"),
        "EXP-1",
        "e^89 is above all finite f32, so it becomes infinity (GEN-7), whose logarithm is infinity; not 89.",
        module(
            "logarithm_of_exponential", "x = f32[2] parameter(0); e = f32[2] exponential(x); ROOT r = f32[2] log(e)"
        ),
        (np.array([89, -200], F32),),
        np.array([INF, -INF], F32),
    ),
    Case(
        "root-of-square",
        ("openxla/xla#42732",),
        "SQRT-1",
        "The square of 1e20 is infinite in f32, that of 1e-30 is 0: so are their roots; not the absolute value.",
        module("root_of_square", "x = f32[3] parameter(0); s = f32[3] multiply(x, x); ROOT r = f32[3] sqrt(s)"),
        (np.array([1e20, -1e30, 1e-30], F32),),
        np.array([INF, INF, 0], F32),
    ),
    Case(
        "root-of-absolute-square",
        ("jax-ml/jax#37919", "jax-ml/jax#38096"),
        "SQRT-1",
        "The square of the largest f32 is infinite, and so are its absolute value and its root.",
        module(
            "root_of_absolute_square",
            "x = f32[2] parameter(0); s = f32[2] multiply(x, x); a = f32[2] abs(s); ROOT r = f32[2] sqrt(a)",
        ),
        (np.array([np.finfo(F32).max, 1e-38], F32),),
        np.array([INF, 0], F32),
    ),
    Case(
        "binary-logarithm-of-power-of-two",
        ("jax-ml/jax#38100", "jax-ml/jax#38098"),
        "EXP-1",
        "2^128, computed as e^(x ln 2), is infinite in f32: so is its logarithm, and that divided by ln 2.",
        module(
            "binary_logarithm",
            """x = f32[1] parameter(0)
            ln2 = f32[] constant(0.6931472)
            b = f32[1] broadcast(ln2), dimensions={}
            s = f32[1] multiply(x, b)
            e = f32[1] exponential(s)
            l = f32[1] log(e)
            ROOT r = f32[1] divide(l, b)""",
        ),
        (np.array([130], F32),),
        np.array([INF], F32),
    ),
    Case(
        "gradient-of-logarithm-of-exponential",
        ("jax-ml/jax#38097",),
        "DIV-1",
        "e^100 is infinite: the derivative e^x / e^x is inf / inf, a NaN; not 1.",
        module("gradient", "x = f32[1] parameter(0); e = f32[1] exponential(x); ROOT r = f32[1] divide(e, e)"),
        (np.array([100], F32),),
        np.array([np.nan], F32),
    ),
    Case(
        "product-of-exponentials",
        ("tensorflow/tensorflow#123169", "openxla/xla#47290"),
        "EXP-1",
        "e^100 e^-105 is inf * 0, a NaN, in f32; not e^-5.",
        module(
            "product_of_exponentials",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            a = f32[1] exponential(x); b = f32[1] exponential(y); ROOT r = f32[1] multiply(a, b)""",
        ),
        (np.array([100], F32), np.array([-105], F32)),
        np.array([np.nan], F32),
    ),
    Case(
        "logarithm-of-power",
        ("tensorflow/tensorflow#57744", "openxla/xla#47290"),
        "POW-1",
        "A negative base with a fractional exponent is NaN, and so is its logarithm; not y log |x|.",
        module(
            "logarithm_of_power",
            """x = f32[1] parameter(0); y = f32[1] parameter(1)
            p = f32[1] power(x, y); ROOT r = f32[1] log(p)""",
        ),
        (np.array([-1.5], F32), np.array([-1.5], F32)),
        np.array([np.nan], F32),
    ),
    Case(
        "quotient-of-quotients",
        ("openxla/xla#47290",),
        "DIV-1",
        "1e30 / 1e30 is 1 on both sides, so the quotient is 1; not (1e30 1e30) / (1e30 1e30) = inf / inf.",
        module(
            "quotient_of_quotients",
            """a = f32[1] parameter(0); b = f32[1] parameter(1)
            c = f32[1] parameter(2); d = f32[1] parameter(3)
            p = f32[1] divide(a, b); q = f32[1] divide(c, d); ROOT r = f32[1] divide(p, q)""",
        ),
        tuple(np.array([1e30], F32) for _ in range(4)),
        np.array([1], F32),
    ),
    Case(
        "quotient-of-quotient",
        ("openxla/xla#47290",),
        "DIV-1",
        "(1e-30 / 1e-30) / 1e-30 is 1e30; not 1e-30 / (1e-30 1e-30), a division by 0.",
        module(
            "quotient_of_quotient",
            """a = f32[1] parameter(0); b = f32[1] parameter(1); c = f32[1] parameter(2)
            p = f32[1] divide(a, b); ROOT r = f32[1] divide(p, c)""",
        ),
        tuple(np.array([2.0**-100], F32) for _ in range(3)),
        np.array([2.0**100], F32),
    ),
]
