"""Decides which computations become subroutines, so that callers call them instead of inlining their steps.

    call(x), to_apply=f .. call(y), to_apply=f, where f is long

Inlining every call may make a program exponentially long. Computations that are long and run by several callers
therefore become subroutines once a program would exceed `LONG_PROGRAM` instructions. Deeply nested loops and
conditionals are split into subroutines too, because code that traverses steps recurses once per level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hloom.ir import Computation, callees_first
from hloom.ops.control_flow import Call
from hloom.ops.traits import ControlFlow
from hloom.passes.edit import inlined_size

LONG_PROGRAM = 4000
"""Number of inlined instructions above which loops and branches share computations."""
LONG_FUNCTION = 16
"""Minimum number of instructions for which a call pays."""
MAX_LEVELS = 32
"""Maximum nesting depth of loops and conditionals inside one subroutine."""


def running_computations(entry: Computation) -> list[Computation]:
    """Returns the entry and the computations that calls, loops and conditionals run, callees first.

    Computations applied to elements (combiners, comparators) are left out.
    """
    order = callees_first(entry)
    running = {entry}
    for computation in reversed(order):
        if computation in running:
            running.update(_run_by(computation))
    return [computation for computation in order if computation in running]


def functions_of(order: Sequence[Computation]) -> set[Computation]:
    """Returns the computations that become subroutines; `order` holds all running computations, callees first."""
    calls = Counter(i.op.computation for c in order for i in c.instructions if isinstance(i.op, Call))
    functions = {computation for computation, count in calls.items() if count > 1}
    runs = Counter(callee for computation in order for callee in _run_by(computation))
    inlined: dict[Computation, int] = {}
    for computation in order:
        inlined[computation] = inlined_size(computation, inlined)
    is_long = inlined[order[-1]] > LONG_PROGRAM
    sizes: dict[Computation, int] = {}
    depths: dict[Computation, int] = {}
    for computation in order:
        inlined_callees = [callee for callee in _run_by(computation) if callee not in functions]
        sizes[computation] = len(computation.instructions) + sum(sizes[callee] for callee in inlined_callees)
        depths[computation] = 1 + max((depths[callee] for callee in inlined_callees), default=0)
        is_shared = is_long and runs[computation] > 1 and sizes[computation] >= LONG_FUNCTION
        if is_shared or depths[computation] > MAX_LEVELS:
            functions.add(computation)
    return functions


def _run_by(computation: Computation) -> list[Computation]:
    """Returns the computations run by calls, loops and conditionals of a computation, repeated for each use."""
    return [callee for i in computation.instructions if isinstance(i.op, ControlFlow) for callee in i.op.computations]
