"""Convolutions of each feature with a window of its own, line by line, against the interpreter."""

from __future__ import annotations

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
from hloom.backends.cpu.kernels.convolution.lines import Lines, plan_lines
from hloom.ops.attributes import WindowDimension
from hloom.values import Array

FAR = WindowDimension(3, 1, 20, 20)
CASES = {
    "one block": Case((SAME, SAME), (9, 28), first(2), 2, 1, 1, groups=7),
    "several blocks": Case((SAME, WindowDimension(5, 1, 2, 2)), (7, 130), first(2), 2, 1, 1, groups=3),
    "one axis": Case((SAME,), (300,), first(1), 2, 1, 1, groups=3),
    "one line": Case((WindowDimension(1), SAME), (1, 40), first(2), 2, 1, 1, groups=3),
    "one feature": Case((SAME, SAME), (9, 28), first(2), 3, 1, 1),
    "every other line": Case((WindowDimension(3, 2, 1, 1), SAME), (17, 28), first(2), 2, 1, 1, groups=3),
    "reversed and dilated": Case(
        (WindowDimension(3, 2, 1, 1, 2, 1, True), WindowDimension(3, 1, 4, 4, 3, 1, True)), (31, 63), first(2), 2, 1, 1,
        groups=5,
    ),
    "less than the input": Case((SAME, WindowDimension(3, 1, -1, -2)), (3, 64), first(2), 2, 1, 1, groups=2),
    "mostly padding": Case((WindowDimension(3, 1, 5, 5), FAR), (2, 14), first(2), 2, 1, 1, groups=3),
    "many lines": Case((SAME, SAME), (150, 28), first(2), 1, 1, 1, groups=3),
    "many lines, every third": Case((WindowDimension(5, 3, 2, 2), SAME), (150, 28), first(2), 1, 1, 1, groups=3),
    "wide windows": Case((WindowDimension(7, 1, 3, 3),) * 2, (19, 28), first(2), 2, 1, 1, groups=3),
    "dilated": Case((WindowDimension(3, 1, 2, 2, 2),) * 2, (33, 28), first(2), 2, 1, 1, groups=3),
    "lines far apart": Case((WindowDimension(3, 1, 9, 9, 9), SAME), (21, 28), first(2), 2, 1, 1, groups=3),
    "groups of the batch": Case((SAME, SAME), (9, 28), first(2), 2, 1, 1, batch_groups=5),
}  # fmt: skip


def plan_of(case: Case) -> Lines | None:
    return planned(plan_lines, case)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_lines_are_the_interpreters(case: Case, types: str) -> None:
    assert plan_of(case) is not None
    check_on_targets(case, types)


@pytest.mark.parametrize("case", [
    Case((SAME, SAME), (9, 28), last(2), 2, 1, 1, groups=7),
    Case((SAME, SAME), (9, 28), first(2), 2, 2, 1, groups=7),
    Case((SAME, SAME), (9, 28), first(2), 2, 1, 2, groups=7),
    Case((SAME, WindowDimension(3, 2, 1, 1)), (9, 28), first(2), 2, 1, 1, groups=7),
    Case((SAME, WindowDimension(3, 1, 1, 1, 1, 2)), (9, 28), first(2), 2, 1, 1, groups=7),
    Case((SAME, SAME), (9, 5), first(2), 2, 1, 1, groups=7),
    Case((WindowDimension(9, 1, 4, 4),) * 2, (9, 28), first(2), 2, 1, 1, groups=7),
    Case((SAME, WindowDimension(2, 1, 0, 0, 2000)), (9, 2028), first(2), 2, 1, 1, groups=7),
    Case((SAME, WindowDimension(2, 1, 900, 900, 900)), (9, 28), first(2), 2, 1, 1, groups=7),
], ids=[
    "features last", "several inputs", "several outputs", "apart", "dilated base", "short", "many taps", "far apart",
    "padding alone",
])  # fmt: skip
def test_others_are_left_to_tiles_of_positions(case: Case) -> None:
    assert plan_of(case) is None


def test_blocks_at_the_edges_have_lanes_that_are_off() -> None:
    plan = plan_of(CASES["several blocks"])
    assert plan is not None
    assert (plan.edges, plan.inner) == ([0, 128], range(64, 128, 64))


@pytest.mark.parametrize(
    ("case", "lines", "delay"), [
        ("one line", 1, 0), ("one block", 9, 2), ("every other line", 9, 1), ("wide windows", 19, 6), ("dilated", 33, 4),
        ("lines far apart", 21, 0), ("many lines", 50, 2), ("many lines, every third", 17, 1),
    ],
)  # fmt: skip
def test_sums_stay_in_registers_unless_lines_are_far_apart(case: str, lines: int, delay: int) -> None:
    plan = plan_of(CASES[case])
    assert plan is not None
    assert (plan.lines, plan.delay) == (lines, delay)


def test_padding_times_infinity_is_no_number() -> None:
    def change(image: Array, kernel: Array) -> None:
        image[0, 0, 2, 3] = np.inf
        kernel[0, 0, 0, 0], kernel[1, 0, 2, 2], kernel[2, 0, 1, 0] = np.nan, np.inf, -np.inf

    check_not_finite(CASES["one block"], change)


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    check_threads(CASES["several blocks"])
