"""The regularised incomplete gamma functions of f64 and the derivative by the first argument.

P(a, x) = D S and Q(a, x) = a D F with D = x^a e^-x / gamma(a + 1), the series S = 1 + x / (a + 1) + x^2 / ((a + 1)
(a + 2)) + .. and Legendre's continued fraction F (DLMF 8.7, 8.9). The error of D is that of its exponent a log(x / a) +
a - x, which is computed with twice the digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hloom.jax_plugin.double_double import exp, log, over, plus, polynomial, single, times, two_sum
from hloom.stablehlo.special_functions.gamma import DIGAMMA_ASYMPTOTIC, STIRLING
from hloom.stablehlo.special_functions.typed import F64

_LARGE = 8
"""The first argument of Stirling's series."""
_SMALLEST = 1e-290
"""An argument below which a^a is 1."""
MAX_TERMS = 5000
_EPSILON = 2.0**-52
"""The relative size of terms that are left out."""

_RECIPROCAL = (
    -3.696805618642206e-12, 7.782263439905071e-12, 1.0434267116911005e-10, -1.18127457048702e-09,
    5.002007644469223e-09, 6.116095104481416e-09, -2.056338416977607e-07, 1.133027231981696e-06,
    -1.2504934821426706e-06, -2.013485478078824e-05, 0.0001280502823881162, -0.00021524167411495098,
    -0.0011651675918590652, 0.0072189432466631, -0.009621971527876973, -0.04219773455554433, 0.16653861138229148,
    -0.04200263503409524, -0.6558780715202539, 0.5772156649015329, 1.0,
)  # fmt: skip
"""1 / gamma(1 + d) for |d| <= 1/2, its series."""


def gamma_factor(a: Any) -> Any:
    """gamma(a + 1) / (a / e)^a: by Stirling's series, or by a product below it."""
    inverse = 1 / a
    large = jnp.sqrt(2 * math.pi * a) * jnp.exp(inverse * polynomial(inverse * inverse, STIRLING[F64]))
    bounded = jnp.minimum(a, float(_LARGE))
    whole = jnp.round(bounded)
    product = 1 / polynomial(bounded - whole, _RECIPROCAL)
    for k in range(_LARGE):
        product = jnp.where(whole > k, product * (bounded - k), product)
    return jnp.where(a >= _LARGE, large, product * jnp.exp(bounded) / bounded**bounded)


def _front(a: Any, x: Any) -> tuple[Any, Any]:
    """x^a e^-x / gamma(a + 1), and log(x / a)."""
    near = jnp.minimum(x, 4 * a + 1e4)  # beyond, the power is 0
    logarithm = log(over(single(near), single(jnp.maximum(a, _SMALLEST))))
    exponent = plus(times(single(a), logarithm), two_sum(a, -near))
    return exp(exponent) / gamma_factor(a), logarithm[0]


def _series(a: Any, x: Any) -> Any:
    def go_on(state: Any) -> Any:
        n, term, total = state
        return jnp.any(term > _EPSILON * total) & (n < MAX_TERMS)

    def step(state: Any) -> Any:
        n, term, total = state
        term = term * (x / (a + n))
        return n + 1, term, total + term

    return lax.while_loop(go_on, step, (1.0, jnp.ones_like(x), jnp.ones_like(x)))[2]


def _fraction(a: Any, x: Any) -> Any:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ..))), from the last level that counts."""
    levels = jnp.minimum(jnp.max(10 + 120 / x + 5 * jnp.sqrt(a), initial=0.0), float(MAX_TERMS)).astype(jnp.int32)

    def step(k: Any, value: Any) -> Any:
        n = (levels - k).astype(a.dtype)
        return x + (2 * n - 1) - a + n * (a - n) / value

    return 1 / lax.fori_loop(0, levels, step, x + (2 * levels.astype(a.dtype) + 1) - a)


def _with_derivative(function: Callable[[Any, Any], Any], a: Any, x: Any) -> tuple[Any, Any]:
    """A function of a and x, and its derivative by a."""
    return jax.jvp(lambda a: function(a, x), (a,), (jnp.ones_like(a),))


def _parts(a: Any, x: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Arguments where both are positive and finite, others replaced; where these are, and where P is the complement."""
    inside = (a > 0) & (x > 0) & jnp.isfinite(a) & jnp.isfinite(x)
    a, x = jnp.where(inside, a, 1.0), jnp.where(inside, x, 0.5)
    return a, x, inside, (x >= 1) & (x > a), _front(a, x)


