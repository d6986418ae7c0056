"""Reductions, products of matrices, sorts, conditionals and loops: parts that are left out, read twice, or too early."""

from __future__ import annotations

import numpy as np

from miscompilations.case import Case, module

S32, F32, F64 = np.int32, np.float32, np.float64


def plus(type: str) -> str:
    """Returns the computation `plus` on scalars of a type."""
    return f"plus {{; a = {type}[] parameter(0); b = {type}[] parameter(1); ROOT r = {type}[] add(a, b); }}"


COUNT = 16_385

LARGEST_AT = """largest_at {
a = f32[] parameter(0); i = s32[] parameter(1); b = f32[] parameter(2); j = s32[] parameter(3)
g = pred[] compare(a, b), direction=GE
v = f32[] select(g, a, b); k = s32[] select(g, i, j)
ROOT r = (f32[], s32[]) tuple(v, k)
}"""

SEARCH = """condition {
t = (s32[], s32[], s32[], s32[4]) parameter(0)
i = s32[] get-tuple-element(t), index=0; n = s32[] constant(3); ROOT less = pred[] compare(i, n), direction=LT
}
body {
t = (s32[], s32[], s32[], s32[4]) parameter(0)
i = s32[] get-tuple-element(t), index=0; low = s32[] get-tuple-element(t), index=1
high = s32[] get-tuple-element(t), index=2; x = s32[4] get-tuple-element(t), index=3
one = s32[] constant(1); next = s32[] add(i, one)
sum = s32[] add(low, high); two = s32[] constant(2); middle = s32[] divide(sum, two)
e = s32[1] dynamic-slice(x, middle), dynamic_slice_sizes={1}; v = s32[] reshape(e)
key = s32[] constant(2); left = pred[] compare(key, v), direction=LE
l = s32[] select(left, low, middle); h = s32[] select(left, middle, high)
ROOT r = (s32[], s32[], s32[], s32[4]) tuple(next, l, h, x)
}"""

POWER = """multiply_by {
p = (f32[], f32[]) parameter(0); v = f32[] get-tuple-element(p), index=0; x = f32[] get-tuple-element(p), index=1
ROOT m = f32[] multiply(v, x)
}
keep {
p = (f32[], f32[]) parameter(0); ROOT v = f32[] get-tuple-element(p), index=0
}
condition {
t = (s32[], f32[], f32[], pred[]) parameter(0)
i = s32[] get-tuple-element(t), index=0; n = s32[] constant(4); ROOT less = pred[] compare(i, n), direction=LT
}
body {
t = (s32[], f32[], f32[], pred[]) parameter(0)
i = s32[] get-tuple-element(t), index=0; v = f32[] get-tuple-element(t), index=1
x = f32[] get-tuple-element(t), index=2; active = pred[] get-tuple-element(t), index=3
one = s32[] constant(1); next = s32[] add(i, one)
p = (f32[], f32[]) tuple(v, x)
w = f32[] conditional(active, p, p), true_computation=multiply_by, false_computation=keep
two = s32[] constant(2); again = pred[] compare(next, two), direction=LT
ROOT r = (s32[], f32[], f32[], pred[]) tuple(next, w, x, again)
}"""

