"""while-loop-unroller: unrolls short counted loops, so that their iterations can be simplified and fused together."""

from __future__ import annotations

from typing import ClassVar

from hloom.analysis.counted_loop import trip_count
from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import While
from hloom.passes.edit import (
    Edit,
    callees_first_of,
    copy_into,
    effectful_computations,
    has_control_edges,
    has_effect,
    inlined_size,
)
from hloom.passes.simplify.dead_code import remove_unused_computations
from hloom.system.records import record


@record
class WhileLoopUnroller:
    """while(%t) with a known trip count n -> n copies of its body, one after another.

    Needs the counted form of loops that JAX generates. Loops with effects, with control edges, of more than `max_trips`
    iterations, or that would expand to more than `max_instructions` are left alone; so are loops that would expand to
    more than `max_inlined` instructions including those of the loops and conditionals inside.
    """

    name: ClassVar[str] = "while-loop-unroller"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)
    max_trips: int = 8
    max_instructions: int = 512
    max_inlined: int = 4096

    def run(self, module: Module) -> int:
        """Unrolls loops, inner ones first; returns the number of loops unrolled."""
        order = callees_first_of(module)
        if not any(isinstance(i.op, While) for i in module.instructions()):
            return 0
        effectful, changes = effectful_computations(module), 0
        sizes: dict[Computation, int] = {}
        for computation in order:
            changes += self._unroll(computation, effectful, sizes)
            sizes[computation] = inlined_size(computation, sizes)
        if changes:
            remove_unused_computations(module)
        return changes

    def _unroll(self, computation: Computation, effectful: set[Computation], sizes: dict[Computation, int]) -> int:
        loops = [i for i in computation.instructions if isinstance(i.op, While) and self._is_short(i, effectful, sizes)]
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

    def _is_short(self, loop: Instruction, effectful: set[Computation], sizes: dict[Computation, int]) -> bool:
        trips = trip_count(loop)
        if trips is None or not 0 < trips <= self.max_trips or has_control_edges(loop) or has_effect(loop, effectful):
            return False
        assert isinstance(loop.op, While)
        own, inlined = len(loop.op.body.instructions), sizes[loop.op.body]
        return trips * own <= self.max_instructions and trips * inlined <= self.max_inlined
