"""declared-expansions: operations whose declarations say what they are in terms of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.errors import ArgumentError
from hloom.ir import Instruction, Module
from hloom.passes.op_builder import OpBuilder, expand_all


@dataclass(frozen=True)
class DeclaredExpander:
    """Before: an operation with `expand`. After: the instructions that it makes."""

    name: ClassVar[str] = "declared-expansions"

    def run(self, module: Module) -> int:
        opcodes = {instruction.opcode for instruction in module.instructions() if instruction.op.expand is not None}
        return expand_all(module, dict.fromkeys(opcodes, _expanded)) if opcodes else 0


def _expanded(build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    expand = old.op.expand
    assert expand is not None
    new: Instruction = expand(build, module, *old.op.bind(old.operands))
    if not new.shape.compatible(old.shape):
        raise ArgumentError(f"the expansion of {old.opcode} has the shape {new.shape}, it has {old.shape}")
    return new
