"""Runs collectives among devices of one process in native code; each device is a thread.

All members of a group reach each site equally often. At a site a member publishes its frame and waits for the others;
it then moves data from their operands to its results, and waits again until all have done so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import (
    Address,
    Array,
    Atomic,
    Structure,
    boolean,
    field,
    i32,
    i64,
    u8,
    u32,
    u64,
)
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQ_REL,
    ACQUIRE,
    MONOTONIC,
    SEQ_CST,
    address_of,
    copy_memory,
    external,
    native,
    null,
    store,
    to,
)
from hloom.backends.cpu.runtime.event_count import FOREVER, EventCount, advance, reset, sleep, spin
from hloom.backends.cpu.runtime.interrupts import Host, poll_host

ALL, NOBODY = (1 << 64) - 1, (1 << 64) - 2
"""Senders of a move: all members; none, so that zeros are received."""
POLL_NANOSECONDS = 50_000_000
"""Time after which a wait on the calling thread polls the host."""
WAIT_SITE = -1
"""Site of the polls of waits: that of a loop, which exchanges do not tell apart."""

memset = external("memset", Address, Address, i32, u64)
Reduction = Callable[[Address, Address, Address, Address], None]
"""An `MPI_User_function`, see `kernels/reduction_function.py`."""


class Group(Structure):
    """The devices that meet at a site, and the barrier on which they wait."""

    members: u64
    frames: Array[u64]
    """Copies of the members' frames, of `words` words each: pointers of operands, then of results. The last member to
    arrive reads them even if the run was stopped and the others have returned."""
    words: u64
    arrived: Atomic[u64] = field(line=True)
    meetings: Array[u8] = field(line=True, inline=(u8, EventCount.byte_size))
    """`EventCount` of the times that all members have arrived."""


class Groups(Structure):
    """All groups of a program, one after another."""

    first: Address
    count: u64
    host: Address
    """`Host` of the device on the calling thread."""
    polls: u64
    """Whether the calling thread polls while it waits, so that Python handles signals."""
    are_empty: u64
    """Whether the last run has ended in all groups: not if it was stopped, or goes on in the parent of this process."""
    stopped: Atomic[u64]
    """Whether a device has left the run, so that nobody may wait."""


class Move(Structure):
    """Data that a member receives: `blocks` blocks of `size` bytes from `sender`, or from each member if it is `ALL`.

    Block k of member m lies at `source_start + k * source_step` of its operand, and goes to `target_start + k *
    target_step + m * member_step` of the result, where the blocks of all members are reduced if there is a reduction.
    """

    sender: u64
    source: u64
    target: u64
    """Indices of the operand and the result in the frame."""
    size: u64
    blocks: u64
    source_start: u64
    source_step: u64
    target_start: u64
    target_step: u64
    member_step: u64
    reduction: Address
    length: u64
    """Number of elements of a block."""
    is_for_all: u64
    """Whether the other members get the block too, at the same offset."""


class Site(Structure):
    """A site on one device: its position in a group, and its moves from `first` up to `end`, exclusive.

    Without a group the device writes `position`, its replica or partition id.
    """

    group: Address
    position: u64
    first: u64
    end: u64


class LocalExchanges(Structure):
    """The sites of a device."""

    groups: Groups
    sites: Address
    moves: Address


@native(name="hloom_exchange_locally")
def exchange_locally(host: Host, request_id: i64, site: i64, frame: Array[u64]) -> i32:
    """Replaces an executable's `host_call`; returns 0 if the run was stopped, for polls of loops as well."""
    exchanges = to(LocalExchanges, host.exchanges)
    if site < 0:
        return i32(request_id) if exchanges.groups.stopped.load(MONOTONIC) == 0 else i32(0)
    own = to(Site, exchanges.sites + u64(site) * Site.byte_size)
    if own.group == null:
        store(u32, frame[0], u32(own.position))
        return i32(request_id)
    group = to(Group, own.group)
    copy_memory(address_of(frame_of(group, own.position)), address_of(frame), group.words << 3)
    if not meet(group, exchanges.groups, host):
        return i32(0)
    for k in range(own.first, own.end):
        move(to(Move, exchanges.moves + k * Move.byte_size), group, own.position)
    if not meet(group, exchanges.groups, host):
        return i32(0)
    return i32(request_id)


