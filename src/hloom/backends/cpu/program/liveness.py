"""Liveness analysis of buffers: uses in program order, and the intervals in which a buffer is live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.program.program import Step
from hloom.system.records import record


@record(slots=True)
class Use:
    """Access of a step to a buffer. `region` lists the enclosing loops and branches, outermost first."""

    position: int
    reads: bool
    writes: bool
    step: Step
    region: tuple[Region, ...]
    part: int
    """Index of the part of the program that contains the step (see `Program.parts`)."""


@dataclass(eq=False, slots=True)
class Region:
    """Loop or branch of a conditional, spanning the positions after `start` up to `end`."""

    start: int
    branches: list[Region]
    """All branches of the conditional in order; for a loop, only the loop itself."""
    end: int = 0
    exit: int | None = None
    """Position at which a loop is left, the end of its condition; None for a branch."""


Interval = tuple[int, int]
"""Pair (a, b): the value written at position a has its last read at position b."""
TransferFunction = tuple[bool, bool]
"""Liveness before a region, given that the value is dead (first) or live (second) after it."""


def live_intervals(uses: Sequence[Use], start: int, end: int) -> list[Interval]:
    """Returns the intervals between `start` and `end` in which a buffer is live. `uses` are in program order."""
    walk = _Walk()
    walk.scan(list(uses), 0, start, end, live=False)
    return walk.intervals


class _Walk:
    """Backward walk through the uses of a buffer.

    Liveness at the end of a loop body depends on the next iteration. The transfer function of each region is computed
    once, before the region is walked, so the analysis is linear in the number of uses for any nesting depth.
    """

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.summaries: dict[Region, TransferFunction] = {}

    def scan(self, uses: list[Use], depth: int, start: int, end: int, live: bool) -> bool:
        """Records live intervals between two positions. `live` is the liveness at `end`; returns that at `start`."""
        until = end
        for use, inner in _backwards(uses, depth):
            if inner:
                regions = use.region[depth].branches
                if live:
                    self.intervals.append((regions[-1].end, until))
                live = self._scan_regions(inner, depth, regions, live)
                until = regions[0].start
                continue
            if use.writes and not use.reads:
                if live:
                    self.intervals.append((use.position, until))
                live = False
            elif use.writes and live:
                self.intervals.append((use.position, until))
                until = use.position
            if use.reads and not live:
                live, until = True, use.position
        if live:
            self.intervals.append((start, until))
        return live

    def _scan_regions(self, uses: list[Use], depth: int, regions: list[Region], live: bool) -> bool:
        """Scans a loop or conditional. A loop exits after its condition, which also follows its body."""
        loop, exit = regions[0], regions[0].exit
        if exit is None:
            return self._scan_branches(uses, depth, regions, live)
        condition, body = _condition_and_body(uses, exit)
        live_before = self._summary(uses, depth, regions)[live]
        after_condition = self.scan(body, depth + 1, exit, loop.end, live_before) or live
        return self.scan(condition, depth + 1, loop.start, exit, after_condition)

    def _scan_branches(self, uses: list[Use], depth: int, branches: list[Region], live: bool) -> bool:
        """Scans the branches of a conditional; branches without a use leave the value unchanged."""
        position, used, live_before = branches[0].start, _by_branch(uses, depth), False
        for branch, inner in used.items():
            if live and position < branch.start:
                self.intervals.append((position, branch.start))
            live_before |= self.scan(inner, depth + 1, branch.start, branch.end, live)
            position = branch.end
        if live and position < branches[-1].end:
            self.intervals.append((position, branches[-1].end))
        return live_before or (live and len(used) < len(branches))

    def _summary(self, uses: list[Use], depth: int, regions: list[Region]) -> TransferFunction:
        """Returns the transfer function of a loop or conditional."""
        first = regions[0]
        if first not in self.summaries:
            if first.exit is not None:
                condition, body = (self._transfer(part, depth + 1) for part in _condition_and_body(uses, first.exit))
                # A monotone function of one boolean reaches its fixed point in one pass.
                self.summaries[first] = (condition[body[False]], condition[True])
            else:
                used = _by_branch(uses, depth)
                needs = [self._transfer(inner, depth + 1) for inner in used.values()]
                needs += [(False, True)] if len(used) < len(regions) else []
                self.summaries[first] = (any(if_dead for if_dead, _ in needs), any(if_live for _, if_live in needs))
        return self.summaries[first]

    def _transfer(self, uses: list[Use], depth: int) -> TransferFunction:
        """Returns the transfer function of a sequence of uses."""
        if_dead, if_live = False, True
        for use, inner in _backwards(uses, depth):
            if inner:
                transfer = self._summary(inner, depth, use.region[depth].branches)
                if_dead, if_live = transfer[if_dead], transfer[if_live]
            else:
                if_dead = if_live = use.reads
        return if_dead, if_live


def _backwards(uses: list[Use], depth: int) -> Iterator[tuple[Use, list[Use]]]:
    """Yields uses from last to first; uses inside a loop or conditional come together, as the last one and a list."""
    position = len(uses)
    while position:
        position -= 1
        use = uses[position]
        if len(use.region) <= depth:
            yield use, []
            continue
        start, end = use.region[depth].branches[0].start, position + 1
        while position and uses[position - 1].position > start:
            position -= 1
        yield use, uses[position:end]


def _condition_and_body(uses: list[Use], exit: int) -> tuple[list[Use], list[Use]]:
    """Splits the uses of a loop into those of its condition and those of its body."""
    return [use for use in uses if use.position <= exit], [use for use in uses if use.position > exit]


def _by_branch(uses: list[Use], depth: int) -> dict[Region, list[Use]]:
    groups: dict[Region, list[Use]] = {}
    for use in uses:
        groups.setdefault(use.region[depth], []).append(use)
    return groups
