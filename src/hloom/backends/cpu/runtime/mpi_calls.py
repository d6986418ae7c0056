"""Which of MPI's functions a collective of a program calls, where each rank has one of the devices.

Arrays are those of the step's frame: n operands, then n results. What no call of MPI's does as it is stays Python's:
arrays of dynamic sizes, combiners of more than one operation, ragged exchanges, messages, more than 2^31 elements.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.backends.cpu.program.emitter import host_buffers
from hloom.backends.cpu.program.program import Buffer, HostStep, Slot, WaitStep, leaves
from hloom.backends.cpu.runtime.exchange import NOWHERE, WORDS
from hloom.ops.collectives import Collective
from hloom.runtime.mpi.reductions import FoldMaker, mpi_functions, reduction_of
from hloom.runtime.mpi.world import World, ranks_of
from hloom.runtime.python_api import c_address
from hloom.values import Array

Row = list[int]
"""The words of a `Call`."""
_IDS = ("replica-id", "partition-id")
_MOST = 2**31 - 1
"""What an `int` of C can count."""


@dataclass(frozen=True)
class Site:
    """A collective on one rank: its group of devices, its place in it, and the group's communicator."""

    step: HostStep
    members: Sequence[int]
    """The devices of the group, one on each rank."""
    me: int
    comm: Any
    named: bool
    """Whether the groups of the operation name this device."""
    make_fold: FoldMaker

    @property
    def op(self) -> Any:
        return self.step.instruction.op

    @functools.cached_property
    def arrays(self) -> list[Buffer]:
        return [*host_buffers(self.step)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The places of each operand and its result."""
        count = len(self.arrays) // 2
        return [(k, count + k) for k in range(count)]


@dataclass(frozen=True)
class DevicePlace:
    """Where this rank stands: it has device `device` of a run."""

    world: World
    ranks: Sequence[int]
    device: int
    replicas: int
    partitions: int
    make_fold: FoldMaker

    def site(self, step: HostStep) -> Site:
        op: Any = step.instruction.op
        groups = op.device_groups(self.replicas, self.partitions)
        members = next((tuple(group) for group in groups if self.device in group), (self.device,))
        present = ranks_of(members, self.ranks)
        comm = self.world.communicator(members, present) if len(members) > 1 else None
        named = {i for group in op.replica_groups.groups for i in group} if isinstance(op, Collective) else set()
        own = self.device // self.partitions if op.channel_id is None else self.device % self.partitions
        return Site(step, members, members.index(self.device), comm, not named or own in named, self.make_fold)


def exchanges_of(steps: Sequence[HostStep | WaitStep], place: DevicePlace) -> tuple[Array, bool, list[Any]]:
    """The memory of a program's `Exchanges`, whether they do all that it needs of the host, and what has to live on."""
    ids = np.array(divmod(place.device, place.partitions), np.uint32)
    rows = {s.site: _rows(s, place, ids) if mpi_functions() else None for s in steps if isinstance(s, HostStep)}
    first, ranges = 0, {}
    for site, made in rows.items():
        ranges[site] = first, first + len(made or [])
        first = ranges[site][1]
    started = {step.start.site for step in steps if isinstance(step, WaitStep)}
    places = np.array([_place(step, rows, ranges, started) for step in steps], np.uint64)
    calls = np.array([row for made in rows.values() for row in made or []], np.uint64)
    requests = np.zeros(max(first, 1), np.uint64)
    test, broken = mpi_functions().get("MPI_Test", 0), place.world.broken_word
    words = np.array([test, *(array.ctypes.data for array in (broken, places, calls, requests))], np.uint64)
    return words, all(made is not None for made in rows.values()), [places, calls, requests, words, ids]


def _place(
    step: HostStep | WaitStep, rows: dict[int, list[Row] | None], ranges: dict[int, tuple[int, int]], started: set[int]
) -> Row:
    """The words of a site's `Place`; `started` are the sites that others wait for."""
    if isinstance(step, WaitStep):
        return [1, 0, 0, *ranges[step.start.site]]
    waited = (0, 0) if step.site in started else ranges[step.site]
    return [int(rows[step.site] is not None), *ranges[step.site], *waited]


def _rows(step: HostStep, place: DevicePlace, ids: Array) -> list[Row] | None:
    """The calls of a step; None where it has none. `ids` are those of the replica and of the partition."""
    opcode = step.instruction.opcode
    if opcode in _IDS:
        return [_call(_of_c("memmove"), [0, int(ids[_IDS.index(opcode) :].ctypes.data), 4], [(0, 0)])]
    make = _CALLS.get(opcode)
    if make is None or any(isinstance(leaf, Slot) for part in (*step.operands, step.result) for leaf in leaves(part)):
        return None
    site = place.site(step)
    if any(math.prod(array.dimensions) > _MOST for array in site.arrays):
        return None
    return make(site)


# Calls


def _call(function: int, words: Sequence[int], put: Sequence[tuple[int, int]], request: int = NOWHERE) -> Row:
    """A call of C with these words; `put` are words and the places in the frame that they are."""
    first, second = [*put, (NOWHERE, 0), (NOWHERE, 0)][:2]
    return [function, *words, *[0] * (WORDS - len(words)), *first, *second, request]


def _mpi(name: str, words: Sequence[int], put: Sequence[tuple[int, int]]) -> Row:
    """A call of MPI's whose last argument is the request."""
    return _call(mpi_functions()[f"MPI_{name}"], words, put, len(words))


@functools.cache
def _of_c(name: str) -> int:
    return c_address(getattr(ctypes.CDLL(None), name))


def _move(source: int, target: int, size: int) -> Row:
    return _call(_of_c("memmove"), [0, 0, size], [(0, target), (1, source)])


def _zero(target: int, size: int) -> Row:
    return _call(_of_c("memset"), [0, 0, size], [(0, target)])


def _handle(thing: Any) -> int:
    from mpi4py import MPI

    return int(MPI._handleof(thing))


def _items(size: int) -> tuple[int, int]:
    """Bytes as elements that MPI moves: how many, and of which type."""
    from mpi4py import MPI

    return (size // 8, _handle(MPI.UINT64_T)) if size % 8 == 0 else (size, _handle(MPI.BYTE))


def _leads(axis: int, array: Buffer) -> bool:
    """Whether blocks along a dimension lie one behind the other."""
    return math.prod(array.dimensions[:axis]) <= 1


# Collectives


def _alone(site: Site) -> list[Row]:
    """What a device says to itself."""
    return [_move(source, target, site.arrays[target].byte_size) for source, target in site.pairs]


def _folding(function: str) -> Callable[[Site], list[Row] | None]:
    def rows(site: Site) -> list[Row] | None:
        if site.comm is None:
            return _alone(site)
        made = []
        is_scattered = site.op.opcode == "reduce-scatter"
        for source, target in site.pairs:
            if is_scattered and not _leads(site.op.scatter_dimension, site.arrays[source]):
                return None
            reduction = reduction_of(site.op.computation, site.arrays[source].type, site.make_fold)
            if reduction is None:
                return None
            count, comm = math.prod(site.arrays[target].dimensions), _handle(site.comm)
            words = [0, 0, count, _handle(reduction.type), _handle(reduction.op), comm]
            made.append(_mpi(function, words, [(0, source), (1, target)]))
        return made

    return rows


def _moving(function: str, dimension: str) -> Callable[[Site], list[Row] | None]:
    """All members send and receive blocks of one size, which lie one behind the other."""

    def rows(site: Site) -> list[Row] | None:
        if site.comm is None:
            return _alone(site)
        axis = getattr(site.op, dimension)
        if axis is None:
            return _each_to_each(site)
        made = []
        for source, target in site.pairs:
            if not _leads(axis, site.arrays[source]):
                return None
            count, type = _items(site.arrays[target].byte_size // len(site.members))
            words = [0, count, type, 0, count, type, _handle(site.comm)]
            made.append(_mpi(function, words, [(0, source), (3, target)]))
        return made

    return rows


def _each_to_each(site: Site) -> list[Row]:
    """Operand i goes to member i, and result i comes from there."""
    rows = []
    for member, (source, target) in enumerate(site.pairs):
        if member == site.me:
            rows.append(_move(source, target, site.arrays[target].byte_size))
        else:
            rows += [_send(site, source, member), _receive(site, target, member)]
    return rows


def _send(site: Site, source: int, member: int) -> Row:
    count, type = _items(site.arrays[source].byte_size)
    return _mpi("Isend", [0, count, type, member, 0, _handle(site.comm)], [(0, source)])


def _receive(site: Site, target: int, member: int) -> Row:
    count, type = _items(site.arrays[target].byte_size)
    return _mpi("Irecv", [0, count, type, member, 0, _handle(site.comm)], [(0, target)])


def _permute(site: Site) -> list[Row] | None:
    if any(isinstance(operand, tuple) for operand in site.step.operands):
        return None
    rows = []
    senders = {target: source for source, target in site.op.source_target_pairs}
    receivers = dict(site.op.source_target_pairs)
    for source, target in site.pairs:
        sender, receiver = senders.get(site.me), receivers.get(site.me)
        if sender is None:
            rows.append(_zero(target, site.arrays[target].byte_size))
        elif sender == site.me:
            rows.append(_move(source, target, site.arrays[target].byte_size))
        else:
            rows.append(_receive(site, target, sender))
        if receiver is not None and receiver != site.me:
            rows.append(_send(site, source, receiver))
    return rows


def _broadcast(site: Site) -> list[Row]:
    """The first member's operand; who is in no group gets zeros."""
    if site.comm is None:
        return _alone(site) if site.named else [_zero(t, site.arrays[t].byte_size) for _, t in site.pairs]
    rows = []
    for source, target in site.pairs:
        count, type = _items(site.arrays[target].byte_size)
        if site.me == 0:
            rows.append(_move(source, target, site.arrays[target].byte_size))
        rows.append(_mpi("Ibcast", [0, count, type, 0, _handle(site.comm)], [(0, target)]))
    return rows


_CALLS: dict[str, Callable[[Site], list[Row] | None]] = {
    "all-gather": _moving("Iallgather", "all_gather_dim"),
    "all-reduce": _folding("Iallreduce"),
    "all-to-all": _moving("Ialltoall", "split_dimension"),
    "collective-broadcast": _broadcast,
    "collective-permute": _permute,
    "reduce-scatter": _folding("Ireduce_scatter_block"),
}
