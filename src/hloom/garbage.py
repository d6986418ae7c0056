"""Python's collector of garbage while modules are read and compiled, which makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_inside = False
"""Whether a caller has set objects at rest. (Python counts them one by one: with a framework that takes 10 ms.)"""

_NEW_OBJECTS = 100_000
"""That the collector waits for."""


@contextmanager
def older_objects_at_rest() -> Iterator[None]:
    """Objects from before are not looked at by the collector meanwhile: with a framework, they are many.

    What arises inside is collected, but less often: most of it stays. Where somebody has set objects at rest already,
    nothing happens.
    """
    global _inside
    if _inside or gc.get_freeze_count():
        yield
        return
    _inside = True
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(before[0], _NEW_OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        _inside = False
