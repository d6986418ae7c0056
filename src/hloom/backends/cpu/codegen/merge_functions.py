"""Merges functions that differ in constants only, such as those of a network's layers.

One function of each group is kept and loads the constants that differ from a table, its last argument; the other
members become calls of it with tables of their own. LLVM's time is proportional to the amount of text, so merging saves
most of the time spent on similar layers. A constant is an i64 operand or the name of a function or global.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.codegen.modules import Merging, Unit

MIN_LINES = 16
"""Minimum length of a function to be merged, in lines; shorter ones cost little more than a call."""

_FUNCTION = re.compile(
    r"^define (?:internal )?void @(?P<name>[\w.]+)\((?P<parameters>[^)]*)\)(?P<attributes>[^\n]*) \{\n"
    r"entry:\n(?P<body>.*?)^\}",
    re.M | re.S,
)
_CONSTANT = re.compile(r"((?<=i64 )-?\d+(?=[,)\n])|(?<=, )-?\d+(?=\n)|(?<=\[ )-?\d+(?=,)|@[\w.]+)")
_TAKES_VALUES = re.compile(
    r"(?:%[\w.]+ = )?(?:(?:add|sub|mul|icmp \w+)(?: nuw| nsw)* i64|phi i64|getelementptr|select|load|store|call)\b"
)
_DIVIDES = re.compile(r"%[\w.]+ = (?:udiv|urem) i64\b")
_INTRINSIC = "@llvm."


@dataclass(slots=True)
class _Member:
    """Function that may be merged, with its body split at the constants."""

    unit: Unit
    merging: Merging
    match: re.Match[str]
    between: list[str]
    constants: list[str]

    @property
    def name(self) -> str:
        return self.match["name"]


def merge_functions(units: Sequence[Unit]) -> list[Unit]:
    """Returns the units, with merged functions replaced by calls, and a unit for each merged function."""
    alike: dict[tuple[str, str, int], list[tuple[Unit, Merging, re.Match[str]]]] = defaultdict(list)
    for unit in units:
        for merging, match in _candidates(unit):
            key = match["parameters"], match["attributes"], match["body"].count("\n")
            alike[key].append((unit, merging, match))
    groups: dict[tuple[str, ...], list[_Member]] = defaultdict(list)
    for key, candidates in alike.items():
        for unit, merging, match in candidates if len(candidates) > 1 else ():
            parts = _CONSTANT.split(match["body"])
            groups[*key[:2], *parts[::2]].append(_Member(unit, merging, match, parts[::2], parts[1::2]))
    merged = []
    for members in groups.values():
        for same in _mergeable_groups(members):
            columns = _columns(same)
            if len(same) > 1 and columns is not None and len(columns) <= same[0].merging.max_constants:
                merged.append(_merge(same, columns))
    return [*units, *merged]


def _candidates(unit: Unit) -> Iterator[tuple[Merging, re.Match[str]]]:
    if unit.merging is None:
        return
    for match in _FUNCTION.finditer(unit.text):
        is_excluded = match["name"].rpartition(".")[2] in unit.merging.excluded_suffixes
        if not is_excluded and match["body"].count("\n") >= MIN_LINES:
            yield unit.merging, match


def _mergeable_groups(members: list[_Member]) -> Iterator[list[_Member]]:
    """Yields groups of members that differ only in constants that may be loaded at run time."""
    first = members[0]
    if len(members) == 1:
        return
    rows = enumerate(_rows(members))
    fixed = [k for k, values in rows if len(set(values)) > 1 and not _may_vary(first, k, values)]
    parts: dict[tuple[str, ...], list[_Member]] = defaultdict(list)
    for member in members:
        parts[tuple(member.constants[k] for k in fixed)].append(member)
    yield from parts.values()


def _may_vary(member: _Member, position: int, values: tuple[str, ...]) -> bool:
    """Whether a loaded value is legal and profitable where the members have these constants."""
    line = _line_before(member, position)
    if any(value.startswith(_INTRINSIC) for value in values):
        return False
    divides = member.merging.divisors and _DIVIDES.match(line) is not None
    return divides or _TAKES_VALUES.match(line) is not None


def _line_before(member: _Member, position: int) -> str:
    """Returns the text before a constant in its line."""
    start = position
    while start and "\n" not in member.between[start]:
        start -= 1
    pieces = [member.between[start].rpartition("\n")[2]]
    for k in range(start, position):
        pieces += [member.constants[k], member.between[k + 1]]
    return "".join(pieces).strip()


def _rows(members: list[_Member]) -> list[tuple[str, ...]]:
    """Returns the values of each constant of the body, one for each member."""
    return list(zip(*(member.constants for member in members), strict=True))


def _columns(members: list[_Member]) -> dict[tuple[str, ...], int] | None:
    """Returns the distinct constants of the tables, by their values in all members, with their indices.

    Columns are the constants that differ between members or are private symbols of a unit. Returns None if a private
    symbol occurs where only a constant is legal.
    """
    first = members[0]
    declared = "\n".join(first.unit.declarations)
    columns: dict[tuple[str, ...], int] = {}
    for k, values in enumerate(_rows(members)):
        is_own = values[0].startswith("@") and f"{values[0]}(" not in declared
        if len(set(values)) > 1 or is_own:
            if is_own and not _may_vary(first, k, values):
                return None
            columns.setdefault(values, len(columns))
    return columns


def _merge(members: list[_Member], columns: dict[tuple[str, ...], int]) -> Unit:
    """Returns the merged function; replaces the members by calls of it."""
    first = members[0]
    name = f"{first.name}.merged"
    parameters = [parameter.split() for parameter in first.match["parameters"].split(", ")]
    declaration = f"declare void @{name}({', '.join([*(words[0] for words in parameters), 'ptr'])})"
    arguments = ", ".join(f"{words[0]} {words[-1]}" for words in parameters)
    kinds = ["ptr" if values[0].startswith("@") else "i64" for values in columns]
    for row, member in enumerate(members):
        words = [f"{kind} {values[row]}" for kind, values in zip(kinds, columns, strict=True)]
        table = f"@{member.name}.constants"
        head = member.match[0].partition("entry:\n")[0]
        call = f"entry:\n  call void @{name}({arguments}, ptr {table})\n  ret void\n}}"
        constants = f"{table} = internal constant <{{ {', '.join(kinds)} }}> <{{ {', '.join(words)} }}>, align 8\n"
        member.unit.text = member.unit.text.replace(member.match[0], constants + head + call)
        member.unit.declarations[declaration] = None
    head = f"define void @{name}({first.match['parameters']}, ptr %constants){first.match['attributes']} {{\nentry:\n"
    text = f"{head}{_loads(kinds)}{_body(members, columns)}}}"
    return Unit(text, dict(first.unit.declarations), [declaration])


def _loads(kinds: list[str]) -> str:
    return "".join(
        f"  %constant{k}.at = getelementptr i64, ptr %constants, i64 {k}\n"
        f"  %constant{k} = load {kind}, ptr %constant{k}.at, align 8\n"
        for k, kind in enumerate(kinds)
    )


def _body(members: list[_Member], columns: dict[tuple[str, ...], int]) -> str:
    between = members[0].between
    pieces = [between[0]]
    for values, after in zip(_rows(members), between[1:], strict=True):
        pieces += [f"%constant{columns[values]}" if values in columns else values[0], after]
    return "".join(pieces)
