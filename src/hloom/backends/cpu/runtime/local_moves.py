"""Translates collectives to moves between devices of one process, see `local_exchange.py`.

The arrays of a step's frame are n operands, then n results. Python evaluates what does not map to moves: arrays of
dynamic sizes, combiners of several operations, transfers, ragged exchanges, and reductions of 2^31 elements or more.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hloom.analysis.monoids import monoid_of
from hloom.backends.cpu.llvm.native.types import LINE, Structure, u64
from hloom.backends.cpu.llvm.native.vocabulary import store
from hloom.backends.cpu.program.interface import TABLE
from hloom.backends.cpu.program.program import Buffer, HostStep, WaitStep
from hloom.backends.cpu.runtime.device_threads import MAX_DEVICES, run_devices_address
from hloom.backends.cpu.runtime.interrupts import Host, host
from hloom.backends.cpu.runtime.local_exchange import (
    ALL,
    NOBODY,
    Group,
    Groups,
    LocalExchanges,
    Move,
    Site,
    local_exchange_address,
)
from hloom.ir import Computation
from hloom.ops.collectives import AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute, ReduceScatter
from hloom.ops.device_index import PartitionId
from hloom.ops.registry import Registry
from hloom.ops.replica_groups import Collective
from hloom.ops.traits import DeviceIndex, Start
from hloom.system.python_api import immortal
from hloom.system.records import record
from hloom.target import align_up
from hloom.types import PrimitiveType
from hloom.values import Array

_RUN_DEVICES = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_size_t] * 6)
MAX_LENGTH = 2**31 - 1
"""Largest number of elements of a reduction."""
SHARE_STEP = 64
"""Number of elements by whose multiples the shares of an all-reduce begin."""
Words = dict[str, int]
"""Values of the fields of a structure; those left out are 0."""


@record
class Member:
    """A device at a site: the number of members of its group, its position, and whether the operation names it."""

    step: HostStep
    count: int
    position: int
    is_named: bool

    @property
    def pairs(self) -> Iterator[tuple[Words, Buffer, Buffer]]:
        """Yields the frame indices of each operand and its result, and their buffers with the shapes of the arrays,
        which may be views of buffers of other shapes.
        """
        instruction = self.step.instruction
        shapes = [*instruction.operand_shapes, *instruction.shape.leaves()]
        arrays = [replace(b, dimensions=s.dimensions) for b, s in zip(self.step.buffers, shapes, strict=True)]
        count = len(arrays) // 2
        for k in range(count):
            yield {"source": k, "target": count + k}, arrays[k], arrays[count + k]


class Team:
    """The devices of one process that run a program: their tables and exchanges, in memory that lives as long as this.

    `tables` has a row for each device, `groups` is the address of the `Groups`, `hosts` the memory of each `Host`.
    """

    def __init__(self, sites: Sequence[Sequence[DeviceSite]], table: Array) -> None:
        self._kept: list[Any] = []
        keys = {site.key: site.words for each in sites for site in each if site.key is not None}
        self._group_indices = {key: index for index, key in enumerate(keys)}
        rows = [
            {"members": len(key[1]), "words": words, "frames": self._zeros(8 * words * len(key[1]))}
            for key, words in keys.items()
        ]
        self._first_group = self._structures(Group, rows)
        call = local_exchange_address()
        self.hosts = [host(call) for _ in sites]
        groups = {"first": self._first_group, "count": len(rows), "host": self.hosts[0].ctypes.data}
        self.groups = self._structures(Groups, [groups])
        self.tables = np.tile(table, (len(sites), 1))
        self.tables[:, TABLE.index("host_call")] = call
        self.tables[:, TABLE.index("host_data")] = [words.ctypes.data for words in self.hosts]
        for words, each in zip(self.hosts, sites, strict=True):
            Host(words.ctypes.data).exchanges = self._lay_out(each)

    def run(self, main: int, tables: Array) -> int:
        """Runs a program on all devices, with a table for each. Returns its status; `BUSY` if nothing has run."""
        status: int = _RUN_DEVICES(run_devices_address())(
            main, tables.ctypes.data, tables.strides[0], len(tables), self.groups, 1
        )
        return status

    def _lay_out(self, sites: Sequence[DeviceSite]) -> int:
        rows, moves = list[Words](), list[Words]()
        for site in sites:
            group = 0 if site.key is None else self._first_group + self._group_indices[site.key] * Group.byte_size
            end = len(moves) + len(site.moves)
            rows.append({"group": group, "position": site.position, "first": len(moves), "end": end})
            moves += site.moves
        words = {"groups": self.groups, "sites": self._structures(Site, rows), "moves": self._structures(Move, moves)}
        return self._structures(LocalExchanges, [words])

    def _structures(self, type: type[Structure], rows: Sequence[Words]) -> int:
        """Returns the address of structures with 64-bit fields."""
        address = self._zeros(len(rows) * type.byte_size)
        for k, row in enumerate(rows):
            for name, word in row.items():
                store(u64, address + k * type.byte_size + type.layout[name][0], word)
        return address

    def _zeros(self, size: int) -> int:
        """Returns the address of zeros that begin with a cache line."""
        memory = np.zeros(size + LINE, np.uint8)
        self._kept.append(memory)
        return align_up(int(memory.ctypes.data), LINE)


def team_of(steps: Sequence[HostStep | WaitStep], replicas: int, partitions: int, table: Array) -> Team | None:
    """Returns the team of a program with these host steps; None if Python has to evaluate one of them, or if there
    are too many devices.
    """
    if replicas * partitions > MAX_DEVICES:
        return None
    sites = [[_site(step, device, replicas, partitions) for step in steps] for device in range(replicas * partitions)]
    native = [[site for site in each if site is not None] for each in sites]
    return Team(native, table) if native == sites else None


@record
class DeviceSite:
    """A site on one device. The key of its group is the site and the members; None for the device's own id."""

    key: tuple[int, tuple[int, ...]] | None
    position: int
    words: int = 0
    """Number of words of a frame."""
    moves: Sequence[Words] = ()


