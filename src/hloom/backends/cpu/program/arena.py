"""Assigns arena offsets to buffers by best fit, given the positions between which each is live."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable
from typing import TypeVar

from hloom.target import CACHE_LINE, align_up

Key = TypeVar("Key")


def best_fit(intervals: Iterable[tuple[int, int, int, Key]]) -> tuple[dict[Key, int], int]:
    """Returns an offset in bytes for each key, and the size of the arena.

    Intervals are (first position, last position, bytes, key), with inclusive positions. Keys whose intervals overlap
    get disjoint memory.
    """
    free = _FreeList()
    active: list[tuple[int, int, int]] = []
    offsets: dict[Key, int] = {}
    for first, last, byte_size, key in sorted(intervals, key=lambda item: item[0]):
        while active and active[0][0] < first:
            _, offset, size = heapq.heappop(active)
            free.release(offset, size)
        size = align_up(byte_size, CACHE_LINE)
        offset = offsets[key] = free.take(size)
        heapq.heappush(active, (last, offset, size))
    return offsets, free.end


class _FreeList:
    """Free blocks of the arena, ordered by offset and by size; the arena grows at its end."""

    def __init__(self) -> None:
        self.by_offset: list[tuple[int, int]] = []
        self.by_size: list[tuple[int, int]] = []
        self.end = 0

    def take(self, size: int) -> int:
        """Allocates a block from the smallest free block that fits, or grows the arena. Returns its offset."""
        fitting = bisect.bisect_left(self.by_size, (size, 0))
        if fitting < len(self.by_size):
            length, offset = self.by_size[fitting]
            self._remove(offset, length)
            if length > size:
                self._add(offset + size, length - size)
            return offset
        if self.by_offset and sum(self.by_offset[-1]) == self.end:
            offset, length = self.by_offset[-1]
            self._remove(offset, length)
            self.end = offset + size
            return offset
        self.end += size
        return self.end - size

    def release(self, offset: int, size: int) -> None:
        """Frees a block and merges it with adjacent free blocks."""
        position = bisect.bisect(self.by_offset, (offset, 0))
        after = self.by_offset[position : position + 1]
        before = self.by_offset[position - 1 : position] if position else []
        for part, length in (*before, *after):
            if part in (offset + size, offset - length):
                self._remove(part, length)
                offset, size = min(offset, part), size + length
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        bisect.insort(self.by_offset, (offset, size))
        bisect.insort(self.by_size, (size, offset))

    def _remove(self, offset: int, size: int) -> None:
        del self.by_offset[bisect.bisect_left(self.by_offset, (offset, size))]
        del self.by_size[bisect.bisect_left(self.by_size, (size, offset))]
