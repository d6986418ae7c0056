"""Every rewrite rule has a verdict: proofs on instances of its pattern, as recorded in docs/proofs.json."""

from __future__ import annotations

import os

import pytest

import hloom as hl
import verdict_cases
import verdicts
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.ops.elementwise_binary import Add, Subtract
from hloom.passes import PASSES
from hloom.passes.rewrite import Match, rewrite
from hloom.prove.verdicts import once, prove_rule, prove_transform

RECORD = verdicts.recorded()
NAMES = [*verdicts.patterns()]
CASES = int(os.environ.get("HLOOM_CASES", "2400"))


def test_every_rule_and_pass_has_a_verdict() -> None:
    assert {name: row["patterns"] for name, row in RECORD.items()} == verdicts.patterns(), (
        "run: python tools/verdicts.py --prove, with the names of new or changed rules"
    )
    for name in NAMES:
        text = verdicts.verdict(name, RECORD[name])
        assert text.startswith(("proved", "allowed")) and "false" not in text and "open" not in text, (name, text)


def test_the_record_is_of_the_instances_that_are_drawn() -> None:
    """A change of operations or of the way that they are drawn makes other instances, which are proved anew."""
    changed = [name for name in NAMES if RECORD[name]["drawn"] != verdicts.drawn(name)]
    assert not changed, f"run: python tools/verdicts.py --prove {' '.join(changed)}"


def test_every_pass_is_proved_here_or_tested_elsewhere() -> None:
    passes = {*PASSES, *(step.name for step in cpu_pipeline(Topology.SINGLE).leaves())}
    proved = {case.step.name for case in verdict_cases.PASSES}
    elsewhere = {name for names in verdict_cases.ELSEWHERE for name in names.split(", ")}
    assert proved | elsewhere == passes and not proved & elsewhere


def test_the_page_is_up_to_date() -> None:
    assert verdicts.PAGE.read_text() == verdicts.page(RECORD), "run: python tools/verdicts.py"


def test_rules_are_proved_on_several_modules() -> None:
    few = [rule.name for rule in verdict_cases.RULES if sum(RECORD[rule.name]["outcomes"].values()) < 10]
    assert not few, "narrower patterns are needed in tools/verdict_cases.py"


@pytest.mark.parametrize("part", range(4))
def test_rules_are_proved_on_some_instances(part: int) -> None:
    for rule in verdict_cases.RULES[part::4]:
        row = RECORD[rule.name]
        type = next(t for t in verdicts.ARRAY_TYPES if str(t) in row["types"])
        evidence = prove_transform(rule.name, row["patterns"][:1], once(rule), per_type=1, types=[type])
        assert evidence.instances and not evidence.counterexample, (rule.name, evidence)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES[:: max(1, 2400 // CASES)])
def test_proofs_are_those_of_the_record(name: str) -> None:
    row = verdicts.as_record(name, verdicts.evidence_of(name))
    known = RECORD[name]
    assert not row["counterexample"]
    assert row["types"] == known["types"] and sum(row["outcomes"].values()) == sum(known["outcomes"].values()), (
        f"other instances are drawn: python tools/verdicts.py --prove {name}"
    )


# What is found


def test_a_wrong_rule_is_refuted() -> None:
    @rewrite("add(x, $c)", when=lambda m: bool(m.value("c") == 0))
    def add_zero(m: Match) -> hl.Instruction:
        return m.x

    evidence = prove_rule(add_zero, types=[hl.s32, hl.f32])
    assert "differs at" in evidence.counterexample and "add(f32" in evidence.counterexample


def test_a_rule_that_makes_an_invalid_module_is_refuted() -> None:
    @rewrite("add(x, negate(y))")
    def to_elements(m: Match) -> hl.Instruction:
        return m.build(Subtract(), (m.x, m.scalar(0)), m.root.shape)

    assert "becomes subtract[" in prove_rule(to_elements, types=[hl.f32]).counterexample


def test_conditions_are_tested_by_taking_them_away() -> None:
    @rewrite("subtract(x, $c)", when=lambda m: bool(m.value("c") == 0) and m.element_type.is_integer)
    def needed(m: Match) -> hl.Instruction:
        return m.x

    @rewrite("add(x, y)", when=lambda m: m.x.shape.rank == 1)
    def superfluous(m: Match) -> hl.Instruction:
        return m.result(Add(), m.y, m.x)

    types = [hl.f32, hl.s32]
    assert "differs at" in prove_rule(needed, types=types).guard
    assert prove_rule(superfluous, types=types).guard == "equal"
