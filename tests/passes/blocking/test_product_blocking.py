"""Attention, its gradient and other large products, computed block by block."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hlo_text import COMBINERS
from hloom.passes import clone_module, run_passes, simplification_pipeline
from hloom.passes.blocking import product_blocking
from hloom.passes.blocking.product_blocking import ProductBlocking
from hloom.passes.blocking.regions import Region
from hloom.passes.blocking.softmax import Softmax, find_softmax
from hloom.verifier import verify_module

HEADS = "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}"
CONTRACTED = {
    "BY_COLUMNS": f"{HEADS}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}",
    "BY_KEYS": f"{HEADS}, lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}",
    "BY_QUERIES": f"{HEADS}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}",
    "BY_GROUPS": "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}",
    "OF_GROUPS": "lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={1}, rhs_contracting_dims={4}",
}
SCORES = """
  q = f32[2,3,24,4] parameter(0)
  k = f32[2,3,24,4] parameter(1)
  v = f32[2,3,24,4] parameter(2)
  scores = f32[2,3,24,24] dot(q, k), BY_COLUMNS
  half = f32[] constant(0.5)
  halves = f32[2,3,24,24] broadcast(half), dimensions={}
  scaled = f32[2,3,24,24] multiply(scores, halves)
"""
MASK = """
  row = s32[24,24] iota(), iota_dimension=0
  column = s32[24,24] iota(), iota_dimension=1
  mask = pred[24,24] compare(row, column), direction=GE
  masks = pred[2,3,24,24] broadcast(mask), dimensions={2,3}
  low = f32[] constant(-1e9)
  lows = f32[2,3,24,24] broadcast(low), dimensions={}
  masked = f32[2,3,24,24] select(masks, scaled, lows)
"""
SCORE_BYTES = 2 * 3 * 24 * 24 * 4
SOFTMAX = """
  least = f32[] constant(-inf)
  most = f32[2,3,24] reduce({x}, least), dimensions={{3}}, to_apply=largest
  mosts = f32[2,3,24,24] broadcast(most), dimensions={{0,1,2}}
  less = f32[2,3,24,24] subtract({x}, mosts)
  exp = f32[2,3,24,24] exponential(less)
  zero = f32[] constant(0)
  total = f32[2,3,24] reduce(exp, zero), dimensions={{3}}, to_apply=sum
  totals = f32[2,3,24,24] broadcast(total), dimensions={{0,1,2}}
  weights = f32[2,3,24,24] divide(exp, totals)
"""
RESULT = """
  {root} result = f32[2,3,24,4] dot(weights, v), BY_KEYS
"""
# What comes back through the softmax to the queries and keys, for a loss of the sum of squares.
GRADIENT = """
  two = f32[] constant(2)
  twos = f32[2,3,24,4] broadcast(two), dimensions={}
  d_result = f32[2,3,24,4] multiply(result, twos)
  d_weights = f32[2,3,24,24] dot(d_result, v), BY_COLUMNS
  both = f32[2,3,24,24] multiply(d_weights, weights)
  inner = f32[2,3,24] reduce(both, zero), dimensions={3}, to_apply=sum
  inners = f32[2,3,24,24] broadcast(inner), dimensions={0,1,2}
  apart = f32[2,3,24,24] subtract(d_weights, inners)
  d_masked = f32[2,3,24,24] multiply(apart, weights)
  zeros = f32[2,3,24,24] broadcast(zero), dimensions={}
  d_scaled = f32[2,3,24,24] select(masks, d_masked, zeros)
  d_scores = f32[2,3,24,24] multiply(d_scaled, halves)
  d_q = f32[2,3,24,4] dot(d_scores, k), BY_KEYS
  d_k = f32[2,3,24,4] dot(d_scores, q), BY_QUERIES
  d_v = f32[2,3,24,4] dot(weights, d_result), BY_QUERIES
  ROOT all = (f32[2,3,24,4], f32[2,3,24,4], f32[2,3,24,4], f32[2,3,24,4]) tuple(result, d_q, d_k, d_v)
