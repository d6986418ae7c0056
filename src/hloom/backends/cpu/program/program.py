"""A compiled module as a program on buffers: kernels, copies, loops and branches in order.

Tuples are flattened: each array leaf of a value has a buffer of its own. Instructions without native code are
`HostStep`s, which call the interpreter. Values without a static size (dynamic dimensions) live in slots on the host's
side and pass from one host step to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.interpreter.plan import Plans
from hloom.ir import Instruction, Module
from hloom.loops.nest import Kernel
from hloom.runtime.custom_calls.fortran import routine_address
from hloom.runtime.serialization import NOT_STORED
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.values import leaves


@dataclass(eq=False, repr=False, slots=True)
class Buffer:
    """Memory of a row-major array. `index` counts within a `kind`: "temp", "parameter", "output" or "constant"."""

    kind: str
    index: int
    type: PrimitiveType
    dimensions: tuple[int, ...]
    data: np.ndarray[Any, Any] | None = None

    @property
    def byte_size(self) -> int:
        """Size in bytes."""
        return self.type.byte_width * math.prod(self.dimensions)

    @property
    def address(self) -> int:
        """Address of a constant's data; 0 for other kinds."""
        return int(self.data.ctypes.data) if self.data is not None else 0

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}: {self.type}{list(self.dimensions)}"


@dataclass(eq=False, repr=False, slots=True)
class Routine(Buffer):
    """Constant that stands for the code of a Fortran routine.

    Its address is looked up in each process, since cached programs outlive the process that compiled them.
    """

    name: str = field(kw_only=True)

    @property
    def address(self) -> int:
        return routine_address(self.name)

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}: {self.name}"


@record(slots=True)
class Slot:
    """Index of a value that is held by the host only."""

    index: int


TOKEN_SLOT = Slot(-1)
"""Slot of all tokens, which hold no value."""
WRITTEN_ROLES = ("output", "temporary")
"""Roles of a kernel's buffers that it writes."""
PART_STEPS = 256
"""Number of steps in a part of a program."""
BufferTree = Any
"""Buffer or slot of a value, or the tuple of the trees of its elements (a recursive type)."""


class Step:
    """Step of a program: what it reads and writes, and the sequences of steps inside it, stand in its class."""

    __slots__ = ()

    @property
    def reads(self) -> Sequence[Buffer]:
        """Buffers that the step itself reads; those of its inner steps are not among them."""
        return ()

    @property
    def writes(self) -> Sequence[Buffer]:
        """Buffers that the step itself writes, perhaps only in part; those of its inner steps are not among them."""
        return ()

    @property
    def children(self) -> Sequence[list[Step]]:
        """Sequences of inner steps: condition and body of a loop, branches of a conditional."""
        return ()

    @property
    def nest_work(self) -> float:
        """Work of the step's own loop nests in element additions."""
        return 0.0


@dataclass(eq=False, slots=True)
class KernelStep(Step):
    """Runs a kernel on one buffer for each of the kernel's own; outputs in `partial` are only partly overwritten."""

    kernel: Kernel
    buffers: list[Buffer]
    name: str
    partial: tuple[int, ...] = ()

    @property
    def reads(self) -> Sequence[Buffer]:
        roles, read = self.kernel.buffers, self.kernel.reads
        inputs = (b for k, b in enumerate(self.buffers) if k in read and roles[k].role not in WRITTEN_ROLES)
        return [*inputs, *(self.buffers[k] for k in self.partial)]

    @property
    def writes(self) -> Sequence[Buffer]:
        return [b for b, kind in zip(self.buffers, self.kernel.buffers, strict=True) if kind.role in WRITTEN_ROLES]

    @property
    def nest_work(self) -> float:
        return sum(nest.cost for nest in self.kernel.nests)


