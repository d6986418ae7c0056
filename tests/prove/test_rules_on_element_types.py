"""Every rewrite rule is proved for other element types than those of its tests."""

from __future__ import annotations

import re

import pytest

import hloom as hl
from hloom.passes.rewrite import RuleSet
from hloom.prove import Proved, Undecided, prove
from passes.simplify.test_algebraic_simplifier import BY_NAME, CASES, module

OF_FLOATS = ("f16", "bf16", "f64", "f8e5m2", "f8e4m3fn", "f4e2m1fn")
OF_INTEGERS = ("s8", "u8", "s4", "s64", "u16")
IEEE = ("f16", "bf16", "f64")
SLOW = {("multiply-negated", "f64"), ("divide-power-of-two", "f64")}
"""Products and quotients of 53 bits, which take the solver minutes."""


def with_types(text: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\[", f"{new}[", text)


@pytest.mark.parametrize(
    "new", [pytest.param(t, marks=[pytest.mark.long] * (t not in ("bf16", "s8"))) for t in OF_FLOATS + OF_INTEGERS]
)
@pytest.mark.parametrize("family", range(6))
def test_rules_are_proved_for_other_element_types(new: str, family: int) -> None:
    olds = ("f32",) if new in OF_FLOATS else ("s32", "u32")
    proved = 0
    for rule, before in [case[:2] for case in CASES][family::6]:
        text = module(before).to_text()
        for old in olds:
            try:
                given, rewritten = (hl.parse(with_types(text, old, new)) for _ in range(2))
                applied = RuleSet([BY_NAME[rule]]).apply(rewritten).total()
            except hl.HloomError:
                continue  # not valid for this type
            if not applied or f"{old}[" not in text or (rule, new) in SLOW:
                continue
            verdict = prove(given, rewritten)
            may_be_open = new.startswith("f") and new not in IEEE and isinstance(verdict, Undecided)
            assert verdict == Proved() or may_be_open, (rule, before, verdict)
            proved += verdict == Proved()
    assert proved >= 5
