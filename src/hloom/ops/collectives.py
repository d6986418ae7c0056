"""Collective communication among replicas and partitions (spec 2, 3, 4, 16, 97)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from hloom.errors import RunError
from hloom.ops.context import Computation, Context
from hloom.ops.kinds import BOOL, COMPUTATION, DIMENSION, INT, PAIRS
from hloom.ops.operation import Operation, attribute
from hloom.ops.replica_groups import CHANNEL, Collective, device_groups, listed
from hloom.ops.rules import (
    check_array,
    check_computation,
    check_dimension,
    reduction_signature,
    result_shape,
    result_shapes,
)
from hloom.ops.traits import AppliesScalar, Communication
from hloom.shape import Shape
from hloom.values import Array, Value

GLOBAL_IDS = "whether groups hold ids of devices instead of replicas (COLL-7)"
COMBINER = "combiner of two scalars"


def _pairs(op: Operation, clause: str, operands: Sequence[Shape], result: Shape) -> Iterable[tuple[Shape, Shape]]:
    """Checks that there is a result for each operand; returns the pairs."""
    results = result_shapes(result)
    if not operands or len(results) != len(operands) or result.is_tuple != (len(operands) > 1):
        op.reject(clause, f"{len(operands)} operands give as many results, got {result}")
    return zip(operands, results, strict=True)


def _scaled(op: Operation, clause: str, operand: Shape, dimension: int, result: Shape) -> int:
    """The factor by which a dimension of `result` exceeds that of `operand`; checks that the others are equal."""
    check_array(op, clause, operand)
    check_dimension(op, clause, dimension, operand.rank)
    if (
        not result.is_array
        or result.element_type is not operand.element_type
        or result.rank != operand.rank
        or any(
            a != b for d, (a, b) in enumerate(zip(operand.dimensions, result.dimensions, strict=True)) if d != dimension
        )
    ):
        op.reject(clause, f"the result of {operand} may differ in dimension {dimension} alone, got {result}")
    small, large = operand.dimensions[dimension], result.dimensions[dimension]
    if small == 0 and large == 0:
        return 0
    if small == 0 or large % small:
        op.reject(clause, f"dimension {dimension} of the result must be a multiple of {small}, got {large}")
    return large // small


class AllGather(Collective, opcode="all-gather"):
    """Concatenates the operands of each group's members along `all_gather_dim`, in group order (ALLGATHER-1).

    The size of the result's dimension is that of the operand multiplied by the size of a group.
    """

    see_also: ClassVar[tuple[str, ...]] = ("reduce-scatter", "all-to-all", "all-gather-start")
    shard_clause = "ALLGATHER-3"
    all_gather_dim: int = attribute(
        DIMENSION, text="dimensions", proto="dimensions", doc="dimension along which the operands are joined"
    )
    use_global_device_ids: bool = attribute(BOOL, default=False, doc=GLOBAL_IDS)

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        for operand, gathered in _pairs(self, "ALLGATHER-6", operands, result):
            factor = _scaled(self, "ALLGATHER-5", operand, self.all_gather_dim, gathered)
            if factor and not self.may_have(factor):
                groups = listed(self.replica_groups.groups)
                self.reject("ALLGATHER-3", f"shard_count {factor} must be the size of each group, got {groups}")

    def shard_count(self, result: Shape, operands: Sequence[Shape]) -> int | None:
        small = operands[0].dimensions[self.all_gather_dim]
        large = result_shapes(self._gathered(result))[0].dimensions[self.all_gather_dim]
        return large // small if small else None

    def _gathered(self, result: Shape) -> Shape:
        return result

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        gathered = self._gather(ctx, operands)
        return gathered if ctx.shape.is_tuple else gathered[0]

    def _gather(self, ctx: Context, operands: tuple[Array, ...]) -> tuple[Array, ...]:
        def combine(members: list[tuple[Array, ...]]) -> tuple[Array, ...]:
            return tuple(np.concatenate(arrays, axis=self.all_gather_dim) for arrays in zip(*members, strict=True))

        return self.exchange(ctx, operands, combine)


class AllReduce(AppliesScalar, Collective, opcode="all-reduce"):
    """Reduces the operands of each group's members element by element by `computation` (ALLREDUCE-1).

    Values are combined in group order, the lower position on the left (ALLREDUCE-5). The result has the operands'
    shapes.
    """

    see_also: ClassVar[tuple[str, ...]] = ("reduce-scatter", "all-reduce-start")
    use_global_device_ids: bool = attribute(BOOL, default=False, doc=GLOBAL_IDS)
    computation: Computation = attribute(COMPUTATION, text="to_apply", proto="called_computation_ids", doc=COMBINER)

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        if not operands:
            self.reject("ALLREDUCE-2", "an empty tuple cannot be reduced")
        check_array(self, "ALLREDUCE-2", *operands)
        for operand in operands:
            _check_reducer(self, "ALLREDUCE-1", self.computation, operand)
        return result_shape([operand.without_layout() for operand in operands])

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        reduced = self.exchange(ctx, operands, partial(reduce_members, ctx, self.computation))
        return reduced if ctx.shape.is_tuple else reduced[0]


def _check_reducer(op: Operation, clause: str, computation: Computation, operand: Shape) -> None:
    parameters, result = reduction_signature([operand.element_type])
    check_computation(op, clause, computation, parameters, result)


def reduce_members(ctx: Context, computation: Computation, members: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Reduces the arrays of the members from the left."""
    reduced = members[0]
    for arrays in members[1:]:
        reduced = tuple(ctx.map(computation, a, b) for a, b in zip(reduced, arrays, strict=True))
    return reduced


