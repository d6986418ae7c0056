"""Prints programs after buffer assignment: where each temporary lies, and the steps on the buffers that remain.

    arena: 512 bytes
    temp2: 512 bytes at 0
    temp3: 4 bytes on the stack
    code dot0(parameter0: f32[8, 8], parameter1: f32[8, 8], temp2: f32[8, 16])
    copy output0: f32[8, 16] <- temp2: f32[8, 16]

Coalesced buffers appear under the name of their representative, with the shape of the step at hand; copies that
coalescing has removed are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.program import (
    Buffer,
    CallStep,
    CodeStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    Program,
    Step,
    WaitStep,
    WhileStep,
    all_steps,
)


def program_text(program: Program, assignment: Assignment) -> str:
    """Prints a program, its subroutines first."""
    lines: list[str] = []
    for subroutine in program.subroutines:
        inner = _Printer(assignment.subroutines[subroutine]).program_lines(subroutine.program)
        lines += [f"subroutine {subroutine.name}", *_indented(inner)]
    return "\n".join([*lines, *_Printer(assignment).program_lines(program)])


class _Printer:
    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment

    def program_lines(self, program: Program) -> Iterator[str]:
        """Yields the lines of the temporaries and the steps."""
        yield f"arena: {self.assignment.arena_bytes} bytes"
        for output, parameter in self.assignment.donated.items():
            yield f"output{output}: memory of parameter{parameter}"
        steps = [step for step in all_steps(program.steps) if not self.assignment.is_elided(step)]
        used = dict.fromkeys(self._representative(b) for step in steps for b in (*step.reads, *step.writes))
        for buffer in sorted((b for b in used if b.kind == "temp" and b.byte_size), key=lambda b: b.index):
            yield f"temp{buffer.index}: {buffer.byte_size} bytes {self._location(buffer)}"
        yield from self._steps(program.steps)

    def _location(self, buffer: Buffer) -> str:
        if buffer in self.assignment.offsets:
            return f"at {self.assignment.offsets[buffer]}"
        for loop, memory in self.assignment.parallel_loops.items():
            if buffer in memory.offsets:
                return f"at {memory.offsets[buffer]} of a slot of {loop.name}"
        return "on the stack"

    def _steps(self, steps: Sequence[Step]) -> Iterator[str]:
        for step in steps:
            if not self.assignment.is_elided(step):
                yield from self._step(step)

    def _step(self, step: Step) -> Iterator[str]:
        """Yields the line of a step, followed by its loop nests or inner steps."""
        match step:
            case KernelStep():
                kinds = zip(step.buffers, step.kernel.buffers, strict=True)
                names = ["scratch" if kind.role == "scratch" else self._name(buffer) for buffer, kind in kinds]
                yield f"kernel {step.name}({', '.join(names)})"
                yield from _indented(step.kernel.to_text().split("\n"))
            case CodeStep():
                yield f"code {step.code.entry}({self._names(step.buffers)})"
            case CopyStep():
                yield f"copy {self._name(step.target)} <- {self._name(step.source)}"
            case WhileStep():
                yield f"while {step.name}{self._slots(step)}"
                yield from _indented(self._steps(step.condition))
                yield f"  {self._name(step.predicate)}"
                yield "do"
                yield from _indented(self._steps(step.body))
            case ConditionalStep():
                for index, branch in enumerate(step.branches):
                    yield f"branch {index} of {self._name(step.selector)}"
                    yield from _indented(self._steps(branch))
            case CallStep():
                arena = f", arena {self._name(step.scratch)}" if step.scratch.byte_size else ""
                yield f"call {step.subroutine.name}({self._names(step.buffers)}){arena}"
            case WaitStep():
                yield f"wait for %{step.start.instruction.name}"
            case HostStep():
                yield f"host {step.instruction!r}: ({self._names(step.reads)}) -> ({self._names(step.writes)})"

    def _slots(self, loop: WhileStep) -> str:
        """Describes the memory of a parallel loop."""
        memory = self.assignment.parallel_loops.get(loop)
        if memory is None or loop.parallel is None:
            return ""
        return f" on {loop.parallel.tasks} threads, each with a slot of {memory.slot_bytes} bytes, from {memory.offset}"

    def _representative(self, buffer: Buffer) -> Buffer:
        return self.assignment.representative(buffer)

    def _name(self, buffer: Buffer) -> str:
        representative = self._representative(buffer)
        if representative is buffer:
            return str(buffer)
        return f"{representative.kind}{representative.index}: {buffer.type}{list(buffer.dimensions)}"

    def _names(self, buffers: Sequence[Buffer]) -> str:
        return ", ".join(map(self._name, buffers))


def _indented(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
