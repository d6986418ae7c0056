"""Softmaxes in regions: the maximum of each row, the exponentials, weights made of them, and their totals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hloom.analysis.monoids import monoid_of
from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.convert import Convert
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, Divide, Maximum, Monoid, Multiply, Subtract
from hloom.ops.elementwise_unary import Exponential
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.transpose import Transpose
from hloom.passes.blocking.dimensions import TiledDimension, Untileable, follow, result_dimension
from hloom.passes.blocking.regions import Region
from hloom.passes.blocking.tiling import is_zero
from hloom.passes.edit import reshape_chain
from hloom.types import PrimitiveType

WIDE = (PrimitiveType.F32, PrimitiveType.F64)


@dataclass(eq=False)
class Softmax:
    """A softmax along one dimension of a region's scores, the keys.

    maximum = reduce(scores, max)
    exponentials = exp(scores - shift)          shift: the maximum, reshaped and repeated
    weights = exponentials / sums               or multiplied; converted, reshaped, transposed
    totals = reduce(exponentials, add), dot(weights, values)
    """

    key_dimensions: Mapping[Instruction, TiledDimension]
    """The dimension of keys in each member that has it."""
    dimension: int
    """The dimension of keys in the scores."""
    scores: Instruction
    maximum: Instruction
    shift: Instruction
    exponentials: Instruction
    score_members: list[Instruction] = field(default_factory=list)
    """The scores, the operand of the maximum, and the members that they are computed from."""
    shifts: list[Instruction] = field(default_factory=list)
    """The members between the maximum and the exponentials."""
    weights: dict[Instruction, Instruction | None] = field(default_factory=dict)
    """The exponentials and values made of them, each with the division or multiplication that it has passed."""
    totals: list[Instruction] = field(default_factory=list)
    small: list[Instruction] = field(default_factory=list)
    """Members without keys that are computed from the maximum and the totals."""

    @property
    def extent(self) -> int:
        """The number of keys."""
        return self.scores.shape.dimensions[self.dimension]

    def weight_of(self, total: Instruction) -> Instruction:
        """The weights among the operands of a member."""
        return next(operand for operand in total.operands if operand in self.weights)

    def scale_of(self, total: Instruction) -> tuple[Instruction, Instruction] | None:
        """The division or multiplication of a total's weights, and its other operand, which is repeated."""
        scale = self.weights[self.weight_of(total)]
        if scale is None:
            return None
        return scale, next(operand for operand in scale.operands if operand not in self.weights)

    def row_dimensions(self, total: Instruction, repeated: Instruction, start: Instruction) -> tuple[int, ...] | None:
        """The dimensions of a product that hold the rows that a broadcast repeats.

        `start` is the member that reads the broadcast; dimensions of size 1 are left out. None if the rows are not
        separate dimensions, in order.
        """
        assert isinstance(repeated.op, Broadcast)
        sizes = repeated.shape.dimensions
        tiled_dimensions = [TiledDimension(d) for d in repeated.op.broadcast_dimensions if sizes[d] > 1]
        try:
            for member, position in self._path(start, total):
                found = [result_dimension(member, position, tiled) for tiled in tiled_dimensions]
                tiled_dimensions = [tiled for tiled in found if tiled is not None and tiled.multiple == 1]
        except Untileable:
            return None
        row_dimensions = tuple(tiled.index for tiled in tiled_dimensions)
        count = math.prod(total.shape.dimensions[d] for d in row_dimensions)
        ordered = all(a < b for a, b in itertools.pairwise(row_dimensions))
        return row_dimensions if ordered and count == repeated.operands[0].shape.element_count else None

    def _path(self, start: Instruction, total: Instruction) -> list[tuple[Instruction, int]]:
        """The members from one that makes weights to a total, each with the index of the operand on the path."""
        found, member = [], total
        while member is not start:
            position = next(k for k, operand in enumerate(member.operands) if operand in self.weights)
            found.append((member, position))
            member = member.operands[position]
        return found[::-1]

    @property
    def can_be_in_blocks(self) -> bool:
        """Whether each product has the rows as dimensions, so that blocks of keys can rescale earlier totals."""
        return all(
            self.row_dimensions(total, self.shift, self.exponentials) is not None
            and ((scale := self.scale_of(total)) is None or self.row_dimensions(total, scale[1], scale[0]) is not None)
            for total in self.totals
            if isinstance(total.op, Dot)
        )


def find_softmax(region: Region) -> Softmax | None:
    """The softmax of a region; None if the region has other members, or more than one softmax."""
    softmax = _find_scores_and_shift(region)
    if softmax is None:
        return None
    softmax.score_members = _members_leading_to(region, {softmax.scores, softmax.maximum.operands[0]})
    return softmax if _Classifier(softmax, region).classify_all() else None


