"""Sharding annotations, XLA's OpSharding: kept in text and protos, used by SPMD partitioning, ignored by the
interpreter.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from hloom.shape import Ints


class ShardingType(enum.Enum):
    """The types of OpSharding: member names are those of the proto, values the words of HLO text."""

    REPLICATED = "replicated"
    MAXIMAL = "maximal"
    TUPLE = "tuple"
    OTHER = "devices"
    MANUAL = "manual"
    UNKNOWN = "unknown"
    UNREDUCED = "unreduced"


def simplest_iota(sizes: Ints, permutation: Ints) -> tuple[Ints, Ints]:
    """Returns the canonical iota form of an order of device ids: sizes, and a permutation, () if it is the identity.

    `sizes` reshapes 0, 1, .. in row-major order, `permutation` transposes the dimensions; () leaves them in order.
    Dimensions of size 1 are removed, and dimensions that stay adjacent are merged.
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
    """The sharding of an array, or a tuple of shardings.

    OTHER tiles an array: `tile_assignment_dimensions` holds the number of tiles along each dimension; the devices are
    listed in `tile_assignment_devices` or, in iota form, in `iota_reshape_dims` with `iota_transpose_perm`.
    `last_tile_dims` are the types of the tile dimensions beyond those of the array (replicated, manual ..). `extra`
    keeps the remaining words of the text (`shard_as 3`, metadata) verbatim. `named` is the text of a sharding over
    named mesh axes, `mesh[..], [..]`.
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
