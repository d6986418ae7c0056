"""Annotations that XLA's verifier accepts and rejects, beyond the rules of single operations."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
BF16 = "addb { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] add(a, b) }\n"
OTHERS = """never { a = f32[2] parameter(0), sharding={maximal device=0} ROOT r = pred[] constant(false) }
kept { ROOT a = f32[2] parameter(0), sharding={maximal device=0} }
other { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }, execution_thread="other"
"""
NEG = "neg { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }\n"

ACCEPTED = {
    "element-wise operands of two precisions": "p = bf16[2] parameter(0)\nq = f32[2] parameter(1)\n"
    "ROOT r = f32[2] add(p, q)",
    "a result of another precision": "p = f32[2] parameter(0)\nROOT r = bf16[2] negate(p)",
    "a combiner of another precision": "p = bf16[2] parameter(0)\nz = bf16[] constant(0)\n"
    "ROOT r = bf16[] reduce(p, z), dimensions={0}, to_apply=add",
    "a permute of several operands": "p = f32[2] parameter(0)\nq = s32[3] parameter(1)\n"
    "ROOT r = (f32[2], s32[3]) collective-permute(p, q), source_target_pairs={{0,1}}",
    "groups of devices that a reader does not have": "p = f32[2] parameter(0)\n"
    "ROOT r = f32[2] all-reduce(p), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=add",
    "an FFT of empty arrays": "p = c64[0,8] parameter(0)\nROOT r = c64[0,8] fft(p), fft_type=FFT, fft_length={8}",
    "a generator state of another size": "p = u64[3] parameter(0)\n"
    "ROOT r = (u64[3], u32[4]) rng-bit-generator(p), algorithm=rng_default",
    "unbounded sizes": "p = f32[?,3] parameter(0)\nROOT r = f32[?,3] negate(p)",
    "after-all of arrays": "p = f32[2] parameter(0)\nROOT r = token[] after-all(p)",
    "an asynchronous call and its result": "p = f32[2] parameter(0)\n"
    "s = ((f32[2]), f32[2], s32[]) async-start(p), calls=neg\nROOT d = f32[2] async-done(s)",
    "a dynamic reshape": "p = f32[<=4] parameter(0)\nROOT r = f32[<=2,2] reshape(p)",
    "layouts of all-reduces constrained here and there": "p = f32[2] parameter(0)\n"
    "a = f32[2] all-reduce(p), replica_groups={}, to_apply=add, constrain_layout=true\n"
    "ROOT b = f32[2] all-reduce(a), replica_groups={}, to_apply=add",
    "branches on another thread": "p = f32[2] parameter(0)\nc = s32[] constant(0)\n"
    "ROOT r = f32[2] conditional(c, p, p), branch_computations={other, neg}",
    "types of integers for a comparison of floats": "p = f32[2] parameter(0)\n"
    "ROOT r = pred[2] compare(p, p), direction=LT, type=UNSIGNED",
    "an all-to-all of several layouts": "p = f32[4,4] parameter(0)\nq = f32[4,4]{0,1} parameter(1)\n"
    "ROOT r = (f32[4,4], f32[4,4]{0,1}) all-to-all(p, q), replica_groups={{0,1}}",
    "groups of one that shapes contradict": "p = f32[8] parameter(0)\n"
    "ROOT r = f32[4] reduce-scatter(p), replica_groups={{0}}, dimensions={0}, to_apply=add",
    "an FFT of other lengths": "p = c64[8] parameter(0)\nROOT r = c64[8] fft(p), fft_type=FFT, fft_length={32}",
    "loops whose state is sharded in several ways": "p = f32[2] parameter(0)\n"
    "ROOT r = f32[2] while(p), condition=never, body=kept, sharding={replicated}",
    "a sharding without the number of partitions": "ROOT p = f32[8] parameter(0), sharding={devices=[4]<=[4]}",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_modules_that_xla_accepts_load_and_survive_printing(case: str) -> None:
    module = hl.parse(f"HloModule m\n{ADD}{NEG}{OTHERS}ENTRY e {{\n{ACCEPTED[case]}\n}}")
    assert hl.parse(module.to_text()).to_text() == module.to_text()


REFUSED = {
    "integers of two widths": ("p = s8[2] parameter(0)\nq = s32[2] parameter(1)\nROOT r = s32[2] add(p, q)", "add"),
    "a tuple of two precisions": (
        "p = bf16[2] parameter(0)\nROOT r = (f32[2]) tuple(p)",
        "tuple",
    ),
    "a sharding of another rank": (
        "ROOT p = f32[8] parameter(0), sharding={devices=[2,2]<=[4]}",
        "tiles 2 dimensions, and .* has 1",
    ),
    "a start without its done": (
        "p = f32[2] parameter(0)\ns = f32[2] all-reduce-start(p), replica_groups={}, to_apply=add\n"
        "ROOT r = f32[2] negate(p)",
        "for one all-reduce-done only",
    ),
    "a done of another start": (
        "p = f32[2] parameter(0)\ns = (f32[2], f32[4]) all-gather-start(p), dimensions={0}, replica_groups={{0,1}}\n"
        "ROOT r = f32[4] collective-permute-done(s)",
        "all-gather-start",
    ),
    "a context used by an operation": (
        "p = f32[2] parameter(0)\ns = ((f32[2]), f32[2], s32[]) async-start(p), calls=neg\n"
        "d = f32[2] async-done(s)\nROOT r = ((f32[2]), f32[2], s32[]) copy(s)",
        "for one async-done only",
    ),
    "an alias of no operand": (
        'p = f32[2] parameter(0)\nROOT r = f32[2] custom-call(p), custom_call_target="f", '
        "output_to_operand_aliasing={{}: (1, {})}",
        "an alias names operand 1 of 1",
    ),
    "an alias of another shape": (
        'p = f32[3] parameter(0)\nROOT r = f32[2] custom-call(p), custom_call_target="f", '
        "output_to_operand_aliasing={{}: (0, {})}",
        "aliases have one shape",
    ),
    "a composite without a name": (
        "p = f32[2] parameter(0)\nROOT r = f32[2] call(p), to_apply=neg, is_composite=true",
        "composite.name",
    ),
    "a seed of another type": ('ROOT r = u32[] custom-call(), custom_call_target="GetRngSeed"', "gives u64"),
    "a buffer as a parameter": ("ROOT p = b(f32[2]) parameter(0)", "must not be buffers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_modules_that_xla_refuses_raise_errors_that_name_the_rule(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises((hl.RuleError, hl.VerifyError), match=message):
        hl.parse(f"HloModule m\n{ADD}{NEG}ENTRY e {{\n{text}\n}}")


def test_the_error_of_a_run_names_the_number_of_devices_needed() -> None:
    module = hl.parse(f"HloModule m\n{ADD}ENTRY e {{\n{ACCEPTED['groups of devices that a reader does not have']}\n}}")
    with pytest.raises(hl.RuleError, match=r"the module needs 8 \(replicas=..\) and 1"):
        hl.compile(module)
    assert hl.compile(module, replicas=8).device_count == 8


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("an FFT of other lengths", r"FFT-6\]: FFT of length \[32\] takes last sizes \[32\]"),
        ("groups of one that shapes contradict", r"REDUCESCATTER-4\]: the shapes say 2 members"),
    ],
)
def test_modules_that_load_without_semantics_do_not_run(case: str, message: str) -> None:
    with pytest.raises(hl.RuleError, match=message):
        hl.compile(f"HloModule m\n{ADD}ENTRY e {{\n{ACCEPTED[case]}\n}}")


def test_partitioning_requires_one_sharding_of_a_loop() -> None:
    case = ACCEPTED["loops whose state is sharded in several ways"]
    text = f"HloModule m\n{ADD}{NEG}{OTHERS}ENTRY e {{\n{case}\n}}"
    with pytest.raises(hl.RuleError, match="must have one sharding"):
        hl.compile(text, partitions=2)
    assert hl.compile(text)(np.ones(2, np.float32)).tolist() == [1, 1]
