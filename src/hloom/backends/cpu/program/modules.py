"""The LLVM modules of a program: what may be compiled apart from the rest, and in which pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PIECE_CHARACTERS = 16_000
"""From this length on, what takes LLVM some 10 ms, functions make a module of their own worth its while."""

_ATTRIBUTES = (
    'attributes #0 = { "no-trapping-math"="true" }\nattributes #1 = { alwaysinline }\n'
    "attributes #2 = { cold nounwind memory(inaccessiblemem: readwrite) }\n!0 = !{i32 1}\n"
)


@dataclass(slots=True)
class Unit:
    """Functions that the rest of a program only calls: what they need, and how the rest declares them."""

    text: str
    declarations: dict[str, None]
    entries: list[str]


def divided(units: Iterable[Unit]) -> tuple[list[list[Unit]], list[Unit]]:
    """Units in groups that are long enough to be compiled on their own, and the rest."""
    pieces, group = [], list[Unit]()
    for unit in units:
        group.append(unit)
        if sum(len(unit.text) for unit in group) >= PIECE_CHARACTERS:
            pieces.append(group)
            group = []
    return pieces, group


def module_of_units(units: list[Unit]) -> str:
    declarations = {declaration: None for unit in units for declaration in unit.declarations}
    return module_text(declarations, [unit.text for unit in units])


def module_text(declarations: Iterable[str], texts: Iterable[str]) -> str:
    return "\n".join([*declarations, *texts, _ATTRIBUTES])
