"""Work that signals do not interrupt, and that is suspended when the process forks or exits.

Python runs signal handlers on the main thread, between any two bytecodes. An exception that Ctrl-C raises there could
leave a lock held, or an LLVM object partially built. Therefore modules are read and compiled, and LLVM is called, only
on other threads. The main thread waits, and a signal interrupts only the waiting: the work is abandoned and ends at its
next checkpoint.

A forked child has one thread, and its locks are in the state that they had at the fork. Therefore a fork waits until
the work of other threads is at a checkpoint, where it holds no lock that others need, and until no other thread imports
a module, for which the child would wait forever; so does the exit of the process, which shuts down LLVM.
"""

from __future__ import annotations

import _thread
import atexit
import contextvars
import functools
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

from hloom.errors import ResourceExhaustedError, RunError
from hloom.system.float_state import ieee_floats
from hloom.system.forks import at_fork, new_lock

P = ParamSpec("P")
T = TypeVar("T")

FORK_TIMEOUT_SECONDS = 10.0
"""The time that a fork, or the exit, waits for work on other threads, in seconds."""
WAIT_SECONDS = 1.0
"""The time after which the main thread runs signal handlers on Windows while it waits, in seconds."""


class Abandoned(BaseException):
    """Raised at a checkpoint of abandoned work, to end it."""


class Job(Generic[T]):
    """A function call on another thread: an interrupt ends the wait for it, not the call."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.is_abandoned = False
        self._function: Callable[[], T] | None = function
        self._context = contextvars.copy_context()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._running = _thread.allocate_lock()
        self._running.acquire()

    def start(self) -> None:
        """Runs the function on a new thread."""
        _start(self.run)

    def run(self) -> None:
        """Runs the function on this thread, and stores its result or exception."""
        try:
            assert self._function is not None
            self._result = self._context.run(self._function)
        except BaseException as error:
            self._error = None if self.is_abandoned else error
        finally:
            self._function = None
            self._running.release()

    def wait(self) -> None:
        """Waits until the function has returned."""
        # On Windows a signal does not end the wait for a lock: its handler runs after a wait.
        while not self._running.acquire(timeout=WAIT_SECONDS):
            pass
        self._running.release()

    def result(self) -> T:
        """Waits, then returns the result of the function or raises its exception."""
        self.wait()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._result  # type: ignore[return-value]
        finally:
            # The traceback of the error refers to this frame: break the cycle.
            del error


def shielded(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator for functions that signals must not interrupt; has no effect inside other such functions.

    Raises RunError in a child that was forked while such a function ran for longer than FORK_TIMEOUT_SECONDS.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        thread = _thread.get_ident()
        if thread in _working or _is_ending:
            return function(*args, **kwargs)
        if thread == threading.main_thread().ident:
            return _on_worker(functools.partial(function, *args, **kwargs))
        with _registered(None):
            return function(*args, **kwargs)

    return call


def checkpoint() -> None:
    """Ends abandoned work, and lets other threads fork. Long work calls this regularly, while it holds no lock."""
    job = _working.get(_thread.get_ident())
    if job is not None and job.is_abandoned:
        raise Abandoned
    if _gate.locked():
        with fork_allowed():
            pass


@contextmanager
def fork_allowed() -> Iterator[None]:
    """Context manager for work that waits for other threads and holds no lock: other threads may fork meanwhile."""
    thread = _thread.get_ident()
    if thread not in _working:
        yield
        return
    job = _working.pop(thread)
    try:
        yield
    finally:
        _begin(job)


_working: dict[int, Job[Any] | None] = {}
"""The threads that run shielded functions, by identifier; the value is the job of the main thread's worker, else
None.
"""
_gate = new_lock()
"""Held by a thread that forks; no work begins meanwhile."""
_inbox: SimpleQueue[Job[Any] | None] | None = None
"""The queue of the main thread's worker while it is idle, else None."""
_is_ending = False
_lacks_thread = False
"""Whether this process was forked while another thread was working."""


def _on_worker(function: Callable[[], T]) -> T:
    global _inbox

    def work() -> T:
        with _registered(job):
            return function()

    job = Job(work)
    inbox, _inbox = _inbox, None
    try:
        if inbox is None:
            inbox = SimpleQueue()
            _start(_serve, inbox)
        inbox.put(job)
        job.wait()
        _inbox = inbox
    except BaseException:
        job.is_abandoned = True
        if inbox is not None:
            inbox.put(None)
        raise
    return job.result()


def _start(function: Callable[..., None], *args: Any) -> None:
    """Calls a function on a new thread. (`threading.Thread` has locks that an interrupt may leave held.)"""
    try:
        _thread.start_new_thread(function, args)
    except RuntimeError as error:
        raise ResourceExhaustedError(f"the system cannot start another thread: {error}") from None


@ieee_floats()
def _serve(inbox: SimpleQueue[Job[Any] | None]) -> None:
    """Runs jobs until None arrives, after an abandoned one: another worker has replaced this one.

    A thread starts in the floating-point state of the one that starts it, which may be any.
    """
    while (job := inbox.get()) is not None:
        job.run()
        job = None


@contextmanager
def _registered(job: Job[Any] | None) -> Iterator[None]:
    _begin(job)
    try:
        yield
    finally:
        _working.pop(_thread.get_ident(), None)


def _begin(job: Job[Any] | None) -> None:
    with _gate:
        if _lacks_thread:
            raise RunError(
                "this process was forked while another thread compiled, and lacks that thread: fork before or after, "
                "or start processes with multiprocessing's method 'spawn'"
            )
        _working[_thread.get_ident()] = job


def is_working() -> bool:
    """Whether a thread other than this one runs a shielded function, abandoned ones included."""
    return bool(_working.keys() - {_thread.get_ident()})


def _others_importing() -> bool:
    """Whether another thread holds the lock of a module; False if this Python keeps these locks elsewhere."""
    me, locks = _thread.get_ident(), getattr(importlib._bootstrap, "_module_locks", {})  # type: ignore[attr-defined]
    held = (found for reference in [*locks.values()] if (found := reference()) is not None)
    return any(getattr(lock, "owner", None) not in (None, me) for lock in held)


def _wait_for_others() -> None:
    """Closes the gate, and waits until no other thread is working, at most FORK_TIMEOUT_SECONDS."""
    _gate.acquire()
    deadline = time.monotonic() + FORK_TIMEOUT_SECONDS
    while (is_working() or _others_importing()) and time.monotonic() < deadline:
        time.sleep(1e-4)


def _in_child() -> None:
    global _inbox, _lacks_thread
    _lacks_thread = _lacks_thread or is_working()
    for thread in _working.keys() - {_thread.get_ident()}:
        del _working[thread]
    _inbox = None


def _end() -> None:
    global _is_ending
    _wait_for_others()
    _is_ending = True


at_fork(before=_wait_for_others, after_in_parent=_gate.release, after_in_child=_in_child)
atexit.register(_end)
