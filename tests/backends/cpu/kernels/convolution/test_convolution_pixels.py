"""Convolutions of each feature with a window of its own, pixel by pixel, against the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.cpu.kernels.convolution.depthwise_checks import (
    TYPES,
    check_not_finite,
    check_on_targets,
    check_threads,
    planned,
)
from backends.cpu.kernels.convolution.test_convolution import SAME, Case, first, last
from hloom.backends.cpu.kernels.convolution.pixels import Pixels, plan_pixels
from hloom.ops.attributes import WindowDimension
from hloom.values import Array

CASES = {
    "one block": Case((SAME, SAME), (5, 9), last(2), 2, 1, 1, groups=16),
    "blocks that overlap": Case((SAME, SAME), (5, 9), last(2), 2, 1, 1, groups=40),
    "one axis": Case((WindowDimension(4, 1, 3),), (30,), last(1), 2, 1, 1, groups=24),
    "several bands": Case((SAME,), (600,), last(1), 2, 1, 1, groups=16),
    "three axes": Case((SAME, SAME, SAME), (4, 5, 6), last(3), 2, 1, 1, groups=16),
    "every other pixel": Case((WindowDimension(3, 2, 1, 1),) * 2, (11, 10), last(2), 2, 1, 1, groups=16),
    "reversed and dilated": Case(
        (WindowDimension(3, 2, 1, 1, 2, 1, True), WindowDimension(3, 1, 2, 2, 2, 1, True)), (13, 21), last(2), 2, 1, 1,
        groups=16,
    ),
    "pixels far apart": Case((SAME, WindowDimension(3, 1, 9, 9, 9)), (5, 21), last(2), 2, 1, 1, groups=16),
    "wide windows": Case((WindowDimension(7, 1, 3, 3),) * 2, (9, 28), last(2), 2, 1, 1, groups=16),
    "less than the input": Case((SAME, WindowDimension(3, 1, -1, -2)), (3, 19), last(2), 2, 1, 1, groups=16),
    "mostly padding": Case((WindowDimension(3, 1, 5, 5), WindowDimension(3, 1, 20, 20)), (2, 4), last(2), 2, 1, 1, groups=16),
}  # fmt: skip


def plan_of(case: Case) -> Pixels | None:
    return planned(plan_pixels, case)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pixels_are_the_interpreters(case: Case, types: str) -> None:
    assert plan_of(case) is not None
    check_on_targets(case, types)


@pytest.mark.parametrize(
    "case",
    [
        Case((SAME, SAME), (9, 28), first(2), 2, 1, 1, groups=16),
        Case((SAME, SAME), (9, 28), last(2), 2, 2, 1, groups=16),
        Case((SAME, SAME), (9, 28), last(2), 2, 1, 2, groups=16),
        Case((SAME, WindowDimension(3, 1, 1, 1, 1, 2)), (9, 28), last(2), 2, 1, 1, groups=16),
        Case((SAME, SAME), (9, 28), last(2), 2, 1, 1, groups=15),
        Case((WindowDimension(9, 1, 4, 4),) * 2, (9, 28), last(2), 2, 1, 1, groups=16),
        Case((WindowDimension(7, 1, 3, 3),) * 2, (7, 7), last(2), 2, 1, 1, groups=16),
    ],
    ids=[
        "features first",
        "several inputs",
        "several outputs",
        "dilated base",
        "few features",
        "many taps",
        "one window",
    ],
)
def test_others_are_left_to_tiles(case: Case) -> None:
    assert plan_of(case) is None


@pytest.mark.parametrize(("case", "delay"), [
    ("one axis", 3), ("one block", 2), ("every other pixel", 1), ("reversed and dilated", 4), ("pixels far apart", 0),
])  # fmt: skip
def test_sums_stay_in_registers_unless_pixels_are_far_apart(case: str, delay: int) -> None:
    plan = plan_of(CASES[case])
    assert plan is not None and plan.delay == delay


@pytest.mark.parametrize(("groups", "vectors", "blocks"), [(16, 1, 1), (32, 2, 1), (48, 2, 2), (96, 2, 3), (40, 2, 2)])
def test_blocks_have_as_many_vectors_as_registers_hold_weights_for(groups: int, vectors: int, blocks: int) -> None:
    plan = plan_of(replace(CASES["one block"], groups=groups))
    assert plan is not None and (plan.vectors, plan.counts[-1]) == (vectors, blocks)


def test_padding_times_infinity_is_no_number() -> None:
    def change(image: Array, kernel: Array) -> None:
        image[0, 2, 3, 0] = np.inf
        kernel[0, 0, 0, 0], kernel[2, 2, 0, 1], kernel[1, 0, 0, 2] = np.nan, np.inf, -np.inf

    check_not_finite(CASES["one block"], change)


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    check_threads(CASES["blocks that overlap"])
