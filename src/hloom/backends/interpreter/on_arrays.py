"""Control flow in scalar computations that are applied to whole arrays, where elements diverge.

A value is an array with a scalar for each element, a scalar that all elements share, or a tuple of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.ir import Computation
from hloom.ops.control_flow import Conditional, While
from hloom.ops.reduce import Map
from hloom.ops.registry import Registry
from hloom.values import Array, Value, leaves, map_leaves

Caller = Callable[[Computation, Sequence[Value]], Value]
"""Evaluates a computation on values of which some are arrays."""

ON_ARRAYS = Registry[[Caller, Sequence[Value]], Value]()
"""Evaluates an operation on scalars for all elements at once, where its own semantics do not do so."""


@ON_ARRAYS.rule(Conditional)
def _conditional(op: Conditional, call: Caller, operands: Sequence[Value]) -> Value:
    """Runs each branch on the elements that select it; an index out of range selects the last one (CONDITIONAL-4)."""
    selector, *arguments = operands
    count = len(op.branch_computations)
    if selector.dtype == bool:
        chosen = np.where(selector, 0, 1)
    else:
        chosen = np.where((selector >= 0) & (selector < count), selector, count - 1)
    if not chosen.shape:
        return call(op.branch_computations[int(chosen)], [arguments[int(chosen)]])
    result: Value = None
    for number, (branch, argument) in enumerate(zip(op.branch_computations, arguments, strict=True)):
        taken = chosen == number
        if taken.any():
            value = call(branch, [_where(argument, taken)])
            result = _put(result, value, taken)
    return result


@ON_ARRAYS.rule(While)
def _loop(op: While, call: Caller, operands: Sequence[Value]) -> Value:
    """Runs the body on those elements whose condition still holds, until none is left."""
    (state,) = operands
    sizes = np.broadcast_shapes(*(leaf.shape for leaf in leaves(state)))
    if not sizes:
        while call(op.condition, [state]):
            state = call(op.body, [state])
        return state
    state = map_leaves(lambda leaf: np.array(np.broadcast_to(leaf, sizes)), state)
    going = np.ones(sizes, bool)
    while True:
        going[going] = call(op.condition, [_where(state, going)])
        if not going.any():
            return state
        state = _put(state, call(op.body, [_where(state, going)]), going)


@ON_ARRAYS.rule(Map)
def _map_scalars(op: Map, call: Caller, operands: Sequence[Value]) -> Value:
    """Runs the computation of a map of scalars."""
    return call(op.computation, operands)


def _where(value: Value, mask: Array) -> Value:
    """Returns the elements of a value selected by a mask; shared scalars are unchanged."""
    return map_leaves(lambda leaf: leaf[mask] if leaf.shape else leaf, value)


def _put(target: Value, value: Value, mask: Array) -> Value:
    """Sets the elements of a mask in the target, which is created if it is None."""
    if isinstance(value, tuple):
        parts = target if target is not None else (None,) * len(value)
        return tuple(_put(t, v, mask) for t, v in zip(parts, value, strict=True))
    if target is None:
        target = np.zeros(mask.shape, value.dtype)
    target[mask] = value
    return target
