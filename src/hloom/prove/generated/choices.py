"""Formulas that are decided choice by choice, by simplification: solvers take long for choices between quotients."""

from __future__ import annotations

from typing import Any

import z3

MAX_CASES = 256
"""Cases that are distinguished for a formula."""


def is_false_in_all_cases(formula: Any) -> bool:
    """Whether a formula is false for either value of every condition of its choices; False if that is not seen."""
    waiting = [formula]
    for _ in range(MAX_CASES):
        if not waiting:
            return True
        case = waiting.pop()
        condition = _condition(case)
        if condition is None:
            return False
        for value in (z3.BoolVal(True), z3.BoolVal(False)):
            chosen = z3.simplify(z3.substitute(case, (condition, value), *_consequences(condition, value)))
            if not z3.is_false(chosen):
                waiting.append(chosen)
    return not waiting


def _consequences(condition: Any, value: Any) -> list[tuple[Any, Any]]:
    """Returns what a term is that is equal to a constant."""
    if not z3.is_true(value) or not z3.is_eq(condition):
        return []
    pairs = [condition.children(), condition.children()[::-1]]
    return [(x, y) for x, y in pairs if z3.is_bv_value(y) and not z3.is_bv_value(x)]


def _condition(formula: Any) -> Any:
    """Returns a part of the condition of a choice that does not combine others; None without choices."""
    stack, seen = [formula], set[int]()
    found = None
    while stack:
        term = stack.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_app_of(term, z3.Z3_OP_ITE):
            found = term.arg(0)
            stack, seen = [found], set()  # choices in the condition come first
            continue
        stack += term.children()
    while found is not None and (z3.is_and(found) or z3.is_or(found) or z3.is_not(found)):
        found = found.arg(0)
    return found
