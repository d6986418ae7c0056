"""The logarithm of the gamma function and its derivative, digamma.

Small arguments are reduced to an interval around 2, or [1, 2], by the recurrence gamma(x + 1) = x gamma(x); there a
polynomial has the zero of the function as a factor. For large ones both have Stirling's series. Negative arguments are
reflected; near a zero between two negative integers the error is small relative to the terms, not to their sum.
"""

from __future__ import annotations

import math

from hloom.stablehlo.special_functions.typed import (
    F32,
    F64,
    XlaOp,
    like,
    of_floats,
    pick,
    polynomial,
    scalar_like,
    select,
)

_LARGE = 8
"""The first argument of Stirling's series of log gamma."""

# log(gamma(2 + d)) / d for d in [-3/4, 1/2]; relative errors 2^-31 and 2^-60.
_LOG_GAMMA = {
    F32: (
        5.627869e-05, -3.766974e-05, 7.60181e-05, -0.00023085222, 0.0005156384, -0.0011907424, 0.002889806,
        -0.007385751, 0.020580845, -0.067352295, 0.32246703, 0.42278433,
    ),
    F64: (
        -3.9681207194105607e-08, -3.150027782334188e-08, -2.4687569244652835e-09, 1.0227175181175715e-07,
        -9.423130042125474e-08, 1.8327792622502426e-07, -4.5855335925043413e-07, 9.634073192949235e-07,
        -2.035450933367171e-06, 4.373455647232756e-06, -9.440295643329289e-06, 2.050735916377729e-05,
        -4.492613417222439e-05, 9.94575037206372e-05, -0.00022315476626183224, 0.0005096695250613079,
        -0.0011927539113632116, 0.002890510330735603, -0.007385551028681512, 0.020580808427784605,
        -0.06735230105319803, 0.3224670334241132, 0.42278433509846713,
    ),
}  # fmt: skip

# (log(gamma(x)) - (x - 1/2) log x + x - log(2 pi) / 2) x by 1 / x^2 for x >= 8; relative errors 2^-30 and 2^-56.
STIRLING = {
    F32: (
        0.0007800347, -0.0027776984, 0.083333336,
    ),
    F64: (
        0.005065905360156132, -0.001890382993887715, 0.0008414700852503147, -0.0005952365845057049,
        0.0007936507897524059, -0.002777777777773988, 0.08333333333333333,
    ),
}  # fmt: skip


@of_floats
def lgamma(x: XlaOp) -> XlaOp:
    """log |gamma(x)|; infinite at 0, -1, -2 .. and at both infinities."""
    b = x.builder
    negative = x < 0.0
    w = select(negative, 1.0 - x, x)
    large = w >= float(_LARGE)
    whole = b.max(b.floor(w + 0.5), select(w < 1.25, like(w, 0.0), 2.0))
    shift = whole - 2.0
    # gamma(w) is gamma(w - shift) times or divided by the product of the arguments between them.
    product = select(whole < 0.5, w * (w + 1.0), select(whole < 1.5, w, 1.0))
    for k in range(1, _LARGE - 1):
        product = select(shift >= float(k), product * (w - float(k)), product)
    log = b.log(select(large, w, product))
    d = w - whole
    small = d * polynomial(d, _LOG_GAMMA) + select(shift < 0.0, -log, log)
    inverse = 1.0 / w
    series = inverse * polynomial(inverse * inverse, STIRLING) + (0.5 * math.log(2 * math.pi) - 0.5)
    result = select(large, (w - 0.5) * (log - 1.0) + series, small)
    # gamma(x) gamma(1 - x) = pi / sin(pi x), with pi x reduced to [0, pi/2]; poles have the fraction 0.
    fraction = b.abs(x) - b.floor(b.abs(x))
    fraction = b.min(fraction, 1.0 - fraction)
    image = (math.log(math.pi) - b.log(b.sin(fraction * math.pi))) - result
    return select(negative, select(fraction > 0.0, image, math.inf), result)


