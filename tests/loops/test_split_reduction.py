"""Splitting of reductions into parts: results are the same for any number of rows."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.loops import split_reduction


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
