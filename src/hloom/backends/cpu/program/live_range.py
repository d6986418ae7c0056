"""Live ranges of coalesced buffers: the intervals between definitions and last uses, and the writes.

Interference tests and merges take time proportional to the shorter of two live ranges, since thousands of steps may
update one array.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.program.liveness import Interval, Use, live_intervals


@dataclass(slots=True)
class LiveRange:
    """Writes of a set of coalesced buffers, in program order, and the disjoint, sorted intervals in which it is live.

    Coalesced buffers do not overwrite each other's live values, so the set is live wherever one of them is.
    """

    writes: list[Use]
    intervals: list[Interval]

    @staticmethod
    def of(uses: Sequence[Use], start: int, end: int) -> LiveRange:
        """Returns the live range of a buffer between two positions, from its uses in program order."""
        live_range = LiveRange([use for use in uses if use.writes], [])
        for interval in sorted(live_intervals(uses, start, end)):
            live_range._add(interval)
        return live_range

    def bounds(self) -> list[int]:
        """Returns the first and the last live position, or an empty list."""
        return [self.intervals[0][0], self.intervals[-1][1]] if self.intervals else []

    def interfering_writes(self, other: LiveRange) -> Iterator[tuple[Use, int]]:
        """Yields writes of another live range inside this one, each with the end of its interval."""
        if len(other.writes) <= len(self.intervals):
            for use in other.writes:
                k = bisect_right(self.intervals, use.position, key=_first) - 1
                if k >= 0 and use.position <= self.intervals[k][1]:
                    yield use, self.intervals[k][1]
        else:
            for first, last in self.intervals:
                k = bisect_left(other.writes, first, key=_position)
                while k < len(other.writes) and other.writes[k].position <= last:
                    yield other.writes[k], last
                    k += 1

    def merge(self, other: LiveRange) -> None:
        """Adds the writes and intervals of another live range."""
        for use in other.writes:
            insort(self.writes, use, key=_position)
        for interval in other.intervals:
            self._add(interval)

    def remove(self, use: Use) -> None:
        """Removes the writes of a step that has become a copy of a buffer to itself."""
        k = bisect_left(self.writes, use.position, key=_position)
        while k < len(self.writes) and self.writes[k].position == use.position:
            if self.writes[k].step is use.step:
                del self.writes[k]
            else:
                k += 1

    def _add(self, interval: Interval) -> None:
        first, last = interval
        low = bisect_left(self.intervals, first, key=_end)
        high = low
        while high < len(self.intervals) and self.intervals[high][0] <= last:
            first, last = min(first, self.intervals[high][0]), max(last, self.intervals[high][1])
            high += 1
        self.intervals[low:high] = [(first, last)]


def _first(interval: Interval) -> int:
    return interval[0]


def _end(interval: Interval) -> int:
    return interval[1]


def _position(use: Use) -> int:
    return use.position
