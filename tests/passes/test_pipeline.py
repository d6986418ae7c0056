"""Pipelines: order, fixed points, verification, dumps, statistics, and parsing of `--passes`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

import hloom as hl
from compare_graphs import difference
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline, targeted_passes
from hloom.cli import main
from hloom.cli.pipelines import pipeline_named
from hloom.errors import ArgumentError, HloomError
from hloom.ops.dot import Dot
from hloom.passes import (
    PASSES,
    Pass,
    Pipeline,
    clone_module,
    parse_passes,
    run_passes,
    simplification_pipeline,
    totals,
)
from hloom.passes.fusion.fusion import FusionPass
from hloom.passes.pipeline import operations_of
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.constant_folding import ConstantFolding
from hloom.passes.simplify.dead_code import DeadCodeElimination
from passes.modules import module


@dataclass(frozen=True)
class Countdown:
    """A pass that reports `left[0]` changes, and breaks the module if `harmful`."""

    name: ClassVar[str] = "countdown"
    left: list[int]
    harmful: bool = False

    def run(self, module: hl.Module) -> int:
        if self.harmful:
            module.entry.instructions.reverse()
        self.left[0] -= 1
        return int(self.left[0] >= 0)


def test_a_group_ends_when_every_pass_in_a_row_changed_nothing() -> None:
    first, second = Countdown([2]), Countdown([0])
    runs = run_passes(module("x"), Pipeline("p", (first, second), fixpoint=True))
    assert [run.changes for run in runs] == [1, 0, 1, 0, 0]
    assert [(total.name, total.changes) for total in totals(runs)] == [("countdown", 2)]


def test_passes_that_never_end_are_stopped() -> None:
    assert Pipeline("p", (Countdown([10**6]),), fixpoint=True).run(module("x")) == 30


def test_verification_names_the_pass_that_broke_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_VERIFY", "1")
    with pytest.raises(HloomError, match="must come before it.*\n.*\n  at the module m after pass countdown"):
        run_passes(module("ROOT r = f32[4] negate(x)"), Countdown([1], harmful=True))


def test_dumps_have_ordinals_and_are_written_only_after_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOOM_DUMP", str(tmp_path))
    run_passes(module("ROOT r = s32[4] add(i, i0)"), parse_passes("inline, algsimp, dce, dce"))
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "000.start.hlo",
        "002.algsimp.hlo",
        "003.dce.hlo",
    ]
    assert " add(i" not in (tmp_path / "m" / "002.algsimp.hlo").read_text()


def test_a_clone_shares_nothing_with_the_original() -> None:
    original = module('ROOT r = s32[4] add(i, i0), metadata={op_name="a"}')
    clone = clone_module(original)
    assert difference(original, clone) is None
    text = original.to_text()
    run_passes(clone, simplification_pipeline())
    clone.frontend_attributes["a"] = "b"
    assert original.to_text() == text != clone.to_text()


def test_passes_as_text() -> None:
    pipeline = parse_passes(" algsimp{without=add-zero+sub}, constant_folding{ max_bytes=8, max_steps=9 },dce ")
    assert pipeline.passes == (
        AlgebraicSimplifier(without=("add-zero", "sub")),
        ConstantFolding(max_bytes=8, max_steps=9),
        DeadCodeElimination(),
    )
    assert parse_passes("simplification").passes == (simplification_pipeline(),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuse", "there is no pass 'fuse'; the passes are: inline, dce, .*, simplification"),
        ("dce{x=1}", "pass dce has no field 'x'; its fields are: none"),
        ("constant_folding{max=1}", "no field 'max'; its fields are: max_bytes, max_steps"),
        ("constant_folding{max_bytes=many}", "field max_bytes of pass constant_folding takes an integer, got 'many'"),
        ("dce;cse", "passes are written .* but 'dce;cse' has 'dce;cse'"),
        ("simplification{a=1}", "the pipeline simplification has no fields"),
    ],
)
def test_errors_of_passes_as_text(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_passes(text)


def test_every_pass_says_what_it_does() -> None:
    for name, cls in PASSES.items():
        assert cls.name == name
        assert "efore" in (cls.__doc__ or "") or "Merges" in (cls.__doc__ or "") or "->" in (cls.__doc__ or ""), name


def test_every_pass_of_the_compiler_has_a_name_on_the_command_line() -> None:
    for topology in Topology:
        for step in cpu_pipeline(topology).leaves():
            named = pipeline_named(step.name)
            assert isinstance(named, Pipeline) and [found.name for found in named.leaves()] == [step.name]


def test_fields_of_passes_that_depend_on_the_processor_can_be_set() -> None:
    pipeline = parse_passes("fusion{max_depth=3}", targeted_passes())
    (fusion,) = pipeline.passes
    assert isinstance(fusion, FusionPass) and fusion.max_depth == 3
    run = run_passes(module("ROOT r = f32[4] add(f32[4] negate(x), x)"), pipeline)
    assert [(each.name, each.changes) for each in run] == [("fusion", 1)]


def test_opt_prints_the_module_after_the_passes(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(module("ROOT r = s32[4] add(i, i0)").to_text())
    result = CliRunner().invoke(main, ["opt", str(path), "--verify", "--statistics"])
    assert result.exit_code == 0 and "ROOT i = s32[4]" in result.stdout
    lines = [line.split() for line in result.stderr.splitlines() if line]
    assert lines[0] == ["pass", "runs", "changes", "ms", "us", "per", "instruction"] and lines[-1][0] == "all"
    assert ["algsimp", "1", "1"] in [line[:3] for line in lines]
    result = CliRunner().invoke(main, ["opt", str(path), "--passes", "nothing"])
    assert result.exit_code == 2 and "there is no pass 'nothing'" in result.stderr
    result = CliRunner().invoke(main, ["opt", "--list"])
    assert result.exit_code == 0 and all(name in result.stdout for name in PASSES)
    assert CliRunner().invoke(main, ["opt"]).exit_code == 2


@dataclass(frozen=True)
class Settling(Countdown):
    """A countdown that declares to have nothing left to do after itself."""

    name: ClassVar[str] = "settling"
    settles: ClassVar[bool] = True


def test_a_pass_runs_again_only_where_another_one_changed_something() -> None:
    settling = Pipeline("p", (Settling([1]), Countdown([1]), Settling([0])), fixpoint=True)
    runs = run_passes(module("x"), Pipeline("twice", (settling, settling)))
    assert [(run.name, run.changes) for run in runs] == [
        ("settling", 1),
        ("countdown", 1),
        ("settling", 0),
        ("settling", 0),
        ("countdown", 0),
    ]


CORPUS = sorted(Path(__file__).parents[1].glob("corpus/*/module.hlo"))


@functools.cache
def corpus() -> list[hl.Module]:
    """The programs of the corpus, read once; a pass that may change one gets a clone."""
    return [hl.load(path) for path in CORPUS]


@pytest.mark.parametrize("name", [name for name, cls in PASSES.items() if getattr(cls, "settles", False)])
def test_passes_that_settle_have_nothing_to_do_after_themselves(name: str) -> None:
    changes = 0
    for path, original in zip(CORPUS, corpus(), strict=True):
        one = clone_module(original)
        changes += PASSES[name]().run(one)
        assert PASSES[name]().run(one) == 0, path.parent.name
    assert changes


STEPS = [step for step in cpu_pipeline().leaves() if operations_of(step) != (object,)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_passes_change_nothing_without_the_operations_that_they_name(step: Pass) -> None:
    without = [one for one in corpus() if not any(isinstance(i.op, operations_of(step)) for i in one.instructions())]
    assert without and not any(step.run(one) for one in without)


@dataclass(frozen=True)
class OfProducts(Countdown):
    """A countdown that has nothing to do in modules without products."""

    name: ClassVar[str] = "of-products"
    operations: ClassVar[tuple[type, ...]] = (Dot,)


def test_a_pass_is_not_run_on_modules_without_the_operations_that_it_names() -> None:
    assert not run_passes(module("x"), OfProducts([1]))
    product = module("ROOT y = f32[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}")
    assert run_passes(product, OfProducts([1]))
