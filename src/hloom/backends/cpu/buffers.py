"""Memory for results and temporaries that is used again, so that calls in a steady state pay for no page faults.

Fresh memory from the system costs a page fault and a page of zeros for every page that is first written, often more
than the computation that writes it. Here memory of 64 KiB and more comes from anonymous maps of a few sizes (four to
each power of two), which return to a free list when the last array over them dies; the maps freed longest ago go back
to the system once the lists hold more than `limit` bytes.

A `Block` owns a map while it lives. Arrays made over it have it as their base, and so have all their views, so it dies
with the last of them. Blocks die in any thread and at any point, even while that thread holds the allocator's lock
(the garbage collector runs anywhere), so a dying block only appends its map to a queue, which whoever holds the lock
empties into the free lists.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hloom.backends.cpu.thread_pool import control_groups
from hloom.errors import RunError

SMALLEST = 64 << 10  # smaller arrays are NumPy's own: the C library has them at hand
HUGE_PAGE = 2 << 20
SMALLEST_HUGE = 4 << 20  # from here maps are aligned for huge pages
CACHED_SHARE = 8  # free maps hold at most one part in so many of the memory

_BYTE = np.dtype(np.uint8)


@dataclass(slots=True, eq=False)
class Region:
    """An anonymous map: `size` bytes of it, from `offset` on, are at `address`."""

    home: Allocator
    memory: mmap.mmap
    offset: int
    address: int
    size: int
    returned: int = 0  # when it came back last, in returns


class Block(np.ndarray[Any, np.dtype[np.uint8]]):
    """A region in use, as an array of bytes aligned to a page at least; the region is free again when it dies."""

    region: Region | None = None  # a view of a block has none

    @property
    def address(self) -> int:
        return self.region.address if self.region is not None else self.ctypes.data

    @property
    def byte_size(self) -> int:
        return self.nbytes

    def __del__(self) -> None:
        if self.region is not None:
            self.region.home.take_back(self.region)


class Allocator:
    """Free lists of regions by size, together at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.cached_bytes = 0
        self._free: dict[int, deque[Region]] = {}  # the last came back last
        self._queue: deque[Region] = deque()  # returned, not in the free lists yet
        self._returns = 0
        self._lock = threading.Lock()

    def allocate(self, byte_size: int) -> Block:
        """A block of byte_size bytes (any content), aligned to a page, from 4 MiB on to a huge page."""
        size = size_class(byte_size)
        with self._lock:
            self._empty_queue()
            regions = self._free.get(size)
            region = regions.pop() if regions else None
            if region is not None:
                self.cached_bytes -= size
        if region is None:
            region = self._map(size)
        block = Block((byte_size,), _BYTE, region.memory, region.offset)
        block.region = region
        return block

    def take_back(self, region: Region) -> None:
        """Called by dying blocks: never waits, and needs nothing that is gone when the interpreter shuts down."""
        self._queue.append(region)
        while self._queue and self._lock.acquire(blocking=False):
            try:
                self._empty_queue()
            finally:
                self._lock.release()

    def release_cached(self) -> None:
        """Gives all free regions back to the system."""
        with self._lock:
            self._empty_queue()
            self._free.clear()
            self.cached_bytes = 0

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def _empty_queue(self) -> None:
        while self._queue:
            region = self._queue.popleft()
            if region.size > self.limit:
                continue
            self._returns += 1
            region.returned = self._returns
            self._free.setdefault(region.size, deque()).append(region)
            self.cached_bytes += region.size
        while self.cached_bytes > self.limit:
            oldest = min(filter(None, self._free.values()), key=lambda regions: regions[0].returned)
            self.cached_bytes -= oldest.popleft().size

    def _map(self, size: int) -> Region:
        huge = size >= SMALLEST_HUGE
        length = size + HUGE_PAGE if huge else size
        try:
            memory = _anonymous_map(length)
        except RunError:
            self.release_cached()
            memory = _anonymous_map(length)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        offset = -start % HUGE_PAGE if huge else 0
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(mmap.MADV_HUGEPAGE)
        return Region(self, memory, offset, start + offset, size)


def size_class(byte_size: int) -> int:
    """The least of SMALLEST and the sizes 4, 5, 6 or 7 times a power of two that holds byte_size bytes."""
    step = 1 << max(0, (byte_size - 1).bit_length() - 3)
    return max(SMALLEST, -(-byte_size // step) * step)


def _anonymous_map(length: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise RunError(f"no memory for a buffer of {length} bytes: {error}") from None


def memory_size() -> int:
    """The bytes of memory that this process may use: the machine's, or less where a control group says so."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                limits.append(int((group / name).read_text()))
    return min(limits)


allocator = Allocator(memory_size() // CACHED_SHARE)
allocate = allocator.allocate
release_cached = allocator.release_cached
os.register_at_fork(after_in_child=allocator.after_fork)


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A row-major array of any content. From SMALLEST bytes on it lies in a block; less is NumPy's (aligned to 16)."""
    dtype = np.dtype(dtype)
    byte_size = math.prod(shape) * dtype.itemsize
    if byte_size < SMALLEST:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, allocate(byte_size))
