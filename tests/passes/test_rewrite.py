"""The engine of rewrite rules: later runs of a pipeline look only at what changed, and find what a first run finds."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloom as hl
from hloom.fuzz.grammar import draw_case
from hloom.ops.elementwise_binary import Add
from hloom.passes import clone_module, run_passes, simplification_pipeline
from hloom.passes.rewrite import Match, Rule, RuleSet, Settled
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from passes.modules import module, same_graph

CORPUS = sorted(Path(__file__).parents[1].glob("corpus/*/module.hlo"))


@pytest.fixture
def looked() -> list[str]:
    return []


@pytest.fixture
def rules(looked: list[str]) -> RuleSet:
    """A rule of negations that never applies, and lists those that it was tried on."""

    def when(match: Match) -> bool:
        looked.append(match.root.name)
        return False

    return RuleSet([Rule("none", "negate(x)", lambda match: match.x, "never", when)])


def test_later_runs_look_at_changes_and_three_levels_of_users(rules: RuleSet, looked: list[str]) -> None:
    chain = "; ".join(f"a{k} = f32[4] negate({f'a{k - 1}' if k else 'x'})" for k in range(8))
    program = module(f"{chain}; other = f32[4] negate(y); ROOT r = f32[4] add(a7, other)")
    settled: Settled = {}
    rules.apply(program, settled)
    assert looked == [*(f"a{k}" for k in range(8)), "other"]
    looked.clear()
    rules.apply(program, settled)
    assert not looked
    by_name = {each.name: each for each in program.entry.instructions}
    by_name["a2"].replace_operand(0, by_name["a0"])  # which has two users now, and a1 none
    rules.apply(program, settled)
    assert looked == ["a0", "a1", "a2", "a3", "a4", "a5"]
    looked.clear()
    rules.apply(program)
    assert len(looked) == 9


def test_instructions_that_lose_a_user_are_looked_at_again() -> None:
    """The negation moves past a reshape, of which it is the only user once the product with zero is gone."""
    before = module(
        "a = s32[4,1] reshape(i); below = s32[4,1] negate(a); b = s32[4] reshape(a); none = s32[4] negate(b);"
        "zero = s32[4] multiply(none, i0); c1 = s32[4] reshape(below); ROOT r = s32[4] add(c1, zero)"
    )
    AlgebraicSimplifier().run(before)
    assert same_graph(before, module("ROOT r = s32[4] negate(i)"))


def test_a_rule_alone_remembers_between_runs() -> None:
    rule = Rule("negated", "subtract(x, negate(y))", lambda m: m.result(Add(), m.x, m.y), "x - (-y) = x + y")
    program = module("a = f32[4] negate(y); ROOT r = f32[4] subtract(x, a)")
    settled: Settled = {}
    assert rule.apply(program, settled) == {"negated": 1}
    assert not rule.apply(program, settled)
    assert len(settled) == len(program.computations)


def check_nothing_is_left(program: hl.Module) -> None:
    simplified = clone_module(program)
    run_passes(simplified, simplification_pipeline())
    assert not AlgebraicSimplifier().apply(clone_module(simplified)).replaced


@pytest.mark.sampled(80)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.parent.name)
def test_the_pipeline_leaves_nothing_to_apply(path: Path) -> None:
    check_nothing_is_left(hl.load(path))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(40))
def test_the_pipeline_leaves_nothing_to_apply_to_random_programs(seed: int) -> None:
    check_nothing_is_left(draw_case(seed).module)
