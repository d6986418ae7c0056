"""Uncaught errors about invalid input are printed without the frames of hloom: the user's lines, and the message."""

from __future__ import annotations

import os
import sys
from types import TracebackType

from hloom.errors import HloomError

PACKAGE = os.path.dirname(os.path.dirname(__file__))


def shorten_tracebacks() -> None:
    """Makes Python, and IPython, print errors of hloom without its frames; the traceback of the error itself stays.

    Errors that none of the user's frames raised are printed whole.
    """
    print_others = sys.excepthook

    def print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, HloomError):
            print(_shortened(error, trace), file=sys.stderr)
        else:
            print_others(kind, error, trace)

    sys.excepthook = print_error
    # IPython prints the lines that this method of an error returns.
    HloomError._render_traceback_ = lambda self: _shortened(self, self.__traceback__).splitlines()  # type: ignore[attr-defined]


def _shortened(error: HloomError, trace: TracebackType | None) -> str:
    import traceback  # which `import hloom` does without

    frames = traceback.extract_tb(trace)
    shown = [frame for frame in frames if not frame.filename.startswith(PACKAGE)] or frames
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(shown)]
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()
