"""Events that the framework waits for. Almost all of them are a single event that is always ready.

Operations that fail return their error from the call; only buffers that a client gives an error have events with one.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

from hloom.pjrt.handlers import implements, make_error
from hloom.pjrt.records import new_record, objects, set_word

_ON_READY = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)


@functools.cache
def ready_event() -> int:
    """Handle of the event that is always ready, which native code handles."""
    return new_record("Event", None, is_immortal=True, is_ready=1)


class Completion:
    """Something that happens once, in any thread, or fails."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._happened = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def signal(self, error: Exception | None = None) -> None:
        """Says that it has happened, or failed, and calls the registered callbacks."""
        with self._lock:
            self.error = error
            self._happened.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def wait(self) -> None:
        """Blocks until it has happened; raises its error."""
        self._happened.wait()
        if self.error is not None:
            raise self.error

    def then(self, callback: Callable[[], None]) -> None:
        """Calls a function once it has happened, possibly at once."""
        with self._lock:
            if not self._happened.is_set():
                self._callbacks.append(callback)
                return
        callback()


class Event(Completion):
    """A completion with a handle."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = new_record("Event", self)

    def signal(self, error: Exception | None = None) -> None:
        # The framework may have destroyed its handle, and another object may have it now.
        if objects.get(self.handle) is self:
            set_word("Event", self.handle, "is_ready", 1)
        super().signal(error)

    def call_when_ready(self, callback: int, argument: int) -> None:
        """Calls the C function at `callback` with the error and `argument` once it is ready, possibly at once."""
        self.then(lambda: _ON_READY(callback)(0 if self.error is None else make_error(self.error), argument))


@implements("Event_Error")
def _error(arguments: Any) -> None:
    error = objects[arguments.event].error
    if error is not None:
        raise error


@implements("Event_Await")
def _await(arguments: Any) -> None:
    objects[arguments.event].wait()


@implements("Event_OnReady")
def _on_ready(arguments: Any) -> None:
    objects[arguments.event].call_when_ready(arguments.callback, arguments.user_arg)