def _find_scores_and_shift(region: Region) -> Softmax | None:
    """Matches the scores, the maximum and the exponentials."""
    exponentials = [member for member in region.members if isinstance(member.op, Exponential)]
    if len(exponentials) != 1 or not isinstance(exponentials[0].operands[0].op, Subtract):
        return None
    scores, shift = exponentials[0].operands[0].operands
    if not isinstance(shift.op, Broadcast) or scores.shape.element_type not in WIDE:
        return None
    maximum = reshape_chain(shift.operands[0])[-1]
    if not _reduces_by(maximum, Maximum) or reshape_chain(maximum.operands[0])[-1] is not reshape_chain(scores)[-1]:
        return None
    assert isinstance(maximum.op, Reduce)
    (dimension,) = maximum.op.dimensions
    try:
        key_dimensions = follow(maximum.operands[0], dimension, region.members)
    except Untileable:
        return None
    if scores not in key_dimensions or any(tiled.multiple != 1 for tiled in key_dimensions.values()):
        return None
    return Softmax(key_dimensions, key_dimensions[scores].index, scores, maximum, shift, exponentials[0])


def _reduces_by(member: Instruction, monoid: type[Monoid]) -> bool:
    """Whether an instruction reduces one dimension of one array by an operation."""
    op = member.op
    return (
        isinstance(op, Reduce)
        and len(member.operands) == 2
        and len(op.dimensions) == 1
        and monoid_of(op.computation) is monoid
    )


def _members_leading_to(region: Region, needed: set[Instruction]) -> list[Instruction]:
    """The members that are needed to compute some members, including these."""
    for member in reversed(region.members):
        if member in needed:
            needed.update(member.operands)
    return [member for member in region.members if member in needed]


class _Classifier:
    """Classifies each member by its role in the softmax."""

    def __init__(self, softmax: Softmax, region: Region) -> None:
        self.softmax, self.region = softmax, region
        self.inside = {*region.members}
        self.repeated: dict[Instruction, None] = {}
        """Small values that are repeated for each key."""
        self.score_members = {*softmax.score_members}

    def classify_all(self) -> bool:
        """Whether all members have a role, and no value with keys is used elsewhere."""
        softmax = self.softmax
        return (
            all(member in softmax.key_dimensions for member in self.score_members)
            and all(member in self.score_members or self._classify(member) for member in self.region.members)
            and all(output not in softmax.key_dimensions for output in self.region.outputs)
        )

    def _classify(self, member: Instruction) -> bool:
        softmax, shifted = self.softmax, self.softmax.exponentials.operands[0]
        operands = [operand for operand in member.operands if operand in self.inside]
        if member is softmax.maximum:
            return True
        if self.score_members.intersection(operands) and member is not shifted:
            return False
        if member is shifted:
            softmax.shifts.append(member)
        elif member is softmax.exponentials:
            softmax.weights[member] = None
        elif any(operand in softmax.weights for operand in operands):
            return self._classify_weight_user(member)
        elif member in softmax.key_dimensions:
            return self._classify_broadcast(member, operands)
        elif self._leads_to_shift(member):
            softmax.shifts.append(member)
        else:
            softmax.small.append(member)
        return all(operand not in self.repeated for operand in operands)

    def _leads_to_shift(self, member: Instruction) -> bool:
        found = self.softmax.shift
        while found is not self.softmax.maximum and found is not member:
            found = found.operands[0]
        return found is member

    def _classify_broadcast(self, member: Instruction, operands: Sequence[Instruction]) -> bool:
        if member is self.softmax.shift:
            self.softmax.shifts.append(member)
        elif isinstance(member.op, Broadcast):
            self.repeated[member] = None
        else:
            return False
        return all(operand not in self.softmax.key_dimensions for operand in operands)

    def _classify_weight_user(self, member: Instruction) -> bool:
        """Classifies a user of weights: other weights, or a total."""
        softmax = self.softmax
        weights = [operand for operand in member.operands if operand in softmax.weights]
        others = [operand for operand in member.operands if operand not in weights]
        if len(weights) != 1:
            return False
        (weight,) = weights
        scale = softmax.weights[weight]
        if isinstance(member.op, (Convert, Reshape, Transpose)) and member in softmax.key_dimensions:
            softmax.weights[member] = scale
        elif isinstance(member.op, (Divide, Multiply)) and scale is None and others[0] in self.repeated:
            softmax.weights[member] = member
            return isinstance(member.op, Multiply) or member.operands[0] is weight
        elif self._is_total(member, others, scale):
            softmax.totals.append(member)
        else:
            return False
        return True

    def _is_total(self, member: Instruction, others: Sequence[Instruction], scale: Instruction | None) -> bool:
        if member in self.softmax.key_dimensions:
            return False
        if isinstance(member.op, Dot):
            return others[0] not in self.inside
        same = member.shape.element_count == self.softmax.maximum.shape.element_count
        wide = member.shape.element_type in WIDE and is_zero(member.operands[-1])
        return _reduces_by(member, Add) and wide and same and scale is None
