"""The page of programs on every target, which is written from recorded runs."""

from __future__ import annotations

from pathlib import Path

from conftest import ROOT
from targets import page
from targets.page import Run

RECORDED = ROOT / "docs" / "targets.json"


def test_the_page_is_that_of_the_record() -> None:
    assert page.written(page.recorded(RECORDED)) == RECORDED.with_suffix(".md").read_text()


def test_runs_are_read_as_written(tmp_path: Path) -> None:
    runs = [
        Run("native: a", "native", "a", "same", size=4096, seconds=1e-3, jit_seconds=2e-3),
        Run("native: b", "native", "b", "failed", "rc 3"),
        Run("macos-x86-64: a", "macos-x86-64", "a", "linked"),
    ]
    page.record(tmp_path / "runs.json", {run.key: run for run in runs})
    assert [*page.recorded(tmp_path / "runs.json").values()] == runs
    assert "| native | this machine | 2 | 1 | 0 | 0 | 1 | 0 | 4 KB | 2.00 |" in page.written({r.key: r for r in runs})
