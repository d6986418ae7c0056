"""The LLVM modules of a program: what may be compiled apart from the rest, and in which pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PIECE_CHARACTERS = 16_000
"""From this length on, what takes LLVM some 10 ms, functions make a module of their own worth its while."""

_ATTRIBUTES = (
    'attributes #0 = { "no-trapping-math"="true" }\nattributes #1 = { alwaysinline }\n'
    "attributes #2 = { cold nounwind memory(inaccessiblemem: readwrite) }\n!0 = !{i32 1}\n"
)


@dataclass(frozen=True, slots=True)
class Merging:
    """What merged functions may leave open: so many constants, divisors among them or not.

    A division by a number that the compiler does not know takes ten times as long as one by a constant. Functions whose
    names end in one of `kept` stay as they are.
    """

    most_constants: int
    divisors: bool
    kept: tuple[str, ...] = ()


@dataclass(slots=True)
class Unit:
    """Functions that the rest of a program only calls: what they need, and how the rest declares them."""

    text: str
    declarations: dict[str, None]
    entries: list[str]
    merging: Merging | None = None
    """How its functions may be merged with others, if they may."""


def divided(units: Iterable[Unit]) -> tuple[list[list[Unit]], list[Unit]]:
    """Units in groups that are long enough to be compiled on their own, and the rest."""
    pieces, group = [], list[Unit]()
    for unit in units:
        group.append(unit)
        if sum(len(unit.text) for unit in group) >= PIECE_CHARACTERS:
            pieces.append(group)
            group = []
    return pieces, group


def module_of_units(units: Sequence[Unit]) -> str:
    """The module of some units; what one of them defines is not declared."""
    defined = {entry for unit in units for entry in unit.entries}
    declarations = {line: None for unit in units for line in unit.declarations if line not in defined}
    return module_text(declarations, [unit.text for unit in units])


def module_text(declarations: Iterable[str], texts: Iterable[str]) -> str:
    return "\n".join([*declarations, *texts, _ATTRIBUTES])