def _site(step: HostStep | WaitStep, device: int, replicas: int, partitions: int) -> DeviceSite | None:
    op = step.start.instruction.op
    if isinstance(op, DeviceIndex):
        return DeviceSite(None, divmod(device, partitions)[isinstance(op, PartitionId)])
    moves_of = _MOVES.get(op)
    if isinstance(step, WaitStep) or isinstance(op, Start) or step.slots or moves_of is None:
        return None
    assert isinstance(op, Collective | CollectivePermute)
    groups = op.device_groups(replicas, partitions)
    members = next((tuple(group) for group in groups if device in group), (device,))
    position = members.index(device)
    moves = moves_of(op, Member(step, len(members), position, any(device in group for group in groups)))
    return None if moves is None else DeviceSite((step.site, members), position, len(step.buffers), moves)


# Moves

_MOVES = Registry[[Member], list[Words] | None]()
"""The moves of a collective on one device; None if Python evaluates it."""


@_MOVES.rule(AllReduce)
def _all_reduce(op: AllReduce, member: Member) -> list[Words] | None:
    """Each member reduces a share of the elements, and passes it on to all others."""
    moves = []
    for pair, operand, _ in member.pairs:
        elements = math.prod(operand.dimensions)
        share = -(-elements // (member.count * SHARE_STEP)) * SHARE_STEP
        first = min(member.position * share, elements)
        reduced = _reduced(op.computation, operand.type, min(share, elements - first))
        if reduced is None:
            return None
        start = first * operand.type.byte_width
        moves.append({**reduced, **pair, "blocks": 1, "source_start": start, "target_start": start, "is_for_all": 1})
    return moves


@_MOVES.rule(ReduceScatter)
def _reduce_scatter(op: ReduceScatter, member: Member) -> list[Words] | None:
    moves = []
    for pair, _, result in member.pairs:
        blocks, size = _blocks(result, op.scatter_dimension)
        reduced = _reduced(op.computation, result.type, size // result.type.byte_width)
        if reduced is None:
            return None
        moves.append({**reduced, **pair, "blocks": blocks, **_own_block(size, member), "target_step": size})
    return moves


def _reduced(computation: Computation, type: PrimitiveType, length: int) -> Words | None:
    """Returns the words of a reduction of blocks of all members; None if there is no code for it."""
    monoid = monoid_of(computation)
    address = _reduction(monoid.opcode, type) if monoid is not None and length <= MAX_LENGTH else 0
    if not address:
        return None
    return {"sender": ALL, "reduction": address, "length": length, "size": length * type.byte_width}


@functools.cache
def _reduction(opcode: str, type: PrimitiveType) -> int:
    """Returns the address of a `local_exchange.Reduction`, 0 if there is no code for it."""
    from hloom.backends.cpu.kernels.reduction_function import make_reduction

    found = make_reduction(opcode, type)
    return 0 if found is None else immortal(found)[0]


@_MOVES.rule(AllGather)
def _all_gather(op: AllGather, member: Member) -> list[Words]:
    moves = []
    for pair, operand, _ in member.pairs:
        blocks, size = _blocks(operand, op.all_gather_dim)
        steps = {"source_step": size, "target_step": size * member.count, "member_step": size}
        moves.append({**pair, "sender": ALL, "blocks": blocks, "size": size, **steps})
    return moves


@_MOVES.rule(AllToAll)
def _all_to_all(op: AllToAll, member: Member) -> list[Words]:
    if op.split_dimension is None:
        return [
            {"sender": sender, "source": member.position, "target": pair["target"], "size": result.byte_size}
            for sender, (pair, _, result) in enumerate(member.pairs)
        ]
    moves = []
    for pair, operand, _ in member.pairs:
        blocks, whole = _blocks(operand, op.split_dimension)
        size = whole // member.count
        steps = {"target_step": whole, "member_step": size}
        moves.append({**pair, "sender": ALL, "blocks": blocks, "size": size, **_own_block(size, member), **steps})
    return moves


@_MOVES.rule(CollectivePermute)
def _permute(op: CollectivePermute, member: Member) -> list[Words] | None:
    if any(isinstance(operand, tuple) for operand in member.step.operands):
        return None
    sender = next((source for source, target in op.source_target_pairs if target == member.position), NOBODY)
    return _from_one(sender, member)


@_MOVES.rule(CollectiveBroadcast)
def _broadcast(op: CollectiveBroadcast, member: Member) -> list[Words]:
    return _from_one(0 if member.is_named else NOBODY, member)


def _from_one(sender: int, member: Member) -> list[Words]:
    return [{**pair, "sender": sender, "size": result.byte_size} for pair, _, result in member.pairs]


def _blocks(array: Buffer, dimension: int) -> tuple[int, int]:
    """Returns the number of contiguous blocks of an array that are split along a dimension, and their size in bytes."""
    blocks = math.prod(array.dimensions[:dimension])
    return blocks, math.prod(array.dimensions[dimension:]) * array.type.byte_width


def _own_block(size: int, member: Member) -> Words:
    """Returns the offsets in each sender's operand of the blocks that a member gets: one of `size` bytes for each
    member."""
    return {"source_start": size * member.position, "source_step": size * member.count}
