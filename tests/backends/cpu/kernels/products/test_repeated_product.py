"""Products whose factors are outside of the sums: their results are those of the product as it is written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.products.test_fused_dot import Case, _inner_loops
from hloom.backends.cpu.llvm.processor import TILE_REGISTERS, processor

PLAIN = Case(1, 512, 96, "s8", "f32", "columns", transposed=True)
UNUSUAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, 1e30, -1e-30]
LARGE = -3e36
"""A factor whose products with some bytes overflow."""


def has_tiles() -> bool:
    return processor().has(TILE_REGISTERS) and processor().has("amx-bf16")


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


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("scales", ["columns", "64"])
def test_unusual_factors(scales: str, rows: int, transposed: bool) -> None:
    """Products with some factors overflow, or are NaN: so are the results."""
    case = Case(rows, 512, 96, "s8", "f32", scales, transposed=transposed)
    x, w, s = case.arguments()
    s.flat[: len(UNUSUAL) + 1] = [*UNUSUAL, LARGE]
    _agree(case.text(), x, w, s)


@pytest.mark.parametrize("value", UNUSUAL)
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_unusual_rows(rows: int, value: float) -> None:
    case = replace(PLAIN, rows=rows)
    x, w, s = case.arguments()
    x[0, 5::7] = value
    w[:9] = 0
    _agree(case.text(), x, w, s)


@pytest.mark.parametrize("rows", [1, 4])
def test_sums_that_overflow_without_their_factor(rows: int) -> None:
    case = replace(PLAIN, rows=rows)
    x, w, s = case.arguments()
    x[:], w[:], s[:] = 1e36, 100, 1e-3
    np.testing.assert_allclose(hl.compile(hl.parse(case.text()))(x, w, s), 512 * 1e35, rtol=1e-5)


def test_zeros_have_the_sign_of_sums() -> None:
    x, w, s = PLAIN.arguments()
    assert not np.signbit(hl.compile(hl.parse(PLAIN.text()))(x, np.zeros_like(w), -s)).any()


def _agree(text: str, *arguments: np.ndarray) -> None:
    """Checks results by the interpreter's, of which the same are infinite and NaN."""
    module = hl.parse(text)
    got, want = (np.asarray(hl.compile(module, backend=b)(*arguments)) for b in ("cpu", "interpreter"))
    x, w, s = arguments
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want[np.isfinite(want)]).max(initial=1e-3))
