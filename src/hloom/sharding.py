"""Sharding annotations (OpSharding): kept through text and proto; hloom's interpreter does not act on them."""

from __future__ import annotations

import enum
import math
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


def simplest_iota(sizes: Ints, permutation: Ints) -> tuple[Ints, Ints]:
    """The one form for an order of ids: no sizes of 1, and those that stay neighbours are one; () for no permutation.

    `sizes` cut 0, 1, .. in row-major order, `permutation` transposes the parts; () leaves them as they are.
    """
    kept = [d for d, size in enumerate(sizes) if size != 1]
    runs: list[list[int]] = []
    for d in (kept.index(d) for d in permutation or range(len(sizes)) if sizes[d] != 1):
        if runs and runs[-1][-1] + 1 == d:
            runs[-1].append(d)
        else:
            runs.append([d])
    order = sorted(runs)
    simplest = tuple(math.prod(sizes[kept[d]] for d in run) for run in order) or (1,)
    return simplest, tuple(order.index(run) for run in runs) if len(runs) > 1 else ()


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
