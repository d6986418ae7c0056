"""Parts of the replies of processes that run programs: times of calls, peak memory, results."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def times(work: Callable[[], object], seconds: float) -> list[float]:
    """Times calls until a number of seconds have passed, at least one."""
    found: list[float] = []
    while not found or sum(found) < seconds:
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return found


def peak_bytes() -> int:
    """The peak memory of this process in bytes. (That of `getrusage` starts with the parent's.)"""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def plain(array: Any) -> Any:
    """Converts an array to one that np.savez can store."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.kind == "V" else array
