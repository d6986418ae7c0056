"""Two backends to compare, as the command line names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.errors import ArgumentError

if TYPE_CHECKING:
    from hloom.faults.bisect import Runner


def runners_named(option: str, text: str) -> tuple[list[str], list[Runner]]:
    """The names and runners of two backends, `cpu,interpreter`. Raises ArgumentError, which names the option."""
    from hloom.faults.bisect import RUNNERS

    names = text.split(",")
    if len(names) != 2 or any(name not in RUNNERS for name in names):
        raise ArgumentError(f"{option} takes two of {', '.join(RUNNERS)}, such as cpu,interpreter; got {text!r}")
    return names, [RUNNERS[name] for name in names]
