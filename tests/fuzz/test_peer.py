"""Known differences of XLA: cases of the suite of miscompilations are in their classes, plain programs in none."""

from __future__ import annotations

import numpy as np

import hloom as hl
from hloom.faults.case import Case
from hloom.fuzz.noise import flushed
from hloom.fuzz.oracles import Problem
from hloom.fuzz.peer import abort_of, class_of
from miscompilations.found_by_fuzzing import CASES

CLASSES = {
    "constant-atan2-of-zeros-in-bf16": "folded atan2",
    "popcnt-of-negative-s4": "popcnt of narrow integers",
    "power-of-s16-with-exponents-from-64": "powers of integers",
    "scatter-with-empty-index-vectors": "empty index vectors",
    "power-with-an-unsigned-exponent": "powers of integers",
    "constant-convolution-of-integers-saturates": "folded convolutions of integers",
    "constant-bitcast-of-wide-integers-to-u4": "folded bitcasts to narrow integers",
    "constant-count-leading-zeros-of-a-negative-number": "folded leading zeros",
    "constant-reduce-precision-of-nan-without-mantissa": "folded precision of NaN",
    "constant-rounding-of-f8e3m4": "folded rounding of f8e3m4",
    "constant-rounding-of-f8e3m4-to-even": "folded rounding of f8e3m4",
    "sort-of-two-bit-integers": "sorts of two bits",
    "reduce-scatter-of-nan-on-one-device": "scattered maxima of NaN",
    "gradient-of-a-scale-without-elements": "gradients without elements",
    "cosine-of-large-imaginary-numbers": "overflow of complex functions",
    "random-bits-of-signed-integers-are-unsigned": "signed random bits",
}


def test_aborts_have_classes_by_what_failed() -> None:
    lines = {"SIGABRT: F1 a.cc:3] Check failed: n == 12 (3 vs. 4)": "n == N (N vs. N)", "SIGSEGV: ": "SIGSEGV"}
    for line, name in lines.items():
        assert abort_of(Problem("crash", f"peer ended with {line}")) == f"aborts: {name}"
    assert not abort_of(Problem("difference", "result 0 differs"))


def test_the_faults_that_fuzzing_found_are_known_differences() -> None:
    found = {}
    for case in CASES:
        known = class_of(Case(hl.parse(case.text), case.arguments), Problem("difference", ""))
        found[case.name] = known.name if known else None
    assert {name: found[name] for name in CLASSES} == CLASSES


def test_reductions_of_single_elements_are_a_class() -> None:
    for size, name in ((1, "reductions of single elements"), (2, None)):
        module = hl.parse(f"""sum {{ a = s32[] parameter(0)
          b = s32[] parameter(1)
          ROOT s = s32[] add(a, b) }}
        ENTRY e {{ x = s32[3,{size}] parameter(0)
          five = s32[] constant(5)
          ROOT r = s32[3] reduce(x, five), dimensions={{1}}, to_apply=sum }}""")
        known = class_of(Case.random(module, 0), Problem("difference", ""))
        assert (known and known.name) == name


def test_differences_of_plain_programs_are_of_no_class() -> None:
    for text in (
        "ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] add(x, x) }",
        "ENTRY e { x = s8[2] parameter(0)\n ROOT r = s8[2] popcnt(x) }",
        "ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] atan2(x, x) }",
        "ENTRY e { x = f8e3m4[2] parameter(0)\n ROOT r = f8e3m4[2] round-nearest-afz(x) }",
        "ENTRY e { x = f8e5m2[2,2] parameter(0)\n ROOT r = f8e5m2[2,2] cholesky(x) }",
    ):
        module = hl.parse(text)
        assert class_of(Case.random(module, 0), Problem("difference", "")) is None
        crash = class_of(Case.random(module, 0), Problem("crash", ""))
        assert crash is not None and crash.name == "aborts"


def test_subnormals_may_be_zero_on_xla() -> None:
    """GEN-7 keeps them: the peer's noise, not hloom's, allows zeros of the same sign."""
    x = np.array([1e-40, -1e-40, 1.0, np.nan], np.float32)
    assert np.array_equal(flushed(x), np.array([0.0, -0.0, 1.0, np.nan], np.float32), equal_nan=True)
    assert np.signbit(flushed(x)[1])
