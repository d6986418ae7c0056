"""Proofs of loop nests: kernels store the elements that instructions compute, for all operands."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import pytest

import hloom as hl
from hloom.backends.cpu.elements.ops import can_apply
from hloom.instances.palette import ARRAY_TYPES
from hloom.loops import locality, split_reduction
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.lower import can_lower, lower
from hloom.loops.schedule import schedule
from hloom.prove import Proved, Undecided
from hloom.prove.generated.nests import prove_lowering
from hloom.prove.verdicts import instances
from hloom.target import Target
from prove.generated_fusions import fusions
from prove.sharded_operations import templates, unsharded
from verdict_cases import RULES

CASES = int(os.environ.get("HLOOM_CASES", "4000"))
AVX2, AVX512 = Target(32, 2), Target(64, 4)
LARGE = """
f32[24,40] transpose(f32[40,24] p0), dimensions={1,0}
f16[64,9] transpose(f16[9,64] p0), dimensions={1,0}
u8[3,16,33] transpose(u8[33,16,3] p0), dimensions={2,1,0}
f32[2,3,70] transpose(f32[3,70,2] p0), dimensions={2,0,1}
f16[130] reverse(f16[130] p0), dimensions={0}
f32[64,3] concatenate(f32[64,1] p0, f32[64,1] p1, f32[64,1] p2), dimensions={1}
f32[3,130] concatenate(f32[3,63] p0, f32[3,67] p1), dimensions={1}
f32[40,33] pad(f32[20,31] p0, f32[] p1), padding=0_1_1x1_1
f32[96] slice(f32[290] p0), slice={[1:289:3]}
f32[40] reduce(f32[40,50] p0, f32[] p1), dimensions={1}, to_apply=sum
f32[50] reduce(f32[40,50] p0, f32[] p1), dimensions={0}, to_apply=sum
s32[] reduce(s32[900] p0, s32[] p1), dimensions={0}, to_apply=plus
f32[33] reduce(f32[3,33,7] p0, f32[] p1), dimensions={0,2}, to_apply=largest
s32[31,33] reduce-window(s32[33,33] p0, s32[] p1), window={size=3x1}, to_apply=plus
""".strip().splitlines()


def operation(template: str) -> hl.Instruction:
    return next(i for i in unsharded(template).entry.instructions if i.name == "r")


LOWERED = [template for template in templates() if can_lower(operation(template), can_apply)]


def check(instruction: hl.Instruction, targets: Sequence[Target | None], may_be_open: bool = False) -> None:
    for target in targets:
        verdict = prove_lowering(instruction, target, seconds=10)
        is_open = may_be_open and isinstance(verdict, Undecided) and "time" in verdict.reason
        assert isinstance(verdict, Proved) or is_open, (str(instruction), target, verdict)


@pytest.mark.parametrize("template", LOWERED[1::6])
def test_some_nests_are_proved(template: str) -> None:
    check(operation(template), (None, AVX2))


@pytest.mark.long
@pytest.mark.parametrize("template", LOWERED + LARGE)
def test_nests_are_proved(template: str) -> None:
    check(operation(template), (None, AVX2, AVX512))


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_fusions_of_random_programs_are_proved(part: int) -> None:
    """Long chains of choices, as in the reduction of an argmax, may take too long."""
    for seed in range(part, CASES // 20, 10):
        for instruction in fusions(seed):
            check(instruction, (None, AVX2), may_be_open=True)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_instances_of_rules_are_proved(part: int) -> None:
    """Every element type, sizes of 0, attributes of all kinds."""
    count = 0
    for pattern in sorted({rule.pattern for rule in RULES})[part::10]:
        for type in ARRAY_TYPES[:: max(1, 2000 // CASES)]:
            for instance in itertools.islice(instances("nests", pattern, type), 1):
                lowered = [i for i in instance.module.entry.instructions if i.operands and can_lower(i, can_apply)]
                for instruction in lowered:
                    if instruction.opcode != "bitcast-convert":  # those that change the rank are expanded before
                        check(instruction, (None, AVX2))
                        count += 1
    assert count


@pytest.mark.parametrize("template", [LARGE[-5], LARGE[-4], *(pytest.param(t, marks=pytest.mark.long) for t in LARGE)])
def test_splits_of_long_reductions_and_tiles_are_proved(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits choose them for small arrays."""
    for name in ("MIN_PARALLEL_WORK", "MIN_PART_ITERATIONS"):
        monkeypatch.setattr(split_reduction, name, 2)
    monkeypatch.setattr(locality, "TILE_EXTENTS", (16, 8))
    check(operation(template), (AVX2,))


def test_reductions_are_split_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIN_PARALLEL_WORK", "MIN_PART_ITERATIONS"):
        monkeypatch.setattr(split_reduction, name, 2)
    kernel = lower(operation(LARGE[-4])).kernel
    schedule(kernel, AVX2)
    assert any(buffer.role == "temporary" for buffer in kernel.buffers)


def test_a_wrong_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ExpressionSpace.load
    monkeypatch.setattr(
        ExpressionSpace,
        "load",
        lambda self, type, buffer, index: load(self, type, buffer, self.indices.shift(index, 1)),
    )
    verdict = prove_lowering(operation(LOWERED[0]))
    assert isinstance(verdict, dict), verdict