"""
CAUSAL = SCORES + MASK + SOFTMAX.format(x="masked")


def module(entry: str, computations: str = "") -> hl.Module:
    for name, dimensions in CONTRACTED.items():
        entry = entry.replace(name, dimensions)
    return hl.parse(f"HloModule m\n{COMBINERS}{computations}\nENTRY e {{{entry}}}")


def blocked(original: hl.Module, block_bytes: int = 1000, rows: int = 6, keys: int = 24) -> hl.Module:
    """The module after the pass, with thresholds so low that everything is tiled."""
    copy = clone_module(original)
    run_passes(copy, simplification_pipeline())
    ProductBlocking(1, block_bytes, 1, 5, rows, keys, 1).run(copy)
    verify_module(copy)
    return copy


def loops(found: hl.Module) -> int:
    return sum(i.opcode == "while" for i in found.instructions())


def largest(found: hl.Module) -> int:
    """The bytes of the largest array that is not the entry's own."""
    entry = {*found.entry.parameter_shapes, *found.entry.result_shape.leaves()}
    shapes = {leaf for i in found.instructions() for leaf in i.shape.leaves()} - entry
    return max(shape.byte_size for shape in shapes)


def arguments(found: hl.Module) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape.dimensions, np.float32) for shape in found.entry.parameter_shapes]


def values(found: hl.Module, backend: str) -> list[np.ndarray[Any, Any]]:
    result = hl.compile(found, backend)(*arguments(found))
    return [np.asarray(value) for value in (result if isinstance(result, tuple) else [result])]


def attention(causal: bool, length: int) -> np.ndarray[Any, Any]:
    """The definition, in f64."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, length, 4), np.float32).astype(np.float64) for _ in range(3))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / 2
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "rows", "keys", "depth"),
    [(24, 24, 24, 1), (24, 6, 24, 1), (23, 7, 23, 2), (24, 24, 6, 2), (23, 23, 7, 2), (24, 6, 6, 2), (23, 7, 7, 3)],
    ids=["heads", "rows", "a rest of rows", "keys", "a rest of keys", "rows and keys", "rests of both"],
)
def test_attention(backend: str, causal: bool, length: int, rows: int, keys: int, depth: int) -> None:
    text = (CAUSAL if causal else SCORES + SOFTMAX.format(x="scaled")) + RESULT.format(root="ROOT")
    found = blocked(module(text.replace("24", str(length))), rows=rows, keys=keys)
    assert loops(found) == depth
    np.testing.assert_allclose(values(found, backend)[0], attention(causal, length), rtol=1e-5, atol=1e-6)


def layers(count: int) -> hl.Module:
    """Attention several times, each on the result of the one before."""
    lines = [line for line in (CAUSAL + RESULT.format(root="")).split("\n") if line.strip()]
    own = ["scores", "scaled", "masked", "most", "mosts", "less", "exp", "total", "totals", "weights", "result"]
    text = "\n".join(line for line in lines if line.split()[0] not in own)
    for k in range(count):
        layer = "\n".join(line for line in lines if line.split()[0] in own)
        layer = re.sub(rf"\b({'|'.join(own)})\b", rf"\g<1>_{k}", layer)
        text += "\n" + (layer.replace("dot(q,", f"dot(result_{k - 1},") if k else layer)
    return module(f"{text}\n  ROOT last = f32[2,3,24,4] negate(result_{count - 1})")


def test_few_smaller_softmaxes_are_blocked() -> None:
    """Each takes time to compile."""
    for count, blocked_count in ((2, 2), (3, 0)):
        found = layers(count)
        run_passes(found, simplification_pipeline())
        assert ProductBlocking(1 << 30, 1000, 1, 5, 6, 24, 1, max_small=2).run(found) == blocked_count


def test_more_softmaxes_than_are_blocked_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Region] = []

    def find(region: Region) -> Softmax | None:
        looked.append(region)
        return find_softmax(region)

    monkeypatch.setattr(product_blocking, "find_softmax", find)
    found = layers(5)
    run_passes(found, simplification_pipeline())
    assert ProductBlocking(1 << 30, 1000, 1, 5, 6, 24, 1, max_small=1).run(found) == 0
    assert len(looked) == 2


@pytest.mark.parametrize(("smallest", "count"), [(SCORE_BYTES, 1), (SCORE_BYTES + 1, 0)])
@pytest.mark.parametrize("is_masked", [False, True])
def test_a_mask_pays_for_a_loop_over_smaller_scores(is_masked: bool, smallest: int, count: int) -> None:
    """Blocks are skipped; without a mask a loop over scores that fit the cache saves nothing."""
    text = (CAUSAL if is_masked else SCORES + SOFTMAX.format(x="scaled")) + RESULT.format(root="ROOT")
    found = module(text)
    run_passes(found, simplification_pipeline())
    blocking = ProductBlocking(1 << 30, 1000, 1, 5, 6, 6, 1 << 30, min_masked_bytes=smallest)
    assert blocking.run(found) == (count if is_masked else 0)


def test_smaller_scores_have_as_many_elements_as_queries_and_keys() -> None:
    """Products of rows by a matrix of weights that is as large are not scores."""
    wide = CAUSAL.replace("24,4]", "24,24]") + RESULT.format(root="ROOT").replace("24,4]", "24,24]")
    for text, count in ((CAUSAL + RESULT.format(root="ROOT"), 1), (wide, 0)):
        found = module(text)
        run_passes(found, simplification_pipeline())
        assert ProductBlocking(1 << 30, 1000, 1, 5, 6, 6, 1 << 30, min_masked_bytes=1).run(found) == count


def test_no_large_array_remains() -> None:
    found = blocked(module(CAUSAL + RESULT.format(root="ROOT")))
    assert largest(found) < 2 * 3 * 24 * 24 * 4 / 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(
    ("block_bytes", "rows", "keys", "count"), [(2400, 24, 24, 2), (1000, 6, 24, 3), (1000, 7, 7, 4)]
)
def test_gradients_compute_the_scores_again(backend: str, block_bytes: int, rows: int, keys: int, count: int) -> None:
    original = module(CAUSAL + RESULT.format(root="") + GRADIENT)
    found = blocked(original, block_bytes, rows, keys)
    assert loops(found) == count
    for value, expected in zip(values(found, backend), values(original, "interpreter"), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_small_matrices_keep_them() -> None:
    original = module(CAUSAL + RESULT.format(root="") + GRADIENT)
    assert ProductBlocking(1, 1000, 24 * 24 * 4 + 1, 5, 6, 24, 1).run(original) == 0


def test_a_bias_is_read_block_by_block() -> None:
    bias = """
  bias = f32[3,24,24] parameter(3)
  biases = f32[2,3,24,24] broadcast(bias), dimensions={1,2,3}
  masked = f32[2,3,24,24] add(scaled, biases)
