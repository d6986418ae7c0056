"""A module as a program on buffers: kernels, copies, loops and branches in order.

Tuples vanish: every array leaf of every value is a buffer of its own. What has no native code yet is a `HostStep`,
which calls back into the interpreter's meaning of one instruction. Values without a fixed size (dynamic dimensions,
tokens) live in slots on the host's side and pass from one host step to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.interpreter.plan import Plan
from hloom.ir import Instruction, Module
from hloom.loops.nest import Kernel
from hloom.runtime.fortran import routine_address
from hloom.types import PrimitiveType


@dataclass(eq=False, repr=False, slots=True)
class Buffer:
    """Memory for an array, row-major. `kind`: "temp", "parameter", "output" or "constant"; each kind is numbered."""

    kind: str
    index: int
    type: PrimitiveType
    dimensions: tuple[int, ...]
    data: np.ndarray[Any, Any] | None = None

    @property
    def byte_size(self) -> int:
        return self.type.byte_width * math.prod(self.dimensions)

    @property
    def address(self) -> int:
        """Where a constant lies."""
        return int(self.data.ctypes.data) if self.data is not None else 0

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}: {self.type}{list(self.dimensions)}"


@dataclass(eq=False, repr=False, slots=True)
class Routine(Buffer):
    """The code of a Fortran routine: a constant of this process, since texts outlive the addresses that they name."""

    name: str = field(kw_only=True)

    @property
    def address(self) -> int:
        return routine_address(self.name)

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}: {self.name}"


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a value that only the host holds."""

    index: int


TOKEN_SLOT = Slot(-1)
"""The place of every token: there is nothing to hold."""


PART_STEPS = 256

# A value: a buffer, a slot, or a tuple of values.
BufferTree = Any


@dataclass(eq=False, slots=True)
class KernelStep:
    """Runs a kernel on buffers, one for each of its own; of the outputs in `partial` it keeps a part."""

    kernel: Kernel
    buffers: list[Buffer]
    name: str
    partial: tuple[int, ...] = ()


@dataclass(eq=False, slots=True)
class CodeStep:
    """Runs a kernel that is more than a nest: `buffers` are its operands, results and, where it has one, workspace."""

    code: KernelCode
    name: str
    buffers: list[Buffer]
    operand_count: int
    """How many of the buffers, from the first on, are operands; the others are written."""
    is_packing: bool = False
    """Whether it packs an operand of a product for all rounds of a loop."""


@dataclass(eq=False, slots=True)
class CopyStep:
    target: Buffer
    source: Buffer
    kernel: Kernel | None = None
    """What copies where there is so much that threads share it."""


@dataclass(frozen=True, slots=True)
class ParallelLoop:
    """Rounds that may run at once, `at_once` of them: for counter = first, first + step, .., `trips` times.

    Each writes a part of its own of `arrays`; all else that the loop writes is needed in the same round only.
    """

    counter: Buffer
    first: int
    step: int
    trips: int
    arrays: list[Buffer]
    tasks: int


@dataclass(eq=False, slots=True)
class WhileStep:
    """Runs `condition`, which leaves a predicate in `predicate`, and `body` while it is true."""

    name: str
    condition: list[Step]
    predicate: Buffer
    body: list[Step]
    loop_index: int
    """Of the loop among those of the program."""
    parallel: ParallelLoop | None = None
    """How its rounds may run at once."""


@dataclass(eq=False, slots=True)
class ConditionalStep:
    """Runs the branch chosen by a predicate (0 is for true) or an s32 index."""

    selector: Buffer
    branches: list[list[Step]]


@dataclass(eq=False, slots=True)
class HostStep:
    """Evaluates an instruction on the host; `site` numbers the host steps."""

    instruction: Instruction
    operands: list[BufferTree]
    result: BufferTree
    site: int


@dataclass(eq=False, slots=True)
class WaitStep:
    """Waits until the collective that a host step started has ended; that one's arrays belong to others until then."""

    start: HostStep
    site: int


@dataclass(eq=False, slots=True)
class Subroutine:
    """A computation that is called in several places, as a program of its own, which takes its memory from callers."""

    name: str
    program: Program
    scratches: list[Buffer] = field(default_factory=list)
    """The memory for its temporaries, one at each call; how much is known once they have places."""


