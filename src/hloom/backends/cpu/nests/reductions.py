"""Emission of reductions: serial, of scalars or vectors, or with an accumulator in each lane; long sums in blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from hloom.affine import Expression, Variable
from hloom.backends.cpu.elements import ops as element_ops
from hloom.backends.cpu.elements.extrema import extremum_of_lanes
from hloom.backends.cpu.elements.types import (
    Element,
    constant_element,
    map_parts,
    parts,
    rounded,
    select_element,
    width_of,
)
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, IndexValue, Type, Value, constant, mask_constant
from hloom.loops.expressions import Apply, Argument, Reduction, walk
from hloom.loops.lanes import reduction_lanes
from hloom.loops.nest import reductions_of
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Multiply, Or, Xor

States = list[list[Element]]
"""The accumulators of several reductions."""
LoopBody = Callable[[Value, States], States]

MAX_UNROLLED_REDUCTION = 12
"""The largest number of iterations of a reduction that is unrolled."""
SUMMATION_BLOCK = 64
"""The block length of sums of floats. Longer sums add up the sums of blocks, so that errors stay small."""
MIN_LANE_EXTENT = 8
"""The smallest extent of a loop along which reductions of a fixed order have lanes."""
BLOCKS_PER_BLOCK = 8
"""The number of blocks whose sums make up a block of the next level."""


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
    values = [value for reduction in reductions for value in reduction.values]
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
    return [rounded_results(e, reduction, values) for reduction, values in zip(reductions, results, strict=True)]


def rounded_results(e: NestState, reduction: Reduction, values: list[Element]) -> list[Element]:
    """Rounds the results of reductions to narrow float types, since their accumulators are f32."""
    if reduction.monoid is None:
        return values
    types = [e.type for e in reduction.initial]
    return [v if isinstance(v, tuple) else rounded(e.builder, v, t) for v, t in zip(values, types, strict=True)]


def needs_blocks(reduction: Reduction) -> bool:
    """Whether a reduction is a sum of floats that is long enough for blocks."""
    type = reduction.initial[0].type
    return (
        reduction.monoid is Add
        and (type.is_float or type.is_complex)
        and any(variable.extent > 2 * SUMMATION_BLOCK for variable in reduction.over)
    )


def summed_in_blocks(
    e: NestState,
    reductions: list[Reduction],
    variable: Variable,
    step: int,
    initial: States,
    body: LoopBody,
) -> States:
    """Emits nested loops over blocks of blocks .. of the variable's range around `body`, which takes its value.

    Each block is summed from zero, so that no chain of additions is long (GEN-13). The remainder of the range by `step`
    is left out.
    """
    b, main, sizes = e.builder, variable.extent // step * step, [step, SUMMATION_BLOCK * step]
    while main > 2 * BLOCKS_PER_BLOCK * sizes[-1]:
        sizes.append(BLOCKS_PER_BLOCK * sizes[-1])
    zeros = [
        [identity_element(reduction, value) for value in values]
        for reduction, values in zip(reductions, initial, strict=True)
    ]

    def summed(first: IndexValue, last: IndexValue, level: int, states: States) -> States:
        def add_block(at: Value, states: States) -> States:
            end = b.intrinsic("smin", b.binary("add", at, b.index(sizes[level])), b.index(last))
            sums = summed(at, end, level - 1, zeros)
            return _combined(e, reductions, states, sums)

        return loop_elements(e, first, last, sizes[level], states, add_block if level else body)

    return summed(0, main, len(sizes) - 1, initial)


def reduction_loops(e: NestState, reductions: list[Reduction], over: tuple[Variable, ...], states: States) -> States:
    """Emits the loops `over`, from the outermost, around one step of each reduction."""
    if not over:
        return [reduction_step(e, reduction, state) for reduction, state in zip(reductions, states, strict=True)]
    variable, rest = over[0], over[1:]
    body = loop_body(e, reductions, variable, lambda inner: reduction_loops(e, reductions, rest, inner))
    if math.prod(v.extent for v in over) <= MAX_UNROLLED_REDUCTION:
        for k in range(variable.extent):
            states = body(constant(I64, k), states)
        return states
    if variable.extent == 0:
        return states
    return loop_elements(e, 0, variable.extent, 1, states, body)


def loop_body(
    e: NestState, reductions: list[Reduction], variable: Variable, body: Callable[[States], States]
) -> LoopBody:
    """The body of a loop: binds the variable, hoists what does not depend on inner loops, and runs `body`."""

    def step(at: Value, states: States) -> States:
        with e.bound(variable, at):
            e.hoist([value for reduction in reductions for value in reduction.values])
            return body(states)

    return step


def reduction_step(e: NestState, reduction: Reduction, states: list[Element]) -> list[Element]:
    """Combines the accumulators with the values of the current iteration."""
    values = [e.value(value) for value in reduction.values]
    if reduction.monoid is not None:
        return [combine_unrounded(e, reduction, states[0], values[0])]
    return combine(e, reduction, states, values)


def combine(e: NestState, reduction: Reduction, states: list[Element], values: list[Element]) -> list[Element]:
    """Emits the combiner of a reduction, with the accumulators and the values as its arguments."""
    scope: dict[Any, Any] = {}
    for root in walk(reduction.combine):
        if isinstance(root, Argument):
            scope[id(root)] = [*states, *values][root.number]
    e.scopes.append(scope)
    results = [e.value(expression) for expression in reduction.combine]
    e.scopes.pop()
    widths = [width_of(state) for state in states]
    return [e.splat(result, width) for result, width in zip(results, widths, strict=True)]


def combine_unrounded(e: NestState, reduction: Reduction, x: Element, y: Element) -> Element:
    """Emits the operation of a reorderable combiner, without rounding to narrow types."""
    x, y = e.to_common_width([x, y])
    expression = reduction.combine[0]
    assert isinstance(expression, Apply)
    type = expression.type
    if type.is_float and type.bits < 32 and isinstance(x, Value) and isinstance(y, Value):
        instruction = element_ops.float_instruction(reduction.monoid)
        if instruction:
            return e.builder.binary(instruction, x, y)
    return element_ops.apply(e.builder, expression, [x, y])


def identity_element(reduction: Reduction, like: Element) -> Element:
    """The identity of a reorderable combiner, as scalar or vector as `like`."""
    return constant_element(reduction.initial[0].type, reduction.identity, width_of(like))


def loop_elements(
    e: NestState, first: IndexValue, last: IndexValue, step: int, states: States, body: LoopBody
) -> States:
    """Emits a loop that carries the accumulators of several reductions."""
    with e.builder.loop(last, step, _flatten(states), first) as loop:
        loop.carried = _flatten(body(e.builder.index(loop.index), _unflatten(states, loop.carried)))
    return _unflatten(states, loop.carried)


def vector_reductions(e: NestState, reductions: list[Reduction], variable: Variable, lanes: int) -> States:
    """Emits reorderable reductions along `variable` with an accumulator in each lane, which are combined at the end."""
    start = [[e.value(initial) for initial in reduction.initial] for reduction in reductions]
    e.vector, e.lanes = variable, lanes
    others = tuple(v for v in reductions[0].over if v is not variable)
    identities = [
        [identity_element(reduction, e.splat(value, lanes)) for value in values]
        for reduction, values in zip(reductions, start, strict=True)
    ]

    step = loop_body(e, reductions, variable, lambda states: reduction_loops(e, reductions, (), states))

    def reduce_lanes(states: States) -> States:
        main = variable.extent // lanes * lanes
        if main:
            if any(needs_vector_blocks(reduction, variable, lanes) for reduction in reductions):
                states = summed_in_blocks(e, reductions, variable, lanes, states, step)
            else:
                states = _peeled(e, reductions, variable, main, states, step)
        if main < variable.extent:
            e.tail = tail = mask_constant(variable.extent - main, lanes)
            new = step(constant(I64, main), identities)
            states = [
                [
                    combine_unrounded(e, reduction, x, select_element(e.builder, tail, y, z))
                    for x, y, z in zip(old, values, zero, strict=True)
                ]
                for reduction, old, values, zero in zip(reductions, states, new, identities, strict=True)
            ]
            e.tail = None
        return states

    states = outer_loops(e, others, identities, reduce_lanes, reductions)
    e.vector, e.lanes = None, 0
    results = []
    for reduction, first, values in zip(reductions, start, states, strict=True):
        total = horizontal_reduction(e, reduction, values[0])
        results.append(rounded_results(e, reduction, [combine_unrounded(e, reduction, first[0], total)]))
    return results


def _peeled(
    e: NestState, reductions: list[Reduction], variable: Variable, last: int, states: States, body: LoopBody
) -> States:
    """Emits a loop over whole vectors, and those at the edges of padded rows on their own."""
    values = walk([value for reduction in reductions for value in reduction.values])
    for span in e.spans(variable, e.lanes, last, values):
        if span.last - span.first == e.lanes:
            states = body(constant(I64, span.first), states)
        else:
            states = loop_elements(e, span.first, span.last, e.lanes, states, body)
    return states


def fixed_lane_loop(over: Sequence[Variable]) -> Variable | None:
    """The loop along which reductions of a fixed order have lanes; None if they are short, and add up in order."""
    loop = over[-1] if over[-1].extent >= MIN_LANE_EXTENT else max(reversed(over), key=lambda v: v.extent)
    return loop if loop.extent >= MIN_LANE_EXTENT else None


def lane_by_lane(e: NestState, reductions: list[Reduction], variable: Variable) -> States:
    """Emits reductions that vary along the vector loop, with the results of `vector_reductions` along `variable`.

    Lane k of these becomes a loop over the iterations k, k + lanes .., whose sum is stored; at the end the sums are
    combined as lanes are.
    """
    b, lanes = e.builder, e.nest.schedule.sum_lanes
    start = [[e.splat(e.value(i), e.lanes) for i in reduction.initial] for reduction in reductions]
    identities = [
        [identity_element(reduction, value) for value in values]
        for reduction, values in zip(reductions, start, strict=True)
    ]
    others = tuple(v for v in reductions[0].over if v is not variable)
    step = loop_body(e, reductions, variable, lambda states: reduction_loops(e, reductions, (), states))
    main, count = variable.extent // lanes * lanes, min(lanes, variable.extent)
    in_blocks = any(needs_vector_blocks(reduction, variable, lanes) for reduction in reductions)
    slots = [b.stack_array(part.type, count) for part in _flatten(identities)]

    def sum_lane(lane: Value, has_rest: bool) -> None:
        def add_iteration(at: Value, states: States) -> States:
            return step(b.binary("add", at, lane), states)

        def add_all(states: States) -> States:
            if in_blocks:
                states = summed_in_blocks(e, reductions, variable, lanes, states, add_iteration)
            elif main:
                states = loop_elements(e, 0, main, lanes, states, add_iteration)
            if has_rest:
                new = step(b.binary("add", lane, b.index(main)), identities)
                states = _combined(e, reductions, states, new)
            return states

        states = outer_loops(e, others, identities, add_all, reductions)
        for slot, part in zip(slots, _flatten(states), strict=True):
            b.store(part, _lane_address(e, slot, part.type, lane), _alignment(part.type))

    rest = variable.extent - main
    for first, last, has_rest in ((0, rest, True), (rest, count, False)):
        if first < last:
            e.counted_loop(first, last, 1, functools.partial(sum_lane, has_rest=has_rest))
    lane_states = [identities] * lanes
    for k in range(count):
        parts_of_lane = [
            b.load(_lane_address(e, slot, part.type, constant(I64, k)), part.type, _alignment(part.type))
            for slot, part in zip(slots, _flatten(identities), strict=True)
        ]
        lane_states[k] = _unflatten(identities, parts_of_lane)
    while len(lane_states) > 1:
        half = len(lane_states) // 2
        lane_states = [_combined(e, reductions, lane_states[k], lane_states[k + half]) for k in range(half)]
    totals = _combined(e, reductions, start, lane_states[0])
    return [rounded_results(e, reduction, values) for reduction, values in zip(reductions, totals, strict=True)]


def _lane_address(e: NestState, slot: Value, type: Type, lane: Value) -> Value:
    """The address of a lane's sum of a type, a vector or a scalar, in stack memory."""
    index = e.builder.binary("mul", lane, constant(I64, max(1, type.width)))
    return e.builder.element_pointer(slot, index, type.element)


