"""Jobs count, go on where they stopped, and record findings; children that crash or hang are started again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hloom as hl
from conftest import ROOT
from hloom.cli import main
from hloom.faults.case import Case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.job import Job
from hloom.fuzz.oracles import Problem, text_round_trip
from hloom.fuzz.reference import Reference
from hloom.fuzz.report import page
from hloom.fuzz.state import State
from hloom.fuzz.supervisor import progress
from hloom.system.child import Child, ChildDied, ChildTimedOut


def dislikes_broadcasts(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    found = any(i.opcode == "broadcast" for i in case.module.instructions())
    return Problem("difference", "a broadcast <b>") if found else None


def work(state: State, modules: int) -> Job:
    job = Job(state, 0)
    job.oracles = {"text": text_round_trip, "planted": dislikes_broadcasts}
    for _ in range(modules):
        job.step(job.counts.seed)
        job.counts.seed += 1
    job.stop()
    return job


def test_a_job_records_findings_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert work(state, 3).counts.modules == 3
    assert work(state, 2).counts.modules == 5
    (counts,) = state.jobs()
    assert counts.seed == 5 and counts.comparisons["text"] == 5 and counts.lines["text/printer.py"]
    finding, folder = min(state.findings(), key=lambda pair: len(pair[0].operations))
    assert finding.operations == ["broadcast"] or finding.operations == ["broadcast", "constant"]
    assert hl.load(folder / "case.hlo").entry.root.opcode == "broadcast"
    assert hl.Snapshot.load(folder / "case.pb").module.entry.root.opcode == "broadcast"
    assert "5 modules" in progress(state)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    state = State(tmp_path_factory.mktemp("state"))
    work(state, 4)
    return state


def test_the_report_has_figures_findings_and_coverage_and_no_markup_of_messages(state: State) -> None:
    text = page(state)
    assert "{{" not in text and "<script" not in text
    assert "<b>4</b>modules" in text and "planted: difference" in text and "a broadcast &lt;b&gt;" in text
    assert "title='broadcast f32:" in text and "text</td><td class=n>" in text


def test_the_command_says_what_was_found(state: State, tmp_path: Path) -> None:
    report = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["fuzz", "--minutes", "0", "--folder", str(state.folder), "--report", str(report)])
    assert done.exit_code == 1 and "planted" in done.output and "case.hlo" in done.output
    assert "planted: difference" in report.read_text()
    assert json.loads((state.folder / "job-0.json").read_text())["modules"] == 4


@pytest.fixture
def child() -> Child:
    return Child("answering", {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests' / 'fuzz'}"})


def test_children_are_started_again(child: Child) -> None:
    assert child.request(b"a") == b"A"
    with pytest.raises(ChildDied, match="SIGABRT"):
        child.request(b"die")
    with pytest.raises(ChildTimedOut, match="0.2 s"):
        child.request(b"hang", 0.2)
    assert child.request(b"b") == b"B"
    child.close()
