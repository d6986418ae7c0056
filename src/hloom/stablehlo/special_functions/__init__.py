"""Special functions as HLO, on XlaOps: `FUNCTIONS`, by name.

All are computed in the operands' own type, those of types narrower than f32 in f32. They raise ArgumentError for
operands that are not real floating-point numbers. `docs/accuracy.md` has their errors.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.stablehlo.special_functions.bessel import bessel_i0e, bessel_i1e
from hloom.stablehlo.special_functions.error_function import erf_inv, erfc
from hloom.stablehlo.special_functions.exponential_integral import exp1, expi
from hloom.stablehlo.special_functions.gamma import digamma, lgamma
from hloom.stablehlo.special_functions.normal_distribution import log_ndtr, logit
from hloom.stablehlo.special_functions.typed import XlaOp
from hloom.stablehlo.special_functions.zeta import polygamma, zeta


def exp2(x: XlaOp) -> XlaOp:
    """2^x, as a power, which has the digits that e^(x log 2) loses."""
    b = x.builder
    return b.pow(b.broadcast(b.constant(x.shape.element_type.dtype.type(2)), x.shape.dimensions), x)


FUNCTIONS: dict[str, Callable[..., XlaOp]] = {
    "bessel_i0e": bessel_i0e,
    "bessel_i1e": bessel_i1e,
    "digamma": digamma,
    "erf_inv": erf_inv,
    "erfc": erfc,
    "exp1": exp1,
    "exp2": exp2,
    "expi": expi,
    "lgamma": lgamma,
    "log_ndtr": log_ndtr,
    "logit": logit,
    "polygamma": polygamma,
    "zeta": zeta,
}
"""The functions by the name that CHLO or JAX has for them."""
