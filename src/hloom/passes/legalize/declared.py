"""declared-expansions: operations whose declaration has an expansion into other operations."""

from __future__ import annotations

from typing import ClassVar

from hloom.errors import ArgumentError
from hloom.ir import Instruction, Module
from hloom.ops.operation import Operation
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all
from hloom.system.records import record


@record
class DeclaredExpander:
    """Before: an operation with `expand`. After: the instructions that `expand` builds.

    Raises ArgumentError if their shape is not that of the operation.
    """

    name: ClassVar[str] = "declared-expansions"

    def run(self, module: Module) -> int:
        """Expands the instructions; returns their number."""
        operations = {type(i.op) for i in module.instructions() if i.op.expand is not None}
        expanders = Expanders()
        for operation in operations:
            expanders.add(operation, _expanded)
        return expand_all(module, expanders) if operations else 0


def _expanded(op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    assert op.expand is not None
    new: Instruction = op.expand(build, module, *op.bind(old.operands))
    if not new.shape.compatible(old.shape):
        raise ArgumentError(f"the expansion of {old.opcode} has the shape {new.shape}, it has {old.shape}")
    return new
