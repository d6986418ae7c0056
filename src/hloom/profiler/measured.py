"""Measurements of a program and its kernels."""

from __future__ import annotations

from hloom.bench.limits import Limits
from hloom.ir import Instruction, Module
from hloom.system.records import record


@record(slots=True)
class Kernel:
    """A step of the program, for an instruction (a fusion, a product, a copy), and its measurements.

    `seconds` is the median over calls of the program, `spread` half the distance between the quartiles, `shortest` the
    least, to which rates belong. `runs` is the number of runs in a call; `bytes` and `flops` are those of a single run.
    `flops` is None if unknown. A kernel in a parallel loop, whose iterations run on several threads, has its part of
    the time of the loop, and the loop has the rest.

    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }"
    >>> kernel = hl.profile(module, np.float32([1, 2]), seconds=0.01).kernels[0]
    >>> kernel.name, kernel.bytes
    ('y', 16)
    """

    name: str
    kind: str
    seconds: float
    spread: float
    shortest: float
    runs: float
    bytes: int
    flops: int | None
    instruction: Instruction | None
    waiting: float
    """Share of the total time of all threads in which they were idle."""

    @property
    def bytes_per_second(self) -> float:
        """Throughput of memory: bytes read and written per second."""
        return self.bytes * self.runs / self.shortest if self.shortest else 0.0

    @property
    def flops_per_second(self) -> float | None:
        """Throughput of arithmetic; None if the number of operations is unknown."""
        return None if self.flops is None else self.flops * self.runs / self.shortest if self.shortest else 0.0

    def share_of_limit(self, limits: Limits) -> float:
        """Share of the machine's limit of arithmetic, or of traffic with the cache or memory that holds the arrays,
        whichever is larger; 1 is the limit.
        """
        memory = self.bytes_per_second / limits.bytes_per_second(self.bytes)
        return max(memory, (self.flops_per_second or 0.0) / limits.flops_per_second)

    @property
    def opcode(self) -> str:
        """The opcode of the instruction, or the kind of a step without an instruction, such as a copy."""
        return self.kind if self.instruction is None else self.instruction.opcode

    @property
    def scope(self) -> str:
        """The scope of the instruction; "" if unknown."""
        return "" if self.instruction is None else self.instruction.scope

    @property
    def source(self) -> str:
        """The line of the traced function or, without one, of the HLO text; "" if unknown."""
        return "" if self.instruction is None else self.instruction.source or self.instruction.location


@record(slots=True)
class Event:
    """A step, an iteration of a loop, or a task of a step on one thread; times are in seconds from the start of the
    call.
    """

    name: str
    kind: str
    start: float
    end: float
    thread: int = 0
    """The thread of a task, from 1 on; 0 is the program."""
    kernel: Kernel | None = None


@record
class Measured:
    """The profile of a program.

    `seconds` is the time of a call: the medians of its kernels and of the rest, so that a kernel disturbed in one call
    and another one in the next add nothing. `spread` is half the distance between the quartiles of the calls' times.

    `overhead` is the relative slow-down by the timers (0.01 is 1 %). `events` are those of the fastest call, ordered by
    their ends.
    """

    name: str
    seconds: float
    spread: float
    overhead: float
    calls: int
    """Number of calls that are counted."""
    disturbed: int
    """Number of calls left out because the system took a CPU from them."""
    kernels: list[Kernel]
    events: list[Event]
    limits: Limits
    optimized: Module
    """The module after all passes, to which the instructions of the kernels belong."""

    @property
    def accounted(self) -> float:
        """Share of the time that was spent in kernels."""
        return sum(kernel.seconds for kernel in self.kernels) / self.seconds

    @property
    def slowest(self) -> list[Kernel]:
        """The kernels, those that take most time first."""
        return sorted(self.kernels, key=lambda kernel: -kernel.seconds)
