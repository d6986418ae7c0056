"""Known miscompilations of other compilers: hloom has the right results, and the page states XLA's."""

from __future__ import annotations

import re

import pytest

import hloom as hl
import xla_bugs
from clauses import clauses
from hloom.bench.peer_process import XlaPeer
from hloom.text import print_module
from miscompilations.case import fault, results
from miscompilations.cases import CASES

PAGE = xla_bugs.PAGE.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hloom_has_the_right_results(case: xla_bugs.Case, backend: str) -> None:
    assert not fault(case, results(case, backend))


def test_cases_are_well_formed() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.clause for case in CASES} <= set(clauses())
    for case in CASES:
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", report) for report in case.reports), case.name
        assert print_module(hl.parse(case.text)), case.name


def test_the_page_has_every_case() -> None:
    missing = [case.name for case in CASES if xla_bugs.section(case) not in PAGE]
    assert not missing, "run: python tools/xla_bugs.py"


@pytest.mark.long
def test_the_page_states_the_results_of_xla(peer: XlaPeer) -> None:
    stated = {case.name: xla_bugs.peer_verdict(case, peer) for case in CASES if not case.varies}
    assert [name for name, verdict in stated.items() if f"| {verdict} |" not in xla_bugs.row_of(name, PAGE)] == []
    assert all("| wrong, and varies |" in xla_bugs.row_of(case.name, PAGE) for case in CASES if case.varies)
