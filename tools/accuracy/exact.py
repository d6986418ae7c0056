"""Exact values: in long double, whose 11 more bits than f64 are enough to find the worst arguments, and by mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mp

Array = np.ndarray[Any, np.dtype[Any]]
Long = np.longdouble

HAS_LONG_DOUBLE = np.finfo(Long).nmant >= 63
"""Whether this machine has a long double wider than f64."""


def _erf(x: Array) -> Array:
    """2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ..), whose terms all have one sign."""
    bounded = np.clip(x, -7, 7)
    square, term = bounded * bounded, bounded
    total = term
    for k in range(1, 260):
        term = term * (2 * square) / (2 * k + 1)
        total = total + term
    return 2 / np.sqrt(Long("3.14159265358979323846264338327950288")) * np.exp(-square) * total


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


IN_LONG_DOUBLE: dict[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cosh": np.cosh,
    "cosine": np.cos,
    "divide": np.divide,
    "erf": _erf,
    "exp2": np.exp2,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": _logistic,
    "power": np.power,
    "remainder": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sine": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""Functions of real numbers by opcode, within 2^-62 of their values, with the special values of C's library."""


IN_DOUBLE = {
    "bessel_i0e": "i0e",
    "bessel_i1e": "i1e",
    "digamma": "digamma",
    "erf_inv": "erfinv",
    "erfc": "erfc",
    "exp1": "exp1",
    "expi": "expi",
    "i0": "i0",
    "i1": "i1",
    "lgamma": "gammaln",
    "log_ndtr": "log_ndtr",
    "logit": "logit",
    "ndtri": "ndtri",
}
"""Functions of SciPy on f64 that are exact enough to find the worst arguments of f32."""


def in_double(name: str, x: Array) -> Array:
    """The values of a function of `IN_DOUBLE` in long double."""
    from scipy import special

    values = np.asarray(getattr(special, IN_DOUBLE[name])(x.astype(np.float64))).astype(Long)
    # Functions that are 0 at 0 are odd, but SciPy's give 0 for -0.
    return np.where((values == 0) & (x == 0), x, values)


def _cbrt(x: Any) -> Any:
    return mp.sign(x) * mp.cbrt(abs(x))


def _log_ndtr(x: Any) -> Any:
    if x > 1000:
        return -(mp.mpf(2) ** -20000)  # at least, and 0 in every type
    if x > 0:
        return mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2)
    if x > -1000:
        return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)
    series = sum((-1) ** n * mp.fac2(2 * n - 1) / x ** (2 * n) for n in range(9))  # within 1e-40
    return -x * x / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) + mp.log(series)


def _ndtri(p: Any) -> Any:
    """The inverse of ndtr by Newton's method: three steps double the digits of SciPy's value three times."""
    from scipy import special

    x = mp.mpf(float(special.ndtri(float(p))))
    for _ in range(3):
        x -= (mp.erfc(-x / mp.sqrt(2)) / 2 - p) * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
    return x


