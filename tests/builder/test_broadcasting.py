"""Broadcasting of the builder: cases beyond the specification's examples."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from built import evaluate


@pytest.mark.parametrize(("sizes", "others"), [((2, 3), (3,)), ((2, 3), (1,)), ((3,), (4, 3)), ((2, 3, 4), (3, 4))])
def test_numpys_implicit_broadcasting_is_an_error(sizes: tuple[int, ...], others: tuple[int, ...]) -> None:
    """BC-1: ranks never change by themselves, but for scalars."""
    x, y = np.ones(sizes, np.float32), np.ones(others, np.float32)
    assert (x + y).shape  # NumPy has an answer
    with pytest.raises(hl.RuleError, match="BC-3"):
        evaluate("interpreter", lambda b, x, y: b.add(x, y), x, y)
    assert evaluate("interpreter", lambda b, x: b.add(x, b.constant(np.float32(1))), x).tolist() == (x + 1).tolist()


@pytest.mark.parametrize(("dimension", "size"), [(0, 2), (1, 3), (2, 4)])
def test_dimensions_that_are_not_named_have_size_one_and_are_repeated(backend: str, dimension: int, size: int) -> None:
    """BC-11: f32[3] along dimension 1 of f32[2,3,4] is f32[1,3,1], which BC-13 expands."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = 100 * np.arange(1, size + 1, dtype=np.float32)
    widened = [1, 1, 1]
    widened[dimension] = size
    found = evaluate(backend, lambda b, x, y: b.add(x, y, broadcast_dimensions=(dimension,)), x, y)
    assert np.array_equal(found, x + y.reshape(widened))