def times_factorial(value: XlaOp, n: XlaOp) -> XlaOp:
    """The product of a value and n! for a natural number: a product below 8, Stirling's formula from there on.

    n! may overflow where the product does not: it is multiplied in parts of about its square root.
    """
    product = value
    for k in range(2, _LARGE):
        product = select(n >= float(k), product * float(k), product)
    b, inverse = n.builder, 1.0 / n
    root = b.pow(n, 0.5 * n + 0.25)
    series = b.exp(inverse * polynomial(inverse * inverse, STIRLING)) * math.sqrt(2 * math.pi)
    product = select(n >= float(_LARGE), ((value * root) * b.exp(-n)) * root * series, product)
    return b.select(b.eq(value, scalar_like(value, 0.0)), value, product)


# The zero of digamma in two parts, and digamma(s + 3/2) / (s + 3/2 - zero) for |s| <= 1/2; errors 2^-27 and 2^-55.
_ZERO_HIGH = (1.4616321325302124, 1.4616321449683622)
_ZERO_LOW = (1.2438149938918909e-08, 9.549995429965697e-17)
_DIGAMMA = {
    F32: (
        0.010902588, -0.01637362, 0.01711499, -0.025786884, 0.04085003, -0.06205598, 0.09498469,
        -0.14839886, 0.24054253, -0.4236275, 0.9510559,
    ),
    F64: (
        -0.00017312261802727394, 0.00025968482126430747, -0.00015148586836773365, 0.0002272331660987376,
        -0.0004821990530566789, 0.0007233266279287554, -0.0010376374098418604, 0.0015566317474486838,
        -0.002345267632540769, 0.003519006401502276, -0.005279964873257405, 0.007926944646403797,
        -0.011908218001568644, 0.0179072524394512, -0.02697579675613825, 0.04076083381242074,
        -0.061922133273064534, 0.09498872445494122, -0.14840492305390884, 0.2405424842407742,
        -0.4236274212814605, 0.951055876031833,
    ),
}  # fmt: skip

# (log x - 1 / 2x - digamma(x)) x^2 by 1 / x^2 for x >= 4 or 5; errors 2^-27 and 2^-56.
DIGAMMA_ASYMPTOTIC = {
    F32: (
        -0.003397054, 0.003940102, -0.00833299, 0.083333336,
    ),
    F64: (
        -5.31505138695299, 1.85960480180837, -0.39738019460474266, 0.08216979989741699,
        -0.021073708175058693, 0.007575562114231473, -0.004166665498748365, 0.003968253964670696,
        -0.008333333333329031, 0.08333333333333333,
    ),
}  # fmt: skip


@of_floats
def digamma(x: XlaOp) -> XlaOp:
    """The derivative of log gamma; NaN at 0, -1, -2 .."""
    b = x.builder
    w = select(x < 0.0, 1.0 - x, x)
    limit = pick(x, 4.0, 5.0)
    large, shift = w >= limit, b.floor(w) - 1.0
    # The sum of 1 / (w - k) for k from 1 to the shift, or -1 / w below 1 and -1 / 2w from the limit on, as a quotient.
    above = select(b.or_(large, w < 1.0), like(x, -1.0), 0.0)
    below = select(large, 2.0 * w, select(w < 1.0, w, 1.0))
    for k in range(1, int(limit) - 1):
        active, term = b.and_(shift >= float(k), b.not_(large)), w - float(k)
        above, below = select(active, above * term + below, above), select(active, below * term, below)
    y = w - shift
    near = ((y - pick(x, *_ZERO_HIGH)) - pick(x, *_ZERO_LOW)) * polynomial(y - 1.5, _DIGAMMA)
    inverse = 1.0 / (w * w)
    far = b.log(w) - inverse * polynomial(inverse, DIGAMMA_ASYMPTOTIC)
    result = select(large, far, near) + above / below
    # digamma(1 - x) - digamma(x) = pi cot(pi x), with x reduced to [-1/2, 1/2]; 0 is a pole.
    fraction = x - b.round_nearest_even(x)
    image = result - math.pi / b.tan(fraction * math.pi)
    is_pole = b.and_(x <= 0.0, b.eq(fraction, scalar_like(x, 0.0)))
    return select(is_pole, math.nan, select(x < 0.0, image, result))
