"""The rendezvous of devices that several ranks share.

Devices of one rank meet as threads do; the last one to arrive exchanges the values with the other ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.ir import Instruction, Module
from hloom.ops.collectives import AllReduce, CollectivePermute, ReduceScatter
from hloom.ops.replica_groups import Collective
from hloom.runtime.mpi.reductions import MakeReduction, Reduction, as_mpi_buffer, reduction_of
from hloom.runtime.mpi.world import World, as_arrays, as_bytes, ranks_of
from hloom.runtime.rendezvous import Rendezvous
from hloom.values import Array, Value


class MpiRendezvous(Rendezvous):
    """The rendezvous of one run whose devices are distributed over ranks: device d is on `ranks[d]`."""

    def __init__(self, world: World, ranks: Sequence[int], make_reduction: MakeReduction, *counts: Any) -> None:
        super().__init__(*counts)
        self.make_reduction = make_reduction
        self.world = world
        self.ranks = ranks

    def local_members(self, members: Sequence[int]) -> Sequence[int]:
        return [member for member in members if self.ranks[member] == self.world.rank]

    def combine_values(
        self,
        instruction: Instruction,
        members: Sequence[int],
        values: list[Value],
        combine: Callable[[list[Value]], Value],
        into: Array | None,
    ) -> Value:
        ranks = ranks_of(members, self.ranks)
        if len(ranks) == 1:
            return combine(values)
        comm, op = self.world.communicator(members, ranks), instruction.op
        purpose = f"{instruction!r}: the group {list(members)} meets"
        if not _have_static_arrays(instruction, values):
            return combine(
                self._by_member(members, ranks, self.world.gather_objects(comm, values, purpose, self.timeout))
            )
        if isinstance(op, (AllReduce, ReduceScatter)):
            types = [shape.element_type for shape in instruction.operand_shapes]
            reductions = [found for type in types if (found := reduction_of(op.computation, type, self.make_reduction))]
            if len(reductions) == len(types):
                target = into if len(values) == 1 and isinstance(op, AllReduce) else None
                reduced = zip(combine(values), reductions, strict=True)
                return tuple(self._reduce(comm, array, reduction, purpose, target) for array, reduction in reduced)
        if isinstance(op, CollectivePermute):
            return combine(self._permute(op, members, comm, ranks, values, purpose))
        counts = [sum(self.ranks[member] == rank for member in members) for rank in ranks]
        return combine(
            self._by_member(members, ranks, self.world.gather_arrays(comm, values, counts, purpose, self.timeout))
        )

    def _by_member(self, members: Sequence[int], ranks: list[int], by_rank: Sequence[Value]) -> list[Value]:
        """Reorders values that are sorted by rank to the order of the members."""
        order = sorted(members, key=lambda member: ranks.index(self.ranks[member]))
        return [by_rank[order.index(member)] for member in members]

    def _permute(
        self,
        op: CollectivePermute,
        members: Sequence[int],
        comm: Any,
        ranks: Sequence[int],
        own: list[Value],
        purpose: str,
    ) -> list[Value]:
        """Exchanges the values of a collective-permute.

        Returns a value for each member: those that devices of this rank hold or receive, and None for all others.
        """
        have = dict(zip(self.local_members(members), own, strict=True))
        values: list[Value] = [have.get(member) for member in members]
        requests, kept = [], []
        for tag, (source, target) in enumerate(op.source_target_pairs):
            sender, receiver = self.ranks[members[source]], self.ranks[members[target]]
            if sender == receiver or self.world.rank not in (sender, receiver):
                continue
            if self.world.rank == sender:
                data = as_bytes(values[source])
                requests.append(comm.Isend(data, ranks.index(receiver), tag))
            else:
                data = np.empty(sum(array.nbytes for array in own[0]), np.uint8)
                requests.append(comm.Irecv(data, ranks.index(sender), tag))
                values[source] = as_arrays(data, own[0])
            kept.append(data)
        for request in requests:
            self.world.wait(request, purpose, self.timeout, kept)
        return values

    def _reduce(self, comm: Any, array: Array, reduction: Reduction, purpose: str, into: Array | None) -> Array:
        """Reduces an array over all ranks; the result is written to `into` if its shape and type fit."""
        given = np.ascontiguousarray(array)
        fits = into is not None and into.shape == given.shape and into.dtype == given.dtype
        target = into if into is not None and fits else np.empty(given.size, given.dtype).reshape(given.shape)
        if np.may_share_memory(given, target):
            given = given.copy()
        request = comm.Iallreduce(as_mpi_buffer(given, reduction), as_mpi_buffer(target, reduction), reduction.op)
        self.world.wait(request, purpose, self.timeout, (given, target))
        return target

    def send(self, channel_id: int, source: int, target: int, value: Value) -> None:
        if self.ranks[target] == self.world.rank:
            super().send(channel_id, source, target, value)
        else:
            self.world.send(self.ranks[target], (channel_id, source, target), value)

    def receive(self, instruction: Instruction, channel_id: int, source: int, target: int) -> Value:
        if self.ranks[source] == self.world.rank:
            return super().receive(instruction, channel_id, source, target)
        key, deadline = (channel_id, source, target), time.monotonic() + self.timeout
        purpose = f"{instruction!r}: device {target} waits for the send of channel {channel_id} on device {source}"
        while not self._messages.get(key):
            message = self.world.received()
            if message is not None:
                super().send(*message[0], message[1])
            else:
                self.world.check_peers(purpose, deadline, self.timeout)
                time.sleep(1e-5)
        return self._messages[key].popleft()

    def fail(self, error: BaseException) -> None:
        self.world.fail(error)


def groups_of(module: Module, replicas: int) -> list[tuple[int, ...]]:
    """The groups of devices that communicate in a module, in an order that is the same on all ranks."""
    found: dict[tuple[int, ...], None] = {}
    for instruction in module.instructions():
        if isinstance(instruction.op, (Collective, CollectivePermute)):
            groups = instruction.op.device_groups(replicas, module.num_partitions)
            found.update(dict.fromkeys(map(tuple, groups)))
    return list(found)


def _have_static_arrays(instruction: Instruction, values: list[Value]) -> bool:
    """Whether all values are tuples of arrays with static shapes."""
    is_flat = all(isinstance(v, tuple) and v and all(isinstance(a, np.ndarray) for a in v) for v in values)
    return is_flat and not any(shape.is_dynamic for shape in instruction.operand_shapes)
