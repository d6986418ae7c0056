"""Partitions a program into LLVM modules, which are compiled in parallel.

Functions that only call others (call-only functions) are a third of LLVM's time if they are optimised, so they have a
module of their own that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.llvm.function import CALL_ONLY_ATTRIBUTE
from hloom.backends.cpu.llvm.machine_code import CALL_ONLY

MIN_MODULE_COST, MIN_SPLIT_COST = 24_000, 18_000
"""Minimum costs of a module, and of a kernel that is split over two modules although it is the only one."""
CALL_ONLY_COST = 12_000
"""Minimum cost of a program for which call-only functions are separated."""
LOOP_COST = 2000
"""Cost of a loop to LLVM, in characters of text."""

_HEAD = re.compile(r"define (internal )?(?P<result>\w+) @(?P<name>[\w.]+)\((?P<parameters>[^)]*)\)")
_LINE = re.compile(r"^define [^\n]*", re.MULTILINE)
_NAME = re.compile(r"@[\w.]+")
_INLINED = re.compile(r"@(?P<name>[\w.]+)\([^\n]*\) #1$", re.MULTILINE)
_ATTRIBUTES = (
    'attributes #0 = { "no-trapping-math"="true" }\nattributes #1 = { alwaysinline }\n'
    "attributes #2 = { cold nounwind memory(inaccessiblemem: readwrite) }\n"
    f'attributes {CALL_ONLY_ATTRIBUTE} = {{ "call-only" }}\n!0 = !{{i32 1}}\n'
)


@dataclass(frozen=True, slots=True)
class Merging:
    """Limits on the merging of functions: number of constants, and whether divisors may be among them.

    Division by a variable takes ten times as long as by a constant. Functions whose names end in one of
    `excluded_suffixes` are not merged.
    """

    max_constants: int
    divisors: bool
    excluded_suffixes: tuple[str, ...] = ()


@dataclass(slots=True)
class Unit:
    """Functions that the rest of a program only calls: their text, declarations they need, and declarations of
    themselves."""

    text: str
    declarations: dict[str, None]
    entries: list[str]
    merging: Merging | None = None
    """Limits on merging its functions; None excludes them."""


def split_call_only(units: Iterable[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Splits units into their call-only functions and the rest."""
    pairs = [_split_call_only(unit) for unit in units]
    return [call_only for call_only, _ in pairs if call_only is not None], [
        rest for _, rest in pairs if rest is not None
    ]


def _split_call_only(unit: Unit) -> tuple[Unit | None, Unit | None]:
    parts = re.split(r"\n(?=define |@)", unit.text)
    functions = [part for part in parts if _HEAD.match(part)]
    call_only = "\n".join(filter(is_call_only, functions))
    rest = "\n".join(function for function in functions if not is_call_only(function))
    if not rest:
        return unit, None
    variables = [part for part in parts if not _HEAD.match(part)]
    own = [_used(variables, text) for text in (call_only, rest)]
    if not call_only or any(variable in own[1] for variable in own[0]):
        return None, unit
    one, other = _split_text(unit, ["\n".join([*own[0], call_only]), "\n".join([*own[1], rest])])
    return one, other


def _used(variables: Sequence[str], text: str) -> list[str]:
    """Returns the variables that a text names, and transitively those that the variables name."""
    names, used = set(_NAME.findall(text)), list[str]()
    while more := [v for v in variables if v not in used and v.partition(" =")[0] in names]:
        used += more
        names |= set(_NAME.findall("\n".join(more)))
    return used


