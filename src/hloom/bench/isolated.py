"""A workload timed in a process of its own: XLA aborts the process on some programs, and any program may not end."""

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
    """As `measure`; a process that dies or takes longer than `timeout` seconds makes a result that says so.

    Where the peer was at work by then, hloom is timed alone.
    """
    result, stage = _run_process(workload, settings, timeout)
    if stage not in PEER_STAGES:
        return result
    problem = result.message
    result, _ = _run_process(workload, replace(settings, with_peer=False), timeout)
    result.peer_problem = problem
    return result


def _run_process(workload: Workload, settings: Settings, timeout: float) -> tuple[Result, str]:
    """The result, and the stage in which the process came to its end if it has none to give, else ""."""
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
    """The stage, or the result, that a process wrote last."""
    whole = output.split(b"\n")[:-1]
    return json.loads(whole[-1]) if whole else "starting"


def _reason(process: subprocess.CompletedProcess[bytes]) -> str:
    """Why a process came to its end: the signal, or what it complained of last."""
    status = process.returncode
    complaint = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return signal.Signals(-status).name if status < 0 else complaint or f"exit status {status}"
