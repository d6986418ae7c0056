"""How a dimension runs through instructions: which part of an operand a part of the result needs.

A `Place` says where in an array the dimension lies that is cut into blocks. A row of queries, say, is dimension 2 of
the scores [batch, head, query, key] and of their sums; where heads and queries were made one dimension no part of it is
contiguous, and it cannot be cut there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hloom.ir import Instruction
from hloom.ops.dot import Dot

MEMBERS = frozenset({"broadcast", "iota", "reshape", "transpose", "reduce", "dot"})
"""What can be computed block by block, beside element-wise operations."""


@dataclass(frozen=True, slots=True)
class Place:
    """The steps of a dimension that is cut, in one array: step k is [k * multiple, (k + 1) * multiple) there."""

    dimension: int
    multiple: int = 1


class Uncuttable(Exception):
    """The dimension cannot be followed through an instruction."""


def operand_place(user: Instruction, position: int, place: Place) -> Place | None:
    """Where the dimension lies in an operand if it lies at `place` in the result; None where all of it is needed."""
    op: Any = user.op
    operand = user.operands[position].shape
    if op.elementwise:
        return _elementwise(user, position, place)
    if user.opcode == "broadcast":
        dimensions = op.broadcast_dimensions
        return Place(dimensions.index(place.dimension), place.multiple) if place.dimension in dimensions else None
    if user.opcode == "reshape":
        return _reshaped(user.shape.dimensions, operand.dimensions, place)
    if user.opcode == "transpose":
        return Place(op.permutation[place.dimension], place.multiple)
    if user.opcode == "reduce":
        kept = [d for d in range(operand.rank) if d not in op.dimensions]
        return Place(kept[place.dimension], place.multiple) if position == 0 else None
    if isinstance(op, Dot):
        own = _dot_dimensions(user, position)
        return Place(own[place.dimension], place.multiple) if place.dimension in own else None
    raise Uncuttable


def result_place(user: Instruction, position: int, place: Place) -> Place | None:
    """Where the dimension lies in the result if it lies at `place` in an operand; None where it is summed over."""
    op: Any = user.op
    if op.elementwise:
        return _elementwise(user, position, place)
    if user.opcode == "broadcast":
        return Place(op.broadcast_dimensions[place.dimension], place.multiple)
    if user.opcode == "reshape":
        return _reshaped(user.operands[0].shape.dimensions, user.shape.dimensions, place)
    if user.opcode == "transpose":
        return Place(op.permutation.index(place.dimension), place.multiple)
    if user.opcode == "reduce":
        before = sum(d < place.dimension for d in op.dimensions)
        return None if place.dimension in op.dimensions else Place(place.dimension - before, place.multiple)
    if isinstance(op, Dot):
        own = {operand: result for result, operand in _dot_dimensions(user, position).items()}
        return Place(own[place.dimension], place.multiple) if place.dimension in own else None
    raise Uncuttable


def _elementwise(user: Instruction, position: int, place: Place) -> Place | None:
    """The same place, but for scalars, and where a change of the elements' width makes another rank."""
    sizes = user.operands[position].shape.dimensions
    if sizes and sizes != user.shape.dimensions:
        raise Uncuttable
    return place if sizes else None


def contracted_place(user: Instruction, position: int, place: Place) -> tuple[int, Place] | None:
    """The other operand of a dot that sums over the dimension, and its place there; None for a reduce."""
    op = user.op
    if not isinstance(op, Dot):
        return None
    own, other = (op.lhs_contracting_dims, op.rhs_contracting_dims)[:: 1 if position == 0 else -1]
    return 1 - position, Place(other[own.index(place.dimension)], place.multiple)


def _dot_dimensions(dot: Instruction, position: int) -> Mapping[int, int]:
    """Dimension of a dot's result -> dimension of an operand."""
    op = dot.op
    assert isinstance(op, Dot)
    batch = (op.lhs_batch_dims, op.rhs_batch_dims)[position]
    free = op.free(dot.operands[position].shape.rank, position == 0)
    first = len(batch) if position == 0 else dot.shape.rank - len(free)
    return {**dict(enumerate(batch)), **{first + k: d for k, d in enumerate(free)}}


def _reshaped(old: Sequence[int], new: Sequence[int], place: Place) -> Place:
    """The dimension of `new` whose parts are the same elements: the same steps, within the same outer ones."""
    inner = math.prod(old[place.dimension + 1 :])
    step, outer = place.multiple * inner, old[place.dimension] * inner
    for dimension, size in enumerate(new):
        within = math.prod(new[dimension + 1 :])
        if size * within == outer and step % within == 0:
            return Place(dimension, step // within)
    raise Uncuttable


def follow(seed: Instruction, dimension: int, members: Sequence[Instruction]) -> dict[Instruction, Place]:
    """Where a dimension of one member lies in each that has it, found along operands and users.

    Raises Uncuttable where it cannot be followed, or leads to two dimensions of one array.
    """
    inside = frozenset(members)
    found: dict[Instruction, Place] = {}
    stack = [(seed, Place(dimension))]

    def reach(instruction: Instruction, place: Place | None) -> None:
        if place is not None and instruction in inside:
            stack.append((instruction, place))

    while stack:
        instruction, place = stack.pop()
        if instruction in found:
            if found[instruction] != place:
                raise Uncuttable
            continue
        found[instruction] = place
        for position, operand in enumerate(instruction.operands):
            reach(operand, operand_place(instruction, position, place))
        for user in instruction.users:
            for position, operand in enumerate(user.operands if user in inside else ()):
                if operand is not instruction:
                    continue
                reach(user, result_place(user, position, place))
                if result_place(user, position, place) is None:
                    other = contracted_place(user, position, place)
                    if other is not None:
                        reach(user.operands[other[0]], other[1])
    return found
