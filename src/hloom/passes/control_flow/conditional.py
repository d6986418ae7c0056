"""simplify-conditional: replaces conditionals by a branch that is known statically."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.control_flow import Conditional
from hloom.passes.control_flow.call_inliner import inline
from hloom.passes.edit import Edit, callees_first_of, constant_value, has_control_edges
from hloom.system.records import record


@record
class ConditionalSimplifier:
    """Before: a conditional on a constant, or whose branches are one computation with one operand. After: the
    instructions of the branch.

    Needs cse to merge equal branches. Conditionals with control edges are left alone.
    """

    name: ClassVar[str] = "simplify-conditional"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Conditional,)

    def run(self, module: Module) -> int:
        """Inlines known branches; returns the number of conditionals replaced."""
        return sum(
            _simplify(instruction, instruction.op)
            for computation in callees_first_of(module)
            for instruction in computation.instructions
            if isinstance(instruction.op, Conditional) and not has_control_edges(instruction)
        )


def _simplify(instruction: Instruction, op: Conditional) -> bool:
    branch = _taken_branch(instruction, op)
    if branch is None or instruction.parent is None:
        return False
    edit = Edit(instruction.parent)
    inline(edit, instruction, op.branch_computations[branch], [instruction.operands[1 + branch]])
    edit.finish()
    return True


def _taken_branch(instruction: Instruction, op: Conditional) -> int | None:
    """Returns the index of the branch that is taken, or 0 if all are the same; None if it is unknown."""
    branches, arguments = op.branch_computations, instruction.operands[1:]
    if all(b is branches[0] for b in branches) and all(a is arguments[0] for a in arguments):
        return 0
    value = constant_value(instruction.operands[0])
    if value is None:
        return None
    chosen = (0 if value else 1) if value.dtype == bool else int(value)
    return chosen if 0 <= chosen < len(branches) else len(branches) - 1
