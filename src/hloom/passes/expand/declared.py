"""declared-expansions: operations whose declaration has an expansion into other operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.errors import ArgumentError
from hloom.ir import Instruction, Module
from hloom.passes.op_builder import OpBuilder, expand_all


@dataclass(frozen=True)
class DeclaredExpander:
    """Before: an operation with `expand`. After: the instructions that `expand` builds.

    Raises ArgumentError if their shape is not that of the operation.
    """

    name: ClassVar[str] = "declared-expansions"

    def run(self, module: Module) -> int:
        """Expands the instructions; returns their number."""
        opcodes = {instruction.opcode for instruction in module.instructions() if instruction.op.expand is not None}
        return expand_all(module, dict.fromkeys(opcodes, _expanded)) if opcodes else 0


def _expanded(build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    expand = old.op.expand
    assert expand is not None
    new: Instruction = expand(build, module, *old.op.bind(old.operands))
    if not new.shape.compatible(old.shape):
        raise ArgumentError(f"the expansion of {old.opcode} has the shape {new.shape}, it has {old.shape}")
    return new
