"""Folds in LLVM IR: step by step, in scalars or vectors, or with running values in the lanes; sums in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hloom.backends.cpu.elements import ops as element_ops
from hloom.backends.cpu.elements.types import Element, parts, rounded, select_element, width_of
from hloom.backends.cpu.llvm.text import I64, Index, Value, constant, mask_constant
from hloom.backends.cpu.nests.memory import any_lane
from hloom.backends.cpu.nests.state import NestState
from hloom.literal import identity
from hloom.loops.expressions import Apply, Argument, Fold, walk
from hloom.loops.index import Expression, Variable
from hloom.loops.lanes import fold_lanes
from hloom.loops.nest import folds_of
from hloom.types import PrimitiveType

States = list[list[Element]]
"""The running values of several folds."""
Step = Callable[[Value, States], States]

UNROLLED_FOLD = 12
"""Folds of at most so many steps are written out."""
SUMMATION_BLOCK = 64
"""Sums of floats longer than this are sums of sums of blocks, which keeps their error small."""
BLOCKS_OF_BLOCK = 8
"""The sums of so many blocks are added up, and those of as many of these, and so on."""


def emit_ready_folds(e: NestState, ready: Sequence[Expression]) -> None:
    """Folds over the same loops that do not need each other share them."""
    bound = e.variables.keys()
    folds = [f for f in folds_of(ready) if f.variables <= bound and all(map(e.is_safe, f.values))]
    depth: dict[int, int] = {}
    groups: dict[tuple[int, tuple[Variable, ...]], list[Fold]] = {}
    for fold in folds:
        inner = folds_of([*fold.values, *fold.initial])
        depth[id(fold)] = 1 + max((depth.get(id(f), 0) for f in inner), default=0)
        groups.setdefault((depth[id(fold)], fold.over), []).append(fold)
    for _, group in sorted(groups.items(), key=lambda item: item[0][0]):
        emit_folds(e, [f for f in group if results_of(e, f) is None])


def emit_folds(e: NestState, folds: list[Fold]) -> None:
    """Emits folds over the same loops, and remembers their results."""
    if not folds:
        return
    start = len(e.builder.lines)
    depends = e.vector is not None and any(e.vector in fold.variables for fold in folds)
    if depends:
        results = serial_folds(e, folds)
    else:
        saved = e.vector, e.lanes, e.tail, e.mask
        e.vector, e.lanes, e.tail = None, 0, None
        if e.mask is not None and e.mask.type.width:
            e.mask = any_lane(e, e.mask)
        variable, lanes = fold_lanes(folds, e.vector_bytes)
        results = vector_folds(e, folds, variable, lanes) if variable else serial_folds(e, folds)
        e.vector, e.lanes, e.tail, e.mask = saved
    e.tie(start, folds[0])
    for fold, values in zip(folds, results, strict=True):
        e.scopes[-1]["fold", id(fold)] = values


def results_of(e: NestState, fold: Fold) -> list[Element] | None:
    key = ("fold", id(fold))
    return next((scope[key] for scope in reversed(e.scopes) if key in scope), None)


def serial_folds(e: NestState, folds: list[Fold]) -> States:
    """One step after another, starting from the initial values; vectors where the values are vectors."""
    width = e.lanes if e.vector is not None and any(e.vector in f.variables for f in folds) else 0
    initial = [[e.splat(e.value(i), width) for i in fold.initial] for fold in folds]
    over = folds[0].over
    if all(fold.opcode for fold in folds) and any(map(needs_blocks, folds)):
        long = max(over, key=lambda variable: variable.extent)
        inner = tuple(variable for variable in over if variable is not long)
        results = summed_in_blocks(e, folds, long, 1, initial, lambda states: fold_loops(e, folds, inner, states))
    else:
        results = fold_loops(e, folds, over, initial)
    return [rounded_results(e, fold, values) for fold, values in zip(folds, results, strict=True)]


def rounded_results(e: NestState, fold: Fold, values: list[Element]) -> list[Element]:
    """Narrow floats are summed up in f32 and rounded once."""
    if not fold.opcode:
        return values
    types = [e.type for e in fold.initial]
    return [v if isinstance(v, tuple) else rounded(e.builder, v, t) for v, t in zip(values, types, strict=True)]


def needs_blocks(fold: Fold) -> bool:
    type = fold.initial[0].type
    return (
        fold.opcode == "add"
        and (type.is_float or type.is_complex)
        and any(variable.extent > 2 * SUMMATION_BLOCK for variable in fold.over)
    )


def summed_in_blocks(
    e: NestState,
    folds: list[Fold],
    variable: Variable,
    step: int,
    initial: States,
    body: Callable[[States], States],
) -> States:
    """Loops over blocks of the variable's range, over blocks of these and so on; `body` runs with it bound.

    Each block is summed from zero, so that no chain of additions is long (GEN-13).
    """
    b, main, sizes = e.builder, variable.extent // step * step, [step, SUMMATION_BLOCK * step]
    while main > 2 * BLOCKS_OF_BLOCK * sizes[-1]:
        sizes.append(BLOCKS_OF_BLOCK * sizes[-1])
    zeros = [[neutral_element(fold, value) for value in values] for fold, values in zip(folds, initial, strict=True)]
    inner = at_each(e, folds, variable, body)

    def summed(first: Index, last: Index, level: int, states: States) -> States:
        def one_block(at: Value, states: States) -> States:
            end = b.intrinsic("smin", b.binary("add", at, b.index(sizes[level])), b.index(last))
            sums = summed(at, end, level - 1, zeros)
            return [
                [combine_plain(e, fold, x, y) for x, y in zip(old, new, strict=True)]
                for fold, old, new in zip(folds, states, sums, strict=True)
            ]

        return loop_elements(e, first, last, sizes[level], states, one_block if level else inner)

    return summed(0, main, len(sizes) - 1, initial)


def fold_loops(e: NestState, folds: list[Fold], over: tuple[Variable, ...], states: States) -> States:
    """Runs the loops `over`, from the outermost, around one step of each fold."""
    if not over:
        return [fold_step(e, fold, state) for fold, state in zip(folds, states, strict=True)]
    variable, rest = over[0], over[1:]
    body = at_each(e, folds, variable, lambda inner: fold_loops(e, folds, rest, inner))
    if math.prod(v.extent for v in over) <= UNROLLED_FOLD:
        for k in range(variable.extent):
            states = body(constant(I64, k), states)
        return states
    if variable.extent == 0:
        return states
    return loop_elements(e, 0, variable.extent, 1, states, body)


def at_each(e: NestState, folds: list[Fold], variable: Variable, body: Callable[[States], States]) -> Step:
    """The body of a loop: `body` with the loop's variable bound, and before it what depends on no inner loop."""

    def step(at: Value, states: States) -> States:
        with e.bound(variable, at):
            e.hoist([value for fold in folds for value in fold.values])
            return body(states)

    return step


