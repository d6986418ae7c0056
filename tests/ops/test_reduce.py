"""Reductions: cases beyond the specification's examples."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from built import built, evaluate


def test_the_sum_runs_over_the_reduced_dimensions_from_the_initial_value(backend: str) -> None:
    """REDUCE-4, in whole numbers, so that the order does not matter."""
    x = np.random.default_rng(0).integers(-50, 50, (3, 4, 5)).astype(np.float32)
    for dimensions in [(0,), (1,), (2,), (0, 2), (0, 1, 2), ()]:
        program = built(lambda b, x, i, d=dimensions: b.reduce(x, i, lambda p, q: p + q, d), x, np.float32(0))
        found = np.asarray(hl.compile(program, backend=backend)(x, np.float32(7)))
        wanted = np.zeros([n for d, n in enumerate(x.shape) if d not in dimensions])
        for index in np.ndindex(x.shape):
            wanted[tuple(i for d, i in enumerate(index) if d not in dimensions)] += x[index]
        assert np.array_equal(found, wanted + 7)


PAIR = """HloModule m
keep {{ a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  more = pred[] compare(c, a), direction=GT
  v = f32[] select(more, c, a)
  i = s32[] select(more, d, b)
  ROOT t = {result} }}
ENTRY e {{
  x = f32[5] parameter(0)
  i = s32[5] parameter(1)
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT r = (f32[], s32[]) reduce(x, i, low, none), dimensions={{0}}, to_apply=keep
}}"""


def test_a_computation_of_pairs_takes_two_pairs_and_gives_one(backend: str) -> None:
    """REDUCE-2: T0, T1, T0, T1 -> (T0, T1)."""
    x, i = np.array([3, 9, 2, 9, 1], np.float32), np.arange(5, dtype=np.int32)
    found = hl.compile(PAIR.format(result="(f32[], s32[]) tuple(v, i)"), backend=backend)(x, i)
    assert (float(found[0]), int(found[1])) == (9, 1)
    for wrong in ("(s32[], f32[]) tuple(i, v)", "f32[] add(v, v)"):
        with pytest.raises(hl.RuleError, match="REDUCE-(2|9)"):
            hl.parse(PAIR.format(result=wrong))


def test_the_exponents_width_comes_first() -> None:
    """REDUCEPRECISION-7; both may be named."""
    names = list(inspect.signature(hl.XlaBuilder.reduce_precision).parameters)
    assert names[2:] == ["exponent_bits", "mantissa_bits"]
    x = np.array([1 + 2.0**-9, 3e38], np.float32)
    as_bf16 = evaluate("interpreter", lambda b, x: b.reduce_precision(x, 8, 7), x)
    named = evaluate("interpreter", lambda b, x: b.reduce_precision(x, mantissa_bits=7, exponent_bits=8), x)
    assert as_bf16.tolist() == named.tolist() == x.astype(ml_dtypes.bfloat16).tolist()
