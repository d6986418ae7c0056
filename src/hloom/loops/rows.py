"""Short rows: a few elements side by side, of which each lane of a vector has its own.

    for i < n: for k < 3: b1[3 i + k] = b0[i + n k]
    for i < n: b1[i] = reduce[k < 10; add](b0[10 i + k])
    for i < n: b1[i] = subtract(multiply(b0[4 i], b0[4 i + 3]), multiply(b0[4 i + 1], b0[4 i + 2]))

Loops along rows, those of reductions included, are written out, which leaves the loop over i, whose lanes are the
vectors'. Loads, or stores, whose indices then differ in a constant alone lie in one row: they are read, or written, at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hloom.loops.expressions import Apply, ExpressionSpace, Load, Reduction, ReductionResult
from hloom.loops.index import Expression, Index, Variable
from hloom.loops.lanes import masked_bits, native_lanes
from hloom.loops.nest import Nest, Store, loads_of, substitute
from hloom.ops.convert import Convert

MAX_LANES = 16
"""Of the squares that are turned in registers."""
INTERLEAVED = 4
"""The longest rows that are read and written as one vector, element by element in turns."""
MAX_EXPRESSIONS = 512
"""What reductions may become that are written out."""

Access = TypeVar("Access", Load, Store)


# Loops along rows


def short_rows(nest: Nest, vector: Variable, vector_bytes: int) -> list[Variable]:
    """The loops along rows of which each lane of vectors along `vector` has one; none: the nest is better as it is."""
    is_stored = all(vector in store.index.variables for store in nest.stores)
    if not is_stored or not nest.is_perfect or any(store.value.type.is_complex for store in nest.stores):
        return []
    limit = max_row_length(nest, vector, vector_bytes)
    short = [loop for loop in nest.loops if loop is not vector and loop.extent <= MAX_LANES]
    return (
        _rows_of_reductions(nest, vector, short, limit)
        if nest.reductions
        else _row_of_elements(nest, vector, short, limit)
    )


def max_row_length(nest: Nest, vector: Variable, vector_bytes: int) -> int:
    """The longest rows that are turned in registers, as many as there are lanes; 0: none."""
    lanes = min(MAX_LANES, native_lanes(nest.expressions, vector_bytes))
    types = [*(store.value.type for store in nest.stores), *(load.type for load in nest.loads)]
    masked = all(type.bits >= masked_bits(vector_bytes) for type in types)
    return lanes if masked and vector.extent >= lanes else 0


def _row_of_elements(nest: Nest, vector: Variable, short: list[Variable], limit: int) -> list[Variable]:
    return next(([loop] for loop in short if _runs_along_rows(nest, vector, loop, limit)), [])


def _rows_of_reductions(nest: Nest, vector: Variable, short: list[Variable], limit: int) -> list[Variable]:
    """The loops of reductions, each along rows, and those along rows of what is made of them."""
    for reduction in nest.reductions:
        own_loads = loads_of(reduction.values)
        if len(reduction.over) != 1 or not any(
            _loads_row(load, vector, reduction.over[0], limit) for load in own_loads
        ):
            return []
    rows = [loop for loop in short if _runs_along_rows(nest, vector, loop, limit)]
    written = {id(store) for row in rows_of_stores(nest, vector, limit) for store in row.accesses}
    if not all(id(store) in written or _is_together(store, vector, rows, limit) for store in nest.stores):
        return []
    loops = [*(reduction.over[0] for reduction in nest.reductions), *rows]
    size = max(loop.extent for loop in loops) * len(nest.expressions)
    return list(dict.fromkeys(loops)) if size <= MAX_EXPRESSIONS else []


def _runs_along_rows(nest: Nest, vector: Variable, loop: Variable, limit: int) -> bool:
    stored = any(_stores_row(store, vector, loop, limit) for store in nest.stores)
    return stored or any(_loads_row(load, vector, loop, limit) for load in nest.loads)


def _is_together(store: Store, vector: Variable, rows: list[Variable], limit: int) -> bool:
    """Whether what vectors store lies side by side, as vectors or as rows."""
    return store.index.coefficient(vector) == 1 or any(_stores_row(store, vector, loop, limit) for loop in rows)


def _stores_row(store: Store, vector: Variable, loop: Variable, limit: int) -> bool:
    if not _has_rows(store.index, vector, loop):
        return False
    return loop.extent <= limit or store.index.coefficient(vector) == loop.extent <= INTERLEAVED


def _loads_row(load: Load, vector: Variable, loop: Variable, limit: int) -> bool:
    if not is_turned(load, loop, vector) or not _has_rows(load.index, vector, loop):
        return False
    return loop.extent <= limit or load.index.coefficient(vector) <= INTERLEAVED


def is_turned(load: Load, loop: Variable, vector: Variable) -> bool:
    """Whether a load may be made of rows along a loop that are turned in registers to run along the vector loop."""
    return load.in_bounds and not load.type.is_complex and _is_across(load.index, loop, vector)


def _is_across(index: Index, loop: Variable, vector: Variable) -> bool:
    """Whether the elements of a loop are neighbours, and those of the vector loop are not."""
    affine = index.is_affine_in(loop) and index.is_affine_in(vector)
    return affine and index.coefficient(loop) == 1 and index.coefficient(vector) > 1


def _has_rows(index: Index, vector: Variable, loop: Variable) -> bool:
    """Whether the elements of a loop are neighbours, and those of the vector loop at least that far apart."""
    return _is_across(index, loop, vector) and index.coefficient(vector) >= loop.extent


# Written out


def write_out(nest: Nest, space: ExpressionSpace, loops: Sequence[Variable]) -> Nest:
    """The nest without some loops, of reductions and of its own: for each round of these there are stores of their
    own.
    """
    while (
        reduction := next(
            (reduction for reduction in nest.reductions if not set(reduction.over).isdisjoint(loops)), None
        )
    ) is not None:
        nest = _without_reduction(nest, space, reduction)
    for loop in [loop for loop in nest.loops if loop in loops]:
        rounds = [substitute(nest, space, {loop: space.indices.constant(k)}) for k in range(loop.extent)]
        stores = tuple(store for one in rounds for store in one.stores)
        nest = replace(nest, loops=tuple(v for v in nest.loops if v is not loop), stores=stores)
    return nest


def _without_reduction(nest: Nest, space: ExpressionSpace, reduction: Reduction) -> Nest:
    results = [e for e in nest.expressions if isinstance(e, ReductionResult) and e.reduction is reduction]
    reduced = _reduced(space, reduction)
    values = space.replace(nest.values, {id(e): reduced[e.position] for e in results})
    return replace(nest, stores=tuple(replace(s, value=v) for s, v in zip(nest.stores, values, strict=True)))


def _reduced(space: ExpressionSpace, reduction: Reduction) -> list[Expression]:
    """The results of a reduction as expressions of all its values."""
    (loop,) = reduction.over
    rounds = [{loop: space.indices.constant(k)} for k in range(loop.extent)]
    values = [space.substitute(reduction.values, at, in_reductions=False) for at in rounds]
    if reduction.opcode:
        return [_reduced_in_pairs(space, reduction, [value for (value,) in values])]
    states = list(reduction.initial)
    for new in values:
        arguments = {id(space.argument(e.type, n)): e for n, e in enumerate([*states, *new])}
        states = space.replace(reduction.combine, arguments)
    return states


def _reduced_in_pairs(space: ExpressionSpace, reduction: Reduction, values: list[Expression]) -> Expression:
    """A balanced tree of a reorderable combiner; of narrow floats in f32, rounded once."""
    (combiner,), (initial,) = reduction.combine, reduction.initial
    assert isinstance(combiner, Apply)
    own, type = combiner.type, combiner.type.computation_type
    if type is not own:
        values = [space.apply(Convert(), type, value) for value in values]
        initial = space.apply(Convert(), type, initial)
    while len(values) > 1:
        pairs = [space.apply(combiner.op, type, a, b) for a, b in zip(values[::2], values[1::2])]
        values = pairs + values[len(values) // 2 * 2 :]
    total = space.apply(combiner.op, type, initial, values[0])
    return total if type is own else space.apply(Convert(), own, total)


# Rows in memory


@dataclass(frozen=True, slots=True)
class Rows(Generic[Access]):
    """Loads or stores of one buffer whose indices differ in a constant alone: for each lane elements of one row."""

    accesses: tuple[Access, ...]
    """From the first element of a row on."""
    apart: int
    """Elements from the row of a lane to that of the next one."""

    @property
    def first(self) -> Index:
        return self.accesses[0].index

    @property
    def columns(self) -> list[int]:
        """Which elements of a row they are."""
        return [access.index.constant - self.first.constant for access in self.accesses]

    @property
    def length(self) -> int:
        return self.columns[-1] + 1

    @property
    def is_dense(self) -> bool:
        """Whether nothing lies between the rows."""
        return self.length == self.apart

    @property
    def is_interleaved(self) -> bool:
        """Whether the rows are so near to each other that they are read in one piece."""
        return self.apart <= INTERLEAVED

    @property
    def is_one_vector(self) -> bool:
        """Whether the rows are written as one vector, element by element in turns."""
        return self.is_dense and self.is_interleaved


def rows_of_loads(nest: Nest, vector: Variable, limit: int) -> list[Rows[Load]]:
    """The loads that are made together, rows of at most `limit` elements and what is interleaved."""
    loads = [load for load in nest.loads if load.in_bounds and not load.type.is_complex]
    found = _in_rows(loads, vector, limit)
    return [rows for rows in found if len(rows.accesses) > 1]


def rows_of_stores(nest: Nest, vector: Variable, limit: int) -> list[Rows[Store]]:
    """The stores that are made together, those of whole rows."""
    found = _in_rows([store for store in nest.stores if not store.value.type.is_complex], vector, limit)
    whole = [rows for rows in found if rows.length == len(rows.accesses) > 1]
    return [rows for rows in whole if rows.is_one_vector or rows.length <= limit]


def turns_rows(nest: Nest, vector: Variable, limit: int) -> bool:
    """Whether rows that are read or written are turned in registers."""
    loads, stores = rows_of_loads(nest, vector, limit), rows_of_stores(nest, vector, limit)
    return not all(rows.is_interleaved for rows in loads) or not all(rows.is_one_vector for rows in stores)


def _in_rows(accesses: Sequence[Access], vector: Variable, limit: int) -> list[Rows[Access]]:
    groups: dict[object, list[Access]] = {}
    for access in accesses:
        if access.index.is_affine_in(vector) and access.index.coefficient(vector) > 1:
            groups.setdefault((access.buffer, access.index.terms), []).append(access)
    found = []
    for group in groups.values():
        apart = group[0].index.coefficient(vector)
        longest = apart if apart <= INTERLEAVED else min(apart, limit)
        found += [Rows(part, apart) for part in _runs(group, longest)]
    return found


def _runs(group: list[Access], longest: int) -> list[tuple[Access, ...]]:
    """Accesses from the lowest to the highest place, as many together as lie within so many elements."""
    runs: list[list[Access]] = []
    for access in sorted(group, key=lambda access: access.index.constant):
        if runs and access.index.constant - runs[-1][0].index.constant < longest:
            runs[-1].append(access)
        else:
            runs.append([access])
    return [tuple(run) for run in runs]