def fold_step(e: NestState, fold: Fold, states: list[Element]) -> list[Element]:
    values = [e.value(value) for value in fold.values]
    if fold.opcode:
        return [combine_plain(e, fold, states[0], values[0])]
    return combine(e, fold, states, values)


def combine(e: NestState, fold: Fold, states: list[Element], values: list[Element]) -> list[Element]:
    scope: dict[Any, Any] = {}
    for root in walk(fold.combine):
        if isinstance(root, Argument):
            scope[id(root)] = [*states, *values][root.number]
    e.scopes.append(scope)
    results = [e.value(expression) for expression in fold.combine]
    e.scopes.pop()
    widths = [width_of(state) for state in states]
    return [e.splat(result, width) for result, width in zip(results, widths, strict=True)]


def combine_plain(e: NestState, fold: Fold, x: Element, y: Element) -> Element:
    """One operation of a reorderable combiner, not rounded to narrow types."""
    x, y = e.level([x, y])
    expression = fold.combine[0]
    assert isinstance(expression, Apply)
    type = expression.type
    if type.is_float and type.bits < 32 and isinstance(x, Value) and isinstance(y, Value):
        opcode = {"add": "fadd", "multiply": "fmul"}.get(fold.opcode)
        if opcode:
            return e.builder.binary(opcode, x, y)
    return element_ops.apply(e.builder, expression, [x, y])


def neutral_element(fold: Fold, like: Element) -> Element:
    type = fold.initial[0].type
    value = identity(fold.opcode, type)
    if isinstance(like, tuple):
        return constant(like[0].type, float(value.real)), constant(like[1].type, float(value.imag))
    return constant(like.type, float(value) if type.is_float else int(value))


def loop_elements(e: NestState, first: Index, last: Index, step: int, states: States, body: Step) -> States:
    """A loop that carries the states of several folds."""
    with e.builder.loop(last, step, _flat(states), first) as loop:
        loop.carried = _flat(body(e.builder.index(loop.index), _like(states, loop.carried)))
    return _like(states, loop.carried)


