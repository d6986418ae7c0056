"""HLO texts that are long in one way each: by the name of a family, from a number of items.

Compile time is to be in proportion to the number of items, whatever there is many of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Family = Callable[[int], str]
FLAT: dict[str, Family] = {}
"""Families that have their items side by side."""
NESTED: dict[str, Family] = {}
"""Families that have them inside of each other: some tens of levels are many."""


def flat(family: Family) -> Family:
    """Adds a family of items side by side."""
    FLAT[family.__name__] = family
    return family


def nested(family: Family) -> Family:
    """Adds a family of items inside of each other."""
    NESTED[family.__name__] = family
    return family


def module(entry: Iterable[str], *computations: Iterable[str], header: str = "") -> str:
    """The text of a module from the lines of its computations; each but the entry begins with its name."""
    bodies = "".join(f"{name} {{\n  {_lines(lines)}\n}}\n" for name, *lines in computations)
    return f"HloModule family{header}\n{bodies}ENTRY entry {{\n  {_lines(entry)}\n}}\n"


def _lines(lines: Iterable[str]) -> str:
    return "\n  ".join(lines)


def tuple_of(shape: str, count: int) -> str:
    """The shape of a tuple of equal elements."""
    return f"({', '.join([shape] * count)})"


def names(prefix: str, count: int) -> str:
    """A list of operands."""
    return ", ".join(f"{prefix}{k}" for k in range(count))


@flat
def elements_of_a_tuple(n: int) -> str:
    """A parameter of n elements, each of which is read."""
    shape = tuple_of("f32[]", n)
    reads = (f"x{k} = f32[] get-tuple-element(p), index={k}" for k in range(n))
    return module([f"p = {shape} parameter(0)", *reads, f"ROOT r = {shape} tuple({names('x', n)})"])


@nested
def loops(n: int) -> str:
    """A while loop inside of n - 1 others."""
    condition = [
        "less",
        "t = (s32[]) parameter(0)",
        "i = s32[] get-tuple-element(t), index=0",
        "one = s32[] constant(1)",
        "ROOT l = pred[] compare(i, one), direction=LT",
    ]
    innermost = [
        "body0",
        "t = (s32[]) parameter(0)",
        "i = s32[] get-tuple-element(t), index=0",
        "one = s32[] constant(1)",
        "next = s32[] add(i, one)",
        "ROOT r = (s32[]) tuple(next)",
    ]
    outer = (
        [f"body{k}", "t = (s32[]) parameter(0)", f"ROOT w = (s32[]) while(t), condition=less, body=body{k - 1}"]
        for k in range(1, n)
    )
    entry = ["t = (s32[]) parameter(0)", f"ROOT w = (s32[]) while(t), condition=less, body=body{n - 1}"]
    return module(entry, condition, innermost, *outer)
