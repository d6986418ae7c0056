"""Lines of hloom that run, counted in this process on a sample of the modules, since tracing costs time."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from hloom.system.shield import shielded

PACKAGE = str(Path(__file__).parents[1])
QUIET_CALLS = 8
"""Calls of a function without a new line after which it is not traced any more, until tracing starts again."""


class Lines:
    """Lines that ran, by file; `traced()` is a context in which this process adds to them."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}
        self.quiet: dict[CodeType, int] = {}

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Traces the lines of hloom's functions: in this thread, the worker of shielded functions, and new threads."""
        self.quiet.clear()
        settings: tuple[Callable[..., None], ...] = (sys.settrace, shielded(sys.settrace), threading.settrace)
        for settrace in settings:
            settrace(self._call)
        try:
            yield
        finally:
            for settrace in settings:
                settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        name, quiet = code.co_filename, self.quiet.get(code, 0)
        if quiet >= QUIET_CALLS or not name.startswith(PACKAGE):
            return None
        self.quiet[code] = quiet + 1
        lines = self.seen.setdefault(name[len(PACKAGE) + 1 :], set())

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_lineno not in lines:
                lines.add(frame.f_lineno)
                self.quiet[code] = 0
            return line

        return line

    def merge(self, others: dict[str, list[int]]) -> None:
        """Adds lines that were seen before."""
        for name, lines in others.items():
            self.seen.setdefault(name, set()).update(lines)

    def as_lists(self) -> dict[str, list[int]]:
        """Returns the lines as sorted lists."""
        return {name: sorted(lines) for name, lines in [*self.seen.items()] if lines}


@functools.cache
def lines_of(path: Path) -> frozenset[int]:
    """Returns the lines of a file that have code in functions."""
    stack: list[CodeType] = [compile(path.read_text("utf-8"), str(path), "exec")]
    found: set[int] = set()
    while stack:
        code = stack.pop()
        stack += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        if code.co_name != "<module>" and code.co_flags & 2:  # a function, not a class body
            found |= {line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno}
    return frozenset(found)
