"""The part of a program that the host runs: steps that call the interpreter, in memory and on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.program.program import HostStep, WaitStep
from hloom.backends.interpreter.plan import Plan, Plans
from hloom.ir import Module, dependencies
from hloom.runtime.serialization import NOT_STORED
from hloom.system.records import record


@record(slots=True)
class StoredInstructions:
    """Instructions of host steps on disk, as a module that computes their values: an HloModuleProto."""

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
        # Imported here, as below, because programs that do not call the host need none of it.
        from hloom.passes.extract import extract
        from hloom.proto import module_to_bytes

        instructions = [step.instruction for step in self._host_steps]
        around = [i for each in instructions for i in dependencies(each)]
        extracted, _ = extract(module.name, instructions, {*around} - {*instructions})
        locations = [instruction.location for instruction in instructions]
        return replace(self, stored=StoredInstructions(module_to_bytes(extracted), locations, names_of(module)))

    def from_disk(self) -> HostPart:
        """Returns a part that was read from disk, with instructions and plans. Changes its steps."""
        if self.stored is None:
            return replace(self, plans={})
        from hloom.proto.reader import read_module
        from hloom.proto.schema import message_class

        entry = read_module(message_class("HloModuleProto").FromString(self.stored.module)).entry
        instructions = entry.root.operands if len(self.stored.locations) > 1 else [entry.root]
        facts = zip(self._host_steps, instructions, self.stored.locations, strict=True)
        for step, instruction, location in facts:
            step.instruction, instruction.location = instruction, location
        return replace(self, stored=None, plans=Plans(entry).complete())


def names_of(module: Module) -> str:
    """Returns a digest of the names and locations of a module's instructions, which errors show."""
    names = [(instruction.name, instruction.location) for instruction in module.instructions()]
    return hashlib.sha256(repr(names).encode()).hexdigest()
