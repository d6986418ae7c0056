"""Partitions a program into LLVM modules, which are compiled in parallel.

Functions that only call others (call-only functions) are a third of LLVM's time if they are optimised, so they have a
module of their own that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.backends.cpu.llvm.machine_code import CALL_ONLY, COMBINED, Source, kept_object, shared_mark
from hloom.lir import Function, Global, LirModule
from hloom.lir.function import needs_of
from hloom.lir.verify import check_module
from hloom.passes.optional import is_strict
from hloom.system.records import record

MIN_MODULE_COST, MIN_SPLIT_COST = 24_000, 18_000
"""Minimum costs of a module, and of a kernel, or of other units, that is split over two modules although it is the only
one.
"""
LOOP_COST = 2000
"""Cost of a loop to LLVM, in characters of text."""


@record(slots=True)
class Merging:
    """Limits on the merging of functions: number of constants, and whether divisors may be among them.

    Division by a variable takes ten times as long as by a constant. Functions whose names end in one of
    `excluded_suffixes` are not merged.
    """

    max_constants: int
    divisors: bool
    excluded_suffixes: tuple[str, ...] = ()


@record(slots=True, eq=False)
class Unit:
    """Functions of one kernel or nest, which the rest of a program only calls."""

    functions: Sequence[Function]
    merging: Merging | None = None
    """Limits on merging its functions; None excludes them."""

    @property
    def cost(self) -> int:
        """Cost of compiling the functions, in characters of text."""
        return cost_of(self.functions)


def cost_of(functions: Iterable[Function]) -> int:
    """Returns the cost of compiling functions, in characters of text."""
    return sum(len(function.body_text()) + LOOP_COST * function.loops for function in functions)


def split_call_only(units: Iterable[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Splits units into their call-only functions and the rest."""
    pairs = [_split_call_only(unit) for unit in units]
    return [call_only for call_only, _ in pairs if call_only is not None], [
        rest for _, rest in pairs if rest is not None
    ]


def _split_call_only(unit: Unit) -> tuple[Unit | None, Unit | None]:
    call_only = [function for function in unit.functions if function.is_call_only]
    rest = [function for function in unit.functions if not function.is_call_only]
    if not rest:
        return unit, None
    if not call_only or _variables(call_only) & _variables(rest):
        return None, unit
    one, other = _split(unit, [call_only, rest])
    return one, other


def _variables(functions: Sequence[Function]) -> set[str]:
    """Returns the names of the variables that functions need; constants may belong to several modules."""
    return {name for name, need in needs_of(functions).items() if isinstance(need, Global) and not need.is_constant}


def partition_units(units: Sequence[Unit]) -> tuple[list[list[Unit]], list[Unit]]:
    """Partitions units into groups long enough for a module each, and a rest.

    Units of more than twice the minimum cost, or long units without others, are split in halves.
    """
    halved = MIN_SPLIT_COST if len(units) == 1 else 2 * MIN_MODULE_COST
    groups, group, cost = [], list[Unit](), 0
    for unit in units:
        if unit.cost >= halved:
            groups += [[half] for half in _halves(unit)]
            continue
        group.append(unit)
        cost += unit.cost
        if cost >= MIN_MODULE_COST:
            groups.append(group)
            group, cost = [], 0
    return groups, group


def balanced(units: Sequence[Unit]) -> list[list[Unit]]:
    """Returns units in one module, or in two of similar cost if that pays."""
    costs = {unit: unit.cost for unit in units}
    if sum(costs.values()) < MIN_SPLIT_COST:
        return [[*units]]
    halves: list[list[Unit]] = [[], []]
    for unit in sorted(units, key=costs.__getitem__, reverse=True):
        min(halves, key=lambda half: sum(costs[each] for each in half)).append(unit)
    return halves


def _halves(unit: Unit) -> list[Unit]:
    """Splits the functions of a unit in two halves of similar cost; a unit with variables is not split."""
    if _variables(unit.functions):
        return [unit]
    return [half for half in _split(unit, _balanced(_inlined_together(unit.functions))) if half.functions]


def _split(unit: Unit, parts: Sequence[Sequence[Function]]) -> list[Unit]:
    """Returns two units with some functions each in place of one, and exports those that the other one needs."""
    for part, other in (parts, parts[::-1]):
        needs = needs_of(other)
        for function in part:
            function.is_exported |= function.name in needs
    return [Unit(part, unit.merging) for part in parts]


def _balanced(groups: list[list[Function]]) -> list[list[Function]]:
    halves: list[list[Function]] = [[], []]
    for group in sorted(groups, key=cost_of, reverse=True):
        min(halves, key=cost_of).extend(group)
    return halves


def _inlined_together(functions: Sequence[Function]) -> list[list[Function]]:
    """Groups functions so that none is inlined into a function of another group."""
    groups = [[function] for function in functions]
    for function in functions:
        names = {function.name} | function.inlined
        same = [group for group in groups if any(member.name in names for member in group)]
        groups = [group for group in groups if group not in same] + [[f for group in same for f in group]]
    return groups


def module_of_units(units: Iterable[Unit]) -> LirModule:
    """Returns the part of a program with the functions of units."""
    return LirModule([function for unit in units for function in unit.functions], is_part=True)


def shared_units(units: Iterable[Unit]) -> list[Unit]:
    """Returns the shared functions that units need, each as a unit."""
    needs = needs_of(function for unit in units for function in unit.functions)
    return [Unit([need]) for need in needs.values() if isinstance(need, Function) and need.is_shared]


def module_text(module: LirModule) -> str:
    """Returns the text of a module for LLVM, marked if programs share its code, and if it needs fewer passes."""
    if is_strict():
        check_module(module)
    name = shared_name(module)
    mark = shared_mark(name) if name is not None else ""
    if all(function.is_call_only for function in module.functions):
        mark += CALL_ONLY
    elif all(function.is_combined for function in module.functions):
        mark += COMBINED
    return mark + module.text()


def module_source(module: LirModule) -> Source:
    """Returns the object file of a shared function that is kept on disk, without writing it; the text of others."""
    name = shared_name(module) if not is_strict() else None
    return (kept_object(name) if name is not None else None) or module_text(module)


def shared_name(module: LirModule) -> str | None:
    """Returns the name of the shared function that is a module of its own; None if the module is not such a one."""
    (first, *others) = module.functions
    return first.name if module.is_part and first.is_shared and not others else None
