"""Random programs: the interpreter against XLA's CPU backend, whose known differences are classes with a reason."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hloom.fuzz.grammar import draw_case
from hloom.fuzz.job import apply
from hloom.fuzz.oracles import Problem
from hloom.fuzz.peer import Xla, class_of
from hloom.fuzz.reference import reference_of

pytest.importorskip("jaxlib", reason="needs jaxlib, XLA's CPU backend")

CASES = int(os.environ.get("HLOOM_CASES", "2400"))
BLOCK = 200


@pytest.fixture(scope="module")
def xla() -> Iterator[Xla]:
    oracle = Xla()
    yield oracle
    oracle.close()


def unexplained(seeds: range, xla: Xla) -> dict[int, str]:
    """Describes differences from XLA of programs that it takes, by seed, without those of known classes."""
    found = {}
    for seed in seeds:
        case = draw_case(seed, alone=True)
        reference = reference_of(case)
        problem = reference and apply(xla, case, reference, seed)
        if isinstance(problem, Problem) and class_of(case, problem) is None:
            found[seed] = problem.message
    return found


def test_a_few_random_programs_agree_with_xla(xla: Xla) -> None:
    assert not unexplained(range(8), xla)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1000 + CASES, BLOCK))
def test_random_programs_agree_with_xla(first: int, xla: Xla) -> None:
    assert not unexplained(range(first, min(first + BLOCK, 1000 + CASES)), xla)
