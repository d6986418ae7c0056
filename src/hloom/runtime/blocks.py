"""Shards arrays into the blocks that partitions hold, and joins blocks to arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.errors import ArgumentError
from hloom.sharding import Sharding, ShardingType
from hloom.values import Array

_WHOLE = (ShardingType.REPLICATED, ShardingType.MAXIMAL, ShardingType.UNREDUCED)


def shard(array: Array, sharding: Sharding, count: int) -> list[Array]:
    """Returns the block of each of `count` partitions.

    Blocks that reach over the end of the array are padded with zeros. Of partial sums the first one is the array, the
    others are zeros. ArgumentError if the sharding is not one of blocks.
    """
    found = []
    for where, partial_sum in zip(
        block_slices(sharding, array.shape, count), partial_sum_indices(sharding, count), strict=True
    ):
        part = array[where]
        block = np.zeros([s.stop - s.start for s in where], array.dtype)
        if partial_sum == 0:
            block[tuple(slice(0, n) for n in part.shape)] = part
        found.append(block)
    return found


def join(blocks: Sequence[Array], sharding: Sharding, shape: Sequence[int]) -> Array:
    """Joins the blocks of all partitions to an array of the given shape; partial sums are added.

    An array that every partition has may be smaller: `shape` bounds its dynamic dimensions.
    """
    if sharding.type in (ShardingType.REPLICATED, ShardingType.MAXIMAL):
        return np.array(blocks[0])
    parts = [
        join_partial_sum(blocks, sharding, shape, k) for k in sorted({*partial_sum_indices(sharding, len(blocks))})
    ]
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0, dtype=parts[0].dtype)


def join_partial_sum(blocks: Sequence[Array], sharding: Sharding, shape: Sequence[int], index: int) -> Array:
    """Joins the blocks that hold the partial sum `index`; without partial sums that are all blocks."""
    whole = np.zeros(shape, blocks[0].dtype)
    partial_sums = partial_sum_indices(sharding, len(blocks))
    for block, where, held_index in zip(blocks, block_slices(sharding, shape, len(blocks)), partial_sums, strict=True):
        if held_index == index:
            whole[where] = block[tuple(slice(0, n) for n in whole[where].shape)]
    return whole


def block_slices(sharding: Sharding, shape: Sequence[int], count: int) -> list[tuple[slice, ...]]:
    """The slices of an array that each partition's block covers; the last ones may reach over its end."""
    if sharding.type in _WHOLE:
        return [tuple(slice(0, n) for n in shape)] * count
    tiles = sharding.tile_assignment_dimensions
    if len(tiles) < len(shape) or sharding.named:
        raise ArgumentError(f"{sharding} does not shard an array of shape {list(shape)}")
    sizes = [-(-n // t) for n, t in zip(shape, tiles, strict=False)]
    return [
        tuple(slice(k * size, (k + 1) * size) for k, size in zip(tile, sizes, strict=False))
        for tile in _tiles(sharding, count)
    ]


def _tiles(sharding: Sharding, count: int) -> list[tuple[int, ...]]:
    """The index of each partition in the tile assignment."""
    devices = np.array(sharding.tile_assignment_devices or range(count))
    if sharding.iota_reshape_dims:
        devices = np.arange(count).reshape(sharding.iota_reshape_dims)
        devices = devices.transpose(sharding.iota_transpose_perm or range(devices.ndim))
    tiles = np.ndindex(*sharding.tile_assignment_dimensions)
    found = {int(device): tile for tile, device in zip(tiles, devices.flat, strict=True)}
    return [found[partition] for partition in range(count)]


def partial_sum_indices(sharding: Sharding, count: int) -> list[int]:
    """The index of the partial sum that each partition holds; 0 for all if the sharding has none."""
    if sharding.type is ShardingType.UNREDUCED:
        return [*range(count)]
    if ShardingType.UNREDUCED not in sharding.last_tile_dims:
        return [0] * count
    axis = sharding.last_tile_dims.index(ShardingType.UNREDUCED) - len(sharding.last_tile_dims)
    return [tile[axis] for tile in _tiles(sharding, count)]
