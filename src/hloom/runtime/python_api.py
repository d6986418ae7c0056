"""Python's own C functions, by ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

T = TypeVar("T")


def python_function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface that takes and gives these types; Python's lock stays held."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def c_address(function: Any) -> int:
    """Where the code of a ctypes function is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def immortal(thing: T) -> T:
    """Keeps an object to the very end of the process: others use its memory even after Python has ended."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
