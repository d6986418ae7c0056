"""Times a workload in a child process, since XLA aborts the process on some programs, and programs may not end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

from hloom.bench.measure import PEER_STAGES, Result, Settings
from hloom.bench.workloads import Workload


def measure_isolated(workload: Workload, settings: Settings, timeout: float) -> Result:
    """Runs `measure` in a child process; if that dies or exceeds `timeout` seconds, the result has that status.

    If the peer was running at that time, hloom is timed alone.
    """
    result, stage = _run_process(workload, settings, timeout)
    if stage not in PEER_STAGES:
        return result
    problem = result.message
    result, _ = _run_process(workload, replace(settings, with_peer=False), timeout)
    result.peer_problem = problem
    return result


def _run_process(workload: Workload, settings: Settings, timeout: float) -> tuple[Result, str]:
    """Runs the process; returns its result and "", or a failure and the stage in which the process ended."""
    path = str(workload.module)
    command = [sys.executable, "-m", "hloom.bench.measure", json.dumps([path, asdict(settings)])]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    try:
        process = subprocess.run(command, capture_output=True, timeout=timeout, env=environment)
        output, status, reason = process.stdout, "crashed", _reason(process)
    except subprocess.TimeoutExpired as expired:
        output, status, reason = expired.stdout or b"", "timed out", f"took more than {timeout:g} s"
    last = _last_line(output)
    if isinstance(last, dict):
        return Result.from_json(last), ""
    return Result(workload.name, path, status, f"{last}: {reason}"), last


def _last_line(output: bytes) -> Any:
    """The last stage or result that a process wrote."""
    whole = output.split(b"\n")[:-1]
    return json.loads(whole[-1]) if whole else "starting"


def _reason(process: subprocess.CompletedProcess[bytes]) -> str:
    """Why a process ended: the signal, or its last line of error output."""
    status = process.returncode
    complaint = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return signal.Signals(-status).name if status < 0 else complaint or f"exit status {status}"
