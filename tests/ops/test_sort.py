"""sort and topk: orders, comparators of any kind, stability (spec: SORT, TOPK)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hlo_text import sort_text
from hloom.bench.peer_process import XlaPeer
from hloom.types import BY_DTYPE, BY_NAME

LESS = "ROOT c = pred[] compare(a0, b0), direction=LT"


def sort(*arrays: np.ndarray, comparator: str = LESS, dimension: int = 0, more: str = "") -> Any:
    got = hl.compile(sort_text(list(arrays), comparator, dimension, more), backend="interpreter")(*arrays)
    return [array.tolist() for array in got] if len(arrays) > 1 else got.tolist()


def test_ascending_and_descending() -> None:
    """SORT-1."""
    x = np.array([3, -1, 2, 2, -5], np.int32)
    assert sort(x) == [-5, -1, 2, 2, 3]
    assert sort(x, comparator=LESS.replace("LT", "GT")) == [3, 2, 2, -1, -5]


def test_along_a_dimension() -> None:
    """SORT-2: in a matrix 0 sorts each column, 1 each row."""
    x = np.array([[3, 1, 2], [1, 2, 0]], np.int8)
    assert sort(x, dimension=0) == [[1, 1, 0], [3, 2, 2]]
    assert sort(x, dimension=1) == [[1, 2, 3], [0, 1, 2]]
    cube = np.random.default_rng(0).integers(0, 9, (3, 4, 5))
    for d in range(3):
        assert sort(cube, dimension=d) == np.sort(cube, axis=d).tolist()


def test_three_operands_are_sorted_as_tuples() -> None:
    """SORT-3, SORT-4."""
    arrays = [np.array([3, 1], np.int32), np.array([42, 50], np.int32), np.array([-3.0, 1.1], np.float32)]
    got = sort(*arrays)
    assert got[:2] == [[1, 3], [50, 42]] and got[2] == np.array([1.1, -3.0], np.float32).tolist()


def test_equal_elements_keep_their_order() -> None:
    """SORT-5: hloom is always stable."""
    keys, indices = np.array([1, 0, 1, 0, 1], np.int32), np.arange(5, dtype=np.int32)
    for more in ("", ", is_stable=true", ", is_stable=false"):
        assert sort(keys, indices, more=more) == [[0, 0, 1, 1, 1], [1, 3, 0, 2, 4]]


def test_a_total_order_comparator_puts_nans_at_the_ends() -> None:
    """SORT-6: -NaN first and NaN last."""
    bits = np.array([0x7FC00000, 0, 0xFFC00000, 0x80000000, 0x7F800000, 0xFF800000, 0x3F800000], np.uint32)
    text = sort_text([bits.view(np.float32)], LESS + ", type=TOTALORDER", 0)
    got = hl.compile(text, backend="interpreter")(bits.view(np.float32)).view(np.uint32)
    assert got.tolist() == [0xFFC00000, 0xFF800000, 0x80000000, 0, 0x3F800000, 0x7F800000, 0x7FC00000]


@pytest.mark.parametrize("name", ["pred", "s4", "u2", "u64", "s64", "f16", "bf16", "f8e5m2", "f64"])
def test_every_kind_of_element(name: str) -> None:
    """SORT-1."""
    rng = np.random.default_rng(5)
    dtype = BY_NAME[name].dtype
    x = rng.permutation(np.array([0, 1, 1, 3, 2, 0] if name != "pred" else [0, 1, 1, 0])).astype(dtype)
    got = hl.compile(sort_text([x], LESS, 0), backend="interpreter")(x)
    assert got.dtype == dtype and got.astype(float).tolist() == sorted(x.astype(float).tolist())


def test_whole_range_of_unsigned_integers() -> None:
    x = np.array([2**64 - 1, 0, 2**63, 1], np.uint64)
    assert sort(x) == [0, 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0), (2, 1)])
def test_sorting_empty_arrays(shape: tuple[int, ...]) -> None:
    """GEN-10."""
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for dimension in range(len(shape)):
        assert sort(x, dimension=dimension) == np.sort(x, axis=dimension).tolist()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dimensions={0}", "dimensions={1}"),
        ("dimensions={0}", "dimensions={-1}"),
        ("x1 = s32[3]", "x1 = s32[4]"),
        ("b0 = f32[]", "b0 = s32[]"),
        ("a1 = s32[]", "a1 = f32[]"),
        ("ROOT c = pred[] compare(a0, b0), direction=LT", "ROOT c = f32[] add(a0, b0)"),
        ("sort(x0, x1)", "sort(x0)"),
        ("sort(x0, x1)", "sort()"),
    ],
)
def test_sorts_that_are_refused(old: str, new: str) -> None:
    """SORT-7, SORT-3, GEN-8."""
    less = "ROOT c = pred[] compare(a0, b0), direction=LT"
    text = sort_text([np.zeros(3, np.float32), np.zeros(3, np.int32)], less, 0)
    hl.parse(text)
    assert text.count(old) == 1
    with pytest.raises(hl.HloomError, match="SORT-|COMPARE|GEN-"):
        hl.parse(text.replace(old, new))


def test_scalars_are_refused() -> None:
    """SORT-7: rank 0."""
    with pytest.raises(hl.RuleError, match="SORT-7"):
        hl.parse(sort_text([np.zeros((), np.float32)], LESS, 0))


# Comparators of integers as HLO and as Python: strict weak orders of every sort.
ORDERS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "ascending": (LESS, lambda v: v),
    "descending": (LESS.replace("LT", "GT"), lambda v: -v),
    "magnitude": ("p = s32[] abs(a0)\n  q = s32[] abs(b0)\n  ROOT c = pred[] compare(p, q), direction=LT", abs),
    "unsigned": (
        "p = u32[] bitcast-convert(a0)\n  q = u32[] bitcast-convert(b0)\n  ROOT c = pred[] compare(p, q), direction=LT",
        lambda v: v % 2**32,
    ),
    "remainder": (
        "m = s32[] constant(3)\n  p = s32[] remainder(a0, m)\n  q = s32[] remainder(b0, m)\n"
        "  ROOT c = pred[] compare(p, q), direction=GT",
        lambda v: -(abs(v) % 3) if v >= 0 else abs(v) % 3,
    ),
    "bits": (
        "p = s32[] popcnt(a0)\n  q = s32[] popcnt(b0)\n  ROOT c = pred[] compare(p, q), direction=LT",
        lambda v: (v % 2**32).bit_count(),
    ),
    "never": ("ROOT c = pred[] constant(false)", lambda v: 0),
}


@given(st.sampled_from(sorted(ORDERS)), st.lists(st.integers(-9, 9), max_size=40))
def test_every_strict_weak_order_sorts_stably(name: str, values: list[int]) -> None:
    """SORT-1, SORT-5: as Python's sorted() with the same key."""
    comparator, key = ORDERS[name]
    keys, indices = np.array(values, np.int32), np.arange(len(values), dtype=np.int32)
    want = sorted(range(len(values)), key=lambda i: key(values[i]))
    assert sort(keys, indices, comparator=comparator) == [[values[i] for i in want], want]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_lexicographic_comparators(pairs: list[tuple[int, int]]) -> None:
    """SORT-3: by the first operand ascending, then by the second descending."""
    comparator = """less = pred[] compare(a0, b0), direction=LT
  same = pred[] compare(a0, b0), direction=EQ
  more = pred[] compare(a1, b1), direction=GT
  tie = pred[] and(same, more)
  ROOT c = pred[] or(less, tie)"""
    first, second = (np.array([p[k] for p in pairs], np.int32) for k in (0, 1))
    want = sorted(pairs, key=lambda p: (p[0], -p[1]))
    assert sort(first, second, comparator=comparator) == [[p[0] for p in want], [p[1] for p in want]]


