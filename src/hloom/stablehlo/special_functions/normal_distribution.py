"""The logarithm of the distribution function of the normal distribution, and the inverse of the logistic function."""

from __future__ import annotations

import math

from hloom.stablehlo.special_functions.error_function import erfc_near, scaled_erfc, square
from hloom.stablehlo.special_functions.typed import XlaOp, of_floats, pick, scalar_like


@of_floats
def log_ndtr(x: XlaOp) -> XlaOp:
    """log (erfc(-x / sqrt 2) / 2)."""
    b = x.builder
    size = b.abs(x)
    z = b.min(size, scalar_like(x, pick(x, 1e18, 1e150))) * math.sqrt(0.5)
    is_near, scaled = z < 0.5, scaled_erfc(z)
    squared, lost = square(b.min(size, scalar_like(x, pick(x, 15.0, 40.0))))
    power = b.exp(-0.5 * squared)
    upper = 0.5 * b.select(is_near, erfc_near(z), (power - power * (0.5 * lost)) * scaled)
    lower = b.select(is_near, b.log(upper), b.log(0.5 * scaled) - (0.5 * x) * x)
    return b.select(x < 0.0, lower, b.log1p(-upper))


@of_floats
def logit(x: XlaOp) -> XlaOp:
    """log (x / (1 - x)); infinite at 0 and 1, NaN beyond."""
    b = x.builder
    rest = 1.0 - x
    is_near = b.abs(x - 0.5) < 0.2
    return b.select(is_near, b.log1p((2.0 * x - 1.0) / rest), b.log(x / rest))
