"""Access to CPython's C API through ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, TypeVar

T = TypeVar("T")


def python_function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of CPython's C API with these result and argument types, called with the GIL held."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def c_address(function: Any) -> int:
    """The address of a ctypes function; 0 for a null pointer."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def immortal(thing: T) -> T:
    """Keeps an object alive until the process ends, since native code uses its memory even after Python has
    finalized.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
