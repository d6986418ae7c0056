"""Overlaps collectives between ranks with computation: starts them early and waits for them late.

Before: a host step that starts a collective and waits for it. After: the host step, which only starts it; independent
steps; a `WaitStep`. Steps with side effects keep their order, so all ranks start the same collectives in the same
order. The duration of a collective is estimated from its size in bytes, and the wait is scheduled soon after its
estimated end, so that its buffers are not live longer than necessary.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import TypeGuard

from hloom.backends.cpu.program.program import (
    Buffer,
    CallStep,
    CodeStep,
    ConditionalStep,
    HostStep,
    KernelStep,
    Program,
    Step,
    WaitStep,
    WhileStep,
    all_steps,
)
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.traits import Communication, Start
from hloom.target import ADDITION_RATE, MEMORY_RATE, MULTIPLY_ADD_RATE

MAX_STARTED = 8
"""Maximum number of collectives in flight, since their buffers stay live."""
_LATENCY, _BYTES_PER_SECOND = 1e-5, 2e9
"""Estimated latency of a collective in seconds, and its bandwidth."""


def overlap_collectives(program: Program) -> None:
    """Splits collectives of a program into start and wait, and reorders its steps in place."""
    program.steps = _scheduled(program, program.steps)


def _scheduled(program: Program, steps: list[Step]) -> list[Step]:
    for step in steps:
        for inner in step.children:
            inner[:] = _scheduled(program, inner)
    if not any(map(_starts, steps)):
        return steps
    split: list[Step] = []
    for step in steps:
        split += [step, WaitStep(step, 0)] if _starts(step) else [step]
    order = _Scheduler(split).run()
    return _with_sites(program, order)


def _with_sites(program: Program, order: list[Step]) -> list[Step]:
    """Adds the waits to the sites of the program; drops waits that directly follow their start."""
    kept: list[Step] = []
    for step in order:
        if isinstance(step, WaitStep):
            if kept[-1] is step.start:
                continue
            step.site = len(program.host_steps)
            program.host_steps.append(step)
        kept.append(step)
    return kept


class _Scheduler:
    """List scheduler that delays a wait until its collective should have ended or nothing else is ready."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.after, self.missing = _dependencies(steps)
        self.ready: list[int] = []
        """Heap of the indices of ready steps other than starts and waits."""
        self.ready_starts: list[int] = []
        """Heap of the indices of ready starts."""
        self.started: list[int] = []
        """Indices of the waits whose collectives are in flight, oldest first."""
        self.ends: dict[int, float] = {}
        """Estimated end of each collective in flight, in seconds, by the index of its wait."""

    def run(self) -> list[Step]:
        order, now = [], 0.0
        for k, missing in enumerate(self.missing):
            if not missing:
                self._make_ready(k, now)
        while self.ready or self.ready_starts or self.started:
            k = self._next(now)
            order.append(self.steps[k])
            now = max(now, self.ends.get(k, now)) + _seconds(self.steps[k])
            for other in self.after[k]:
                self.missing[other] -= 1
                if not self.missing[other]:
                    self._make_ready(other, now)
        return order

    def _make_ready(self, k: int, now: float) -> None:
        step = self.steps[k]
        if isinstance(step, WaitStep):
            # Collectives are assumed to run one after another.
            begins = max(now, self.ends[self.started[-1]]) if self.started else now
            self.ends[k] = begins + _transfer_seconds(step.start)
            self.started.append(k)
        else:
            heapq.heappush(self.ready_starts if _starts(step) else self.ready, k)

    def _next(self, now: float) -> int:
        """Removes and returns the index of the next step.

        Starts have priority, then ready steps in program order. The oldest wait comes once its collective should have
        ended, if `MAX_STARTED` are in flight, or if nothing else is ready.
        """
        if self.ready_starts:
            return self.started.pop(0) if len(self.started) == MAX_STARTED else heapq.heappop(self.ready_starts)
        if self.ready and not (self.started and self._has_ended(self.started[0], now)):
            return heapq.heappop(self.ready)
        return self.started.pop(0)

    def _has_ended(self, wait: int, now: float) -> bool:
        """Whether a collective should have ended before the next ready step, in program order and in time."""
        return self.ends[wait] <= now and wait < self.ready[0]


def _starts(step: Step) -> TypeGuard[HostStep]:
    """Whether the step is an overlappable collective whose buffers all have static addresses.

    Of a ragged-all-to-all the second exchange starts when the first one, of its sizes, has ended: it is not overlapped.
    """
    if not isinstance(step, HostStep):
        return False
    op = step.instruction.op
    if not isinstance(op, Communication) or isinstance(op, (RaggedAllToAll, Start)):
        return False
    return not step.slots


def _dependencies(steps: list[Step]) -> tuple[list[list[int]], list[int]]:
    """Returns the successors of each step and the number of its predecessors."""
    before: list[set[int]] = []
    writer: dict[Buffer, int] = {}
    readers: defaultdict[Buffer, set[int]] = defaultdict(set)
    effect: int | None = None
    for k, step in enumerate(steps):
        within = [*all_steps([step])]
        read = {buffer for inner in within for buffer in inner.reads}
        written = {buffer for inner in within for buffer in inner.writes}
        needed = {writer[buffer] for buffer in read | written if buffer in writer}
        needed |= {reader for buffer in written for reader in readers[buffer]}
        for buffer in read:
            readers[buffer].add(k)
        for buffer in written:
            writer[buffer], readers[buffer] = k, set()
        # Messages and callbacks keep their order on all ranks; so do values in slots, which host steps alone use.
        if any(isinstance(inner, HostStep) for inner in within):
            needed |= {effect} if effect is not None else set()
            effect = k
        before.append(needed - {k})
    after: list[list[int]] = [[] for _ in steps]
    for k, needed in enumerate(before):
        for other in needed:
            after[other].append(k)
    return after, [len(needed) for needed in before]


# Estimated durations


def _transfer_seconds(step: HostStep) -> float:
    return _LATENCY + _bytes_of(step) / _BYTES_PER_SECOND


def _seconds(step: Step) -> float:
    """Estimates the duration of a step in seconds; loops count as longer than any transfer."""
    match step:
        case KernelStep():
            return max(step.nest_work / ADDITION_RATE, _bytes_of(step) / MEMORY_RATE)
        case CodeStep():
            # For a product of matrices of m k, k n and m n elements the root of their product is m n k.
            sizes = sorted((math.prod(buffer.dimensions) for buffer in step.buffers), reverse=True)
            return max(math.sqrt(math.prod(sizes[:3])) / MULTIPLY_ADD_RATE, _bytes_of(step) / MEMORY_RATE)
        case WhileStep():
            return math.inf
        case ConditionalStep():
            return max(sum(map(_seconds, branch)) for branch in step.branches)
        case CallStep():
            return sum(map(_seconds, step.subroutine.program.steps))
        case HostStep() | WaitStep():
            return 0.0
    return _bytes_of(step) / MEMORY_RATE


def _bytes_of(step: Step) -> int:
    """Sums the sizes of a step's buffers; one that it reads and writes counts once."""
    written = step.writes
    return sum(buffer.byte_size for buffer in (*(b for b in step.reads if b not in written), *written))
