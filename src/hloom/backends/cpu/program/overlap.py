"""The latency-hiding schedule: collectives between ranks start early, and are waited for late.

Before: a host step that starts a collective and waits for it. After: the host step, which only starts it; steps that
need nothing of it; a `WaitStep`. Steps with effects keep their order, so that all ranks start the same collectives one
after the other. What a collective takes is guessed from its bytes, so that what waits for it comes soon after it has
ended: memory is not held for longer than that.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator

from hloom.backends.cpu.program.liveness import accesses
from hloom.backends.cpu.program.program import (
    Buffer,
    CallStep,
    CodeStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Program,
    Slot,
    Step,
    WaitStep,
    WhileStep,
    leaves,
)
from hloom.loops.nest import nest_cost

OVERLAPPED = frozenset(
    {"all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "reduce-scatter"}
)
MAX_STARTED = 8
"""Collectives on their way at once: what they read and write stays in memory."""
_LATENCY, _BYTES_A_SECOND = 1e-5, 2e9
_MEMORY_RATE, _ADDITIONS, _FLOPS = 1e10, 5e9, 5e10


def overlap_collectives(program: Program) -> None:
    """Splits and reorders the steps of a program in place."""
    program.steps = _scheduled(program, program.steps)


def _scheduled(program: Program, steps: list[Step]) -> list[Step]:
    for step in steps:
        if isinstance(step, WhileStep):
            step.condition, step.body = _scheduled(program, step.condition), _scheduled(program, step.body)
        elif isinstance(step, ConditionalStep):
            step.branches = [_scheduled(program, branch) for branch in step.branches]
    if not any(map(_starts, steps)):
        return steps
    split: list[Step] = []
    for step in steps:
        split += [step, WaitStep(step, 0)] if isinstance(step, HostStep) and _starts(step) else [step]
    order = _Scheduler(split).run()
    return _with_sites(program, order)


def _with_sites(program: Program, order: list[Step]) -> list[Step]:
    """Waits become sites of the program; those that follow their start at once are left out."""
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
    """Steps in an order in which waits come when nothing else is left to do, or their collective should have ended."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.after, self.missing = _dependencies(steps)
        self.ready: list[int] = []
        self.started: list[int] = []
        """The waits whose collectives are on their way."""
        self.ends: dict[int, float] = {}
        """When those should have ended."""

    def run(self) -> list[Step]:
        order, now = [], 0.0
        for k, missing in enumerate(self.missing):
            if not missing:
                self._make_ready(k, now)
        while self.ready or self.started:
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
            # One transfer after the other.
            begins = max(now, self.ends[self.started[-1]]) if self.started else now
            self.ends[k] = begins + _transfer_seconds(step.start)
            self.started.append(k)
        else:
            # Starts come before all else.
            heapq.heappush(self.ready, k - len(self.steps) if _starts(step) else k)

    def _next(self, now: float) -> int:
        """A start; else what stood first, of the waits the oldest, and only when its collective should have ended."""
        wait = self.started[0] if self.started else None
        first = self.ready[0] if self.ready else None
        if wait is not None:
            has_ended = self.ends[wait] <= now and (first is None or wait < first)
            is_full = first is not None and first < 0 and len(self.started) == MAX_STARTED
            if first is None or is_full or (first >= 0 and has_ended):
                return self.started.pop(0)
        k = heapq.heappop(self.ready)
        return k + len(self.steps) if k < 0 else k


def _starts(step: Step) -> bool:
    """Whether the step is a collective of arrays that native code knows where they lie."""
    if not isinstance(step, HostStep) or step.instruction.opcode not in OVERLAPPED:
        return False
    return not any(isinstance(leaf, Slot) for tree in (*step.operands, step.result) for leaf in leaves(tree))


def _dependencies(steps: list[Step]) -> tuple[list[list[int]], list[int]]:
    """For each step those that must come after it, and how many must come before it."""
    before: list[set[int]] = []
    writer: dict[Buffer | Slot, int] = {}
    readers: defaultdict[Buffer | Slot, set[int]] = defaultdict(set)
    effect: int | None = None
    for k, step in enumerate(steps):
        needed: set[int] = set()
        for leaf, writes in _all_accesses(step):
            needed |= {writer[leaf]} if leaf in writer else set()
            needed |= readers[leaf] if writes else set()
        for leaf, writes in _all_accesses(step):
            if writes:
                writer[leaf], readers[leaf] = k, set()
            else:
                readers[leaf].add(k)
        if _has_effect(step):
            needed |= {effect} if effect is not None else set()
            effect = k
        before.append(needed - {k})
    after: list[list[int]] = [[] for _ in steps]
    for k, needed in enumerate(before):
        for other in needed:
            after[other].append(k)
    return after, [len(needed) for needed in before]


def _all_accesses(step: Step) -> Iterator[tuple[Buffer | Slot, bool]]:
    """The places that a step, or what it runs, reads (False) and writes (True)."""
    if isinstance(step, WhileStep):
        yield step.predicate, False
    elif isinstance(step, ConditionalStep):
        yield step.selector, False
    else:
        yield from accesses(step)
    if isinstance(step, HostStep):
        yield from ((leaf, False) for tree in step.operands for leaf in leaves(tree) if isinstance(leaf, Slot))
        yield from ((leaf, True) for leaf in leaves(step.result) if isinstance(leaf, Slot))
    if isinstance(step, WaitStep):
        # What was received is there only now.
        yield from ((leaf, True) for leaf in leaves(step.start.result))
    for inner in _inner_steps(step):
        yield from _all_accesses(inner)


def _inner_steps(step: Step) -> list[Step]:
    if isinstance(step, WhileStep):
        return [*step.condition, *step.body]
    return [inner for branch in step.branches for inner in branch] if isinstance(step, ConditionalStep) else []


def _has_effect(step: Step) -> bool:
    """Whether the host takes part: messages leave in one order on all ranks, and call-backs run in theirs."""
    return isinstance(step, HostStep) or any(map(_has_effect, _inner_steps(step)))


# Guesses of time


def _transfer_seconds(step: HostStep) -> float:
    return _LATENCY + _bytes_of(step) / _BYTES_A_SECOND


def _seconds(step: Step) -> float:
    """How long a step computes; loops are taken to be longer than any transfer."""
    if isinstance(step, KernelStep):
        additions = sum(map(nest_cost, step.kernel.nests))
        return max(additions / _ADDITIONS, _bytes_of(step) / _MEMORY_RATE)
    if isinstance(step, CodeStep):
        # That of a product of matrices, whichever of the three has what the others share.
        sizes = sorted((math.prod(buffer.dimensions) for buffer in step.buffers), reverse=True)
        return max(2 * math.sqrt(math.prod(sizes[:3])) / _FLOPS, _bytes_of(step) / _MEMORY_RATE)
    if isinstance(step, WhileStep):
        return math.inf
    if isinstance(step, ConditionalStep):
        return max(sum(map(_seconds, branch)) for branch in step.branches)
    if isinstance(step, CallStep):
        return sum(map(_seconds, step.subroutine.program.steps))
    return 0.0 if isinstance(step, (HostStep, WaitStep)) else _bytes_of(step) / _MEMORY_RATE


def _bytes_of(step: KernelStep | CodeStep | CopyStep | HostStep) -> int:
    return sum(buffer.byte_size for buffer, _ in accesses(step))
