"""A forked child finds no lock held by a thread that it lacks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from hloom.system.forks import new_lock
from hloom.system.lazy import cached_property

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
SECONDS = 20


def succeeds_in_child(use: Callable[[], bool]) -> bool:
    """Whether a forked child returns true from a function in time."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        os._exit(0 if use() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_computes_a_cached_property_that_another_thread_was_computing() -> None:
    begun, stop, parent = threading.Event(), threading.Event(), os.getpid()

    class Lazy:
        @cached_property
        def value(self) -> int:
            begun.set()
            if os.getpid() == parent:
                stop.wait()
            return 3

    thread = threading.Thread(target=lambda: Lazy().value)
    thread.start()
    begun.wait()
    assert succeeds_in_child(lambda: Lazy().value == 3)
    stop.set()
    thread.join()


def test_a_cached_property_is_computed_once_for_each_object() -> None:
    class Lazy:
        calls = 0

        @cached_property
        def value(self) -> int:
            """Documented."""
            self.calls += 1
            return self.calls

    one, other = Lazy(), Lazy()
    assert (one.value, one.value, other.value, one.calls) == (1, 1, 1, 1)
    assert Lazy.value.__doc__ == "Documented."


def test_a_child_finds_a_lock_free() -> None:
    lock, begun, stop = new_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            begun.set()
            stop.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    assert succeeds_in_child(lambda: lock.acquire(blocking=False))
    assert lock.locked()
    stop.set()
    thread.join()
    assert not lock.locked()
