"""Oracles find planted faults, accept what the specification allows, and findings are reduced."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hloom.faults.case import Case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.job import problem_of, reduced
from hloom.fuzz.oracles import Problem, after_pass, judged, rewritten, text_round_trip
from hloom.fuzz.reference import Reference
from hloom.fuzz.state import Finding, State, operations_of
from hloom.ir import Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.elementwise_binary import Add, Subtract
from hloom.passes import PASSES, run_passes

PROGRAM = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e { x = f32[64] parameter(0)
  n = s32[8] parameter(1)
  m = s32[8] add(n, n)
  zero = f32[] constant(0)
  l = f32[64] exponential(x)
  t = f32[] reduce(l, zero), dimensions={0}, to_apply=sum
  ROOT r = (f32[], s32[8]) tuple(t, m) }
"""


def case_of(text: str, *arguments: np.ndarray) -> Case:
    return Case(hl.parse(text), arguments)


@pytest.fixture
def case() -> Case:
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    return case_of(PROGRAM, x, np.arange(8, dtype=np.int32))


def subtracts(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """A pass that makes additions of integers subtractions."""

    def rewrite(module: Module) -> None:
        for instruction in module.instructions():
            if isinstance(instruction.op, Add) and instruction.shape.element_type.is_integer:
                instruction.op = Subtract()

    return rewritten(case, reference, rewrite, "planted")


def test_a_wrong_rewrite_is_found_and_reduced(case: Case, tmp_path: Path) -> None:
    found = problem_of(subtracts, case, 0)
    assert found is not None and found.kind == "difference" and "result 1 differs in 7 of 8" in found.message
    small = reduced(subtracts, case, found, 0)
    assert operations_of(small) == ["add"]
    state = State(tmp_path)
    finding = Finding("planted", found.kind, found.message, operations_of(small), 0)
    assert state.add(finding, small) and not state.add(finding, small)
    ((kept, folder),) = state.findings()
    assert kept.count == 2 and folder.name == "planted+difference+add"
    assert np.array_equal(hl.Snapshot.load(folder / "case.pb").replay("interpreter"), small.arguments[0] * 2)  # type: ignore[index]


def test_findings_are_kept_in_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(hl.ArgumentError, match="file is not a folder for findings: Not a directory"):
        State(tmp_path / "file")


def test_invalid_modules_and_bare_exceptions_are_problems(case: Case) -> None:
    def invalid(module: Module) -> None:
        module.entry.instructions[2].op = Compare(direction=ComparisonDirection.LT)

    def raises(module: Module) -> None:
        raise KeyError("planted")

    for rewrite, kind in ((invalid, "invalid"), (raises, "exception")):
        found = rewritten(case, Reference(case), rewrite, "planted")
        assert found is not None and found.kind == kind


def test_programs_of_several_replicas_do_not_become_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.fuzz.oracles.PASSES", {name: PASSES[name] for name in ("single-device", "dce")})
    replicas = case_of("ENTRY e { ROOT r = u32[] replica-id() }")
    replicas.module.replica_count = 2
    reference = Reference(replicas)
    assert all(after_pass(replicas, reference, Draw(seed)) is None for seed in range(8))


def test_other_orders_of_a_sum_are_allowed_and_other_sums_are_not(case: Case) -> None:
    """REDUCE-4 leaves the order open; UNARY-2 allows errors of the exponential."""
    reference = Reference(case)
    assert not reference.is_exact
    x, n = case.arguments or ()
    backwards = np.float32(0)
    for term in np.exp(x.astype(np.float64)).astype(np.float32)[::-1]:
        backwards += term
    assert judged(reference, (backwards, n * 2)) is None
    assert judged(reference, (backwards * np.float32(1.0001), n * 2)) is not None
    assert judged(reference, (backwards, n * 2 + 1)) is not None


def test_errors_of_transforms_are_relative_to_the_largest_element() -> None:
    """Sums that one order keeps exact have errors in another, which do not cancel later; 2^-10 of 900 is none."""
    text = "ENTRY e { x = c64[30,30] parameter(0)\n ROOT r = c64[30,30] fft(x), fft_type=FFT, fft_length={30,30} }"
    reference = Reference(case_of(text, np.ones((30, 30), np.complex64)))
    exact = np.zeros((30, 30), np.complex64)
    exact[0, 0] = 900
    nearly, wrong = exact.copy(), exact.copy()
    nearly[3, 0], wrong[3, 0] = 900 * 2.0**-24, 900 * 2.0**-10
    assert judged(reference, nearly) is None
    assert judged(reference, wrong) is not None


def test_complex_parts_that_leave_the_range_depend_on_the_formula() -> None:
    """A fused -2 max + inf is infinite; otherwise the product overflows, and the sum is NaN."""
    x, y = np.full(2, -2 + 1j), np.array([complex(np.inf, np.finfo(np.float64).max), 1])
    text = "ENTRY e { x = c128[2] parameter(0)\n y = c128[2] parameter(1)\n ROOT r = c128[2] multiply(x, y) }"
    reference = Reference(case_of(text, x, y))
    for part in (np.inf, np.nan):
        assert judged(reference, np.array([complex(-np.inf, part), -2 + 1j])) is None
        assert judged(reference, np.array([complex(-np.inf, part), -2 + 1.001j])) is not None


def test_sums_of_integers_as_floats_are_not_exact() -> None:
    """DOT-3: in f32, 2^62 + 1 - 2^62 is 1 or 0."""
    product = "dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    text = f"ENTRY e {{ x = s64[3] parameter(0)\n y = s64[3] parameter(1)\n ROOT r = f32[] {product} }}"
    reference = Reference(case_of(text, np.array([2**31, 1, -(2**31)]), np.array([2**31, 1, 2**31])))
    assert judged(reference, np.float32(0)) is judged(reference, np.float32(1)) is None
    assert judged(reference, np.float32(2**50)) is not None


def test_sums_of_narrow_floats_are_rounded_in_each_step_or_in_the_end() -> None:
    """REDUCE-4: in f8e4m3fn, 16 + 1 + 2 is 18 or 20; sums without a rounding have one value."""
    text = """added { a = f8e4m3fn[] parameter(0)
      b = f8e4m3fn[] parameter(1)
      ROOT s = f8e4m3fn[] add(a, b) }
    ENTRY e { x = f8e4m3fn[2,9] parameter(0)
      zero = f8e4m3fn[] constant(0)
      ROOT r = f8e4m3fn[2] reduce(x, zero), dimensions={1}, to_apply=added }"""
    x = np.ones((2, 9), ml_dtypes.float8_e4m3fn)
    x[0], x[1, 0] = [16, 1, 2, 0, 0, 0, 0, 0, 0], 0
    reference = Reference(case_of(text, x))
    for first in (18, 20):
        assert judged(reference, np.array([first, 8], x.dtype)) is None
        assert judged(reference, np.array([first, 9], x.dtype)) is not None
    assert judged(reference, np.array([32, 8], x.dtype)) is not None


def test_products_of_narrow_floats_are_rounded_once() -> None:
    """DOT-3: they are summed in f32."""
    product = "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = (
        f"ENTRY e {{ x = f8e5m2[3,40] parameter(0)\n y = f8e5m2[40,2] parameter(1)\n ROOT r = f8e5m2[3,2] {product} }}"
    )
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(sizes).astype(ml_dtypes.float8_e5m2) for sizes in ((3, 40), (40, 2)))
    exact = x.astype(np.float64) @ y.astype(np.float64)
    reference = Reference(case_of(text, x, y))
    assert judged(reference, exact.astype(x.dtype)) is None
    assert judged(reference, (exact * 1.25).astype(x.dtype)) is not None


