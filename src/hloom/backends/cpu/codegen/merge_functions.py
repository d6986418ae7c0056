"""Merges functions that differ in constants only, such as those of a network's layers.

Each group keeps a single function, which loads the differing constants from a table, its last argument; the other
members become calls of that function with tables of their own: they and the tasks that run them are call-only. LLVM's
time is proportional to the number of instructions and functions, so merging saves most of the time spent on similar
layers. A constant is an i64 operand or the address of a function or variable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hloom.backends.cpu.codegen.modules import Merging, Unit
from hloom.lir import (
    I64,
    PTR,
    Attribute,
    Builder,
    Constant,
    Function,
    Global,
    Need,
    Parameter,
    Symbol,
    Value,
    constant,
)
from hloom.lir.control import EndLoop, Loop, Phi
from hloom.lir.instructions import Address, Binary, Call, Compare, Instruction, Load, Select, Store

MIN_LENGTH, LOOP_LENGTH = 16, 5
"""Minimum length of a function to be merged, in instructions, and what a loop adds; shorter ones cost little more than
a call.
"""

_TAKES_VALUES = (Address, Call, EndLoop, Load, Loop, Select, Store)
_TAKES_INTEGERS = (Compare, Phi)
_INTRINSIC = "llvm."
MERGED = ".merged"
"""Suffix of the names of merged functions."""


@dataclass(slots=True)
class _Member:
    """Function that may be merged, and its constants: instructions with indices of operands."""

    unit: Unit
    function: Function
    merging: Merging
    constants: list[tuple[Instruction, int]] = field(default_factory=list)

    def shape(self) -> tuple[Any, ...]:
        """Returns everything but the constants, and finds these."""
        shape: list[Any] = []
        for instruction in self.function.instructions:
            shape.append(instruction.immediates())
            for k, operand in enumerate(instruction.operands):
                if _is_constant(operand):
                    self.constants.append((instruction, k))
                    shape.append(operand.type)
                else:
                    shape.append(operand.text)
        return tuple(shape)

    def values(self) -> list[Value]:
        """Returns the constants."""
        return [instruction.operands[k] for instruction, k in self.constants]


def _is_constant(operand: Value) -> bool:
    return isinstance(operand, Symbol) or (operand.type is I64 and isinstance(operand, Constant))


def merge_functions(units: Sequence[Unit]) -> list[Unit]:
    """Returns the units, with merged functions replaced by calls, and a unit for each merged function."""
    alike: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
    for unit in units:
        for member in _candidates(unit):
            function = member.function
            parameters = tuple([parameter.declaration for parameter in function.parameters])
            alike[parameters, function.result, function.attributes, function.length].append(member)
    merged = []
    for members in alike.values():
        groups: dict[tuple[Any, ...], list[_Member]] = defaultdict(list)
        for member in members if len(members) > 1 else ():
            groups[member.shape()].append(member)
        for group in groups.values():
            for same in _mergeable_groups(group):
                columns = _columns(same)
                if len(same) > 1 and columns is not None and len(columns) <= same[0].merging.max_constants:
                    merged.append(_merge(same, columns))
    for unit in units if merged else ():
        _mark_call_only(unit)
    return [*units, *merged]


def _mark_call_only(unit: Unit) -> None:
    """Marks the functions of a unit that inline call-only functions alone, such as calls of merged kernels."""
    names = {function.name for function in unit.functions if function.is_call_only}
    for function in unit.functions:
        if not function.loops and function.inlined and function.inlined <= names:
            function.attributes |= {Attribute.CALL_ONLY}


def _candidates(unit: Unit) -> Iterator[_Member]:
    if unit.merging is None:
        return
    for function in unit.functions:
        is_excluded = function.name.rpartition(".")[2] in unit.merging.excluded_suffixes
        if not is_excluded and is_long(function):
            yield _Member(unit, function, unit.merging)


def is_long(function: Function) -> bool:
    """Whether a function costs LLVM more than a call, so that it is merged with others."""
    return function.length + LOOP_LENGTH * function.loops >= MIN_LENGTH


def _mergeable_groups(members: list[_Member]) -> Iterator[list[_Member]]:
    """Yields groups of members that differ only in constants that may be loaded at run time."""
    first = members[0]
    if len(members) == 1:
        return
    rows = enumerate(_rows(members))
    fixed = [k for k, values in rows if len(set(values)) > 1 and not _may_vary(first, k, values)]
    parts: dict[tuple[str, ...], list[_Member]] = defaultdict(list)
    for member in members:
        values = member.values()
        parts[tuple(values[k].text for k in fixed)].append(member)
    yield from parts.values()


def _may_vary(member: _Member, position: int, values: tuple[str, ...]) -> bool:
    """Whether a loaded value is legal and profitable where the members have these constants."""
    instruction, k = member.constants[position]
    if any(value.startswith(f"@{_INTRINSIC}") for value in values):
        return False
    match instruction:
        case Binary(opcode="udiv" | "urem"):
            return member.merging.divisors
        case Binary():
            return instruction.opcode in ("add", "sub", "mul")
    if isinstance(instruction, _TAKES_INTEGERS):
        return instruction.operands[k].type is I64
    return isinstance(instruction, _TAKES_VALUES)


def _rows(members: list[_Member]) -> list[tuple[str, ...]]:
    """Returns the texts of each constant, one for each member."""
    return list(zip(*([value.text for value in member.values()] for member in members), strict=True))


def _columns(members: list[_Member]) -> dict[tuple[str, ...], int] | None:
    """Returns the distinct constants of the tables, by their texts in all members, with their indices.

    Columns are the constants that differ between members or are private symbols of a unit. Returns None if a private
    symbol occurs where only a constant is legal.
    """
    first = members[0]
    columns: dict[tuple[str, ...], int] = {}
    for k, (value, values) in enumerate(zip(first.values(), _rows(members), strict=True)):
        is_own = isinstance(value, Symbol) and _is_own(first, value.name)
        if len(set(values)) > 1 or is_own:
            if is_own and not _may_vary(first, k, values):
                return None
            columns.setdefault(values, len(columns))
    return columns


def _is_own(member: _Member, name: str) -> bool:
    """Whether a symbol is private to the member's unit."""
    is_variable = isinstance(member.function.needs.get(name), Global)
    return is_variable or any(function.name == name for function in member.unit.functions)


