"""Equality by cases: conditions of choices are assumed true and false in turn, until no choice is left.

What is assumed of comparisons with constants bounds an integer, and decides its other comparisons; an integer with one
value left is that constant. Most equalities of programs with unknown start indices need no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.compare import Compare
from hloom.ops.select import Select
from hloom.prove.terms.functions import EQUAL, FALSE, LESS, TRUE, apply
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Combination, Term, constant, in_order
from hloom.types import PrimitiveType

MAX_WORK = 20_000
"""Terms that are visited, for all cases together."""

LOGIC = (binary.And, binary.Or, binary.Xor, unary.Not)


@dataclass
class Facts:
    """Assumptions: conditions with their values, and the values that are left to integers: bounds and exceptions."""

    values: dict[Term, bool] = field(default_factory=dict)
    bounds: dict[Term, tuple[int, int]] = field(default_factory=dict)
    excluded: dict[Term, frozenset[int]] = field(default_factory=dict)

    def with_fact(self, condition: Term, value: bool) -> Facts | None:
        """Returns the facts with one more; None if no integer has these properties."""
        facts = Facts({**self.values, condition: value}, dict(self.bounds), dict(self.excluded))
        comparison = _comparison(condition)
        if comparison is None:
            return facts
        x, limit, kind = comparison
        low, high = facts.range_of(x)
        excluded = facts.excluded.get(x, frozenset())
        if kind == "==":
            low, high = (max(low, limit), min(high, limit)) if value else (low, high)
            excluded |= frozenset() if value else {limit}
        elif kind == "<":
            low, high = (low, min(high, limit - 1)) if value else (max(low, limit), high)
        else:
            low, high = (max(low, limit + 1), high) if value else (low, min(high, limit))
        while low <= high and low in excluded:
            low += 1
        while low <= high and high in excluded:
            high -= 1
        facts.bounds[x], facts.excluded[x] = (low, high), excluded
        return facts if low <= high else None

    def range_of(self, x: Term) -> tuple[int, int]:
        """Returns the lowest and the highest value that is left to an integer."""
        return self.bounds.get(x, x.type.limits)

    def known(self, term: Term) -> Term | None:
        """Returns the constant that a term is, if the facts say so."""
        if term in self.values:
            return TRUE if self.values[term] else FALSE
        if term in self.bounds and self.bounds[term][0] == self.bounds[term][1]:
            return constant(term.type, self.bounds[term][0])
        comparison = _comparison(term)
        if comparison is None or comparison[0] not in self.bounds:
            return None
        x, limit, kind = comparison
        low, high = self.bounds[x]
        if kind == "==":
            is_out = not low <= limit <= high or limit in self.excluded.get(x, ())
            return FALSE if is_out else TRUE if low == high else None
        if kind == "<":
            return TRUE if high < limit else FALSE if low >= limit else None
        return TRUE if low > limit else FALSE if high <= limit else None


def _comparison(condition: Term) -> tuple[Term, int, str] | None:
    """Returns an integer, a constant, and how they are compared: "==", "<" or ">"; None for other conditions."""
    if not isinstance(condition.op, Compare) or not condition.operands[0].type.is_integer:
        return None
    x, y = condition.operands
    if condition.op == EQUAL and (x.known is None) != (y.known is None):
        return (x, _signed(y), "==") if x.known is None else (y, _signed(x), "==")
    if condition.op == LESS and y.known is not None and x.known is None:
        return x, _signed(y), "<"
    if condition.op == LESS and x.known is not None and y.known is None:
        return y, _signed(x), ">"
    return None


def _signed(x: Term) -> int:
    known = x.known or 0
    return known - (1 << x.type.bits) if x.type.is_signed and known >> (x.type.bits - 1) else known


def equal_by_cases(x: Term, y: Term) -> bool:
    """Whether two elements are equal in all cases; False if that is not found out."""
    stack = [(Facts(), x, y)]
    work = 0
    while stack and work < MAX_WORK:
        facts, a, b = stack.pop()
        if a is b:
            continue
        condition = _condition_in(a) or _condition_in(b)
        if condition is None:
            return False
        for value in (True, False):
            more = facts.with_fact(condition, value)
            if more is not None:
                (left, count), (right, more_count) = _restricted(a, more), _restricted(b, more)
                work += count + more_count
                stack.append((more, normal(left), normal(right)))
    return not stack


def _condition_in(root: Term) -> Term | None:
    """Returns a condition of the last choice of a term that does not consist of others."""
    if root.type is PrimitiveType.PRED and root.known is None and (found := _atom(root)) is not root:
        return found
    for term in in_order([root]):
        if isinstance(term.op, Select):
            return _atom(term.operands[0])
    return root if root.type is PrimitiveType.PRED and root.known is None else None


def _atom(condition: Term) -> Term:
    """Returns the first part of a condition that does not consist of others."""
    while isinstance(condition.op, LOGIC) or (
        isinstance(condition.op, Combination) and isinstance(condition.op.op, LOGIC)
    ):
        condition = condition.operands[0]
    return condition


def _restricted(root: Term, facts: Facts) -> tuple[Term, int]:
    """Returns a term with what the facts say of its parts, and the number of its parts."""
    found: dict[Term, Term] = {}
    for term in in_order([root]):
        known = facts.known(term)
        if known is not None:
            found[term] = known
        elif term.op is None:
            found[term] = term
        else:
            operands: Sequence[Term] = [found[operand] for operand in term.operands]
            is_same = all(a is b for a, b in zip(operands, term.operands, strict=True))
            found[term] = term if is_same else apply(term.op, term.type, operands)
    return found[root], len(found)
