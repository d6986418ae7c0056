"""topk kernels against the interpreter: types, sizes, ties, threads."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from backends.cpu.kernels.run_kernel import Array, check
from backends.cpu.kernels.sort.test_sort_kernel import floats
from hloom.api import parse
from hloom.backends.cpu.kernels.sort import top_k
from hloom.lir import LirModule
from hloom.ops.sort import TopK
from hloom.target import Target
from hloom.types import BY_DTYPE


def text(x: Array, k: int, largest: bool = True) -> str:
    type, sizes = BY_DTYPE[x.dtype], ",".join(map(str, x.shape))
    out = ",".join(map(str, (*x.shape[:-1], k)))
    return (
        f"HloModule m\nENTRY e {{\n  x = {type}[{sizes}] parameter(0)\n"
        f"  ROOT r = ({type}[{out}], s32[{out}]) topk(x), k={k}, largest={str(largest).lower()}\n}}"
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 2, 7, 8, 16, 17, 32, 33, 40])
@pytest.mark.parametrize("shape", [(40,), (3, 41), (2, 3, 100), (1, 2000), (0, 50)])
def test_shapes(shape: tuple[int, ...], k: int, largest: bool) -> None:
    x = floats(shape)
    check(top_k.emit, text(x, k, largest), x)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
    + [np.float16, ml_dtypes.bfloat16, np.float64],
)
def test_types(dtype: type) -> None:
    x = np.random.default_rng(0).integers(-8, 8, (7, 300)).astype(dtype)
    for k in (5, 50):
        check(top_k.emit, text(x, k), x, threads=(1, 2))


@pytest.mark.parametrize("order", [1, -1])
def test_long_rows(order: int) -> None:
    x = floats((2, 20000))
    for k in (50, 300):
        check(top_k.emit, text(x, k, order > 0), x)


@pytest.mark.parametrize("order", [1, -1])
def test_sorted_rows(order: int) -> None:
    x = np.arange(3000, dtype=np.int32)[::order].reshape(2, 1500).copy()
    check(top_k.emit, text(x, 10), x)
    lowest = np.full((2, 50), -(2**31), np.int32)
    check(top_k.emit, text(lowest, 10), lowest)


@pytest.mark.parametrize("k", [1, 8, 16])
def test_rows_whose_best_elements_are_equal_or_come_last_in_the_order(k: int) -> None:
    x = floats((4, 1000))
    few = np.where(np.arange(1000) % 300 == 7, x, np.float32(np.nan))
    for each in (np.maximum(x, 0), few, -few, np.full_like(x, -np.nan)):
        for largest in (True, False):
            check(top_k.emit, text(each, k, largest), each)


def test_the_lanes_of_long_rows_bound_their_lists() -> None:
    def counts_lanes(k: int, size: int) -> bool:
        entry = next(iter(parse(text(np.zeros((2, size), "f4"), k)).entry.instructions[1:]))
        assert isinstance(entry.op, TopK)
        code = top_k.emit(entry.op, "topk", entry, Target(64, 2))
        assert code is not None
        return "ctpop" in LirModule(code.functions).text()

    assert counts_lanes(8, 1024) and counts_lanes(16, 256)
    assert not counts_lanes(8, 100) and not counts_lanes(17, 1024)


def test_keys_of_bfloat16_are_its_bits() -> None:
    """No conversion back from floats reads what is loaded."""
    entry = next(iter(parse(text(np.zeros((2, 1024), ml_dtypes.bfloat16), 8)).entry.instructions[1:]))
    assert isinstance(entry.op, TopK)
    code = top_k.emit(entry.op, "topk", entry, Target(64, 2))
    assert code is not None
    assert " float>" not in re.sub(r"to <16 x float>", "", LirModule(code.functions).text())
