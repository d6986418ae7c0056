"""Tuning of Python's garbage collector while modules are read and compiled, which allocates many objects."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hloom.system.forks import at_fork
from hloom.system.machine import release_freed_memory

_inside = threading.Lock()
"""Held while the older objects are frozen. (`gc.get_freeze_count` counts one by one: 10 ms once a framework is
loaded.)
"""

_NEW_OBJECTS = 100_000
"""The number of allocations that trigger a collection while older objects are frozen."""
_usual = gc.get_threshold()
"""The collector's thresholds outside `older_objects_frozen`."""
_unseen = 0
"""Objects, at most, that have become old since all of them were collected."""
_old = 0
"""Objects that were old when they were last counted."""


@contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Context manager that excludes existing objects from garbage collection: a loaded framework has many.

    Objects allocated inside are collected, but less often, because most of them survive. Nested or concurrent use has
    no effect. Must be used in shielded functions: an interrupt could leave the collector frozen.

    Frozen objects are old afterwards, and Python collects old ones only when enough have become old by surviving
    collections. All are therefore collected here, as Python would, once a quarter of them are new. The memory of freed
    programs is then scattered over the heaps of the threads that compiled them, and goes back to the system.
    """
    global _usual, _unseen
    if _inside.locked() or gc.get_freeze_count() or not _inside.acquire(blocking=False):
        yield
        return
    _usual = gc.get_threshold()
    _unseen += _young_objects(_usual[0])
    gc.freeze()
    if _usual[0] and _is_collection_due():
        gc.unfreeze()
        gc.collect()
        release_freed_memory()
        gc.freeze()
        _unseen = 0
    gc.set_threshold(max(_usual[0], _NEW_OBJECTS) if _usual[0] else 0, *_usual[1:])
    try:
        yield
    finally:
        _leave()


@functools.cache
def freeze_imported() -> None:
    """Freezes what was allocated since older objects were, when it is first called: imported code, which lasts.

    Otherwise Python would look for garbage in it afterwards, which takes longer than compiling a small program.
    """
    if _inside.locked():
        gc.freeze()


def _is_collection_due() -> bool:
    """Whether a quarter of the frozen objects have not been seen by a full collection."""
    global _old
    if _unseen > _NEW_OBJECTS and 4 * _unseen > _old:
        _old = gc.get_freeze_count()
        return 4 * _unseen > _old
    return False


def _young_objects(threshold: int) -> int:
    """The number of young objects, at most, with a threshold of the collector."""
    allocated, collections, _ = gc.get_count()
    return allocated + collections * threshold


def _leave() -> None:
    global _unseen
    _unseen += _young_objects(gc.get_threshold()[0])
    gc.freeze()  # or Python would look for garbage among the young objects at once: 2 % of a compilation
    gc.set_threshold(*_usual)
    gc.unfreeze()
    _inside.release()


def _in_child() -> None:
    """Unfreezes in a forked child, which lacks the thread that would."""
    if _inside.locked():
        _leave()


at_fork(after_in_child=_in_child)
