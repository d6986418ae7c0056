"""Follows a tiled dimension through instructions: the part of an operand that a part of the result needs.

A `TiledDimension` is the dimension of an array that is split into blocks. A row of queries, for example, is dimension 2
of the scores [batch, head, query, key] and of their sums. Where heads and queries have been merged into one dimension
no part of a row is contiguous, and it cannot be tiled there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hloom.affine import Variable
from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.dot import Dot
from hloom.ops.operation import Operation
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.transpose import Transpose
from hloom.system.records import record


@record(slots=True)
class TiledDimension:
    """The tiled dimension of one array: step k is [k * multiple, (k + 1) * multiple) along dimension `index`."""

    index: int
    multiple: int = 1


TILEABLE = (Broadcast, Dot, Iota, Reduce, Reshape, Transpose)
"""Operations that compute a block of the result with the attributes that they have for the whole."""


class Untileable(Exception):
    """Raised if the tiled dimension cannot be followed through an instruction."""


def can_be_tiled(op: Operation) -> bool:
    """Whether a tiled dimension can be followed through an operation."""
    return op.elementwise or isinstance(op, TILEABLE)


def operand_dimension(user: Instruction, position: int, tiled: TiledDimension) -> TiledDimension | None:
    """The tiled dimension of an operand, given that of the result; None if all of the operand is needed.

    Raises Untileable if it cannot be followed.
    """
    op = user.op
    if op.elementwise:
        return _elementwise(user, position, tiled)
    if isinstance(op, Reshape):
        return _reshaped(user.shape.dimensions, user.operands[position].shape.dimensions, tiled)
    return _matching(tiled, *_variables(user, position))


def result_dimension(user: Instruction, position: int, tiled: TiledDimension) -> TiledDimension | None:
    """The tiled dimension of the result, given that of an operand; None if it is summed over.

    Raises Untileable if it cannot be followed.
    """
    op = user.op
    if op.elementwise:
        return _elementwise(user, position, tiled)
    if isinstance(op, Reshape):
        return _reshaped(user.operands[position].shape.dimensions, user.shape.dimensions, tiled)
    return _matching(tiled, *_variables(user, position)[::-1])


def _elementwise(user: Instruction, position: int, tiled: TiledDimension) -> TiledDimension | None:
    """Handles element-wise operations; Untileable where bitcasts change the rank, None for scalar operands."""
    sizes = user.operands[position].shape.dimensions
    if sizes and sizes != user.shape.dimensions:
        raise Untileable
    return tiled if sizes else None


def contracted_dimension(user: Instruction, position: int, tiled: TiledDimension) -> tuple[int, TiledDimension] | None:
    """The operand of a dot that has the same contracted dimension, and that dimension; None for a reduce."""
    op = user.op
    if not isinstance(op, Dot):
        return None
    own, other = (op.lhs_contracting_dims, op.rhs_contracting_dims)[:: 1 if position == 0 else -1]
    return 1 - position, TiledDimension(other[own.index(tiled.index)], tiled.multiple)


def _variables(user: Instruction, position: int) -> tuple[Sequence[Variable], Sequence[Variable | None]]:
    """The variables of the dimensions of an operation's result and of an operand; Untileable if it cannot be tiled."""
    mapped = user.indexing_map() if can_be_tiled(user.op) else None
    if mapped is None:
        raise Untileable
    return mapped.dimensions, mapped.dimension_variables[position]


def _matching(
    tiled: TiledDimension, source: Sequence[Variable | None], target: Sequence[Variable | None]
) -> TiledDimension | None:
    """The dimension of `target` with the variable of the tiled dimension of `source`; None if there is none."""
    variable = source[tiled.index]
    return TiledDimension(target.index(variable), tiled.multiple) if variable and variable in target else None


def _reshaped(old: Sequence[int], new: Sequence[int], tiled: TiledDimension) -> TiledDimension:
    """The dimension of `new` with the same elements per step and the same number of outer steps."""
    inner = math.prod(old[tiled.index + 1 :])
    step, outer = tiled.multiple * inner, old[tiled.index] * inner
    for dimension, size in enumerate(new):
        within = math.prod(new[dimension + 1 :])
        if size * within == outer and step % within == 0:
            return TiledDimension(dimension, step // within)
    raise Untileable


def follow(seed: Instruction, dimension: int, members: Sequence[Instruction]) -> dict[Instruction, TiledDimension]:
    """Returns the tiled dimension of each member that has it, from that of one member, along operands and users.

    Raises Untileable where it cannot be followed, or reaches two dimensions of one array.
    """
    inside = frozenset(members)
    found: dict[Instruction, TiledDimension] = {}
    stack = [(seed, TiledDimension(dimension))]
    while stack:
        instruction, tiled = stack.pop()
        if instruction in found:
            if found[instruction] != tiled:
                raise Untileable
            continue
        found[instruction] = tiled
        reached = _reached(instruction, tiled, inside)
        stack += [(other, its) for other, its in reached if its is not None and other in inside]
    return found


def _reached(
    instruction: Instruction, tiled: TiledDimension, inside: frozenset[Instruction]
) -> Iterator[tuple[Instruction, TiledDimension | None]]:
    """Yields operands and users of an instruction, each with the dimension that corresponds to `tiled` there, if any.

    Where a product sums over the dimension, they include the other operand.
    """
    for position, operand in enumerate(instruction.operands):
        yield operand, operand_dimension(instruction, position, tiled)
    for user in instruction.users:
        for position, operand in enumerate(user.operands if user in inside else ()):
            if operand is instruction:
                result = result_dimension(user, position, tiled)
                yield user, result
                if result is None and (other := contracted_dimension(user, position, tiled)) is not None:
                    yield user.operands[other[0]], other[1]
