"""sort-keys: costly functions of a single element are hoisted out of comparators."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted, sort_text
from hloom.passes import clone_module, run_passes
from hloom.passes.optimize.sort_keys import SortKeys, keys

BOTH = "ka = f32[] cosine(a0)\n  kb = f32[] cosine(b0)\n  "
CANONICAL = (
    "xS = f32[] constant(0)\n  yS = f32[] constant(0)\n  zS = f32[] constant(nan)\n"
    "  eS = pred[] compare(S0, xS), direction=EQ\n  sS = f32[] select(eS, yS, S0)\n"
    "  nS = pred[] compare(S0, S0), direction=NE\n  kS = f32[] select(nS, zS, sS)\n  "
)
COMPARATORS = {
    "one key": (1, 1, BOTH + "ROOT r = pred[] compare(ka, kb), direction=LT"),
    "downward": (1, 1, BOTH + "ROOT r = pred[] compare(kb, ka), direction=LT"),
    "a key and the element": (
        1,
        1,
        BOTH + "p = pred[] compare(ka, kb), direction=LT\n  q = pred[] compare(a0, b0), direction=LT\n"
        "  e = pred[] compare(ka, kb), direction=EQ\n  t = pred[] and(e, q)\n  ROOT r = pred[] or(p, t)",
    ),
    "a key of two operands": (
        2,
        1,
        "ma = f32[] power(a0, a1)\n  mb = f32[] power(b0, b1)\n  ROOT r = pred[] compare(ma, mb), direction=LT",
    ),
    "two keys": (
        2,
        2,
        BOTH + "la = f32[] tanh(a1)\n  lb = f32[] tanh(b1)\n  p = pred[] compare(ka, kb), direction=LT\n"
        "  e = pred[] compare(ka, kb), direction=EQ\n  q = pred[] compare(la, lb), direction=LT\n"
        "  t = pred[] and(e, q)\n  ROOT r = pred[] or(p, t)",
    ),
    "keys of keys": (
        1,
        1,
        "ca = f32[] cosine(a0)\n  cb = f32[] cosine(b0)\n  ka = f32[] sine(ca)\n  kb = f32[] sine(cb)\n"
        "  ROOT r = pred[] compare(ka, kb), direction=LT",
    ),
    "cheap keys stay": (
        1,
        0,
        "ka = f32[] negate(a0)\n  kb = f32[] negate(b0)\n  ROOT r = pred[] compare(ka, kb), direction=LT",
    ),
    "constants cost nothing, and one NaN and one zero stay": (
        1,
        0,
        "".join(CANONICAL.replace("S", side) for side in "ab") + "ROOT r = pred[] compare(ka, kb), direction=LT",
    ),
    "sides that differ stay": (
        1,
        0,
        "ka = f32[] cosine(a0)\n  kb = f32[] sine(b0)\n  ROOT r = pred[] compare(ka, kb), direction=LT",
    ),
    "one side alone stays": (1, 0, "ka = f32[] cosine(a0)\n  ROOT r = pred[] compare(ka, b0), direction=LT"),
    "what mixes sides stays": (
        1,
        0,
        "d = f32[] subtract(a0, b0)\n  c = f32[] tanh(d)\n  z = f32[] constant(0)\n"
        "  ROOT r = pred[] compare(c, z), direction=LT",
    ),
}


@pytest.mark.parametrize("case", COMPARATORS)
def test_results_are_the_same_and_keys_are_found(case: str) -> None:
    operands, wanted, comparator = COMPARATORS[case]
    arrays = [np.random.default_rng(k).uniform(0.1, 3, (5, 37)).astype(np.float32) for k in range(operands)]
    module = hl.parse(sort_text(arrays, comparator, 1))
    (sort,) = [i for i in module.entry.instructions if i.opcode == "sort"]
    assert len(keys(sort.op.comparator)) == wanted  # type: ignore[attr-defined]
    after = clone_module(module)
    assert run_passes(after, SortKeys(), verify=True)[0].changes == (1 if wanted else 0)
    assert run_passes(after, SortKeys(), verify=True)[0].changes == 0, "a comparator of keys has none of its own"
    if not wanted:  # not all of these are total orders, so results depend on the algorithm
        return
    for want, got, native in zip(
        interpreted(module, *arrays), interpreted(after, *arrays), compiled(module, *arrays), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(native, want)


def test_long_chains_do_not_recurse_deeply() -> None:
    lines = ["ka0 = f32[] cosine(a0)", "kb0 = f32[] cosine(b0)"]
    for k in range(3000):
        lines += [f"k{side}{k + 1} = f32[] add(k{side}{k}, k{side}{k})" for side in "ab"]
    lines.append("ROOT r = pred[] compare(ka3000, kb3000), direction=LT")
    x = np.ones(4, np.float32)
    module = hl.parse(sort_text([x], "\n".join(lines), 0))
    assert run_passes(module, SortKeys(), verify=True)[0].changes == 1


def test_a_comparator_that_loops_costs_no_more_than_its_elements() -> None:
    comparator = "\n".join(
        f"z{s} = s32[] constant(0)\n  t{s} = (s32[], f32[]) tuple(z{s}, {s}0)\n"
        f"  w{s} = (s32[], f32[]) while(t{s}), condition=few, body=next\n"
        f"  k{s} = f32[] get-tuple-element(w{s}), index=1"
        for s in "ab"
    )
    loop = """few {
  t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
next {
  t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[] sine(x)
  ROOT r = (s32[], f32[]) tuple(j, y)
}
"""
    x = np.zeros(500, np.float32)
    text = sort_text([x], comparator + "\n  ROOT r = pred[] compare(ka, kb), direction=LT", 0)
    module = hl.parse(text.replace("HloModule m\n", "HloModule m\n" + loop))
    (x,) = arrays_for(module)
    (got,) = compiled(module, x)
    np.testing.assert_array_equal(got, interpreted(module, x)[0])
    np.testing.assert_array_equal(got, x[np.argsort(np.sin(np.sin(np.sin(x))), kind="stable")])
