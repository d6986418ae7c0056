"""Totals of kernels by scope, source or opcode, and the comparison of two profiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from rich.table import Table

from hloom.errors import ArgumentError
from hloom.profiler.measured import Kernel, Measured
from hloom.system.records import record

SHOWN = 25


@record(slots=True)
class Total:
    """The time in a call of all kernels with a key; `depth` is the number of scopes around it."""

    key: str
    seconds: float
    kernels: int
    depth: int = 0


def totals_of(profile: Measured, by: str) -> list[Total]:
    """Returns totals by scope, source or opcode, the largest first. Raises ArgumentError for another key."""
    if by not in KEYS:
        raise ArgumentError(f"totals are by {', '.join(KEYS)}, not by {by!r}")
    groups: dict[tuple[str, ...], list[Kernel]] = defaultdict(list)
    for kernel in profile.kernels:
        for key in KEYS[by](kernel):
            groups[key].append(kernel)
    seconds = {key: sum(kernel.seconds for kernel in kernels) for key, kernels in groups.items()}
    order = sorted(groups, key=lambda key: [(-seconds[key[: k + 1]], key[k]) for k in range(len(key))])
    return [Total(key[-1], seconds[key], len(groups[key]), len(key) - 1) for key in order]


def _scopes(kernel: Kernel) -> Iterable[tuple[str, ...]]:
    parts = tuple(kernel.scope.split("/")[:-1]) or (UNKNOWN,)
    return (parts[: k + 1] for k in range(len(parts)))


UNKNOWN = "(unknown)"
KEYS: dict[str, Callable[[Kernel], Iterable[tuple[str, ...]]]] = {
    "scope": _scopes,
    "source": lambda kernel: [(kernel.source or UNKNOWN,)],
    "opcode": lambda kernel: [(kernel.opcode,)],
}
"""The keys of a kernel's totals; each is a path, whose beginnings are keys, too."""


def compare(before: Measured, after: Measured) -> Table:
    """Returns a table of the kernels whose times differ most."""
    result = Table("kernel", "us before", "us after", "difference", "scope")
    for column in result.columns[1:4]:
        column.justify = "right"
    rows = [*_pairs(before, after)]
    rows.sort(key=lambda row: -abs(row[2] - row[1]))
    total = (before.seconds, after.seconds)
    for name, old, new, scope in [("(whole call)", *total, ""), *rows[:SHOWN]]:
        result.add_row(name, f"{1e6 * old:.1f}", f"{1e6 * new:.1f}", f"{1e6 * (new - old):+.1f}", scope)
    return result


def _pairs(before: Measured, after: Measured) -> Iterable[tuple[str, float, float, str]]:
    """Yields the names, times and scopes of corresponding kernels; the time of one that is not there is 0."""
    sides: list[dict[tuple[str, str], list[Kernel]]] = []
    for profile in (before, after):
        groups: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
        for kernel in profile.kernels:
            groups[kernel.scope or kernel.name, kernel.opcode].append(kernel)
        sides.append(groups)
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        old, new = (side.get(key, []) for side in sides)
        first = (new or old)[0]
        yield first.name, sum(k.seconds for k in old), sum(k.seconds for k in new), first.scope
