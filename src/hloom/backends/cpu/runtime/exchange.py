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
from hloom.backends.cpu.llvm.native.types import Address, Array, Structure, field, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, external, load, native, stack, to
from hloom.backends.cpu.runtime.interrupts import Host

WORDS = 8
"""The most arguments that a call has."""
NOWHERE = WORDS
"""The word of what is not put in."""
WAITS, REFUSED = 0, 1
"""What Python is told instead of the address of a frame: a request still waits; MPI refused a call."""
_SPINS = 200
"""How often a request is asked before others get the processor."""
_LOOKS = 2047
"""How often, less one, until Python is asked."""
_STATUS_WORDS = 32
"""More than any MPI's status has."""

sched_yield = external("sched_yield", i32)


class Call(Structure):
    """A call of C: of words `first_word` and `second_word` the frame has the value, of `request_word` the request."""

    function: Callable[[u64, u64, u64, u64, u64, u64, u64, u64], i32]
    words: Array[u64] = field(inline=(u64, WORDS))
    first_word: u64
    first_place: u64
    second_word: u64
    second_place: u64
    request_word: u64


class Place(Structure):
    """What a site does: it makes calls and waits for requests, from `first` on and before `end`."""

    is_native: u64
    """0 where Python does it."""
    first_call: u64
    end_call: u64
    first_request: u64
    end_request: u64


class Exchanges(Structure):
    """All calls of a program; each has a request."""

    test: Callable[[Address, Address, Address], i32]
    broken: Array[u64]
    """Not 0 where ranks can no longer meet."""
    places: Address
    calls: Address
    requests: Array[u64]


@native(name="hloom_exchange")
def exchange(host: Host, answer: i64, site: i64, frame: Array[u64]) -> i32:
    """Takes the part of an executable's `host_call`; sites without calls of their own are Python's."""
    exchanges = to(Exchanges, host.exchanges)
    place = to(Place, exchanges.places + u64(site) * Place.byte_size)
    if place.is_native == 0 or exchanges.broken[0] != 0:
        return host.host_call(address_of(host), answer, site, address_of(frame))
    for k in range(place.first_call, place.end_call):
        call = to(Call, exchanges.calls + k * Call.byte_size)
        status = start(call, frame, exchanges.requests.at(k))
        if status != 0 and call.request_word != NOWHERE:
            return host.host_call(address_of(host), answer, site, Address(REFUSED))
    for j in range(place.first_request, place.end_request):
        made = to(Call, exchanges.calls + j * Call.byte_size)
        if made.request_word != NOWHERE and finish(host, exchanges, answer, site, exchanges.requests.at(j)) != 0:
            return i32(0)
    return i32(answer)


@native()
def start(call: Call, frame: Array[u64], request: Array[u64]) -> i32:
    words = stack(WORDS + 1)
    copy_memory(address_of(words), address_of(call.words), WORDS << 3)
    words[call.first_word] = frame[call.first_place]
    words[call.second_word] = frame[call.second_place]
    words[call.request_word] = address_of(request)
    function = call.function
    return function(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7])


@native()
def finish(host: Host, exchanges: Exchanges, answer: i64, site: i64, request: Array[u64]) -> i32:
    """Waits for a request; not 0 where Python found a reason to stop."""
    done = stack(1)
    status = stack(_STATUS_WORDS)
    asked: u64 = 0
    while True:
        done[0] = 0
        if exchanges.test(address_of(request), address_of(done), address_of(status)) != 0:
            host.host_call(address_of(host), answer, site, Address(REFUSED))
            return i32(1)
        if load(i32, address_of(done)) != 0:
            return i32(0)
        asked += 1
        if asked > _SPINS:
            sched_yield()
        if asked & _LOOKS == 0 and host.host_call(address_of(host), answer, site, Address(WAITS)) != i32(answer):
            return i32(1)


@functools.cache
def _code() -> MachineCode:
    return native_code(exchange)


def exchange_address() -> int:
    """The address of `hloom_exchange`."""
    return _code().address("hloom_exchange")
