"""Interleaved accesses: loads and stores of short records of adjacent elements, one record for each lane of a vector.

    for i < n: for k < 3: b1[3 i + k] = b0[i + n k]
    for i < n: b1[i] = reduce[k < 10; add](b0[10 i + k])
    for i < n: b1[i] = subtract(multiply(b0[4 i], b0[4 i + 3]), multiply(b0[4 i + 1], b0[4 i + 2]))

A record is a pixel, a point or a row of a narrow matrix. Loops over its elements (k), also those of reductions, are
unrolled, so that the loop over the records (i) can be vectorised. Loads or stores whose indices then differ only by a
constant access one record: as in LLVM's interleaved access groups, they become whole vectors and shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from hloom.affine import Index, Variable
from hloom.loops.expressions import Load, Reduction
from hloom.loops.lanes import native_lanes
from hloom.loops.nest import Nest, Store, loads_of
from hloom.system.records import record
from hloom.target import min_masked_bits

MAX_LANES = 16
"""The largest number of lanes of the square tiles that are transposed in registers."""
MAX_VECTOR_STRIDE = 4
"""The largest stride of groups that are accessed as one vector, whose elements a shuffle interleaves."""
MAX_UNROLLED_EXPRESSIONS = 512
"""The largest number of expressions that an unrolled nest may have."""

Access = TypeVar("Access", Load, Store)


# Loops over the elements of records


def interleaved_loops(nest: Nest, vector: Variable, vector_bytes: int) -> list[Variable]:
    """The loops to unroll so that lanes along `vector` access records; empty if that does not pay."""
    is_stored = all(vector in store.index.variables for store in nest.stores)
    if not is_stored or not nest.is_perfect or any(store.value.type.is_complex for store in nest.stores):
        return []
    if any(map(nest.has_fixed_order, nest.reductions)):
        return []  # trees of expressions have an order of their own
    limit = max_record_length(nest, vector, vector_bytes)
    short = [loop for loop in nest.loops if loop is not vector and loop.extent <= MAX_LANES]
    return (
        _reduction_loops(nest, vector, short, limit)
        if nest.reductions
        else _elementwise_loops(nest, vector, short, limit)
    )


def max_record_length(nest: Nest, vector: Variable, vector_bytes: int) -> int:
    """The largest number of elements of records that are transposed in registers: the number of lanes, or 0."""
    lanes = min(MAX_LANES, native_lanes(nest.expressions, vector_bytes))
    types = [*(store.value.type for store in nest.stores), *(load.type for load in nest.loads)]
    masked = all(type.bits >= min_masked_bits(vector_bytes) for type in types)
    return lanes if masked and vector.extent >= lanes else 0


def _elementwise_loops(nest: Nest, vector: Variable, short: list[Variable], limit: int) -> list[Variable]:
    """The first loop over elements of records, in a nest without reductions."""
    return next(([loop] for loop in short if _is_interleaved_along(nest, vector, loop, limit)), [])


def _reduction_loops(nest: Nest, vector: Variable, short: list[Variable], limit: int) -> list[Variable]:
    """The loops of the reductions, if each reduces records, and those over the elements of loaded or stored records."""
    records = [reduction for reduction in nest.reductions if _reduces_records(reduction, vector, limit)]
    if not records or not all(reduction in records or is_shared(reduction, vector) for reduction in nest.reductions):
        return []
    elementwise = [loop for loop in short if _is_interleaved_along(nest, vector, loop, limit)]
    grouped = {id(store) for group in store_groups(nest, vector, limit) for store in group.accesses}
    if not all(id(store) in grouped or _is_dense_store(store, vector, elementwise, limit) for store in nest.stores):
        return []
    loops = [*(reduction.over[0] for reduction in records), *elementwise]
    size = max(loop.extent for loop in loops) * len(nest.expressions)
    return list(dict.fromkeys(loops)) if size <= MAX_UNROLLED_EXPRESSIONS else []


def _reduces_records(reduction: Reduction, vector: Variable, limit: int) -> bool:
    """Whether a reduction is over the elements of records."""
    loads = loads_of(reduction.values)
    return len(reduction.over) == 1 and any(
        _is_interleaved_load(load, vector, reduction.over[0], limit) for load in loads
    )


def is_shared(reduction: Reduction, vector: Variable) -> bool:
    """Whether all lanes along a loop reduce the same elements, such as weights, beside elements of their own."""
    loads = loads_of(reduction.values)
    return all(vector not in load.variables or load.variables.isdisjoint(reduction.over) for load in loads)


def _is_interleaved_along(nest: Nest, vector: Variable, loop: Variable, limit: int) -> bool:
    """Whether some load or store accesses records whose elements the loop visits."""
    stored = any(_is_interleaved_store(store, vector, loop, limit) for store in nest.stores)
    return stored or any(_is_interleaved_load(load, vector, loop, limit) for load in nest.loads)


def _is_dense_store(store: Store, vector: Variable, loops: list[Variable], limit: int) -> bool:
    """Whether vectors of the stored value are contiguous, or interleaved to whole records."""
    return store.index.coefficient(vector) == 1 or any(
        _is_interleaved_store(store, vector, loop, limit) for loop in loops
    )


def _is_interleaved_store(store: Store, vector: Variable, loop: Variable, limit: int) -> bool:
    if not _is_interleaved(store.index, vector, loop):
        return False
    return loop.extent <= limit or store.index.coefficient(vector) == loop.extent <= MAX_VECTOR_STRIDE


def _is_interleaved_load(load: Load, vector: Variable, loop: Variable, limit: int) -> bool:
    if not is_transposable(load, loop, vector) or not _is_interleaved(load.index, vector, loop):
        return False
    return loop.extent <= limit or load.index.coefficient(vector) <= MAX_VECTOR_STRIDE


def is_transposable(load: Load, loop: Variable, vector: Variable) -> bool:
    """Whether vectors along the vector loop can be loaded along another loop and transposed in registers."""
    return load.in_bounds and not load.type.is_complex and _is_transposed(load.index, loop, vector)


def _is_transposed(index: Index, loop: Variable, vector: Variable) -> bool:
    """Whether an index is contiguous along a loop and strided along the vector loop."""
    affine = index.is_affine_in(loop) and index.is_affine_in(vector)
    return affine and index.coefficient(loop) == 1 and index.coefficient(vector) > 1


def _is_interleaved(index: Index, vector: Variable, loop: Variable) -> bool:
    """Whether a loop runs over the elements of records that do not overlap, one for each lane of the vector loop."""
    return _is_transposed(index, loop, vector) and index.coefficient(vector) >= loop.extent


# Access groups


@record(slots=True)
class AccessGroup(Generic[Access]):
    """Loads, or stores, of one buffer whose indices differ only by a constant: each lane accesses one record."""

    accesses: tuple[Access, ...]
    """The accesses in the order of their offsets in the record."""
    stride: int
    """The number of elements from the record of a lane to that of the next lane."""

    @property
    def first(self) -> Index:
        """The index of the first element of the record."""
        return self.accesses[0].index

    @property
    def offsets(self) -> list[int]:
        """The offsets of the accesses from the first one, in elements."""
        return [access.index.constant - self.first.constant for access in self.accesses]

    @property
    def length(self) -> int:
        """The number of elements from the first to the last access of a record."""
        return self.offsets[-1] + 1

    @property
    def is_dense(self) -> bool:
        """Whether the records of adjacent lanes have no gap between them."""
        return self.length == self.stride

    @property
    def has_small_stride(self) -> bool:
        """Whether the records of all lanes are close enough to be loaded as one vector."""
        return self.stride <= MAX_VECTOR_STRIDE

    @property
    def is_one_vector(self) -> bool:
        """Whether the records of all lanes are stored as one vector of interleaved elements."""
        return self.is_dense and self.has_small_stride


def load_groups(nest: Nest, vector: Variable, limit: int) -> list[AccessGroup[Load]]:
    """The groups of two or more loads, of records of at most `limit` elements or with a small stride."""
    loads = [load for load in nest.loads if load.in_bounds and not load.type.is_complex]
    groups = _access_groups(loads, vector, limit)
    return [group for group in groups if len(group.accesses) > 1]


def store_groups(nest: Nest, vector: Variable, limit: int) -> list[AccessGroup[Store]]:
    """The groups of two or more stores that write records without gaps."""
    groups = _access_groups([store for store in nest.stores if not store.value.type.is_complex], vector, limit)
    whole = [group for group in groups if group.length == len(group.accesses) > 1]
    return [group for group in whole if group.is_one_vector or group.length <= limit]


def needs_transposition(nest: Nest, vector: Variable, limit: int) -> bool:
    """Whether some group is loaded or stored by a transposition in registers."""
    loads, stores = load_groups(nest, vector, limit), store_groups(nest, vector, limit)
    return not all(group.has_small_stride for group in loads) or not all(group.is_one_vector for group in stores)


def _access_groups(accesses: Sequence[Access], vector: Variable, limit: int) -> list[AccessGroup[Access]]:
    """Groups strided accesses of one buffer, as one type, whose indices differ only by a constant."""
    by_terms: dict[object, list[Access]] = {}
    for access in accesses:
        if access.index.is_affine_in(vector) and access.index.coefficient(vector) > 1:
            type = access.type if isinstance(access, Load) else access.value.type
            by_terms.setdefault((access.buffer, type, access.index.terms), []).append(access)
    groups = []
    for similar in by_terms.values():
        stride = similar[0].index.coefficient(vector)
        longest = stride if stride <= MAX_VECTOR_STRIDE else min(stride, limit)
        groups += [AccessGroup(record, stride) for record in _records(similar, longest)]
    return groups


def _records(accesses: list[Access], longest: int) -> list[tuple[Access, ...]]:
    """Sorts accesses by their offsets, and splits them into records of at most `longest` elements."""
    records: list[list[Access]] = []
    for access in sorted(accesses, key=lambda access: access.index.constant):
        if records and access.index.constant - records[-1][0].index.constant < longest:
            records[-1].append(access)
        else:
            records.append([access])
    return [tuple(record) for record in records]