def test_errors_of_subnormal_values_are_units_of_theirs() -> None:
    least = np.finfo(np.float64).smallest_subnormal
    x = np.array([complex(0, 40 * least), 1])
    reference = Reference(case_of("ENTRY e { x = c128[2] parameter(0)\n ROOT r = c128[2] tanh(x) }", x))
    exact = np.tanh(x)
    assert judged(reference, np.array([complex(0, 42 * least), exact[1]])) is None
    assert judged(reference, np.array([complex(0, 80 * least), exact[1]])) is not None


def test_orders_of_products_count_where_factors_leave_the_range() -> None:
    """300 * 300 is NaN in f8e4m3fn; other orders multiply by 2^-6 first."""
    text = """multiplied { a = f8e4m3fn[] parameter(0)
      b = f8e4m3fn[] parameter(1)
      ROOT p = f8e4m3fn[] multiply(a, b) }
    ENTRY e { x = f8e4m3fn[2,4] parameter(0)
      one = f8e4m3fn[] constant(1)
      ROOT r = f8e4m3fn[2] reduce(x, one), dimensions={1}, to_apply=multiplied }"""
    x = np.array([[256, 256, 0.015625, 0.015625], [2, 2, 0.5, 2]], ml_dtypes.float8_e4m3fn)
    reference = Reference(case_of(text, x))
    for first in (16.0, np.nan):
        assert judged(reference, np.array([first, 4], x.dtype)) is None
        assert judged(reference, np.array([first, 64], x.dtype)) is not None


def test_factorisations_have_errors_and_any_result_where_nothing_is_finite() -> None:
    call = """custom-call(x), custom_call_target="lapack_dgeqrf_ffi", api_version=API_VERSION_TYPED_FFI"""
    text = f"ENTRY e {{ x = f64[3,2] parameter(0)\n ROOT r = (f64[3,2], f64[2]) {call} }}"
    x = np.random.default_rng(0).standard_normal((3, 2))
    reference = Reference(case_of(text, x))
    packed, factors = reference.results
    assert judged(reference, (packed * (1 + 2.0**-52), factors)) is None
    assert judged(reference, (packed * 1.001, factors)) is not None
    x[1, 0] = np.inf
    assert judged(Reference(case_of(text, x)), (np.full((3, 2), np.nan), factors)) is None


