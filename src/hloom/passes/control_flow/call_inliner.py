"""inline: calls are replaced by what they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import Call, Fusion
from hloom.passes.edit import (
    Edit,
    applied_computations,
    callees_first_of,
    copy_into,
    effectful_computations,
    has_control_edges,
)
from hloom.passes.simplify.dead_code import remove_unused_computations


@dataclass(frozen=True)
class CallInliner:
    """Before: %c = call(%a, ..), to_apply=f. After: the instructions of f on %a, .., at the place of the call.

    Composites are calls too. Calls with control edges, to other execution threads, and those whose frontend attributes
    say `inlineable="false"` stay; so do asynchronous calls, and fusions unless `fusions` is set. Where a module would
    have more than `max_instructions`, calls of what is called in several places and has at least `min_callee` stay too:
    compilation takes as long as the text is, not as what it unfolds to.
    """

    name: ClassVar[str] = "inline"
    fusions: bool = False
    max_instructions: int = 4000
    min_callee: int = 16

    def run(self, module: Module) -> int:
        order = callees_first_of(module)
        kinds = (Call, Fusion) if self.fusions else Call
        if not any(
            isinstance(instruction.op, kinds) for computation in order for instruction in computation.instructions
        ):
            return 0
        kept = self._kept(module, order)
        applied = applied_computations(module)
        changes = sum(inline_calls(c, self.fusions, set() if c in applied else kept) for c in order)
        if changes:
            remove_unused_computations(module)
        return changes

    def _kept(self, module: Module, order: list[Computation]) -> set[Computation]:
        """The computations whose calls stay."""
        unfolded: dict[Computation, int] = {}
        called: Counter[Computation] = Counter()
        for computation in order:
            callees = [i.op.computation for i in computation.instructions if isinstance(i.op, Call)]
            unfolded[computation] = len(computation.instructions) + sum(unfolded[callee] for callee in callees)
            called.update(callees)
        if sum(unfolded[c] for c in order if c not in called) <= self.max_instructions:
            return set()
        effectful = effectful_computations(module)
        sizes: dict[Computation, int] = {}
        kept: set[Computation] = set()
        for computation in order:
            callees = [i.op.computation for i in computation.instructions if isinstance(i.op, Call)]
            inlined = sum(sizes[callee] for callee in callees if callee not in kept)
            sizes[computation] = len(computation.instructions) + inlined
            is_large = called[computation] > 1 and sizes[computation] >= self.min_callee
            if is_large and computation not in effectful and _takes_arrays(computation):
                kept.add(computation)
        return kept


def _takes_arrays(computation: Computation) -> bool:
    """Whether parameters and results are arrays of fixed sizes."""
    return all(shape.is_static for shape in (*computation.parameter_shapes, computation.result_shape))


def inline_calls(computation: Computation, fusions: bool = False, kept: AbstractSet[Computation] = frozenset()) -> int:
    """Inlines the calls of one computation, but for those of `kept`; their callees have no others left."""
    found = [
        instruction
        for instruction in computation.instructions
        if _is_inlined(instruction, fusions) and not kept & {*instruction.op.computations}
    ]
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
