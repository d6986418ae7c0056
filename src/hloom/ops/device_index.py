"""Indices of the executing device: replica-id and partition-id (spec 99)."""

from __future__ import annotations

import numpy as np

from hloom.ops.context import Context
from hloom.ops.operation import Operation
from hloom.ops.traits import DeviceIndex
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import Array


class ReplicaId(DeviceIndex, Operation, opcode="replica-id", builder="replica_id"):
    """Returns the id of the executing replica, in [0, N), as u32[] (REPLICAID-1)."""

    see_also = ("partition-id",)

    def infer(self) -> Shape:
        return scalar(PrimitiveType.U32)

    def evaluate(self, ctx: Context) -> Array:
        return np.asarray(ctx.replica_id, np.uint32)


class PartitionId(DeviceIndex, Operation, opcode="partition-id", builder="partition_id"):
    """Returns the id of the executing partition as u32[] (a later addition to XLA).

    A program runs on replicas, each of which may be split into partitions: this is the position inside the replica.
    Partitioned programs select their block of an array by it.
    """

    def infer(self) -> Shape:
        return scalar(PrimitiveType.U32)

    def evaluate(self, ctx: Context) -> Array:
        return np.asarray(ctx.partition_id, np.uint32)
