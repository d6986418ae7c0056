"""double-buffering: loops that compute an array of their state from its neighbours run two iterations in one.

A step of a stencil cannot overwrite the array that it reads, so that each iteration writes another one and copies it to
the first. Of two iterations the first writes the other array, the second the first one, and nothing is copied.
"""

from __future__ import annotations

from typing import ClassVar

from hloom.analysis.counted_loop import carried_index, trip_count
from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import While
from hloom.ops.structure import Tuple
from hloom.ops.traits import ControlFlow, Movement, Update, View
from hloom.passes.edit import Edit, callers, copy_into, effectful_computations, has_control_edges, has_effect, loops_of
from hloom.passes.optimize.update_scheduler import writes_most
from hloom.system.records import record

MAX_INSTRUCTIONS = 256
"""Instructions of a body that is repeated."""
MIN_BYTES = 1 << 16
"""Bytes of an array that takes longer to copy than the kernels of an iteration take to start."""
MIN_TRIPS = 4
"""Iterations of a loop that is worth it."""


@record
class DoubleBuffering:
    """Before: a loop of n iterations, a known number, whose body computes an array of its state from other elements of
    it. After: a loop of n / 2 iterations of the body twice; if n is odd, the body is run once before it.

    Loops with effects, with control edges or with control flow inside are left alone, and so are long bodies and small
    arrays.
    """

    name: ClassVar[str] = "double-buffering"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)

    def run(self, module: Module) -> int:
        """Repeats the bodies; returns the number of loops."""
        loops = loops_of(module)
        if not loops:
            return 0
        effectful, calling = effectful_computations(module), callers(module)
        chosen = [loop for loop in loops if _is_simple(loop, effectful, calling) and _copies_state(loop)]
        for loop in chosen:
            _repeat(loop)
        return len(chosen)


def _is_simple(loop: Instruction, effectful: set[Computation], calling: dict[Computation, list[Instruction]]) -> bool:
    op, trips = loop.op, trip_count(loop)
    assert isinstance(op, While)
    if trips is None or trips < MIN_TRIPS or has_control_edges(loop) or has_effect(loop, effectful):
        return False
    body = op.body.instructions
    is_plain = len(body) <= MAX_INSTRUCTIONS and not any(isinstance(i.op, ControlFlow) for i in body)
    return is_plain and len(calling[op.body]) == 1 and isinstance(op.body.root.op, Tuple)


def _copies_state(loop: Instruction) -> bool:
    """Whether a large array of the state is computed from other elements of itself."""
    assert isinstance(loop.op, While)
    body = loop.op.body
    return any(
        value.shape.is_array and value.shape.byte_size >= MIN_BYTES and _reads_neighbours(value, k, body)
        for k, value in enumerate(body.root.operands)
    )


def _reads_neighbours(value: Instruction, index: int, body: Computation) -> bool:
    """Whether one kernel would compute a value from elements of the state's array at other indices."""
    seen, stack = {(value, False)}, [(value, False)]
    while stack:
        instruction, is_moved = stack.pop()
        if carried_index(instruction, body) == index and is_moved:
            return True
        if isinstance(instruction.op, Update) and not writes_most(instruction):
            continue  # The array is updated in place.
        if not instruction.op.elementwise and not isinstance(instruction.op, Movement):
            continue
        is_moved = is_moved or not (instruction.op.elementwise or isinstance(instruction.op, View))
        new = [(operand, is_moved) for operand in instruction.operands if (operand, is_moved) not in seen]
        seen.update(new)
        stack += new
    return False


def _repeat(loop: Instruction) -> None:
    """Makes the body two iterations, and computes the first of an odd number before the loop."""
    op, trips = loop.op, trip_count(loop)
    assert isinstance(op, While) and trips is not None and loop.parent is not None
    if trips % 2:
        edit = Edit(loop.parent)
        loop.replace_operand(0, copy_into(edit, op.body, loop.operands, loop))
        edit.finish()
    edit, root = Edit(op.body), op.body.root
    state = edit.add(Tuple(), root.operands, root.shape, root)
    edit.replace(root, copy_into(edit, op.body, [state], root))
    edit.finish()