def test_exact_programs_are_compared_bit_for_bit() -> None:
    x = np.array([1.0, -0.0, np.nan], np.float32)
    reference = Reference(case_of("ENTRY e { x = f32[3] parameter(0)\n ROOT r = f32[3] add(x, x) }", x))
    assert reference.is_exact
    assert judged(reference, x + x) is None
    assert judged(reference, np.abs(x + x)) is not None
    assert judged(reference, np.nextafter(x + x, np.float32(9))) is not None


def test_what_hangs_on_a_rounding_error_is_free() -> None:
    """x / 3 * 3 < exp(log(x)) may be true or false: a comparison of numbers that are as close as the errors."""
    text = """ENTRY e { x = f32[1000] parameter(0)
      l = f32[1000] log(x)
      e = f32[1000] exponential(l)
      ROOT r = pred[1000] compare(e, x), direction=LT }"""
    case = case_of(text, np.linspace(1, 2, 1000, dtype=np.float32))
    assert judged(Reference(case), np.zeros(1000, bool)) is None
    far = case_of(text.replace("compare(e, x)", "compare(e, l)"), *(case.arguments or ()))
    assert judged(Reference(far), np.ones(1000, bool)) is not None


def test_steps_of_a_product_overflow_in_some_orders() -> None:
    """REDUCE-4: 2^100 2^100 2^-100 2^-90 is 2^10, or NaN where the first two meet in a type up to 2^127."""
    text = """product { a = f8e8m0fnu[] parameter(0)
      b = f8e8m0fnu[] parameter(1)
      ROOT p = f8e8m0fnu[] multiply(a, b) }
    ENTRY e { x = f8e8m0fnu[4] parameter(0)
      one = f8e8m0fnu[] constant(1)
      ROOT r = f8e8m0fnu[] reduce(x, one), dimensions={0}, to_apply=product }"""
    dtype = ml_dtypes.float8_e8m0fnu
    reference = Reference(case_of(text, np.exp2([100, 100, -100, -90]).astype(dtype)))
    assert all(judged(reference, np.asarray(value, dtype)) is None for value in (2.0**10, np.nan))


def test_quotients_by_an_infinite_variance_are_zero() -> None:
    text = """ENTRY e { x = f32[1,2] parameter(0)
      one = f32[1] parameter(1)
      b = (f32[1,2], f32[1], f32[1]) batch-norm-training(x, one, one), epsilon=0.1, feature_index=0
      y = f32[1,2] get-tuple-element(b), index=0
      ROOT l = f32[1,2] sqrt(y) }"""
    one = np.ones(1, np.float32)
    reference = Reference(case_of(text, np.array([[1e30, 0]], np.float32), one))
    assert judged(reference, np.ones((1, 2), np.float32)) is None


def test_products_of_infinite_complex_values_depend_on_the_formula() -> None:
    """(inf - 0i)^2 has the real part inf * inf - 0 * 0 by one formula, and NaN by those with fewer products."""
    text = """ENTRY e { x = c64[4] parameter(0)
      d = c64[] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
      ROOT r = u8[] convert(d) }"""
    infinite = Reference(case_of(text, np.full(4, complex(np.inf, -0.0), np.complex64)))
    assert all(judged(infinite, np.uint8(value)) is None for value in (0, 255))
    finite = Reference(case_of(text, np.full(4, 2, np.complex64)))
    assert judged(finite, np.uint8(16)) is None
    assert judged(finite, np.uint8(255)) is not None


def test_texts_that_read_back_as_other_modules_are_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert text_round_trip(case, Reference(case), Draw(0)) is None
    monkeypatch.setattr(Module, "to_text", lambda module: PROGRAM.replace("add(n, n)", "subtract(n, n)"))
    found = text_round_trip(case, Reference(case), Draw(0))
    assert found is not None and found.kind == "difference"


def test_items_are_counted_where_a_pass_has_wrapped_the_entry() -> None:
    module = hl.parse(
        "HloModule m\nENTRY e { x = f32[8] parameter(0)\n n = s32[] parameter(1)\n t = token[] after-all()\n"
        " i = (f32[2], token[]) infeed(t)\n u = token[] get-tuple-element(i), index=1\n o = token[] outfeed(x, u)\n"
        " d = f32[<=8] set-dimension-size(x, n), dimensions={0}\n ROOT r = f32[<=8] negate(d) }"
    )
    case = Case(module, (np.arange(8, dtype=np.float32), np.asarray(3, np.int32)))
    padder = PASSES["dynamic-padder"]()
    assert rewritten(case, Reference(case), lambda copy: run_passes(copy, padder), "padder") is None
