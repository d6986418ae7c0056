"""Python's collector of garbage while modules are read and compiled, which makes many objects."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_inside = threading.Lock()
"""Held while a caller has set objects at rest. (Python counts them one by one: with a framework that takes 10 ms.)"""

_NEW_OBJECTS = 100_000
"""That the collector waits for."""
_usual = gc.get_threshold()
"""The thresholds outside."""


@contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Objects from before are not looked at by the collector meanwhile: with a framework, they are many.

    What arises inside is collected, but less often: most of it stays. Where somebody has set objects at rest already,
    nothing happens. For shielded functions: an interrupt may leave the collector as it is inside.
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
    """The thread that was inside is not there to leave."""
    if _inside.locked():
        _leave()


os.register_at_fork(after_in_child=_in_child)
