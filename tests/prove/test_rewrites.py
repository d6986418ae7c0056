"""Right rewrites are proved, and wrong ones refuted with arguments that show it, each within a minute."""

from __future__ import annotations

import pytest

from hloom.faults.case import interpret
from hloom.prove import Proved, Refuted, prove
from hloom.prove.equivalence import difference
from prove.rewrites import RIGHT, WRONG, program


@pytest.mark.parametrize(("before", "after"), RIGHT)
def test_right_rewrites_are_proved(before: str, after: str) -> None:
    assert prove(program(before), program(after)) == Proved()


@pytest.mark.parametrize(("before", "after"), WRONG)
def test_wrong_rewrites_are_refuted(before: str, after: str) -> None:
    modules = program(before), program(after)
    verdict = prove(*modules)
    assert isinstance(verdict, Refuted), verdict
    results = [interpret(module, verdict.arguments) for module in modules]
    assert difference(results[0], results[1])
