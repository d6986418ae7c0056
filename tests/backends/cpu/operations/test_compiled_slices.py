"""Slice, reverse, dynamic-slice and dynamic-update-slice, compiled."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.operations.one_operation import TYPES, Array, check, values

Bounds = list[tuple[int, int, int]]


def sliced(x: Array, bounds: Bounds) -> Array:
    """SLICE-1: element start + i * stride, below the limit."""
    out = np.empty([-(-(limit - start) // stride) for start, limit, stride in bounds], x.dtype)
    for index in np.ndindex(out.shape):
        out[index] = x[tuple(start + i * stride for i, (start, _, stride) in zip(index, bounds))]
    return out


def check_slice(sizes: list[int], bounds: Bounds, type: str = "f32") -> None:
    text = ", ".join("[" + ":".join(map(str, bound)) + "]" for bound in bounds)
    check(f"slice(x0), slice={{{text}}}", lambda x: sliced(x, bounds), values(sizes, type))


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        ([5], [(2, 4, 1)]),
        ([4, 3], [(2, 4, 1), (1, 3, 1)]),
        ([50], [(1, 50, 3)]),
        ([3, 70], [(0, 3, 2), (2, 69, 2)]),
        ([3, 1, 9], [(1, 2, 1), (0, 1, 1), (8, 9, 7)]),
        ([4, 3], [(2, 2, 1), (0, 3, 1)]),  # start = limit
        ([0, 3], [(0, 0, 1), (0, 3, 2)]),
    ],
)
def test_slices(sizes: list[int], bounds: Bounds) -> None:
    """SLICE-1 to SLICE-3."""
    check_slice(sizes, bounds)


@pytest.mark.parametrize("type", TYPES)
def test_element_types_of_slices(type: str) -> None:
    """SLICE-1."""
    check_slice([5, 20], [(1, 5, 3), (3, 19, 2)], type)


def reversed_in(x: Array, dimensions: list[int]) -> Array:
    """REV-1: index i becomes N - 1 - i."""
    out = np.empty_like(x)
    for index in np.ndindex(x.shape):
        out[index] = x[tuple(n - 1 - i if d in dimensions else i for d, (i, n) in enumerate(zip(index, x.shape)))]
    return out


@pytest.mark.parametrize(
    ("sizes", "dimensions", "type"),
    [
        ([37], [0], "f32"),
        ([3, 20], [1], "s8"),
        ([3, 20], [0], "bf16"),
        ([2, 3, 4], [0, 2], "c64"),
        ([4, 1], [1], "pred"),
        ([4, 0], [0, 1], "f32"),
        ([9], [], "s4"),
    ],
)
def test_reversals(sizes: list[int], dimensions: list[int], type: str) -> None:
    """REV-1 and REV-2."""
    text = ",".join(map(str, dimensions))
    check(f"reverse(x0), dimensions={{{text}}}", lambda x: reversed_in(x, dimensions), values(sizes, type))


# Dynamic slices


def clamped(starts: tuple[Array, ...], sizes: tuple[int, ...], slice_sizes: tuple[int, ...]) -> list[int]:
    """DYNAMICSLICE-2: between 0 and size - slice size, in Python's integers."""
    return [min(max(int(start), 0), n - size) for start, n, size in zip(starts, sizes, slice_sizes)]


def check_dynamic(sizes: list[int], slice_sizes: list[int], starts: list[Array], type: str = "f32") -> None:
    """Slices there, then overwrites the same elements."""
    names = ", ".join(f"x{k + 1}" for k in range(len(starts)))

    def slice_there(x: Array, *starts: Array) -> Array:
        first, out = clamped(starts, x.shape, tuple(slice_sizes)), np.empty(slice_sizes, x.dtype)
        for index in np.ndindex(out.shape):
            out[index] = x[tuple(a + i for a, i in zip(first, index))]
        return out

    def update_there(x: Array, update: Array, *starts: Array) -> Array:
        first, out = clamped(starts, x.shape, update.shape), x.copy()
        for index in np.ndindex(update.shape):
            out[tuple(a + i for a, i in zip(first, index))] = update[index]
        return out

    text = ",".join(map(str, slice_sizes))
    x = values(sizes, type)
    check(f"dynamic-slice(x0, {names}), dynamic_slice_sizes={{{text}}}", slice_there, x, *starts)
    names = ", ".join(f"x{k + 2}" for k in range(len(starts)))
    check(f"dynamic-update-slice(x0, x1, {names})", update_there, x, values(slice_sizes, type, 3), *starts)


def s32(*values: int) -> list[Array]:
    return [np.array(value, np.int32) for value in values]


@pytest.mark.parametrize(
    ("sizes", "slice_sizes", "starts"),
    [
        ([5], [2], s32(2)),
        ([4, 3], [2, 2], s32(2, 1)),
        ([6, 50], [1, 40], s32(3, 5)),
        ([3, 1, 4], [3, 1, 1], s32(0, 0, 2)),
        ([4, 3], [0, 2], s32(1, 1)),
        ([4, 3], [4, 3], s32(1, 1)),
    ],
)
def test_dynamic_slices(sizes: list[int], slice_sizes: list[int], starts: list[Array]) -> None:
    """DYNAMICSLICE-1, DYNAMICSLICE-3, DYNAMICSLICE-4, DYNAMICUPDATESLICE-1 and DYNAMICUPDATESLICE-2."""
    check_dynamic(sizes, slice_sizes, starts)


@pytest.mark.parametrize(
    "starts",
    [
        s32(-1, 100),
        s32(-(2**31), 2**31 - 1),
        [np.array(2**63 - 1), np.array(-(2**63))],
        [np.array(4_000_000_000, np.uint32), np.array(0, np.uint32)],
        [np.array(2**64 - 1, np.uint64), np.array(2**63, np.uint64)],
        [np.array(200, np.uint8), np.array(1, np.uint8)],
        [np.array(-128, np.int8), np.array(127, np.int8)],
    ],
)
def test_starts_outside_are_clamped(starts: list[Array]) -> None:
    """DYNAMICSLICE-2 and DYNAMICSLICE-5: unsigned starts are large, not negative."""
    check_dynamic([5, 9], [2, 4], starts)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types_of_dynamic_slices(type: str) -> None:
    """DYNAMICSLICE-1 and DYNAMICUPDATESLICE-1."""
    check_dynamic([4, 11], [2, 6], s32(1, 4), type)
