"""Functions and their inverses: a simplifier drops both, although the value between them has lost digits, or all."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

F32 = np.float32


CASES = [
    Case(
        "logarithm-of-exponential",
        ("openxla/xla#42732",),
        "EXP-1",
        "e^89 is above all finite f32, so it rounds to infinity (GEN-7), whose logarithm is infinity; not 89.",
        module(
            "logarithm_of_exponential",
            "x = f32[2] parameter(0); e = f32[2] exponential(x); ROOT r = f32[2] log(e)",
        ),
        (np.array([89, -200], F32),),
        np.array([np.inf, -np.inf], F32),
    ),
    Case(
        "root-of-square",
        ("openxla/xla#42732",),
        "SQRT-1",
        "The square of 1e20 is infinite in f32, that of 1e-30 is 0: so are their roots; not the absolute value.",
        module("root_of_square", "x = f32[3] parameter(0); s = f32[3] multiply(x, x); ROOT r = f32[3] sqrt(s)"),
        (np.array([1e20, -1e30, 1e-30], F32),),
        np.array([np.inf, np.inf, 0], F32),
    ),
]