"""
    original = module(SCORES + bias + SOFTMAX.format(x="masked") + RESULT.format(root="ROOT"))
    found = blocked(original, keys=7)
    assert loops(found) == 2
    np.testing.assert_allclose(values(found, "cpu")[0], values(original, "interpreter")[0], rtol=1e-5, atol=1e-6)


def test_parts_of_one_array_are_read_where_they_lie() -> None:
    """Queries, keys and values of one product, as models have them; and no array of positions outlives a block."""
    parts = "qkv = f32[2,3,3,24,4] parameter(0)\n" + "\n".join(
        f"part_{name} = f32[2,1,3,24,4] slice(qkv), slice={{[0:2], [{k}:{k + 1}], [0:3], [0:24], [0:4]}}\n"
        f"{name} = f32[2,3,24,4] reshape(part_{name})"
        for k, name in enumerate("qkv")
    )
    text = re.sub(r"  [qkv] = .*parameter.*\n", "", CAUSAL) + RESULT.format(root="ROOT")
    original = module(parts + text)
    found = blocked(original, keys=6)
    assert loops(found) == 2
    (outer, inner) = sorted(
        (i for i in found.instructions() if i.opcode == "while"), key=lambda i: i.parent is not found.entry
    )
    held = [str(shape).split("{")[0] for loop in (outer, inner) for shape in loop.shape.leaves() if shape.rank > 1]
    assert held == [
        "f32[2,3,3,24,4]",
        "f32[2,3,24,4]",
        "f32[2,3,3,24,4]",
        "f32[1,1,6,4]",
        "f32[1,1,6]",
        "f32[1,1,6]",
        "f32[1,1,6,4]",
    ]
    np.testing.assert_allclose(values(found, "cpu")[0], values(original, "interpreter")[0], rtol=1e-5, atol=1e-6)


def test_every_other_row_of_an_array_is_no_part_of_it() -> None:
    text = CAUSAL.replace(
        "k = f32[2,3,24,4] parameter(1)",
        """keys = f32[2,3,48,4] parameter(1)
  k = f32[2,3,24,4] slice(keys), slice={[0:2], [0:3], [0:48:2], [0:4]}""",
    )
    original = module(text + RESULT.format(root="ROOT"))
    found = blocked(original, keys=6)
    assert loops(found) == 2
    np.testing.assert_allclose(values(found, "cpu")[0], values(original, "interpreter")[0], rtol=1e-5, atol=1e-6)


def test_grouped_heads_and_transposes() -> None:
    """Two heads of keys serve six of queries: [batch, head, query, group, key] becomes [batch, heads, query, key]."""
    text = f"""
  q = f32[2,24,2,3,4] parameter(0)
  k = f32[2,24,2,4] parameter(1)
  v = f32[2,24,2,4] parameter(2)
  scores = f32[2,2,24,3,24] dot(q, k), BY_GROUPS
  turned = f32[2,2,3,24,24]{{4,2,3,1,0}} transpose(scores), dimensions={{0,1,3,2,4}}
  flat = f32[2,6,24,24] reshape(turned)
  {SOFTMAX.format(x="flat").replace("2,3,24", "2,6,24")}
  apart = f32[2,2,3,24,24] reshape(weights)
  ROOT result = f32[2,2,4,3,24] dot(v, apart), OF_GROUPS
