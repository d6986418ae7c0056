"""Polls of the host by loops: native code that runs Python's signal handlers and asks the host whether to go on.

Python runs signal handlers before the first instruction of a callback, where nothing can catch the exceptions that they
raise. Therefore the handlers run here, and an exception is reported by a status.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import Address, Array, Structure, field, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, native
from hloom.backends.cpu.program.interface import AFTER_BLOCKS, BEFORE_BLOCK, IN_BLOCK, REQUEST_MASK
from hloom.system.python_api import c_address, python_function
from hloom.values import Array as Words

INTERRUPTED = 1
"""Status of a poll that stops the program."""


class Host(Structure):
    """Memory that `poll` uses: functions of Python's C interface, and the executable's `host_call`."""

    ensure: Callable[[], i32]
    check_signals: Callable[[], i32]
    fetch: Callable[[Address, Address, Address], None]
    release: Callable[[i32], i32]
    host_call: Callable[[Address, i64, i64, Address], i32]
    stops: u64
    """Whether a task of a loop was stopped, which stops all tasks of the loop."""
    request_id: i64
    """Identifier of the last host call; see `REQUEST_WORD`."""
    exchanges: Address
    """Address of the program's `Exchanges` if native code runs its collectives; null if Python does."""
    raised: Array[u64] = field(inline=(u64, 3))
    """Type, value and traceback of the exception that a signal handler raised, until the host takes it."""


@native(name="hloom_poll")
def poll(host: Host, site: i64, point: i64) -> i32:
    """Returns 0 if the program may go on. A task that is stopped also stops the other tasks of its loop."""
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
    """Runs Python's signal handlers and calls the host. Returns 0 if the program may go on."""
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
    """Returns the memory of a `Host`, as 64-bit words."""
    names = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
    addresses = [c_address(getattr(ctypes.pythonapi, name)) for name in names]
    return np.array([*addresses, host_call, 0, 1, 0, 0, 0, 0], np.uint64)


def take_raised(words: Words) -> BaseException | None:
    """Returns and clears the exception that a signal handler raised during a poll of this `Host`; None without one."""
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
def poll_address() -> int:
    """Returns the address of `hloom_poll`."""
    return native_code(poll).address("hloom_poll")
