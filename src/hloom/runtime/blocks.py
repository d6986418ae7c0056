"""Arrays cut into the blocks that partitions hold, and put together from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.errors import ArgumentError
from hloom.sharding import Sharding, ShardingType
from hloom.values import Array

_WHOLE = (ShardingType.REPLICATED, ShardingType.MAXIMAL, ShardingType.UNREDUCED)


def shard(array: Array, sharding: Sharding, count: int) -> list[Array]:
    """The block of each of `count` partitions. What reaches over the end is zero; of partial sums the first is the
    array.

    ArgumentError where the sharding has no such blocks.
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
    """The array of a shape that the blocks of all partitions make up; partial sums are added."""
    parts = [
        join_partial_sum(blocks, sharding, shape, k) for k in sorted({*partial_sum_indices(sharding, len(blocks))})
    ]
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0, dtype=parts[0].dtype)


def join_partial_sum(blocks: Sequence[Array], sharding: Sharding, shape: Sequence[int], index: int) -> Array:
    """The array of a shape that those blocks make up which hold one partial sum; where there are no others, all."""
    whole = np.zeros(shape, blocks[0].dtype)
    partial_sums = partial_sum_indices(sharding, len(blocks))
    for block, where, held_index in zip(blocks, block_slices(sharding, shape, len(blocks)), partial_sums, strict=True):
        if held_index == index:
            whole[where] = block[tuple(slice(0, n) for n in whole[where].shape)]
    return whole


def block_slices(sharding: Sharding, shape: Sequence[int], count: int) -> list[tuple[slice, ...]]:
    """Where the block of each partition lies in an array of a shape; blocks at the end may reach over it."""
    if sharding.type in _WHOLE:
        return [tuple(slice(0, n) for n in shape)] * count
    tiles = sharding.tile_assignment_dimensions
    if len(tiles) < len(shape) or sharding.named:
        raise ArgumentError(f"{sharding} does not say how an array of shape {list(shape)} is cut")
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
    """Which partial sum of its block each partition holds."""
    if sharding.type is ShardingType.UNREDUCED:
        return [*range(count)]
    if ShardingType.UNREDUCED not in sharding.last_tile_dims:
        return [0] * count
    axis = sharding.last_tile_dims.index(ShardingType.UNREDUCED) - len(sharding.last_tile_dims)
    return [tile[axis] for tile in _tiles(sharding, count)]
