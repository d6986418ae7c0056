"""Scalar computations with control flow, applied to whole arrays: each element goes its own way."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.codegen.scalar_computations import use
from hlo_text import interpreted

COLLATZ = """
going {
  t = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  ROOT r = pred[] compare(n, one), direction=GT
}
step {
  t = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  k = s32[] get-tuple-element(t), index=1
  one = s32[] constant(1)
  two = s32[] constant(2)
  three = s32[] constant(3)
  odd = s32[] and(n, one)
  half = s32[] divide(n, two)
  triple = s32[] multiply(n, three)
  more = s32[] add(triple, one)
  p = pred[] convert(odd)
  m = s32[] select(p, more, half)
  l = s32[] add(k, one)
  ROOT r = (s32[], s32[]) tuple(m, l)
}
steps {
  n = s32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], s32[]) tuple(n, zero)
  w = (s32[], s32[]) while(t), condition=going, body=step
  ROOT r = s32[] get-tuple-element(w), index=1
}
"""


def collatz(n: int) -> int:
    count = 0
    while n > 1:
        n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
    return count


def test_every_element_loops_as_long_as_it_must(backend: str) -> None:
    text = f"HloModule m\n{COLLATZ}\nENTRY e {{\n  n = s32[300] parameter(0)\n  ROOT r = s32[300] map(n), to_apply=steps\n}}"
    n = np.arange(300, dtype=np.int32)
    np.testing.assert_array_equal(hl.compile(hl.parse(text), backend=backend)(n), [collatz(i) for i in range(300)])


@pytest.mark.parametrize("type", ["pred", "s32"])
def test_every_element_takes_its_branch(type: str, backend: str) -> None:
    branches = "true_computation=minus, false_computation=twice"
    if type == "s32":
        branches = "branch_computations={minus, twice, same}"
    text = f"""HloModule m
minus {{ x = f32[] parameter(0) ROOT r = f32[] negate(x) }}
twice {{ x = f32[] parameter(0) ROOT r = f32[] add(x, x) }}
same {{ ROOT x = f32[] parameter(0) }}
choose {{
  i = {type}[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(i, x, {"x" if type == "pred" else "x, x"}), {branches}
}}
ENTRY e {{
  i = {type}[7] parameter(0)
  x = f32[7] parameter(1)
  ROOT r = f32[7] map(i, x), to_apply=choose
}}"""
    x = np.arange(1, 8, dtype=np.float32)
    if type == "pred":
        i = np.array([1, 0, 0, 1, 1, 0, 1], bool)
        want = np.where(i, -x, 2 * x)
    else:
        i = np.array([0, 1, 2, 3, -1, 0, 1], np.int32)  # out of range is the last branch (CONDITIONAL-4)
        want = np.choose([0, 1, 2, 2, 2, 0, 1], [-x, 2 * x, x])
    np.testing.assert_array_equal(hl.compile(hl.parse(text), backend=backend)(i, x), want)


def test_a_comparator_with_control_flow_sorts_many_elements() -> None:
    """20,000 elements one at a time take a quarter of an hour; on arrays the default time limit never comes near."""
    arrays = [np.random.default_rng(0).uniform(0.01, 0.99, (1, 20_000)).astype(np.float32)] * 2
    arrays += [np.zeros((1, 10_000), np.float32), np.zeros((1, 1), np.int32)]
    (got,) = interpreted(use("conditional", ["sort"], 1, 20_000), *arrays)
    keys = np.where(arrays[0] >= 0.5, arrays[0] / 2, arrays[0])
    np.testing.assert_array_equal(got[0], arrays[0][0][np.lexsort((arrays[0][0], keys[0]))])
