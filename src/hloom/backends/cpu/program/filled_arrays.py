"""Arrays that a loop fills: each iteration writes a part of its own, and together they write every element.

    ys = zeros; while i < 100: ys[i] = f(x); i = i + 1

Whatever such an array holds before the loop, as where `lax.scan` collects its results, nobody reads: it is neither
copied nor computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from hloom.analysis.counted_loop import resolve
from hloom.backends.cpu.program.parallel_loops import ascending_loop, is_updated_by_slices
from hloom.ir import Computation, Instruction
from hloom.ops.control_flow import While
from hloom.ops.structure import Tuple
from hloom.passes.edit import runs_effects

Filled = Mapping[Instruction, Set[int]]
"""The elements of the states of loops that the loops fill."""


def filled_elements(computation: Computation) -> Filled:
    """Returns the elements that each loop of a computation fills."""
    return {loop: found for loop in computation.instructions if (found := _filled(loop))}


def unread_values(filled: Filled) -> set[Instruction]:
    """Returns the instructions whose values are what filled arrays hold before the loop, and nothing else."""
    states = {state for loop in filled for state in loop.operands if isinstance(state.op, Tuple)}
    values = {value for state in states for value in state.operands}
    return {
        value
        for value in values
        if not runs_effects(value.op) and all(_is_unread(value, u, filled) for u in value.users)
    }


def _filled(loop: Instruction) -> set[int]:
    op = loop.op
    if not isinstance(op, While) or not isinstance(op.body.root.op, Tuple):
        return set()
    counted = ascending_loop(loop)
    if counted is None:
        return set()
    found = set()
    for k, shape in enumerate(loop.shape.elements):
        if k != counted.index and shape.is_array and is_updated_by_slices(op.body, k, counted):
            part = resolve(op.body.root.operands[k]).instruction.operands[1]
            found |= {k} if counted.trips * part.shape.element_count == shape.element_count else set()
    return found


def _is_unread(value: Instruction, state: Instruction, filled: Filled) -> bool:
    """Whether a user of a value is only the state of loops that fill the arrays that begin with it."""
    assert state.parent is not None
    elements = {k for k, element in enumerate(state.operands) if element is value}
    is_state = isinstance(state.op, Tuple) and state is not state.parent.root
    return is_state and all(elements <= filled.get(loop, set()) for loop in state.users)
