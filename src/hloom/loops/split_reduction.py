"""Long reductions in parts: each part is reduced on its own, by any thread, and then the parts are reduced.

    b1[c] = reduce[r < 4096; add](b0[4096*r + c])
->  b2[4096*p + c] = -0.0                                                   for p < 16, c < 4096
    b2[4096*p + c] = add(b2[4096*p + c], reduce[s < 8](b0[4096*(256*p + 8*t + s) + c]))   for p, t < 32, c
    b1[c] = reduce[p < 16; add](b2[4096*p + c])

Needs reductions of reorderable combiners side by side over one loop. A part of a reduction over rows walks through
memory in order, row by row, with its sums in the cache; where nothing is kept, a part is a reduction of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hloom.literal import identity
from hloom.loops.expressions import ExpressionSpace, Reduction, ReductionResult, walk
from hloom.loops.index import Expression, Index, Variable
from hloom.loops.nest import BufferType, Kernel, Nest, Store, loads_of, nest_cost, reductions_of
from hloom.loops.pull import row_major_strides

MIN_WORK = 150_000
"""Work, in additions, below which a reduction stays whole."""
MIN_PARTS, MAX_PARTS = 16, 128
PART_ITERATIONS = 1 << 16
"""Parts that keep nothing are as long where there are enough: the places from which one reads lie close together."""
ROWS_PER_STEP = 8
MAX_ROW_BYTES = 1 << 18
MIN_PART_ITERATIONS = 64
"""Steps of a part, at least."""


def split_reductions(kernel: Kernel, nest: Nest) -> list[Nest]:
    """The nests that replace one; that nest alone where splitting does not pay.

    The parts do not depend on the number of threads, so neither does the result.
    """
    reductions = _splittable(nest)
    if not reductions or nest_cost(nest) < MIN_WORK:
        return [nest]
    variable = reductions[0].over[0]
    by_rows = _reduces_rows(nest, reductions, variable)
    parts = min(_part_count(variable.extent, by_rows), variable.extent // MIN_PART_ITERATIONS)
    if parts < 2 or not (by_rows or nest.iterations < MIN_PARTS):
        return [nest]
    return _Split(kernel, nest, reductions, variable, parts, by_rows).nests()


def _part_count(steps: int, by_rows: bool) -> int:
    """The more of them the longer each is, so that no chain of additions is long (GEN-13): errors within parts cancel
    each other more than those of adding up the parts."""
    if by_rows:
        return max(MIN_PARTS, math.isqrt(steps // ROWS_PER_STEP) // 2)
    return min(MAX_PARTS, max(MIN_PARTS, steps // PART_ITERATIONS))


def _splittable(nest: Nest) -> list[Reduction]:
    """The outermost reductions, if all are alike."""
    reductions = nest.reductions
    inner = {id(f) for reduction in reductions for f in reductions_of([*reduction.values, *reduction.initial])}
    outer = [reduction for reduction in reductions if id(reduction) not in inner]
    if any(v.extent > 16 for reduction in reductions if id(reduction) in inner for v in reduction.over):
        return []
    alike = all(
        reduction.opcode and len(reduction.over) == 1 and reduction.over == outer[0].over for reduction in outer
    )
    own_type = all(not reduction.initial[0].type.is_complex for reduction in outer)
    return outer if alike and own_type and all(not reduction.initial[0].variables for reduction in outer) else []


def _reduces_rows(nest: Nest, reductions: list[Reduction], variable: Variable) -> bool:
    """Whether what is read lies contiguously along a kept loop and far apart along the reduction's."""
    if not nest.loops or len(nest.loops) > 1:
        return False
    kept = nest.loops[0]
    if kept.extent < 16 or kept.extent * 8 > MAX_ROW_BYTES:
        return False
    loads = [
        load
        for load in loads_of([v for reduction in reductions for v in reduction.values])
        if variable in load.variables
    ]
    return (
        bool(loads)
        and all(
            load.index.is_affine_in(variable) and load.index.is_affine_in(kept) and load.index.coefficient(kept) == 1
            for load in loads
            if kept in load.variables
        )
        and any(kept in load.variables for load in loads)
    )


