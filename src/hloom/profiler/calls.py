"""Timed calls of a program: their durations, the counters of their steps, and whether the system disturbed them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.backends.cpu.codegen.timer_functions import (
    COUNTER_WORDS,
    COUNTERS,
    EVENT_WORDS,
    MAX_EVENTS,
    READ_CLOCK,
    STEP_EVENTS,
    TASK_EVENTS,
)
from hloom.backends.cpu.executable import CpuExecutable
from hloom.system.machine import preemptions

CALIBRATION_SECONDS = 0.02
MIN_CALLS, MAX_CALLS = 3, 1000
Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class Calls:
    """Calls of a timed program, and of the program without timers."""

    durations: list[float] = field(default_factory=list)
    plain_durations: list[float] = field(default_factory=list)
    counters: list[Words] = field(default_factory=list)
    """Runs, cycles and busy cycles of all threads, for each step, of each call."""
    preemptions: list[int] = field(default_factory=list)
    step_events: Words = field(default_factory=lambda: np.zeros((0, EVENT_WORDS), np.int64))
    task_events: Words = field(default_factory=lambda: np.zeros((0, EVENT_WORDS), np.int64))
    """Events of the fastest call: row or thread, start, end."""

    @property
    def calm(self) -> list[int]:
        """Indices of the calls during which the system took no CPU, or of the least disturbed half if these are few."""
        undisturbed = [k for k, count in enumerate(self.preemptions) if not count]
        if len(undisturbed) >= MIN_CALLS:
            return undisturbed
        middle = sorted(self.preemptions)[len(self.preemptions) // 2]
        return [k for k, count in enumerate(self.preemptions) if count <= middle]


def run_alternately(timed: CpuExecutable, rows: int, plain: Any, arguments: Sequence[Any], seconds: float) -> Calls:
    """Runs a program with `rows` timed steps, and the program without timers, in turns; first untimed once each."""
    memory, calls = CounterMemory(timed, rows), Calls()
    timed(*arguments)
    plain(*arguments)
    end = time.perf_counter() + 2 * seconds
    while len(calls.durations) < MIN_CALLS or (time.perf_counter() < end and len(calls.durations) < MAX_CALLS):
        started = time.perf_counter()
        plain(*arguments)
        calls.plain_durations.append(time.perf_counter() - started)
        memory.clear()
        before, started = preemptions(), time.perf_counter()
        timed(*arguments)
        duration = time.perf_counter() - started
        if duration < min(calls.durations, default=np.inf):
            calls.step_events, calls.task_events = memory.events()
        calls.durations.append(duration)
        calls.preemptions.append(preemptions() - before)
        calls.counters.append(memory.counters.copy())
    return calls


def clock_frequency(executable: CpuExecutable) -> float:
    """Measures the frequency in Hz of the clock that programs read."""
    clock = ctypes.CFUNCTYPE(ctypes.c_int64)(executable.code.address(READ_CLOCK))
    first, started = clock(), time.perf_counter()
    time.sleep(CALIBRATION_SECONDS)
    return (clock() - first) / (time.perf_counter() - started)


class CounterMemory:
    """The memory in which a timed program counts."""

    def __init__(self, executable: CpuExecutable, rows: int) -> None:
        code = executable.code
        self.counters = _words(code.data_address(COUNTERS), COUNTER_WORDS * rows).reshape(rows, COUNTER_WORDS)
        size = 1 + MAX_EVENTS * EVENT_WORDS
        self._lists = [_words(code.data_address(name), size) for name in (STEP_EVENTS, TASK_EVENTS)]

    def clear(self) -> None:
        """Clears counters and events."""
        self.counters[:] = 0
        for events in self._lists:
            events[0] = 0

    def events(self) -> tuple[Words, Words]:
        """Returns copies of the events of steps and of tasks, a row each."""
        steps, tasks = (
            words[1 : 1 + min(int(words[0]), MAX_EVENTS) * EVENT_WORDS].reshape(-1, EVENT_WORDS).copy()
            for words in self._lists
        )
        return steps, tasks


def _words(address: int, count: int) -> Words:
    memory = (ctypes.c_int64 * count).from_address(address)
    return np.frombuffer(memoryview(memory), np.int64)
