"""inline: replaces calls by the instructions of their callees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import Call, Fusion
from hloom.ops.traits import ControlFlow
from hloom.passes.edit import (
    Copies,
    Edit,
    callees_first_of,
    calls,
    copy_into,
    effectful_computations,
    has_control_edges,
)
from hloom.passes.simplify.dead_code import remove_unused_computations
from hloom.system.records import record


@record
class CallInliner:
    """Before: %c = call(%a, ..), to_apply=f. After: the instructions of f applied to %a, .., instead of the call.

    Composites are calls too, and so are fusions if `fusions` is set. Calls with control edges, calls to other execution
    threads, calls with the frontend attribute `inlineable="false"`, and asynchronous calls are left alone.

    If the module would have more than `max_instructions` afterwards, computations with several calls are inlined only
    if they are small, so that compile time depends on the size of the module and not of its expansion. Small means less
    than `min_callee` instructions. For computations with effects, with parameters or results that are not static
    arrays, or called from computations that are applied to elements, it means that inlining adds less than `max_growth`
    instructions.
    """

    name: ClassVar[str] = "inline"
    fusions: bool = False
    max_instructions: int = 4000
    min_callee: int = 16
    max_growth: int = 500

    def run(self, module: Module) -> int:
        """Inlines calls, callers first; returns the number of inlined calls."""
        if self.fusions:
            for instruction in module.instructions():
                _fusion_to_call(instruction)
        if not any(_is_inlined(instruction, frozenset()) for instruction in module.instructions()):
            return 0
        order = callees_first_of(module)
        effectful = effectful_computations(module)
        kept, kept_in_applied = self._kept(order, effectful)
        only_applied = {module.entry: False}
        changes = 0
        for computation in reversed(order):
            if computation not in only_applied:
                continue
            changes += inline_calls(computation, kept_in_applied if only_applied[computation] else kept, effectful)
            for instruction in computation.instructions:
                # The callee is only applied to elements if that is so for all of its callers.
                inside = only_applied[computation] or not isinstance(instruction.op, ControlFlow)
                for callee in calls(instruction.op):
                    only_applied[callee] = inside and only_applied.get(callee, True)
        if changes:
            remove_unused_computations(module)
        return changes

    def _kept(
        self, order: list[Computation], effectful: AbstractSet[Computation]
    ) -> tuple[set[Computation], set[Computation]]:
        """Returns the computations whose calls are not inlined: in general, and in computations applied to elements."""
        called = Counter(i.op.computation for c in order for i in c.instructions if isinstance(i.op, Call))
        shared = {computation for computation, count in called.items() if count > 1}
        inlined = _inlined_sizes(order, lambda callee, size: False)
        if sum(inlined[c] for c in order if c not in called) <= self.max_instructions:
            return set(), set()
        plain = {c for c in shared if c not in effectful and _has_static_signature(c)}

        def is_large(callee: Computation, size: int) -> bool:
            return callee in shared and (called[callee] - 1) * size >= self.max_growth

        def is_kept(callee: Computation, size: int) -> bool:
            return is_large(callee, size) or (callee in plain and size >= self.min_callee)

        return _kept_computations(order, is_kept), _kept_computations(order, is_large)


IsKept = Callable[[Computation, int], bool]
"""Whether calls of a computation are not inlined, given its number of instructions after inlining its own calls."""


def _kept_computations(order: list[Computation], is_kept: IsKept) -> set[Computation]:
    return {computation for computation, size in _inlined_sizes(order, is_kept).items() if is_kept(computation, size)}


def _inlined_sizes(order: list[Computation], is_kept: IsKept) -> dict[Computation, int]:
    """Returns the number of instructions of each computation after inlining all calls but those of kept callees."""
    sizes: dict[Computation, int] = {}
    for computation in order:
        callees = (i.op.computation for i in computation.instructions if isinstance(i.op, Call))
        inlined = sum(sizes[callee] for callee in callees if not is_kept(callee, sizes[callee]))
        sizes[computation] = len(computation.instructions) + inlined
    return sizes


def _has_static_signature(computation: Computation) -> bool:
    """Whether parameters and result are static arrays."""
    return all(shape.is_static for shape in (*computation.parameter_shapes, computation.result_shape))


def _fusion_to_call(instruction: Instruction) -> None:
    op = instruction.op
    if isinstance(op, Fusion) and not has_control_edges(instruction):
        instruction.op = Call(computation=op.calls)
        instruction.frontend_attributes.pop("inlineable", None)


def inline_calls(computation: Computation, kept: AbstractSet[Computation], effectful: AbstractSet[Computation]) -> int:
    """Inlines the calls of one computation recursively, except calls of `kept`; returns the number of calls inlined."""
    worklist = [i for i in reversed(computation.instructions) if _is_inlined(i, kept)]
    if not worklist:
        return 0
    edit, copies, count = Edit(computation), Copies(effectful), 0
    while worklist:
        call = worklist.pop()
        (callee,) = call.op.computations
        inline(edit, call, callee, call.operands, copies)
        worklist += [i for i in reversed(edit.made_for(call)) if _is_inlined(i, kept)]
        count += 1
    edit.finish()
    return count


def inline(
    edit: Edit,
    caller: Instruction,
    callee: Computation,
    arguments: Sequence[Instruction],
    copies: Copies | None = None,
) -> None:
    """Replaces an instruction that calls a computation by a copy of the computation, applied to the arguments.

    Earlier `copies` are shared.
    """
    result = copy_into(edit, callee, arguments, caller, copies)
    edit.redirect(caller, result)
    edit.remove(caller)
    if copies is not None:
        copies.results[caller] = result


def _is_inlined(instruction: Instruction, kept: AbstractSet[Computation]) -> bool:
    op = instruction.op
    return (
        isinstance(op, Call)
        and op.computation not in kept
        and op.computation.execution_thread == "main"
        and not has_control_edges(instruction)
        and instruction.frontend_attributes.get("inlineable") != "false"
    )
