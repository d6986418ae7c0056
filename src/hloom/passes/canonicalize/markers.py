"""markers: removes custom calls that only annotate their operand, for other compilers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.custom_call import CustomCall
from hloom.passes.op_builder import OpBuilder, expand_each


@dataclass(frozen=True)
class MarkerRemover:
    """Before: custom-call(%x), custom_call_target="MoveToHost". After: %x.

    `targets` are the names of such custom calls.
    """

    targets: frozenset[str]
    name: ClassVar[str] = "markers"

    def run(self, module: Module) -> int:
        """Removes the custom calls; returns their number."""
        return expand_each(module, CustomCall, self._operand)

    def _operand(self, op: CustomCall, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        if op.target_name not in self.targets or len(old.operands) != 1:
            return None
        (operand,) = old.operands
        return operand if operand.shape.compatible(old.shape) else None
