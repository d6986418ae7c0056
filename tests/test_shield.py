"""Interrupts and forks: no work is left half-done by a signal, and forked children compile and run.

The programs run in processes of their own: what is wrong here ends a process, or hangs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKS = ("parsing", "compiling", "loading", "running", "interpreting", "replicating")
CASES = int(os.environ.get("HLOOM_CASES", "1000"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX signals and fork")


def run(*command: str, seconds: float) -> None:
    """Runs Python with these arguments; it must end well, and have nothing to say."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=seconds)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def interrupt(work: str, times: int, seed: int, seconds: float) -> None:
    run(str(Path(__file__).with_name("interrupted_work.py")), work, str(times), str(seed), seconds=seconds)


@pytest.mark.parametrize("work", WORKS)
def test_an_interrupt_leaves_all_usable(work: str) -> None:
    interrupt(work, 4, 1, 120)


@pytest.mark.long
@pytest.mark.parametrize("work", WORKS)
def test_a_thousand_interrupts_leave_all_usable(work: str) -> None:
    interrupt(work, -(-CASES // len(WORKS)), 2, 3000)
