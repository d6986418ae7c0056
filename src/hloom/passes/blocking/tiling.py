"""Chooses the dimension along which a region is split into blocks, and finds it in each of the region's values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hloom.analysis.monoids import monoid_of
from hloom.ir import Instruction
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add
from hloom.ops.reduce import Reduce
from hloom.ops.structure import Constant
from hloom.passes.blocking.dimensions import (
    TiledDimension,
    Untileable,
    contracted_dimension,
    follow,
    operand_dimension,
    result_dimension,
)
from hloom.passes.blocking.regions import Region
from hloom.system.records import record


@record(slots=True)
class BlockSizes:
    """Limits of a block: its size in bytes of the largest product, and its minimum number of rows."""

    bytes: int
    min_rows: int


@record(eq=False)
class Tiling:
    """A dimension along which a region is split into blocks."""

    dimensions: Mapping[Instruction, TiledDimension]
    """The dimension of each member that has it."""
    sums: Sequence[Instruction]
    """The outputs that are added up over the blocks."""
    extent: int
    size: int
    """The number of steps of a block."""
    is_batch: bool

    def needed(self, member: Instruction, position: int) -> TiledDimension | None:
        """The tiled dimension of an operand that is not a member, as a member's block needs it; None for all of it."""
        if member in self.dimensions:
            return operand_dimension(member, position, self.dimensions[member])
        for other, operand in enumerate(member.operands):
            tiled = self.dimensions.get(operand)
            if other != position and tiled is not None and result_dimension(member, other, tiled) is None:
                contracted = contracted_dimension(member, other, tiled)
                return contracted[1] if contracted is not None and contracted[0] == position else None
        return None


def choose_tiling(region: Region, sizes: BlockSizes) -> Tiling | None:
    """Returns the next dimension to tile; None if there is none.

    Batch dimensions come first, then dimensions whose blocks need not be added up.
    """
    largest = max(region.products, key=lambda product: product.shape.byte_size)
    pieces = math.ceil(largest.shape.byte_size / sizes.bytes)
    assert isinstance(largest.op, Dot)
    batch = len(largest.op.lhs_batch_dims)
    tilings = []
    for dimension in range(largest.shape.rank) if pieces > 1 else ():
        min_size = 1 if dimension < batch else sizes.min_rows
        target_size = max(min_size, largest.shape.dimensions[dimension] // pieces)
        tiling = _tiling(region, largest, dimension, target_size, dimension < batch)
        if tiling is not None:
            tilings.append(tiling)
    return min(tilings, key=lambda tiling: (not tiling.is_batch, len(tiling.sums)), default=None)


def _tiling(region: Region, product: Instruction, dimension: int, target_size: int, is_batch: bool) -> Tiling | None:
    """The tiling along a dimension of a product; None if it has a single block or is not valid."""
    extent = product.shape.dimensions[dimension]
    size = block_size(extent, target_size, is_batch)
    if size >= extent:
        return None
    try:
        dimensions = follow(product, dimension, region.members)
    except Untileable:
        return None
    sums = [output for output in region.outputs if output not in dimensions]
    tiling = Tiling(dimensions, sums, extent, size, is_batch)
    return tiling if _is_valid(region, tiling) else None


def block_size(extent: int, target_size: int, is_batch: bool = False) -> int:
    """The largest divisor of the extent up to `target_size`, unless it is less than half of that: then `target_size`.

    The size of a batch block is always a divisor.
    """
    divisor = max(d for d in range(1, min(target_size, extent) + 1) if extent % d == 0)
    return divisor if is_batch or 2 * divisor > target_size else target_size


def _is_valid(region: Region, tiling: Tiling) -> bool:
    """Whether the block of each member depends on no other block, except for outputs that are sums over the blocks."""
    return all(
        member in tiling.dimensions
        or (
            member in tiling.sums
            and _adds_up(member)
            and any(operand in tiling.dimensions for operand in member.operands)
        )
        or not any(operand in tiling.dimensions for operand in member.operands)
        for member in region.members
    ) and all(any(operand in tiling.dimensions for operand in output.operands) for output in tiling.sums)


def _adds_up(member: Instruction) -> bool:
    """Whether a value is the sum of the values of its blocks; in narrow floating-point types each sum would lose
    precision.
    """
    op, element_type = member.op, member.shape.element_type
    if isinstance(op, Reduce):
        is_wide = element_type.bits >= 32 or not element_type.is_float
        return is_wide and monoid_of(op.computation) is Add and is_zero(member.operands[1])
    return isinstance(op, Dot)


def is_zero(instruction: Instruction) -> bool:
    """Whether an instruction is a constant of zeros."""
    return isinstance(instruction.op, Constant) and not instruction.op.literal.value.any()
