"""The part of a program that the host runs: steps that call the interpreter, in memory and on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.program.program import HostStep, WaitStep
from hloom.backends.interpreter.plan import Plan, Plans
from hloom.ir import Computation, Instruction, Module, clone_graph
from hloom.ops.structure import Parameter, Tuple
from hloom.passes.edit import copy_annotations
from hloom.proto import module_to_bytes
from hloom.proto.reader import read_module
from hloom.proto.schema import message_class
from hloom.runtime.serialization import NOT_STORED
from hloom.shape import Shape
from hloom.system.records import record


@record(slots=True)
class StoredInstructions:
    """Instructions of host steps on disk: the operands of the root of a module, which is an HloModuleProto."""

    module: bytes
    locations: list[str]
    names: str
    """Digest of what errors show of the module that the program was compiled from, see `names_of`."""


@dataclass(slots=True)
class HostPart:
    """Steps that call the interpreter, and its plans for them."""

    steps: list[HostStep | WaitStep]
    slot_count: int
    """Number of values held by the host only."""
    are_met: bool
    """Whether all devices reach each step equally often."""
    stored: StoredInstructions | None = None
    """Instructions of the steps; None in memory, where each step has its own."""
    plans: dict[int, Plan] = field(default_factory=dict, metadata=NOT_STORED)

    @property
    def is_needed(self) -> bool:
        """Whether the program needs the host at all."""
        return bool(self.steps or self.slot_count)

    @property
    def _host_steps(self) -> list[HostStep]:
        return [step for step in self.steps if isinstance(step, HostStep)]

    def on_disk(self, module: Module) -> HostPart:
        """Returns the host part of a program that was compiled from a module, with its instructions as bytes."""
        if not self.steps:
            return self
        instructions = [step.instruction for step in self._host_steps]
        content = module_to_bytes(_module_of(instructions))
        return replace(self, stored=StoredInstructions(content, [i.location for i in instructions], names_of(module)))

    def from_disk(self) -> HostPart:
        """Returns a part that was read from disk, with instructions and plans. Changes its steps."""
        if self.stored is None:
            return replace(self, plans={})
        entry = read_module(message_class("HloModuleProto").FromString(self.stored.module)).entry
        facts = zip(self._host_steps, entry.root.operands, self.stored.locations, strict=True)
        for step, instruction, location in facts:
            step.instruction, instruction.location = instruction, location
        return replace(self, stored=None, plans=Plans(entry).complete())


def names_of(module: Module) -> str:
    """Returns a digest of the names and locations of a module's instructions, which errors show."""
    names = [(instruction.name, instruction.location) for instruction in module.instructions()]
    return hashlib.sha256(repr(names).encode()).hexdigest()


def _module_of(instructions: Sequence[Instruction]) -> Module:
    """Returns a module whose entry has copies of instructions, and parameters for operands that are not among them."""
    copied = dict.fromkeys(instructions)
    copies = clone_graph(*(computation for each in copied for computation in each.op.computations))
    module = Module("host")
    for computation in copies.values():
        module.add(computation)
    entry = module.add(Computation("entry"), entry=True)
    new: dict[Instruction, Instruction] = {}

    def copy(old: Instruction) -> Instruction:
        if old not in new:
            new[old] = entry.add(_copy(old, [*map(copy, old.operands)]) if old in copied else _parameter(old))
        return new[old]

    def _parameter(old: Instruction) -> Instruction:
        number = len(entry.parameters)
        return Instruction(f"operand${number}", old.shape, Parameter(number=number))

    def _copy(old: Instruction, operands: Sequence[Instruction]) -> Instruction:
        op = old.op.with_computations(copies.__getitem__) if old.op.calling_fields else old.op
        made = Instruction(old.name, old.shape, op, operands)
        made.metadata = old.metadata.copy()
        copy_annotations(old, made)
        return made

    operands = [copy(instruction) for instruction in instructions]
    entry.root = entry.add(Instruction("$", Shape.tuple_of([i.shape for i in operands]), Tuple(), operands))
    return module
