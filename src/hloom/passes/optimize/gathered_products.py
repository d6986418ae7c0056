"""gathered-products: products of rows that are gathered or summed by their index, computed once for each index.

    dot(gather(x, i), w)                        ->  gather(dot(x, w), i)
    dot(gather(x, i), g), over the rows of both ->  dot(x, sums), sums = scatter(0, i, g), add
    scatter(0, i, dot(g, w)), add               ->  dot(sums, w)

A layer of a graph network multiplies the rows of the nodes at the ends of each edge, and there are more edges than
nodes. The second and third form are its gradients, along weights and nodes; they share `sums`. Rows that no index names
take no part in a product before the rewrite, so that they are replaced by 0 after it: 0 * inf would be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.analysis.monoids import monoid_of
from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, SliceDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.compare import Compare
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, And, Or
from hloom.ops.gather import Gather
from hloom.ops.pad import Concatenate
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.ops.slice import Slice
from hloom.passes.edit import constant_value
from hloom.passes.op_builder import Expanders, OpBuilder, ScalarComputations, expand_all, reduced
from hloom.passes.pattern import splat_source
from hloom.shape import Shape
from hloom.system.records import record
from hloom.target import align_up
from hloom.types import PrimitiveType

F32, F64, PRED = PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.PRED
MIN_REPETITION = 2
"""Gathered or scattered rows for each row of the array that make the rewrite worthwhile."""
MIN_TERMS = 16
"""Columns from which a product takes longer than moving its rows."""
BLOCK = 256
"""Divisor of the number of sums, if there are many: products over them can then be split into equal parts."""
MAX_WIDENING = 4
"""Columns of the rows that are summed for each column of the result."""


@record
class GatheredProducts:
    """Before: dot(gather(%x, %i), %w), more rows in the result than in %x. After: gather(dot(%x, %w), %i). Also sums of
    rows, scatter(0, %i, dot(%g, %w)), and dot(gather(%x, %i), %g) over the rows of both.

    Gathered rows may be joined side by side, and replaced by a constant under a mask. Sums have another order, and may
    overflow where the terms do not.
    """

    name: ClassVar[str] = "gathered-products"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot, Scatter)

    def run(self, module: Module) -> int:
        """Rewrites the products; returns their number."""
        expanders, sums = Expanders(), _RowSums(module)
        expanders.add(Dot, lambda op, build, old, _: _of_rows(op, build, old) or _over_rows(op, build, old, sums))
        expanders.add(Scatter, lambda op, build, old, _: _scattered(op, build, old, sums))
        return expand_all(module, expanders)


# Rows


@record
class _Rows:
    """Rows of a matrix at indices, replaced by `fill` where `mask` is false."""

    array: Instruction
    gather: Instruction
    mask: Instruction | None = None
    fill: Instruction | None = None

    @property
    def op(self) -> Gather:
        op = self.gather.op
        assert isinstance(op, Gather)
        return op


def _rows(value: Instruction) -> _Rows | None:
    """Returns the rows that a value consists of, if they repeat those of a matrix; else None."""
    if isinstance(value.op, Select):
        predicate, chosen, other = value.operands
        fill, inner = splat_source(other), _rows(chosen)
        is_of_rows = (
            isinstance(predicate.op, Broadcast) and value.shape.rank - 1 not in predicate.op.broadcast_dimensions
        )
        if fill is None or inner is None or inner.mask is not None or not is_of_rows:
            return None
        return _Rows(inner.array, inner.gather, predicate, fill)
    if not isinstance(value.op, Gather):
        return None
    op, array, last = value.op, value.operands[0], value.shape.rank - 1
    dimensions = op.offset_dims, op.collapsed_slice_dims, op.start_index_map
    if array.shape.rank != 2 or dimensions != ((last,), (0,), (0,)) or op.slice_sizes[1] != array.shape.dimensions[1]:
        return None
    return _Rows(array, value) if _repeats(value.shape, array.shape) else None


def _repeats(rows: Shape, array: Shape) -> bool:
    """Whether there are more rows than the array has, and they are long."""
    is_long = array.dimensions[1] >= MIN_TERMS
    return is_long and array.element_type in (F32, F64) and rows.element_count >= MIN_REPETITION * array.element_count


def _pieces(value: Instruction) -> Sequence[Instruction]:
    """Returns the arrays that are joined side by side in a value."""
    is_joined = isinstance(value.op, Concatenate) and value.op.dimension == value.shape.rank - 1
    return value.operands if is_joined else [value]


def _is_plain(op: Dot, old: Instruction) -> bool:
    """Whether a dot is a product of matrices in one type, of which the left one may have several dimensions of rows."""
    lhs, rhs = old.operand_shapes
    is_product = not op.lhs_batch_dims and len(op.lhs_contracting_dims) == 1 and lhs.rank >= rhs.rank == 2
    return is_product and {lhs.element_type, rhs.element_type, old.shape.element_type} in ({F32}, {F64})


# The product of gathered rows


def _of_rows(op: Dot, build: OpBuilder, old: Instruction) -> Instruction | None:
    """Multiplies the rows of the array, and gathers those of the product."""
    left, matrix = old.operands
    if not _is_plain(op, old) or op.lhs_contracting_dims != (left.shape.rank - 1,):
        return None
    pieces = _pieces(left)
    if not any(map(_rows, pieces)):
        return None
    total, start = None, 0
    for piece in pieces:
        size = piece.shape.dimensions[-1]
        factor = build.slice_dimension(matrix, op.rhs_contracting_dims[0], start, size)
        start += size
        product = _product_of(op, build, piece, factor)
        total = product if total is None else build(Add(), total, product)
    return total


def _product_of(op: Dot, build: OpBuilder, piece: Instruction, factor: Instruction) -> Instruction:
    rows = _rows(piece)
    if rows is None:
        return build(op, piece, factor)
    of_matrix = op.replace(lhs_contracting_dims=(1,))
    product = build(of_matrix, rows.array, factor)
    columns = product.shape.dimensions[1]
    gathered = build(rows.op.replace(slice_sizes=(1, columns)), product, rows.gather.operands[1])
    if rows.mask is None or rows.fill is None:
        return gathered
    last = gathered.shape.rank - 1
    filled = build.broadcast(rows.fill, Shape.array(rows.array.shape.element_type, (1, piece.shape.dimensions[-1])))
    fill = build.reshape(build(of_matrix, filled, factor), (columns,))
    mask = build.broadcast(rows.mask.operands[0], gathered.shape, _dimensions(rows.mask))
    return build(Select(), mask, gathered, build.broadcast(fill, gathered.shape, (last,)))


def _dimensions(broadcast: Instruction) -> tuple[int, ...]:
    assert isinstance(broadcast.op, Broadcast)
    return broadcast.op.broadcast_dimensions


# The product over gathered rows


class _RowSums:
    """Builds sums of rows by their index."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.combiners = ScalarComputations(module)

    def of(self, build: OpBuilder, indices: Instruction, vector: int, updates: Instruction, count: int) -> Instruction:
        """Sums the updates of each of `count` rows, whose indices lie along the dimension `vector` of the indices; then
        those of indices below 0, and of indices from `count` on; then there may be zeros.
        """
        type, sizes = updates.shape.element_type, updates.shape.dimensions[1:]
        op = Scatter(
            update_window_dims=tuple(range(1, updates.shape.rank)),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=vector,
            update_computation=self.combiners(Or() if type is PRED else Add(), type),
        )
        zeros = build.zeros(Shape.array(type, (_sum_count(count), *sizes)))
        return build(op, zeros, _sum_indices(build, indices, count), updates)

    def named(
        self, build: OpBuilder, indices: Instruction, vector: int, updates: Instruction, count: int
    ) -> Instruction:
        """Builds, for each sum of updates, whether it has a term."""
        true = build.broadcast(build.constant(True, PRED), Shape.array(PRED, updates.shape.dimensions[:1]))
        return self.of(build, indices, vector, true, count)


