"""Staging: expensive values that reductions compute are kept in scratch buffers for the loops that use them again."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from hloom.affine import Expression, Index, Variable
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Reduction, walk
from hloom.loops.nest import BufferType, Kernel, Nest, Store, expression_cost, loads_of
from hloom.target import MAX_CACHED_ROW

MIN_STAGED_COST = 8
"""The smallest cost of an expression that is kept rather than computed again, in additions."""


def stage(kernel: Kernel, nest: Nest, vector: Variable, lanes: int = 0) -> Nest:
    """Keeps expensive values in scratch buffers if a reduction computes them and a loop uses them again.

    Without `lanes`, the reductions are of rows, which the vector loop uses; otherwise of a vector of columns. If the
    vector loop only stores such a value, the reduction stores it instead.
    """
    space = kernel.space
    computed = {id(e) for e in nest.expressions}
    staged = []
    replaced: dict[int, Expression] = {}
    remaining = nest.stores
    for reduction in nest.reductions:
        user = _user_loop(nest, reduction, vector, lanes)
        found = None if user is None else _used_again(space, reduction, user, computed - replaced.keys())
        if user is None or found is None:
            continue
        inner, (expression, counterpart) = reduction.over[0], found
        store = _store_in_reduction(kernel, nest, reduction, counterpart)
        if store is not None:
            index = space.substitute_index(store.index, {user: space.indices.of(inner)})
            staged.append((expression, store.buffer, index))
            remaining = tuple(each for each in remaining if each is not store)
            continue
        buffer, size = len(kernel.buffers), inner.extent * max(lanes, 1)
        type = expression.type.computation_type  # as registers hold it: no narrow float is rounded again
        kernel.buffers.append(BufferType(type, size, "scratch"))
        space.buffer_sizes.append(size)
        staged.append((expression, buffer, _slot(space, inner, vector, lanes)))
        replaced[id(counterpart)] = space.load(type, buffer, _slot(space, user, vector, lanes))
    if not staged:
        return nest
    values = space.replace([store.value for store in remaining], replaced, in_reductions=False)
    stores = tuple(replace(s, value=v) for s, v in zip(remaining, values, strict=True))
    kept = (*nest.schedule.staged, *staged)
    nest = replace(nest, stores=stores, schedule=replace(nest.schedule, staged=kept))
    is_used = any(vector in store.index.variables for store in stores)
    return nest if is_used else nest.with_loops(loop for loop in nest.loops if loop is not vector)


def _used_again(
    space: ExpressionSpace, reduction: Reduction, user: Variable, computed: Set[int]
) -> tuple[Expression, Expression] | None:
    """An expensive value of a reduction, and its counterpart in the iterations of a loop, whose ids are `computed`;
    None if there is none.
    """
    inner = reduction.over[0]
    for expression in _expensive(reduction.values, inner):
        counterpart = space.substitute([expression], {inner: space.indices.of(user)}, in_reductions=False)[0]
        if id(counterpart) in computed and counterpart is not expression:
            return expression, counterpart
    return None


def _store_in_reduction(kernel: Kernel, nest: Nest, reduction: Reduction, value: Expression) -> Store | None:
    """The store of a value that a reduction can store, since nothing reads later what it overwrites; else None."""
    store = next((store for store in nest.stores if store.value is value), None)
    if nest.is_perfect or store is None or kernel.buffers[store.buffer].type is not value.type.computation_type:
        return None
    others = walk([other.value for other in nest.stores if other is not store])
    own = {*loads_of([*reduction.values, *reduction.initial])}
    overwritten = {store.buffer, *(read for written, read in kernel.in_place if written == store.buffer)}
    is_read = any(load.buffer in overwritten and load not in own for load in loads_of(others))
    return None if is_read or value in others else store


def _user_loop(nest: Nest, reduction: Reduction, vector: Variable, lanes: int) -> Variable | None:
    """The loop whose iterations may use the values that a reduction reduces; None if they cannot be kept."""
    if len(reduction.over) != 1 or not reduction.monoid or (vector in reduction.variables) != bool(lanes):
        return None
    extent = reduction.over[0].extent
    inside = nest.loops[nest.loops.index(vector) + 1 :] if lanes else (vector,)
    loops = [loop for loop in inside if loop.extent == extent and loop not in reduction.variables]
    return loops[0] if loops and extent * max(lanes, 1) <= MAX_CACHED_ROW else None


def _slot(space: ExpressionSpace, loop: Variable, vector: Variable, lanes: int) -> Index:
    """The index in a scratch buffer of the value of an iteration: of a row, or of a vector of columns."""
    at = space.indices.of(loop)
    if not lanes:
        return at
    return space.indices.linear([at, space.indices.remainder(space.indices.of(vector), lanes)], [lanes, 1])


def _expensive(values: Sequence[Expression], inner: Variable) -> list[Expression]:
    """The expressions that are worth keeping, from users to operands."""
    found: list[Expression] = []
    for expression in reversed(walk(values)):
        if isinstance(expression, Apply) and inner in expression.variables:
            work = sum(expression_cost(e) for e in walk([expression]) if inner in e.variables)
            found += [expression] * (work >= MIN_STAGED_COST)
    return found
