"""Concatenate, compiled: several operands, empty ones, each dimension, element types, an operand that occurs twice."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.operations.one_operation import TYPES, Array, check, values


def check_concatenate(sizes: list[list[int]], dimension: int, type: str = "f32", operands: str | None = None) -> None:
    """Joins x0, x1, .., or what `operands` lists."""
    names = operands or ", ".join(f"x{k}" for k in range(len(sizes)))

    def formula(*arrays: Array) -> Array:
        joined = [arrays[int(name[1:])] for name in names.split(", ")]
        result = list(joined[0].shape)
        result[dimension] = sum(x.shape[dimension] for x in joined)
        out, before = np.empty(result, joined[0].dtype), 0
        for x in joined:
            for index in np.ndindex(x.shape):
                target = list(index)
                target[dimension] += before
                out[tuple(target)] = x[index]
            before += x.shape[dimension]
        return out

    arrays = [values(s, type, k) for k, s in enumerate(sizes)]
    check(f"concatenate({names}), dimensions={{{dimension}}}", formula, *arrays)


@pytest.mark.parametrize(
    ("sizes", "dimension"),
    [
        ([[2], [2], [2]], 0),
        ([[3, 2], [1, 2]], 0),
        ([[3, 2], [3, 40], [3, 1]], 1),
        ([[2, 3, 4], [2, 1, 4], [2, 5, 4]], 1),
        ([[1, 1]] * 9, 1),
        ([[5]], 0),
        ([[0], [3], [0], [2]], 0),
        ([[0, 2], [0, 3]], 1),
    ],
)
def test_arrays_are_joined_in_their_order(sizes: list[list[int]], dimension: int) -> None:
    """CONCATENATE-1 and CONCATENATE-2."""
    check_concatenate(sizes, dimension)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types(type: str) -> None:
    """CONCATENATE-1."""
    check_concatenate([[3, 7], [3, 10]], 1, type)


def test_an_operand_that_occurs_twice() -> None:
    """CONCATENATE-1."""
    check_concatenate([[4], [3]], 0, operands="x0, x1, x0")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("type", ["f8e5m2", "f8e4m3fn", "s8", "f16"])
@pytest.mark.parametrize("count", [9, 15, 17, 18, 33, 65])
def test_elements_that_do_not_fill_a_vector_are_stored_between_others(count: int, type: str) -> None:
    check_concatenate([[count]], 0, type, "x0, x0")
