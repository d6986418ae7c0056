"""Elements that an indexing map reads: from arrays of terms, with start indices that may be unknown.

Unknown start indices are enumerated over their ranges: the element is a choice between the reads for each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from hloom.affine import Atom, Index, Quotient, Remainder, RuntimeIndex
from hloom.ops.indexing import IndexingMap, Range, Read, RuntimeValue
from hloom.prove.terms.functions import FALSE, TRUE, both, choose, is_equal, is_less, negation
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Term, Unsupported, constant
from hloom.values import Array

MAX_POSITIONS = 256
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
        raise Unsupported(f"more than {MAX_POSITIONS} combinations of start indices for an element")
    result: Term | None = None
    for values in itertools.product(*(range(atom.low, atom.high + 1) for atom in dynamic)):
        term = chosen({**environment, **dict(zip(dynamic, values, strict=True))})
        here = [_is_clamped_to(atom, v, operands, environment) for atom, v in zip(dynamic, values, strict=True)]
        result = term if result is None else choose(both(here), term, result)
    assert result is not None
    return result


def element_read(read: Read, operands: Sequence[Array], environment: Environment) -> Term:
    """Returns the element of an operand that a read without unknown start indices names."""
    term: Term = operands[read.operand][tuple(value_of(i, environment) for i in read.index)]
    return term


def _runtime_indices(reads: Sequence[Read]) -> list[RuntimeIndex]:
    indices = [i for read in reads for i in (*read.index, *(c.index for c in read.conditions))]
    return [*dict.fromkeys(atom for i in indices for atom, _ in i.terms if isinstance(atom, RuntimeIndex))]


def _is_clamped_to(atom: RuntimeIndex, value: int, operands: Sequence[Array], environment: Environment) -> Term:
    """Returns whether the start index, clamped to the range of the atom, is `value`."""
    source = atom.value
    assert isinstance(source, RuntimeValue)
    term = normal(element_read(Read(source.operand, source.index), operands, environment))
    return clamps_to(term, atom.low, atom.high, value)


def clamps_to(term: Term, low: int, high: int, value: int) -> Term:
    """Returns whether an integer, clamped to a range of numbers that are not negative, is `value`."""
    if low == high:
        return TRUE
    if low < value < high:
        return equals(term, value)
    return at_most(term, value) if value == low else negation(at_most(term, value - 1))


def equals(term: Term, value: int) -> Term:
    """Returns whether an integer is a number that is not negative."""
    return is_equal(term, constant(term.type, value)) if value <= highest(term) else FALSE


def at_most(term: Term, limit: int) -> Term:
    """Returns whether an integer is at most a limit that is not negative."""
    return TRUE if limit >= highest(term) else is_less(term, constant(term.type, limit + 1))


def highest(term: Term) -> int:
    """Returns the highest value of the type of an integer."""
    return (1 << (term.type.bits - term.type.is_signed)) - 1
