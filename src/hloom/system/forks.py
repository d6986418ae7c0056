"""Functions that are called around forks, and locks that survive them.

Apart from `machine`, since `import hloom` needs them, and little else.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks = weakref.WeakSet[Any]()


def at_fork(
    before: Callable[[], Any] = lambda: None,
    after_in_parent: Callable[[], Any] = lambda: None,
    after_in_child: Callable[[], Any] = lambda: None,
) -> None:
    """Registers functions that are called around forks, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


def new_lock() -> threading.Lock:
    """Returns a lock that a forked child finds free, since the child lacks the thread that held it.

    Whatever the lock protects must be valid at any time. A thread that forks while it holds the lock must not release
    it in the child.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _release_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


at_fork(after_in_child=_release_all)
