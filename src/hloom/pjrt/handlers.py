"""The Python functions that answer the framework, by name, and what becomes of their exceptions."""

from __future__ import annotations

import ctypes
import functools
import traceback
from collections.abc import Callable
from typing import Any

from hloom.errors import HloomError, ResourceExhaustedError, RunError
from hloom.pjrt.records import new_record
from hloom.runtime.python_api import immortal

HANDLERS: dict[str, Callable[[Any], None]] = {}
"""Function name -> Python function of the structure of its arguments; it fills in the outputs."""

_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _ABORTED, _UNIMPLEMENTED, _INTERNAL = 3, 8, 10, 12, 13


def implements(name: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Marks the function that answers `PJRT_<name>`."""

    def mark(function: Callable[[Any], None]) -> Callable[[Any], None]:
        HANDLERS[name] = function
        return function

    return mark


class PjrtError(Exception):
    """An error of the interface that native code or another function has made already."""

    def __init__(self, handle: int) -> None:
        super().__init__(handle)
        self.handle = handle


def make_error(error: BaseException) -> int:
    """The handle of a PJRT_Error: hloom's own errors by their message, defects with the place where they arose."""
    if isinstance(error, PjrtError):
        return error.handle
    code = _INTERNAL
    message = str(error)
    if isinstance(error, (MemoryError, ResourceExhaustedError)):
        code = _RESOURCE_EXHAUSTED
    elif isinstance(error, HloomError) and not isinstance(error, RunError):
        code = _INVALID_ARGUMENT
    elif isinstance(error, NotImplementedError):
        code = _UNIMPLEMENTED
    elif isinstance(error, KeyboardInterrupt):
        code, message = _ABORTED, "the run was interrupted (Ctrl-C)"
    elif not isinstance(error, HloomError):
        message = "a defect in hloom: " + "".join(traceback.format_exception(error))
    encoded = message.encode()
    return new_record("Error", encoded, message=address_of(encoded), message_size=len(encoded), code=code)


def address_of(content: bytes) -> int:
    """The address of the content of bytes that live as long as it is used."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


@functools.cache
def immortal_text(text: str) -> tuple[int, int]:
    """The address and the length of a text that never goes away."""
    encoded = immortal(text.encode())
    return address_of(encoded), len(encoded)


def immortal_words(values: list[int]) -> int:
    """The address of an array of 64-bit words that never goes away."""
    return ctypes.addressof(immortal((ctypes.c_uint64 * max(1, len(values)))(*values)))


def read_words(address: int, count: int) -> list[int]:
    """`count` unsigned 64-bit words: handles, sizes."""
    return (ctypes.c_uint64 * count).from_address(address)[:] if count else []


def read_integers(address: int, count: int) -> list[int]:
    """`count` signed 64-bit integers: dimensions, strides."""
    return (ctypes.c_int64 * count).from_address(address)[:] if count else []
