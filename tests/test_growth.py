"""Compile time is proportional to the program, whatever it has many of.

Work is counted, in function calls, rather than timed.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from benchmarks.families import FLAT, NESTED, Family

import hloom as hl
from hlo_text import module_text
from hloom.passes.optimize.update_scheduler import UpdateScheduler

FOUR_TIMES = 6.0
"""Bound on the growth of the work with four times the items; quadratic work would be 16 times as much."""


def calls(run: Callable[[], Any]) -> int:
    """The number of functions called, in Python and in C. A thread of its own compiles without the help of another."""
    profile = cProfile.Profile()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(profile.runcall, run).result()
    return sum(entry.callcount for entry in profile.getstats())


def growth(family: Family, n: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """The work of compiling 4 n items, divided by that of n."""
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    hl.compile(family(1))  # loads what the first compilation needs
    few, many = (calls(lambda size=size: hl.compile(hl.parse(family(size)))) for size in (n, 4 * n))  # type: ignore[misc]
    assert few > 1000, "what is counted is the compilation"
    return many / few


@pytest.mark.sampled(5)
@pytest.mark.parametrize("family", FLAT.values(), ids=FLAT)
def test_side_by_side(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    assert growth(family, 60, monkeypatch) < FOUR_TIMES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", NESTED.values(), ids=NESTED)
def test_nested(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the bound of linear work: each level may be visited from each enclosing level, but not twice as often."""
    assert growth(family, 5, monkeypatch) < 2 * FOUR_TIMES


def test_deep_nests_of_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work for what a loop runs is done once, not for each loop around it."""
    assert growth(NESTED["loops"], 60, monkeypatch) < FOUR_TIMES


def test_updates_of_one_array() -> None:
    """The readers of the array are looked through once, not for each update."""

    def work(n: int) -> int:
        updates = [
            line
            for k in range(n)
            for line in (f"k{k} = s32[] constant({k})", f"u{k} = f32[9] dynamic-update-slice(x, v, k{k})")
        ]
        parameters = ["x = f32[9] parameter(0)", "v = f32[1] parameter(1)"]
        module = hl.parse(module_text("\n".join([*parameters, *updates, f"ROOT r = f32[9] negate(u{n - 1})"])))
        return calls(lambda: UpdateScheduler().run(module))

    assert work(240) < FOUR_TIMES * work(60)
