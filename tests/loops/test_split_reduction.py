"""Splitting of reductions into parts: results are the same for any number of rows."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.loops import split_reduction
from hloom.types import BY_NAME


@pytest.mark.parametrize("rows", [5, 8, 15, 16, 20, 40, 100])
def test_sums_of_columns_in_parts_have_all_rows_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_reduction, "MIN_PARALLEL_WORK", 1)
    monkeypatch.setattr(split_reduction, "MIN_PART_ITERATIONS", 1)
    text = module_text(
        f"x = f32[{rows},64] parameter(0)\nzero = f32[] constant(0)\n"
        "ROOT r = f32[64] reduce(x, zero), dimensions={0}, to_apply=sum"
    )
    x = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64)
    np.testing.assert_array_equal(hl.compile(text)(x), x.sum(0))


@pytest.mark.parametrize("type", ["bf16", "f16", "f8e5m2"])
@pytest.mark.parametrize("sizes", [[1 << 15, 16], [1 << 16, 1], [3, 1 << 16]], ids=str)
def test_partial_sums_of_narrow_floats_are_not_rounded(type: str, sizes: list[int]) -> None:
    """A sum that is rounded to 2 to 10 bits ceases to grow."""
    dimension = int(np.argmax(sizes))
    text = module_text(
        f"x = {type}[{sizes[0]},{sizes[1]}] parameter(0)\nzero = {type}[] constant(0)\n"
        f"ROOT r = {type}[{sizes[1 - dimension]}] reduce(x, zero), dimensions={{{dimension}}}, to_apply=sum"
    ).replace("f32", type)
    x = np.full(sizes, 0.25, BY_NAME[type].dtype)
    found = hl.compile(text)(x)
    np.testing.assert_array_equal(found.astype(np.float32), np.full(found.shape, sizes[dimension] / 4, np.float32))