@native()
def meet(group: Group, groups: Groups, host: Host) -> boolean:
    """Waits until all members have arrived; returns false if the run was stopped meanwhile."""
    meetings = meetings_of(group)
    count = meetings.count.load(ACQUIRE)
    if group.arrived.add(1, ACQ_REL) + 1 == group.members:
        group.arrived.store(0, MONOTONIC)
        advance(meetings)
        return True
    # A stop after this load advances the count that was read before.
    if groups.stopped.load(SEQ_CST) == 0 and not await_polling(meetings, count, groups, host):
        return False
    return groups.stopped.load(MONOTONIC) == 0


@native()
def await_polling(events: EventCount, count: u64, groups: Groups, host: Host) -> boolean:
    """Waits until the count differs from one that was read before; returns false if the host stops the wait."""
    is_reached = spin(events, count)
    polls = groups.polls != 0 and address_of(host) == groups.host
    limit = u64(POLL_NANOSECONDS) if polls else u64(FOREVER)
    while not is_reached:
        is_reached = sleep(events, count, limit)
        if not is_reached and poll_host(host, WAIT_SITE) != 0:
            return False
    return True


@native(inline=True)
def meetings_of(group: Group) -> EventCount:
    """The event count of a group."""
    return to(EventCount, address_of(group.meetings))


@native()
def reset_groups(groups: Groups) -> None:
    """Makes all groups empty: before the first run, and after one that did not end."""
    groups.stopped.store(0, MONOTONIC)
    groups.are_empty = 1
    for k in range(groups.count):
        group = to(Group, groups.first + k * Group.byte_size)
        group.arrived.store(0, MONOTONIC)
        reset(meetings_of(group))


@native()
def stop_groups(groups: Groups) -> None:
    """Stops the run: whoever waits for a member, or will, ends its program."""
    groups.stopped.store(1, SEQ_CST)
    for k in range(groups.count):
        advance(meetings_of(to(Group, groups.first + k * Group.byte_size)))


@native()
def move(move: Move, group: Group, position: u64) -> None:
    """Moves data to the results of the member at `position`."""
    target = array_of(group, position, move.target) + move.target_start
    if move.sender == NOBODY:
        memset(target, 0, move.size)
    elif move.sender != ALL:
        copy_memory(target, array_of(group, move.sender, move.source) + move.source_start, move.size)
    else:
        for block in range(move.blocks):
            receive_block(move, group, block, target + block * move.target_step)
        if move.is_for_all != 0:
            for member in range(group.members):
                if member != position:
                    copy_memory(array_of(group, member, move.target) + move.target_start, target, move.size)


@native(inline=True)
def receive_block(move: Move, group: Group, block: u64, target: Address) -> None:
    """Copies or reduces a block of all members."""
    for member in range(group.members):
        source = array_of(group, member, move.source) + move.source_start + block * move.source_step
        if member == 0 or move.reduction == null:
            copy_memory(target + member * move.member_step, source, move.size)
        else:
            to(Reduction, move.reduction)(source, target, address_of(move) + Move.layout["length"][0], null)


@native(inline=True)
def array_of(group: Group, member: u64, index: u64) -> Address:
    """The address of an operand or a result of a member."""
    return frame_of(group, member)[index]


@native(inline=True)
def frame_of(group: Group, member: u64) -> Array[u64]:
    """The frame of a member."""
    return group.frames.at(member * group.words)


@functools.cache
def local_exchange_address() -> int:
    """Returns the address of `hloom_exchange_locally`."""
    return native_code(exchange_locally).address("hloom_exchange_locally")
