"""Faults of XLA's CPU backend that random programs showed, and that nobody has reported publicly."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from miscompilations.case import Case, module

S16, S32, BF16, F8E3M4 = np.int16, np.int32, ml_dtypes.bfloat16, ml_dtypes.float8_e3m4

CASES: list[Case] = [
    Case(
        "constant-atan2-of-zeros-in-bf16",
        (),
        "ATAN2-1",
        "The angle of the point (0, 0) is 0, in bf16 as in f32; the evaluator of constants gives NaN.",
        module("zeros", "x = bf16[2] iota(), iota_dimension=0; ROOT r = bf16[2] atan2(x, x)"),
        (),
        np.array([0, np.pi / 4], BF16),
    ),
    Case(
        "popcnt-of-negative-s4",
        (),
        "POPULATIONCOUNT-1",
        "-4 is 1100 in four bits, of which two are set; in a sign-extended byte six are.",
        module("popcnt", "x = s4[3] parameter(0); ROOT r = s4[3] popcnt(x)"),
        (np.array([-4, -1, 3], ml_dtypes.int4),),
        np.array([2, 4, 2], ml_dtypes.int4),
    ),
    Case(
        "power-of-s16-with-exponents-from-64",
        (),
        "POW-2",
        "Integer powers wrap modulo 2^16: 2^64 is 0, 3^64 is not 1. XLA reads 6 bits of the exponent.",
        module("power", "x = s16[3] parameter(0); y = s16[3] parameter(1); ROOT r = s16[3] power(x, y)"),
        (np.array([2, 3, 3], S16), np.array([64, 64, 100], S16)),
        np.array([pow(2, 64, 1 << 16), pow(3, 64, 1 << 16), pow(3, 100, 1 << 16)], np.uint16).view(S16),
    ),
    Case(
        "constant-convolution-of-integers-saturates",
        (),
        "GEN-6",
        "7 * 2000000000 + 1 wraps to 1115098113; the evaluator of constants clamps it to 2147483647.",
        module(
            "fold",
            """x = s32[1,1,2] constant({ { {7, 1} } }); k = s32[1,1,2] constant({ { {2000000000, 1} } })
            ROOT r = s32[1,1,2] convolution(x, k), window={size=2 pad=0_1 lhs_dilate=2 rhs_dilate=2},
              dim_labels=bf0_oi0->bf0""",
        ),
        (),
        np.array([[[14000000001 - 3 * (1 << 32), 0]]], S32),
    ),
    Case(
        "random-bits-of-signed-integers-are-unsigned",
        (),
        "RNGBITGENERATOR-1",
        "The shape of the data is the declared one, s32[4]; the program returns u32[4].",
        module(
            "bits", "s = u64[2] parameter(0); ROOT r = (u64[2], s32[4]) rng-bit-generator(s), algorithm=rng_three_fry"
        ),
        (np.array([0, 0], np.uint64),),
        (np.array([0, 2], np.uint64), np.array([1797259609, -1715843330, 1351547692, -1059176654], S32)),
    ),
    Case(
        "power-with-an-unsigned-exponent",
        (),
        "POW-2",
        "255 is the exponent of an u8, not -1: 3^255 mod 256 is 171, the inverse of 3.",
        module("unsigned_power", "x = u8[1] parameter(0); y = u8[1] parameter(1); ROOT r = u8[1] power(x, y)"),
        (np.array([3], np.uint8), np.array([255], np.uint8)),
        np.array([171], np.uint8),
    ),
    Case(
        "constant-count-leading-zeros-of-a-negative-number",
        (),
        "CLZ-1",
        "A negative number has no leading zero; the evaluator subtracts the 64 bits of its wide form from 32.",
        module("clz", "x = s32[2] constant({-1325316305, 1}); ROOT r = s32[2] count-leading-zeros(x)"),
        (),
        np.array([0, 31], S32),
    ),
    Case(
        "constant-bitcast-of-wide-integers-to-u4",
        (),
        "BITCASTCONVERT-4",
        "Each of the 16 parts of 2^64 - 1 is 15; the evaluator leaves half of them 0.",
        module("parts", "x = u64[1] constant({18446744073709551615}); ROOT r = u4[1,16] bitcast-convert(x)"),
        (),
        np.full((1, 16), 15, ml_dtypes.uint4),
    ),
    Case(
        "constant-reduce-precision-of-nan-without-mantissa",
        (),
        "REDUCEPRECISION-3",
        "NaN stays NaN, even if no bit of the mantissa is kept; the evaluator drops its mantissa.",
        module(
            "precision",
            """x = bf16[2] constant({nan, 6})
            ROOT r = bf16[2] reduce-precision(x), exponent_bits=8, mantissa_bits=0""",
        ),
        (),
        np.array([np.nan, 8], BF16),
    ),
    Case(
        "scatter-with-empty-index-vectors",
        (),
        "SCATTER-5",
        "All nine updates are added to element 0, since index vectors without components start at 0; XLA adds one.",
        module(
            "empty_vectors",
            """x = s32[4] parameter(0); u = s32[3,3] parameter(1); i = s32[0,3,3] parameter(2)
            ROOT r = s32[4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
              scatter_dims_to_operand_dims={}, index_vector_dim=0, to_apply=plus""",
            "plus {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] add(a, b); }",
        ),
        (np.zeros(4, S32), np.ones((3, 3), S32), np.zeros((0, 3, 3), S32)),
        np.array([9, 0, 0, 0], S32),
    ),
    Case(
        "constant-rounding-of-f8e3m4",
        (),
        "ROUND-1",
        "2.5 is rounded away from zero, to 3; the evaluator of constants gives NaN for all finite numbers but 0.",
        module("round", "x = f8e3m4[3] constant({-4, 2.5, 0}); ROOT r = f8e3m4[3] round-nearest-afz(x)"),
        (),
        np.array([-4, 3, 0], F8E3M4),
    ),
    Case(
        "constant-rounding-of-f8e3m4-to-even",
        (),
        "ROUNDNEARESTEVEN-1",
        "2.5 lies between 2 and 3, of which 2 is even; the evaluator of constants gives NaN.",
        module("round_even", "x = f8e3m4[3] constant({-4, 2.5, 0}); ROOT r = f8e3m4[3] round-nearest-even(x)"),
        (),
        np.array([-4, 2, 0], F8E3M4),
    ),
    Case(
        "sort-of-two-bit-integers",
        (),
        "SORT-1",
        "A sort returns its elements, in ascending order: 0, 1, 2, 3; XLA returns other numbers, which vary.",
        module(
            "sort",
            "x = u2[4] parameter(0); ROOT r = u2[4] sort(x), dimensions={0}, to_apply=less",
            "less {; a = u2[] parameter(0); b = u2[] parameter(1); ROOT r = pred[] compare(a, b), direction=LT; }",
        ),
        (np.array([3, 1, 2, 0], ml_dtypes.uint2),),
        np.array([0, 1, 2, 3], ml_dtypes.uint2),
        varies=True,
    ),
    Case(
        "reduce-scatter-of-nan-on-one-device",
        (),
        "REDUCESCATTER-1",
        "The largest of one number is that number, NaN; XLA combines it with -inf, and drops the NaN.",
        module(
            "scatter_one",
            "x = f32[2] parameter(0); ROOT r = f32[2] reduce-scatter(x), dimensions={0}, to_apply=larger",
            "larger {; a = f32[] parameter(0); b = f32[] parameter(1); ROOT r = f32[] maximum(a, b); }",
        ),
        (np.array([np.nan, 1], np.float32),),
        np.array([np.nan, 1], np.float32),
    ),
    Case(
        "gradient-of-a-scale-without-elements",
        (),
        "BATCHNORMGRAD-1",
        "The sum of no quotients is 0; XLA divides the sum by the root of the variance, which is NaN.",
        module(
            "gradient",
            """x = f32[0,1] parameter(0); v = f32[1] parameter(1)
            ROOT r = (f32[0,1], f32[1], f32[1]) batch-norm-grad(x, v, v, v, x), epsilon=0.001, feature_index=1""",
        ),
        (np.zeros((0, 1), np.float32), np.array([np.nan], np.float32)),
        (np.zeros((0, 1), np.float32), np.zeros(1, np.float32), np.zeros(1, np.float32)),
    ),
    Case(
        "cosine-of-large-imaginary-numbers",
        (),
        "UNARY-2",
        "The cosine of iy is the real number cosh(y), here infinite; XLA multiplies sin(0) by sinh(y), 0 inf is NaN.",
        module("cosine", "x = c64[1] parameter(0); ROOT r = c64[1] cosine(x)"),
        (np.array([1000j], np.complex64),),
        np.array([complex(np.inf, -0.0)], np.complex64),
    ),
    Case(
        "constant-selected-without-windows",
        (),
        "SELECTANDSCATTER-1",
        "The window does not fit, the source is empty, and every element is the initial value 1; XLA's evaluator gives 0.",
        module(
            "selected",
            """x = s32[2] constant({0, 1}); s = s32[0] parameter(0); one = s32[] constant(1)
            ROOT r = s32[2] select-and-scatter(x, s, one), window={size=4}, select=largest, scatter=times""",
            """largest {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = pred[] compare(a, b), direction=GE; }
            times {; a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] multiply(a, b); }""",
        ),
        (np.zeros(0, np.int32),),
        np.ones(2, np.int32),
    ),
    Case(
        "ragged-exchange-with-oneself",
        (),
        "COLL-7",
        "Row 1 of the operand becomes row 0 of the result, row 1 is that of the output; XLA ends the process.",
        module(
            "exchange",
            """x = f32[3] parameter(0); o = f32[2] parameter(1); a = s32[1] constant({1}); z = s32[1] constant({0})
            ROOT r = f32[2] ragged-all-to-all(x, o, a, a, z, a), replica_groups={{0}}""",
        ),
        (np.array([1, 2, 3], np.float32), np.array([8, 9], np.float32)),
        np.array([2, 9], np.float32),
    ),
]
