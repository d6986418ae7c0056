"""Python's collector of garbage while a compilation makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_inside = False
"""Whether a caller has set objects at rest. (Python counts them one by one: with a framework that takes 10 ms.)"""


@contextmanager
def older_objects_at_rest() -> Iterator[None]:
    """Objects from before are not looked at by the collector meanwhile: with a framework, they are many.

    What arises inside is collected as ever. Where somebody has set objects at rest already, nothing happens.
    """
    global _inside
    if _inside or gc.get_freeze_count():
        yield
        return
    _inside = True
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _inside = False
