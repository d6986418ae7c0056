"""Twins have the same results, and shardings are those that partitioning takes."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from hloom.errors import HloomError
from hloom.fuzz.grammar import draw_case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.oracles import judged, partitioned
from hloom.fuzz.reference import reference_of
from hloom.fuzz.runner import run
from hloom.fuzz.twins import twin
from hloom.text import fingerprint
from hloom.verifier import verify_module

CASES = int(os.environ.get("HLOOM_CASES", "1000"))


def check(seed: int, found: Counter[str]) -> None:
    case = draw_case(seed)
    reference = reference_of(case)
    if reference is None:
        return
    other = twin(case, Draw(seed))
    verify_module(other.module)
    found["rewritten"] += fingerprint(other.module) != fingerprint(case.module)
    assert judged(reference, run(other, "interpreter")) is None, seed
    try:
        assert partitioned(case, reference, Draw(seed)) is None, seed
        found["partitioned"] += 1
    except HloomError:
        return


def test_twins_and_partitioned_programs_have_the_same_results() -> None:
    found: Counter[str] = Counter()
    for seed in range(12):
        check(seed, found)
    assert found["rewritten"] > 8 and found["partitioned"] > 5


@pytest.mark.long
def test_more_twins_and_partitioned_programs_have_the_same_results() -> None:
    found: Counter[str] = Counter()
    for seed in range(1000, 1000 + CASES):
        check(seed, found)
