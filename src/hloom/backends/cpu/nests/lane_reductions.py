"""Reductions with an accumulator in each lane of a vector."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

from hloom.affine import Variable
from hloom.backends.cpu.elements import ops as element_ops
from hloom.backends.cpu.elements.extrema import extremum_of_lanes
from hloom.backends.cpu.elements.types import Element, map_parts, parts, select_element, width_of
from hloom.backends.cpu.nests.reduction_loops import (
    SUMMATION_BLOCK,
    LoopBody,
    States,
    combine_unrounded,
    combined,
    flatten,
    identities,
    loop_body,
    loop_elements,
    outer_loops,
    reduction_loops,
    rounded_results,
    summed_in_blocks,
    unflatten,
    values_of,
)
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, Type, Value, constant, mask_constant
from hloom.loops.expressions import Reduction, walk
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Multiply, Or, Xor

MIN_LANE_EXTENT = 8
"""The smallest extent of a loop along which reductions of a fixed order have lanes."""
_SEARCHED_LANES = 4
"""The number of lanes that LLVM reduces itself."""


def vector_reductions(e: NestState, reductions: list[Reduction], variable: Variable, lanes: int) -> States:
    """Emits reorderable reductions along `variable` with an accumulator in each lane, which are combined at the end."""
    start = [[e.value(initial) for initial in reduction.initial] for reduction in reductions]
    e.vector, e.lanes = variable, lanes
    others = tuple(v for v in reductions[0].over if v is not variable)
    states = outer_loops(
        e, others, identities(reductions, lanes), lambda s: _reduce_vectors(e, reductions, variable, s), reductions
    )
    e.vector, e.lanes = None, 0
    totals = [
        [combine_unrounded(e, reduction, first[0], horizontal_reduction(e, reduction, values[0]))]
        for reduction, first, values in zip(reductions, start, states, strict=True)
    ]
    return rounded_results(e, reductions, totals)


def _reduce_vectors(e: NestState, reductions: list[Reduction], variable: Variable, states: States) -> States:
    """Emits the loop over whole vectors of the vector loop, and the remainder as a masked vector."""
    step, lanes = _step(e, reductions, variable), e.lanes
    main = variable.extent // lanes * lanes
    if needs_vector_blocks(reductions, variable, lanes):
        states = summed_in_blocks(e, reductions, variable, lanes, states, step)
    elif main:
        for span in e.spans(variable, lanes, main, walk(values_of(reductions))):
            states = loop_elements(e, span.first, span.last, lanes, states, step)
    if main < variable.extent:
        zeros = identities(reductions, lanes)
        e.tail = tail = mask_constant(variable.extent - main, lanes)
        rest = [
            [select_element(e.builder, tail, value, zero) for value, zero in zip(values, of_none, strict=True)]
            for values, of_none in zip(step(constant(I64, main), zeros), zeros, strict=True)
        ]
        states = combined(e, reductions, states, rest)
        e.tail = None
    return states


def _step(e: NestState, reductions: list[Reduction], variable: Variable) -> LoopBody:
    """The body of the loop over a variable: one step of each reduction."""
    return loop_body(e, reductions, variable, lambda states: reduction_loops(e, reductions, (), states))


def fixed_lane_loop(over: Sequence[Variable]) -> Variable | None:
    """The loop along which reductions of a fixed order have lanes; None if they are short, and add up in order."""
    long = [v for v in reversed(over) if v.extent >= MIN_LANE_EXTENT]
    return long[0] if long and long[0] is over[-1] else max(long, key=lambda v: v.extent, default=None)


def lane_by_lane(e: NestState, reductions: list[Reduction], variable: Variable) -> States:
    """Emits reductions that vary along the vector loop, with the results of `vector_reductions` along `variable`.

    Lane k of these becomes a loop over the iterations k, k + lanes .., whose sum is stored; at the end the sums are
    combined as lanes are.
    """
    lanes = e.nest.schedule.sum_lanes
    start = [[e.splat(e.value(i), e.lanes) for i in reduction.initial] for reduction in reductions]
    zeros = identities(reductions, e.lanes)
    rest, count = variable.extent % lanes, min(lanes, variable.extent)
    slots = [e.builder.stack_array(part.type, count) for part in flatten(zeros)]

    def sum_lane(lane: Value, has_rest: bool) -> None:
        states = _sum_of_lane(e, reductions, variable, lane, has_rest)
        for slot, part in zip(slots, flatten(states), strict=True):
            e.builder.store(part, _lane_address(e, slot, part.type, lane), _alignment(part.type))

    for first, last, has_rest in ((0, rest, True), (rest, count, False)):
        if first < last:
            e.counted_loop(first, last, 1, functools.partial(sum_lane, has_rest=has_rest))
    sums = [_load_lane(e, slots, zeros, k) for k in range(count)] + [zeros] * (lanes - count)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [combined(e, reductions, sums[k], sums[k + half]) for k in range(half)]
    totals = combined(e, reductions, start, sums[0])
    return rounded_results(e, reductions, totals)


def _sum_of_lane(e: NestState, reductions: list[Reduction], variable: Variable, lane: Value, has_rest: bool) -> States:
    """Emits the sum of the iterations lane, lane + lanes .., of which the last one is outside of whole vectors."""
    b, lanes, zeros = e.builder, e.nest.schedule.sum_lanes, identities(reductions, e.lanes)
    step, main = _step(e, reductions, variable), variable.extent // lanes * lanes

    def add_iteration(at: Value, states: States) -> States:
        return step(b.binary("add", at, lane), states)

    def add_all(states: States) -> States:
        if needs_vector_blocks(reductions, variable, lanes):
            states = summed_in_blocks(e, reductions, variable, lanes, states, add_iteration)
        elif main:
            states = loop_elements(e, 0, main, lanes, states, add_iteration)
        if has_rest:
            states = combined(e, reductions, states, step(b.binary("add", lane, b.index(main)), zeros))
        return states

    others = tuple(v for v in reductions[0].over if v is not variable)
    return outer_loops(e, others, zeros, add_all, reductions)


def _load_lane(e: NestState, slots: Sequence[Value], like: States, lane: int) -> States:
    """Loads the sums of a lane from stack memory."""
    loaded = [
        e.builder.load(_lane_address(e, slot, part.type, constant(I64, lane)), part.type, _alignment(part.type))
        for slot, part in zip(slots, flatten(like), strict=True)
    ]
    return unflatten(like, loaded)


def _lane_address(e: NestState, slot: Value, type: Type, lane: Value) -> Value:
    """The address of a lane's sum of a type, a vector or a scalar, in stack memory."""
    index = e.builder.binary("mul", lane, constant(I64, max(1, type.width)))
    return e.builder.element_pointer(slot, index, type.element)


