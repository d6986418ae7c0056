"""Translates collectives to MPI calls, if each rank has one device.

The arrays of a call are those of the step's frame: n operands, then n results. Python evaluates everything that does
not map to MPI calls: arrays of dynamic sizes, combiners of several operations, transfers to the host, and arrays of
2^31 elements or more.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from hloom.backends.cpu.program.program import Buffer, HostStep, WaitStep
from hloom.backends.cpu.runtime.exchange import UNUSED, WORDS, ragged_address
from hloom.ir import Computation
from hloom.ops.collectives import AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute, ReduceScatter
from hloom.ops.communication import Send, Transfer, transfer_pairs
from hloom.ops.device_index import PartitionId
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.registry import Registry
from hloom.ops.replica_groups import Collective
from hloom.ops.traits import DeviceIndex, Done, Start
from hloom.runtime.mpi.reductions import MakeReduction, mpi_functions, reduction_of
from hloom.runtime.mpi.world import World, ranks_of
from hloom.system.lazy import cached_property
from hloom.system.python_api import c_address
from hloom.system.records import record
from hloom.values import Array

TAGS = 1 << 15
"""Number of message tags that every MPI implementation supports."""
_MAX = 2**31 - 1
"""Largest value of a C `int`."""


@record
class ForeignCall:
    """Call of a C function. `filled` lists argument indices with the frame indices of the pointers that fill them."""

    function: int
    arguments: Sequence[int]
    filled: Sequence[tuple[int, int]]
    request: int = UNUSED
    """Index of the argument that is the address of the call's request."""
    frame: int = UNUSED
    """Index of the argument that is the address of the frame."""

    def words(self) -> list[int]:
        """Returns the words of an `exchange.Call`."""
        first, second = [*self.filled, (UNUSED, 0), (UNUSED, 0)][:2]
        padding = [0] * (WORDS - len(self.arguments))
        return [0, self.function, *self.arguments, *padding, *first, *second, self.frame, self.request]


@record
class Wait:
    """Wait for the request of a call of the same site, by the index of the call."""

    call: int

    def words(self, first: int) -> list[int]:
        """Returns the words of an `exchange.Call`; `first` is the index of the site's first call."""
        return [first + self.call + 1, *[0] * (1 + WORDS), *[UNUSED, 0] * 2, UNUSED, UNUSED]


Calls = Sequence[ForeignCall | Wait]


@record
class CollectiveSite:
    """Collective on one rank: the group of devices, this device's index in it, and the group's communicator."""

    step: HostStep
    members: Sequence[int]
    """Devices of the group, one on each rank."""
    own_index: int
    comm: Any
    named: bool
    """Whether the operation's replica groups contain this device."""
    make_reduction: MakeReduction
    kept: list[Any]
    """Memory that calls use, to be kept alive."""

    @cached_property
    def arrays(self) -> list[Buffer]:
        """Arrays in the order of the step's frame."""
        return self.step.buffers

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of frame indices of an operand and its result."""
        count = len(self.arrays) // 2
        return [(k, count + k) for k in range(count)]


@record
class DeviceContext:
    """Device of this rank in a run, with the numbers of replicas and partitions."""

    world: World
    ranks: Sequence[int]
    device: int
    replicas: int
    partitions: int
    make_reduction: MakeReduction
    kept: list[Any] = field(default_factory=list)

    def site(self, op: Collective | CollectivePermute, step: HostStep) -> CollectiveSite:
        """Returns the site of a step, with a communicator for its group."""
        groups = op.device_groups(self.replicas, self.partitions)
        members = next((tuple(group) for group in groups if self.device in group), (self.device,))
        present = ranks_of(members, self.ranks)
        comm = self.world.communicator(members, present) if len(members) > 1 else None
        named = {i for group in op.replica_groups.groups for i in group} if isinstance(op, Collective) else set()
        own = self.device // self.partitions if op.channel_id is None else self.device % self.partitions
        return CollectiveSite(
            step, members, members.index(self.device), comm, not named or own in named, self.make_reduction, self.kept
        )


def exchanges_of(steps: Sequence[HostStep | WaitStep], context: DeviceContext) -> tuple[Array, bool, list[Any]]:
    """Returns the memory of a program's `Exchanges`, whether it covers all host steps, and objects to keep alive."""
    ids = np.array(divmod(context.device, context.partitions), np.uint32)
    starts = list(dict.fromkeys(step.start for step in steps))
    site_calls = {start.site: _calls_of(start, context, ids) if mpi_functions() else None for start in starts}
    waits = _waits(starts, site_calls)
    waits |= {step.site: (step.start.site, []) for step in steps if isinstance(step, WaitStep)}
    site_rows, call_rows = _lay_out([step.site for step in steps], site_calls, waits)
    table, calls = np.array(site_rows, np.uint64), np.array(call_rows, np.uint64)
    requests = np.zeros(max(len(call_rows), 1), np.uint64)
    test, broken = mpi_functions().get("MPI_Test", 0), context.world.broken_flag
    words = np.array([test, *(array.ctypes.data for array in (broken, table, calls, requests))], np.uint64)
    are_all = all(each is not None for each in site_calls.values())
    return words, are_all, [table, calls, requests, words, ids, context]


