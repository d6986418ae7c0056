"""The rules for all operations (GEN): cases beyond the tests of single operations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from built import built, evaluate
from hloom.bench.peer_process import XlaPeer


def test_values_are_arrays_tuples_and_tokens(backend: str) -> None:
    """GEN-1: a vector has one dimension, a matrix two, a scalar none; a token has no value that a host could see."""
    scalar, vector, matrix = np.float32(1), np.ones(3, np.float32), np.ones((2, 3), np.float32)
    found = evaluate(backend, lambda b, *x: b.tuple(x[0], b.tuple(*x[1:]), b.after_all()), scalar, vector, matrix)
    assert isinstance(found, tuple) and isinstance(found[1], tuple)
    assert (np.ndim(found[0]), found[1][0].ndim, found[1][1].ndim) == (0, 1, 2)
    assert not isinstance(found[2], np.ndarray)
    shapes = built(lambda b, *x: b.tuple(*x, b.after_all()), scalar, vector, matrix).entry_computation.result_shape
    assert [(s.is_array, s.is_token) for s in shapes.elements] == [(True, False)] * 3 + [(False, True)]


WITH_DIMENSIONS: dict[str, Callable[..., Any]] = {
    "transpose": lambda b, x, d: b.transpose(x, d),
    "rev": lambda b, x, d: b.rev(x, d),
    "reduce": lambda b, x, d: b.reduce(x, np.float32(0), lambda a, c: a + c, d),
    "broadcast_in_dim": lambda b, x, d: b.broadcast_in_dim(x, (2, 3, 4), d),
    "concat_in_dim": lambda b, x, d: b.concat_in_dim([x, x], d[0]),
    "sort": lambda b, x, d: b.sort([x], lambda p, q: b.lt(p, q), d[0]),
}


@pytest.mark.parametrize("name", WITH_DIMENSIONS)
def test_dimensions_are_in_range_and_distinct(name: str) -> None:
    """GEN-4."""
    x = np.ones((2, 3), np.float32)
    wrong = [(0, 2), (0, 5)] if name not in ("concat_in_dim", "sort") else [(2,), (5,)]
    wrong += [(1, 1)] if name not in ("concat_in_dim", "sort") else []
    for wrong_dimensions in wrong:
        if name == "broadcast_in_dim" and wrong_dimensions == (0, 2):
            wrong_dimensions = (0, 3)
        with pytest.raises(hl.RuleError, match=re.escape("[")) as error:
            built(lambda b, x, wrong_dimensions=wrong_dimensions: WITH_DIMENSIONS[name](b, x, wrong_dimensions), x)
        assert any(str(number) in str(error.value) for number in wrong_dimensions)


LAYOUTS = """HloModule m
ENTRY e {{
  x = f32[3,4]{{{x}}} parameter(0)
  y = f32[3,4]{{{y}}} parameter(1)
  s = f32[3,4]{{{s}}} subtract(x, y)
  t = f32[4,3]{{{y}}} transpose(s), dimensions={{1,0}}
  ROOT r = f32[12]{{0}} reshape(t)
}}"""


def test_results_do_not_depend_on_layouts(backend: str) -> None:
    """GEN-9; the builder gives the default layout."""
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    orders = ("1,0", "0,1")
    texts = [LAYOUTS.format(x=a, y=b, s=c) for a in orders for b in orders for c in orders]
    found = {np.asarray(hl.compile(text, backend=backend)(x, y)).tobytes() for text in texts}
    assert found == {(x - y).T.reshape(12).tobytes()}
    made = built(lambda b, x: b.transpose(x, (1, 0)), x).entry_computation.result_shape
    assert made.layout == hl.Layout((1, 0))


EFFECTS = """HloModule m
ENTRY e {
  x = f32[] parameter(0)
  one = f32[] constant(1)
  a = f32[] custom-call(x), custom_call_target="general_rules_note", custom_call_has_side_effect=true
  b = f32[] custom-call(one), custom_call_target="general_rules_note", custom_call_has_side_effect=true
  c = f32[] custom-call(one), custom_call_target="general_rules_note", custom_call_has_side_effect=true
  unused = f32[] add(a, b)
  ROOT r = f32[] add(b, b)
}"""


def test_effects_are_neither_dropped_nor_doubled(backend: str) -> None:
    """GEN-11: a call whose result nobody reads, two that are alike, and one that is read twice."""
    noted: list[float] = []

    def note(value: np.ndarray) -> np.ndarray:
        noted.append(float(value))
        return value

    hl.register_custom_call("general_rules_note", note)
    assert float(hl.compile(EFFECTS, backend=backend)(np.float32(7))) == 2
    assert sorted(noted) == [1, 1, 7]


def test_effects_keep_the_order_of_their_tokens(backend: str) -> None:
    """GEN-11."""
    text = """HloModule m
ENTRY e {
  first = f32[] constant(1)
  second = f32[] constant(2)
  third = f32[] constant(3)
  start = token[] after-all()
  z = token[] outfeed(first, start), outfeed_shape=f32[]
  a = token[] outfeed(second, z), outfeed_shape=f32[]
  ROOT k = token[] outfeed(third, a), outfeed_shape=f32[]
}"""
    device = hl.Device()
    hl.compile(text, backend=backend, devices=[device])()
    assert [float(device.transfer_from_outfeed()) for _ in range(3)] == [1, 2, 3]


def test_sums_are_the_same_each_time_and_as_good_as_pairwise(backend: str) -> None:
    """GEN-13: a pairwise sum of n numbers errs by at most about log2(n) roundings of the sum of their sizes."""
    values = np.random.default_rng(0).normal(size=300_000).astype(np.float32)
    run = hl.compile(built(lambda b, x: b.reduce(x, np.float32(0), lambda a, c: a + c, (0,)), values), backend=backend)
    found = [float(run(values)) for _ in range(3)]
    assert len(set(found)) == 1
    exact, sizes = math.fsum(map(float, values)), math.fsum(map(abs, map(float, values)))
    assert abs(found[0] - exact) <= math.log2(values.size) * 2.0**-24 * sizes


def test_definitions_are_printed_with_a_space_before_their_equals_sign(peer: XlaPeer) -> None:
    """GEN-14: XLA takes `x=` for the name of an attribute; hloom reads it, and never prints it."""
    tight = "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT x= f32[] negate(p)\n}"
    with pytest.raises(Exception, match="attribute|expects"):
        peer.parse(tight)
    printed = hl.parse(tight).to_text()
    assert "x = f32[]" in printed
    assert peer.parse(printed).startswith("HloModule")