def _alignment(type: Type) -> int:
    return type.bits // 8


def needs_vector_blocks(reductions: Sequence[Reduction], variable: Variable, lanes: int) -> bool:
    """Whether there is a vectorised sum of floats that is long enough for blocks."""
    is_long = variable.extent > 2 * SUMMATION_BLOCK * lanes
    return is_long and any(r.monoid is Add and not r.initial[0].type.is_integer for r in reductions)


def horizontal_reduction(e: NestState, reduction: Reduction, lanes: Element) -> Element:
    """Reduces the lanes of a vector to a scalar."""
    b, type = e.builder, reduction.initial[0].type
    # LLVM takes long to halve vectors of several registers itself.
    while width_of(lanes) * parts(lanes)[0].type.bits > 8 * e.vector_bytes:
        lanes = _halved(e, reduction, lanes)
    if isinstance(lanes, Value) and not (type.is_pred and reduction.monoid not in (And, Or, Xor)):
        vector = lanes.type
        name = element_ops.float_instruction(reduction.monoid)
        if type.is_float and name is not None and not e.nest.has_fixed_order(reduction):
            return _reduced_floats(e, reduction, name, lanes)
        if not e.nest.has_fixed_order(reduction):
            intrinsic = _reduction_intrinsic(reduction)
            if type.is_float and reduction.monoid in (Maximum, Minimum):
                found = extremum_of_lanes(b, intrinsic.removeprefix("f"), lanes)
                if found is not None:
                    return found
            return b.call(f"llvm.vector.reduce.{intrinsic}.{vector.suffix}", vector.scalar, lanes)
    while width_of(lanes) > 1:
        lanes = _halved(e, reduction, lanes)
    return map_parts(lambda part: b.extract(part, 0), lanes)


def _reduced_floats(e: NestState, reduction: Reduction, name: str, lanes: Value) -> Value:
    """Reduces the lanes of a register of floats in any order, by the instruction `name`.

    A fence ends LLVM's search, from the last lane on, for the lanes that each shuffle needs.
    """
    b = e.builder
    while lanes.type.width > _SEARCHED_LANES:
        lanes = cast(Value, _halved(e, reduction, lanes))
    lanes, type = b.intrinsic("arithmetic.fence", lanes), lanes.type
    start = constant(type.scalar, -0.0 if name == "fadd" else 1.0)
    return b.call(f"llvm.vector.reduce.{name}.{type.suffix}", type.scalar, start, lanes, flags="reassoc")


def _halved(e: NestState, reduction: Reduction, lanes: Element) -> Element:
    """Combines the two halves of a vector."""
    middle = width_of(lanes) // 2
    halves = range(middle), range(middle, 2 * middle)
    low, high = (map_parts(lambda part, half=half: e.builder.shuffle(part, None, half), lanes) for half in halves)
    return combine_unrounded(e, reduction, low, high)


def _reduction_intrinsic(reduction: Reduction) -> str:
    """The name of the LLVM intrinsic that reduces a vector by a monoid, after `llvm.vector.reduce.`."""
    monoid, type = reduction.monoid, reduction.initial[0].type
    assert monoid is not None
    if monoid in (Maximum, Minimum):
        short = "max" if monoid is Maximum else "min"
        return f"f{short}imum" if type.is_float else ("s" if type.is_signed else "u") + short
    return "mul" if monoid is Multiply else monoid.opcode
