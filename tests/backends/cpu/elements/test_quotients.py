"""Quotients by a common divisor are those of divisions, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_text import compiled, module_text

COLUMNS = 32
SPECIAL_VALUES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-38, 3e38]


def check(x: np.ndarray, divisors: np.ndarray) -> None:
    shape, rows = f"f32[{len(x)},{COLUMNS}]", f"f32[{len(x)}]"
    (found,) = compiled(
        module_text(f"""x = {shape} parameter(0)
        d = {rows} parameter(1)
        all = {shape} broadcast(d), dimensions={{0}}
        ROOT q = {shape} divide(x, all)"""),
        x,
        divisors,
    )
    with np.errstate(all="ignore"):
        expected = x / divisors[:, None]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(found.view(np.uint32)[is_number], expected.view(np.uint32)[is_number])


@pytest.mark.parametrize("spread", [0, 30, 140])
def test_quotients_of_all_sizes(spread: int) -> None:
    rng = np.random.default_rng(spread)
    x = np.ldexp(rng.standard_normal((1024, COLUMNS)), rng.integers(-spread, spread + 1, (1024, COLUMNS)))
    divisors = np.ldexp(rng.standard_normal(1024), rng.integers(-spread, spread + 1, 1024))
    is_special = rng.random(x.shape) < 0.02
    x[is_special] = rng.choice(SPECIAL_VALUES, is_special.sum())
    divisors[: len(SPECIAL_VALUES)] = SPECIAL_VALUES
    with np.errstate(over="ignore"):
        check(x.astype(np.float32), divisors.astype(np.float32))


def test_quotients_next_to_the_largest_number() -> None:
    """The product with the reciprocal overflows where the quotient may not."""
    rng = np.random.default_rng(0)
    divisors = np.ldexp(rng.uniform(0.5, 1, 1024), rng.integers(-29, 1, 1024)).astype(np.float32)
    ratios = np.finfo(np.float32).max * (1 + rng.integers(-4, 5, (1024, COLUMNS)) * 2.0**-25)
    x = (ratios * divisors[:, None]).astype(np.float32)
    x[:, ::8], x[:, 1::8] = np.inf, 0
    check(x * rng.choice(np.float32([-1, 1]), x.shape), divisors)


def test_quotients_next_to_a_middle() -> None:
    """x 2^k = (2 m + 1) d + t for a small t: the quotient is t / d from the middle of two floats."""
    odd = np.random.default_rng(0).integers(1 << 22, 1 << 23, 1 << 13) * 2 + 1
    inverse = {k: np.array([pow(2, -k, d) for d in odd.tolist()]) for k in (24, 25)}
    x = np.full((len(odd), COLUMNS), 1 << 23)
    count = 0
    for column, (k, t) in enumerate((k, t) for k in inverse for t in (1, -1, 2, -2, 3, -3)):
        found = inverse[k] * t % odd
        found += np.where(found < 1 << 23, odd, 0)
        is_near = (found >= 1 << 23) & (found < 1 << 24) & ((found >= odd) == (k == 24))
        is_near &= ((found << k) - t) // odd % 2 == 1
        x[is_near, column] = found[is_near]
        count += is_near.sum()
    assert count > len(odd)
    check(x.astype(np.float32), odd.astype(np.float32))
