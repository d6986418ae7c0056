"""`batch_invariant=True`: a row of a result is the same bits in every batch."""

from __future__ import annotations

import os

import pytest

from determinism.batches import differing

CASES = int(os.environ.get("HLOOM_CASES", "2400"))
BLOCK = 5


@pytest.mark.parametrize("seed", [8, 1095, pytest.param(9, marks=pytest.mark.long)])
def test_a_row_is_the_same_in_a_small_and_a_large_batch(seed: int) -> None:
    assert not differing(seed, (33, 1))


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1000 + CASES // 16, BLOCK))
def test_rows_are_the_same_in_every_batch(first: int) -> None:
    wrong = [found for seed in range(first, first + BLOCK) if (found := differing(seed))]
    assert not wrong, "\n".join(wrong)
