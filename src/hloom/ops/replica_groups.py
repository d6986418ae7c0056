"""The groups of replicas and partitions among which collectives communicate (COLL-1 to COLL-7).

Every device runs the program: device d is replica d // P and partition d % P of P partitions. The mode determines the
groups (COLL-7): without a channel, ids are replica ids, within each partition; with a channel, they are partition ids
within each replica (all-to-all, permute, broadcast), or replica ids with all their partitions (all-reduce and others),
or with `use_global_device_ids` device ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from hloom.ops.attributes import AnyReplicaGroups, ReplicaGroups
from hloom.ops.context import Context
from hloom.ops.kinds import BOOL, INT, REPLICA_GROUPS
from hloom.ops.operation import Operation, attribute
from hloom.ops.traits import Communication
from hloom.shape import Shape
from hloom.values import Value

NO_GROUPS = ReplicaGroups()
CHANNEL = "operations of one kind and channel communicate (COLL-5)"


def device_groups(
    groups: Sequence[Sequence[int]], channel_id: int | None, use_global: bool | None, replicas: int, partitions: int
) -> list[list[int]]:
    """Returns the groups as device ids (COLL-2, COLL-7).

    `use_global` is None for operations without the attribute `use_global_device_ids`.
    """
    if channel_id is None:
        ids = groups or [range(replicas)]
        return [[r * partitions + p for r in group] for p in range(partitions) for group in ids]
    if use_global:
        return [list(group) for group in groups or [range(replicas * partitions)]]
    if use_global is None:
        ids = groups or [range(partitions)]
        return [[r * partitions + p for p in group] for r in range(replicas) for group in ids]
    ids = groups or [range(replicas)]
    return [[r * partitions + p for r in group for p in range(partitions)] for group in ids]


class Collective(Communication, Operation):
    """Base class of collectives: groups of replicas and a channel."""

    has_side_effect = True
    operands: ClassVar[dict[str, str]] = {"*operands": "arrays, of equal shapes on all members of a group"}
    channel_id: int | None = attribute(INT, default=None, doc=CHANNEL)
    replica_groups: AnyReplicaGroups = attribute(
        REPLICA_GROUPS,
        default=NO_GROUPS,
        doc="ids of the members of each group, in order; empty: one group of all (COLL-2)",
    )
    constrain_layout: bool = attribute(
        BOOL,
        default=False,
        doc="whether layouts are those of the caller, in modules of several programs; no effect here",
    )
    shard_clause: ClassVar[str] = "COLL-3"

    def shard_count(self, result: Shape, operands: Sequence[Shape]) -> int | None:
        """Returns the size of a group that the shapes imply; None if they imply none."""
        return None

    @property
    def global_ids(self) -> bool | None:
        """The attribute `use_global_device_ids`; None for operations without it."""
        return getattr(self, "use_global_device_ids", None)

    def check_run(self, replicas: int, partitions: int, result: Shape, operands: Sequence[Shape]) -> None:
        """Checks that the groups hold each id exactly once (COLL-3), and have the size that the shapes imply."""
        groups = self.replica_groups.groups
        whole = self.device_groups(replicas, partitions)
        shards = self.shard_count(result, operands)
        if shards is not None and {len(group) for group in whole} != {shards}:
            sizes = sorted({len(group) for group in whole})
            self.reject(self.shard_clause, f"the shapes say {shards} members to a group, but the groups have {sizes}")
        if not groups:
            return
        if self.channel_id is not None and self.global_ids:
            count = replicas * partitions
        elif self.channel_id is not None and self.global_ids is None:
            count = partitions
        else:
            count = replicas
        ids = sorted(i for group in groups for i in group)
        if ids != list(range(count)):
            self.reject("COLL-3", f"replica_groups must hold each of 0 .. {count - 1} once, got {listed(groups)}")

    def device_groups(self, replicas: int, partitions: int) -> list[list[int]]:
        """Returns the groups of devices that communicate."""
        return device_groups(self.replica_groups.groups, self.channel_id, self.global_ids, replicas, partitions)

    def group(self, ctx: Context) -> list[int]:
        """Returns the devices of this device's group, in group order."""
        me = ctx.replica_id * ctx.partition_count + ctx.partition_id
        for group in self.device_groups(ctx.replica_count, ctx.partition_count):
            if me in group:
                return group
        return [me]

    def exchange(self, ctx: Context, value: Value, combine: Callable[[list[Value]], Value] = tuple) -> Value:
        """Returns `combine` of the values of this device's group, computed once; by default the tuple of the values."""
        return ctx.exchange(self.group(ctx), value, self.channel_id, combine)

    def position(self, ctx: Context) -> int:
        """Returns the position of this device in its group."""
        return self.group(ctx).index(ctx.replica_id * ctx.partition_count + ctx.partition_id)

    def group_sizes(self) -> set[int]:
        """Returns the sizes of the groups that the attribute lists."""
        return {len(group) for group in self.replica_groups.groups}

    def may_have(self, members: int) -> bool:
        """Whether each group can have `members` members; groups of one are not checked before a run, as in XLA.

        With a channel and without global ids a replica in a group stands for all of its partitions, whose number is not
        known from the instruction.
        """
        sizes = self.group_sizes() - {1}
        if self.channel_id is not None and self.global_ids is False:
            return all(size and members % size == 0 for size in sizes)
        return not sizes - {members}


def listed(groups: Sequence[Sequence[int]]) -> str:
    """The text of groups, as in HLO."""
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"
