"""Sums of two f64 numbers, which have twice the digits: for exponents, whose errors e^x multiplies by its argument.

Prior art: Dekker, A floating-point technique for extending the available precision, 1971.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

Pair = tuple[Any, Any]
"""A number as a sum: rounded, and what is missing."""

_THIRD = (1 / 3, 1.850371707708594e-17)
_LOG_2 = (0.6931471805599453, 2.3190468138462996e-17)
_ATANH_TERMS = 12
"""Terms of atanh(s) / s for |s| < 0.172, whose first two have the digits of a pair."""
_SMALL, _SCALE_BITS = 2.0**-900, 600
"""Numbers below which exponents of f64 do not go far enough, and the power of two by which they are multiplied."""


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluates a polynomial by Horner's rule, from the highest power."""
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def two_sum(x: Any, y: Any) -> Pair:
    """The sum of two numbers, exact."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _two_product(x: Any, y: Any) -> Pair:
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Any) -> Pair:
    high = lax.reduce_precision(x, 11, 25)
    return high, x - high


def plus(x: Pair, y: Pair) -> Pair:
    """The sum of two pairs."""
    high, low = two_sum(x[0], y[0])
    return two_sum(high, low + (x[1] + y[1]))


def times(x: Pair, y: Pair) -> Pair:
    """The product of two pairs."""
    high, low = _two_product(x[0], y[0])
    return two_sum(high, low + (x[0] * y[1] + x[1] * y[0]))


def over(x: Pair, y: Pair) -> Pair:
    """The quotient of two pairs."""
    high = x[0] / y[0]
    product, lost = _two_product(high, y[0])
    rest = ((x[0] - product) - lost) + (x[1] - high * y[1])
    return two_sum(high, rest / y[0])


def single(x: Any) -> Pair:
    """A number as a pair."""
    return x, jnp.zeros_like(x)


def log(x: Pair) -> Pair:
    """The natural logarithm of a positive normal number: k log 2 + 2 atanh((m - 1) / (m + 1)) for x = 2^k m."""
    is_small = x[0] < _SMALL
    scale = jnp.where(is_small, 2.0**_SCALE_BITS, 1.0)
    (high, low), shift = (x[0] * scale, x[1] * scale), jnp.where(is_small, -float(_SCALE_BITS), 0.0)
    bits = lax.bitcast_convert_type(high, jnp.int64) >> 52
    unit = lax.bitcast_convert_type((2046 - bits) << 52, jnp.float64)
    high, low, exponent = high * unit, low * unit, (bits - 1023).astype(jnp.float64) + shift
    above = high > 2**0.5
    high, low = (jnp.where(above, part / 2, part) for part in (high, low))
    exponent = jnp.where(above, exponent + 1, exponent)
    s = over(two_sum(high - 1, low), plus(two_sum(high, jnp.ones_like(high)), single(low)))
    square = times(s, s)
    tail = polynomial(square[0], [1 / (2 * k + 1) for k in range(_ATANH_TERMS, 1, -1)]) * square[0] ** 2
    factor = plus(plus(single(jnp.ones_like(high)), times(square, _THIRD)), single(tail))
    logarithm = times((2 * s[0], 2 * s[1]), factor)
    return plus(times(single(exponent), _LOG_2), logarithm)


def exp(x: Pair) -> Any:
    """e^x, rounded; 0 where a pair of large numbers has become NaN, as exponents here are never large and positive."""
    low = jnp.where(x[0] > -800, x[1], 0.0)
    return jnp.where(jnp.isnan(x[0]), 0.0, jnp.exp(x[0]) * (1 + low))