def _lower(a: Any, x: Any, is_upper: Any) -> tuple[Any, Any]:
    """Arguments of the series; others where the continued fraction is used."""
    return jnp.where(is_upper, 1.0, a), jnp.where(is_upper, 0.5, x)


def _upper(a: Any, x: Any, is_upper: Any) -> tuple[Any, Any]:
    """Arguments of the continued fraction; others where the series is used."""
    return jnp.where(is_upper, a, 0.5), jnp.where(is_upper, x, 8.0)


def igamma(a: Any, x: Any) -> Any:
    """P(a, x); NaN for negative arguments and for P(0, 0)."""
    b, y, inside, is_upper, (front, _) = _parts(a, x)
    series, fraction = _series(*_lower(b, y, is_upper)), _fraction(*_upper(b, y, is_upper))
    value = jnp.where(is_upper, 1 - b * front * fraction, front * series)
    return _outside(a, x, inside, value, at_zero=0.0)


def igammac(a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x)."""
    b, y, inside, is_upper, (front, _) = _parts(a, x)
    series, fraction = _series(*_lower(b, y, is_upper)), _fraction(*_upper(b, y, is_upper))
    near = jnp.where((b < 1) & (y < 1), _complement(b, y), 1 - front * series)
    return _outside(a, x, inside, jnp.where(is_upper, b * front * fraction, near), at_zero=1.0)


def _outside(a: Any, x: Any, inside: Any, value: Any, at_zero: float) -> Any:
    """The values where an argument is 0, infinite or not valid; `at_zero` is that for x = 0."""
    is_zero = (x == 0) | jnp.isinf(a)
    limit = jnp.where(is_zero, at_zero, 1 - at_zero)
    is_open = (is_zero & ((a == 0) | jnp.isinf(x))) | (a < 0) | (x < 0) | jnp.isnan(a) | jnp.isnan(x)
    return jnp.where(inside, value, jnp.where(is_open, jnp.nan, limit))


def _complement(a: Any, x: Any) -> Any:
    """Q(a, x) for a and x below 1, where P may be close to 1: with p = x^a / gamma(1 + a), (1 - p) - p a s.

    Here s = sum of (-x)^n / ((a + n) n!) for n >= 1, and p is e^(a log x - log gamma(1 + a)).
    """
    a, x = jnp.minimum(a, 1.0), jnp.minimum(x, 1.0)
    above = a > 0.5
    d = jnp.where(above, a - 1, a)
    exponent = a * jnp.log(x) + jnp.log1p(d * polynomial(d, _RECIPROCAL[:-1])) - jnp.where(above, jnp.log1p(d), 0.0)
    term, total = jnp.ones_like(x), jnp.zeros_like(x)
    for n in range(1, 20):
        term = term * (-x / n)
        total = total + term / (a + n)
    return -jnp.expm1(exponent) - jnp.exp(exponent) * a * total


def igamma_grad_a(a: Any, x: Any) -> Any:
    """The derivative of P(a, x) by a."""
    b, y, inside, is_upper, (front, log_ratio) = _parts(a, x)
    series, series_grad = _with_derivative(_series, *_lower(b, y, is_upper))
    fraction, fraction_grad = _with_derivative(_fraction, *_upper(b, y, is_upper))
    slope = _log_slope(b, y, log_ratio)
    by_series = front * (series * slope + series_grad)
    by_fraction = -front * b * ((slope + 1 / b) * fraction + fraction_grad)
    value = jnp.where(inside, jnp.where(is_upper, by_fraction, by_series), jnp.where(x >= 0, 0.0, jnp.nan))
    return jnp.where((a > 0) & ~jnp.isnan(x), value, jnp.nan)


def _log_slope(a: Any, x: Any, log_ratio: Any) -> Any:
    """log x - digamma(a + 1), the derivative of log D by a; with Stirling's series, in which log a cancels."""
    inverse = 1 / a
    large = log_ratio - 0.5 * inverse + inverse**2 * polynomial(inverse * inverse, DIGAMMA_ASYMPTOTIC[F64])
    return jnp.where(a >= _LARGE, large, jnp.log(x) - lax.digamma(a + 1))
