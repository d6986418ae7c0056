"""The soak test: its rules find leaks, and a short run passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from soak.samples import Sample, leaks

ROOT = Path(__file__).parents[2]


def sample(minutes: float, megabytes: float = 100.0, **held: int) -> Sample:
    memory = int(megabytes * 2**20)
    return Sample(
        60 * minutes, memory, memory, memory, memory, 500_000, **{"descriptors": 6, "threads": 8, "engines": 16, **held}
    )


def test_what_grows_from_pause_to_pause_is_a_leak() -> None:
    assert leaks([sample(k, 100 + k % 2) for k in range(10)]) == []
    assert leaks([sample(k, 100 + k) for k in range(10)]) == ["memory grew after warming up: live by 8.6%"]
    assert leaks([sample(0), sample(1, descriptors=7)]) == ["descriptors grew from 6 to 7"]
    assert leaks([sample(0), sample(1, threads=12)]) == ["threads grew from 8 to 12"]


def test_a_peak_is_no_leak() -> None:
    assert leaks([sample(k, 300 if k == 9 else 100) for k in range(10)]) == []


@pytest.mark.long
def test_a_short_run_passes() -> None:
    """Memory may grow: caches fill for more than half a minute."""
    command = [sys.executable, "tools/run_soak.py", "--minutes", "0.5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    report = json.loads(done.stdout[done.stdout.index("{") :])  # LAPACK prints there, too, about NaN
    assert [failure for failure in report["failures"] if "memory" not in failure] == [], done.stderr
    assert report["summary"]["programs"] > 20
