"""Unrolling of loops: of records, of short reductions and what they share, and of pairs of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.affine import Expression, Variable
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, InRange, Reduction, ReductionResult, walk
from hloom.loops.nest import Nest, reductions_of
from hloom.loops.transformations import split_loop, substitute
from hloom.ops.convert import Convert
from hloom.target import CACHE_LINE

MAX_UNROLLED_LOOP = 4
"""The largest extent of a loop around a reduction that is unrolled."""
MAX_ORDERED = 3
"""The largest number of elements whose balanced tree adds them up in order."""
MAX_PAIRED_ROW, MAX_PAIRED_ROW_OF_SHORT_VECTORS = 2048, 128
"""The longest row of which two are computed side by side: for longer ones, the latencies of a row count less. Where
vectors are shorter than a cache line, two rows leave each too few registers.
"""


def unroll(nest: Nest, space: ExpressionSpace, loops: Sequence[Variable]) -> Nest:
    """Unrolls loops of the nest, to a store for each iteration, and loops of reductions, to trees of expressions."""
    while (
        reduction := next(
            (reduction for reduction in nest.reductions if not set(reduction.over).isdisjoint(loops)), None
        )
    ) is not None:
        nest = _unroll_reduction(nest, space, reduction)
    for loop in [loop for loop in nest.loops if loop in loops]:
        copies = [substitute(nest, space, {loop: space.indices.constant(k)}) for k in range(loop.extent)]
        stores = tuple(store for copy in copies for store in copy.stores)
        nest = replace(nest, loops=tuple(v for v in nest.loops if v is not loop), stores=stores)
    return nest


def _unroll_reduction(nest: Nest, space: ExpressionSpace, reduction: Reduction) -> Nest:
    """Replaces the results of a reduction by expressions of its values."""
    results = [e for e in nest.expressions if isinstance(e, ReductionResult) and e.reduction is reduction]
    unrolled = _unrolled_results(space, reduction)
    values = space.replace(nest.values, {id(e): unrolled[e.position] for e in results})
    return replace(nest, stores=tuple(replace(s, value=v) for s, v in zip(nest.stores, values, strict=True)))


def _unrolled_results(space: ExpressionSpace, reduction: Reduction) -> list[Expression]:
    """The results of a reduction over one loop as expressions of its values in all iterations."""
    (loop,) = reduction.over
    iterations = [{loop: space.indices.constant(k)} for k in range(loop.extent)]
    values = [space.substitute(reduction.values, counter, in_reductions=False) for counter in iterations]
    if reduction.monoid:
        return [_reduction_tree(space, reduction, [value for (value,) in values])]
    accumulators = list(reduction.initial)
    for new in values:
        arguments = {id(space.argument(e.type, n)): e for n, e in enumerate([*accumulators, *new])}
        accumulators = space.replace(reduction.combine, arguments)
    return accumulators


def _reduction_tree(space: ExpressionSpace, reduction: Reduction, values: list[Expression]) -> Expression:
    """The balanced tree of a reorderable combiner; narrow floats are combined in f32 and rounded once."""
    (combiner,), (initial,) = reduction.combine, reduction.initial
    assert isinstance(combiner, Apply)
    result_type, type = combiner.type, combiner.type.computation_type
    if type is not result_type:
        values = [space.apply(Convert(), type, value) for value in values]
        initial = space.apply(Convert(), type, initial)
    while len(values) > 1:
        pairs = [space.apply(combiner.op, type, a, b) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(values) // 2 * 2 :]
    total = space.apply(combiner.op, type, initial, values[0])
    return total if type is result_type else space.apply(Convert(), result_type, total)


def unroll_short_loops(nest: Nest, space: ExpressionSpace) -> Nest:
    """Unrolls a short innermost loop around reductions, so that the reductions share their loops and operands.

    Reductions of what its copies compute as well are unrolled with it, as for a distance beside its coordinates.
    """
    if not nest.reductions or len(nest.loops) < 2 or nest.loops[-1].extent > MAX_UNROLLED_LOOP:
        return nest
    loop = nest.loops[-1]
    repeated = [f for f in nest.reductions if _is_repeated(f, nest, space, loop)]
    return unroll(nest, space, [*(f.over[0] for f in repeated), loop])


def _is_repeated(reduction: Reduction, nest: Nest, space: ExpressionSpace, loop: Variable) -> bool:
    """Whether the copies of a loop compute parts of all values of a reduction of as many elements."""
    if len(reduction.over) != 1 or not reduction.over[0].extent == loop.extent <= MAX_ORDERED:
        return False
    variable = reduction.over[0]
    beside = [f for f in nest.reductions if variable in f.over]
    if any(len(f.over) > 1 or not f.monoid or nest.has_fixed_order(f) for f in beside):
        return False
    values = space.substitute(reduction.values, {variable: space.indices.of(loop)})
    return any(isinstance(e, Apply) and loop in e.variables for e in {*walk(values)}.intersection(nest.expressions))


def unroll_choices(nest: Nest, space: ExpressionSpace) -> Nest:
    """Unrolls short reductions whose variable chooses what they read, as an operand of a concatenation: each copy has
    one choice."""
    short = [f for f in nest.reductions if f.monoid and len(f.over) == 1 and f.over[0].extent <= MAX_UNROLLED_LOOP]
    chosen = [f.over[0] for f in short if not nest.has_fixed_order(f) and _chooses(f.over[0], f.values)]
    return unroll(nest, space, chosen)


def _chooses(variable: Variable, values: Sequence[Expression]) -> bool:
    """Whether a condition depends on a variable alone."""
    return any(isinstance(e, InRange) and e.variables == {variable} for e in walk(values))


def pair_rows(nest: Nest, space: ExpressionSpace, vector: Variable | None, vector_bytes: int) -> tuple[Nest, int]:
    """Unrolls a loop over rows that are reduced several times, so that each hides the latencies of the other.

    Between two passes over a row there is a reduction of lanes and arithmetic on its result, which nothing overlaps.
    That pays for elements of at most 16 bits, whose conversions take longer than reading them from memory. Returns the
    new nest, and the number of rows in an iteration.
    """
    if len(nest.loops) != 2 or vector is not nest.loops[-1] or len(nest.stores) != 1:
        return nest, 1
    rows = nest.loops[0]
    is_chained = any(reductions_of(reduction.values) for reduction in nest.reductions)
    if not is_chained or any(f.variables != {rows} or not f.monoid for f in nest.reductions):
        return nest, 1
    longest = MAX_PAIRED_ROW if vector_bytes >= CACHE_LINE else MAX_PAIRED_ROW_OF_SHORT_VECTORS
    if rows.extent % 2 or vector.extent > longest or any(load.type.bits > 16 for load in nest.loads):
        return nest, 1
    nest, _, inner = split_loop(nest, space, rows, 2, f"{rows.name}p")
    return unroll(nest, space, [inner]), 2
