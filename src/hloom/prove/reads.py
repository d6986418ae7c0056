"""Elements that an indexing map reads: from arrays of terms, with start indices that may be unknown.

Unknown start indices are enumerated over their ranges: the element is a choice between the reads for each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import z3

from hloom.affine import Atom, Index, Quotient, Remainder, RuntimeIndex
from hloom.ops.indexing import IndexingMap, Range, Read, RuntimeValue
from hloom.prove.terms import Term, Unsupported, choose
from hloom.values import Array

MAX_POSITIONS = 4096
"""Combinations of unknown start indices that are enumerated for an element."""

Environment = Mapping[Atom, int]
"""The values of the variables of a map."""


def value_of(index: Index, environment: Environment) -> int:
    """Returns the value of an index, given those of its variables and run-time values."""
    return index.constant + sum(c * _atom_value(atom, environment) for atom, c in index.terms)


def _atom_value(atom: Atom, environment: Environment) -> int:
    match atom:
        case Quotient():
            return value_of(atom.operand, environment) // atom.divisor
        case Remainder():
            return value_of(atom.operand, environment) % atom.divisor
    return environment[atom]


def holds(conditions: Sequence[Range], environment: Environment) -> bool:
    """Whether all conditions hold."""
    return all(c.low <= value_of(c.index, environment) < c.high for c in conditions)


def moved(mapped: IndexingMap, operands: Sequence[Array], environment: dict[Atom, int]) -> Term:
    """Returns the first read whose conditions hold, for each value that unknown start indices may have."""

    def chosen(environment: Environment) -> Term:
        read = next(read for read in mapped.reads if holds(read.conditions, environment))
        return element_read(read, operands, environment)

    dynamic = _runtime_indices(mapped.reads)
    if math.prod(atom.high - atom.low + 1 for atom in dynamic) > MAX_POSITIONS:
        raise Unsupported(f"more than {MAX_POSITIONS} combinations of start indices")
    result: Term | None = None
    for values in itertools.product(*(range(atom.low, atom.high + 1) for atom in dynamic)):
        term = chosen({**environment, **dict(zip(dynamic, values, strict=True))})
        here = [_is_clamped_to(atom, v, operands, environment) for atom, v in zip(dynamic, values, strict=True)]
        result = term if result is None else choose(z3.And(*here), term, result)
    assert result is not None
    return result


def element_read(read: Read, operands: Sequence[Array], environment: Environment) -> Term:
    """Returns the element of an operand that a read without unknown start indices names."""
    term: Term = operands[read.operand][tuple(value_of(i, environment) for i in read.index)]
    return term


def _runtime_indices(reads: Sequence[Read]) -> list[RuntimeIndex]:
    indices = [i for read in reads for i in (*read.index, *(c.index for c in read.conditions))]
    return [*dict.fromkeys(atom for i in indices for atom, _ in i.terms if isinstance(atom, RuntimeIndex))]


def _is_clamped_to(atom: RuntimeIndex, value: int, operands: Sequence[Array], environment: Environment) -> Any:
    """Returns whether the start index, clamped to the range of the atom, is `value`, as a z3 boolean."""
    source = atom.value
    assert isinstance(source, RuntimeValue)
    term = element_read(Read(source.operand, source.index), operands, environment)
    conditions = []
    if value > atom.low or value < atom.high:
        conditions = [term.bits == value] if atom.low < value < atom.high else [_beyond(term, value, value == atom.low)]
    return z3.And(*conditions)


def _beyond(term: Term, limit: int, below: bool) -> Any:
    """Returns whether an integer is at most, or at least, a limit that is not negative."""
    if limit >= 1 << (term.type.bits - term.type.is_signed):  # beyond all values of the type
        return z3.BoolVal(below)
    if term.type.is_signed:
        return term.bits <= limit if below else term.bits >= limit
    return z3.ULE(term.bits, limit) if below else z3.UGE(term.bits, limit)
