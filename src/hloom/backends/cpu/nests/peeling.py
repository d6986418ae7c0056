"""Peeling of vector loops: the first and the last vectors of a padded row apart from those that need no masks.

Where a row is padded, as in a step of a stencil, a condition on the loop variable guards each load, with a mask of the
lanes that are inside. It holds for all vectors but those at the edges, which are emitted on their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.affine import Expression, Index, Variable
from hloom.loops.expressions import InRange
from hloom.system.records import record
from hloom.target import align_up

MIN_INNER = 8
"""The smallest number of vectors without masks that is worth the copies of a loop."""
MAX_PEELED = 96
"""The largest number of expressions in a loop that is copied."""


@record(slots=True)
class Span:
    """The vectors of a loop in [first, last)."""

    first: int
    last: int
    is_inner: bool = False
    """Whether all conditions on the variable hold."""


def spans(variable: Variable, lanes: int, last: int, expressions: Sequence[Expression]) -> list[Span]:
    """Returns the parts of a loop over whole vectors until `last`: edges of a vector each, and what is between.

    `expressions` are all those that the loop computes.
    """
    low, high = 0, last
    for expression in expressions:
        if isinstance(expression, InRange) and variable in expression.variables:
            first, end = _where_it_holds(expression, variable)
            low, high = max(low, first), min(high, end)
    first = align_up(low, lanes)
    end = first + (high - first) // lanes * lanes
    parts = [Span(0, first), Span(first, end, is_inner=True), Span(end, last)]
    found = [part for part in parts if part.first < part.last]
    is_at_edges = first <= lanes and last - lanes <= end
    pays = len(found) == 1 or (end - first >= MIN_INNER * lanes and len(expressions) <= MAX_PEELED)
    return found if is_at_edges and pays else [Span(0, last)]


def holds(condition: InRange, variable: Variable, low: int, end: int) -> bool:
    """Whether a condition holds for all values of a variable in [low, end)."""
    first, last = _where_it_holds(condition, variable)
    return variable in condition.variables and first <= low and last >= end


def _where_it_holds(condition: InRange, variable: Variable) -> tuple[int, int]:
    """The range of values of a variable for which a condition holds, whatever other variables are; empty if unknown."""
    index = condition.index
    coefficient = index.coefficient(variable) if index.is_affine_in(variable) else 0
    if coefficient != 1:
        return 0, 0
    rest = Index(tuple((atom, c) for atom, c in index.terms if atom is not variable), index.constant)
    return condition.low - rest.low, condition.high - rest.high
