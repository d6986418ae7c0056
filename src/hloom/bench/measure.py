"""One workload timed in this process, hloom and its peer in turns, so that noise of the machine hits both.

As a script this file is the process of its own that `isolated` starts: it takes the module's path and the settings as
JSON and writes lines of JSON, a text for each stage that begins and the result at the end.
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

from hloom.api import compile, load, parse
from hloom.bench.peer import Peer
from hloom.bench.workloads import Workload
from hloom.errors import HloomError
from hloom.files.arrays import flat
from hloom.flops import count_flops
from hloom.ir import Module
from hloom.values import Array, Value

MIN_SAMPLES = 3
SAMPLE_SECONDS = 1e-3
"""Shorter calls are repeated within a round until they take so long together."""

PEER_STAGES = ("starting XLA", "compiling in XLA", "running in XLA")

TRIVIAL = "HloModule trivial ENTRY e { x = f32[] parameter(0) ROOT y = f32[] add(x, x) }"
"""Compiled before anything is timed, so that what a process does once (imports, LLVM's start) is not counted."""


@dataclass(slots=True)
class Times:
    """Seconds that the compilation took, at first and again with what is cached by then, and a call in each round."""

    compiling: float
    samples: list[float] = field(default_factory=list)
    compiling_again: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass(slots=True)
class Result:
    """What came of a workload.

    `status` concerns hloom: "ok", "wrong", "failed", "crashed" or "timed out", with a message. `peer_problem` says why
    there are no times of the peer. `byte_count` is the size of arguments and results, the least that has to be moved.
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
        """How many times as fast as the peer hloom ran, where its result is right."""
        if self.hloom is None or self.peer is None or self.status != "ok":
            return None
        return self.peer.median / self.hloom.median

    @property
    def compile_ratio(self) -> float | None:
        return self.peer.compiling / self.hloom.compiling if self.hloom and self.peer else None

    @staticmethod
    def from_json(values: dict[str, Any]) -> Result:
        times = {side: Times(**values[side]) for side in ("hloom", "peer") if values[side]}
        return Result(**{**values, **times})


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to time: rounds come to an end after `repeats` of them, or after so many seconds."""

    backend: str
    with_peer: bool
    repeats: int
    seconds: float


Stage = Callable[[str], None]
Side = tuple[Callable[[], object], Times]


def measure(workload: Workload, settings: Settings, stage: Stage = lambda _: None) -> Result:
    """Compiles and runs a workload, compares the results, and times both sides in rounds."""
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
            result.message = workload.difference(got, want)
            result.status = "wrong" if result.message else "ok"
    stage("timing rounds")
    time_alternately(sides, settings.repeats, settings.seconds)
    return result


def _start_peer(module: Module, arguments: list[Value], stage: Stage) -> tuple[Side, list[Array]]:
    """The peer's side, compiled and run once, and its results."""
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
    """Calls the sides in turns, `repeats` times or until so many seconds have passed, and notes how long a call took.

    Every side has been called before: what a first call does besides is not timed.
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
    # What anything else prints goes to the error output, so that it does not mix with the answers.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(value: object) -> None:
        print(json.dumps(value), file=output, flush=True)

    with tempfile.TemporaryDirectory() as empty:
        # The first compilation is to be one.
        os.environ["HLOOM_CACHE_DIR"] = empty
        send(asdict(measure(Workload.at(Path(path)), Settings(**settings), send)))


if __name__ == "__main__":
    _main()
