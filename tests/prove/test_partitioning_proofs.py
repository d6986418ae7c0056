"""Proofs of SPMD partitioning: the blocks of the partitions, put together, are the whole result, for all arguments."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.errors import HloomError
from hloom.fuzz.shardings import annotate
from hloom.instances.palette import ARRAY_TYPES
from hloom.ops.operation import OPERATIONS
from hloom.ops.sort import Sort
from hloom.ops.traits import Movement
from hloom.passes import clone_module
from hloom.passes.spmd.partitioner import partition
from hloom.passes.spmd.planning import rules
from hloom.passes.spmd.shardings.resharding import Resharding
from hloom.prove import Proved, Refuted, prove_partitioned
from hloom.prove.verdicts import instances
from hloom.verifier import verify_module
from passes.spmd.test_spmd_partitioner import program
from prove.sharded_operations import opcode_of, sharded, templates, unsharded
from verdict_cases import RULES

SEEDS = int(os.environ.get("HLOOM_CASES", "4000")) // 100
"""Random shardings of each operation."""


def check(template: str, seed: int) -> None:
    module, count = sharded(template, seed)
    verdict = prove_partitioned(module, count)
    assert isinstance(verdict, Proved), (seed, verdict)


@pytest.mark.parametrize("template", templates()[1::5])
def test_some_operations_are_proved_for_a_random_sharding(template: str) -> None:
    check(template, 1)


@pytest.mark.long
@pytest.mark.parametrize("template", templates())
def test_operations_are_proved_for_random_shardings(template: str) -> None:
    for seed in range(2, 2 + SEEDS):
        check(template, seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_random_programs_are_proved_for_random_shardings(part: int) -> None:
    """Instances of the patterns of rewrite rules, with constraints between their operations."""
    for pattern in sorted({rule.pattern for rule in RULES})[part::8]:
        for type in ARRAY_TYPES[part % 4 :: 4]:
            for instance in itertools.islice(instances("spmd", pattern, type), 1):
                for seed in range(1 + SEEDS // 8):
                    module, rng = clone_module(instance.module), np.random.default_rng(seed)
                    count = int(rng.choice([2, 3, 4]))
                    annotate(module, rng, count)
                    assert isinstance(verdict := prove_partitioned(module, count), Proved), (pattern, seed, verdict)


def test_every_movement_has_a_template() -> None:
    mapped = {name for name, op in OPERATIONS.items() if issubclass(op, Movement) and op.has_indexing()}
    assert mapped <= set(map(opcode_of, templates()))


ELEMENTWISE = [name for name, op in OPERATIONS.items() if op.elementwise]


@pytest.mark.parametrize(
    "opcode", [pytest.param(n, marks=[pytest.mark.long] * (k % 8 > 0)) for k, n in enumerate(ELEMENTWISE)]
)
def test_elementwise_operations_are_proved(opcode: str) -> None:
    check(elementwise(opcode), 3)


def elementwise(opcode: str) -> str:
    """A template of an element-wise operation, for types that it takes."""
    attributes = {"compare": ", direction=LT", "reduce-precision": ", exponent_bits=5, mantissa_bits=10"}
    candidates = [
        f"{result}[4,6] {opcode}({', '.join(f'{t}[4,6] p{k}' for k, t in enumerate(types))}){attributes.get(opcode, '')}"
        for types in (
            ["f32"],
            ["s32"],
            ["c64"],
            ["f32"] * 2,
            ["s32"] * 2,
            ["pred", "f32", "f32"],
            ["f32"] * 3,
            ["f32", "u32"],
        )
        for result in ("f32", "s32", "pred", "c64", "bf16")
    ]
    return next(text for text in candidates if _is_valid(text))


def _is_valid(template: str) -> bool:
    try:
        verify_module(unsharded(template))
        return True
    except HloomError:
        return False


# Faults of the partitioner are found


ROWS = "sharding={devices=[4,1]<=[4]}"
REVERSE = f"x = f32[4,2] parameter(0), {ROWS}\nROOT r = f32[4,2] reverse(x), dimensions={{0}}"
SORT = f"x = f32[4,2] parameter(0), {ROWS}\nROOT r = f32[4,2] sort(x), dimensions={{0}}, to_apply=less"
SUM = f"x = f32[4,2] parameter(0), {ROWS}\nz = f32[] parameter(1)\nROOT r = f32[2] reduce(x, z), dimensions={{0}}, to_apply=add"


def refuted(entry: str) -> Refuted:
    verdict = prove_partitioned(program(entry), 4)
    assert isinstance(verdict, Refuted), verdict
    whole = hl.compile(partition(program(entry), 1).module, "interpreter")(*verdict.arguments)
    assert np.array_equal(np.asarray(whole), np.asarray(verdict.before), equal_nan=True)
    return verdict


def test_blocks_in_the_wrong_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resharding, "reverse_blocks", lambda self, value, axes: value)
    assert "on partition 0 differs at [0, 0]" in refuted(REVERSE).difference


def test_blocks_that_depend_on_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.RULES._found, Sort, rules._elementwise)
    assert "differs" in refuted(SORT).difference


def test_sums_without_some_blocks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resharding, "all_reduce", lambda self, value, axes, computation: value)
    assert "differs" in refuted(SUM).difference


def test_sums_are_proved_up_to_their_order() -> None:
    """GEN-13: the order of sums is free."""
    assert prove_partitioned(program(SUM), 4) == Proved(clauses=("GEN-13",))


def test_the_command(tmp_path: Any) -> None:
    path = tmp_path / "module.hlo"
    path.write_text(program(SUM).to_text())
    shown = CliRunner().invoke(main, ["prove", str(path), "--partitions", "4"])
    assert shown.exit_code == 0 and "proved: " in shown.output and "GEN-13" in shown.output
    assert CliRunner().invoke(main, ["prove", str(path), "--partitions", "4", "--xla"]).exit_code == 2