@given(st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.data())
def test_rows_are_sorted_independently(seed: int, sizes: list[int], data: st.DataObject) -> None:
    """SORT-2."""
    x = np.random.default_rng(seed).integers(-9, 9, sizes)
    dimension = data.draw(st.integers(0, len(sizes) - 1))
    assert sort(x, dimension=dimension) == np.sort(x, axis=dimension).tolist()


@given(
    st.lists(st.one_of(st.floats(width=32), st.just(float("nan"))), max_size=30), st.sampled_from(["LT", "GE", "NE"])
)
def test_a_relation_that_is_no_strict_weak_order_still_gives_a_permutation(values: list[float], direction: str) -> None:
    """SORT-6: NaN with plain less-than, a reflexive and a symmetric relation."""
    x = np.array(values, np.float32)
    text = sort_text([x], LESS.replace("LT", direction), 0)
    got = hl.compile(text, backend="interpreter")(x).view(np.uint32)
    assert sorted(got.tolist()) == sorted(x.view(np.uint32).tolist())


@given(st.lists(st.integers(0, 12), max_size=25), st.integers(2, 13))
def test_a_cyclic_relation_still_gives_a_permutation(values: list[int], modulus: int) -> None:
    """SORT-6: a is before b where (b - a) mod m < m/2."""
    comparator = f"""d = s32[] subtract(b0, a0)
  m = s32[] constant({modulus})
  e = s32[] add(d, m)
  f = s32[] remainder(e, m)
  h = s32[] constant({modulus // 2})
  ROOT c = pred[] compare(f, h), direction=LT"""
    assert sorted(sort(np.array(values, np.int32), comparator=comparator)) == sorted(values)


