"""Reduce-window, convolution and select-and-scatter, compiled; `kernels/scans` and `kernels/convolution` have large ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backends.cpu.operations.one_operation import Array, check, values
from hloom.ops.attributes import WindowDimension
from hloom.text.attributes import window_text
from hloom.types import BY_NAME


def positions(window: list[WindowDimension], sizes: tuple[int, ...]) -> list[int]:
    """WIN-1, WIN-2: the number of positions of the window in each dimension."""
    counts = []
    for w, n in zip(window, sizes):
        padded = ((n - 1) * w.base_dilation + 1 if n else 0) + w.padding_low + w.padding_high
        covered = (w.size - 1) * w.window_dilation + 1
        counts.append(0 if padded < covered else (padded - covered) // w.stride + 1)
    return counts


def elements(
    window: list[WindowDimension], sizes: tuple[int, ...], position: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """WIN-3: element k of the window with the base element that it lies over; none over padding and holes."""
    for k in itertools.product(*(range(w.size) for w in window)):
        q = [o * w.stride + i * w.window_dilation - w.padding_low for o, i, w in zip(position, k, window)]
        if all(
            0 <= a < (n - 1) * w.base_dilation + 1 and a % w.base_dilation == 0 for a, n, w in zip(q, sizes, window)
        ):
            yield k, tuple(a // w.base_dilation for a, w in zip(q, window))


def W(size: int, stride: int = 1, pad: tuple[int, int] = (0, 0), base: int = 1, dilation: int = 1) -> WindowDimension:
    low, high = pad
    return WindowDimension(
        size=size, stride=stride, padding_low=low, padding_high=high, base_dilation=base, window_dilation=dilation
    )


WINDOWS: list[tuple[list[int], list[WindowDimension]]] = [
    ([40], [W(3)]),
    ([40], [W(3, 2, (1, 1))]),
    ([4, 6], [W(2, 2), W(3, 3)]),  # tiles side by side
    ([3, 20], [W(1), W(4, 1, (3, 0))]),
    ([9], [W(2, 1, (0, 0), 2, 2)]),  # both dilations
    ([9, 5], [W(2, 1, (-1, 0), 2), W(2, 1, (1, -2))]),  # negative padding
    ([7], [W(3, 4, (2, 5), 3, 2)]),
    ([5, 1], [W(5), W(1, 1, (1, 1))]),
    ([2], [W(3)]),  # no position
    ([0], [W(2, 1, (1, 2))]),  # padding alone
    ([0, 2], [W(1), W(2)]),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("sizes", "window"), WINDOWS, ids=[window_text(tuple(w)) for _, w in WINDOWS])
def test_sums_of_windows(sizes: list[int], window: list[WindowDimension]) -> None:
    """REDUCEWINDOW-1, REDUCEWINDOW-2, WIN-1 to WIN-4: the initial value enters each window once."""
    check_reduce_window(sizes, window, "f32", 5)


@pytest.mark.parametrize(("type", "init"), [("s8", 1), ("u64", 2), ("bf16", 0), ("c64", 1j), ("f64", 0.5)])
def test_element_types(type: str, init: Any) -> None:
    """REDUCEWINDOW-1."""
    check_reduce_window([4, 9], [W(2), W(3, 2, (1, 0))], type, init)


def check_reduce_window(sizes: list[int], window: list[WindowDimension], type: str, init: Any) -> None:
    def formula(x: Array, init: Array) -> Array:
        out = np.full(positions(window, x.shape), init, x.dtype)
        for position in np.ndindex(out.shape):
            for _, index in elements(window, x.shape, position):
                out[position] += x[index]
        return out

    check(
        f"reduce-window(x0, x1), window={window_text(tuple(window))}, to_apply=f",
        formula,
        values(sizes, type),
        np.array(init, BY_NAME[type].dtype),
        computations=f"f {{ a = {type}[] parameter(0) b = {type}[] parameter(1) ROOT r = {type}[] add(a, b) }}",
    )


CONVOLUTIONS: list[tuple[list[int], list[int], list[WindowDimension], int]] = [
    ([1, 1, 12], [1, 1, 3], [W(3)], 1),
    ([2, 3, 5, 6], [4, 3, 2, 3], [W(2, 1, (1, 0)), W(3, 2, (0, 2))], 1),
    ([1, 2, 4, 5], [3, 2, 2, 2], [W(2, 1, (1, 1), 2), W(2, 1, (0, 0), 1, 3)], 1),  # dilations of base and window
    ([1, 2, 6], [2, 2, 3], [W(3, 1, (-1, 2))], 1),  # negative padding
    ([1, 4, 6], [6, 2, 3], [W(3)], 2),  # two groups of features
    ([1, 3, 6], [6, 1, 2], [W(2)], 3),  # depthwise
    ([2, 3], [4, 3], [], 1),  # no spatial dimension
    ([0, 2, 5], [3, 2, 2], [W(2)], 1),
    ([1, 2, 2], [3, 2, 4], [W(4)], 1),  # no position
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("sizes", "kernel", "window", "groups"), CONVOLUTIONS, ids=[window_text(tuple(w)) for _, _, w, _ in CONVOLUTIONS]
)
def test_convolutions(sizes: list[int], kernel: list[int], window: list[WindowDimension], groups: int) -> None:
    """CONVGENERAL-2, CONVGENERAL-4 to CONVGENERAL-8: batch, features, spatial; all sums are exact."""

    def formula(x: Array, w: Array) -> Array:
        out = np.zeros([x.shape[0], w.shape[0], *positions(window, x.shape[2:])], x.dtype)
        inputs, outputs = w.shape[1], w.shape[0] // groups
        for batch, feature, *position in np.ndindex(out.shape):
            first = feature // outputs * inputs
            for k, index in elements(window, x.shape[2:], tuple(position)):
                for i in range(inputs):
                    out[batch, feature, *position] += x[batch, first + i, *index] * w[feature, i, *k]
        return out

    spatial = "012"[: len(window)]
    text = f"convolution(x0, x1), window={window_text(tuple(window))}, " if window else "convolution(x0, x1), "
    text += f"dim_labels=bf{spatial}_oi{spatial}->bf{spatial}, feature_group_count={groups}"
    check(text, formula, values(sizes), values(kernel, start=3))


@pytest.mark.parametrize(
    ("sizes", "window"),
    [
        ([4, 6], [W(2, 2), W(3, 3)]),
        ([4, 5], [W(2, 2), W(3, 2)]),  # windows overlap in the second dimension
        ([9], [W(3, 2, (1, 1))]),
        ([2, 1, 5], [W(1), W(1), W(2, 1, (0, 1))]),
    ],
)
def test_the_largest_of_each_window_gets_the_source(sizes: list[int], window: list[WindowDimension]) -> None:
    """SELECTANDSCATTER-1 to SELECTANDSCATTER-3: of equal elements the lower index; padding is never chosen."""

    def formula(x: Array, source: Array, init: Array) -> Array:
        out = np.full_like(x, init)
        for position in np.ndindex(source.shape):
            best = None
            for _, index in elements(window, x.shape, position):
                if best is None or not x[best] >= x[index]:
                    best = index
            assert best is not None
            out[best] += source[position]
        return out

    x = values(sizes)
    check(
        f"select-and-scatter(x0, x1, x2), window={window_text(tuple(window))}, select=s, scatter=f",
        formula,
        x,
        values(positions(window, x.shape), start=4),
        np.array(2, np.float32),
        computations="""
s { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }
f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }""",
    )
