"""The page of users' reports: every program belongs to a report, and losses are shown as such."""

from __future__ import annotations

from pathlib import Path

import benchmarks.issues.programs  # noqa: F401
from benchmarks.issues.issue import ISSUES, UNMEASURED
from benchmarks.issues.page import page
from benchmarks.kept_kernels import KeptKernels
from benchmarks.measure import Result, Side
from benchmarks.program import PROGRAMS


def test_each_report_has_a_program_and_names_its_thread() -> None:
    assert ISSUES.keys() <= PROGRAMS.keys()
    assert ISSUES["jax 26145"].link == "[jax 26145](https://github.com/jax-ml/jax/issues/26145)"


def test_the_page_shows_wins_losses_and_differences() -> None:
    fast, slow = Side(0.001, 0.01, 0.01, 1 << 20), Side(0.004, 0.02, 0.02, 2 << 20)
    results = [Result("jax 26145", fast, slow, 0.001, 0.005, 0.0), Result("jax 10434", slow, fast, 0.001, 0.005, 3.0)]
    made = page(results, KeptKernels(Path(), 9.2, 361, 800_000))
    assert "| run | 1 ms | 4 ms | 4.00 |" in made and "| run | 4 ms | 1 ms | 0.25 |" in made
    assert "| compile after `hloom warm` | 5 ms | 20 ms | 4.00 |" in made
    assert "took 9 s and keeps 361 files with 0.8 MB" in made
    assert made.count("**Results differ") == 1
    assert "[jax 10434](#jax-10434) | 0.25 | 2.00 | 0.50 | 2.00 |" in made and ISSUES["jax 10434"].reason in made
    assert all(issue.reason and f"| {issue.link} | {issue.reason} |" in made for issue in UNMEASURED)
