"""simplify-conditional: conditionals whose choice does not matter or is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.control_flow import Conditional
from hloom.ops.structure import Constant
from hloom.passes.control_flow.call_inliner import inline
from hloom.passes.edit import Edit, callees_first_of, has_control_edges


@dataclass(frozen=True)
class ConditionalSimplifier:
    """Before: a conditional on a constant, with one branch, or with the same branch on the same operand everywhere.
    After: the instructions of that branch.

    Equal branches are the same one after cse. Conditionals with control edges stay.
    """

    name: ClassVar[str] = "simplify-conditional"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        return sum(
            _simplify(instruction)
            for computation in callees_first_of(module)
            for instruction in computation.instructions
            if instruction.opcode == "conditional" and not has_control_edges(instruction)
        )


def _simplify(instruction: Instruction) -> bool:
    branch = _taken_branch(instruction)
    if branch is None or instruction.parent is None:
        return False
    op = instruction.op
    assert isinstance(op, Conditional)
    edit = Edit(instruction.parent)
    inline(edit, instruction, op.branch_computations[branch], [instruction.operands[1 + branch]])
    edit.finish()
    return True


def _taken_branch(instruction: Instruction) -> int | None:
    """The branch that is taken, or one as good as all others; None where the choice matters and is not known."""
    op = instruction.op
    assert isinstance(op, Conditional)
    branches, arguments = op.branch_computations, instruction.operands[1:]
    if all(b is branches[0] for b in branches) and all(a is arguments[0] for a in arguments):
        return 0
    index = instruction.operands[0].op
    if not isinstance(index, Constant):
        return None
    value = index.literal.value
    chosen = (0 if value else 1) if value.dtype == bool else int(value)
    return chosen if 0 <= chosen < len(branches) else len(branches) - 1
