"""Comparison of arrays, files of arrays, and random values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError
from hloom.files.arrays import difference, flat, random_value, read_arrays
from hloom.types import PrimitiveType
from hloom.values import TOKEN_VALUE

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (1.0, 1.0, True), (1.0, 1.00001, True), (1.0, 1.1, False), (INF, INF, True), (-INF, -INF, True), (NAN, NAN, True),
        (1.0, INF, False), (INF, -INF, False), (NAN, INF, False), (INF, NAN, False), (INF, 1.0, False), (NAN, 1.0, False),
        (1.0, NAN, False), (0.0, -0.0, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_infinities_and_nans_equal_only_themselves(got: float, want: float, same: bool, dtype: type) -> None:
    found = difference(np.array([got], dtype), np.array([want], dtype), 1e-3, 1e-3)
    assert (found is None) == same


def test_integers_and_predicates_are_compared_exactly_and_shapes_must_agree() -> None:
    assert difference(np.array([1]), np.array([2]), 10, 10) is not None
    assert difference(np.array([True]), np.array([False]), 10, 10) is not None
    assert difference(np.zeros(2), np.zeros(3), 1, 1) is not None
    assert difference(np.zeros(2), np.zeros(2, np.float32), 1, 1) is not None


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of the file has run",))


def test_objects_in_files_are_refused_and_not_executed(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", p0=np.array([Evil()], dtype=object), allow_pickle=True)
    with pytest.raises(ArgumentError, match="cannot read arrays"):
        read_arrays(str(tmp_path / "objects.npz"))


@pytest.mark.parametrize("type", [t for t in PrimitiveType if t.is_array], ids=str)
def test_random_scalars_are_arrays(type: PrimitiveType) -> None:
    """Scalars are arrays like all others, not NumPy scalars."""
    value = random_value(np.random.default_rng(0), hl.Shape.array(type, ()))
    assert isinstance(value, np.ndarray) and value.dtype == type.dtype
    (leaf,) = flat((value[()], TOKEN_VALUE, ()))
    assert leaf.shape == () and leaf.dtype == type.dtype
