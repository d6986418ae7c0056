"""Products whose factors are outside of the sums: their results are those of the product as it is written."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.products.test_fused_dot import SCALES, Case, _inner_loops, _unpacking, check
from hloom.backends.cpu.kernels.products.tiles.tile_registers import BF16, has_tile_instruction
from hloom.cli.pipelines import stage_text
from hloom.types import BY_NAME

PLAIN = Case(1, 512, 96, "s8", "f32", "columns", transposed=True)
UNUSUAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, 1e30, -1e-30]
LARGE = -3e36
"""A factor whose products with some bytes overflow."""


@pytest.mark.parametrize("transposed", [False, True])
def test_the_loop_over_weights_does_not_multiply_them_by_factors(transposed: bool) -> None:
    bodies = [b for b in _inner_loops(replace(PLAIN, transposed=transposed).text()) if "sitofp <" in b]
    assert any(body.count(" fmul <") < body.count(" sitofp <") for body in bodies)


def test_batch_invariant_products_have_factors_in_their_sums() -> None:
    """A row must not be computed again because of another one."""
    (text, x, w, s) = PLAIN.text(), *PLAIN.arguments()
    both = hl.parse(replace(PLAIN, rows=2).text())
    two = hl.compile(both, batch_invariant=True)(np.concatenate([x, np.full_like(x, np.inf)]), w, s)
    np.testing.assert_array_equal(two[:1], hl.compile(hl.parse(text), batch_invariant=True)(x, w, s))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("scales", ["columns", "64"])
def test_unusual_factors(scales: str, rows: int, transposed: bool) -> None:
    """Products with some factors overflow, or are NaN: so are the results."""
    case = Case(rows, 512, 96, "s8", "f32", scales, transposed=transposed)
    x, w, s = case.arguments()
    s.flat[: len(UNUSUAL) + 1] = [*UNUSUAL, LARGE]
    _agree(case, x, w, s)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("value", UNUSUAL)
@pytest.mark.parametrize(("rows", "k"), [(1, 512), (3, 512), (8, 512), (8, 128)])
def test_unusual_rows(rows: int, k: int, value: float) -> None:
    case = replace(PLAIN, rows=rows, k=k)
    x, w, s = case.arguments()
    x[0, 5::7] = value
    w[:9] = 0
    _agree(case, x, w, s)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weights", ["f8e4m3fn", "f8e5m2fnuz", "f4e2m1fn"])
@pytest.mark.parametrize("magnitude", [2.0**-98, 2.0**-90, 2.0**-80, 2.0**20])
def test_rows_whose_products_with_small_floats_may_underflow(magnitude: float, weights: str, transposed: bool) -> None:
    """The least floats, times a part of a number, are not normal."""
    case = Case(8, 512, 96, weights, "f32", "columns", transposed=transposed)
    x, w, s = case.arguments()
    x *= np.float32(magnitude)
    w[:] = np.copysign(float(ml_dtypes.finfo(w.dtype).smallest_subnormal), w.astype(np.float32)).astype(w.dtype)
    s *= np.float32(1 / magnitude)
    got = np.asarray(hl.compile(hl.parse(case.text()))(x, w, s)).astype(np.float64)
    exact, bound = case.expected(x, w, s)
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.parametrize("rows", [1, 4])
def test_sums_that_overflow_without_their_factor(rows: int) -> None:
    case = replace(PLAIN, rows=rows)
    x, w, s = case.arguments()
    x[:], w[:], s[:] = 1e36, 100, 1e-3
    np.testing.assert_allclose(hl.compile(hl.parse(case.text()))(x, w, s), 512 * 1e35, rtol=1e-5)


def test_zeros_have_the_sign_of_sums() -> None:
    x, w, s = PLAIN.arguments()
    assert not np.signbit(hl.compile(hl.parse(PLAIN.text()))(x, np.zeros_like(w), -s)).any()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("scales", ["columns", "64"])
@pytest.mark.parametrize("value", [None, 0.5, 7.25, -200.0, 1e9, np.nan])
def test_zero_points_that_are_not_all_small_integers(value: float | None, scales: str, transposed: bool) -> None:
    """Tile registers multiply by small integers; one other number, or all of them, must not matter."""
    case = Case(8, 512, 96, "s8", "f32", scales, has_zero_points=True, transposed=transposed)
    x, w, z, s = case.arguments()
    if value is None:
        z += 0.5
    else:
        z.flat[3] = value
    got = np.asarray(hl.compile(hl.parse(case.text()))(x, w, z, s)).astype(np.float64)
    exact, bound = case.expected(x, w, z, s)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    assert (np.abs(got - exact) <= bound)[~np.isnan(exact)].all()


def _agree(case: Case, *arguments: np.ndarray) -> None:
    """Checks results by sums in f64, which say where they are infinite or NaN unless f32 may overflow on the way."""
    got = np.asarray(hl.compile(hl.parse(case.text()))(*arguments))
    with np.errstate(all="ignore"):
        exact, bound = case.expected(*arguments)
        want = exact.astype(np.float32)
        magnitudes = (np.abs(np.where(np.isfinite(a), a, 0).astype(np.float32)) for a in arguments)
        is_certain = case.expected(*magnitudes)[0] < np.finfo(np.float32).max / 2
        is_close = np.abs(got - exact) <= bound
    is_finite = np.isfinite(want)
    assert (is_close | ~is_finite | ~is_certain).all()
    assert not np.isfinite(got[~is_finite]).any()
    np.testing.assert_array_equal(got[is_certain & ~is_finite], want[is_certain & ~is_finite])


PACKED = Case(16, 512, 96, "s4", "f32", "columns", transposed=True)


@pytest.mark.sampled(8)
@pytest.mark.skipif(not has_tile_instruction(BF16, BF16), reason="there are no tile registers")
@pytest.mark.parametrize(
    ("case", "is_packed", "has_tile_sums"),
    [
        (PACKED, True, True),
        (replace(PACKED, scales="none"), True, True),
        (replace(PACKED, rows=4), True, True),
        (replace(PACKED, rows=1), True, False),
        (replace(PACKED, scales="64"), True, True),
        (replace(PACKED, rows=8, has_zero_points=True), True, True),
        (replace(PLAIN, rows=8, scales="64"), False, True),
        (replace(PACKED, scales="groups"), True, False),  # sums of groups are stored as fast as they are scaled
        (replace(PLAIN, rows=8), False, True),
        (replace(PLAIN, rows=5), False, False),  # words are stored as fast as they are multiplied
        (replace(PLAIN, rows=5, transposed=False), False, False),
        (replace(PLAIN, rows=8, transposed=False), False, True),
        (replace(PLAIN, rows=8, weights="f8e4m3fn"), False, True),
        (replace(PLAIN, rows=8, weights="f8e5m2"), False, False),  # has infinity
    ],
)
def test_vectors_of_f32_are_multiplied_in_tile_registers(case: Case, is_packed: bool, has_tile_sums: bool) -> None:
    text = _unpacking(case, "bitcast") if is_packed else case.text()
    assert ("x86.tdpbf16ps" in stage_text(hl.parse(text), "llvm")) == has_tile_sums


@pytest.mark.sampled(4)
@pytest.mark.parametrize("scales", ["none", "columns", "groups", "64", "96"])
@pytest.mark.parametrize("has_zero_points", [False, True])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 960, 33), (3, 5184, 40), (5, 1152, 70), (8, 1152, 40), (16, 672, 48)])
def test_codes_of_groups(rows: int, k: int, n: int, has_zero_points: bool, scales: str) -> None:
    if (scales == "none" and has_zero_points) or (scales == "64" and k % 64):
        return
    case = Case(rows, k, n, "u8", "f32", scales, has_zero_points, transposed=True)
    text = _unpacking(case, "stack")
    x, _, *adjustments = case.arguments()
    if has_zero_points:
        zero = adjustments[0]
        text = text.replace(f"z = f32{[*zero.shape]} parameter(2)", f"zu = u8{[*zero.shape]} parameter(2)")
        text = text.replace("c = f32", f"z = f32{[*zero.shape]} convert(zu)\nc = f32", 1)
    codes = np.random.default_rng(5).integers(0, 256, (n, k // 2), np.uint8)
    exact, bound = case.expected(x, np.stack([codes & 15, codes >> 4], -1).reshape(n, k), *adjustments)
    given = [a.astype(np.uint8) if has_zero_points and i == 0 else a for i, a in enumerate(adjustments)]
    got = np.asarray(hl.compile(hl.parse(text))(x, codes, *given))
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("weights", ["s8", "u8", "s4", "f8e4m3fn", "f4e2m1fn"])
@pytest.mark.parametrize("scales", ["columns", "groups", "96"])
@pytest.mark.parametrize("sizes", [(288, 512), (576, 33), (4608, 77), (9120, 40)])
@pytest.mark.parametrize("rows", [8, 11])
def test_bytes_of_groups(rows: int, sizes: tuple[int, int], scales: str, weights: str) -> None:
    for transposed in (False, True):
        check(Case(rows, *sizes, weights, "f32", scales, transposed=transposed))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("k", "size"), [(576, 64), (4736, 128), (1536, 192), (1920, 320), (4608, 512)])
@pytest.mark.parametrize("rows", [8, 16])
def test_spans_of_groups(monkeypatch: pytest.MonkeyPatch, rows: int, k: int, size: int) -> None:
    """Groups are divided into parts of K, or parts into groups."""
    monkeypatch.setitem(SCALES, "own", (size, 1))
    check(Case(rows, k, 72, "s8", "f32", "own", transposed=True))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ["bitcast", "stack"])
@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize(("rows", "k", "n"), [(4, 512, 72), (5, 94, 33), (16, 2330, 40)])
def test_halves_of_bytes_in_tile_registers(form: str, is_swapped: bool, rows: int, k: int, n: int) -> None:
    if form == "bitcast" and is_swapped:
        return
    case = Case(rows, k, n, "s4" if form == "bitcast" else "u8", "f32", "columns", transposed=True)
    x, _, scales = case.arguments()
    codes = np.random.default_rng(5).integers(0, 256, (n, k // 2), np.uint8)
    halves = [codes >> 4, codes & 15] if is_swapped else [codes & 15, codes >> 4]
    values = np.stack(halves, -1).view(BY_NAME[case.weights].dtype).reshape(n, k)
    exact, bound = case.expected(x, values, scales)
    got = np.asarray(hl.compile(hl.parse(_unpacking(case, form, is_swapped)))(x, codes, scales))
    assert (np.abs(got - exact) <= bound).all()
