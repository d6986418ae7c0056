"""Products of matrices beside their equivalents: sums of products, transposes, and a factor that misses a term."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

S32, F32 = np.int32, np.float32
WIDE = np.array([[2**31 - 1, -(2**31)], [1, -1]], S32)
X, A, B = (np.resize(np.array([-3, -1, 1, 2, 4], F32), shape) for shape in ((8, 6), (6, 8), (6, 8)))
ROWS, COLUMNS = np.arange(32 * 15, dtype=F32).reshape(32, 15) % 7, np.arange(100 * 15, dtype=F32).reshape(100, 15) % 5
BIAS = np.arange(32, dtype=F32) - 16

CASES = [
    Case(
        "sum-of-wrapped-products",
        ("pytorch/pytorch#190764",),
        "GEN-6",
        "Products, sums and the sum of each row wrap in s32: x y + x z is x (y + z) modulo 2^32.",
        module(
            "wrapped_products",
            """x = s32[2,2] parameter(0); y = s32[2,2] parameter(1); z = s32[2,2] parameter(2)
            a = s32[2,2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            b = s32[2,2] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            c = s32[2,2] dot(y, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            d = s32[2,2] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            left = s32[2,2] add(a, b); right = s32[2,2] add(c, d); s = s32[2,2] add(left, right)
            zero = s32[] constant(0); ROOT r = s32[2] reduce(s, zero), dimensions={1}, to_apply=plus""",
            "plus {; p = s32[] parameter(0); q = s32[] parameter(1); ROOT r = s32[] add(p, q); }",
        ),
        (WIDE, WIDE[::-1], WIDE.T),
        (WIDE @ WIDE[::-1] + WIDE @ WIDE.T + WIDE[::-1] @ WIDE.T + WIDE[::-1] @ WIDE).sum(1, dtype=S32),
    ),
    Case(
        "transposed-products-repeated-backwards",
        ("pytorch/pytorch#190765",),
        "DOTGENERAL-1",
        "The sum of two transposed products, transposed back, each element twice, backwards; all numbers are small.",
        module(
            "transposed_products",
            """x = f32[8,6] parameter(0); a = f32[6,8] parameter(1); b = f32[6,8] parameter(2)
            p = f32[8,8] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            q = f32[8,8] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            pt = f32[8,8] transpose(p), dimensions={1,0}; qt = f32[8,8] transpose(q), dimensions={1,0}
            s = f32[8,8] add(pt, qt); t = f32[8,8] transpose(s), dimensions={1,0}
            twice = f32[8,8,2] broadcast(t), dimensions={0,1}; flat = f32[128] reshape(twice)
            ROOT r = f32[128] reverse(flat), dimensions={0}""",
        ),
        (X, A, B),
        np.repeat((X @ A + X @ B).ravel(), 2)[::-1],
    ),
    Case(
        "scaled-product-and-bias",
        ("jax-ml/jax#39336",),
        "DOTGENERAL-1",
        "The factor 2 applies to the product and to the bias: 2 (A b + c), in integers.",
        module(
            "scaled_product",
            """a = f32[32,15] parameter(0); b = f32[100,15] parameter(1); c = f32[32] parameter(2)
            p = f32[100,32] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
            cs = f32[100,32] broadcast(c), dimensions={1}; s = f32[100,32] add(p, cs)
            two = f32[] constant(2); f = f32[100,32] broadcast(two), dimensions={}
            ROOT r = f32[100,32] multiply(f, s)""",
        ),
        (ROWS, COLUMNS, BIAS),
        2 * (COLUMNS @ ROWS.T + BIAS),
    ),
]
