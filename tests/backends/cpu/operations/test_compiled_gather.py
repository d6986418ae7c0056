"""Gather, compiled; the formula and the form of the text are those of `tests/ops/test_gather_scatter.py`."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.operations.one_operation import TYPES, Array, check, values
from ops.test_gather_scatter import Dims, braces, naive_gather

ROWS = Dims([1], [0], [0], 1)
"""An index of rows per result row."""


def check_gather(x: Array, indices: Array, dims: Dims, slice_sizes: list[int]) -> None:
    batching = ""
    if dims.operand_batching:
        batching = f", operand_batching_dims={braces(dims.operand_batching)}"
        batching += f", start_indices_batching_dims={braces(dims.indices_batching)}"
    text = (
        f"gather(x0, x1), offset_dims={braces(dims.window)}, collapsed_slice_dims={braces(dims.collapsed)}, "
        f"start_index_map={braces(dims.index_map)}, index_vector_dim={dims.index_vector_dim}, "
        f"slice_sizes={braces(slice_sizes)}{batching}"
    )
    check(text, lambda x, i: naive_gather(x, i, dims, slice_sizes), x, indices)


@pytest.mark.parametrize(
    ("indices", "dims", "slice_sizes"),
    [
        ([[3], [0], [15], [3]], ROWS, [1, 11]),
        ([[3, 1], [0, 15]], Dims([2], [0], [0], 2), [1, 11]),  # an implied index vector
        ([[0, 0], [8, 5], [3, 1]], Dims([1, 2], [], [0, 1], 1), [8, 6]),  # a batched dynamic slice
        ([[1, 2, 3], [10, 9, 8]], Dims([1, 2], [], [1, 0], 0), [2, 2]),  # the index vector first
        ([[4], [7]], Dims([0], [1], [1], 1), [16, 1]),  # columns, before the batch dimension
        ([[4, 2], [7, 0]], Dims([], [0, 1], [0, 1], 1), [1, 1]),  # single elements
        ([5, 3], Dims([0], [0], [0, 1], 0), [1, 4]),  # one index vector
    ],
)
def test_dimensions(indices: list[list[int]], dims: Dims, slice_sizes: list[int]) -> None:
    """GATHER-2 to GATHER-6, GATHER-8 and GATHER-10."""
    check_gather(values([16, 11]), np.array(indices), dims, slice_sizes)


@pytest.mark.parametrize(
    "indices",
    [
        np.array([[-5], [100], [2**62], [-(2**62)]]),
        np.array([[-128], [127]], np.int8),
        np.array([[255], [0]], np.uint8),
        np.array([[2**31], [2**32 - 1]], np.uint32),
        np.array([[2**63], [2**64 - 1]], np.uint64),
    ],
    ids=lambda indices: str(indices.dtype),
)
def test_starts_outside_are_clamped(indices: Array) -> None:
    """GATHER-7: unsigned starts are large, not negative."""
    check_gather(values([6, 5]), indices, Dims([1, 2], [], [0], 1), [2, 3])


@pytest.mark.parametrize(
    ("sizes", "indices", "dims", "slice_sizes"),
    [
        ([4, 3], np.zeros((0, 1), int), ROWS, [1, 3]),  # no index
        ([4, 3], np.array([[1], [2]]), Dims([1, 2], [], [0], 1), [0, 3]),  # windows without elements
        ([4, 0], np.array([[1], [2]]), ROWS, [1, 0]),
        ([1, 3], np.array([[0], [7]]), ROWS, [1, 3]),  # one row, which each index gives
        ([4, 3], np.zeros((2, 0), int), Dims([1, 2], [], [], 1), [2, 2]),  # empty index vectors: the start is 0
    ],
)
def test_empty_arrays_and_sizes_of_one(sizes: list[int], indices: Array, dims: Dims, slice_sizes: list[int]) -> None:
    """GATHER-4, GEN-10."""
    check_gather(values(sizes), indices, dims, slice_sizes)


def test_batching_dimensions() -> None:
    """GATHER-13: row b of the indices picks in row b of the operand."""
    check_gather(values([3, 11]), np.array([[1], [5], [9]]), Dims([1], [], [1], 1, [0], [0]), [1, 2])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types(type: str) -> None:
    """GATHER-1."""
    check_gather(values([5, 17], type), np.array([[4], [1], [9]]), ROWS, [1, 17])
