"""The rule by which results are the same: element types, lengths of sums, and errors in double precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hloom.comparison import Comparison, Tolerance, tolerance_of
from hloom.comparison.double import exact_results, in_double

EPS = float(np.finfo(np.float32).eps)
LOGISTIC = """HloModule chaos
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  r = f32[] constant(3.99)
  rs = f32[4] broadcast(r), dimensions={}
  rest = f32[4] subtract(ones, x)
  part = f32[4] multiply(rs, x)
  y = f32[4] multiply(part, rest)
  step = s32[] constant(1)
  next = s32[] add(i, step)
  ROOT new = (s32[], f32[4]) tuple(next, y) }
condition { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(COUNT)
  ROOT less = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  l = (s32[], f32[4]) while(s), condition=condition, body=body
  ROOT y = f32[4] get-tuple-element(l), index=1 }
"""

RECURRENT = """HloModule recurrent
body { s = (s32[], f32[64,64], f32[128,64,64], f32[128,64,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[64,64] get-tuple-element(s), index=1
  out = f32[128,64,64] get-tuple-element(s), index=2
  xs = f32[128,64,64] get-tuple-element(s), index=3
  w = f32[64,64] get-tuple-element(s), index=4
  zero = s32[] constant(0)
  x = f32[1,64,64] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,64,64}
  product = f32[64,64] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  new = f32[64,64] tanh(f32[64,64] add(product, f32[64,64] reshape(x)))
  outs = f32[128,64,64] dynamic-update-slice(out, f32[1,64,64] reshape(new), i, zero, zero)
  one = s32[] constant(1)
  ROOT next = (s32[], f32[64,64], f32[128,64,64], f32[128,64,64], f32[64,64]) tuple(s32[] add(i, one), new, outs, xs, w) }
condition { s = (s32[], f32[64,64], f32[128,64,64], f32[128,64,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(128)
  ROOT less = pred[] compare(i, n), direction=LT }
ENTRY e { xs = f32[128,64,64] parameter(0)
  w = f32[64,64] parameter(1)
  zero = s32[] constant(0)
  empty = f32[] constant(0)
  h = f32[64,64] broadcast(empty), dimensions={}
  out = f32[128,64,64] broadcast(empty), dimensions={}
  s = (s32[], f32[64,64], f32[128,64,64], f32[128,64,64], f32[64,64]) tuple(zero, h, out, xs, w)
  l = (s32[], f32[64,64], f32[128,64,64], f32[128,64,64], f32[64,64]) while(s), condition=condition, body=body
  ROOT y = f32[128,64,64] get-tuple-element(l), index=2 }
"""


def module(*lines: str) -> hl.Module:
    return hl.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")


def dot(terms: int, element_type: str = "f32") -> hl.Module:
    return module(
        f"x = {element_type}[2,{terms}] parameter(0)",
        f"y = {element_type}[{terms},2] parameter(1)",
        f"ROOT z = {element_type}[2,2] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    )


def test_the_tolerance_grows_with_the_root_of_the_longest_sum() -> None:
    short, long = (tolerance_of(dot(terms)).of_largest for terms in (100, 10000))
    assert short / EPS == pytest.approx(4 * (1 + np.sqrt(200)))
    assert long / short == pytest.approx(10, rel=0.1)


def test_it_is_that_of_the_coarsest_type_computed_in_and_of_the_accumulator() -> None:
    """bf16 has 8 bits, and sums of bf16 are accumulated in f32."""
    assert tolerance_of(dot(16, "bf16")).relative == pytest.approx(4 * (2**-7 + np.sqrt(32) * EPS))
    stored = module("x = bf16[8] parameter(0)", "y = f32[8] convert(x)", "ROOT z = f32[8] exponential(y)")
    assert tolerance_of(stored).relative == pytest.approx(8 * EPS)


def test_integers_and_moves_have_none() -> None:
    assert tolerance_of(module("x = s32[8] parameter(0)", "ROOT z = s32[8] add(x, x)")).relative == 0
    assert tolerance_of(module("x = f32[8] parameter(0)", "ROOT z = f32[8] reverse(x), dimensions={0}")).relative == 0


def test_an_error_beyond_the_tolerance_is_a_difference_where_the_exact_result_says_so() -> None:
    program, x = module("x = f32[3] parameter(0)", "ROOT y = f32[3] exponential(x)"), np.float32([0, 1, 2])
    right, wrong = np.exp(x), np.exp(x) * np.float32([1, 1.0001, 1])
    comparison = Comparison(program, [[x]])
    assert comparison.difference(right, right * (1 + EPS)) is None
    assert "differs in 1 of 3 elements, first at [1]" in str(comparison.difference(wrong, right))
    assert "differs in 1 of 3 elements" in str(comparison.difference(right, wrong))
    assert "is f32[2], expected f32[3]" in str(comparison.difference(right[:2], right))
    assert "has 2 arrays, expected 1" in str(comparison.difference((right, right), right))


@pytest.mark.parametrize("count, is_chaotic", [(3, False), (100, True)])
def test_a_program_that_amplifies_errors_accuses_nobody(count: int, is_chaotic: bool) -> None:
    """The logistic map at 3.99 doubles errors with each step: after 100, f32 has no digit left."""
    program = hl.parse(LOGISTIC.replace("COUNT", str(count)))
    x = np.float32([0.1, 0.2, 0.3, 0.4])
    value, other = (np.asarray(hl.compile(program, "interpreter")(x * f)) for f in (1, np.float32(1 + 2 * EPS)))
    assert (np.abs(value - other).max() > 0.01) == is_chaotic
    assert Comparison(program, [[x]]).difference(other, value) is None
    far = value + np.float32(0.01)
    assert (Comparison(program, [[x]]).difference(far, value) is None) == is_chaotic


def recurrent(xs: np.ndarray, w: np.ndarray, order: slice) -> np.ndarray:
    """Returns the states of RECURRENT by NumPy, with the terms of products in an order."""
    h, states = np.zeros((64, 64), np.float32), []
    for x in xs:
        h = np.tanh(h[:, order] @ w[order] + x)
        states.append(h)
    return np.array(states)


def test_sums_carried_through_a_loop_may_differ_by_their_errors_and_by_no_more() -> None:
    """An element close to 0 is the difference of terms of the size of the others, whose errors it has."""
    program = hl.parse(RECURRENT)
    rng = np.random.default_rng(0)
    xs, w = rng.standard_normal((128, 64, 64), np.float32), 0.1 * rng.standard_normal((64, 64), np.float32)
    one, other = (recurrent(xs, w, order) for order in (slice(None), slice(None, None, -1)))
    assert np.max(np.abs(one - other) / np.abs(one)) > 1e-4
    comparison = Comparison(program, [[xs, w]])
    assert comparison.difference(one, other) is None
    element, weight, step = one.copy(), w.copy(), xs.copy()
    element[100, 5, 5] += 1e-4
    weight[3, 4] += 1e-4
    step[90] = 0
    for wrong in (element, recurrent(xs, weight, slice(None)), recurrent(step, w, slice(None))):
        assert comparison.difference(wrong, one) is not None
        assert comparison.difference(one, wrong) is not None


def test_a_given_tolerance_is_the_whole_rule() -> None:
    program, x = module("x = f32[2] parameter(0)", "ROOT y = f32[2] exponential(x)"), np.zeros(2, np.float32)
    one, other = np.float32([1, 100]), np.float32([1, 101])
    assert Comparison(program, [[x]], Tolerance(0.02, 0.0)).difference(one, other) is None
    assert Comparison(program, [[x]], Tolerance(0.001, 0.0)).difference(one, other) is not None
    assert Tolerance(0.0, 0.0, of_largest=0.01).difference(one, other) is None


# Double precision


def test_a_module_in_double_precision_has_the_digits_of_numpy() -> None:
    x, y = (np.random.default_rng(k).standard_normal(s, np.float32) for k, s in enumerate(((2, 50), (50, 2))))
    ((value, perturbed),) = exact_results(dot(50), [[x, y]]) or []
    expected = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    assert 0 < np.abs(perturbed - expected).max() < 50 * 8 * EPS * np.abs(x).max() * np.abs(y).max()


def test_bits_are_those_of_the_narrow_type() -> None:
    """A number in [1, 2) from 23 random bits, minus one, as JAX draws it; and the bits of a float."""
    uniform = module(
        "bits = u32[2] parameter(0)",
        "x = f32[2] bitcast-convert(bits)",
        "one = f32[] constant(1)",
        "ones = f32[2] broadcast(one), dimensions={}",
        "y = f32[2] subtract(x, ones)",
        "back = u32[2] bitcast-convert(y)",
        "ROOT t = (f32[2], u32[2]) tuple(y, back)",
    )
    bits = np.uint32([0x3F800000, 0x3FC00000])
    (y, _), (back, _) = exact_results(uniform, [[bits]]) or []
    assert y.dtype == np.float64 and y.tolist() == [0, 0.5]
    assert back.tolist() == np.float32([0, 0.5]).view(np.uint32).tolist()


def test_constants_narrow_and_complex_values_become_double() -> None:
    program = module(
        "x = bf16[2] parameter(0)",
        "c = bf16[2] constant({1, 0.5})",
        "s = bf16[2] add(x, c)",
        "z = c64[2] parameter(1)",
        "ROOT t = (bf16[2], c64[2]) tuple(s, z)",
    )
    double = in_double(program)
    assert str(double.entry.result_shape).startswith("(f64[2]") and program.entry.root.shape.elements[0] == hl.bf16[2]
    x = np.array([1, 1 / 256], ml_dtypes.bfloat16)
    (value, _), (z, _) = exact_results(program, [[x, np.complex64([1j, 2])]]) or []
    assert value.tolist() == [2, 0.5 + 1 / 256] and z.dtype == np.complex128


def test_programs_that_draw_or_call_have_no_exact_result() -> None:
    draws = module(
        "a = f32[] constant(0)", "b = f32[] constant(1)", "ROOT r = f32[2] rng(a, b), distribution=rng_uniform"
    )
    assert exact_results(draws, [[]]) is None
    call = module("x = f32[2] parameter(0)", 'ROOT r = f32[2] custom-call(x), custom_call_target="f"')
    assert exact_results(call, [[np.zeros(2, np.float32)]]) is None
