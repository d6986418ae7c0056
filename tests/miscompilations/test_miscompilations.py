"""Known miscompilations of other compilers: hloom has the right results, and the page states XLA's."""

from __future__ import annotations

import re
from importlib.metadata import version

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
    verdicts = xla_bugs.stated(PAGE)
    assert version("jaxlib") in verdicts, "run: python tools/xla_bugs.py"
    found = {case.name: xla_bugs.peer_verdict(case, peer) for case in CASES if not case.varies}
    stated = {name: verdict for name, (verdict, _) in verdicts[version("jaxlib")].items()}
    assert {name: stated[name] for name in found} == found
    varying = [[verdicts[v][case.name][0] for v in verdicts] for case in CASES if case.varies]
    assert all("wrong, and varies" in each for each in varying)


def test_verdicts_of_a_page_are_read() -> None:
    page = r"""
| case | reports | clause | hloom | XLA 1.2 | proof 1.2 | XLA 1.3 | proof 1.3 |
|---|---|---|---|---|---|---|---|
| [a-case](#a-case) | [xla#1](x) | GEN-6 | right | wrong: 1 \| 2 | refuted |  |  |
| [b](#b) | found by fuzzing | GEN-6 | right | right | proved | crash | crash |

## a-case
"""
    assert xla_bugs.stated(page) == {
        "1.2": {"a-case": (r"wrong: 1 \| 2", "refuted"), "b": ("right", "proved")},
        "1.3": {"b": ("crash", "crash")},
    }
