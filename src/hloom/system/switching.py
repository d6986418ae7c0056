"""The time for which a Python thread keeps Python's lock while others wait for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hloom.system.forks import new_lock

SECONDS = 0.0005
"""The time while threads run foreign code in turns with Python; Python's own is ten times as long."""
_lock = new_lock()
_users = 0
_usual = sys.getswitchinterval()
"""The time outside of `prompt_switching`."""


@contextmanager
def prompt_switching() -> Iterator[None]:
    """Context manager in which threads that return from foreign code wait for Python's lock for a short time only."""
    global _users, _usual
    with _lock:
        if not _users:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(SECONDS, _usual))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                sys.setswitchinterval(_usual)