def _sum_count(count: int) -> int:
    return align_up(count + 2, BLOCK) if count >= 8 * BLOCK else count + 2


def _sum_indices(build: OpBuilder, indices: Instruction, count: int) -> Instruction:
    """Returns the indices of sums: `count` for those below 0, and count + 1 for those from `count` on."""
    type, shape = indices.shape.element_type, indices.shape
    zero, below, above = (build.broadcast(build.constant(k, type), shape) for k in (0, count, count + 1))
    is_below, is_above = (
        build(Compare(direction=direction), indices, limit)
        for direction, limit in ((ComparisonDirection.LT, zero), (ComparisonDirection.GE, below))
    )
    return build(Select(), is_below, below, build(Select(), is_above, above, indices))


def _has_indices(indices: Instruction, count: int) -> bool:
    """Whether the indices' type is signed and has the indices of all sums."""
    type = indices.shape.element_type
    return type.is_signed and type.limits[1] > count


def _over_rows(op: Dot, build: OpBuilder, old: Instruction, sums: _RowSums) -> Instruction | None:
    """Sums the rows of the other operand by their index, and multiplies the array by the sums."""
    if not _is_plain(op, old) or old.operands[0].shape.rank != 2:
        return None
    if op.lhs_contracting_dims != (0,) or op.rhs_contracting_dims != (0,):
        return None
    for side, (joined, other) in enumerate((old.operands, old.operands[::-1])):
        pieces = _pieces(joined)
        if other.shape.dimensions[1] < MIN_TERMS or not any(map(_sums_pay, map(_rows, pieces))):
            continue
        products = [_product_over(op, build, piece, other, side, sums) for piece in pieces]
        return products[0] if len(products) == 1 else build(Concatenate(dimension=side), *products)
    return None


def _sums_pay(rows: _Rows | None) -> bool:
    """Whether rows take part in a product as if there was no mask, or one that makes all of it NaN."""
    if rows is None or not _has_indices(rows.gather.operands[1], rows.array.shape.dimensions[0]):
        return False
    return rows.fill is None or bool(np.isnan(constant_value(rows.fill)).all())


def _product_over(
    op: Dot, build: OpBuilder, piece: Instruction, other: Instruction, side: int, sums: _RowSums
) -> Instruction:
    rows = _rows(piece)
    if rows is None or not _sums_pay(rows):
        return build(op, *((piece, other), (other, piece))[side])
    count, given = rows.array.shape.dimensions[0], (rows.gather.operands[1], rows.op.index_vector_dim, other)
    # A gather clamps indices that are outside.
    ends = [build.slice_dimension(rows.array, 0, k, 1) for k in (0, count - 1)]
    rest = Shape.array(other.shape.element_type, (_sum_count(count) - count - 2, rows.array.shape.dimensions[1]))
    array = build(Concatenate(dimension=0), rows.array, *ends, build.zeros(rest))
    factors = _or_zero(build, sums.named(build, *given, count), array), sums.of(build, *given, count)
    product = build(op, *factors[:: -1 if side else 1])
    if rows.mask is None or rows.fill is None:
        return product
    takes_all = reduced(build, sums.module, And(), rows.mask.operands[0], True)
    fill = build.broadcast(rows.fill, product.shape)
    return build(Select(), build.broadcast(takes_all, product.shape), product, fill)


def _or_zero(build: OpBuilder, named: Instruction, rows: Instruction) -> Instruction:
    """Replaces rows that no index names by 0."""
    return build(Select(), build.broadcast(named, rows.shape, (0,)), rows, build.zeros(rows.shape))


# Sums of the rows of a product


def _scattered(op: Scatter, build: OpBuilder, old: Instruction, sums: _RowSums) -> Instruction | None:
    """Multiplies the sums of rows instead of each row."""
    if len(old.operands) != 3 or not _adds_rows_to_zeros(op, old):
        return None
    indices, updates = old.operands[1:]
    columns, dot = SliceDimension(0, updates.shape.dimensions[1]), updates
    if isinstance(updates.op, Slice):
        (whole, columns), (dot,) = updates.op.slice, updates.operands
        if whole != SliceDimension(0, dot.shape.dimensions[0]) or columns.stride != 1:
            return None
    if not isinstance(dot.op, Dot) or not _sums_cost_less(dot.op, dot, old):
        return None
    left, matrix = dot.operands
    size = columns.limit - columns.start
    factor = build.slice_dimension(matrix, 1 - dot.op.rhs_contracting_dims[0], columns.start, size)
    count, given = old.shape.dimensions[0], (indices, op.index_vector_dim, left)
    product = build(dot.op, sums.of(build, *given, count), factor)
    rows = _or_zero(build, sums.named(build, *given, count), product)
    return build.slice_dimension(rows, 0, 0, count)


def _adds_rows_to_zeros(op: Scatter, old: Instruction) -> bool:
    operand, _, updates = old.operands
    dimensions = op.update_window_dims, op.inserted_window_dims, op.scatter_dims_to_operand_dims
    zero = splat_source(operand)
    is_of_rows = operand.shape.rank == 2 and dimensions == ((1,), (0,), (0,))
    is_sum = zero is not None and not any(constant_value(zero).tobytes()) and monoid_of(op.update_computation) is Add
    return is_of_rows and is_sum and updates.shape.dimensions[1] == operand.shape.dimensions[1]


def _sums_cost_less(op: Dot, dot: Instruction, scatter: Instruction) -> bool:
    """Whether a dot computes rows for scatters alone, and summing the rows of its left operand costs less."""
    left = dot.operands[0].shape
    if not _is_plain(op, dot) or left.rank != 2 or op.lhs_contracting_dims != (1,):
        return False
    terms, columns = left.dimensions[1], scatter.shape.dimensions[1]
    is_for_sums = all(isinstance(user.op, Scatter | Slice) for user in dot.users)
    is_repeated = left.dimensions[0] >= MIN_REPETITION * scatter.shape.dimensions[0]
    has_indices = _has_indices(scatter.operands[1], scatter.shape.dimensions[0])
    return is_for_sums and is_repeated and has_indices and MIN_TERMS <= terms <= MAX_WIDENING * columns
