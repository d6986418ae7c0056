"""Times a workload in this process, alternately on hloom and its peer, so that noise affects both.

As a script, this file is the child process of `isolated.py`: it takes the module's path and the settings as JSON, and
writes lines of JSON: a string at the start of each stage, and the result at the end.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hloom.analysis.flops import count_flops
from hloom.api import compile, load, parse
from hloom.bench.peer import Peer
from hloom.bench.workloads import Workload
from hloom.comparison import Comparison
from hloom.errors import HloomError
from hloom.files.arrays import flat
from hloom.ir import Module
from hloom.system.records import record
from hloom.values import Array, Value

MIN_SAMPLES = 3
SAMPLE_SECONDS = 1e-3
"""Minimum duration of a sample; shorter calls are repeated within it."""

PEER_STAGES = ("starting XLA", "compiling in XLA", "running in XLA")
"""Stages in which the peer may abort the process."""

TRIVIAL = "HloModule trivial ENTRY e { x = f32[] parameter(0) ROOT y = f32[] add(x, x) }"
"""Compiled before any timing, to exclude one-time costs (imports, initialisation of LLVM)."""


@dataclass(slots=True)
class Times:
    """Times in seconds: of the first compilation, of a second one with warm caches, and of a call in each sample."""

    compiling: float
    samples: list[float] = field(default_factory=list)
    compiling_again: float | None = None

    @property
    def median(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples)

    @property
    def shortest(self) -> float:
        """Time of a call in the fastest sample."""
        return min(self.samples)


@dataclass(slots=True)
class Result:
    """Result of a workload.

    `status` is that of hloom: "ok", "wrong", "failed", "crashed" or "timed out", with a message. `peer_problem` is the
    reason why the peer was not timed. `byte_count` is the size of arguments and results, a lower bound of the traffic.
    """

    workload: str
    path: str
    status: str = "ok"
    message: str = ""
    peer_problem: str = ""
    byte_count: int = 0
    flop_count: int | None = None
    hloom: Times | None = None
    peer: Times | None = None

    @property
    def ratio(self) -> float | None:
        """Speed-up over the peer; None without times of both or with a wrong result."""
        if self.hloom is None or self.peer is None or self.status != "ok":
            return None
        return self.peer.median / self.hloom.median

    @property
    def compile_ratio(self) -> float | None:
        """Speed-up of the compilation over the peer; None without times of both."""
        return self.peer.compiling / self.hloom.compiling if self.hloom and self.peer else None

    @staticmethod
    def from_json(values: dict[str, Any]) -> Result:
        """Inverse of `asdict`."""
        times = {side: Times(**values[side]) for side in ("hloom", "peer") if values[side]}
        return Result(**{**values, **times})


T = TypeVar("T")


@record(slots=True)
class Settings:
    """Settings of a measurement, which ends after `repeats` samples or a number of seconds."""

    backend: str
    with_peer: bool
    repeats: int
    seconds: float


Stage = Callable[[str], None]
Side = tuple[Callable[[], object], Times]


def measure(workload: Workload, settings: Settings, stage: Stage = lambda _: None) -> Result:
    """Compiles and runs a workload, compares the results, and times both sides alternately."""
    stage("reading the module")
    result = Result(workload.name, str(workload.module))
    try:
        module = load(workload.module)
        arguments = workload.arguments(module)
        result.byte_count = sum(s.byte_size for s in (*module.entry.parameter_shapes, module.entry.result_shape))
        result.flop_count = count_flops(module)
        compile(TRIVIAL, settings.backend)
        stage("compiling in hloom")
        compiling, executable = _timed(lambda: compile(module, settings.backend))
        again, executable = _timed(lambda: compile(module, settings.backend))
        result.hloom = Times(compiling, compiling_again=again)
        stage("running in hloom")
        got = flat(executable(*arguments))
    except HloomError as error:
        result.status, result.message = "failed", str(error)
        return result
    sides: list[Side] = [(lambda: executable(*arguments), result.hloom)]
    if settings.with_peer:
        try:
            side, want = _start_peer(module, arguments, stage)
        except Exception as error:  # jaxlib raises whatever it likes
            result.peer_problem = str(error).partition("\n")[0] or repr(error)
        else:
            sides.append(side)
            result.peer = side[1]
            result.message = Comparison(module, [arguments]).difference(tuple(got), tuple(want)) or ""
            result.status = "wrong" if result.message else "ok"
    stage("timing")
    time_alternately(sides, settings.repeats, settings.seconds)
    return result


def _start_peer(module: Module, arguments: list[Value], stage: Stage) -> tuple[Side, list[Array]]:
    """Compiles a module in the peer and runs it once; returns the peer's side and its results."""
    stage(PEER_STAGES[0])
    peer = Peer()
    peer.compile(peer.translate(parse(TRIVIAL)))
    translated = peer.translate(module)
    stage(PEER_STAGES[1])
    compiling, executable = _timed(lambda: peer.compile(translated))
    stage(PEER_STAGES[2])
    buffers = peer.put([leaf for argument in arguments for leaf in flat(argument)])
    return (lambda: executable(buffers), Times(compiling)), executable.arrays(buffers)


def time_alternately(sides: Sequence[Side], repeats: int, seconds: float) -> None:
    """Samples the sides alternately, `repeats` times or until `seconds` have passed, but at least `MIN_SAMPLES` times.

    Every side must have been called before, so that the work of a first call is not timed.
    """
    calls = [max(1, int(SAMPLE_SECONDS / max(_timed(call)[0], 1e-7))) for call, _ in sides]
    end = time.perf_counter() + seconds
    for done in range(repeats):
        if done >= MIN_SAMPLES and time.perf_counter() > end:
            break
        for (call, times), count in zip(sides, calls, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            times.samples.append((time.perf_counter() - start) / count)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    value = work()
    return time.perf_counter() - start, value


def _main() -> None:
    path, settings = json.loads(sys.argv[1])
    # Redirects all other output to standard error, to keep it out of the protocol.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(value: object) -> None:
        print(json.dumps(value), file=output, flush=True)

    with tempfile.TemporaryDirectory() as empty:
        # The first compilation must not hit the cache.
        os.environ["HLOOM_CACHE_DIR"] = empty
        send(asdict(measure(Workload.at(Path(path)), Settings(**settings), send)))


if __name__ == "__main__":
    _main()
