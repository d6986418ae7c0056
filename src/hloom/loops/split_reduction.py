"""Long reductions in parts: each part is folded on its own, by any thread, and then the parts are folded.

    b1[c] = fold[r < 4096; add](b0[4096*r + c])
->  b2[4096*p + c] = -0.0                                                   for p < 16, c < 4096
    b2[4096*p + c] = add(b2[4096*p + c], fold[s < 8](b0[4096*(256*p + 8*t + s) + c]))   for p, t < 32, c
    b1[c] = fold[p < 16; add](b2[4096*p + c])

Needs folds of reorderable combiners side by side over one loop. A part of a reduction over rows walks through memory
in order, row by row, with its sums in the cache; where nothing is kept, a part is a fold of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hloom.literal import identity
from hloom.loops.expressions import ExpressionSpace, Fold, FoldResult, walk
from hloom.loops.index import Expression, Index, Variable
from hloom.loops.nest import BufferType, Kernel, Nest, Store, folds_of, loads_of, nest_cost
from hloom.loops.pull import row_major_strides

LEAST_WORK = 150_000
"""Work, in additions, below which a reduction stays whole."""
PARTS, MOST_PARTS = 16, 128
PART_STEPS = 1 << 16
"""Parts that keep nothing are as long where there are enough: the places from which one reads lie close together."""
ROWS_AT_ONCE = 8
LARGEST_ROW_BYTES = 1 << 18
LEAST_PART = 64
"""Steps of a part, at least."""


def split_reductions(kernel: Kernel, nest: Nest) -> list[Nest]:
    """The nests that replace one; that nest alone where splitting does not pay.

    The parts do not depend on the number of threads, so neither does the result.
    """
    folds = _splittable(nest)
    if not folds or nest_cost(nest) < LEAST_WORK:
        return [nest]
    variable = folds[0].over[0]
    by_rows = _walks_rows(nest, folds, variable)
    parts = min(_parts(variable.extent, by_rows), variable.extent // LEAST_PART)
    if parts < 2 or not (by_rows or nest.iterations < PARTS):
        return [nest]
    return _Split(kernel, nest, folds, variable, parts, by_rows).nests()


def _parts(steps: int, by_rows: bool) -> int:
    """The more of them the longer each is, so that no chain of additions is long (GEN-13): errors within parts cancel
    each other more than those of adding up the parts."""
    if by_rows:
        return max(PARTS, math.isqrt(steps // ROWS_AT_ONCE) // 2)
    return min(MOST_PARTS, max(PARTS, steps // PART_STEPS))


def _splittable(nest: Nest) -> list[Fold]:
    """The outermost folds, if all are alike."""
    folds = nest.folds
    inner = {id(f) for fold in folds for f in folds_of([*fold.values, *fold.initial])}
    outer = [fold for fold in folds if id(fold) not in inner]
    if any(v.extent > 16 for fold in folds if id(fold) in inner for v in fold.over):
        return []
    alike = all(fold.opcode and len(fold.over) == 1 and fold.over == outer[0].over for fold in outer)
    own_type = all(not fold.initial[0].type.is_complex for fold in outer)
    return outer if alike and own_type and all(not fold.initial[0].variables for fold in outer) else []


def _walks_rows(nest: Nest, folds: list[Fold], variable: Variable) -> bool:
    """Whether what is read lies contiguously along a kept loop and far apart along the fold's."""
    if not nest.loops or len(nest.loops) > 1:
        return False
    kept = nest.loops[0]
    if kept.extent < 16 or kept.extent * 8 > LARGEST_ROW_BYTES:
        return False
    loads = [load for load in loads_of([v for fold in folds for v in fold.values]) if variable in load.variables]
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
        self, kernel: Kernel, nest: Nest, folds: list[Fold], variable: Variable, parts: int, by_rows: bool
    ) -> None:
        self.kernel, self.nest, self.folds, self.variable = kernel, nest, folds, variable
        self.space: ExpressionSpace = kernel.space
        self.parts, self.by_rows = parts, by_rows
        step = ROWS_AT_ONCE if by_rows else 1
        self.length = variable.extent // parts // step * step
        self.part = self.space.indices.variable("p", parts)
        self.partials = [self._temporary(fold) for fold in folds]

    def _temporary(self, fold: Fold) -> int:
        number = len(self.kernel.buffers)
        size = self.parts * self.nest.iterations
        self.kernel.buffers.append(BufferType(fold.initial[0].type, size, "temporary"))
        self.space.buffer_sizes.append(size)
        return number

    def nests(self) -> list[Nest]:
        return [*(self._row_parts() if self.by_rows else [self._whole_parts()]), self._joined()]

    def _place(self, part: Index) -> Index:
        """Where a part's value of the current element lies."""
        indices, loops = self.space.indices, self.nest.loops
        own = indices.linear([indices.of(v) for v in loops], row_major_strides([v.extent for v in loops]))
        return indices.add(indices.scale(part, self.nest.iterations), own)

    def _folded(self, fold: Fold, over: Variable, at: Index) -> Expression:
        """The fold over another variable, from the identity on."""
        neutral = self.space.constant(fold.initial[0].type, identity(fold.opcode, fold.initial[0].type))
        value = self.space.substitute([fold.values[0]], {self.variable: at}, in_folds=False)[0]
        return self.space.fold((over,), (value,), (neutral,), fold.combine, fold.opcode)[0]

    def _whole_parts(self) -> Nest:
        indices = self.space.indices
        step = indices.variable("s", self.length)
        at = indices.add(indices.scale(indices.of(self.part), self.length), indices.of(step))
        stores = [
            Store(buffer, self._place(indices.of(self.part)), self._folded(fold, step, at))
            for fold, buffer in zip(self.folds, self.partials, strict=True)
        ]
        return Nest((self.part, *self.nest.loops), tuple(stores))

    def _row_parts(self) -> list[Nest]:
        """Several rows at a time are added to the part's row of sums."""
        indices, space = self.space.indices, self.space
        place = self._place(indices.of(self.part))
        rows = indices.variable("t", self.length // ROWS_AT_ONCE)
        step = indices.variable("s", ROWS_AT_ONCE)
        at = indices.add(
            indices.scale(indices.of(self.part), self.length),
            indices.scale(indices.of(rows), ROWS_AT_ONCE),
            indices.of(step),
        )
        start, add = [], []
        for fold, buffer in zip(self.folds, self.partials, strict=True):
            type = fold.initial[0].type
            start.append(Store(buffer, place, space.constant(type, identity(fold.opcode, type))))
            so_far = space.load(type, buffer, place)
            add.append(Store(buffer, place, self._combined(fold, so_far, self._folded(fold, step, at))))
        loops = self.nest.loops
        return [Nest((self.part, *loops), tuple(start)), Nest((self.part, rows, *loops), tuple(add))]

    def _combined(self, fold: Fold, a: Expression, b: Expression) -> Expression:
        combiner = fold.combine[0]
        return self.space.apply(combiner.op, combiner.type, a, b)  # type: ignore[attr-defined]

    def _joined(self) -> Nest:
        """The stores of the nest, with folds of the parts and of what is left over."""
        space, indices = self.space, self.space.indices
        results = {e.fold: e for s in self.nest.stores for e in walk([s.value]) if isinstance(e, FoldResult)}
        new: dict[int, Expression] = {}
        part = indices.variable("p", self.parts)
        for fold, buffer in zip(self.folds, self.partials, strict=True):
            type = fold.initial[0].type
            value = space.load(type, buffer, self._place(indices.of(part)))
            joined = space.fold((part,), (value,), fold.initial, fold.combine, fold.opcode)[0]
            done = self.parts * self.length
            if done < self.variable.extent:
                rest = indices.variable("q", self.variable.extent - done)
                at = indices.shift(indices.of(rest), done)
                joined = self._combined(fold, joined, self._folded(fold, rest, at))
            new[id(results[fold])] = joined
        roots = space.replace(self.nest.values, new)
        stores = tuple(replace(s, value=v) for s, v in zip(self.nest.stores, roots, strict=True))
        return replace(self.nest, stores=stores)
