"""Measures one program on both platforms: steps, compilation with empty and with full caches, memory."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.process import Process
from benchmarks.program import PROGRAMS

REPETITIONS = 5
COMPILES = 3
REPETITION_SECONDS = 1.0
REST_SECONDS = 0.3
"""Pause for the threads of the last worker, which may spin after a run, in seconds."""


@dataclass(frozen=True)
class Side:
    """The measurements of one platform: seconds, and the peak memory of the process in bytes."""

    step: float
    compile: float
    initialise: float
    memory: int


@dataclass(frozen=True)
class Result:
    """The measurements of a program on both platforms.

    `cached` is the time of hloom's compilation with a full cache; `difference` is relative to `tolerance`.
    """

    name: str
    hloom: Side
    xla: Side
    cached: float
    difference: float

    @property
    def agrees(self) -> bool:
        return self.difference <= 1


class Worker(Process):
    """A process that runs one program on one platform."""

    def __init__(self, name: str, platform: str, folder: Path) -> None:
        super().__init__(
            "benchmarks.worker",
            name,
            str(folder / f"{platform}.npz"),
            JAX_PLATFORMS=platform,
            XDG_CACHE_HOME=str(folder / "cache"),
            JAX_ENABLE_COMPILATION_CACHE="0",
        )


def measure(name: str) -> Result:
    """Measures a program on both platforms."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with Worker(name, "hloom", folder) as ours, Worker(name, "cpu", folder) as theirs:
            workers = (ours, theirs)
            compiled = [_compile_alternately(workers)]
            times: list[list[float]] = [[], []]
            for worker in workers:
                worker.request("step 0")  # warms up
            for worker, found in [*zip(workers, times, strict=True)] * REPETITIONS:
                time.sleep(REST_SECONDS)
                found += worker.request(f"step {REPETITION_SECONDS}")
            difference = _difference([worker.request("result") for worker in workers], PROGRAMS[name].tolerance)
            memory = [worker.request("memory") for worker in workers]
        with Worker(name, "hloom", folder) as again:
            cached = again.request("compile")["compile"]
    for _ in range(COMPILES - 1):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            with Worker(name, "hloom", folder) as ours, Worker(name, "cpu", folder) as theirs:
                compiled.append(_compile_alternately((ours, theirs)))
    sides = [
        Side(float(np.median(found)), **_medians(each), memory=held)
        for found, each, held in zip(times, zip(*compiled, strict=True), memory, strict=True)
    ]
    return Result(name, sides[0], sides[1], cached, difference)


def _compile_alternately(workers: tuple[Worker, Worker]) -> list[dict[str, float]]:
    """Compiles on each worker, with empty caches; returns their times."""
    for worker in workers:
        worker.request("ready")  # imports of one must not slow the other's compilation
    found = []
    for worker in workers:
        time.sleep(REST_SECONDS)
        found.append(worker.request("compile"))
    return found


def _medians(found: tuple[dict[str, float], ...]) -> dict[str, float]:
    return {key: float(np.median([each[key] for each in found])) for key in found[0]}


def _difference(files: list[str], tolerance: float) -> float:
    """The largest difference, relative to the largest element of its array and to the tolerance."""
    ours, theirs = (np.load(file) for file in files)
    worst = 0.0
    for name in ours.files:
        a, b = (np.asarray(each[name]).astype(np.complex128) for each in (ours, theirs))
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        apart = np.abs(np.where(np.isfinite(a), a - b, 0)).max(initial=0.0)
        allowed = tolerance * np.abs(np.where(np.isfinite(b), b, 0)).max(initial=0.0)
        worst = max(worst, apart / allowed if apart else 0.0) if allowed else max(worst, float("inf") if apart else 0.0)
    return worst
