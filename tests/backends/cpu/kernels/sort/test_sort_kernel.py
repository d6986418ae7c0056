"""Sort kernels against NumPy and the interpreter: keys, comparators of any kind, dimensions, sizes, threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from backends.cpu.kernels.run_kernel import Array, Kernel, assert_same, check, interpreted
from hlo_text import sort_text
from hloom.backends.cpu.kernels.sort import sort

LESS = "ROOT c = pred[] compare(a0, b0), direction=LT"
NUMPY_ORDER = """ne = pred[] compare(a0, a0), direction=NE
  nan = f32[] constant(nan)
  zero = f32[] constant(0)
  eq = pred[] compare(a0, zero), direction=EQ
  s = f32[] select(eq, zero, a0)
  x = f32[] select(ne, nan, s)
  ne2 = pred[] compare(b0, b0), direction=NE
  eq2 = pred[] compare(b0, zero), direction=EQ
  s2 = f32[] select(eq2, zero, b0)
  y = f32[] select(ne2, nan, s2)
  ROOT lt = pred[] compare(x, y), direction=LT, type=TOTALORDER"""
TWO_KEYS = """lt = pred[] compare(a0, b0), direction=LT
  eq = pred[] compare(a0, b0), direction=EQ
  lt1 = pred[] compare(a1, b1), direction=GT
  both = pred[] and(eq, lt1)
  ROOT or = pred[] or(lt, both)"""


def floats(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Values among which are ties, both zeros, infinities and several NaNs."""
    random = np.random.default_rng(seed)
    x = random.integers(-9, 9, shape).astype(np.float32) / 4
    special = np.array(
        [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-45, np.uint32(0x7FC00001).view(np.float32)], np.float32
    )
    return np.where(random.random(shape) < 0.3, random.choice(special, shape), x).astype(np.float32)


def check_sort(comparator: str, *arrays: Array, dimension: int = 0, key: int = 0, descending: bool = False) -> None:
    """Compares a sort by one of the arrays with NumPy's stable sort, in whose order all NaNs are equal, and last."""
    by = arrays[key]
    if descending:
        by = np.flip(by, dimension)
    order = np.argsort(by, dimension, kind="stable")
    if descending:
        order = by.shape[dimension] - 1 - np.flip(order, dimension)
    expected = [np.take_along_axis(array, order, dimension) for array in arrays]
    check(sort.emit, sort_text([*arrays], comparator, dimension), *arrays, expected=expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 15, 16, 17, 33, 100, 255, 256, 257, 1000, 5000, 40000])
def test_sizes(size: int) -> None:
    x = floats((size,))
    check_sort(NUMPY_ORDER, x)
    check_sort(NUMPY_ORDER, x, np.arange(size, dtype=np.int32))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (5, 7, 11), (300, 4), (2, 300, 5), (0, 5), (40000, 2)])
def test_dimensions(shape: tuple[int, ...]) -> None:
    x, y = floats(shape), floats(shape, 1)
    for dimension in range(len(shape)):
        check_sort(NUMPY_ORDER, x, dimension=dimension)
        check_sort(NUMPY_ORDER, x, y, dimension=dimension)


TYPES = [
    np.bool_, ml_dtypes.int4, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64,
]  # fmt: skip


def typed_sorts() -> Iterator[Any]:
    """Every type in every size and direction; the default run has both sizes of each type, in alternating directions."""
    for k, (dtype, size, direction) in enumerate(itertools.product(TYPES, (20, 1000, 40000), ("LT", "GT"))):
        is_long = size == 1000 or (k // 6 + (size == 40000)) % 2 == k % 2
        yield pytest.param(dtype, size, direction, marks=[pytest.mark.long] * is_long)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("dtype", "size", "direction"), [*typed_sorts()])
def test_types(dtype: type, size: int, direction: str) -> None:
    bits = np.random.default_rng(0).integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
    kind = np.dtype(dtype).kind
    if dtype in (np.bool_, ml_dtypes.int4):
        x = (bits.view(np.int8) // 16 % (2 if dtype is np.bool_ else 8)).astype(dtype)
    elif kind in "iu":
        x = bits.view(dtype)
    else:
        x = np.random.default_rng(0).standard_normal(size).round(2).astype(dtype)
    y = np.arange(size, dtype=np.int32)
    comparator = LESS.replace("LT", direction)
    check_sort(comparator, x, descending=direction == "GT")
    check_sort(comparator.replace("0", "1"), y, x, key=1, descending=direction == "GT")


@pytest.mark.parametrize("size", [5, 100, 20000])
def test_comparators_that_are_no_key(size: int) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 9, size).astype(np.int32), random.integers(0, 50, size).astype(np.int16)
    z = random.standard_normal(size) + 1j * random.standard_normal(size)
    check(sort.emit, sort_text([x, y, z], TWO_KEYS, 0), x, y, z)
    by_real = "p = f64[] real(a2)\n  q = f64[] real(b2)\n  ROOT c = pred[] compare(p, q), direction=GT"
    check(sort.emit, sort_text([x, y, z], by_real, 0), x, y, z)


def test_a_key_that_is_computed() -> None:
    x = floats((3000,))
    x[np.isnan(x)] = 2
    absolute = "p = f32[] abs(a0)\n  q = f32[] abs(b0)\n  ROOT c = pred[] compare(q, p), direction=GT"
    check(sort.emit, sort_text([x], absolute, 0), x)


@pytest.mark.parametrize("size", [300, 30000])
def test_a_comparator_without_sense_gives_a_permutation(size: int) -> None:
    """SORT-6: the permutation is the same for any number of threads."""
    x = np.random.default_rng(0).permutation(size).astype(np.int32)
    senseless = "s = s32[] xor(a0, b0)\n  one = s32[] constant(5)\n  t = s32[] and(s, one)\n  ROOT c = pred[] compare(t, one), direction=EQ"
    results = [Kernel(sort.emit, sort_text([x], senseless, 0), threads)(x)[0] for threads in (1, 2, 3)]
    assert_same([np.sort(results[0])], [np.arange(size, dtype=np.int32)])
    assert_same(results[1:], [results[0]] * 2)


@pytest.mark.parametrize("size", [30, 1000])
def test_partial_order_of_floats(size: int) -> None:
    """Without NaN plain LT and GT are orders: -0 and +0 are equal."""
    x = floats((size,))
    x[np.isnan(x)] = 0.5
    for comparator in (LESS, LESS.replace("LT", "GT"), LESS.replace("a0, b0", "b0, a0")):
        check(sort.emit, sort_text([x], comparator, 0), x)
    with_nan = floats((size,))
    (found,) = Kernel(sort.emit, sort_text([with_nan], LESS, 0))(with_nan)
    assert_same([np.sort(found.view(np.uint32))], [np.sort(with_nan.view(np.uint32))])


def test_what_cannot_be_emitted_is_left_alone() -> None:
    x = np.zeros(5, np.complex64)
    product = "p = c64[] dot(a0, b0)\n  q = f32[] real(p)\n  ROOT c = pred[] compare(q, q), direction=GT"
    module_text = sort_text([x], product, 0)
    with pytest.raises(AssertionError, match="does not handle"):
        Kernel(sort.emit, module_text)
    assert interpreted(module_text, x)