def _zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function; that of mpmath has digits after the point, of values of about q^(1 - x)."""
    with mp.workprec(mp.prec + int(x * mp.log(q + 2, 2))):
        return mp.zeta(x, q)


BY_MPMATH: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "acos": mp.acos,
    "acosh": mp.acosh,
    "asin": mp.asin,
    "asinh": mp.asinh,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "atanh": mp.atanh,
    "bessel_i0e": lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
    "bessel_i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
    "betainc": lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
    "betaln": lambda a, b: mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b),
    "cbrt": _cbrt,
    "cosh": mp.cosh,
    "cosine": mp.cos,
    "digamma": mp.digamma,
    "divide": lambda x, y: x / y,
    "entr": lambda x: -x * mp.log(x),
    "erf": mp.erf,
    "erf_inv": mp.erfinv,
    "erfc": mp.erfc,
    "exp1": mp.e1,
    "exp2": lambda x: mp.power(2, x),
    "expi": mp.ei,
    "exponential": mp.exp,
    "exponential-minus-one": lambda z: mp.exp(z) - 1,
    "i0": lambda x: mp.besseli(0, x),
    "i1": lambda x: mp.besseli(1, x),
    "igamma": lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    "igamma_grad_a": lambda a, x: mp.diff(lambda a: mp.gammainc(a, 0, x, regularized=True), a),
    "igammac": lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
    "lgamma": lambda x: mp.re(mp.loggamma(x)),
    "log": mp.log,
    "log-plus-one": lambda z: mp.log(1 + z),
    "log_ndtr": _log_ndtr,
    "logistic": lambda z: 1 / (1 + mp.exp(-z)),
    "logit": lambda x: mp.log(x) - mp.log(1 - x),
    "multiply": lambda x, y: x * y,
    "ndtr": lambda x: mp.erfc(-x / mp.sqrt(2)) / 2,
    "ndtri": _ndtri,
    "polygamma": lambda n, x: mp.polygamma(int(n), x),
    "power": mp.power,
    "remainder": lambda x, y: mp.sign(x) * mp.fmod(abs(x), abs(y)),
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "sine": mp.sin,
    "sinh": mp.sinh,
    "spence": lambda x: mp.polylog(2, 1 - x),
    "sqrt": mp.sqrt,
    "tan": mp.tan,
    "tanh": mp.tanh,
    "xlog1py": lambda x, y: x * mp.log1p(y),
    "xlogy": lambda x, y: x * mp.log(y),
    "zeta": _zeta,
}
"""Functions of real and complex numbers for finite arguments."""

PRECISION = 2400
"""Bits that keep every digit of sums such as 1 + z for any z of c128."""


def _number(x: Any) -> Any:
    if np.iscomplexobj(x):
        return mp.mpc(float(x.real), float(x.imag))
    return mp.mpf(float(x))


def by_mpmath(name: str, *operands: Any, precision: int = PRECISION) -> Any:
    """The value of a function at one point as an mpf or mpc; None where it is infinite or not defined."""
    if not all(np.isfinite(x) for x in operands):
        return None
    with mp.workprec(precision):
        try:
            value = BY_MPMATH[name](*map(_number, operands))
        except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.NoConvergence, NotImplementedError):
            return None
        value = mpmath.mpmathify(value)
        if not mpmath.isfinite(value):
            return None
        if np.iscomplexobj(operands[0]):
            return _on_the_side_of(name, operands[0], value)
        return None if mp.im(value) else mp.re(value)


def _on_the_side_of(name: str, z: Any, value: Any) -> Any:
    """The value on the side of a discontinuity that the sign of z's zero part chooses, as C's functions do."""
    sign = {"asin": 1, "atanh": 1, "acos": -1}.get(name)
    if sign is None or z.imag:
        return value
    return mp.mpc(mp.re(value), sign * math.copysign(1, z.imag) * abs(mp.im(value)))


def to_long(value: Any) -> np.longdouble:
    """Rounds an mpf to long double, in two parts, as its range is that of long double."""
    if value is None:
        return Long(np.nan)
    with np.errstate(over="ignore", under="ignore"):
        return Long(mpmath.nstr(value, 25, min_fixed=1, max_fixed=0))


def from_text(parts: list[str]) -> Any:
    """The number with one part, an mpf, or two parts, an mpc, in decimal."""
    with mp.workprec(120):
        return mp.mpf(parts[0]) if len(parts) == 1 else mp.mpc(*parts)


def units(exact: Array, dtype: Any) -> Array:
    """The unit in the last place of a type for exact values in long double; subnormal numbers have that of `tiny`."""
    limits = ml_dtypes.finfo(dtype)
    exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))[1] - 1
    return np.ldexp(Long(1), np.maximum(exponent, limits.minexp) - limits.nmant)


def errors(got: Array, exact: Array, zeros_have_signs: bool = True) -> Array:
    """The distance in units in the last place of the exact result; infinite where a special value is wrong.

    Exact zeros of mpmath have no sign.
    """
    limits = ml_dtypes.finfo(got.dtype)
    rounded = exact.astype(got.dtype).astype(np.float64)
    value = got.astype(np.float64)
    distance = np.abs(got.astype(Long) - exact) / units(exact, got.dtype)
    # Results next to overflow may be either.
    largest = np.abs(exact) / Long(limits.max)
    borderline = (largest > 1 - 4 * float(limits.eps)) & (largest < 1 + 4 * float(limits.eps))
    finite = np.isfinite(rounded) & np.isfinite(value)
    same = (value == rounded) | (np.isnan(value) & np.isnan(rounded))
    wrong_zero = (rounded == 0) & (value == 0) & (np.signbit(rounded) != np.signbit(value))
    wrong_zero &= (exact != 0) | zeros_have_signs
    return np.where(wrong_zero | (~finite & ~same & ~borderline), np.inf, np.where(finite, distance, 0))
