"""while-loop-unroller: short counted loops become straight code, which can be simplified and fused as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.counted_loop import trip_count
from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import While
from hloom.passes.edit import Edit, copy_into, has_control_edges, runs_effects
from hloom.passes.simplify.dead_code import remove_unused_computations


@dataclass(frozen=True)
class WhileLoopUnroller:
    """while(%t) that is known to run n times -> n copies of its body, one after another.

    Needs loops that count as JAX's do. Loops with effects, with control edges, of more rounds than `max_trips`, or that
    would become more instructions than `max_instructions`, stay.
    """

    name: ClassVar[str] = "while-loop-unroller"
    max_trips: int = 8
    max_instructions: int = 512

    def run(self, module: Module) -> int:
        changes = sum(self._unroll(computation) for computation in list(module.computations))
        if changes:
            remove_unused_computations(module)
        return changes

    def _unroll(self, computation: Computation) -> int:
        loops = [i for i in computation.instructions if isinstance(i.op, While) and self._is_short(i)]
        if not loops:
            return 0
        edit = Edit(computation)
        for loop in loops:
            trips = trip_count(loop)
            assert trips is not None and isinstance(loop.op, While)
            state = loop.operands[0]
            for _ in range(trips):
                state = copy_into(edit, loop.op.body, [state], loop)
            edit.replace(loop, state)
        edit.finish()
        return len(loops)

    def _is_short(self, loop: Instruction) -> bool:
        trips = trip_count(loop)
        if trips is None or not 0 < trips <= self.max_trips or has_control_edges(loop) or runs_effects(loop.op):
            return False
        assert isinstance(loop.op, While)
        return trips * len(loop.op.body.instructions) <= self.max_instructions