def split_call_only_if_long(units: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Splits units like `split_call_only`, unless the program is short: then all units are the rest."""
    short = _cost([unit.text for unit in units]) < CALL_ONLY_COST
    return ([], [*units]) if short else split_call_only(units)


def is_call_only(function: str) -> bool:
    """Whether a function, or its head, is marked call-only."""
    return CALL_ONLY_ATTRIBUTE in function.partition("\n")[0].split()


def inlines(text: str) -> bool:
    """Whether a text contains calls that must be inlined."""
    return _INLINED.search(text) is not None


def partition_units(units: Sequence[Unit]) -> tuple[list[list[Unit]], list[Unit]]:
    """Partitions units into groups long enough for a module each, and a rest.

    Units of more than twice the minimum cost, or long units without others, are split in halves.
    """
    halved = MIN_SPLIT_COST if len(units) == 1 else 2 * MIN_MODULE_COST
    groups, group = [], list[Unit]()
    for unit in units:
        if _cost([unit.text]) >= halved:
            groups += [[half] for half in _halves(unit)]
            continue
        group.append(unit)
        if _cost([unit.text for unit in group]) >= MIN_MODULE_COST:
            groups.append(group)
            group = []
    return groups, group


def _halves(unit: Unit) -> list[Unit]:
    """Splits the functions of a unit in two halves of similar cost; a unit with variables is not split."""
    if re.search(r"^@", unit.text, re.MULTILINE):
        return [unit]
    texts = _balanced_texts(_inlined_together(re.split(r"\n(?=define )", unit.text)))
    return [half for half in _split_text(unit, texts) if half.text]


def _split_text(unit: Unit, texts: Sequence[str]) -> list[Unit]:
    """Returns two units with the given texts in place of one."""
    exports = [_exports(one, other) for one, other in (texts, texts[::-1])]
    return [_part(unit, *part) for part in zip(texts, exports, exports[::-1], strict=True)]


def _balanced_texts(groups: list[list[str]]) -> list[str]:
    halves: tuple[list[str], list[str]] = ([], [])
    for group in sorted(groups, key=_cost, reverse=True):
        min(halves, key=_cost).extend(group)
    return ["\n".join(functions) for functions in halves]


def _inlined_together(functions: list[str]) -> list[list[str]]:
    """Groups functions so that none is inlined into a function of another group."""
    groups = [[function] for function in functions]
    for function in functions:
        names = {_name(function), *(match["name"] for match in _INLINED.finditer(function))}
        same = [group for group in groups if any(_name(member) in names for member in group)]
        groups = [group for group in groups if group not in same] + [[f for group in same for f in group]]
    return groups


def _cost(functions: Sequence[str]) -> int:
    """Cost of compiling functions, in characters."""
    return sum(len(function) + LOOP_COST * function.count("\nloop") for function in functions)


def _name(function: str) -> str:
    head = _HEAD.match(function)
    assert head is not None, function
    return head["name"]


def _exports(one: str, other: str) -> dict[str, str]:
    """Returns the functions of the first text that the second names, with their declarations."""
    names = set(_NAME.findall(other))
    heads = [head for head in _HEAD.finditer(one) if f"@{head['name']}" in names]
    types = [", ".join(p.split()[0] for p in head["parameters"].split(", ") if p) for head in heads]
    return {h["name"]: f"declare {h['result']} @{h['name']}({t})" for h, t in zip(heads, types, strict=True)}


def _part(unit: Unit, text: str, defined: dict[str, str], needed: dict[str, str]) -> Unit:
    """Returns a unit of some functions; those in `defined` are called from other units."""
    text = _HEAD.sub(lambda head: head[0].replace("internal ", "") if head["name"] in defined else head[0], text)
    own = {head["name"] for head in _HEAD.finditer(text)}
    entries = [entry for entry in unit.entries if entry.partition("@")[2].partition("(")[0] in own]
    return Unit(text, unit.declarations | dict.fromkeys(needed.values()), [*entries, *defined.values()])


def module_of_units(units: Sequence[Unit]) -> str:
    """Returns the text of a module; functions that a unit defines are not declared."""
    defined = {entry for unit in units for entry in unit.entries}
    declarations = {line: None for unit in units for line in unit.declarations if line not in defined}
    functions = "\n".join(unit.text for unit in units)
    first = CALL_ONLY if all(is_call_only(head[0]) for head in _LINE.finditer(functions)) else ""
    return first + "\n".join([*declarations, functions, _ATTRIBUTES])
