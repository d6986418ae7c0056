"""Runs a program with timers around its steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hloom.analysis.flops import count_flops_of
from hloom.api import compile, prepare
from hloom.backends.cpu.codegen.step_timer import ITERATION, TimedStep
from hloom.backends.cpu.compiler import compile_timed
from hloom.backends.cpu.executable import CpuExecutable
from hloom.bench.limits import Limits
from hloom.bench.machine import limits_of_machine
from hloom.errors import ArgumentError, counted
from hloom.ir import Module
from hloom.profiler import report
from hloom.profiler.calls import Calls, Words, clock_frequency, run_alternately
from hloom.profiler.measured import Event, Kernel, Measured
from hloom.profiler.totals import Total, compare, totals_of
from hloom.runtime.executable import RunOptions
from hloom.stablehlo.importer.from_jax import traced
from hloom.system.machine import thread_count

if TYPE_CHECKING:
    from hloom.builder import XlaComputation

MIN_SECONDS = 0.5


class Profile(Measured):
    """The profile of a program, which prints as a table and can be saved as a plot or a trace.

    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }"
    >>> profile = hl.profile(module, np.float32([1, 2]), seconds=0.01)
    >>> profile.kernels[0].name, profile.seconds > 0
    ('y', True)
    """

    def __str__(self) -> str:
        return report.table_text(self)

    def __repr__(self) -> str:
        return f"Profile({self.name}: {1e6 * self.seconds:.1f} us per call, {counted(len(self.kernels), 'kernel')})"

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        return report.table_html(self)

    def totals(self, by: str) -> list[Total]:
        """Returns the time of all kernels with the same `scope`, `source` or `opcode`, the largest first.

        Scopes are those of traced functions; each includes the scopes inside it. Raises ArgumentError for another key.
        """
        return totals_of(self, by)

    def compare(self, before: Measured) -> str:
        """Returns a table of the kernels whose times differ most from those of an earlier profile.

        Kernels correspond if they have the same scope and opcode, or else the same name.
        """
        return report.plain_text(compare(before, self), f"{before.name} -> {self.name}")

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

    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }"
    >>> hl.profile(module, np.float32([1, 2]), seconds=0.01).kernels[0].name
    'y'
    """
    program, arguments = traced(module, arguments)
    ready = prepare(program)
    if ready.replica_count * ready.num_partitions != 1:
        raise ArgumentError(f"a profile runs on one device, and {ready.name} is for several")
    compiled = compile_timed(ready)
    assert compiled.optimized is not None
    timed = CpuExecutable(ready, RunOptions(timeout=math.inf, seed=0), compiled)
    limits = limits_of_machine()
    calls = run_alternately(timed, len(compiled.timed), compile(ready, seed=0), arguments, seconds)
    frequency = clock_frequency(timed)
    counters = _counters(calls, compiled.timed)
    kernels = _kernels(counters, compiled.timed, compiled.optimized, frequency)
    durations = np.array(calls.durations)[calls.calm]
    return Profile(
        ready.name,
        sum(kernel.seconds for kernel in kernels) + _seconds_outside(durations, counters, frequency),
        _spread(durations),
        float(np.median(calls.durations) / np.median(calls.plain_durations)) - 1,
        len(durations),
        len(calls.durations) - len(durations),
        [kernel for kernel in kernels if kernel.kind != ITERATION],
        _events(calls, kernels, frequency),
        _at_least(limits, kernels),
        compiled.optimized,
    )


def _counters(calls: Calls, steps: list[TimedStep]) -> Words:
    """Returns the counters of the calls that are counted. The cycles of a parallel loop are divided among its steps, by
    their cycles on all threads, and the loop, which has the rest.
    """
    counters = np.stack(calls.counters)[calls.calm]
    for row, step in enumerate(steps):
        if step.loop is not None:
            counters[:, row, 1] //= thread_count()
            counters[:, step.loop, 1:] -= counters[:, row, 1:]
    return counters


def _kernels(counters: Words, steps: list[TimedStep], optimized: Module, frequency: float) -> list[Kernel]:
    """Returns the measurements of each row of the counters."""
    by_name = {i.name: i for i in optimized.instructions()}
    found, timed_inside = [], {step.loop for step in steps}
    for row, (step, (runs, cycles, worked)) in enumerate(zip(steps, counters.transpose(1, 2, 0), strict=True)):
        instruction = by_name.get(step.name)
        flops = None if instruction is None or row in timed_inside else count_flops_of(instruction)
        waiting = max(0.0, 1 - worked.sum() / (cycles.sum() * thread_count())) if cycles.any() else 0.0
        times = cycles / frequency
        measured = float(np.median(times)), _spread(times), float(times.min()), float(runs.mean())
        found.append(Kernel(step.name, step.kind, *measured, step.bytes, flops, instruction, waiting))
    return found


def _seconds_outside(durations: np.ndarray[Any, Any], counters: Words, frequency: float) -> float:
    """Returns the median time of a call that it spends outside of timed steps."""
    inside = counters[:, :, 1].sum(axis=1) / frequency
    return max(0.0, float(np.median(durations - inside)))


def _spread(samples: np.ndarray[Any, Any]) -> float:
    low, high = np.percentile(samples, (25, 75))
    return float(high - low) / 2


def _at_least(limits: Limits, kernels: list[Kernel]) -> Limits:
    """Returns limits that no kernel exceeds: they are measured again if the machine was busy when they were."""
    return limits_of_machine(improve=True) if any(k.share_of_limit(limits) > 1 for k in kernels) else limits


def _events(calls: Calls, kernels: list[Kernel], frequency: float) -> list[Event]:
    """Returns the events of the fastest call: steps and iterations in order, then tasks, named as their steps."""
    if not len(calls.step_events):
        return []
    begin = int(calls.step_events[:, 1].min())
    found = []
    for row, start, end in calls.step_events.tolist():
        kernel = kernels[row]
        found.append(Event(kernel.name, kernel.kind, (start - begin) / frequency, (end - begin) / frequency, 0, kernel))
    steps = [event for event in found if event.kind != ITERATION]
    ends = np.array([event.end for event in steps])
    tracks: dict[int, int] = {}
    for thread, start, end in calls.task_events[np.argsort(calls.task_events[:, 1])].tolist():
        track = tracks.setdefault(thread, len(tracks) + 1)
        times = (start - begin) / frequency, (end - begin) / frequency
        step = steps[min(int(np.searchsorted(ends, times[0])), len(steps) - 1)]
        found.append(Event(step.name, "task", *times, track, step.kernel))
    return found
