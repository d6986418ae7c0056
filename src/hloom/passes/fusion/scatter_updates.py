"""scatter-updates: updates of scatters, such as messages along edges of a graph, are computed inside the scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.scatter import Scatter
from hloom.ops.structure import Constant
from hloom.ops.traits import Movement, Update
from hloom.passes.edit import edits, is_dynamic, running_computations
from hloom.passes.fusion.build import build_fusion
from hloom.passes.fusion.decisions import CanFuse
from hloom.system.records import record

MAX_INSTRUCTIONS = 48
"""Instructions from which updates are computed."""
MIN_BYTES = 1 << 20
"""Bytes of updates that take longer to write and read than to compute."""
MAX_REPETITION = 2
"""Elements of the updates for each of which a member is computed again."""

CanCompute = Callable[[Instruction, Sequence[Instruction]], bool]
"""Whether the target has code for a scatter whose updates are computed from arrays in memory."""


@record
class ScatterUpdates:
    """Before: scatter(broadcast(0), i, multiply(gather(x, j), w)). After: a fusion of these, whose root is the scatter.

    The updates are written and read by nothing else, and not computed from much larger arrays. Instructions that
    `can_fuse` refuses, and scatters that `can_compute` refuses, are left alone.
    """

    name: ClassVar[str] = "scatter-updates"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Scatter,)
    can_fuse: CanFuse = field(compare=False)
    can_compute: CanCompute = field(compare=False)

    def run(self, module: Module) -> int:
        """Makes the fusions; returns their number."""
        changes = 0
        for edit in edits(running_computations(module)):
            for scatter in edit.computation.instructions:
                if not isinstance(scatter.op, Scatter) or is_dynamic(scatter) or scatter.shape.is_tuple:
                    continue
                members = self._members(scatter)
                if members:
                    repeated = scatter.operands[0]
                    inner = dict.fromkeys([*repeated.operands, repeated, *members, scatter])
                    build_fusion(module, edit, [scatter], inner)
                    changes += 1
        return changes

    def _members(self, scatter: Instruction) -> list[Instruction]:
        """Returns the instructions that compute the updates in the scatter, operands first; none if they stay in
        memory.
        """
        updates, found = scatter.operands[2], dict[Instruction, None]()
        if updates.shape.byte_size < MIN_BYTES:
            return []
        users, stack = {scatter}, [updates]
        while stack and len(found) < MAX_INSTRUCTIONS:
            member = stack.pop()
            has_others = not isinstance(member.op, Constant) and not users.issuperset(member.users)
            if member not in found and not has_others and self._is_computed(member, scatter):
                found[member] = None
                users.add(member)
                stack += member.operands
        members = [i for i in scatter.parent.instructions if i in found] if scatter.parent else []
        read = [scatter.operands[1], *(operand for member in members for operand in member.operands)]
        sources = [operand for operand in dict.fromkeys(read) if operand not in found]
        if not members or sum(o.shape.byte_size for o in sources) > 2 * updates.shape.byte_size:
            return []
        return members if self.can_compute(scatter, sources) else []

    def _is_computed(self, instruction: Instruction, scatter: Instruction) -> bool:
        """Whether an instruction can be computed for each of the updates, without much repetition."""
        if isinstance(instruction.op, Constant):
            return instruction.shape.is_scalar and self.can_fuse(instruction)
        op = instruction.op
        is_element = op.elementwise or (isinstance(op, Movement) and not isinstance(op, Update))
        if not is_element or not instruction.shape.is_array or instruction in scatter.operands[:2]:
            return False
        is_repeated = MAX_REPETITION * instruction.shape.element_count < scatter.operands[2].shape.element_count
        return not is_repeated and self.can_fuse(instruction)
