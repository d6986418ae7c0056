"""tuple-simplifier: cancels tuple with get-tuple-element."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hloom.ir import Module
from hloom.ops.structure import GetTupleElement
from hloom.passes.rewrite import Match, Rule, RuleSet, Settled
from hloom.system.records import record


def _is_taken_apart_and_joined(m: Match) -> bool:
    """Whether every operand k of the tuple is element k of another tuple, which has no further elements."""
    elements = m.root.operands
    if not elements or not isinstance(elements[0].op, GetTupleElement):
        return False
    source = elements[0].operands[0]
    return len(source.shape.elements) == len(elements) and all(
        isinstance(e.op, GetTupleElement) and e.operands[0] is source and e.op.index == k
        for k, e in enumerate(elements)
    )


RULES = (
    Rule(
        "element-of-tuple",
        "get-tuple-element(tuple(*))",
        lambda m: m.root.operands[0].operands[m.op.index],
        "element k of a tuple is its operand k",
    ),
    Rule(
        "tuple-of-elements",
        "tuple(*)",
        lambda m: m.root.operands[0].operands[0],
        "a tuple of all elements of a tuple is that tuple",
        when=_is_taken_apart_and_joined,
    ),
)

_RULE_SET = RuleSet(RULES)


@record
class TupleSimplifier:
    """Before: get-tuple-element(tuple(..)), tuple(get-tuple-element(t, 0), ..). After: the element, the tuple t.

    Does not look through opt-barriers, calls and loops.
    """

    name: ClassVar[str] = "tuple-simplifier"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (GetTupleElement,)

    def run(self, module: Module) -> int:
        """Applies the rules; returns the number of applications."""
        return self.apply(module).total()

    def apply(self, module: Module, settled: Settled | None = None) -> Counter[str]:
        """Applies the rules, where `settled` does not rule them out; returns the number of applications of each."""
        return _RULE_SET.apply(module, settled)