def vector_folds(e: NestState, folds: list[Fold], variable: Variable, lanes: int) -> States:
    """Reorderable folds with `lanes` running values each, along `variable`; these are folded in the end."""
    start = [[e.value(initial) for initial in fold.initial] for fold in folds]
    e.vector, e.lanes = variable, lanes
    others = tuple(v for v in folds[0].over if v is not variable)
    neutral = [
        [neutral_element(fold, e.splat(value, lanes)) for value in values]
        for fold, values in zip(folds, start, strict=True)
    ]

    def all_steps(states: States) -> States:
        return fold_loops(e, folds, (), states)

    step = at_each(e, folds, variable, all_steps)

    def lanes_folded(states: States) -> States:
        main = variable.extent // lanes * lanes
        if main:
            if any(needs_vector_blocks(fold, variable, lanes) for fold in folds):
                states = summed_in_blocks(e, folds, variable, lanes, states, all_steps)
            else:
                states = loop_elements(e, 0, main, lanes, states, step)
        if main < variable.extent:
            e.tail = tail = mask_constant(variable.extent - main, lanes)
            new = step(constant(I64, main), neutral)
            states = [
                [
                    combine_plain(e, fold, x, select_element(e.builder, tail, y, z))
                    for x, y, z in zip(old, values, zero, strict=True)
                ]
                for fold, old, values, zero in zip(folds, states, new, neutral, strict=True)
            ]
            e.tail = None
        return states

    states = around(e, others, neutral, lanes_folded, folds)
    e.vector, e.lanes = None, 0
    results = []
    for fold, first, values in zip(folds, start, states, strict=True):
        total = horizontal(e, fold, values[0])
        results.append(rounded_results(e, fold, [combine_plain(e, fold, first[0], total)]))
    return results


def needs_vector_blocks(fold: Fold, variable: Variable, lanes: int) -> bool:
    type = fold.initial[0].type
    return fold.opcode == "add" and not type.is_integer and variable.extent > 2 * SUMMATION_BLOCK * lanes


def around(
    e: NestState,
    over: tuple[Variable, ...],
    states: States,
    body: Callable[[States], States],
    folds: list[Fold],
) -> States:
    if not over:
        return body(states)
    step = at_each(e, folds, over[0], lambda inner: around(e, over[1:], inner, body, folds))
    return loop_elements(e, 0, over[0].extent, 1, states, step)


def horizontal(e: NestState, fold: Fold, lanes: Element) -> Element:
    """The lanes of a vector folded into one value."""
    b, type = e.builder, fold.initial[0].type
    if isinstance(lanes, Value) and not (type.is_pred and fold.opcode in ("maximum", "minimum", "add", "multiply")):
        vector = lanes.type
        if type.is_float and fold.opcode in ("add", "multiply"):
            name = "fadd" if fold.opcode == "add" else "fmul"
            start = constant(vector.scalar, -0.0 if name == "fadd" else 1.0)
            return b.call(f"llvm.vector.reduce.{name}.{vector.suffix}", vector.scalar, start, lanes, flags="reassoc")
        return b.call(f"llvm.vector.reduce.{_reduction(fold.opcode, type)}.{vector.suffix}", vector.scalar, lanes)
    width = width_of(lanes)
    while width > 1:
        low = shuffled(e, lanes, range(width // 2))
        high = shuffled(e, lanes, range(width // 2, width))
        lanes = combine_plain(e, fold, low, high)
        width //= 2
    if isinstance(lanes, tuple):
        return b.extract(lanes[0], 0), b.extract(lanes[1], 0)
    return b.extract(lanes, 0)


def shuffled(e: NestState, element: Element, lanes: Sequence[int]) -> Element:
    if isinstance(element, tuple):
        return e.builder.shuffle(element[0], None, lanes), e.builder.shuffle(element[1], None, lanes)
    return e.builder.shuffle(element, None, lanes)


def _reduction(opcode: str, type: PrimitiveType) -> str:
    """The name of LLVM's reduction of a vector."""
    if opcode in ("and", "or", "xor"):
        return opcode
    if opcode in ("add", "multiply"):
        return {"add": "add", "multiply": "mul"}[opcode]
    short = "max" if opcode == "maximum" else "min"
    if type.is_float:
        return f"f{short}imum"
    return ("s" if type.is_signed else "u") + short


def _flat(states: States) -> list[Value]:
    return [value for row in states for element in row for value in parts(element)]


def _like(states: States, values: list[Value]) -> States:
    """Flat registers grouped as `states` are."""
    rest = iter(values)
    return [[(next(rest), next(rest)) if isinstance(e, tuple) else next(rest) for e in row] for row in states]