class ReduceScatter(AppliesScalar, Collective, opcode="reduce-scatter"):
    """Reduces as all-reduce, and splits the result along `scatter_dimension`; member i gets block i (REDUCESCATTER-1).

    The size of the dimension must be a multiple of the size of a group.
    """

    shard_clause = "REDUCESCATTER-4"
    use_global_device_ids: bool = attribute(BOOL, default=False, doc=GLOBAL_IDS)
    scatter_dimension: int = attribute(
        DIMENSION, text="dimensions", proto="dimensions", doc="dimension along which the reduced array is split"
    )
    computation: Computation = attribute(COMPUTATION, text="to_apply", proto="called_computation_ids", doc=COMBINER)

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        for operand, block in _pairs(self, "REDUCESCATTER-3", operands, result):
            factor = _scaled(self, "REDUCESCATTER-4", block, self.scatter_dimension, operand)
            if factor and not self.may_have(factor):
                groups = listed(self.replica_groups.groups)
                self.reject("REDUCESCATTER-4", f"shard_count {factor} must be the size of each group, got {groups}")
            _check_reducer(self, "REDUCESCATTER-1", self.computation, operand)

    def shard_count(self, result: Shape, operands: Sequence[Shape]) -> int | None:
        small = result_shapes(result)[0].dimensions[self.scatter_dimension]
        return operands[0].dimensions[self.scatter_dimension] // small if small else None

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        members = len(self.group(ctx))
        position = self.position(ctx)
        blocks = tuple(
            np.split(array, members, axis=self.scatter_dimension)[position]
            for array in self.exchange(ctx, operands, partial(reduce_members, ctx, self.computation))
        )
        return blocks if ctx.shape.is_tuple else blocks[0]


class AllToAll(Collective, opcode="all-to-all"):
    """Sends block i of the operand to member i, and concatenates the blocks received (ALLTOALL-1, -2).

    With `split_dimension` the single operand is split and concatenated along it; its size must be a multiple of the
    size of a group. Without, there is an operand for each member, and the result is the tuple of the blocks received
    (ALLTOALL-7).
    """

    see_also = ("ragged-all-to-all",)
    shard_clause = "ALLTOALL-4"
    split_dimension: int | None = attribute(
        DIMENSION,
        default=None,
        text="dimensions",
        proto="dimensions",
        doc="dimension that is split and joined again; none in the form with an operand for each member",
    )

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        check_array(self, "ALLTOALL-5", *operands)
        sizes = self.group_sizes()
        if self.split_dimension is None:
            if any(not operand.compatible(operands[0]) for operand in operands):
                self.reject("ALLTOALL-7", f"operands have one shape, got {', '.join(map(str, operands))}")
            if not operands or sizes - {len(operands)}:
                self.reject("ALLTOALL-7", f"needs one operand for each member of a group, got {len(operands)}")
            return Shape.tuple_of(operand.without_layout() for operand in operands)
        if len(operands) != 1:
            self.reject("ALLTOALL-5", f"with dimensions it takes one operand, got {len(operands)}")
        (operand,) = operands
        check_dimension(self, "ALLTOALL-5", self.split_dimension, operand.rank)
        for size in sizes:
            if not size or operand.dimensions[self.split_dimension] % size:
                self.reject("ALLTOALL-5", f"dimension {self.split_dimension} of {operand} is not divisible by {size}")
        return operand.without_layout()

    def shard_count(self, result: Shape, operands: Sequence[Shape]) -> int | None:
        return len(operands) if self.split_dimension is None else None

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        members = self.exchange(ctx, operands)
        position = self.position(ctx)
        if self.split_dimension is None:
            return tuple(arrays[position] for arrays in members)
        axis = self.split_dimension
        if operands[0].shape[axis] % len(members):
            self.reject("ALLTOALL-5", f"size {operands[0].shape[axis]} is not divisible by {len(members)} members")
        return np.concatenate([np.split(array, len(members), axis)[position] for (array,) in members], axis)