@dataclass(eq=False, slots=True)
class CallStep:
    """Runs a subroutine: on operands, then constants of the caller's, it writes results; `scratch` is its memory."""

    subroutine: Subroutine
    operands: list[Buffer]
    results: list[Buffer]
    constants: list[Buffer]
    scratch: Buffer

    @property
    def buffers(self) -> list[Buffer]:
        """In the order of the subroutine's table."""
        return [*self.operands, *self.results, *self.constants]


Step = KernelStep | CodeStep | CopyStep | WhileStep | ConditionalStep | HostStep | WaitStep | CallStep


@dataclass(slots=True)
class Signature:
    """What a program takes and gives, and its constants; the place of a tuple is a tuple of places."""

    parameters: list[BufferTree] = field(default_factory=list)
    result: BufferTree = None
    buffers: list[Buffer] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[Buffer]:
        """The buffers of a kind in the order of their numbers."""
        return [buffer for buffer in self.buffers if buffer.kind == kind]


@dataclass(frozen=True, slots=True)
class LoopInfo:
    """What is known of a loop beside its steps: its instruction, for messages, and whether it is sure to end."""

    name: str
    is_counted: bool


@dataclass(slots=True)
class Program(Signature):
    """The steps of a module's entry, and what it reads and writes."""

    module: Module = field(kw_only=True)
    plans: dict[int, Plan] = field(kw_only=True)
    steps: list[Step] = field(default_factory=list)
    host_steps: list[HostStep | WaitStep] = field(default_factory=list)
    loops: list[LoopInfo] = field(default_factory=list)
    subroutines: list[Subroutine] = field(default_factory=list)
    """Each after those that it calls."""
    slot_count: int = 0
    """How many values only the host holds."""
    origins: dict[Buffer | Slot, Instruction] = field(default_factory=dict)
    """What wrote a buffer first."""

    def signature(self) -> Signature:
        """The program as its callers see it."""
        return Signature(self.parameters, self.result, [b for b in self.buffers if b.kind != "temp"])

    def parts(self) -> list[list[Step]]:
        """The steps in pieces that become functions of their own: LLVM's time is not linear in a function's length."""
        return [self.steps[k : k + PART_STEPS] for k in range(0, len(self.steps), PART_STEPS)]


def leaves(tree: BufferTree) -> Iterator[Buffer | Slot]:
    if isinstance(tree, tuple):
        for element in tree:
            yield from leaves(element)
    elif tree is not None:
        yield tree


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, and after each loop or conditional those that it runs."""
    waiting = [*steps][::-1]
    while waiting:
        step = waiting.pop()
        yield step
        if isinstance(step, WhileStep):
            waiting += [*step.condition, *step.body][::-1]
        elif isinstance(step, ConditionalStep):
            waiting += [inner for branch in step.branches for inner in branch][::-1]


def codes_of(program: Program) -> dict[str, KernelCode]:
    """The kernels that a program and its subroutines call, by their entries."""
    programs = [program, *(subroutine.program for subroutine in program.subroutines)]
    steps = (step for each in programs for step in all_steps(each.steps))
    return {step.code.entry: step.code for step in steps if isinstance(step, CodeStep)}


def program_lines(steps: list[Step], indent: str = "") -> list[str]:
    """The steps as text: what runs in which order on which buffers."""
    lines = []
    for step in steps:
        if isinstance(step, KernelStep):
            lines.append(f"{indent}kernel {step.name}({', '.join(map(str, step.buffers))})")
            lines += [f"{indent}  {line}" for line in step.kernel.to_text().split("\n")]
        elif isinstance(step, CodeStep):
            lines.append(f"{indent}code {step.code.entry}({', '.join(map(str, step.buffers))})")
        elif isinstance(step, CopyStep):
            lines.append(f"{indent}copy {step.target} <- {step.source}")
        elif isinstance(step, WhileStep):
            lines += [f"{indent}while", *program_lines(step.condition, indent + "  ")]
            lines += [f"{indent}  {step.predicate}", f"{indent}do", *program_lines(step.body, indent + "  ")]
        elif isinstance(step, ConditionalStep):
            for index, branch in enumerate(step.branches):
                lines += [f"{indent}branch {index} of {step.selector}", *program_lines(branch, indent + "  ")]
        elif isinstance(step, CallStep):
            lines.append(f"{indent}call {step.subroutine.name}({', '.join(map(str, step.buffers))})")
        elif isinstance(step, WaitStep):
            lines.append(f"{indent}wait for %{step.start.instruction.name}")
        else:
            lines.append(f"{indent}host {step.instruction!r}")
    return lines
