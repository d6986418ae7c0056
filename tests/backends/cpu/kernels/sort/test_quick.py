"""Sorts in vector registers: patterns with difficult pivots, sizes around those of networks, merged parts of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from backends.cpu.kernels.run_kernel import Array, Kernel, assert_same
from hlo_text import sort_text
from hloom import target
from hloom.backends.cpu.kernels.sort import sort
from hloom.backends.cpu.llvm.processor import processor

LESS = "ROOT c = pred[] compare(a0, b0), direction=LT"
PATTERNS: dict[str, Callable[[int], Array]] = {
    "random": lambda n: np.random.default_rng(0).integers(0, 1 << 31, n),
    "few": lambda n: np.random.default_rng(0).integers(0, 3, n),
    "equal": lambda n: np.full(n, 7),
    "rising": np.arange,
    "falling": lambda n: np.arange(n)[::-1],
    "organ pipe": lambda n: np.minimum(np.arange(n), np.arange(n)[::-1]),
    "saw": lambda n: np.arange(n) % 100,
    "least and greatest": lambda n: np.where(np.arange(n) % 3 == 0, 0, -1),
    "one apart": lambda n: (np.arange(n) == n // 2).astype(np.int64),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.float32, np.uint64, np.float64])
def test_patterns(pattern: str, dtype: type) -> None:
    x = PATTERNS[pattern](3000).astype(np.uint64).astype(dtype)
    assert_same(Kernel(sort.emit, sort_text([x], LESS, 0))(x), [np.sort(x)])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", [np.uint32, np.float64])
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("vectors", [1, 2, 4, 8, 16, 17])
def test_sizes_of_networks(dtype: type, width: int, vectors: int) -> None:
    lanes = width // np.dtype(dtype).itemsize
    for size in (vectors * lanes - 1, vectors * lanes, vectors * lanes + 1):
        x = np.random.default_rng(size).integers(0, size, (3, size)).astype(dtype)
        kernel = Kernel(sort.emit, sort_text([x], LESS, 1), width=min(width, processor().vector_bytes))
        assert_same(kernel(x), [np.sort(x)])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("threads", [2, 3, 4, 7])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_parts_are_merged(pattern: str, threads: int) -> None:
    x = PATTERNS[pattern](33001).astype(np.int32)
    assert_same(Kernel(sort.emit, sort_text([x], LESS, 0), threads)(x), [np.sort(x)])


@pytest.mark.parametrize("size", [65, 200, 257])
def test_parts_of_rows_that_a_network_sorts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "MIN_PARALLEL_WORK", 1)
    x = np.random.default_rng(size).integers(0, 100, size).astype(np.float32)
    assert_same(Kernel(sort.emit, sort_text([x], LESS, 0), 5)(x), [np.sort(x)])


def test_equal_elements_that_differ_keep_their_order() -> None:
    random = np.random.default_rng(0)
    x = random.choice(np.array([0.0, -0.0, 1.5, -2.0], np.float32), 40000)
    for size, threads in ((50, 1), (500, 1), (40000, 3)):
        part = x[:size]
        (found,) = Kernel(sort.emit, sort_text([part], LESS, 0), threads)(part)
        assert_same([found], [part[np.argsort(part, kind="stable")]])
