"""Splits long reductions: parts are reduced in parallel, and then their partial results are combined.

    b1[c] = reduce[r < 4096; add](b0[4096*r + c])
->  b2[4096*p + c] = -0.0                                                   for p < 16, c < 4096
    b2[4096*p + c] = add(b2[4096*p + c], reduce[s < 8](b0[4096*(256*p + 8*t + s) + c]))   for p, t < 32, c
    b1[c] = reduce[p < 16; add](b2[4096*p + c])

The outermost reductions of the nest must have reorderable combiners and run over the same loops, or loops alike: the
first one is split. A part of a reduction of rows reads memory in order, row by row, with its row of accumulators in the
cache; otherwise a part is a reduction of a range of the loop. Reductions inside, as in a mean of losses of rows, belong
to an iteration. Partial results of narrow floats are f32, and rounded when they have been combined.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hloom.affine import Expression, Index, Variable, row_major_strides
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Reduction, ReductionResult, walk
from hloom.loops.nest import BufferType, Kernel, Nest, Store, loads_of, reductions_of
from hloom.ops.convert import Convert
from hloom.target import L2_BYTES, MIN_PARALLEL_WORK

MIN_PARTS, MAX_PARTS = 16, 128
PART_ITERATIONS = 1 << 16
"""The number of iterations of a part of a single reduction, if that makes enough parts."""
ROWS_PER_STEP = 8
"""The number of rows that are added up before the sum is added to the row of accumulators."""
MAX_ROW_BYTES = L2_BYTES // 4
"""The largest row of accumulators, which should stay in the cache."""
MIN_PART_ITERATIONS = 64
"""The smallest number of iterations of a part."""
MAX_INNER = 16
"""The longest reduction inside another that is part of a step, such as a short distance; longer ones are loops."""


def split_reductions(kernel: Kernel, nest: Nest) -> list[Nest]:
    """Splits the reductions of a nest: returns the nests that replace it, or the nest alone if splitting does not pay.

    The parts, and thus the result, do not depend on the number of threads.
    """
    reductions = _splittable(nest)
    if not reductions or nest.cost < MIN_PARALLEL_WORK:
        return [nest]
    variable, *others = over = reductions[0].over
    inner = max((math.prod(v.extent for v in f.over) for f in _inner(reductions)), default=1)
    by_rows = inner <= MAX_INNER and _reduces_rows(nest, reductions, variable)
    iterations = math.prod(v.extent for v in over) * inner
    longest = variable.extent // (ROWS_PER_STEP if by_rows else 1)
    parts = min(_part_count(iterations, by_rows), iterations // MIN_PART_ITERATIONS, longest)
    if parts < 2 or not (by_rows or nest.iterations < MIN_PARTS):
        return [nest]
    if others or inner > MAX_INNER:
        parts = variable.extent // (variable.extent // parts)  # few iterations are left, each of which may be long
    return _Split(kernel, nest, reductions, parts, by_rows).nests()


def _part_count(iterations: int, by_rows: bool) -> int:
    """The number of parts, which grows with their length, so that no chain of additions is long (GEN-13).

    Errors within parts cancel each other more than those of combining the parts.
    """
    if by_rows:
        return max(MIN_PARTS, math.isqrt(iterations // ROWS_PER_STEP) // 2)
    return min(MAX_PARTS, max(MIN_PARTS, iterations // PART_ITERATIONS))


def _splittable(nest: Nest) -> list[Reduction]:
    """The outermost reductions, if all have named combiners and loops alike; else none."""
    inner = {id(f) for f in _inner(nest.reductions)}
    outer = [reduction for reduction in nest.reductions if id(reduction) not in inner]
    extents = {tuple(v.extent for v in reduction.over) for reduction in outer}
    are_similar = len(extents) == 1 and all(reduction.monoid and reduction.over for reduction in outer)
    are_real = all(not reduction.initial[0].type.is_complex for reduction in outer)
    return outer if are_similar and are_real and all(not reduction.initial[0].variables for reduction in outer) else []


def _inner(reductions: list[Reduction]) -> list[Reduction]:
    """The reductions inside others, such as those of rows whose results are added up."""
    return [f for reduction in reductions for f in reductions_of([*reduction.values, *reduction.initial])]


def _reduces_rows(nest: Nest, reductions: list[Reduction], variable: Variable) -> bool:
    """Whether the loads are contiguous along the loop of the nest and strided along that of the reductions, which have
    no other loops."""
    if len(nest.loops) != 1 or any(reduction.over != (variable,) for reduction in reductions):
        return False
    loop = nest.loops[0]
    if loop.extent < 16 or loop.extent * 8 > MAX_ROW_BYTES:
        return False
    loads = [
        load
        for load in loads_of([v for reduction in reductions for v in reduction.values])
        if variable in load.variables
    ]
    return (
        bool(loads)
        and all(
            load.index.is_affine_in(variable) and load.index.is_affine_in(loop) and load.index.coefficient(loop) == 1
            for load in loads
            if loop in load.variables
        )
        and any(loop in load.variables for load in loads)
    )


def _widened(space: ExpressionSpace, reduction: Reduction) -> Reduction:
    """The reduction of narrow floats in f32; another reduction unchanged."""
    (combiner,), (narrow,) = reduction.combine, reduction.initial
    type = narrow.type.computation_type
    if type is narrow.type:
        return reduction
    assert isinstance(combiner, Apply)
    value, initial = (space.apply(Convert(), type, e) for e in (reduction.values[0], narrow))
    combine = space.apply(combiner.op, type, space.argument(type, 0), space.argument(type, 1))
    (result,) = space.reduction(reduction.over, (value,), (initial,), (combine,), reduction.monoid)
    assert isinstance(result, ReductionResult)
    return result.reduction


class _Split:
    """The nests of split reductions, and the buffers of their partial results."""

    def __init__(self, kernel: Kernel, nest: Nest, reductions: list[Reduction], parts: int, by_rows: bool) -> None:
        self.kernel, self.nest, self.reductions = kernel, nest, reductions
        self.variable, *self.others = reductions[0].over
        self.space: ExpressionSpace = kernel.space
        self.parts, self.by_rows = parts, by_rows
        step = ROWS_PER_STEP if by_rows else 1
        self.length = self.variable.extent // parts // step * step
        self.part = self.space.indices.variable("p", parts)
        self.wide = [_widened(self.space, reduction) for reduction in reductions]
        self.partials = [self._temporary(reduction) for reduction in self.wide]

    def _temporary(self, reduction: Reduction) -> int:
        buffer = len(self.kernel.buffers)
        size = self.parts * self.nest.iterations
        self.kernel.buffers.append(BufferType(reduction.initial[0].type, size, "temporary"))
        self.space.buffer_sizes.append(size)
        return buffer

    def nests(self) -> list[Nest]:
        """The nests that compute the partial results, and the one that combines them."""
        return [*(self._row_nests() if self.by_rows else [self._part_nest()]), self._combining_nest()]

    def _partial_index(self, part: Index) -> Index:
        """The index of a part's partial result for the current element."""
        indices, loops = self.space.indices, self.nest.loops
        element = indices.linear([indices.of(v) for v in loops], row_major_strides([v.extent for v in loops]))
        return indices.add(indices.scale(part, self.nest.iterations), element)

    def _reduced(self, reduction: Reduction, over: Variable, counter: Index) -> Expression:
        """The reduction with `counter` for its first variable, over another variable and starting from the identity."""
        start = self.space.constant(reduction.initial[0].type, reduction.identity)
        own = zip(reduction.over, [counter, *map(self.space.indices.of, self.others)], strict=True)
        value = self.space.substitute([reduction.values[0]], dict(own), in_reductions=False)[0]
        return self.space.reduction((over, *self.others), (value,), (start,), reduction.combine, reduction.monoid)[0]

    def _part_nest(self) -> Nest:
        """The nest that reduces a contiguous range of iterations for each part."""
        indices = self.space.indices
        step = indices.variable("s", self.length)
        counter = indices.add(indices.scale(indices.of(self.part), self.length), indices.of(step))
        stores = [
            Store(buffer, self._partial_index(indices.of(self.part)), self._reduced(reduction, step, counter))
            for reduction, buffer in zip(self.wide, self.partials, strict=True)
        ]
        return Nest((self.part, *self.nest.loops), tuple(stores))

    def _row_nests(self) -> list[Nest]:
        """Initialises each part's row of accumulators, and adds ROWS_PER_STEP rows at a time to it."""
        indices, space = self.space.indices, self.space
        index = self._partial_index(indices.of(self.part))
        rows = indices.variable("t", self.length // ROWS_PER_STEP)
        step = indices.variable("s", ROWS_PER_STEP)
        counter = indices.add(
            indices.scale(indices.of(self.part), self.length),
            indices.scale(indices.of(rows), ROWS_PER_STEP),
            indices.of(step),
        )
        start, add = [], []
        for reduction, buffer in zip(self.wide, self.partials, strict=True):
            type = reduction.initial[0].type
            start.append(Store(buffer, index, space.constant(type, reduction.identity)))
            partial = space.load(type, buffer, index)
            total = self._combined(reduction, partial, self._reduced(reduction, step, counter))
            add.append(Store(buffer, index, total))
        loops = self.nest.loops
        return [Nest((self.part, *loops), tuple(start)), Nest((self.part, rows, *loops), tuple(add))]

    def _combined(self, reduction: Reduction, a: Expression, b: Expression) -> Expression:
        """The combiner of the reduction applied to two values."""
        combiner = reduction.combine[0]
        assert isinstance(combiner, Apply)
        return self.space.apply(combiner.op, combiner.type, a, b)

    def _combining_nest(self) -> Nest:
        """The nest with each reduction replaced by that of its partial results and of the remaining iterations."""
        space, indices = self.space, self.space.indices
        results = {e.reduction: e for s in self.nest.stores for e in walk([s.value]) if isinstance(e, ReductionResult)}
        new: dict[int, Expression] = {}
        part = indices.variable("p", self.parts)
        for reduction, wide, buffer in zip(self.reductions, self.wide, self.partials, strict=True):
            type = reduction.initial[0].type
            value = space.load(wide.initial[0].type, buffer, self._partial_index(indices.of(part)))
            combined = space.reduction((part,), (value,), wide.initial, wide.combine, wide.monoid)[0]
            done = self.parts * self.length
            if done < self.variable.extent:
                remainder = indices.variable("q", self.variable.extent - done)
                counter = indices.shift(indices.of(remainder), done)
                combined = self._combined(wide, combined, self._reduced(wide, remainder, counter))
            new[id(results[reduction])] = combined if wide is reduction else space.apply(Convert(), type, combined)
        roots = space.replace(self.nest.values, new)
        stores = tuple(replace(s, value=v) for s, v in zip(self.nest.stores, roots, strict=True))
        return replace(self.nest, stores=stores)
