"""The limits of a machine, which are peak rates of arithmetic and of memory, and the least time that work takes.

Rates are the best of several measurements, so shares of limits are of the shortest time of several calls. Other work on
the machine slows both sides; a median beside a best rate would show how much there was of it.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

from hloom.errors import counted
from hloom.system.records import record


@record(slots=True)
class Work:
    """Operations on f32 that no implementation of a kernel can do without, and bytes that it has to move."""

    operations: float = 0
    """Additions and multiplications that can be done as multiply-adds, which are two."""
    sums: float = 0
    """Additions and multiplications that cannot."""
    divisions: float = 0
    roots: float = 0
    """Square roots."""
    reads: float = 0
    """Bytes of the arguments."""
    writes: float = 0
    """Bytes of the results."""


@record(slots=True)
class Bandwidth:
    """Bytes per second with arrays of `size` bytes in all; copying counts the bytes read and those written."""

    size: float
    reading: float
    writing: float
    copying: float

    @property
    def best(self) -> float:
        """The largest of the three."""
        return max(self.reading, self.writing, self.copying)

    def faster(self, other: Bandwidth) -> Bandwidth:
        """Returns the larger rates of two."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in RATES)
        return Bandwidth(self.size, *map(max, pairs))

    def between(self, other: Bandwidth, size: float) -> Bandwidth:
        """Returns the rates at a size between those of two measurements: powers of it."""
        share = math.log(size / self.size) / math.log(other.size / self.size)
        pairs = ((getattr(self, name), getattr(other, name)) for name in RATES)
        return Bandwidth(size, *(a ** (1 - share) * b**share for a, b in pairs))


RATES = ("reading", "writing", "copying")


@record(slots=True)
class Limits:
    """Peak rates on a number of threads: traffic with caches and with memory, by the size of arrays, and operations on
    registers; and the seconds that a call takes, and a loop on all threads, without any work.
    """

    threads: int
    flops_per_second: float
    bandwidths: tuple[Bandwidth, ...]
    """Ordered by size; the last one is that of memory."""
    sums_per_second: float = math.inf
    divisions_per_second: float = math.inf
    roots_per_second: float = math.inf
    call_seconds: float = 0.0
    fork_seconds: float = 0.0
    occupancy: float = 1.0
    """The part of the CPUs' time that the measurement had: other processes had the rest."""

    @property
    def memory(self) -> Bandwidth:
        """Traffic with memory."""
        return self.bandwidths[-1]

    def bandwidth(self, size: float) -> Bandwidth:
        """Returns the rates for kernels that read and write arrays of `size` bytes in all."""
        smaller = [each for each in self.bandwidths if each.size <= size]
        larger = [each for each in self.bandwidths if each.size > size]
        if not smaller or not larger:
            return replace((smaller or larger[:1])[-1], size=size)
        return smaller[-1].between(larger[0], size)

    def bytes_per_second(self, size: float) -> float:
        """Returns the largest rate for kernels that read and write `size` bytes."""
        return self.bandwidth(size).best

    def seconds(self, work: Work) -> float:
        """Returns the least time of a call: that of its operations or of its traffic, whichever is longer."""
        computing = work.operations / self.flops_per_second + work.sums / self.sums_per_second
        dividing = work.divisions / self.divisions_per_second + work.roots / self.roots_per_second
        return self.call_seconds + self.fork_seconds + max(computing, dividing, self.moving_seconds(work))

    def moving_seconds(self, work: Work) -> float:
        """Returns the least time of its traffic."""
        if not (work.reads or work.writes):
            return 0.0
        at, copied = self.bandwidth(work.reads + work.writes), min(work.reads, work.writes)
        return 2 * copied / at.copying + (work.reads - copied) / at.reading + (work.writes - copied) / at.writing

    def joined(self, other: Limits) -> Limits:
        """Returns the best of two measurements: other work on the machine makes rates smaller, never larger."""
        pairs = zip(self.bandwidths, other.bandwidths, strict=True)
        names = [each.name for each in fields(self) if each.name not in ("threads", "bandwidths")]
        best = {
            name: (min if name.endswith("_seconds") else max)(getattr(self, name), getattr(other, name))
            for name in names
        }
        return Limits(self.threads, bandwidths=tuple(a.faster(b) for a, b in pairs), **best)

    def __str__(self) -> str:
        memory, fastest = self.memory, max(each.best for each in self.bandwidths)
        parts = ", ".join(f"{getattr(memory, name) / 1e9:.1f} {name}" for name in RATES)
        return (
            f"memory {memory.best / 1e9:.1f} GB/s ({parts}), caches up to {fastest / 1e9:.0f} GB/s, "
            f"{self.flops_per_second / 1e9:.0f} GFLOP/s (f32, in registers) on {counted(self.threads, 'thread')}"
        )