def topk(x: np.ndarray, k: int, largest: bool = True) -> list[Any]:
    t, lead = BY_DTYPE[x.dtype], "".join(f"{n}," for n in x.shape[:-1])
    text = f"""HloModule m
ENTRY e {{
  x = {t}[{",".join(map(str, x.shape))}] parameter(0)
  ROOT r = ({t}[{lead}{k}], s32[{lead}{k}]) topk(x), k={k}, largest={str(largest).lower()}
}}"""
    values, indices = hl.compile(text, backend="interpreter")(x)
    return [values, indices.tolist()]


def test_the_best_elements_come_first() -> None:
    """TOPK-1, TOPK-2: of equal elements the lower index."""
    x = np.array([3, 9, 1, 9, 5], np.int32)
    assert topk(x, 3)[1] == [1, 3, 4] and topk(x, 3)[0].tolist() == [9, 9, 5]
    assert topk(x, 2, largest=False)[1] == [2, 0]
    assert topk(np.array([[1, 2], [4, 3]], np.uint8), 1)[1] == [[1], [0]]
    assert topk(x, 0)[1] == [] and topk(np.array([-128, 127], np.int8), 1, largest=False)[1] == [0]


def test_top_k_of_floats_is_by_total_order() -> None:
    """TOPK-3: NaN is the largest, -NaN the smallest, -0 < +0."""
    x = np.array([0x80000000, 0, 0x7FC00000, 0xFFC00000, 0x7F800000], np.uint32).view(np.float32)
    assert topk(x, 5)[1] == [2, 4, 1, 0, 3]
    assert topk(x, 5, largest=False)[1] == [3, 0, 1, 4, 2]


def test_top_k_of_exponents() -> None:
    """TOPK-1: f8e8m0fnu has no sign bit."""
    x = np.array([127, 128, 126], np.uint8).view(ml_dtypes.float8_e8m0fnu)
    assert topk(x, 3)[1] == [1, 0, 2]


@pytest.mark.parametrize("k", [-1, 4])
def test_k_out_of_range_is_refused(k: int) -> None:
    """TOPK-4."""
    with pytest.raises(hl.RuleError, match="TOPK-4"):
        hl.parse(
            f"HloModule m\nENTRY e {{ x = f32[3] parameter(0)\n"
            f"  ROOT r = (f32[{max(k, 0)}], s32[{max(k, 0)}]) topk(x), k={k}, largest=true }}"
        )


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.booleans(), st.data())
def test_top_k_is_a_prefix_of_the_stable_sort(values: list[int], largest: bool, data: st.DataObject) -> None:
    """TOPK-1, TOPK-2."""
    k = data.draw(st.integers(0, len(values)))
    sign = -1 if largest else 1
    want = sorted(range(len(values)), key=lambda i: sign * values[i])[:k]
    got, indices = topk(np.array(values, np.int32), k, largest)
    assert indices == want and got.tolist() == [values[i] for i in want]


def test_stable_sorts_agree_with_xla(peer: XlaPeer) -> None:
    """SORT-5."""
    rng = np.random.default_rng(2)
    keys, indices = rng.integers(0, 5, (3, 50)).astype(np.int32), np.tile(np.arange(50, dtype=np.int32), (3, 1))
    text = sort_text([keys, indices], LESS, 1, ", is_stable=true")
    ours, theirs = hl.compile(text, backend="interpreter")(keys, indices), peer.run(text, [keys, indices])
    assert functools.reduce(operator.and_, (np.array_equal(a, b) for a, b in zip(ours, theirs)))
