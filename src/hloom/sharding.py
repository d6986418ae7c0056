"""Sharding annotations (OpSharding): kept through text and proto; hloom's interpreter does not act on them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hloom.shape import Ints


class ShardingType(enum.Enum):
    """Proto names of OpSharding.Type; the values are the words of HLO text."""

    REPLICATED = "replicated"
    MAXIMAL = "maximal"
    TUPLE = "tuple"
    OTHER = "devices"
    MANUAL = "manual"
    UNKNOWN = "unknown"
    UNREDUCED = "unreduced"


@dataclass(frozen=True, slots=True)
class Sharding:
    """One sharding, or a tuple of them.

    OTHER tiles an array: `tile_assignment_dimensions` counts the tiles of each dimension, the devices are listed in
    `tile_assignment_devices` or, in iota form, `iota_reshape_dims` with `iota_transpose_perm`. `last_tile_dims` types
    the tile dimensions beyond the array's (replicated, manual ..). `extra` keeps further words of the text
    (`shard_as 3`, metadata) as they are. `named` is the text of a sharding over named mesh axes, `mesh[..], [..]`.
    """

    type: ShardingType
    tile_assignment_dimensions: Ints = ()
    tile_assignment_devices: Ints = ()
    iota_reshape_dims: Ints = ()
    iota_transpose_perm: Ints = ()
    replicate_on_last_tile_dim: bool = False
    last_tile_dims: tuple[ShardingType, ...] = ()
    tuple_shardings: tuple[Sharding, ...] = ()
    extra: str = ""
    named: str = ""
