"""The floating-point environment of Python code: subnormals are kept, and results rounded to nearest.

A thread may have another environment: XLA's compiler sets flush-to-zero around callbacks, and loading a library that
was linked with `-ffast-math` sets it permanently. Compiled programs set theirs (`backends/cpu/llvm/float_state.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

from hloom.system.machine import C_LIBRARY

_Environment = ctypes.c_uint64 * 8
"""A buffer for `fenv_t`, large enough for any C library."""
_CONTROLLED, _MASKED = 0x0308031F, 0x0008001F
"""The bits of `_control87` for subnormals, rounding and exceptions; those that mask all exceptions, the default."""


@contextlib.contextmanager
def ieee_floats() -> Iterator[None]:
    """Context manager, and decorator, that sets the default environment of IEEE 754 on this thread (GEN-7).

    The previous environment is restored at the end.
    """
    enter, leave = _environment()
    before = enter()
    try:
        yield
    finally:
        leave(before)


@functools.cache
def _environment() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """The function that sets the default environment and returns the previous one, and the one that restores that.

    They call the C library without releasing the GIL. Windows has functions of its own.
    """
    library = ctypes.PyDLL(C_LIBRARY)
    if hasattr(library, "_control87"):
        return _control_word_functions(library._control87)
    default = ctypes.c_void_p(-1)
    if hasattr(library, "_FE_DFL_ENV"):
        default = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, "_FE_DFL_ENV")))

    def enter() -> Any:
        before = _Environment()
        library.fegetenv(before)
        library.fesetenv(default)
        return before

    return enter, library.fesetenv


def _control_word_functions(control: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Returns the functions of Windows, which return the state that they leave."""

    def enter() -> Any:
        before = control(0, 0)
        control(_MASKED, _CONTROLLED)
        return before

    return enter, lambda before: control(before, _CONTROLLED)
