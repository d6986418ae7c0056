"""The regularised incomplete beta function of f64.

I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) F with a continued fraction F (DLMF 8.17). The error of the first factor is that
of its exponent, which is computed with twice the digits.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from hloom.jax_plugin.double_double import Pair, exp, log, over, plus, single, times, two_sum
from hloom.jax_plugin.incomplete_gamma import EPSILON, MAX_TERMS, gamma_factor

_SMALLEST = 1e-290


def betainc(a: Any, b: Any, x: Any) -> Any:
    """I_x(a, b); NaN for negative a or b, for x outside of [0, 1], and for I_x(0, 0)."""
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & jnp.isfinite(a) & jnp.isfinite(b)
    p, q, y = (jnp.where(inside, value, 0.5) for value in (a, b, x))
    is_swapped = y >= (p + 1) / (p + q + 2)
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
    """1 / (1 + d1 / (1 + d2 / (1 + ..))), as quotients p / q; two levels in each step."""

    def go_on(state: Any) -> Any:
        m, *_, value, before = state
        return jnp.any(jnp.abs(value - before) > EPSILON * jnp.abs(value)) & (m < MAX_TERMS)

    def step(state: Any) -> Any:
        m, p, p_before, q, q_before, value, _ = state
        even, odd = (
            m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)),
            (a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)),
        )
        for d in (even * x, -odd * x):
            p, p_before = p + d * p_before, p
            q, q_before = q + d * q_before, q
        p, p_before, q_before = p / q, p_before / q, q_before / q
        return m + 1, p, p_before, jnp.ones_like(q), q_before, p, value

    one = jnp.ones_like(x)
    q = 1 - (a + b) / (a + 1) * x
    return lax.while_loop(go_on, step, (1.0, one / q, one / q, one, one / q, 1 / q, 0 * one))[5]
