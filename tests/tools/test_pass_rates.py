"""tools/write_pass_rates: recorded results become counts, the page and the badges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import write_pass_rates as tool
from conftest import ROOT
from jax_tests.results import FAILED, PASSED, SKIPPED, Result
from json_lines import append
from pass_rates import rates
from pass_rates.badge import COLORS, badge
from pass_rates.rates import Part, Suite
from xla_tests.results import Record


def record(folder: Path, name: str, outcomes: dict[str, str]) -> None:
    for test, outcome in outcomes.items():
        append(folder / name, Result(test, outcome, 0.1, "" if outcome == PASSED else "wrong"))


def test_the_page_and_the_badges_are_those_of_the_results() -> None:
    suites = rates.read(tool.DATA)
    assert tool.PAGE.read_text() == tool.page(suites), "run: python tools/write_pass_rates.py"
    assert {path.stem: path.read_text() for path in tool.BADGES.glob("*.svg")} == tool.badges(suites)
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        assert all(f"badges/{name}.svg" in page.read_text() for name in suites), page


def test_tests_that_fail_on_the_peer_do_not_count(tmp_path: Path) -> None:
    ends = {f"tests/a_test.py::T::test{k}": end for k, end in enumerate([PASSED, PASSED, FAILED, SKIPPED])}
    record(tmp_path, "cpu/a_test.jsonl", ends)
    record(tmp_path, "hloom/a_test.jsonl", {**ends, "tests/a_test.py::T::test1": FAILED})
    (tmp_path / "collected").mkdir()
    (tmp_path / "collected" / "a_test.json").write_text(json.dumps([*ends, "more"]))
    suite = rates.jax(tmp_path, "1.0")
    assert suite.parts == (Part("a_test", 5, 4, 2, 1),)
    assert suite.lost == {"tests/a_test.py::T::test1": "failed: wrong"}


def test_files_without_checks_do_not_count(tmp_path: Path) -> None:
    record(tmp_path, "cpu/testdata.jsonl", {"a.mlir": PASSED, "b.mlir": SKIPPED, "c.mlir": FAILED})
    assert rates.stablehlo(tmp_path, "1.0").parts == (Part("testdata, cpu", 3, 2, 2, 1),)


def test_modules_count_that_xla_accepts_and_those_that_it_runs(tmp_path: Path) -> None:
    good = Record("1", "a.cc", 1, ran=True, results={"cpu": "", "interpreter": ""})
    differs = Record("2", "a.cc", 9, ran=True, results={"cpu": "result 0 differs"})
    refused = Record("3", "a.cc", 20, xla_error="no module")
    for each in (good, differs, refused):
        append(tmp_path / "a.cc.jsonl", each)
    suite = rates.xla(tmp_path, "1.0")
    assert [part.passed for part in suite.parts] == [2, 1] and [part.expected for part in suite.parts] == [2, 2]
    assert [*suite.lost] == ["a.cc:9"]


def test_results_are_kept_as_they_are(tmp_path: Path) -> None:
    suites = {"jax": Suite("1", (Part("a", 5, 4, 2, 1),), {"t": "failed"})}
    rates.write(tmp_path / "rates.json", suites)
    assert rates.read(tmp_path / "rates.json") == suites


@pytest.mark.parametrize("rate, color", [(1.0, COLORS[0][1]), (0.99, COLORS[1][1]), (0.5, COLORS[-1][1])])
def test_badges_say_how_near_a_rate_is_to_one(rate: float, color: str) -> None:
    drawing = badge("a < b", "1 of 2", rate)
    assert color in drawing and "a &lt; b" in drawing
