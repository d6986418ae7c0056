"""Measurements of a program and its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.bench.machine import Limits
from hloom.ir import Instruction, Module


@dataclass(frozen=True, slots=True)
class Kernel:
    """A step of the program, for an instruction (a fusion, a product, a copy), and its measurements.

    `seconds` and `runs` are means over calls of the program; `bytes` and `flops` are those of a single run. `flops` is
    None if unknown.
    """

    name: str
    kind: str
    seconds: float
    runs: float
    bytes: int
    flops: int | None
    instruction: Instruction | None
    waiting: float
    """Share of the total time of all threads in which they were idle."""

    @property
    def bytes_per_second(self) -> float:
        """Throughput of memory: bytes read and written per second."""
        return self.bytes * self.runs / self.seconds if self.seconds else 0.0

    @property
    def flops_per_second(self) -> float | None:
        """Throughput of arithmetic; None if the number of operations is unknown."""
        return None if self.flops is None else self.flops * self.runs / self.seconds if self.seconds else 0.0

    def share_of_limit(self, limits: Limits) -> float:
        """Share of the machine's limit of memory or of arithmetic, whichever is larger; 1 is the limit."""
        memory = self.bytes_per_second / limits.bytes_per_second
        return max(memory, (self.flops_per_second or 0.0) / limits.flops_per_second)


@dataclass(frozen=True)
class Measured:
    """The profile of a program; `seconds` is the mean time of a call.

    `overhead` is the relative slow-down by the timers (0.01 is 1 %). `events` are the steps of a single run in order:
    index of the kernel, and its start and end in seconds from the start of the run.
    """

    name: str
    seconds: float
    overhead: float
    kernels: list[Kernel]
    events: list[tuple[int, float, float]]
    limits: Limits
    optimized: Module
    """The module after all passes, to which the instructions of the kernels belong."""

    @property
    def accounted(self) -> float:
        """Share of the time that was spent in kernels."""
        return sum(kernel.seconds for kernel in self.kernels) / self.seconds
