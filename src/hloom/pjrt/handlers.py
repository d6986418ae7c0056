"""Registry of the PJRT functions that are implemented in Python, and the translation of exceptions to PJRT_Error."""

from __future__ import annotations

import ctypes
import functools
import traceback
from collections.abc import Callable
from typing import Any

from hloom.errors import HloomError, ResourceExhaustedError, RunError
from hloom.pjrt.records import new_record
from hloom.system.python_api import immortal

HANDLERS: dict[str, Callable[[Any], None]] = {}
"""Handlers by function name without `PJRT_`. A handler takes the argument structure and fills in its outputs."""

FAILED_PRECONDITION = 9
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _ABORTED, _UNIMPLEMENTED, _INTERNAL = 3, 8, 10, 12, 13


def implements(name: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Decorator that registers a function as the implementation of `PJRT_<name>`."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        HANDLERS[name] = function
        return function

    return register


class PjrtError(Exception):
    """Carries the handle of an existing PJRT_Error, for example one that native code returned."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.handle = handle


class StatusError(Exception):
    """An error with a code that the client has chosen."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def make_error(error: BaseException) -> int:
    """Returns the handle of a PJRT_Error for an exception. Unexpected exceptions include their traceback."""
    if isinstance(error, PjrtError):
        return error.handle
    code = _INTERNAL
    message = str(error)
    if isinstance(error, StatusError):
        code = error.code
    elif isinstance(error, (MemoryError, ResourceExhaustedError)):
        code = _RESOURCE_EXHAUSTED
    elif isinstance(error, HloomError) and not isinstance(error, RunError):
        code = _INVALID_ARGUMENT
    elif isinstance(error, NotImplementedError):
        code = _UNIMPLEMENTED
    elif isinstance(error, KeyboardInterrupt):
        code, message = _ABORTED, "the run was interrupted (Ctrl-C)"
    elif not isinstance(error, (HloomError, StatusError)):
        message = "a defect in hloom: " + "".join(traceback.format_exception(error))
    encoded = message.encode()
    return new_record("Error", encoded, message=address_of(encoded), message_size=len(encoded), code=code)


def address_of(content: bytes) -> int:
    """Address of the contents of a bytes object, which the caller must keep alive."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


@functools.cache
def immortal_text(text: str) -> tuple[int, int]:
    """Address and length in bytes of a UTF-8 copy of a text that is never freed."""
    encoded = immortal(text.encode())
    return address_of(encoded), len(encoded)


def immortal_words(values: list[int]) -> int:
    """Address of an array of 64-bit words that is never freed."""
    return ctypes.addressof(immortal((ctypes.c_uint64 * max(1, len(values)))(*values)))


def read_words(address: int, count: int) -> list[int]:
    """Reads `count` unsigned 64-bit words (handles, sizes) at an address."""
    return (ctypes.c_uint64 * count).from_address(address)[:] if count else []


def read_integers(address: int, count: int) -> list[int]:
    """Reads `count` signed 64-bit integers (dimensions, strides) at an address."""
    return (ctypes.c_int64 * count).from_address(address)[:] if count else []
