"""Products of f32 from bf16 parts in tile registers: sizes and layouts, errors, special numbers, threads."""

from __future__ import annotations

import re

import numpy as np
import pytest

from backends.cpu.kernels.products.test_matmul import check, run, spec_of, squared_errors
from hloom.backends.cpu.kernels.products.matmul import as_split, emit_matmul
from hloom.backends.cpu.kernels.products.tiles.tile_registers import BF16, has_tile_instruction
from hloom.lir import LirModule
from hloom.target import Target

pytestmark = pytest.mark.skipif(
    not has_tile_instruction(BF16, BF16),
    reason="there are no tile registers",
)
TARGET = Target(64, 2)
ORDERS = ["bij bij bij", "bji bij bij", "bij bji bij", "bji bji bij", "bij bij bji", "bji bij bji", "ibj bij ibj"]


def normal(shape: tuple[int, int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def multiplied(a: np.ndarray, b: np.ndarray, threads: int = 1) -> np.ndarray:
    """Returns the product of matrices in tile registers."""
    (m, k), n = a.shape, b.shape[1]
    assert as_split(spec_of(1, m, n, k), TARGET) is not None
    out = np.zeros((m, n), np.float32)
    run(spec_of(1, m, n, k), np.ascontiguousarray(a), np.ascontiguousarray(b), out, threads, 64)
    return out


@pytest.mark.sampled(6)
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("sizes", [(1, 256, 256, 256), (2, 211, 205, 203), (1, 300, 1100, 130)])
def test_layouts_and_ends_of_lines_and_of_k(sizes: tuple[int, int, int, int], orders: str) -> None:
    assert as_split(spec_of(*sizes, orders=orders), TARGET) is not None
    check(spec_of(*sizes, orders=orders), threads=2)


@pytest.mark.parametrize("sizes", [(1, 410, 430, 2050), (1, 1040, 300, 130), (1, 300, 1090, 1025), (2, 420, 410, 1030)])
def test_chunks_of_rows_columns_and_k(sizes: tuple[int, int, int, int]) -> None:
    check(spec_of(*sizes), threads=2)


@pytest.mark.parametrize("k", [256, 8192])
def test_errors_are_smaller_than_those_in_vectors(k: int) -> None:
    tiles, vectors = squared_errors(spec_of(1, 416, 416, k))
    assert 0 < tiles < vectors


def test_products_with_powers_of_two_are_exact() -> None:
    """The sum of the parts is the number."""
    a, order = normal((256, 256), 1), np.random.default_rng(2).permutation(256)
    b = np.eye(256, dtype=np.float32)[order] * np.float32(2.0**-7)
    np.testing.assert_array_equal(multiplied(a, b), a @ b)


def test_sums_of_integers_are_exact() -> None:
    a, b = (np.random.default_rng(seed).integers(-90, 91, (256, 256)).astype(np.float32) for seed in (1, 2))
    np.testing.assert_array_equal(multiplied(a, b), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3e38, 2e25])
@pytest.mark.parametrize("in_right", [False, True])
def test_infinite_and_huge_elements(in_right: bool, special: float) -> None:
    """The plain product runs: nothing but what meets the number changes."""
    a, b = normal((220, 230), 1), normal((230, 240), 2)
    whole = multiplied(a, b)
    (b if in_right else a)[219, 3] = special
    out = multiplied(a, b)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-3)
    same = np.delete(out, 3, axis=1), np.delete(whole, 3, axis=1)
    same = same if in_right else (out[:219], whole[:219])
    np.testing.assert_allclose(*same, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**-61, 2.0**-66, 2.0**-72, 2.0**-120, 2.0**35])
@pytest.mark.parametrize("other", [1.0, 2.0**-12])
def test_small_and_large_elements(other: float, scale: float) -> None:
    """Errors are those of f32, of which the last is that of a subnormal number."""
    a, b = normal((208, 220), 1) * np.float32(scale), normal((220, 216), 2) * np.float32(other)
    b = b * np.float32(min(1.0, max(scale, 2.0**-72)))
    a6, b6 = a.astype(np.float64), b.astype(np.float64)
    bound = 2.0**-23 * 8 * (np.abs(a6) @ np.abs(b6)) + 2.0**-149
    assert (np.abs(multiplied(a, b) - a6 @ b6) <= bound).all()


def test_elements_of_all_magnitudes_in_one_product() -> None:
    random = np.random.default_rng(3)
    a, b = (normal((208, 208), seed) * np.exp2(random.integers(-140, 30, (208, 208))) for seed in (1, 2))
    a, b = a.astype(np.float32), b.astype(np.float32)
    a6, b6 = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(multiplied(a, b) - a6 @ b6) <= 2.0**-20 * (np.abs(a6) @ np.abs(b6)) + 2.0**-149).all()


def test_results_do_not_depend_on_threads() -> None:
    a, b = normal((600, 1100), 1), normal((1100, 700), 2)
    np.testing.assert_array_equal(multiplied(a, b, 1), multiplied(a, b, 2))


@pytest.mark.parametrize(
    ("sizes", "types"),
    [
        ((1, 128, 512, 784), "f32 f32 f32"),  # packing takes longer
        ((1, 256, 256, 2048), "f32 f32 f32"),
        ((1, 1024, 1024, 32), "f32 f32 f32"),
        ((1, 512, 512, 1 << 14), "f32 f32 f32"),  # the chain of sums is long
        ((1, 512, 512, 512), "f64 f64 f64"),
        ((1, 512, 512, 512), "f32 bf16 f32"),
    ],
)
def test_other_products_have_no_parts(sizes: tuple[int, int, int, int], types: str) -> None:
    assert as_split(spec_of(*sizes, types), TARGET) is None


def test_products_in_shorter_vectors_have_no_parts() -> None:
    assert as_split(spec_of(1, 512, 512, 512), Target(32, 2)) is None


def test_batch_invariant_products_have_no_parts() -> None:
    assert as_split(spec_of(1, 512, 512, 512), Target(64, 2, batch_invariant=True)) is None


def test_five_registers_are_used() -> None:
    """A busy second thread of the core halves the rate of products that use more."""
    text = LirModule(emit_matmul("product", spec_of(1, 512, 512, 512), TARGET).functions).text()
    assert set(re.findall(r"llvm\.x86\.t\w+\(i8 (\d)", text)) == set("01234")