def _alignment(type: Type) -> int:
    return type.bits // 8


def _combined(e: NestState, reductions: list[Reduction], x: States, y: States) -> States:
    """The accumulators of several reductions combined, one by one."""
    return [
        [combine_unrounded(e, reduction, a, b) for a, b in zip(old, new, strict=True)]
        for reduction, old, new in zip(reductions, x, y, strict=True)
    ]


def needs_vector_blocks(reduction: Reduction, variable: Variable, lanes: int) -> bool:
    """Whether a vectorised sum of floats is long enough for blocks."""
    type = reduction.initial[0].type
    return reduction.monoid is Add and not type.is_integer and variable.extent > 2 * SUMMATION_BLOCK * lanes


def outer_loops(
    e: NestState,
    over: tuple[Variable, ...],
    states: States,
    body: Callable[[States], States],
    reductions: list[Reduction],
) -> States:
    """Emits the loops `over` around `body`."""
    if not over:
        return body(states)
    step = loop_body(e, reductions, over[0], lambda inner: outer_loops(e, over[1:], inner, body, reductions))
    return loop_elements(e, 0, over[0].extent, 1, states, step)


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
            start = constant(vector.scalar, -0.0 if name == "fadd" else 1.0)
            return b.call(f"llvm.vector.reduce.{name}.{vector.suffix}", vector.scalar, start, lanes, flags="reassoc")
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


def _flatten(states: States) -> list[Value]:
    return [value for row in states for element in row for value in parts(element)]


def _unflatten(states: States, values: list[Value]) -> States:
    """Groups a flat list of registers as in `states`."""
    rest = iter(values)
    return [[(next(rest), next(rest)) if isinstance(e, tuple) else next(rest) for e in row] for row in states]
