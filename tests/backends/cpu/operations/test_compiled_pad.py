"""Pad, compiled: edges and interiors, negative edges, empty arrays, element types."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.operations.one_operation import TYPES, Array, check, values

Paddings = list[tuple[int, int, int]]


def padded(x: Array, value: Array, paddings: Paddings) -> Array:
    """PAD-1, PAD-2: element i of a dimension goes to low + i * (interior + 1), if that target is there."""
    sizes = [
        low + (n - 1) * (interior + 1) + 1 + high if n else low + high
        for n, (low, high, interior) in zip(x.shape, paddings)
    ]
    out = np.full(sizes, value, x.dtype)
    for index in np.ndindex(x.shape):
        target = tuple(low + i * (interior + 1) for i, (low, _, interior) in zip(index, paddings))
        if all(0 <= p < n for p, n in zip(target, sizes)):
            out[target] = x[index]
    return out


def check_pad(sizes: list[int], paddings: Paddings, type: str = "f32") -> None:
    text = "x".join("_".join(map(str, padding)) for padding in paddings)
    value = values([1], type, start=2).reshape(())
    check(f"pad(x0, x1), padding={text}", lambda x, v: padded(x, v, paddings), values(sizes, type), value)


@pytest.mark.parametrize(
    ("sizes", "paddings"),
    [
        ([5], [(2, 3, 0)]),
        ([5], [(0, 0, 2)]),
        ([3, 4], [(1, 0, 1), (0, 2, 0)]),
        ([2, 1, 40], [(0, 0, 0), (3, 3, 5), (1, 1, 0)]),
        ([4, 3], [(0, 0, 0), (0, 0, 0)]),
    ],
)
def test_edges_and_interiors(sizes: list[int], paddings: Paddings) -> None:
    """PAD-1 and PAD-4."""
    check_pad(sizes, paddings)


@pytest.mark.parametrize(
    ("sizes", "paddings"),
    [
        ([3], [(-1, -1, 1)]),  # {1,9,2,9,3} -> {9,2,9}
        ([20], [(-3, 5, 0)]),
        ([4, 5], [(2, -3, 0), (-4, 1, 2)]),
        ([4], [(-2, -2, 0)]),  # nothing is left
        ([4], [(-6, 5, 0)]),  # only padding is left
    ],
)
def test_negative_edges_remove_elements(sizes: list[int], paddings: Paddings) -> None:
    """PAD-2."""
    check_pad(sizes, paddings)


@pytest.mark.parametrize(("sizes", "paddings"), [([0], [(2, 1, 3)]), ([0, 3], [(1, 1, 0), (0, 0, 1)])])
def test_empty_operands_give_padding_alone(sizes: list[int], paddings: Paddings) -> None:
    """PAD-1, GEN-10: the size is low + high."""
    check_pad(sizes, paddings)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types(type: str) -> None:
    """PAD-1."""
    check_pad([3, 5], [(1, 2, 0), (-1, 1, 1)], type)
