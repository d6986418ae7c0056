"""Runs collectives between processes in native code: host steps that call MPI's C interface.

`Exchanges` holds the calls of each site of a program. Some arguments of a call are pointers from the step's frame or
the address of its request, filled in before the call. Then native code polls the requests until all are done, and from
time to time calls Python, which checks for error reports of other ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.threads import sched_yield
from hloom.backends.cpu.llvm.native.types import Address, Array, Structure, field, i32, i64, u32, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, load, native, stack, store, to
from hloom.backends.cpu.runtime.interrupts import Host

WORDS = 8
"""Maximum number of arguments of a call."""
UNUSED = WORDS
"""Index for words that are not filled in: one past the arguments."""
WAITS, REFUSED = 0, 1
"""Codes passed to Python in place of a frame's address: a request is still pending; MPI refused a call."""
_MIN_YIELD_POLLS = 200
"""Number of polls of a request before the thread yields the processor."""
_HOST_POLL_MASK = 2047
"""Python is called when the number of polls is 0 under this mask."""
_STATUS_WORDS = 32
"""Upper bound on the size of MPI_Status in any implementation, in words."""


class Call(Structure):
    """Call of a C function, or a wait for the request of call `waits_for` - 1.

    Arguments `first_word` and `second_word` are filled with pointers of the frame, `frame_word` with the address of the
    frame, `request_word` with that of the request.
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
    """Calls and waits of a site: those with indices from `first` up to `end`, exclusive."""

    is_native: u64
    """0 if Python evaluates the site."""
    first: u64
    end: u64


class Exchanges(Structure):
    """All calls of a program; each has a request."""

    test: Callable[[Address, Address, Address], i32]
    broken: Array[u64]
    """Nonzero if ranks can no longer communicate."""
    sites: Address
    calls: Address
    requests: Array[u64]


@native(name="hloom_exchange")
def exchange(host: Host, request_id: i64, site: i64, frame: Array[u64]) -> i32:
    """Replaces an executable's `host_call`; calls Python for sites without calls of their own."""
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
    """Makes a call with the pointers of the frame, and returns its status."""
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
    """Waits for a request. Returns nonzero if Python stopped the program."""
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
    """Ragged exchange of rows; element i of the integer arrays is for member i."""

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
    """Number of rows received from each member, and their offsets, as sent by the members."""
    counts: Address
    """Four i32 arrays: bytes to send and their offsets, bytes to receive and their offsets."""


@native(name="hloom_ragged")
def exchange_ragged(frame: Array[u64], ragged: Ragged, request: Address) -> i32:
    """Starts a ragged exchange. Returns nonzero if rows lie outside of the arrays.

    The frame holds operand, output, input offsets, send sizes, output offsets, receive sizes and result.
    """
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
    """Loads an integer of `size` bytes; negative ones are larger than any size."""
    if size == 8:
        return load(u64, address)
    return u64(load(u32, address))


@functools.cache
def exchange_address() -> int:
    """Returns the address of `hloom_exchange`."""
    return native_code(exchange).address("hloom_exchange")


@functools.cache
def ragged_address() -> int:
    """Returns the address of `hloom_ragged`."""
    return native_code(exchange_ragged).address("hloom_ragged")
