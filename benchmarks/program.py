"""Programs to be measured, and their registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tree = Any


@dataclass(frozen=True)
class Program:
    """A program: `initialise(key)` returns its state, in one jitted call, and `step(*state)` is measured.

    The state is a tuple of trees of arrays. Both functions are traced by JAX; platforms must agree on the result of the
    step, within `tolerance` relative to the largest element of each array. With `x64` numbers have 64 bits by default.
    """

    name: str
    initialise: Callable[[Any], tuple[Tree, ...]]
    step: Callable[..., Tree]
    tolerance: float = 2e-3
    x64: bool = False


PROGRAMS: dict[str, Program] = {}


def add(name: str, initialise: Callable[[Any], tuple[Tree, ...]], step: Callable[..., Tree], **options: Any) -> None:
    """Registers a program."""
    PROGRAMS[name] = Program(name, initialise, step, **options)
