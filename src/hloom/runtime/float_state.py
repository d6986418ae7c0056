"""IEEE's floating-point state for what runs in Python: subnormal numbers are kept, results rounded to nearest.

A thread may come with another state: XLA's compiler sets flush-to-zero around callbacks, and loading a library that was
linked with `-ffast-math` sets it for good. Compiled programs look for themselves (`backends/cpu/llvm/float_state.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

_Environment = ctypes.c_uint64 * 8
"""At least what `fenv_t` of any C library takes."""


@contextlib.contextmanager
def ieee_floats() -> Iterator[None]:
    """This thread computes as IEEE 754 has it by default (GEN-7); afterwards its state is what it was.

    A decorator of functions, too.
    """
    library, default = _environment()
    before = _Environment()
    library.fegetenv(before)
    library.fesetenv(default)
    try:
        yield
    finally:
        library.fesetenv(before)


@functools.cache
def _environment() -> tuple[Any, ctypes.c_void_p]:
    """C's `fenv.h`, called without releasing Python's lock, and the address that stands for the default environment."""
    library = ctypes.PyDLL(None)
    if hasattr(library, "_FE_DFL_ENV"):
        return library, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, "_FE_DFL_ENV")))
    return library, ctypes.c_void_p(-1)