def _merge(members: list[_Member], columns: dict[tuple[str, ...], int]) -> Unit:
    """Returns the merged function; replaces the members by calls of it."""
    first, rows = members[0], _rows(members)
    positions = [columns.get(row) for row in rows]
    tables = [_table(member, positions) for member in members]
    merged = _merged(first, positions)
    for member, table in zip(members, tables, strict=True):
        member.function.clear()
        member.function.attributes |= {Attribute.CALL_ONLY, Attribute.ALWAYS_INLINE}
        b = Builder(member.function)
        b.call_void(merged.name, *member.function.parameters, b.address_of(table))
        b.finish()
    return Unit([merged])


def _table(member: _Member, positions: Sequence[int | None]) -> Global:
    """Returns the constants of a member."""
    content = _column_values(member, positions)
    names = [value.name for value in content if isinstance(value, Symbol)]
    needs: dict[str, Need] = {name: member.function.needs[name] for name in names}
    return Global(f"{member.function.name}.constants", content, needs=needs)


def _column_values(member: _Member, positions: Sequence[int | None]) -> list[Value]:
    columns = dict(zip(positions, member.values(), strict=True))
    return [columns[position] for position in sorted(position for position in columns if position is not None)]


def _merged(first: _Member, positions: Sequence[int | None]) -> Function:
    """Returns the merged function, which takes over the instructions of the first member."""
    source, constants = first.function, Parameter("constants", PTR)
    loads: list[Instruction] = []
    for k, value in enumerate(_column_values(first, positions)):
        address = Address(f"%constant{k}.at", constants, constant(I64, k), "i64")
        loads += [address, Load(f"%constant{k}", address, value.type, 8)]
    for (instruction, k), position in zip(first.constants, positions, strict=True):
        if position is not None:
            operands = list(instruction.operands)
            operands[k] = loads[2 * position + 1]
            instruction.operands = tuple(operands)
    merged = replace(
        source,
        name=source.name + MERGED,
        parameters=[*source.parameters, constants],
        is_exported=True,
        prologue=[*loads, *source.prologue],
    )
    used = {operand.name for i in merged.instructions for operand in i.operands if isinstance(operand, Symbol)}
    merged.needs = {name: need for name, need in source.needs.items() if name in used}
    return merged
