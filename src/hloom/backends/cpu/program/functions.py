"""Which computations become functions of the program: their callers call them, and do not hold their steps.

    call(x), to_apply=f .. call(y), to_apply=f, where f is long

A program is as long as what its computations expand to, which may be exponential in their number. So those that are
long and run in several places are functions, once there would be too many steps; and where loops and conditionals nest
deeply, some of the levels are: what works on steps goes from one level into the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hloom.ir import Computation, callees_first
from hloom.ops.control_flow import Call
from hloom.passes.edit import inlined_size, is_control_flow

LONG_PROGRAM = 4000
"""Instructions that a program may expand to before loops and branches share computations."""
LONG_FUNCTION = 16
"""Instructions that are worth a call."""
MAX_LEVELS = 32
"""Of loops and conditionals inside of each other, in one function."""


def running_computations(entry: Computation) -> list[Computation]:
    """The entry, last, and what calls, loops and conditionals run from there on, each after what it runs itself.

    What is applied to elements is left out.
    """
    order = callees_first(entry)
    found = {entry}
    for computation in reversed(order):
        if computation in found:
            found.update(_run_by(computation))
    return [computation for computation in order if computation in found]


def functions_of(order: Sequence[Computation]) -> set[Computation]:
    """The computations that become functions, of those that run, callees first."""
    calls = Counter(i.op.computation for c in order for i in c.instructions if isinstance(i.op, Call))
    functions = {computation for computation, count in calls.items() if count > 1}
    runs = Counter(callee for computation in order for callee in _run_by(computation))
    inlined: dict[Computation, int] = {}
    for computation in order:
        inlined[computation] = inlined_size(computation, inlined)
    is_long = inlined[order[-1]] > LONG_PROGRAM
    sizes: dict[Computation, int] = {}
    levels: dict[Computation, int] = {}
    for computation in order:
        inside = [callee for callee in _run_by(computation) if callee not in functions]
        sizes[computation] = len(computation.instructions) + sum(sizes[callee] for callee in inside)
        levels[computation] = 1 + max((levels[callee] for callee in inside), default=0)
        is_shared = is_long and runs[computation] > 1 and sizes[computation] >= LONG_FUNCTION
        if is_shared or levels[computation] > MAX_LEVELS:
            functions.add(computation)
    return functions


def _run_by(computation: Computation) -> list[Computation]:
    """The computations that its calls, loops and conditionals run, each as often as it is run."""
    return [callee for i in computation.instructions if is_control_flow(i) for callee in i.op.computations]
