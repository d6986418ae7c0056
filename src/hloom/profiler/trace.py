"""Profiles in the Trace Event Format of Perfetto and chrome://tracing."""

from __future__ import annotations

from hloom.backends.cpu.codegen.step_timer import ITERATION
from hloom.passes.optimize.memory_scheduler import memory_use
from hloom.profiler.measured import Event, Kernel, Measured

Json = dict[str, object]
PROGRAM, LOOPS = 1, 1000
"""Tracks of steps and of iterations; threads have the numbers between. 0 is the idle thread of Perfetto."""


def trace(profile: Measured) -> Json:
    """Returns a call as a trace: tracks for the steps, the iterations of loops and each thread, and the live memory."""
    events = [_slice(event) for event in profile.events]
    threads = sorted({event.thread for event in profile.events if event.thread})
    names = {PROGRAM: "program", **{PROGRAM + k: f"thread {k}" for k in threads}, LOOPS: "iterations"}
    tracks: list[Json] = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}
        for track, name in names.items()
    ]
    return {
        "traceEvents": [*tracks, *events, *_memory(profile)],
        "displayTimeUnit": "ns",
        "otherData": {"module": profile.name, "machine": str(profile.limits)},
    }


def _slice(event: Event) -> Json:
    track = LOOPS if event.kind == ITERATION else PROGRAM + event.thread
    timing: Json = {"pid": 1, "tid": track, "ts": 1e6 * event.start, "dur": 1e6 * (event.end - event.start)}
    arguments = {} if event.kind == ITERATION or event.kernel is None else _arguments(event.kernel)
    return {"name": event.name, "cat": event.kind, "ph": "X", "args": arguments, **timing}


def _arguments(kernel: Kernel) -> Json:
    return {
        "bytes": kernel.bytes,
        "flops": kernel.flops,
        "waiting": kernel.waiting,
        "scope": kernel.scope,
        "source": kernel.source,
    }


def _memory(profile: Measured) -> list[Json]:
    """Returns counters of the bytes of live arrays, at the steps of the entry computation."""
    entry = profile.optimized.entry
    live = dict(zip([i.name for i in entry.instructions], memory_use(entry).bytes, strict=True))
    return [
        {"name": "live memory", "ph": "C", "pid": 1, "ts": 1e6 * event.start, "args": {"bytes": live[event.name]}}
        for event in profile.events
        if not event.thread and event.kind != ITERATION and event.name in live
    ]