def _lay_out(
    sites: Sequence[int],
    site_calls: dict[int, Calls | None],
    waits: dict[int, tuple[int, Calls]],
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the words of each site's `SiteCalls`, and those of all calls in order.

    A request that no other site waits for is waited for by the site that started it.
    """
    started = {start for start, _ in waits.values()}
    first: dict[int, int] = {}
    site_rows: list[list[int]] = []
    call_rows: list[list[int]] = []
    for site in sites:
        start, after = waits.get(site, (site, []))
        own, begin = site_calls[start] or [], len(call_rows)
        first[site] = begin
        calls: Calls = own if start == site else []
        if start != site or site not in started:
            known = {call.call for call in own if isinstance(call, Wait)}
            open_calls = (k for k, call in enumerate(own) if isinstance(call, ForeignCall) and call.request != UNUSED)
            calls = [*calls, *(Wait(k) for k in open_calls if k not in known), *after]
        call_rows += [call.words(first[start]) if isinstance(call, Wait) else call.words() for call in calls]
        site_rows.append([int(site_calls[start] is not None), begin, len(call_rows)])
    return site_rows, call_rows


def _waits(steps: Sequence[HostStep], site_calls: dict[int, Calls | None]) -> dict[int, tuple[int, Calls]]:
    """Returns for each send-done and recv-done the site that it waits for, and the calls that follow the wait.

    If some message has no done instruction that follows from it directly, Python transfers all messages.
    """
    messages = [step for step in steps if isinstance(step.instruction.op, Transfer)]
    starts = {step.instruction: step for step in messages if isinstance(step.instruction.op, Start)}
    waits: dict[int, tuple[int, Calls]] = {}
    for step in messages:
        if isinstance(step.instruction.op, Done):
            start = starts.get(step.instruction.operands[0])
            if start is not None and site_calls[start.site] is not None:
                site_calls[step.site] = []
                arrays = step.buffers
                waits[step.site] = start.site, [_move(0, 2, arrays[2].byte_size)] if len(arrays) == 3 else []
    if any(site_calls[step.site] is None for step in messages):
        site_calls.update((step.site, None) for step in messages)
        return {}
    return waits


def _calls_of(step: HostStep, context: DeviceContext, ids: Array) -> Calls | None:
    """Returns the calls of a step; None if Python evaluates it. `ids` are the replica id and the partition id."""
    op = step.instruction.op
    if isinstance(op, DeviceIndex):
        own = ids[int(isinstance(op, PartitionId)) :]
        return [ForeignCall(_c_function("memmove"), [0, int(own.ctypes.data), 4], [(0, 0)])]
    if isinstance(op, Transfer):
        return _message(op, step, context) if isinstance(op, Start) else None
    if not isinstance(op, (Collective, CollectivePermute)) or isinstance(op, Start) or step.slots:
        return None
    calls, site = _CALLS.get(op), context.site(op, step)
    if calls is None or any(math.prod(array.dimensions) > _MAX for array in site.arrays):
        return None
    return calls(op, site)


# Calls


def _mpi(name: str, words: Sequence[int], put: Sequence[tuple[int, int]]) -> ForeignCall:
    """Returns a call of an MPI function whose last argument is the request."""
    return ForeignCall(mpi_functions()[f"MPI_{name}"], words, put, len(words))


@functools.cache
def _c_function(name: str) -> int:
    return c_address(getattr(ctypes.CDLL(None), name))


def _move(source: int, target: int, size: int) -> ForeignCall:
    return ForeignCall(_c_function("memmove"), [0, 0, size], [(0, target), (1, source)])


def _zero(target: int, size: int) -> ForeignCall:
    return ForeignCall(_c_function("memset"), [0, 0, size], [(0, target)])


def _handle(mpi_object: Any) -> int:
    from mpi4py import MPI

    return int(MPI._handleof(mpi_object))


def _items(size: int) -> tuple[int, int]:
    """Returns a number of bytes as count and type of MPI elements."""
    from mpi4py import MPI

    return (size // 8, _handle(MPI.UINT64_T)) if size % 8 == 0 else (size, _handle(MPI.BYTE))


def _all_have_contiguous_blocks(axis: int, site: CollectiveSite) -> bool:
    """Whether blocks of the operands along a dimension are contiguous in memory."""
    return all(math.prod(site.arrays[source].dimensions[:axis]) <= 1 for source, _ in site.pairs)


# Collectives

_CALLS = Registry[[CollectiveSite], Calls | None]()
"""Calls of a collective; None if Python evaluates it."""


def _self_copies(site: CollectiveSite) -> list[ForeignCall]:
    """Copies operands to results: the collective of a single device."""
    return [_move(source, target, site.arrays[target].byte_size) for source, target in site.pairs]


@_CALLS.rule(AllReduce)
def _all_reduce(op: AllReduce, site: CollectiveSite) -> list[ForeignCall] | None:
    return _reductions("Iallreduce", op.computation, site)


@_CALLS.rule(ReduceScatter)
def _reduce_scatter(op: ReduceScatter, site: CollectiveSite) -> list[ForeignCall] | None:
    if site.comm is not None and not _all_have_contiguous_blocks(op.scatter_dimension, site):
        return None
    return _reductions("Ireduce_scatter_block", op.computation, site)


def _reductions(function: str, computation: Computation, site: CollectiveSite) -> list[ForeignCall] | None:
    if site.comm is None:
        return _self_copies(site)
    calls = []
    for source, target in site.pairs:
        reduction = reduction_of(computation, site.arrays[source].type, site.make_reduction)
        if reduction is None:
            return None
        count, comm = math.prod(site.arrays[target].dimensions), _handle(site.comm)
        words = [0, 0, count, _handle(reduction.type), _handle(reduction.op), comm]
        calls.append(_mpi(function, words, [(0, source), (1, target)]))
    return calls


@_CALLS.rule(AllGather)
def _all_gather(op: AllGather, site: CollectiveSite) -> list[ForeignCall] | None:
    return _block_moves("Iallgather", op.all_gather_dim, site)


@_CALLS.rule(AllToAll)
def _all_to_all(op: AllToAll, site: CollectiveSite) -> list[ForeignCall] | None:
    if op.split_dimension is None and site.comm is not None:
        return _operand_moves(site)
    return _block_moves("Ialltoall", op.split_dimension or 0, site)


def _block_moves(function: str, axis: int, site: CollectiveSite) -> list[ForeignCall] | None:
    """Exchanges blocks of one size, which are contiguous, along a dimension."""
    if site.comm is None:
        return _self_copies(site)
    if not _all_have_contiguous_blocks(axis, site):
        return None
    calls = []
    for source, target in site.pairs:
        count, type = _items(site.arrays[target].byte_size // len(site.members))
        words = [0, count, type, 0, count, type, _handle(site.comm)]
        calls.append(_mpi(function, words, [(0, source), (3, target)]))
    return calls


def _operand_moves(site: CollectiveSite) -> list[ForeignCall]:
    """Sends operand i to member i, and receives result i from it."""
    calls = []
    for member, (source, target) in enumerate(site.pairs):
        if member == site.own_index:
            calls.append(_move(source, target, site.arrays[target].byte_size))
        else:
            calls += [_send(site, source, member), _receive(site, target, member)]
    return calls


def _send(site: CollectiveSite, source: int, member: int) -> ForeignCall:
    count, type = _items(site.arrays[source].byte_size)
    return _mpi("Isend", [0, count, type, member, 0, _handle(site.comm)], [(0, source)])


def _receive(site: CollectiveSite, target: int, member: int) -> ForeignCall:
    count, type = _items(site.arrays[target].byte_size)
    return _mpi("Irecv", [0, count, type, member, 0, _handle(site.comm)], [(0, target)])


@_CALLS.rule(CollectivePermute)
def _permute(op: CollectivePermute, site: CollectiveSite) -> list[ForeignCall] | None:
    if any(isinstance(operand, tuple) for operand in site.step.operands):
        return None
    calls = []
    senders = {target: source for source, target in op.source_target_pairs}
    receivers = dict(op.source_target_pairs)
    for source, target in site.pairs:
        sender, receiver = senders.get(site.own_index), receivers.get(site.own_index)
        if sender is None:
            calls.append(_zero(target, site.arrays[target].byte_size))
        elif sender == site.own_index:
            calls.append(_move(source, target, site.arrays[target].byte_size))
        else:
            calls.append(_receive(site, target, sender))
        if receiver is not None and receiver != site.own_index:
            calls.append(_send(site, source, receiver))
    return calls


@_CALLS.rule(CollectiveBroadcast)
def _broadcast(op: CollectiveBroadcast, site: CollectiveSite) -> list[ForeignCall]:
    """Broadcasts the first member's operand; devices in no group get zeros."""
    if site.comm is None:
        return _self_copies(site) if site.named else [_zero(t, site.arrays[t].byte_size) for _, t in site.pairs]
    calls = []
    for source, target in site.pairs:
        count, type = _items(site.arrays[target].byte_size)
        if site.own_index == 0:
            calls.append(_move(source, target, site.arrays[target].byte_size))
        calls.append(_mpi("Ibcast", [0, count, type, 0, _handle(site.comm)], [(0, target)]))
    return calls


def _message(op: Transfer, step: HostStep, context: DeviceContext) -> list[ForeignCall] | None:
    """Returns the calls that start a send or recv; its data is the first element of the context (data, id, token)."""
    arrays = step.buffers
    is_send = isinstance(op, Send)
    if op.is_host_transfer or len(arrays) != 2 + is_send or any(math.prod(a.dimensions) > _MAX for a in arrays):
        return None
    data = len(arrays) - 2
    pairs = transfer_pairs(step.instruction) or [(context.device, context.device)]
    count, type = _items(arrays[data].byte_size)
    tag, comm = (op.channel_id or 0) % TAGS, _handle(context.world.comm)
    size = arrays[data].byte_size
    calls = [_zero(data + 1, 4), _move(0, data, size) if is_send else _zero(data, size)]
    others = [pair[is_send] for pair in pairs if pair[not is_send] == context.device]
    for other in others if is_send else others[:1]:
        words = [0, count, type, context.ranks[other], tag, comm]
        calls.append(_mpi("Isend" if is_send else "Irecv", words, [(0, data)]))
    return calls


@_CALLS.rule(RaggedAllToAll)
def _ragged(op: RaggedAllToAll, site: CollectiveSite) -> Calls | None:
    """Exchanges sizes and offsets first, then rows. The sender checks that rows are in bounds."""
    operand, output, starts, *_ = site.arrays
    if site.comm is None or starts.dimensions != (len(site.members),) or starts.type.byte_width not in (4, 8):
        return None
    if max(operand.byte_size, output.byte_size) > _MAX:
        return None
    from mpi4py import MPI

    members, width = len(site.members), starts.type.byte_width
    sizes, offsets, counts = np.zeros(members), np.zeros(members), np.zeros(4 * members, np.int32)
    row_bytes = output.byte_size // max(1, output.dimensions[0])
    rows_of = (operand.dimensions[0], output.dimensions[0])
    memory = [array.ctypes.data for array in (sizes, offsets, counts)]
    byte = _handle(MPI.BYTE)
    words = np.array(
        [mpi_functions()["MPI_Ialltoallv"], members, row_bytes, width, *rows_of, byte, _handle(site.comm), *memory],
        np.uint64,
    )
    site.kept.extend([sizes, offsets, counts, words])
    exchanges = [
        _mpi("Ialltoall", [0, width, byte, array.ctypes.data, width, byte, _handle(site.comm)], [(0, frame_index)])
        for frame_index, array in ((3, sizes), (4, offsets))
    ]
    ragged = ForeignCall(ragged_address(), [0, words.ctypes.data], [], request=2, frame=0)
    return [_move(1, 6, output.byte_size), *exchanges, Wait(1), Wait(2), ragged]
