"""What a program to be measured is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tree = Any


@dataclass(frozen=True)
class Program:
    """`initialise(key)` makes the state in one jitted call; `step(*state)` is what is measured then.

    The state is a tuple of trees of arrays. Both are traced by JAX; the step's result is what platforms must agree on,
    within `tolerance` of the largest number of each array.
    """

    name: str
    initialise: Callable[[Any], tuple[Tree, ...]]
    step: Callable[..., Tree]
    tolerance: float = 2e-3


PROGRAMS: dict[str, Program] = {}


def add(name: str, initialise: Callable[[Any], tuple[Tree, ...]], step: Callable[..., Tree], **options: Any) -> None:
    """Puts a program on the list."""
    PROGRAMS[name] = Program(name, initialise, step, **options)
