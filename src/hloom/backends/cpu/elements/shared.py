"""Shared functions: parts of a program, and of all programs, that LLVM compiles once."""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.llvm.processor import Processor, processor
from hloom.lir import Builder, Function


def shared(name: str, write: Callable[[], Builder], unwritten: Function | None = None) -> Function:
    """Returns the shared function of a name, which says all that its code depends on; it is written once.

    Where `unwritten` is given, the function without instructions, these are written when they are needed.
    """
    key = processor(), name
    if key not in _shared:
        function = unwritten or write().finish()
        function.is_shared = function.is_exported = True
        function.write = (lambda: write().finish()) if unwritten else None
        _shared[key] = function
    return _shared[key]


_shared: dict[tuple[Processor, str], Function] = {}
"""Shared functions by processor and name."""