"""
    original = module(text)
    found = blocked(original, keys=7)
    assert loops(found) == 2
    np.testing.assert_allclose(values(found, "cpu")[0], values(original, "interpreter")[0], rtol=1e-5, atol=1e-6)


def test_statistics_of_rows_are_results_too() -> None:
    text = f"""{CAUSAL} {RESULT.format(root="")}
  log = f32[2,3,24] log(total)
  sums = f32[2,3,24] add(log, most)
  ROOT both = (f32[2,3,24,4], f32[2,3,24]) tuple(result, sums)
"""
    original = module(text)
    found = blocked(original, keys=7)
    assert loops(found) == 2
    for value, expected in zip(values(found, "cpu"), values(original, "interpreter"), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_sums_over_blocks_are_wide() -> None:
    """Sums of bf16 products are added up in f32: one by one, 300 ones would be 256 in bf16."""
    text = """
  x = bf16[300,1] parameter(0)
  y = bf16[300,1] parameter(1)
  z = bf16[300,1] parameter(2)
  matrix = bf16[300,300] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT sums = bf16[300,1] dot(matrix, z), lhs_contracting_dims={0}, rhs_contracting_dims={0}
"""
    found = hl.parse(f"HloModule m\nENTRY e {{{text}}}")
    assert ProductBlocking(1, 1, 1, 1).run(found) == 1
    ones = np.ones((300, 1), ml_dtypes.bfloat16)
    for backend in ("interpreter", "cpu"):
        result = np.asarray(hl.compile(found, backend)(ones, ones, ones))
        np.testing.assert_array_equal(result.astype(np.float32), 300.0)


@pytest.mark.parametrize(
    "rest",
    [
        "  ROOT both = (f32[2,3,24,4], f32[2,3,24,24]) tuple(result, weights)",
        "  sorted = f32[2,3,24,24] sort(weights), dimensions={3}, to_apply=less_than\n"
        "  ROOT both = (f32[2,3,24,4], f32[2,3,24,24]) tuple(result, sorted)",
    ],
    ids=["a result", "an operation that cannot be tiled"],
)
def test_values_with_other_uses_are_kept(rest: str) -> None:
    less = "less_than { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT l = pred[] compare(a, b), direction=LT }"
    found = module(f"{CAUSAL}{RESULT.format(root='')}{rest}", less)
    assert ProductBlocking(1, 1000, 1, 5, 6, 24, 1).run(found) == 0


def test_a_softmax_along_both_dimensions_is_not_tiled() -> None:
    text = f"""{SCORES}
  least = f32[] constant(-inf)
  most = f32[] reduce(scaled, least), dimensions={{0,1,2,3}}, to_apply=largest
  mosts = f32[2,3,24,24] broadcast(most), dimensions={{}}
  weights = f32[2,3,24,24] divide(scaled, mosts) {RESULT.format(root="ROOT")}"""
    assert ProductBlocking(1, 1000, 1, 5, 6, 24, 1).run(module(text)) == 0


def test_memory_of_long_attention_is_linear() -> None:
    """Twice the length needs less than three times the memory, where the scores alone would need four times."""
    sizes = []
    for length in (4096, 8192):
        text = (SCORES + MASK + SOFTMAX.format(x="masked") + RESULT.format(root="ROOT")).replace("24", str(length))
        sizes.append(hl.compile(module(text)).temporary_bytes)
    assert sizes[1] < 3 * sizes[0] < 3 * 4 * 4096**2
