"""The Hurwitz zeta function by Euler-Maclaurin summation, and the derivatives of digamma, which are multiples of it."""

from __future__ import annotations

import math

from hloom.stablehlo.special_functions.gamma import digamma, times_factorial
from hloom.stablehlo.special_functions.typed import XlaOp, like, of_floats, scalar_like, select

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
    854513 / 138, -236364091 / 2730,
)  # fmt: skip


@of_floats
def zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """The Hurwitz zeta function: the sum of (q + n)^-x over n >= 0, as nine terms, an integral and corrections."""
    b = x.builder
    total = b.pow(q, -x)
    for n in range(1, 10):
        total = total + _power_of_sum(q, float(n), x)[1]
    last, integral = _power_of_sum(q, 10.0, x - 1.0)  # last^-x underflows earlier
    power = integral / last
    total = total + integral / (x - 1.0) + power * 0.5
    # sum of B_2k / (2k)! x (x + 1) .. (x + 2k - 2) last^(-x - 2k + 1)
    factor = x * power / last
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + factor * (bernoulli / math.factorial(2 * k))
        factor = factor * (x + float(2 * k - 1)) * (x + float(2 * k)) / (last * last)
    is_integer, at_pole = b.eq(q, b.floor(q)), q <= 0.0
    even = b.and_(b.eq(x, b.floor(x)), b.eq(x - 2.0 * b.floor(x * 0.5), scalar_like(x, 0.0)))
    total = select(x < 1.0, math.nan, total)
    outside = select(
        is_integer, select(even, like(x, math.inf), math.nan), select(b.eq(x, b.floor(x)), total, math.nan)
    )
    value = select(at_pole, outside, total)
    return select(b.eq(x, scalar_like(x, 1.0)), math.inf, value)


def _power_of_sum(q: XlaOp, n: float, x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """q + n rounded, and (q + n)^-x, where the rounding error would grow by the factor x."""
    b = q.builder
    total = q + n
    part = total - q
    lost = (q - (total - part)) + (n - part)
    power = b.pow(total, -x)
    return total, power - power * (x * lost / total)


@of_floats
def polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x); NaN unless n is a natural number."""
    b = x.builder
    sign = (n - 2.0 * b.floor(n * 0.5)) * 2.0 - 1.0
    value = sign * times_factorial(zeta(n + 1.0, x), n)
    value = select(b.eq(n, scalar_like(n, 0.0)), digamma(x), value)
    allowed = b.and_(b.eq(n, b.floor(n)), n >= 0.0)
    return select(allowed, value, math.nan)
