"""Where in a program buffers are read and written, and between which steps they hold a value that is still read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.program.program import (
    Buffer,
    CallStep,
    CodeStep,
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    WaitStep,
    leaves,
)


@dataclass(frozen=True, slots=True)
class Use:
    """One step's access to a buffer. `region`: the loops and branches around it, from the outermost."""

    position: int
    reads: bool
    writes: bool
    step: Step
    region: tuple[Region, ...]
    part: int
    """The part of the program that the step is in (see `Program.parts`)."""


@dataclass(eq=False, slots=True)
class Region:
    """A loop, or one branch of a conditional: the positions after `start` up to `end`."""

    is_loop: bool
    start: int
    end: int = 0
    exit: int = 0
    """Where a loop is left: the end of its condition."""


Interval = tuple[int, int]
"""(a, b): what step a wrote is read, last, by step b."""


def live_intervals(uses: Sequence[Use], start: int, end: int) -> list[Interval]:
    """Between which steps the buffer holds a value that is still read. `uses` are in order of position."""
    intervals: list[Interval] = []
    _scan(list(uses), 0, start, end, False, intervals)
    return intervals


def _scan(uses: list[Use], depth: int, start: int, end: int, live: bool, found: list[Interval]) -> bool:
    """Walks backwards through a region; `live` is whether the value is read after it. Whether it is read before."""
    until = end
    position = len(uses)
    while position:
        position -= 1
        use = uses[position]
        if len(use.region) > depth:
            region = use.region[depth]
            first = position
            while first and len(uses[first - 1].region) > depth and uses[first - 1].region[depth] is region:
                first -= 1
            inside = uses[first : position + 1]
            position = first
            if live:
                found.append((region.end, until))
            live = _scan_region(inside, depth, region, live, found)
            until = region.start
            continue
        if use.writes and not use.reads:
            if live:
                found.append((use.position, until))
            live = False
        elif use.writes and live:
            found.append((use.position, until))
            until = use.position
        if use.reads and not live:
            live, until = True, use.position
    if live:
        found.append((start, until))
    return live


def _scan_region(uses: list[Use], depth: int, region: Region, live: bool, found: list[Interval]) -> bool:
    """A branch may not be taken. A loop is left after its condition, and its body leads to the condition again."""
    if not region.is_loop:
        return _scan(uses, depth + 1, region.start, region.end, live, found) or live
    condition = [use for use in uses if use.position <= region.exit]
    body = [use for use in uses if use.position > region.exit]
    mark, before = len(found), False
    for _ in range(2):
        del found[mark:]
        after_condition = _scan(body, depth + 1, region.exit, region.end, before, found) or live
        before = _scan(condition, depth + 1, region.start, region.exit, after_condition, found)
    return before


def accesses(step: Step) -> Iterator[tuple[Buffer, bool]]:
    """The buffers that a plain step reads (False) and writes (True)."""
    if isinstance(step, CopyStep):
        yield step.source, False
        yield step.target, True
    elif isinstance(step, KernelStep):
        for position, buffer in enumerate(step.buffers):
            writes = step.kernel.buffers[position].role in ("output", "temporary")
            if writes or position in step.kernel.reads:
                yield buffer, writes
    elif isinstance(step, CallStep):
        for buffer in (*step.operands, *step.constants):
            yield buffer, False
        for buffer in (*step.results, step.scratch):
            yield buffer, True
    elif isinstance(step, CodeStep):
        for position, buffer in enumerate(step.buffers):
            yield buffer, position >= step.operands
    elif isinstance(step, HostStep):
        for place in step.operands:
            for leaf in leaves(place):
                if isinstance(leaf, Buffer):
                    yield leaf, False
        for leaf in leaves(step.result):
            if isinstance(leaf, Buffer):
                yield leaf, True
    elif isinstance(step, WaitStep):
        yield from ((buffer, False) for buffer, _ in accesses(step.start))
