"""The public names of hloom: what `hloom` exports, and the packages of faults, passes and profiles."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import hloom as hl
from hloom import faults, passes, profiler
from hloom.passes import rewrite

PUBLIC: dict[str, Any] = {
    **{f"hloom.{name}": getattr(hl, name) for name in hl.__all__},
    **{f"hloom.faults.{name}": getattr(faults, name) for name in faults.__all__},
    **{f"hloom.passes.{name}": getattr(passes, name) for name in passes.__all__},
    **{f"hloom.profiler.{name}": getattr(profiler, name) for name in profiler.__all__},
    "hloom.passes.rewrite.Rule": rewrite.Rule,
    "hloom.passes.rewrite.Match": rewrite.Match,
}


def members(name: str, cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the public functions and properties that hloom's own classes define."""
    for base in cls.__mro__:
        if not base.__module__.startswith("hloom"):
            continue
        for key, value in vars(base).items():
            if not key.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                yield f"{name}.{key}", value
