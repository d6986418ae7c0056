"""Softmaxes over blocks of keys: masks, values that are not finite, and the operations that may surround a softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hlo_text import COMBINERS
from hloom.passes import clone_module, run_passes, simplification_pipeline
from hloom.passes.blocking.masks import visible_key_count
from hloom.passes.blocking.product_blocking import ProductBlocking
from hloom.passes.edit import Edit
from hloom.passes.op_builder import OpBuilder
from hloom.verifier import verify_module

ATTENTION = """
  q = f32[3,24,4] parameter(0)
  k = f32[3,24,4] parameter(1)
  v = f32[3,24,4] parameter(2)
  scores = f32[3,24,24] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  {mask}
  low = f32[] constant({low})
  lows = f32[3,24,24] broadcast(low), dimensions={{}}
  masked = f32[3,24,24] select(mask, scores, lows)
  least = f32[] constant(-inf)
  most = f32[3,24] reduce(masked, least), dimensions={{2}}, to_apply=largest
  mosts = f32[3,24,24] broadcast(most), dimensions={{0,1}}
  less = f32[3,24,24] subtract(masked, mosts)
  exp = f32[3,24,24] exponential(less)
  zero = f32[] constant(0)
  total = f32[3,24] reduce(exp, zero), dimensions={{2}}, to_apply=sum
  {weights}
  ROOT result = f32[3,24,4] dot(weights, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
"""
DIVIDED = """totals = f32[3,24,24] broadcast(total), dimensions={0,1}
  weights = f32[3,24,24] divide(exp, totals)"""
MULTIPLIED = """one = f32[] constant(1)
  ones = f32[3,24] broadcast(one), dimensions={}
  share = f32[3,24] divide(ones, total)
  shares = f32[3,24,24] broadcast(share), dimensions={0,1}
  weights = f32[3,24,24] multiply(shares, exp)"""
CAUSAL = """row = s32[24,24] iota(), iota_dimension=0
  column = s32[24,24] iota(), iota_dimension=1
  pairs = pred[24,24] compare(row, column), direction=GE
  mask = pred[3,24,24] broadcast(pairs), dimensions={1,2}"""
WINDOW = """row = s32[3,24,24] iota(), iota_dimension=1
  column = s32[3,24,24] iota(), iota_dimension=2
  before = pred[3,24,24] compare(column, row), direction=LE
  apart = s32[3,24,24] subtract(row, column)
  five = s32[] constant(5)
  fives = s32[3,24,24] broadcast(five), dimensions={}
  near = pred[3,24,24] compare(apart, fives), direction=LT
  mask = pred[3,24,24] and(before, near)"""
GIVEN = "mask = pred[3,24,24] parameter(3)"
PADDED = """lengths = s32[3] parameter(3)
  ends = s32[3,24,24] broadcast(lengths), dimensions={0}
  column = s32[3,24,24] iota(), iota_dimension=2
  mask = pred[3,24,24] compare(column, ends), direction=LT"""


def module(mask: str, low: str = "-1e9", weights: str = DIVIDED) -> hl.Module:
    return hl.parse(f"HloModule m\n{COMBINERS}\nENTRY e {{{ATTENTION.format(mask=mask, low=low, weights=weights)}}}")


def check(original: hl.Module, *more: Any, change: Callable[..., None] | None = None) -> None:
    """Blocks of 6 rows and 7 keys give what the whole matrix gives, no numbers and infinities included."""
    blocked = clone_module(original)
    run_passes(blocked, simplification_pipeline())
    assert ProductBlocking(1, 1000, 1, 5, 6, 7, 1).run(blocked) == 1
    verify_module(blocked)
    assert sum(i.opcode == "while" for i in blocked.instructions()) == 2
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, 24, 4), np.float32) for _ in range(3))
    if change is not None:
        change(q, k, v)
    expected = np.asarray(hl.compile(original, "interpreter")(q, k, v, *more))
    for backend in ("interpreter", "cpu"):
        result = np.asarray(hl.compile(blocked, backend)(q, k, v, *more))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("weights", [DIVIDED, MULTIPLIED], ids=["divided", "multiplied"])
@pytest.mark.parametrize("low", ["-inf", "-1e9", "-3.4028235e38", "-5", "0", "nan"])
@pytest.mark.parametrize("mask", [CAUSAL, WINDOW], ids=["causal", "window"])
def test_masked_scores_are_any_constant(mask: str, low: str, weights: str) -> None:
    """Even one that is not small: what is masked then counts."""
    check(module(mask, low, weights))


def test_a_mask_that_is_given() -> None:
    rng = np.random.default_rng(1)
    mask = rng.random((3, 24, 24)) < 0.3
    mask[0, 5] = False  # a row in which everything is masked
    mask[1, :, 12:] = False
    for low in ("-1e9", "-inf"):
        check(module(GIVEN, low), mask)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("low", ["-1e9", "-inf", "3"])
@pytest.mark.parametrize("mask", [CAUSAL, WINDOW], ids=["causal", "window"])
def test_masks_that_hide_where_they_are_true(mask: str, low: str) -> None:
    hiding = mask.replace("mask = ", "shown = ") + "\n  mask = pred[3,24,24] not(shown)"
    text = ATTENTION.format(mask=hiding, low=low, weights=DIVIDED).replace(
        "(mask, scores, lows)", "(mask, lows, scores)"
    )
    check(hl.parse(f"HloModule m\n{COMBINERS}\nENTRY e {{{text}}}"))


@pytest.mark.parametrize("low", ["-1e9", "-inf"])
def test_lengths_that_are_given(low: str) -> None:
    check(module(PADDED, low), np.array([24, 7, 0], np.int32))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_nan_and_infinity_propagate_as_in_the_whole_matrix(bad: float, which: str) -> None:
    """A masked key has a weight of 0, which makes no number of an infinite value."""

    def change(**arrays: np.ndarray[Any, Any]) -> None:
        arrays[which][1, 20, 2] = bad

    check(module(CAUSAL), change=lambda q, k, v: change(q=q, k=k, v=v))


def test_scores_far_below_the_constant_of_the_mask() -> None:
    def change(q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any]) -> None:
        q[:] = 1e5
        k[:] = -1e5

    check(module(CAUSAL, "-1e9"), change=change)


def reach(text: str, dimension: int, *arguments: Any, shows: bool = True) -> int:
    found = hl.parse(f"HloModule m\nENTRY e {{{text}\n ROOT number = s32[] constant(-1)}}")
    mask = next(i for i in found.entry.instructions if i.name == "mask")
    edit = Edit(found.entry)
    number = visible_key_count(OpBuilder.at(edit, found.entry.root), found, mask, dimension, shows)
    edit.replace(found.entry.root, number)
    edit.finish()
    verify_module(found)
    return int(np.asarray(hl.compile(found, "interpreter")(*arguments)))


VECTORS = """rows = s32[5] iota(), iota_dimension=0
  firsts = s32[5] broadcast(first), dimensions={}
  positions = s32[5] add(rows, firsts)
  row = s32[5,16] broadcast(positions), dimensions={0}
  columns = s32[16] iota(), iota_dimension=0
  column = s32[5,16] broadcast(columns), dimensions={1}"""
MATRICES = """rows = s32[5,16] iota(), iota_dimension=0
  firsts = s32[5,16] broadcast(first), dimensions={}
  row = s32[5,16] add(rows, firsts)
  column = s32[5,16] iota(), iota_dimension=1"""


@pytest.mark.sampled(64)
@pytest.mark.parametrize("direction", ["LT", "LE", "GT", "GE", "EQ", "NE"])
@pytest.mark.parametrize("keys", [0, 1])
@pytest.mark.parametrize("shows", [False, True])
@pytest.mark.parametrize("first", [-3, 0, 4, 30])
@pytest.mark.parametrize("positions", [VECTORS, MATRICES], ids=["vectors", "matrices"])
def test_visible_keys_of_compared_positions(direction: str, keys: int, shows: bool, first: int, positions: str) -> None:
    """The rows are first, first + 1, .., the columns 0, 1, .."""
    text = (
        f"first = s32[] constant({first})\n{positions}\nmask = pred[5,16] compare(row, column), direction={direction}"
    )
    compare = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
    compare |= {"EQ": np.equal, "NE": np.not_equal}
    mask = compare[direction](np.arange(first, first + 5)[:, None], np.arange(16))
    seen = np.flatnonzero((mask == shows).any(axis=1 - keys))
    assert reach(text, keys, shows=shows) == (seen[-1] + 1 if seen.size else 0)


@pytest.mark.parametrize("shape", ["5,5,16", "16,5,16"])
def test_positions_of_several_dimensions_are_not_taken_for_those_of_one(shape: str) -> None:
    text = f"""plane = s32[{shape}] iota(), iota_dimension=0
      row = s32[{shape}] iota(), iota_dimension=1
      both = s32[{shape}] add(plane, row)
      column = s32[{shape}] iota(), iota_dimension=2
      mask = pred[{shape}] compare(column, both), direction=LT"""
    planes = int(shape.split(",")[0])
    assert reach(text, 2) == min(16, planes - 1 + 4)


def test_visible_keys_of_any_mask() -> None:
    mask = np.zeros((3, 5, 16), bool)
    text = "mask = pred[3,5,16] parameter(0)"
    assert reach(text, 2, mask) == 0
    mask[1, 2, 6] = True
    assert reach(text, 2, mask) == 7
    assert reach("a = pred[16] parameter(0)\n mask = pred[5,16] broadcast(a), dimensions={1}", 1, mask[1, 2]) == 7
