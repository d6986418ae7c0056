"""Events that the framework waits for. Almost all of them are a single event that is always ready.

Events never carry errors: an operation that fails returns its error from the call.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from hloom.pjrt.handlers import implements
from hloom.pjrt.records import new_record, objects, set_word

_ON_READY = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)


@functools.cache
def ready_event() -> int:
    """Handle of the event that is always ready, which native code handles."""
    return new_record("Event", None, is_immortal=True, is_ready=1)


class Event:
    """An event that Python signals once, from any thread."""

    def __init__(self) -> None:
        self.handle = new_record("Event", self)
        self._happened = threading.Event()
        self._callbacks: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def signal(self) -> None:
        """Marks the event as ready and calls the registered callbacks."""
        with self._lock:
            # The framework may have destroyed its handle, and another object may have it now.
            if objects.get(self.handle) is self:
                set_word("Event", self.handle, "is_ready", 1)
            self._happened.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback, argument in callbacks:
            _ON_READY(callback)(0, argument)

    def wait(self) -> None:
        """Blocks until the event is ready."""
        self._happened.wait()

    def call_when_ready(self, callback: int, argument: int) -> None:
        """Calls the C function at `callback` with no error and `argument` once the event is ready, possibly at once."""
        with self._lock:
            if not self._happened.is_set():
                self._callbacks.append((callback, argument))
                return
        _ON_READY(callback)(0, argument)


@implements("Event_Await")
def _await(arguments: Any) -> None:
    objects[arguments.event].wait()


@implements("Event_OnReady")
def _on_ready(arguments: Any) -> None:
    objects[arguments.event].call_when_ready(arguments.callback, arguments.user_arg)
