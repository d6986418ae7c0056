"""Reduce, compiled: sets of dimensions, initial values, combiners, several operands, element types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from backends.cpu.operations.one_operation import Array, check, same, values
from hlo_text import compiled
from hloom.types import BY_NAME

Combine = Callable[[Any, Any], Any]
FUNCTIONS: dict[str, Combine] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: b if math.isnan(a) or b > a else a,
    "minimum": lambda a, b: b if math.isnan(a) or b < a else a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


def reduced(x: Array, init: Array, dimensions: list[int], combine: Combine) -> Array:
    """REDUCE-3 and REDUCE-4: all elements are combined from the initial value on, which enters once."""
    left = [d for d in range(x.ndim) if d not in dimensions]
    out = np.full([x.shape[d] for d in left], init, x.dtype)
    for index in np.ndindex(x.shape):
        target = tuple(index[d] for d in left)
        out[target] = combine(out[target], x[index])
    return out


def check_reduce(
    sizes: list[int], dimensions: list[int], function: str = "add", type: str = "f32", init: Any = 0
) -> None:
    """The elements and all partial results are exact in the type."""
    combiner = f"f {{ a = {type}[] parameter(0) b = {type}[] parameter(1) ROOT r = {type}[] {function}(a, b) }}"
    listed = ",".join(map(str, dimensions))
    check(
        f"reduce(x0, x1), dimensions={{{listed}}}, to_apply=f",
        lambda x, i: reduced(x, i, dimensions, FUNCTIONS[function]),
        values(sizes, type),
        np.array(init, BY_NAME[type].dtype),
        computations=combiner,
    )


@pytest.mark.parametrize(
    ("sizes", "dimensions"),
    [
        ([2, 3], [0]),
        ([2, 3], [1]),
        ([4, 2, 3], [0, 1]),
        ([4, 2, 3], [2, 0]),  # an unordered set
        ([4, 2, 30], [1]),
        ([3, 50], [1]),
        ([50, 3], [0]),
        ([20, 40], [0]),
        ([300], [0]),
        ([1, 7, 1], [0, 2]),
        ([2, 3], []),
    ],
)
def test_dimensions(sizes: list[int], dimensions: list[int]) -> None:
    """REDUCE-1, REDUCE-4 to REDUCE-6 and REDUCE-10."""
    check_reduce(sizes, dimensions)


@pytest.mark.parametrize(("sizes", "dimensions"), [([0], [0]), ([3, 0], [1]), ([0, 3], [1]), ([0, 3], [0, 1])])
def test_nothing_to_reduce_gives_the_initial_value(sizes: list[int], dimensions: list[int]) -> None:
    """REDUCE-10, GEN-10."""
    check_reduce(sizes, dimensions, init=7)


def test_the_initial_value_enters_once() -> None:
    """REDUCE-3: also where partial sums are computed in lanes."""
    check_reduce([3], [0], init=10)
    check_reduce([200], [0], init=1000)
    check_reduce([5, 60], [1], init=-3)


@pytest.mark.parametrize("function", ["maximum", "minimum"])
@pytest.mark.parametrize("type", ["f32", "bf16", "s8", "u64"])
def test_extrema(function: str, type: str) -> None:
    """REDUCE-3, with an initial value that some of the elements do not pass."""
    check_reduce([3, 37], [1], function, type, init=3)


def test_a_nan_is_the_maximum() -> None:
    """REDUCE-3 with a combiner that gives NaN for NaN, wherever it stands."""
    x = values([4, 40])
    x[1, 0] = x[2, 39] = x[3, 17] = np.nan
    combiner = "f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }"
    text = f"""{combiner}
ENTRY e {{ x = f32[4,40] parameter(0)
  least = f32[] constant(-inf)
  ROOT r = f32[4] reduce(x, least), dimensions={{1}}, to_apply=f }}"""
    same(compiled(text, x)[0], np.array([12, np.nan, np.nan, np.nan], np.float32))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("type", "function", "init"),
    [
        ("s8", "add", 1),  # wraps
        ("u64", "multiply", 3),
        ("bf16", "add", 0),
        ("f64", "add", 0.5),
        ("c64", "add", 1 + 2j),
        ("pred", "and", True),
        ("pred", "or", False),
    ],
)
def test_element_types(type: str, function: str, init: Any) -> None:
    """REDUCE-2."""
    check_reduce([3, 5, 2], [1], function, type, init)


# Several operands


def test_several_sums_of_several_types() -> None:
    """REDUCE-7: the running values are the first parameters."""
    x, y = values([3, 20]), values([3, 20], "s32", 4)
    text = """f { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3)
  s = f32[] add(a, c) t = s32[] maximum(b, d) ROOT r = (f32[], s32[]) tuple(s, t) }
