"""Offsets in one piece of memory for what is needed from one position of a program to another."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import TypeVar

ALIGNMENT = 64

Key = TypeVar("Key")


def best_fit(intervals: Iterable[tuple[int, int, int, Key]]) -> tuple[dict[Key, int], int]:
    """Offsets for what needs a number of bytes from one position to another, and where they end."""
    free = _FreeList()
    active: list[tuple[int, int, int]] = []
    offsets: dict[Key, int] = {}
    for first, last, wanted, key in sorted(intervals, key=lambda item: item[0]):
        while active and active[0][0] < first:
            _, offset, size = active.pop(0)
            free.release(offset, size)
        size = -(-wanted // ALIGNMENT) * ALIGNMENT
        offset = offsets[key] = free.take(size)
        bisect.insort(active, (last, offset, size))
    return offsets, free.end


class _FreeList:
    """Free parts of the arena by offset; the arena grows at its end."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []
        self.end = 0

    def take(self, size: int) -> int:
        fitting = [(length, offset) for offset, length in self.parts if length >= size]
        if fitting:
            length, offset = min(fitting)
            self.parts.remove((offset, length))
            if length > size:
                bisect.insort(self.parts, (offset + size, length - size))
            return offset
        if self.parts and sum(self.parts[-1]) == self.end:
            offset, _ = self.parts.pop()
            self.end = offset + size
            return offset
        self.end += size
        return self.end - size

    def release(self, offset: int, size: int) -> None:
        position = bisect.bisect(self.parts, (offset, 0))
        if position < len(self.parts) and self.parts[position][0] == offset + size:
            size += self.parts.pop(position)[1]
        if position and sum(self.parts[position - 1]) == offset:
            offset, before = self.parts.pop(position - 1)
            size += before
        bisect.insort(self.parts, (offset, size))
