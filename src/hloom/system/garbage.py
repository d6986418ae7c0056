"""Tuning of Python's garbage collector while modules are read and compiled, which allocates many objects."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_inside = threading.Lock()
"""Held while the older objects are frozen. (`gc.get_freeze_count` counts one by one: 10 ms once a framework is
loaded.)
"""

_NEW_OBJECTS = 100_000
"""The number of allocations that trigger a collection while older objects are frozen."""
_usual = gc.get_threshold()
"""The collector's thresholds outside `older_objects_frozen`."""


@contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Context manager that excludes existing objects from garbage collection: a loaded framework has many.

    Objects allocated inside are collected, but less often, because most of them survive. Nested or concurrent use has
    no effect. Must be used in shielded functions: an interrupt could leave the collector frozen.
    """
    global _usual
    if _inside.locked() or gc.get_freeze_count() or not _inside.acquire(blocking=False):
        yield
        return
    _usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(_usual[0], _NEW_OBJECTS) if _usual[0] else 0, *_usual[1:])
    try:
        yield
    finally:
        _leave()


def _leave() -> None:
    gc.set_threshold(*_usual)
    gc.unfreeze()
    _inside.release()


def _in_child() -> None:
    """Unfreezes in a forked child, which lacks the thread that would."""
    if _inside.locked():
        _leave()


os.register_at_fork(after_in_child=_in_child)