@dataclass(eq=False, slots=True)
class CodeStep(Step):
    """Runs a kernel that is more than a loop nest, on operands, results and an optional workspace."""

    code: KernelCode
    name: str
    buffers: list[Buffer]
    operand_count: int
    """Number of leading buffers that are operands; all others are written."""
    is_packing: bool = False
    """Whether the step packs a loop-invariant operand of a product."""

    @property
    def reads(self) -> Sequence[Buffer]:
        return self.buffers[: self.operand_count]

    @property
    def writes(self) -> Sequence[Buffer]:
        return self.buffers[self.operand_count :]


@dataclass(eq=False, slots=True)
class CopyStep(Step):
    """Copies one buffer to another of the same size."""

    target: Buffer
    source: Buffer
    kernel: Kernel | None = None
    """Kernel for copies large enough to run on several threads; None means memcpy."""

    @property
    def buffers(self) -> list[Buffer]:
        """Source and target: the buffers of `kernel`."""
        return [self.source, self.target]

    @property
    def reads(self) -> Sequence[Buffer]:
        return (self.source,)

    @property
    def writes(self) -> Sequence[Buffer]:
        return (self.target,)


@record(slots=True)
class ParallelLoop:
    """Iterations that may run in parallel on `tasks` threads: counter = first, first + step, .., `trips` times.

    Each iteration writes its own slices of `arrays`; other buffers that it writes are private to it.
    """

    counter: Buffer
    first: int
    step: int
    trips: int
    arrays: list[Buffer]
    tasks: int


@dataclass(eq=False, slots=True)
class WhileStep(Step):
    """Runs `condition`, which writes `predicate`, and then `body`, as long as the predicate is true."""

    name: str
    condition: list[Step]
    predicate: Buffer
    body: list[Step]
    loop_index: int
    """Index of the loop in `Program.loops`."""
    parallel: ParallelLoop | None = None
    """Description of the parallel iterations; None for a serial loop."""
    filled: Sequence[Buffer] = ()
    """Arrays of which the loop writes every element before it reads any: they begin with it, with any content."""

    @property
    def reads(self) -> Sequence[Buffer]:
        return (self.predicate,)

    @property
    def children(self) -> Sequence[list[Step]]:
        return (self.condition, self.body)


@dataclass(eq=False, slots=True)
class ConditionalStep(Step):
    """Runs the branch that a predicate (branch 0 for true) or an s32 index selects."""

    selector: Buffer
    branches: list[list[Step]]

    @property
    def reads(self) -> Sequence[Buffer]:
        return (self.selector,)

    @property
    def children(self) -> Sequence[list[Step]]:
        return self.branches


@dataclass(eq=False, slots=True)
class HostStep(Step):
    """Evaluates an instruction on the host; `site` is the index of the step in `Program.host_steps`."""

    instruction: Instruction = field(metadata=NOT_STORED)
    operands: list[BufferTree]
    result: BufferTree
    site: int

    @property
    def reads(self) -> Sequence[Buffer]:
        return buffers_of(self.operands)

    @property
    def writes(self) -> Sequence[Buffer]:
        return buffers_of([self.result])

    @property
    def buffers(self) -> list[Buffer]:
        """Arrays that the host gets: those that the step reads, then those that it writes."""
        return [*self.reads, *self.writes]

    @property
    def slots(self) -> Sequence[Slot]:
        """Slots of operands and results, those of tokens among them."""
        return [leaf for tree in (*self.operands, self.result) for leaf in leaves(tree) if isinstance(leaf, Slot)]

    @property
    def start(self) -> HostStep:
        """The step itself, as that of a wait is the step that it waits for."""
        return self


@dataclass(eq=False, slots=True)
class WaitStep(Step):
    """Waits for the collective that a host step started; until then its buffers may be read and written by MPI."""

    start: HostStep
    site: int

    @property
    def reads(self) -> Sequence[Buffer]:
        return self.start.buffers

    @property
    def writes(self) -> Sequence[Buffer]:
        return self.start.writes


