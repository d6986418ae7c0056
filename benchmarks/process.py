"""Processes that reply to lines with lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
LONGEST_S = 600.0
"""Time after which a request is given up: a peer may hang."""


class Process:
    """A process `python -m module arguments` with additional environment variables."""

    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def request(self, command: str, seconds: float = LONGEST_S) -> Any:
        """Sends a line and returns the reply. Raises RuntimeError if the process ends, or takes longer and is
        killed.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(command, file=self.process.stdin, flush=True)
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            ended = f"ended with {self.process.wait()}" if ready else f"did not reply within {seconds:.0f} s"
            raise RuntimeError(f"a worker {ended} when asked to {command}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()
