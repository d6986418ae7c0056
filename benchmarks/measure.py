"""Measures one program or module on both sides: steps, compilation with caches empty, full and after `hloom warm`,
memory.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.kept_kernels import caches_in, folder_with_kept_kernels
from benchmarks.process import Process
from benchmarks.program import PROGRAMS

REPETITIONS = 5
COMPILES = 3
REPETITION_SECONDS = 1.0
REST_SECONDS = 0.3
"""Pause for the threads of the last worker, which may spin after a run, in seconds."""


@dataclass(frozen=True)
class Side:
    """The measurements of one platform: seconds, and the peak memory of the process in bytes.

    `initialise` is the time of the program's initialisation, which for a module is that of reading its text.
    """

    step: float
    compile: float
    initialise: float
    memory: int


@dataclass(frozen=True)
class Result:
    """The measurements of a program on both platforms.

    `cached` is the time of hloom's compilation with a full cache, `warmed` with a cache that has what `hloom warm`
    keeps and nothing else; `difference` is relative to `tolerance`.
    """

    name: str
    hloom: Side
    xla: Side
    cached: float
    warmed: float
    difference: float

    @property
    def agrees(self) -> bool:
        return self.difference <= 1


SIDES = ("hloom", "cpu")
"""The platforms, in the order of the measurements."""

Start = Callable[[str, Path], Process]
"""Starts a worker for a side, with a folder for its cache and results."""


@dataclass(frozen=True)
class Run:
    """Replies of one worker: the times of its compilation and steps, the file of its results, and its memory."""

    compiled: dict[str, float]
    steps: list[float]
    results: str
    memory: int


def measure_program(name: str, seconds: float = REPETITION_SECONDS, compiles: int = COMPILES) -> Result:
    """Measures a program through JAX on both platforms."""

    def start(platform: str, folder: Path) -> Process:
        return Process(
            "benchmarks.worker",
            name,
            str(folder / f"{platform}.npz"),
            JAX_PLATFORMS=platform,
            **caches_in(folder),
            JAX_ENABLE_COMPILATION_CACHE="0",
        )

    return measure(name, start, PROGRAMS[name].tolerance, seconds, compiles)


def measure(
    name: str,
    start: Start,
    tolerance: float,
    seconds: float = REPETITION_SECONDS,
    compiles: int = COMPILES,
    together: bool = True,
) -> Result:
    """Measures a program on both sides, alternately; compilation is the median of `compiles`.

    Each side repeats the step five times for `seconds`. Programs too large for two processes at a time are measured
    with `together` unset: one side after the other.
    """
    groups = (SIDES,) if together else tuple((side,) for side in SIDES)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        runs = [run for group in groups for run in _run_alternately(group, start, folder, seconds)]
        difference = _difference([run.results for run in runs], tolerance)
        with start(SIDES[0], folder) as again:
            again.request("ready")
            cached = again.request("compile")["compile"]
    compiled, warmed = [[run.compiled for run in runs]], [_compile_warmed(start)]
    for _ in range(compiles - 1):
        with tempfile.TemporaryDirectory() as made, _workers(SIDES, start, Path(made)) as workers:
            compiled.append(_compile_alternately(workers))
        warmed.append(_compile_warmed(start))
    sides = [
        Side(float(np.median(run.steps)), **_medians(each), memory=run.memory)
        for run, each in zip(runs, zip(*compiled, strict=True), strict=True)
    ]
    return Result(name, sides[0], sides[1], cached, float(np.median(warmed)), difference)


@contextlib.contextmanager
def _workers(sides: Sequence[str], start: Start, folder: Path) -> Iterator[list[Process]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(start(side, folder)) for side in sides]


def _run_alternately(sides: Sequence[str], start: Start, folder: Path, seconds: float) -> list[Run]:
    """Compiles and runs on the sides alternately, each in a process of its own."""
    with _workers(sides, start, folder) as workers:
        compiled = _compile_alternately(workers)
        steps: list[list[float]] = [[] for _ in workers]
        for worker in workers:
            worker.request("step 0")  # warms up
        for worker, found in [*zip(workers, steps, strict=True)] * REPETITIONS:
            time.sleep(REST_SECONDS)
            found += worker.request(f"step {seconds}")
        replies = [(worker.request("result"), worker.request("memory")) for worker in workers]
    return [Run(first, found, *reply) for first, found, reply in zip(compiled, steps, replies, strict=True)]


def _compile_alternately(workers: Sequence[Process]) -> list[dict[str, float]]:
    """Compiles on each worker, with empty caches; returns their times."""
    for worker in workers:
        worker.request("ready")  # imports of one must not slow the other's compilation
    found = []
    for worker in workers:
        time.sleep(REST_SECONDS)
        found.append(worker.request("compile"))
    return found


def _compile_warmed(start: Start) -> float:
    """Returns the time of hloom's compilation after `hloom warm`."""
    with folder_with_kept_kernels() as folder, _workers(SIDES[:1], start, folder) as workers:
        (found,) = _compile_alternately(workers)
        return found["compile"]


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