class _Split:
    def __init__(
        self, kernel: Kernel, nest: Nest, reductions: list[Reduction], variable: Variable, parts: int, by_rows: bool
    ) -> None:
        self.kernel, self.nest, self.reductions, self.variable = kernel, nest, reductions, variable
        self.space: ExpressionSpace = kernel.space
        self.parts, self.by_rows = parts, by_rows
        step = ROWS_PER_STEP if by_rows else 1
        self.length = variable.extent // parts // step * step
        self.part = self.space.indices.variable("p", parts)
        self.partials = [self._temporary(reduction) for reduction in reductions]

    def _temporary(self, reduction: Reduction) -> int:
        buffer = len(self.kernel.buffers)
        size = self.parts * self.nest.iterations
        self.kernel.buffers.append(BufferType(reduction.initial[0].type, size, "temporary"))
        self.space.buffer_sizes.append(size)
        return buffer

    def nests(self) -> list[Nest]:
        return [*(self._row_nests() if self.by_rows else [self._single_nest()]), self._combining_nest()]

    def _partial_index(self, part: Index) -> Index:
        """Where a part's value of the current element lies."""
        indices, loops = self.space.indices, self.nest.loops
        own = indices.linear([indices.of(v) for v in loops], row_major_strides([v.extent for v in loops]))
        return indices.add(indices.scale(part, self.nest.iterations), own)

    def _reduced(self, reduction: Reduction, over: Variable, at: Index) -> Expression:
        """The reduction over another variable, from the identity on."""
        start = self.space.constant(reduction.initial[0].type, identity(reduction.opcode, reduction.initial[0].type))
        value = self.space.substitute([reduction.values[0]], {self.variable: at}, in_reductions=False)[0]
        return self.space.reduction((over,), (value,), (start,), reduction.combine, reduction.opcode)[0]

    def _single_nest(self) -> Nest:
        indices = self.space.indices
        step = indices.variable("s", self.length)
        at = indices.add(indices.scale(indices.of(self.part), self.length), indices.of(step))
        stores = [
            Store(buffer, self._partial_index(indices.of(self.part)), self._reduced(reduction, step, at))
            for reduction, buffer in zip(self.reductions, self.partials, strict=True)
        ]
        return Nest((self.part, *self.nest.loops), tuple(stores))

    def _row_nests(self) -> list[Nest]:
        """Several rows at a time are added to the part's row of sums."""
        indices, space = self.space.indices, self.space
        index = self._partial_index(indices.of(self.part))
        rows = indices.variable("t", self.length // ROWS_PER_STEP)
        step = indices.variable("s", ROWS_PER_STEP)
        at = indices.add(
            indices.scale(indices.of(self.part), self.length),
            indices.scale(indices.of(rows), ROWS_PER_STEP),
            indices.of(step),
        )
        start, add = [], []
        for reduction, buffer in zip(self.reductions, self.partials, strict=True):
            type = reduction.initial[0].type
            start.append(Store(buffer, index, space.constant(type, identity(reduction.opcode, type))))
            so_far = space.load(type, buffer, index)
            add.append(Store(buffer, index, self._combined(reduction, so_far, self._reduced(reduction, step, at))))
        loops = self.nest.loops
        return [Nest((self.part, *loops), tuple(start)), Nest((self.part, rows, *loops), tuple(add))]

    def _combined(self, reduction: Reduction, a: Expression, b: Expression) -> Expression:
        combiner = reduction.combine[0]
        return self.space.apply(combiner.op, combiner.type, a, b)  # type: ignore[attr-defined]

    def _combining_nest(self) -> Nest:
        """The stores of the nest, with reductions of the parts and of what is left over."""
        space, indices = self.space, self.space.indices
        results = {e.reduction: e for s in self.nest.stores for e in walk([s.value]) if isinstance(e, ReductionResult)}
        new: dict[int, Expression] = {}
        part = indices.variable("p", self.parts)
        for reduction, buffer in zip(self.reductions, self.partials, strict=True):
            type = reduction.initial[0].type
            value = space.load(type, buffer, self._partial_index(indices.of(part)))
            joined = space.reduction((part,), (value,), reduction.initial, reduction.combine, reduction.opcode)[0]
            done = self.parts * self.length
            if done < self.variable.extent:
                remainder = indices.variable("q", self.variable.extent - done)
                at = indices.shift(indices.of(remainder), done)
                joined = self._combined(reduction, joined, self._reduced(reduction, remainder, at))
            new[id(results[reduction])] = joined
        roots = space.replace(self.nest.values, new)
        stores = tuple(replace(s, value=v) for s, v in zip(self.nest.stores, roots, strict=True))
        return replace(self.nest, stores=stores)
