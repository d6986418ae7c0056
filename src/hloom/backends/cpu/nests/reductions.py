"""Emission of reductions: serial, of scalars or vectors, or with an accumulator in each lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hloom.affine import Expression
from hloom.backends.cpu.elements.types import Element
from hloom.backends.cpu.nests.lane_reductions import fixed_lane_loop, lane_by_lane, vector_reductions
from hloom.backends.cpu.nests.reduction_loops import (
    SUMMATION_BLOCK,
    States,
    loop_body,
    reduction_loops,
    rounded_results,
    summed_in_blocks,
    values_of,
)
from hloom.backends.cpu.nests.state import NestState
from hloom.loops.expressions import Reduction
from hloom.loops.lanes import reduction_lanes
from hloom.loops.nest import reductions_of
from hloom.ops.elementwise_binary import Add


def emit_ready_reductions(e: NestState, ready: Sequence[Expression]) -> None:
    """Emits the reductions inside the expressions; independent ones over the same loops share them."""
    bound = e.variables.keys()
    reductions = [f for f in reductions_of(ready) if f.variables <= bound and all(map(e.is_safe, f.values))]
    depth: dict[int, int] = {}
    groups: dict[Any, list[Reduction]] = {}
    for reduction in reductions:
        inner = reductions_of([*reduction.values, *reduction.initial])
        depth[id(reduction)] = 1 + max((depth.get(id(f), 0) for f in inner), default=0)
        ordered = reduction.monoid if e.nest.has_fixed_order(reduction) else None
        groups.setdefault((depth[id(reduction)], reduction.over, ordered), []).append(reduction)
    for _, group in sorted(groups.items(), key=lambda item: item[0][0]):
        emit_reductions(e, [f for f in group if results_of(e, f) is None])


def emit_reductions(e: NestState, reductions: list[Reduction]) -> None:
    """Emits reductions over the same loops, and records their results in the current scope."""
    if not reductions:
        return
    start = len(e.builder.body)
    is_vector = e.vector is not None and any(e.vector in reduction.variables for reduction in reductions)
    fixed = fixed_lane_loop(reductions[0].over) if e.nest.has_fixed_order(reductions[0]) else None
    values = values_of(reductions)
    if is_vector:
        e.hoist(values)
        results = lane_by_lane(e, reductions, fixed) if fixed else serial_reductions(e, reductions)
    else:
        saved = e.vector, e.lanes, e.tail, e.mask
        e.vector, e.lanes, e.tail = None, 0, None
        if e.mask is not None and e.mask.type.width:
            e.mask = e.builder.any_lane(e.mask)
        e.hoist(values)
        variable, lanes = reduction_lanes(reductions, e.vector_bytes)
        if e.nest.has_fixed_order(reductions[0]):
            variable, lanes = fixed, e.nest.schedule.sum_lanes
        results = vector_reductions(e, reductions, variable, lanes) if variable else serial_reductions(e, reductions)
        e.vector, e.lanes, e.tail, e.mask = saved
    e.add_location(start, reductions[0])
    for reduction, found in zip(reductions, results, strict=True):
        e.scopes[-1]["reduction", id(reduction)] = found


def results_of(e: NestState, reduction: Reduction) -> list[Element] | None:
    """The results of a reduction; None if it has not been emitted."""
    return cast("list[Element] | None", e.known(("reduction", id(reduction))))


def serial_reductions(e: NestState, reductions: list[Reduction]) -> States:
    """Emits reductions with one accumulator each, a vector if the reduction varies along the vector loop."""
    width = e.lanes if e.vector is not None and any(e.vector in f.variables for f in reductions) else 0
    initial = [[e.splat(e.value(i), width) for i in reduction.initial] for reduction in reductions]
    over = reductions[0].over
    if all(reduction.monoid for reduction in reductions) and any(map(needs_blocks, reductions)):
        longest = max(over, key=lambda variable: variable.extent)
        inner = tuple(variable for variable in over if variable is not longest)
        body = loop_body(e, reductions, longest, lambda states: reduction_loops(e, reductions, inner, states))
        results = summed_in_blocks(e, reductions, longest, 1, initial, body)
    else:
        results = reduction_loops(e, reductions, over, initial)
    return rounded_results(e, reductions, results)


def needs_blocks(reduction: Reduction) -> bool:
    """Whether a reduction is a sum of floats that is long enough for blocks."""
    type = reduction.initial[0].type
    return (
        reduction.monoid is Add
        and (type.is_float or type.is_complex)
        and any(variable.extent > 2 * SUMMATION_BLOCK for variable in reduction.over)
    )
