"""tuple-simplifier: tuples that are made and taken apart again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Module
from hloom.passes.rewrite import Match, Rule, RuleSet


def _is_taken_apart_and_joined(m: Match) -> bool:
    """Every element k of the tuple is element k of one and the same tuple, which has no more of them."""
    elements = m.root.operands
    if not elements or any(e.op.opcode != "get-tuple-element" for e in elements):
        return False
    source = elements[0].operands[0]
    return len(source.shape.elements) == len(elements) and all(
        e.operands[0] is source and e.op.index == k  # type: ignore[attr-defined]
        for k, e in enumerate(elements)
    )


RULES = (
    Rule(
        "element-of-tuple",
        "get-tuple-element(tuple(*))",
        lambda m: m.root.operands[0].operands[m.op.index],
        "element k of a tuple is the k-th value that it was made of",
    ),
    Rule(
        "tuple-of-elements",
        "tuple(*)",
        lambda m: m.root.operands[0].operands[0],
        "all elements of a tuple, joined again, are that tuple",
        when=_is_taken_apart_and_joined,
    ),
)

_RULE_SET = RuleSet(RULES)


@dataclass(frozen=True)
class TupleSimplifier:
    """Before: get-tuple-element(tuple(..)), tuple(get-tuple-element(t, 0), ..). After: the element, the tuple t.

    It does not look through opt-barriers, calls and loops.
    """

    name: ClassVar[str] = "tuple-simplifier"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        return _RULE_SET.apply(module).total()
