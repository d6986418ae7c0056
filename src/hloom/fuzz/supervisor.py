"""Starts jobs as processes, shows progress, and starts a job again that crashed or hangs: its case is a finding."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hloom.faults.case import Case
from hloom.files.snapshot import Snapshot
from hloom.fuzz.job import Job
from hloom.fuzz.state import Finding, State, operations_of

SHOW_SECONDS = 30.0
HANG_SECONDS = 600.0
"""Time without a new case after which a job is stopped; a reduction takes two minutes at most."""


@dataclass
class _Process:
    number: int
    process: subprocess.Popen[bytes]
    started: float


def supervise(state: State, jobs: int, seconds: float, show: Callable[[str], object]) -> None:
    """Runs jobs for some seconds; `show` is called with a line on the progress now and then."""
    deadline, shown = time.monotonic() + seconds, time.monotonic()
    running = [_start(state, number, seconds) for number in range(jobs if seconds > 0 else 0)]
    try:
        while running:
            time.sleep(0.5)
            for job in [*running]:
                status = _status(state, job)
                if status is None:
                    continue
                running.remove(job)
                left = deadline - time.monotonic()
                if status:
                    _record(state, job, status)
                    running += [_start(state, job.number, left)] if left > 1 else []
            if time.monotonic() - shown > SHOW_SECONDS or not running:
                shown = time.monotonic()
                show(progress(state))
    finally:
        for job in running:
            job.process.terminate()


def progress(state: State) -> str:
    """Describes what all jobs have done."""
    jobs = state.jobs()
    modules, hours = sum(j.modules for j in jobs), sum(j.cpu_seconds for j in jobs) / 3600
    comparisons = sum(sum(j.comparisons.values()) for j in jobs)
    reached = len({pair for j in jobs for pair in j.pairs if not pair.endswith(" ")})
    findings = len(state.findings())
    return f"{hours:.2f} CPU hours, {modules} modules, {comparisons} comparisons, {reached} pairs, {findings} findings"


def _start(state: State, number: int, seconds: float) -> _Process:
    code = "import sys; from hloom.fuzz.supervisor import work; work(*sys.argv[1:])"
    command = [sys.executable, "-W", "ignore", "-c", code, str(state.folder), str(number), str(seconds)]
    errors = (state.folder / f"errors-{number}.txt").open("ab")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors)
    errors.close()
    return _Process(number, process, time.time())


def work(folder: str, number: str, seconds: str) -> None:
    """Runs a job in this process."""
    Job(State(Path(folder)), int(number)).run(float(seconds))


def _status(state: State, job: _Process) -> str | None:
    """Returns how a job ended, "" if as it should; None while it works."""
    status = job.process.poll()
    if status is not None:
        return "" if status == 0 else f"the job ended with status {status}"
    current = state.current(job.number)
    last = max(job.started, current.stat().st_mtime if current.exists() else 0)
    if time.time() - last < HANG_SECONDS:
        return None
    job.process.kill()
    return f"the job did not end within {HANG_SECONDS:g} s"


def _record(state: State, job: _Process, status: str) -> None:
    """Adds the case of a job that ended as a finding, and makes the job go on after it."""
    counts = state.load(job.number)
    current = state.current(job.number)
    if current.exists():
        snapshot = Snapshot.load(current)
        case = Case(snapshot.module, tuple(snapshot.arguments))
        kind = "hang" if "within" in status else "crash"
        state.add(Finding("job", kind, status, operations_of(case), counts.seed), case)
    # The counts may be some seconds old: skip the cases since then.
    counts.seed += 1000
    state.save(job.number, counts)
