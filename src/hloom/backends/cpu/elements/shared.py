"""Shared functions: parts of a program, and of all programs, that LLVM compiles once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hloom.backends.cpu.llvm.processor import Processor, processor
from hloom.lir import Builder, Function


def shared(unwritten: Function, write: Callable[[], Builder], calls: Iterable[Function] = ()) -> Function:
    """Returns the shared function with the head of `unwritten`, whose name says all that its code depends on.

    It is written once, by `write`, and not at all if its machine code is kept on disk; it calls only shared `calls`.
    """
    key = processor(), unwritten.name
    if key not in _shared:
        unwritten.is_shared = unwritten.is_exported = True
        unwritten.needs.update((callee.name, callee) for callee in calls)
        unwritten.write = lambda: write().finish()
        _shared[key] = unwritten
    return _shared[key]


_shared: dict[tuple[Processor, str], Function] = {}
"""Shared functions by processor and name."""
