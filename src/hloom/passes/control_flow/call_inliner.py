"""inline: calls are replaced by what they call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import Call, Fusion
from hloom.passes.edit import Edit, callees_first_of, copy_into, has_control_edges
from hloom.passes.simplify.dead_code import remove_unused_computations


@dataclass(frozen=True)
class CallInliner:
    """Before: %c = call(%a, ..), to_apply=f. After: the instructions of f on %a, .., at the place of the call.

    Composites are calls too. Calls with control edges, to other execution threads, and those whose frontend attributes
    say `inlineable="false"` stay; so do asynchronous calls, and fusions unless `fusions` is set.
    """

    name: ClassVar[str] = "inline"
    fusions: bool = False

    def run(self, module: Module) -> int:
        changes = sum(inline_calls(computation, self.fusions) for computation in callees_first_of(module))
        if changes:
            remove_unused_computations(module)
        return changes


def inline_calls(computation: Computation, fusions: bool = False) -> int:
    """Inlines the calls of one computation, whose callees have none left."""
    found = [instruction for instruction in computation.instructions if _is_inlined(instruction, fusions)]
    if found:
        edit = Edit(computation)
        for call in found:
            (callee,) = call.op.computations
            inline(edit, call, callee, call.operands)
        edit.finish()
    return len(found)


def inline(edit: Edit, caller: Instruction, callee: Computation, arguments: Sequence[Instruction]) -> None:
    """Puts a copy of a computation, applied to arguments, in the place of an instruction that calls it."""
    caller.replace_all_uses_with(copy_into(edit, callee, arguments, caller))
    edit.remove(caller)


def _is_inlined(instruction: Instruction, fusions: bool) -> bool:
    op = instruction.op
    if isinstance(op, Fusion):
        return fusions and not has_control_edges(instruction)
    return (
        isinstance(op, Call)
        and op.computation.execution_thread == "main"
        and not has_control_edges(instruction)
        and instruction.frontend_attributes.get("inlineable") != "false"
    )
