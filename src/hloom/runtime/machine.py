"""What the machine gives this process: processors and memory, and the control groups that bound them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from hloom.errors import ArgumentError

MAX_THREADS = 4096


def thread_count() -> int:
    """HLOOM_NUM_THREADS, or else the CPUs that affinity and the quotas of control groups leave to this process."""
    text = os.environ.get("HLOOM_NUM_THREADS")
    if text is None:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        quota = min(map(cpu_quota, control_groups("cpu")), default=math.inf)
        return math.ceil(min(cpus, MAX_THREADS, quota))
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise ArgumentError(f"HLOOM_NUM_THREADS must be an integer from 1 to {MAX_THREADS}, got {text!r}")
    return int(text)


def memory_size() -> int:
    """The bytes of memory that this process may use: the machine's, or less where a control group says so."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                limits.append(int((group / name).read_text()))
    return min(limits)


def control_groups(
    controller: str, mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Iterator[Path]:
    """The directories, v1 and v2, of the control groups that bound this process, from its own up to the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root = mount
        elif controller in controllers.split(","):
            root = mount / controller
        else:
            continue
        group = root / path.lstrip("/")
        while group != root:
            yield group
            group = group.parent
        yield root


def cpu_quota(group: Path) -> float:
    """How many CPUs a control group may use (cpu.max in v2, cpu.cfs_* in v1); infinite where nothing is set."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf
