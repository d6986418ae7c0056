"""Reads of operands: access patterns of values that contain reductions, and the number of times that each is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.pad import Concatenate
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.traits import Reduction, View
from hloom.passes.fusion.in_place import ROOT_ONLY
from hloom.target import MAX_CACHED_COLUMN, MAX_CACHED_ROW

MIN_COLUMNS = 64
"""Columns that make a loop over vectors of columns worthwhile."""
MIN_ROWS = 16
"""Rows that make a loop over rows worthwhile, unless the array is small."""

MAX_COLUMNS_JOINED = 8
"""Columns whose elements one loop computes and stores together, each in registers."""

AccessPattern = tuple[tuple[int, ...], ...]
"""Description of how a consumer reads a value that contains a reduction: ELEMENTWISE (compatible with every other
pattern), BY_ROWS, or by columns, given as (sizes of the array, reduced dimensions)."""
ELEMENTWISE: AccessPattern = ()
BY_ROWS: AccessPattern = ((),)


def access_pattern(user: Instruction, operand: Instruction) -> AccessPattern | None:
    """Returns the pattern in which a user reads an operand that contains a reduction; None if no fused loop nest would
    compute each reduction once."""
    op, sizes = user.op, operand.shape.dimensions
    if op.elementwise or joins_columns(user):
        return ELEMENTWISE
    if isinstance(op, Broadcast):
        rest, rows = row_length(op, user.shape.dimensions), math.prod(sizes)
        if rest is not None and rest <= MAX_CACHED_ROW and (rows >= MIN_ROWS or rest * rows <= 4096):
            return BY_ROWS
        return columns_of_broadcast(op, user.shape.dimensions)
    if isinstance(op, Reduce):
        if user.operands[0] is not operand:
            return None
        kept = [d for d in range(len(sizes)) if d not in op.dimensions]
        return BY_ROWS if _are_leading(kept, sizes) else _column_pattern(sizes, op.dimensions)
    is_same = isinstance(op, Reshape) and without_ones(sizes) == without_ones(user.shape.dimensions)
    return ELEMENTWISE if is_same else None


def joins_columns(user: Instruction) -> bool:
    """Whether an instruction joins columns side by side: one loop over the rows computes and stores them all."""
    op = user.op
    if not isinstance(op, Concatenate) or len(user.operands) > MAX_COLUMNS_JOINED:
        return False
    return all(math.prod(column.shape.dimensions[op.dimension :]) == 1 for column in user.operands)


def columns_of_broadcast(op: Broadcast, sizes: tuple[int, ...]) -> AccessPattern | None:
    """Returns the pattern by columns in which a broadcast to an array of these sizes reads its operand; None if it has
    another pattern."""
    dimensions = op.broadcast_dimensions
    in_order = list(dimensions) == sorted(dimensions)
    return _column_pattern(sizes, [d for d in range(len(sizes)) if d not in dimensions]) if in_order else None


def _column_pattern(sizes: tuple[int, ...], reduced: Sequence[int]) -> AccessPattern | None:
    """Returns the pattern by columns along the `reduced` dimensions; None for long or for few columns."""
    reduced_dimensions = [d for d in sorted(reduced) if sizes[d] > 1]
    if not reduced_dimensions or math.prod(sizes[d] for d in reduced_dimensions) > MAX_CACHED_COLUMN:
        return None
    columns = math.prod(sizes[reduced_dimensions[-1] + 1 :])
    return (sizes, tuple(reduced_dimensions)) if columns >= MIN_COLUMNS else None


def row_length(op: Broadcast, sizes: tuple[int, ...]) -> int | None:
    """Number of consecutive copies that a broadcast to an array of these sizes makes of each element of its operand;
    None unless the operand's order is preserved."""
    dimensions = op.broadcast_dimensions
    if not _are_leading(dimensions, sizes):
        return None
    return math.prod(size for d, size in enumerate(sizes) if d not in dimensions)


def _are_leading(dimensions: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the dimensions, in this order, precede all others; dimensions of size 1 are ignored."""
    wide = [d for d, size in enumerate(sizes) if size > 1]
    chosen = [d for d in dimensions if sizes[d] > 1]
    return chosen == wide[: len(chosen)]


def without_ones(sizes: tuple[int, ...]) -> list[int]:
    """Returns the sizes that are not 1, in order."""
    return [size for size in sizes if size != 1]


def reads_same_index(user: Instruction, operand: Instruction) -> bool:
    """Whether each element of the user reads the operand's element at the same index."""
    if isinstance(user.op, View):
        return without_ones(user.shape.dimensions) == without_ones(operand.shape.dimensions)
    return user.op.elementwise and user.shape.dimensions == operand.shape.dimensions


def average_reads(user: Instruction, operand: Instruction, is_reduction: bool) -> float:
    """Average number of times that an element of the operand is computed, if each element of the user is computed once.

    `is_reduction` says whether the operand contains a reduction, which loops over columns compute once. Scalars are
    computed before the loops.
    """
    op = user.op
    if isinstance(op, ROOT_ONLY) or not operand.shape.dimensions:
        return 1.0
    own, size = next(user.shape.leaves()).element_count, max(1, operand.shape.element_count)
    if isinstance(op, Broadcast):
        # The value is computed before the loop over the other dimensions, or in at most four unrolled copies.
        is_once = row_length(op, user.shape.dimensions) is not None or own <= 4 * size
        by_columns = is_reduction and columns_of_broadcast(op, user.shape.dimensions) is not None
        return 1.0 if is_once or by_columns else own / size
    return own * (reduced_count(user) or 1) / size


def reduced_count(instruction: Instruction) -> int:
    """Number of elements that each element of a reduction combines; 0 for other operations."""
    if not isinstance(instruction.op, Reduction):
        return 0
    mapped = instruction.indexing_map()
    return math.prod(variable.extent for variable in mapped.reductions) if mapped else 0
