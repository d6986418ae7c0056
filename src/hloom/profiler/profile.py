"""Runs a program with timers around its steps."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hloom.analysis.flops import count_flops_of
from hloom.api import prepare
from hloom.backends.cpu.codegen.timer_functions import (
    COUNTER_WORDS,
    COUNTERS,
    EVENT_COUNT,
    EVENTS,
    MAX_EVENTS,
    READ_CLOCK,
)
from hloom.backends.cpu.compiler import compile_timed
from hloom.backends.cpu.executable import CpuExecutable
from hloom.bench.machine import measure_limits
from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.profiler import report
from hloom.profiler.measured import Kernel, Measured
from hloom.runtime.executable import RunOptions
from hloom.stablehlo.importer.from_jax import traced
from hloom.system.machine import thread_count

if TYPE_CHECKING:
    from hloom.builder import XlaComputation

CALIBRATION_SECONDS = 0.02
MIN_SECONDS, MIN_RUNS, MAX_RUNS = 0.5, 3, 1000


class Profile(Measured):
    """The profile of a program, which prints as a table and can be saved as a plot or a trace."""

    def __str__(self) -> str:
        return report.table_text(self)

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        return report.table_html(self)

    def save(self, path: str) -> None:
        """Writes a plot (.svg, .png, .pdf), or a trace of the events for Perfetto and chrome://tracing (.json).

        Raises ArgumentError for another extension or a file that cannot be written.
        """
        report.save(self, path)


def profile(
    module: Module | XlaComputation | str | Callable[..., Any], *arguments: Any, seconds: float = MIN_SECONDS
) -> Profile:
    """Profiles a module, HLO text, or a function that JAX can trace, by running it for at least `seconds`.

    It runs on one device. Raises HloomError if the module does not compile or the arguments do not match.
    """
    program, arguments = traced(module, arguments)
    ready = prepare(program)
    if ready.replica_count * ready.num_partitions != 1:
        raise ArgumentError(f"a profile runs on one device, and {ready.name} is for several")
    compiled = compile_timed(ready)
    timed = CpuExecutable(ready, RunOptions(1, None, math.inf, 0, False), compiled)
    plain = _plain(ready)
    assert compiled.optimized is not None
    counters = _Counters(timed, len(compiled.timed))
    durations, plain_durations = _run_alternately(timed, plain, arguments, counters, seconds)
    by_name = {i.name: i for i in compiled.optimized.instructions()}
    runs = len(durations)
    kernels = []
    for step, (count, cycles, worked) in zip(compiled.timed, counters.read(), strict=True):
        instruction = by_name.get(step.name)
        flops = None if instruction is None else count_flops_of(instruction)
        seconds_each = cycles / counters.frequency / runs
        waiting = max(0.0, 1 - worked / (cycles * thread_count())) if cycles else 0.0
        kernels.append(
            Kernel(step.name, step.kind, seconds_each, count / runs, step.bytes, flops, instruction, waiting)
        )
    overhead = float(np.median(durations) / np.median(plain_durations)) - 1
    mean_seconds, limits = float(np.mean(durations)), measure_limits()
    return Profile(ready.name, mean_seconds, overhead, kernels, counters.events(), limits, compiled.optimized)


def _plain(module: Module) -> Any:
    """The program without timers."""
    from hloom.api import compile

    return compile(module, seed=0)


def _run_alternately(
    timed: CpuExecutable, plain: Any, arguments: Sequence[Any], counters: _Counters, seconds: float
) -> tuple[list[float], list[float]]:
    """Times calls of both programs alternately, after an untimed call of each."""
    timed(*arguments)
    plain(*arguments)
    counters.reset()
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + 2 * seconds
    while len(times[0]) < MIN_RUNS or (time.perf_counter() < end and len(times[0]) < MAX_RUNS):
        for executable, found in ((timed, times[0]), (plain, times[1])):
            started = time.perf_counter()
            executable(*arguments)
            found.append(time.perf_counter() - started)
    return times


class _Counters:
    """The counters of a timed program."""

    def __init__(self, executable: CpuExecutable, rows: int) -> None:
        code = executable.code
        self._counters = _words(code.data_address(COUNTERS), COUNTER_WORDS * rows).reshape(rows, COUNTER_WORDS)
        self._events = _words(code.data_address(EVENTS), 3 * MAX_EVENTS).reshape(MAX_EVENTS, 3)
        self._event_count = _words(code.data_address(EVENT_COUNT), 1)
        self._clock = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address(READ_CLOCK))
        self.frequency = self._measure_frequency()

    def _measure_frequency(self) -> float:
        """Frequency in Hz of the clock that programs read."""
        first, started = self._clock(), time.perf_counter()
        time.sleep(CALIBRATION_SECONDS)
        return (self._clock() - first) / (time.perf_counter() - started)

    def reset(self) -> None:
        """Clears counters and events."""
        self._counters[:] = 0
        self._event_count[:] = 0

    def read(self) -> list[tuple[int, int, int]]:
        """Number of runs, cycles, and cycles of work of all threads, for each step."""
        return [(int(count), int(cycles), int(worked)) for count, cycles, worked in self._counters]

    def events(self) -> list[tuple[int, float, float]]:
        """Events of the first run, which ends where the first step occurs again."""
        found = self._events[: int(self._event_count[0])]
        if not len(found):
            return []
        begin = int(found[0, 1])
        runs = np.flatnonzero(found[:, 0] == found[0, 0])
        total = int(self._counters[int(found[0, 0]), 0])
        end = len(found) if total <= 1 or len(runs) < 2 else int(runs[1])
        return [
            (int(row), (int(start) - begin) / self.frequency, (int(stop) - begin) / self.frequency)
            for row, start, stop in found[:end]
        ]


def _words(address: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    memory = (ctypes.c_int64 * count).from_address(address)
    return np.frombuffer(memoryview(memory), np.int64)