CASES = [
    Case(
        "matrix-times-rows-reduced",
        ("jax-ml/jax#39103",),
        "DOTGENERAL-1",
        "Row i of x is (i, 0, 0): its product with the unit matrix, squared and summed, is i^2, exact in f64.",
        module(
            "matrix_times_rows",
            f"""m = f64[3,3] parameter(0); x = f64[{COUNT},3] parameter(1)
            d = f64[3,{COUNT}] dot(m, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
            s = f64[3,{COUNT}] multiply(d, d); zero = f64[] constant(0)
            ROOT r = f64[{COUNT}] reduce(s, zero), dimensions={{0}}, to_apply=plus""",
            plus("f64"),
        ),
        (np.eye(3), np.outer(np.arange(COUNT), [1.0, 0, 0])),
        np.arange(COUNT, dtype=F64) ** 2,
        varies=True,
    ),
    Case(
        "sum-of-a-broadcast",
        ("tensorflow/tensorflow#126812",),
        "REDUCE-4",
        "2097152 ones are summed exactly in f32: partial sums are integers below 2^24.",
        module(
            "sum_of_a_broadcast",
            """x = f32[1024,1] parameter(0); v = f32[1024] reshape(x); zero = f32[] constant(0)
            b = f32[2,1024,1024] broadcast(v), dimensions={1}
            ROOT r = f32[] reduce(b, zero), dimensions={0,1,2}, to_apply=plus""",
            plus("f32"),
        ),
        (np.ones((1024, 1), F32),),
        np.array(2097152, F32),
        varies=True,
    ),
    Case(
        "product-with-zeros",
        ("openxla/xla#13054",),
        "DOTGENERAL-1",
        "The gradient of a product and of one with a matrix of zeros, which adds nothing: -w, averaged over the rows.",
        module(
            "product_with_zeros",
            """y = f32[64,3] parameter(0); w = f32[3] parameter(1); z = f32[3,3] constant({{0,0,0},{0,0,0},{0,0,0}})
            zero = f32[] constant(0); scale = f32[] constant(0.015625)
            g = f32[64] broadcast(scale), dimensions={}
            a = f32[64,3] dot(g, w), lhs_contracting_dims={}, rhs_contracting_dims={}
            d = f32[64,3] dot(y, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            s = f32[64,3] add(a, d); n = f32[64,3] negate(s)
            ROOT r = f32[3] reduce(n, zero), dimensions={0}, to_apply=plus""",
            plus("f32"),
        ),
        (np.ones((64, 3), F32), np.array([1, 2, 3], F32)),
        np.array([-1, -2, -3], F32),
    ),
    Case(
        "running-sums-backwards",
        ("iree-org/iree#23381",),
        "REDUCEWINDOW-1",
        "Running sums of a reversed array, reversed: the gradient of running sums (IREE gives zeros).",
        module(
            "running_sums_backwards",
            """x = f32[2,6] parameter(0); zero = f32[] constant(0); v = f32[2,6] reverse(x), dimensions={1}
            s = f32[2,6] reduce-window(v, zero), window={size=1x6 pad=0_0x5_0}, to_apply=plus
            ROOT r = f32[2,6] reverse(s), dimensions={1}""",
            plus("f32"),
        ),
        (np.array([[1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 0, -1]], F32),),
        np.array([[21, 20, 18, 15, 11, 6], [0, 0, 0, -1, -1, -1]], F32),
    ),
    Case(
        "index-of-the-largest-transposed",
        ("pytorch/pytorch#183082", "pytorch/pytorch#114229"),
        "REDUCE-8",
        "The index counts along the transposed rows, and the first of equal elements counts.",
        module(
            "index_transposed",
            """x = f32[2,3] parameter(0); t = f32[3,2] transpose(x), dimensions={1,0}; n = f32[3,2] negate(t)
            i = s32[3,2] iota(), iota_dimension=1; low = f32[] constant(-inf); zero = s32[] constant(0)
            p = (f32[3], s32[3]) reduce(n, i, low, zero), dimensions={1}, to_apply=largest_at
            ROOT r = s32[3] get-tuple-element(p), index=1""",
            LARGEST_AT,
        ),
        (np.array([[1, 5, 2], [0, 7, 2]], F32),),
        np.array([1, 0, 0], S32),
    ),
    Case(
        "first-index-that-holds",
        ("jax-ml/jax#37382",),
        "SORT-1",
        "Indices at which the difference is positive, in order: the first is 0.",
        module(
            "first_index",
            """x = s32[2,2] parameter(0); a = s32[2,1] slice(x), slice={[0:2], [0:1]}
            b = s32[2,1] slice(x), slice={[0:2], [1:2]}; d = s32[2,1] subtract(b, a); e = s32[2] reshape(d)
            z = s32[2] constant({0, 0}); p = pred[2] compare(e, z), direction=GT; c = s32[2] convert(p)
            zero = s32[] constant(0); s = s32[2] reduce-window(c, zero), window={size=2 pad=1_0}, to_apply=plus
            one = s32[] constant(1); o = s32[2] broadcast(one), dimensions={}
            f = pred[2] compare(s, o), direction=LT; k = s32[2] convert(f)
            ROOT r = s32[] reduce(k, zero), dimensions={0}, to_apply=plus""",
            plus("s32"),
        ),
        (np.array([[1, 2], [0, 0]], S32),),
        np.array(0, S32),
    ),
    Case(
        "search-in-a-loop",
        ("jax-ml/jax#17003",),
        "WHILE-1",
        "Three halvings find the first element that is at least 2: low and high are exchanged at once.",
        module(
            "search",
            """x = s32[4] parameter(0); zero = s32[] constant(0); four = s32[] constant(4)
            t = (s32[], s32[], s32[], s32[4]) tuple(zero, zero, four, x)
            w = (s32[], s32[], s32[], s32[4]) while(t), condition=condition, body=body
            ROOT r = s32[] get-tuple-element(w), index=2""",
            SEARCH,
        ),
        (np.array([0, 1, 2, 3], S32),),
        np.array(2, S32),
    ),
    Case(
        "conditional-in-a-loop",
        ("jax-ml/jax#5900",),
        "CONDITIONAL-1",
        "Two of four iterations multiply by 3, the others keep the value: 9.",
        module(
            "conditional_in_a_loop",
            """x = f32[] parameter(0); i = s32[] constant(0); one = f32[] constant(1); yes = pred[] constant(true)
            t = (s32[], f32[], f32[], pred[]) tuple(i, one, x, yes)
            w = (s32[], f32[], f32[], pred[]) while(t), condition=condition, body=body
            ROOT r = f32[] get-tuple-element(w), index=1""",
            POWER,
        ),
        (np.array(3, F32),),
        np.array(9, F32),
    ),
    Case(
        "scalar-added-to-a-picture",
        ("jax-ml/jax#7229",),
        "ADD-1",
        "A scalar is added to each of 131 * 37 * 3 elements, the last ones included.",
        module(
            "scalar_added",
            """x = f32[131,37,3] parameter(0); s = f32[] parameter(1); b = f32[131,37,3] broadcast(s), dimensions={}
            ROOT r = f32[131,37,3] add(x, b)""",
        ),
        (np.arange(131 * 37 * 3, dtype=F32).reshape(131, 37, 3), np.array(0.5, F32)),
        np.arange(131 * 37 * 3, dtype=F32).reshape(131, 37, 3) + F32(0.5),
    ),
    Case(
        "gradient-through-a-norm",
        ("jax-ml/jax#939",),
        "SQRT-1",
        "sqrt((-1.5)^2 + 0^2) is 1.5; twice (1.5 - 2) / 0.4^2 times the direction -1 is 6.25 / 2; 0 in the other.",
        module(
            "gradient_through_a_norm",
            """x = f32[2] parameter(0); zero = f32[] constant(0); s = f32[2] multiply(x, x)
            t = f32[] reduce(s, zero), dimensions={0}, to_apply=plus; n = f32[] sqrt(t)
            two = f32[] constant(2); d = f32[] subtract(n, two); c = f32[] constant(6.25); g = f32[] multiply(d, c)
            q = f32[] divide(g, n); b = f32[2] broadcast(q), dimensions={}; ROOT r = f32[2] multiply(b, x)""",
            plus("f32"),
        ),
        (np.array([-2, 0], F32) * F32(0.5),),
        np.array([6.25, -0.0], F32),
    ),
]
