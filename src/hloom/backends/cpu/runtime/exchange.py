"""What processes exchange, in native code: a step of the host that is a collective calls MPI's C interface itself.

`Exchanges` says for each site of the program which calls those are. Words of a call that are places in the step's
frame, or the place of a request, are put in before it; then native code asks after the requests, and from time to time
Python, which looks for word of ranks that failed, until all are done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.backends.cpu.llvm.machine_code import MachineCode
from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.threads import sched_yield
from hloom.backends.cpu.llvm.native.types import Address, Array, Structure, field, i32, i64, u32, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, load, native, stack, store, to
from hloom.backends.cpu.runtime.interrupts import Host

WORDS = 8
"""The most arguments that a call has."""
UNUSED = WORDS
"""The word of what is not put in."""
WAITS, REFUSED = 0, 1
"""What Python is told instead of the address of a frame: a request still waits; MPI refused a call."""
_MIN_YIELD_POLLS = 200
"""How often a request is asked before others get the processor."""
_HOST_POLL_MASK = 2047
"""How often, less one, until Python is asked."""
_STATUS_WORDS = 32
"""More than any MPI's status has."""


class Call(Structure):
    """A call of C, or the wait for the request of another one, `waits_for` less one.

    Of words `first_word` and `second_word` the frame has the value; `frame_word` is the frame itself, `request_word`
    the place of the request.
    """

    waits_for: u64
    function: Callable[[u64, u64, u64, u64, u64, u64, u64, u64], i32]
    words: Array[u64] = field(inline=(u64, WORDS))
    first_word: u64
    first_frame_index: u64
    second_word: u64
    second_frame_index: u64
    frame_word: u64
    request_word: u64


class SiteCalls(Structure):
    """What a site does: calls and waits, from `first` on and before `end`."""

    is_native: u64
    """0 where Python does it."""
    first: u64
    end: u64


class Exchanges(Structure):
    """All calls of a program; each has a request."""

    test: Callable[[Address, Address, Address], i32]
    broken: Array[u64]
    """Not 0 where ranks can no longer meet."""
    sites: Address
    calls: Address
    requests: Array[u64]


@native(name="hloom_exchange")
def exchange(host: Host, request_id: i64, site: i64, frame: Array[u64]) -> i32:
    """Takes the part of an executable's `host_call`; sites without calls of their own are Python's."""
    exchanges = to(Exchanges, host.exchanges)
    calls = to(SiteCalls, exchanges.sites + u64(site) * SiteCalls.byte_size)
    if calls.is_native == 0 or exchanges.broken[0] != 0:
        return host.host_call(address_of(host), request_id, site, address_of(frame))
    for k in range(calls.first, calls.end):
        call = to(Call, exchanges.calls + k * Call.byte_size)
        if call.waits_for != 0:
            if finish(host, exchanges, request_id, site, exchanges.requests.at(call.waits_for - 1)) != 0:
                return i32(0)
        elif start(call, frame, exchanges.requests.at(k)) != 0 and call.request_word != UNUSED:
            return host.host_call(address_of(host), request_id, site, Address(REFUSED))
    return i32(request_id)


@native()
def start(call: Call, frame: Array[u64], request: Array[u64]) -> i32:
    words = stack(WORDS + 1)
    copy_memory(address_of(words), address_of(call.words), WORDS << 3)
    words[call.first_word] = frame[call.first_frame_index]
    words[call.second_word] = frame[call.second_frame_index]
    words[call.frame_word] = address_of(frame)
    words[call.request_word] = address_of(request)
    function = call.function
    return function(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7])


@native()
def finish(host: Host, exchanges: Exchanges, request_id: i64, site: i64, request: Array[u64]) -> i32:
    """Waits for a request; not 0 where Python found a reason to stop."""
    done = stack(1)
    status = stack(_STATUS_WORDS)
    polls: u64 = 0
    while True:
        done[0] = 0
        if exchanges.test(address_of(request), address_of(done), address_of(status)) != 0:
            host.host_call(address_of(host), request_id, site, Address(REFUSED))
            return i32(1)
        if load(i32, address_of(done)) != 0:
            return i32(0)
        polls += 1
        if polls > _MIN_YIELD_POLLS:
            sched_yield()
        if polls & _HOST_POLL_MASK == 0 and host.host_call(address_of(host), request_id, site, Address(WAITS)) != i32(
            request_id
        ):
            return i32(1)


class Ragged(Structure):
    """A ragged exchange of rows: element i of an array of integers is about member i."""

    exchange: Callable[[Address, Address, Address, u64, Address, Address, Address, u64, u64, Address], i32]
    """MPI_Ialltoallv."""
    members: u64
    row_bytes: u64
    integer_bytes: u64
    operand_rows: u64
    result_rows: u64
    byte_type: u64
    comm: u64
    received_sizes: Address
    received_offsets: Address
    """Rows that come from each member, and where they go, as the members said."""
    counts: Address
    """Four arrays of i32: bytes to send and where they start, bytes to receive and where they start."""


@native(name="hloom_ragged")
def exchange_ragged(frame: Array[u64], ragged: Ragged, request: Address) -> i32:
    """Starts the exchange; not 0 where rows lie outside of the arrays. The frame has operand, output, input offsets,
    sizes, output offsets, sizes to receive, result."""
    for k in range(ragged.members):
        at = k * ragged.integer_bytes
        start, size = integer(frame[2] + at, ragged.integer_bytes), integer(frame[3] + at, ragged.integer_bytes)
        target = integer(frame[4] + at, ragged.integer_bytes)
        if max(start, size) > ragged.operand_rows or start + size > ragged.operand_rows:
            return i32(1)
        if target > ragged.result_rows or target + size > ragged.result_rows:
            return i32(1)
        received_size = integer(ragged.received_sizes + at, ragged.integer_bytes)
        received_offset = integer(ragged.received_offsets + at, ragged.integer_bytes)
        store(i32, ragged.counts + (k << 2), i32(size * ragged.row_bytes))
        store(i32, ragged.counts + ((ragged.members + k) << 2), i32(start * ragged.row_bytes))
        store(i32, ragged.counts + ((2 * ragged.members + k) << 2), i32(received_size * ragged.row_bytes))
        store(i32, ragged.counts + ((3 * ragged.members + k) << 2), i32(received_offset * ragged.row_bytes))
    line = ragged.members << 2
    counts = ragged.counts
    function = ragged.exchange
    return function(
        frame[0], counts, counts + line, ragged.byte_type,
        frame[6], counts + 2 * line, counts + 3 * line, ragged.byte_type, ragged.comm, request,
    )  # fmt: skip


@native()
def integer(address: Address, size: u64) -> u64:
    """A number of an array; negative ones are larger than any size."""
    if size == 8:
        return load(u64, address)
    return u64(load(u32, address))


@functools.cache
def _code() -> MachineCode:
    return native_code(exchange, exchange_ragged)


def exchange_address() -> int:
    """The address of `hloom_exchange`."""
    return _code().address("hloom_exchange")


def ragged_address() -> int:
    """The address of `hloom_ragged`."""
    return _code().address("hloom_ragged")
