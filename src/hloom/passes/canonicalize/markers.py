"""markers: removes custom calls that only annotate their operand, for other compilers."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.custom_call import CustomCall
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.runtime.custom_calls.targets import markers
from hloom.system.records import record


@record
class MarkerRemover:
    """Before: custom-call(%x), custom_call_target="MoveToHost". After: %x.

    Targets that the user has registered are left alone.
    """

    name: ClassVar[str] = "markers"
    operations: ClassVar[tuple[type, ...]] = (CustomCall,)

    def run(self, module: Module) -> int:
        """Removes the custom calls; returns their number."""
        targets = markers()

        def operand(op: CustomCall, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
            if op.target_name not in targets or len(old.operands) != 1:
                return None
            return old.operands[0] if old.operands[0].shape.compatible(old.shape) else None

        return expand_each(module, CustomCall, operand)
