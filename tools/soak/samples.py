"""Samples of memory, file descriptors, threads and machine code of a process over time, and tests for growth."""

from __future__ import annotations

import ctypes
import itertools
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hloom.backends.cpu.llvm import machine_code

MAX_GROWTH = 0.05
"""The largest growth of memory after warming up, relative to its median."""

ABANDONED_THREADS = 3
"""Threads that may still run in a pause: interrupted compilations end at their next checkpoint."""


@dataclass(frozen=True)
class Sample:
    """Holdings of the process at a time in seconds from the start; memory in bytes. Counts are of all so far."""

    time: float
    rss: int
    pss: int
    anonymous: int
    """Memory without a file behind it. (The share of a file depends on the other processes that map it.)"""
    live: int
    """Memory that the C library has given out: freed memory, of which it keeps much, is not counted."""
    blocks: int
    """Blocks of memory that Python objects occupy."""
    descriptors: int
    threads: int
    engines: int
    """Programs whose machine code is loaded."""
    programs: int = 0
    interrupts: int = 0
    forks: int = 0
    evictions: int = 0
    refusals: int = 0
    """Errors for lack of memory or of time, which are expected."""


def take_sample(time: float, **counts: int) -> Sample:
    """Returns what this process holds now."""
    sizes = _memory()
    return Sample(
        round(time, 1),
        sizes["Rss"],
        sizes["Pss"],
        sizes["Anonymous"],
        _live_bytes(),
        sys.getallocatedblocks(),
        len(os.listdir("/proc/self/fd")) - 1,  # listing opens one
        len(os.listdir("/proc/self/task")),
        len(machine_code._engines),
        **counts,
    )


def _memory() -> dict[str, int]:
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    return {name.rstrip(":"): 1024 * int(size) for name, size, _ in lines}


class _Statistics(ctypes.Structure):
    """The structure `mallinfo2` of the C library."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    ]


def _live_bytes() -> int:
    query = ctypes.CDLL(None).mallinfo2
    query.restype = _Statistics
    found = query()
    return int(found.uordblks + found.hblkhd)


def growth(samples: Sequence[Sample], what: str) -> float:
    """Returns the growth of a quantity over the samples, relative to its median, along their trend.

    The trend is the median slope of all pairs of points (Theil and Sen), which a few peaks do not change.
    """
    pairs = itertools.combinations(samples, 2)
    slopes = [(getattr(b, what) - getattr(a, what)) / (b.time - a.time) for a, b in pairs if b.time > a.time]
    if not slopes:
        return 0.0
    duration = samples[-1].time - samples[0].time
    return statistics.median(slopes) * duration / statistics.median(getattr(sample, what) for sample in samples)


def leaks(quiet: Sequence[Sample]) -> list[str]:
    """Returns what has leaked, from samples of pauses: in the last one no more may be held than in the first half."""
    found = []
    for what, slack in (("descriptors", 0), ("threads", ABANDONED_THREADS), ("engines", 0)):
        before = max(getattr(sample, what) for sample in quiet[: max(1, len(quiet) // 2)])
        after = getattr(quiet[-1], what)
        if after > before + slack:
            found.append(f"{what} grew from {before} to {after}")
    for what in ("live", "blocks"):
        if (grown := growth(quiet, what)) > MAX_GROWTH:
            found.append(f"memory grew after warming up: {what} by {grown:.1%}")
    return found
