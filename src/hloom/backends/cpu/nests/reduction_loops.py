"""The loops of reductions and their accumulators; long sums in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hloom.affine import Expression, Variable
from hloom.backends.cpu.elements import ops as element_ops
from hloom.backends.cpu.elements.types import Element, constant_element, parts, rounded, width_of
from hloom.backends.cpu.nests.state import NestState
from hloom.lir import I64, IndexValue, Value, constant
from hloom.loops.expressions import Apply, Argument, Reduction, walk
from hloom.target import MAX_UNROLLED_REDUCTION

States = list[list[Element]]
"""The accumulators of several reductions."""
LoopBody = Callable[[Value, States], States]

SUMMATION_BLOCK = 64
"""The block length of sums of floats. Longer sums add up the sums of blocks, so that errors stay small."""
BLOCKS_PER_BLOCK = 8
"""The number of blocks whose sums make up a block of the next level."""


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


def loop_body(
    e: NestState, reductions: list[Reduction], variable: Variable, body: Callable[[States], States]
) -> LoopBody:
    """The body of a loop: binds the variable, hoists what does not depend on inner loops, and runs `body`."""

    def step(at: Value, states: States) -> States:
        with e.bound(variable, at):
            e.hoist(values_of(reductions))
            return body(states)

    return step


def loop_elements(
    e: NestState, first: IndexValue, last: IndexValue, step: int, states: States, body: LoopBody
) -> States:
    """Emits a loop that carries the accumulators of several reductions."""
    with e.builder.loop(last, step, flatten(states), first) as loop:
        loop.carried = flatten(body(e.builder.index(loop.index), unflatten(states, loop.carried)))
    return unflatten(states, loop.carried)


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
    zeros = identities(reductions, width_of(initial[0][0]))

    def summed(first: IndexValue, last: IndexValue, level: int, states: States) -> States:
        def add_block(at: Value, states: States) -> States:
            end = b.intrinsic("smin", b.binary("add", at, b.index(sizes[level])), b.index(last))
            sums = summed(at, end, level - 1, zeros)
            return combined(e, reductions, states, sums)

        return loop_elements(e, first, last, sizes[level], states, add_block if level else body)

    return summed(0, main, len(sizes) - 1, initial)


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


def combined(e: NestState, reductions: list[Reduction], x: States, y: States) -> States:
    """The accumulators of several reductions combined, one by one."""
    return [
        [combine_unrounded(e, reduction, a, b) for a, b in zip(old, new, strict=True)]
        for reduction, old, new in zip(reductions, x, y, strict=True)
    ]


def identities(reductions: list[Reduction], width: int) -> States:
    """The identities of reorderable combiners, as vectors of a width, or as scalars if it is 0."""
    return [[constant_element(reduction.initial[0].type, reduction.identity, width)] for reduction in reductions]


def rounded_results(e: NestState, reductions: list[Reduction], states: States) -> States:
    """Rounds the results of reductions to narrow float types, since the accumulators of monoids are f32."""

    def result(reduction: Reduction, value: Element) -> Element:
        if reduction.monoid is None or isinstance(value, tuple):
            return value
        return rounded(e.builder, value, reduction.initial[0].type)

    return [[result(r, value) for value in values] for r, values in zip(reductions, states, strict=True)]


def values_of(reductions: list[Reduction]) -> list[Expression]:
    """The values that the reductions combine."""
    return [value for reduction in reductions for value in reduction.values]


def flatten(states: States) -> list[Value]:
    """The registers of accumulators, in order."""
    return [value for row in states for element in row for value in parts(element)]


def unflatten(states: States, values: list[Value]) -> States:
    """Groups a flat list of registers as in `states`."""
    rest = iter(values)
    return [[(next(rest), next(rest)) if isinstance(e, tuple) else next(rest) for e in row] for row in states]
