"""The life of a place in memory that several buffers share: when it is written, and from where to where it is alive.

Two lives are compared, and joined, in time for the shorter one: thousands of steps may change one array in turn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.program.liveness import Interval, Use, live_intervals


@dataclass(slots=True)
class Life:
    """The uses that write a place, in order, and the intervals in which it is alive, which do not touch.

    Buffers that share a place leave each other's values alone; so it is alive where one of them is.
    """

    writes: list[Use]
    alive: list[Interval]

    @staticmethod
    def of(uses: Sequence[Use], start: int, end: int) -> Life:
        """That of a buffer between two positions, from its uses in order."""
        life = Life([use for use in uses if use.writes], [])
        for interval in sorted(live_intervals(uses, start, end)):
            life._add(interval)
        return life

    def ends(self) -> list[int]:
        """The first and the last position at which it is alive, if it ever is."""
        return [self.alive[0][0], self.alive[-1][1]] if self.alive else []

    def meets(self, other: Life) -> Iterator[tuple[Use, int]]:
        """The writes of another place while this one is alive, and the last step of the interval that each falls in."""
        if len(other.writes) <= len(self.alive):
            for use in other.writes:
                k = bisect_right(self.alive, use.position, key=_start) - 1
                if k >= 0 and use.position <= self.alive[k][1]:
                    yield use, self.alive[k][1]
        else:
            for first, last in self.alive:
                k = bisect_left(other.writes, first, key=_position)
                while k < len(other.writes) and other.writes[k].position <= last:
                    yield other.writes[k], last
                    k += 1

    def join(self, other: Life) -> None:
        """Makes this the life of a place that both share."""
        for use in other.writes:
            insort(self.writes, use, key=_position)
        for interval in other.alive:
            self._add(interval)

    def forget(self, use: Use) -> None:
        """Takes out what a step wrote: it only copies the place to itself."""
        k = bisect_left(self.writes, use.position, key=_position)
        while k < len(self.writes) and self.writes[k].position == use.position:
            if self.writes[k].step is use.step:
                del self.writes[k]
            else:
                k += 1

    def _add(self, interval: Interval) -> None:
        first, last = interval
        low = bisect_left(self.alive, first, key=_end)
        high = low
        while high < len(self.alive) and self.alive[high][0] <= last:
            first, last = min(first, self.alive[high][0]), max(last, self.alive[high][1])
            high += 1
        self.alive[low:high] = [(first, last)]


def _start(interval: Interval) -> int:
    return interval[0]


def _end(interval: Interval) -> int:
    return interval[1]


def _position(use: Use) -> int:
    return use.position
