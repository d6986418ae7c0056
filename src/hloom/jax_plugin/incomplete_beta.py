"""The regularised incomplete beta function of f64.

I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) F with a continued fraction F (DLMF 8.17). The error of the first factor is that
of its exponent, which is computed with twice the digits.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from hloom.jax_plugin.double_double import Pair, exp, log, over, plus, single, times, two_sum
from hloom.jax_plugin.incomplete_gamma import MAX_TERMS, gamma_factor

_SMALLEST = 1e-290


def betainc(a: Any, b: Any, x: Any) -> Any:
    """I_x(a, b); NaN for negative a or b, for x outside of [0, 1], and for I_x(0, 0)."""
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & jnp.isfinite(a) & jnp.isfinite(b)
    p, q, y = (jnp.where(inside, value, 0.5) for value in (a, b, x))
    # For x beyond the mean the fraction converges faster the other way around, with 1 - x, but with b < 1 the result
    # would then be the small complement of a number close to 1.
    is_swapped = (y >= (p + 1) / (p + q + 2)) & ((q >= 1) | (y > 0.999))
    sides = single(y), two_sum(jnp.ones_like(y), -y)
    z, rest = (_either(is_swapped, *pair) for pair in (sides[::-1], sides))
    p, q = jnp.where(is_swapped, q, p), jnp.where(is_swapped, p, q)
    value = _front(p, q, z, rest) * _fraction(p, q, z[0])
    value = jnp.where(is_swapped, 1 - value, value)
    return jnp.where(inside, value, _outside(a, b, x))


def _either(condition: Any, on_true: Pair, on_false: Pair) -> Pair:
    return jnp.where(condition, on_true[0], on_false[0]), jnp.where(condition, on_true[1], on_false[1])


def _outside(a: Any, b: Any, x: Any) -> Any:
    """The value where an argument is 0, infinite or not valid, or x is 1."""
    all_at_zero, all_at_one = (a == 0) | jnp.isinf(b), (b == 0) | jnp.isinf(a)
    is_one = (all_at_zero & (x != 0)) | (~all_at_one & (x != 0)) | (all_at_one & (x == 1))
    valid = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1) & ~(all_at_zero & all_at_one)
    return jnp.where(valid, jnp.where(is_one, 1.0, 0.0), jnp.nan)


def _front(a: Any, b: Any, x: Pair, y: Pair) -> Any:
    """x^a y^b / (a B(a, b)): x^a y^b times gamma(a + b + 1) / (gamma(a + 1) gamma(b + 1)) times b / (a + b)."""
    total = two_sum(a, b)

    def power(base: Pair, exponent: Any) -> Pair:
        ratio = over(times(base, total), single(jnp.maximum(exponent, _SMALLEST)))
        return times(single(exponent), log(ratio))

    gammas = gamma_factor(total[0]) / (gamma_factor(a) * gamma_factor(b))
    return exp(plus(power(x, a), power(y, b))) * gammas * (b / total[0])


def _fraction(a: Any, b: Any, x: Any) -> Any:
    """1 / (1 + d1 / (1 + d2 / (1 + ..))), from the last level that counts; two levels in each step."""
    needed = 10 + 10 / jnp.sqrt(1 - x) + 4 * jnp.sqrt(a + b)
    steps = jnp.minimum(jnp.max(needed, initial=0.0), float(MAX_TERMS)).astype(jnp.int32)

    def step(k: Any, value: Any) -> Any:
        m = (steps - k).astype(a.dtype)
        odd = (a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m))
        return 1 + even * x / (1 - odd * x / value)

    return 1 / (1 - (a + b) / (a + 1) * x / lax.fori_loop(0, steps, step, jnp.ones_like(x)))