ENTRY e { x = f32[3,20] parameter(0) y = s32[3,20] parameter(1)
  zero = f32[] constant(0.5) least = s32[] constant(-9)
  ROOT r = (f32[3], s32[3]) reduce(x, y, zero, least), dimensions={1}, to_apply=f }"""
    sums, extrema = compiled(text, x, y)
    same(sums, reduced(x, np.float32(0.5), [1], FUNCTIONS["add"]))
    same(extrema, reduced(y, np.int32(-9), [1], FUNCTIONS["maximum"]))


@pytest.mark.parametrize(("sizes", "dimension"), [([8, 6144], 1), ([6144, 8], 0), ([6144, 64], 0), ([70_000, 1], 0)])
def test_narrow_sums_of_several_operands_are_rounded_once(sizes: list[int], dimension: int) -> None:
    """GEN-13: each sum is as accurate as one alone, within the rounding of its result."""
    x = np.random.default_rng(0).standard_normal((2, *sizes)).astype(ml_dtypes.bfloat16)
    shape, result = f"bf16[{sizes[0]},{sizes[1]}]", f"bf16[{sizes[1 - dimension]}]"
    text = f"""f {{ a = bf16[] parameter(0) b = bf16[] parameter(1) c = bf16[] parameter(2) d = bf16[] parameter(3)
  s = bf16[] add(a, c) t = bf16[] add(d, b) ROOT r = (bf16[], bf16[]) tuple(s, t) }}
ENTRY e {{ x = {shape} parameter(0) y = {shape} parameter(1) zero = bf16[] constant(0)
  ROOT r = ({result}, {result}) reduce(x, y, zero, zero), dimensions={{{dimension}}}, to_apply=f }}"""
    for found, terms in zip(compiled(text, *x), x.astype(np.float64), strict=True):
        exact = terms.sum(dimension)
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("dimension", [0, 1])
def test_the_maximum_and_its_index(dimension: int) -> None:
    """REDUCE-8: of equal elements the last one wins."""
    x = values([26, 26])
    text = f"""f {{ m = f32[] parameter(0) i = s32[] parameter(1) v = f32[] parameter(2) k = s32[] parameter(3)
  p = pred[] compare(v, m), direction=GE
  a = f32[] select(p, v, m) b = s32[] select(p, k, i) ROOT r = (f32[], s32[]) tuple(a, b) }}
ENTRY e {{ x = f32[26,26] parameter(0) y = f32[26,26] negate(x) k = s32[26,26] iota(), iota_dimension={dimension}
  least = f32[] constant(-inf) none = s32[] constant(-1)
  ROOT r = (f32[26], s32[26]) reduce(y, k, least, none), dimensions={{{dimension}}}, to_apply=f }}"""
    best = np.full(26, -np.inf, np.float32)
    at = np.full(26, -1, np.int32)
    for index in np.ndindex(26, 26):
        k, target = index[dimension], index[1 - dimension]
        if -x[index] >= best[target]:
            best[target], at[target] = -x[index], k
    found, found_at = compiled(text, x)
    same(found, best)
    same(found_at, at)


@pytest.mark.parametrize(("sizes", "last"), [([250, 800], 0), ([3, 70_000], 0), ([5, 250, 200], 1), ([2000, 17], 0)])
def test_sums_of_functions_of_sums_of_rows(sizes: list[int], last: int) -> None:
    """Integers wrap, so the order of the additions does not matter."""
    x = np.random.default_rng(0).integers(-(2**31), 2**31, sizes).astype(np.int32)
    shape, rows, out = (f"s32[{','.join(map(str, n))}]" for n in (sizes, sizes[:-1], sizes[:last]))
    text = (
        "HloModule m\nf { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }\n"
        f"ENTRY e {{\n x = {shape} parameter(0)\n z = s32[] constant(0)\n"
        f" s = {rows} reduce(x, z), dimensions={{{len(sizes) - 1}}}, to_apply=f\n q = {rows} multiply(s, s)\n"
        f" ROOT t = {out} reduce(q, z), dimensions={{{last}}}, to_apply=f\n}}"
    )
    with np.errstate(over="ignore"):
        sums = x.sum(-1, dtype=np.int32)
        same(compiled(text, x)[0], (sums * sums).sum(last, dtype=np.int32))
