"""Right rewrites are proved, and wrong ones refuted with arguments that show it, each within a minute."""

from __future__ import annotations

from typing import Any

import pytest

from hloom.faults.case import interpret
from hloom.prove import Proved, Refuted, prove
from hloom.prove.equivalence import difference
from prove.rewrites import RIGHT, WRONG, program


def some(rewrites: list[tuple[str, str]]) -> list[Any]:
    """Every eighth rewrite by default."""
    return [pytest.param(*each, marks=pytest.mark.long if k % 8 else ()) for k, each in enumerate(rewrites)]


@pytest.mark.parametrize(("before", "after"), some(RIGHT))
def test_right_rewrites_are_proved(before: str, after: str) -> None:
    assert prove(program(before), program(after)) == Proved()


@pytest.mark.parametrize(("before", "after"), some(WRONG))
def test_wrong_rewrites_are_refuted(before: str, after: str) -> None:
    modules = program(before), program(after)
    verdict = prove(*modules)
    assert isinstance(verdict, Refuted), verdict
    results = [interpret(module, verdict.arguments) for module in modules]
    assert difference(results[0], results[1])