class CollectivePermute(Communication, Operation, opcode="collective-permute"):
    """Sends the operand of each source to its target; devices that are not a target get zeros (COLLECTIVEPERMUTE-1,
    -2).

    A device occurs at most once as a source, and at most once as a target.
    """

    see_also: ClassVar[tuple[str, ...]] = ("collective-broadcast", "collective-permute-start")
    has_side_effect = True
    operands = {"*operands": "arrays to send"}
    channel_id: int | None = attribute(INT, default=None, doc=CHANNEL)
    source_target_pairs: tuple[tuple[int, int], ...] = attribute(PAIRS, doc="sender and receiver of each transfer")

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        if is_in_place(operands):
            if operands[0].is_tuple != operands[1].is_tuple or len(operands[0].elements) != len(operands[1].elements):
                self.reject("COLLECTIVEPERMUTE-1", f"input and output do not match: {operands[0]}, {operands[1]}")
            self._check_pairs(_offsets_count(operands[0], operands[2]))
            return operands[1]
        check_array(self, "COLLECTIVEPERMUTE-1", *operands)
        if not operands:
            self.reject("COLLECTIVEPERMUTE-1", "needs an operand")
        self._check_pairs(1)
        return result_shape([operand.without_layout() for operand in operands])

    def _check_pairs(self, most: int) -> None:
        for side, ids in (("source", 0), ("target", 1)):
            seen = [pair[ids] for pair in self.source_target_pairs]
            if any(seen.count(i) > most for i in set(seen)):
                times = "once" if most == 1 else f"{most} times"
                self.reject("COLLECTIVEPERMUTE-3", f"a {side} may occur {times}, got {list(self.source_target_pairs)}")
            if any(i < 0 for i in seen):
                self.reject("COLLECTIVEPERMUTE-3", f"ids must be >= 0, got {list(self.source_target_pairs)}")

    def check_run(self, replicas: int, partitions: int, result: Shape, operands: Sequence[Shape]) -> None:
        count = replicas if self.channel_id is None else partitions
        for pair in self.source_target_pairs:
            if max(pair) >= count:
                self.reject("COLLECTIVEPERMUTE-3", f"ids must be in [0, {count}), got {pair}")

    def device_groups(self, replicas: int, partitions: int) -> list[list[int]]:
        """Returns the groups of devices that communicate: the replicas of a partition, or with a channel the partitions
        of one.
        """
        return device_groups((), self.channel_id, None, replicas, partitions)

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        received = self._permute(ctx, operands)
        return received if len(operands) > 1 else received[0]

    def _permute(self, ctx: Context, operands: tuple[Array, ...]) -> tuple[Array, ...]:
        if is_in_place(ctx.operand_shapes):
            raise RunError("collective-permute of slices in place runs on TPUs alone, neither here nor on XLA's CPU")
        me = ctx.replica_id if self.channel_id is None else ctx.partition_id
        groups = self.device_groups(ctx.replica_count, ctx.partition_count)
        device = ctx.replica_id * ctx.partition_count + ctx.partition_id
        (devices,) = [group for group in groups if device in group]
        members = ctx.exchange(devices, operands, self.channel_id, tuple)
        for source, target in self.source_target_pairs:
            if target == me:
                received: tuple[Array, ...] = members[source]
                return received
        return tuple(np.zeros_like(operand) for operand in operands)


def is_in_place(operands: Sequence[Shape]) -> bool:
    """Whether a collective-permute has XLA's form for TPUs: (input, output, input offsets, output offsets)."""
    return len(operands) == 4 and all(operand.is_tuple for operand in operands[2:])


def _offsets_count(buffer: Shape, offsets: Shape) -> int:
    """The number of slices that each device may send: the number of offsets for a buffer."""
    return len((offsets.elements[0] if buffer.is_tuple and offsets.elements else offsets).elements)


class CollectiveBroadcast(Collective, opcode="collective-broadcast", builder="collective_broadcast"):
    """Sends the operand of the first member of each group to all members (a later addition to XLA).

    Devices in no group get zeros: groups need not name all devices, but name each at most once (COLL-3). It is an
    all-reduce of an array that is zero everywhere but on the first member, without the sums.
    """

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        check_array(self, "COLL-4", *operands)
        if not operands:
            self.reject("COLL-4", "needs an operand")
        return result_shape([operand.without_layout() for operand in operands])

    def check_run(self, replicas: int, partitions: int, result: Shape, operands: Sequence[Shape]) -> None:
        count = replicas if self.channel_id is None else partitions
        ids = [i for group in self.replica_groups.groups for i in group]
        if len(set(ids)) != len(ids) or any(not 0 <= i < count for i in ids):
            self.reject("COLL-3", f"ids must be distinct and in [0, {count}), got {listed(self.replica_groups.groups)}")

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        group = self.group(ctx)
        if self.replica_groups.groups and len(group) == 1:
            named = {i for g in self.replica_groups.groups for i in g}
            me = ctx.replica_id if self.channel_id is None else ctx.partition_id
            if me not in named:
                operands = tuple(np.zeros_like(operand) for operand in operands)
        first = ctx.exchange(group, operands, self.channel_id, lambda members: members[0])
        return first if ctx.shape.is_tuple else first[0]
