"""Which dimension of a region is cut into blocks, and where it lies in each of the region's values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hloom.ir import Instruction
from hloom.ops.dot import Dot
from hloom.ops.reduce import Reduce
from hloom.ops.structure import Constant
from hloom.passes.blocking.dimensions import Place, Uncuttable, contracted_place, follow, operand_place, result_place
from hloom.passes.blocking.regions import Region


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """How large a block may be, in bytes of the largest product, and how few rows it may have."""

    bytes: int
    min_rows: int


@dataclass(frozen=True, eq=False)
class Cut:
    """A dimension that is cut into blocks."""

    places: Mapping[Instruction, Place]
    """Where it lies in the members that have it."""
    sums: Sequence[Instruction]
    """The outputs that are added up over the blocks."""
    extent: int
    size: int
    """Steps of a block."""
    is_batch: bool

    def needed(self, member: Instruction, position: int) -> Place | None:
        """The part that a member's block needs of an operand that is no member; None: all of it."""
        if member in self.places:
            return operand_place(member, position, self.places[member])
        for other, operand in enumerate(member.operands):
            place = self.places.get(operand)
            if other != position and place is not None and result_place(member, other, place) is None:
                contracted = contracted_place(member, other, place)
                return contracted[1] if contracted is not None and contracted[0] == position else None
        return None


def choose_cut(region: Region, sizes: BlockSizes) -> Cut | None:
    """The dimension to cut next: a batch first, then one whose blocks need not be added up; None if none can be."""
    largest = max(region.products, key=lambda product: product.shape.byte_size)
    pieces = math.ceil(largest.shape.byte_size / sizes.bytes)
    assert isinstance(largest.op, Dot)
    batch = len(largest.op.lhs_batch_dims)
    cuts = []
    for dimension in range(largest.shape.rank) if pieces > 1 else ():
        least = 1 if dimension < batch else sizes.min_rows
        wanted = max(least, largest.shape.dimensions[dimension] // pieces)
        cut = _cut(region, largest, dimension, wanted, dimension < batch)
        if cut is not None:
            cuts.append(cut)
    return min(cuts, key=lambda cut: (not cut.is_batch, len(cut.sums)), default=None)


def _cut(region: Region, product: Instruction, dimension: int, wanted: int, is_batch: bool) -> Cut | None:
    extent = product.shape.dimensions[dimension]
    size = block_size(extent, wanted, is_batch)
    if size >= extent:
        return None
    try:
        places = follow(product, dimension, region.members)
    except Uncuttable:
        return None
    sums = [output for output in region.outputs if output not in places]
    cut = Cut(places, sums, extent, size, is_batch)
    return cut if _is_valid(region, cut) else None


def block_size(extent: int, wanted: int, is_batch: bool = False) -> int:
    """Near `wanted`: a divisor of the extent, unless the next one is less than half of it."""
    divisor = max(d for d in range(1, min(wanted, extent) + 1) if extent % d == 0)
    return divisor if is_batch or 2 * divisor > wanted else wanted


def _is_valid(region: Region, cut: Cut) -> bool:
    """Whether each member is made of its own block alone, but for outputs that are sums over the blocks."""
    return all(
        member in cut.places
        or (member in cut.sums and _adds_up(member) and any(operand in cut.places for operand in member.operands))
        or not any(operand in cut.places for operand in member.operands)
        for member in region.members
    ) and all(any(operand in cut.places for operand in output.operands) for output in cut.sums)


def _adds_up(member: Instruction) -> bool:
    """Whether the value is the sum of what its blocks give: those of narrow reductions would be rounded."""
    op, element_type = member.op, member.shape.element_type
    if isinstance(op, Reduce):
        is_wide = element_type.bits >= 32 or not element_type.is_float
        return is_wide and op.computation.root.opcode == "add" and is_zero(member.operands[1])
    return isinstance(op, Dot)


def is_zero(instruction: Instruction) -> bool:
    """Whether it is a constant of zeros."""
    return isinstance(instruction.op, Constant) and not instruction.op.literal.value.any()
