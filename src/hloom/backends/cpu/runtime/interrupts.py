"""Whether a program that loops may go on: Python's signals are handled, and the host is asked, in native code.

Python's handlers run before the first instruction of any function that is called back, where nothing can catch what
they raise; so the handlers run here, and what they raise is told by a status.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from hloom.backends.cpu.llvm.machine_code import MachineCode
from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import Address, Array, Structure, field, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, native
from hloom.backends.cpu.program.interface import AFTER_BLOCKS, BEFORE_BLOCK, IN_BLOCK, REQUEST_MASK
from hloom.runtime.python_api import c_address, python_function
from hloom.values import Array as Words

INTERRUPTED = 1


class Host(Structure):
    """What a loop asks: functions of Python's C interface, and the executable's `host_call`."""

    ensure: Callable[[], i32]
    check_signals: Callable[[], i32]
    fetch: Callable[[Address, Address, Address], None]
    release: Callable[[i32], i32]
    host_call: Callable[[Address, i64, i64, Address], i32]
    stops: u64
    """Whether a block of a loop was told to stop: all its blocks must."""
    request_id: i64
    """See `REQUEST_WORD`."""
    exchanges: Address
    """The `Exchanges` of a program whose collectives are native code's; null where they are Python's."""
    raised: Array[u64] = field(inline=(u64, 3))
    """The type, value and traceback of the error that a handler raised, until the host takes them."""


@native(name="hloom_poll")
def poll(host: Host, site: i64, point: i64) -> i32:
    """0 where the program may go on. What stops a block of a loop stops those that run beside and after it too."""
    if point == BEFORE_BLOCK:
        return i32(host.stops)
    if point == AFTER_BLOCKS:
        stops = host.stops
        host.stops = 0
        return i32(stops)
    if point == IN_BLOCK and host.stops != 0:
        return INTERRUPTED
    status = poll_host(host, site)
    if point == IN_BLOCK and status != 0:
        host.stops = 1
    return status


@native(inline=True)
def poll_host(host: Host, site: i64) -> i32:
    state = host.ensure()
    raised = host.check_signals()
    if raised != 0:
        raised_words = address_of(host.raised)
        host.fetch(raised_words, raised_words + 8, raised_words + 16)
    host.release(state)
    if raised != 0:
        return INTERRUPTED
    host.request_id = host.request_id + 2
    request_id = host.request_id & REQUEST_MASK
    if host.host_call(address_of(host), request_id, site, Address(0)) != i32(request_id):
        return INTERRUPTED
    return i32(0)


def host(host_call: int) -> Words:
    """The memory of a `Host`."""
    names = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
    addresses = [c_address(getattr(ctypes.pythonapi, name)) for name in names]
    return np.array([*addresses, host_call, 0, 1, 0, 0, 0, 0], np.uint64)


def take_raised(words: Words) -> BaseException | None:
    """The error that a signal's handler raised while the program that polls this `Host` ran."""
    raised = words[_RAISED : _RAISED + 3].tolist()
    words[_RAISED : _RAISED + 3] = 0
    if not raised[0]:
        return None
    try:
        _restore(*raised)
    except BaseException as error:
        return error
    raise AssertionError("Python raises what is restored")


_RAISED = Host.layout["raised"][0] // 8
_restore = python_function("PyErr_Restore", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@functools.cache
def _code() -> MachineCode:
    return native_code(poll)


def poll_address() -> int:
    """The address of `hloom_poll`."""
    return _code().address("hloom_poll")
