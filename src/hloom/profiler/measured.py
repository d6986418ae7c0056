"""What was measured of a program and its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.bench.machine import Limits
from hloom.ir import Instruction, Module


@dataclass(frozen=True, slots=True)
class Kernel:
    """A step of the program: an instruction (a fusion, a product, a copy), and what running it took.

    `seconds` and `runs` are of one call of the program, in the mean. `flops` is None where the number is unknown.
    """

    name: str
    kind: str
    seconds: float
    runs: float
    bytes: int
    flops: int | None
    instruction: Instruction | None
    waiting: float
    """The share of the threads' time, all together, in which they had nothing to do."""

    @property
    def bytes_per_second(self) -> float:
        """Bytes read and written, over the time."""
        return self.bytes * self.runs / self.seconds if self.seconds else 0.0

    @property
    def flops_per_second(self) -> float | None:
        """Operations over the time; None where their number is unknown."""
        return None if self.flops is None else self.flops * self.runs / self.seconds if self.seconds else 0.0

    def share_of_limit(self, limits: Limits) -> float:
        """How near it comes to the machine's limit, of memory or of arithmetic: the larger share, 1 at most reached."""
        memory = self.bytes_per_second / limits.bytes_per_second
        return max(memory, (self.flops_per_second or 0.0) / limits.flops_per_second)


@dataclass(frozen=True)
class Measured:
    """A program's profile: `seconds` is a call's time (the mean), of which the kernels account for `accounted`.

    `overhead` is how much longer a call took with clocks than without, as a ratio (0.01 is 1 %). `events` are the steps
    of one run in order: number of the kernel, seconds from the start to its begin, and to its end.
    """

    name: str
    seconds: float
    overhead: float
    kernels: list[Kernel]
    events: list[tuple[int, float, float]]
    limits: Limits
    optimized: Module
    """The module as the passes left it, whose instructions the kernels are."""

    @property
    def accounted(self) -> float:
        """The share of the time that kernels took."""
        return sum(kernel.seconds for kernel in self.kernels) / self.seconds
