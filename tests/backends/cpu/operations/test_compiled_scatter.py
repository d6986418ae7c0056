"""Scatter between element-wise operations, in each element type; `kernels/scatter` and `tests/ops` have its other cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.cpu.operations.one_operation import TYPES, Array, check, values

ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def combiner(type: str, body: str) -> str:
    return f"f {{ a = {type}[] parameter(0) b = {type}[] parameter(1) ROOT r = {type}[] {body} }}"


def check_rows(sizes: list[int], indices: Any, body: str, type: str = "f32") -> None:
    """Combines rows of updates with the rows that the indices name."""
    combine = {
        "add(a, b)": lambda a, b: a + b,
        "subtract(a, b)": lambda a, b: a - b,
        "maximum(a, b)": np.maximum,
        "and(a, b)": lambda a, b: a & b,
        "copy(b)": lambda a, b: b,
    }[body]

    def formula(x: Array, indices: Array, updates: Array) -> Array:
        """SCATTER-5 to SCATTER-7: update after update; indices outside are skipped."""
        out = x.copy()
        for k, column in np.ndindex(updates.shape):
            row = int(indices[k, 0])
            if 0 <= row < len(x):
                out[row, column] = combine(out[row, column], updates[k, column])
        return out

    updates = values([len(indices), sizes[1]], type, 7)
    check(
        f"scatter(x0, x1, x2), {ROWS}, to_apply=f",
        formula,
        values(sizes, type),
        np.asarray(indices),
        updates,
        computations=combiner(type, body),
    )


@pytest.mark.parametrize("body", ["add(a, b)", "subtract(a, b)", "maximum(a, b)", "copy(b)"])
def test_combiners(body: str) -> None:
    """SCATTER-2, SCATTER-5 and SCATTER-7: indices that occur twice, in their order."""
    check_rows([5, 19], [[3], [0], [3], [3]], body)


@pytest.mark.parametrize(
    "indices",
    [
        np.array([[-1], [5], [2**62], [-(2**63)], [4]]),
        np.array([[-128], [127], [1]], np.int8),
        np.array([[255], [2]], np.uint8),
        np.array([[2**64 - 1], [2**63], [2]], np.uint64),
    ],
    ids=lambda indices: str(indices.dtype),
)
def test_indices_outside_are_skipped(indices: Array) -> None:
    """SCATTER-6."""
    check_rows([5, 3], indices, "add(a, b)")


@pytest.mark.parametrize(
    ("sizes", "indices"),
    [([4, 3], np.zeros((0, 1), int)), ([4, 0], [[1], [2]]), ([0, 3], [[0], [1]]), ([1, 1], [[0], [1], [0]])],
)
def test_empty_arrays_and_sizes_of_one(sizes: list[int], indices: Any) -> None:
    """SCATTER-5, GEN-10."""
    check_rows(sizes, indices, "add(a, b)")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types(type: str) -> None:
    """SCATTER-1."""
    check_rows([4, 9], [[2], [0], [7]], "and(a, b)" if type == "pred" else "copy(b)", type)
