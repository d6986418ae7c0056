"""Progress of long work: a line on standard error, if that is a terminal, from the first second on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hloom.cli.output import terminal
from hloom.errors import counted

DELAY, INTERVAL = 1.0, 0.2
"""Seconds until the line appears, and between its updates."""


class Activity:
    """The current activity; callable, as a function that is told it."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, what: str) -> None:
        self.what = what


@contextmanager
def progress(what: str, detail: Callable[[], str] = str) -> Iterator[Activity]:
    """Shows an activity, more about it and the seconds that it takes, while the block runs; yields the activity."""
    console, activity = terminal(stderr=True), Activity(what)
    done, started = threading.Event(), time.monotonic()

    def show() -> None:
        if done.wait(DELAY):
            return
        with console.status(what) as status:
            while not done.wait(INTERVAL):
                parts = filter(None, (activity.what, detail(), f"{time.monotonic() - started:.0f} s"))
                status.update(" · ".join(parts))

    thread = threading.Thread(target=show, daemon=True) if console.is_terminal else None
    if thread:
        thread.start()
    try:
        yield activity
    finally:
        done.set()
        if thread:
            thread.join()


@contextmanager
def reduction_progress(what: str) -> Iterator[Callable[[str, int], None]]:
    """Shows the progress of a reduction; yields the function that is told each accepted move and the size left.

    Where standard error is not a terminal, it gets a line for each move.
    """
    console = terminal(stderr=True, highlight=False)
    with progress(what) as activity:

        def accept(move: str, size: int) -> None:
            if console.is_terminal:
                activity(f"{what} · {counted(size, 'instruction')} left · {move}")
            else:
                console.print(f"{counted(size, 'instruction')} left: {move}")

        yield accept