@dataclass(eq=False, slots=True)
class Subroutine:
    """Computation with several callers, compiled as a program of its own whose arena is part of its callers'."""

    name: str
    program: Program
    scratches: list[Buffer] = field(default_factory=list)
    """Arena of the subroutine at each call; sized when its buffers have been assigned."""


@dataclass(eq=False, slots=True)
class CallStep(Step):
    """Calls a subroutine, which reads operands and constants of the caller and writes results.

    `scratch` is the arena of the subroutine.
    """

    subroutine: Subroutine
    operands: list[Buffer]
    results: list[Buffer]
    constants: list[Buffer]
    scratch: Buffer

    @property
    def buffers(self) -> list[Buffer]:
        """Buffers in the order of the subroutine's table."""
        return [*self.operands, *self.results, *self.constants]

    @property
    def reads(self) -> Sequence[Buffer]:
        return [*self.operands, *self.constants]

    @property
    def writes(self) -> Sequence[Buffer]:
        return [*self.results, self.scratch]


@dataclass(slots=True)
class Signature:
    """Parameters, result and buffers of a program, as its callers see them."""

    parameters: list[BufferTree] = field(default_factory=list)
    result: BufferTree = None
    buffers: list[Buffer] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Buffer]:
        """Returns the buffers of a kind, ordered by index."""
        return [buffer for buffer in self.buffers if buffer.kind == kind]


@record(slots=True)
class LoopInfo:
    """Facts about a loop: a name for error messages, and whether its trip count is bounded."""

    name: str
    is_counted: bool


@dataclass(slots=True)
class Program(Signature):
    """Steps of the entry computation, with its buffers, loops and subroutines."""

    module: Module = field(kw_only=True)
    plans: Plans = field(kw_only=True)
    steps: list[Step] = field(default_factory=list)
    host_steps: list[HostStep | WaitStep] = field(default_factory=list)
    loops: list[LoopInfo] = field(default_factory=list)
    subroutines: list[Subroutine] = field(default_factory=list)
    """Callees before callers."""
    slot_count: int = 0
    """Number of values held by the host only."""
    origins: dict[Buffer | Slot, Instruction] = field(default_factory=dict)
    """First instruction that wrote each buffer or slot."""

    def signature(self) -> Signature:
        """Returns the signature without temporaries."""
        return Signature(self.parameters, self.result, [b for b in self.buffers if b.kind != "temp"])

    def parts(self) -> list[list[Step]]:
        """Splits the steps into parts, each compiled as a function: LLVM's time is superlinear in function length."""
        return [self.steps[k : k + PART_STEPS] for k in range(0, len(self.steps), PART_STEPS)]


def buffers_of(trees: Iterable[BufferTree]) -> list[Buffer]:
    """Returns the buffers of several trees in order, without their slots."""
    return [leaf for tree in trees for leaf in leaves(tree) if isinstance(leaf, Buffer)]


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Yields steps in preorder: each loop or conditional before its inner steps."""
    waiting = [*steps][::-1]
    while waiting:
        step = waiting.pop()
        yield step
        for steps_inside in reversed(step.children):
            waiting += reversed(steps_inside)


def codes_of(program: Program) -> dict[str, KernelCode]:
    """Returns the kernels that a program and its subroutines call, by their entries."""
    programs = [program, *(subroutine.program for subroutine in program.subroutines)]
    steps = (step for each in programs for step in all_steps(each.steps))
    return {step.code.entry: step.code for step in steps if isinstance(step, CodeStep)}


def are_met(program: Program) -> bool:
    """Whether all devices reach each host step equally often: none is in a branch, or in a loop of unknown length."""

    def depends_on_data(step: Step) -> bool:
        is_open = isinstance(step, WhileStep) and not program.loops[step.loop_index].is_counted
        return is_open or isinstance(step, ConditionalStep)

    choices = filter(depends_on_data, all_steps(program.steps))
    inside = all_steps(inner for step in choices for inner in chain.from_iterable(step.children))
    return not program.host_steps or not any(isinstance(step, HostStep) for step in inside)
