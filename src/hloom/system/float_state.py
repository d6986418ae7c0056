"""The floating-point environment of Python code: subnormals are kept, and results rounded to nearest.

A thread may have another environment: XLA's compiler sets flush-to-zero around callbacks, and loading a library that
was linked with `-ffast-math` sets it permanently. Compiled programs set theirs (`backends/cpu/llvm/float_state.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

_Environment = ctypes.c_uint64 * 8
"""A buffer for `fenv_t`, large enough for any C library."""


@contextlib.contextmanager
def ieee_floats() -> Iterator[None]:
    """Context manager, and decorator, that sets the default environment of IEEE 754 on this thread (GEN-7).

    The previous environment is restored at the end.
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
    """The C library, called without releasing the GIL, and the address of `FE_DFL_ENV`."""
    library = ctypes.PyDLL(None)
    if hasattr(library, "_FE_DFL_ENV"):
        return library, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, "_FE_DFL_ENV")))
    return library, ctypes.c_void_p(-1)
