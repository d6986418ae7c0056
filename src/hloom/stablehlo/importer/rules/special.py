"""Special functions as HLO: log-gamma, digamma, zeta, polygamma, erfc, inverse erf, and a Bessel function.

All are computed in f64; results of narrower types are rounded once. Functions map XlaOps to an XlaOp, and raise
ArgumentError for operands that are not real floating-point numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from hloom.errors import ArgumentError
from hloom.types import PrimitiveType

XlaOp: TypeAlias = Any
"""An XlaOp; its arithmetic operators are not visible to type checkers."""


def scalar_like(like: XlaOp, value: float) -> XlaOp:
    """A scalar constant of the element type of another value, or of the real part's type if that is complex."""
    scalar = np.asarray(value).astype(like.shape.element_type.real.dtype)
    return like.builder.constant(scalar)


def _in_f64(function: Callable[..., XlaOp]) -> Callable[..., XlaOp]:
    """Extends a function on f64 to all real floating-point types."""

    @functools.wraps(function)
    def apply(*operands: XlaOp) -> XlaOp:
        b, kind = operands[0].builder, operands[0].shape.element_type
        if not kind.is_float:
            raise ArgumentError(f"takes real floating-point numbers, got {operands[0].shape}")
        if kind is PrimitiveType.F64:
            return function(*operands)
        wide = [b.convert_element_type(operand, PrimitiveType.F64) for operand in operands]
        return b.convert_element_type(function(*wide), kind)

    return apply


def _select(condition: XlaOp, on_true: Any, on_false: Any) -> XlaOp:
    """Selects between choices that may be Python numbers or scalars."""
    b = condition.builder

    def choice(value: Any) -> XlaOp:
        operand = b.constant(np.float64(value)) if isinstance(value, (int, float)) else value
        sizes = condition.shape.dimensions
        return b.broadcast(operand, sizes) if operand.shape.rank != len(sizes) else operand

    return b.select(condition, choice(on_true), choice(on_false))


def _polynomial(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """Evaluates a polynomial by Horner's rule; coefficients are ordered from the highest power."""
    value: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


# The gamma function by Lanczos' approximation, g = 7: gamma(z + 1) = sqrt(2 pi) (z + 7.5)^(z + 0.5) e^-(z + 7.5) A(z)

_G = 7.5
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _reflected(x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """Whether x < 0.5, where the reflection formula applies, and z: -x there, otherwise x - 1."""
    mirrored = x < 0.5
    return mirrored, _select(mirrored, -x, x - 1.0)


@_in_f64
def lgamma(x: XlaOp) -> XlaOp:
    """log |gamma(x)|; infinite at 0, -1, -2 ..."""
    b = x.builder
    mirrored, z = _reflected(x)
    series: Any = _LANCZOS[0]
    for k, coefficient in enumerate(_LANCZOS[1:], 1):
        series = coefficient / (z + float(k)) + series
    # log(z + 7.5), split so that the constant is exact.
    log_t = b.log1p(z / _G) + math.log(_G)
    log_gamma = (z + 0.5 - (z + _G) / log_t) * log_t + (0.5 * math.log(2 * math.pi)) + b.log(series)
    # gamma(x) gamma(1 - x) = pi / sin(pi x), with pi x reduced to [0, pi/2].
    size = abs(x)
    fraction = size - b.floor(size)
    log_sine = b.log(b.sin(_nearest(fraction) * math.pi))
    image = _select(b.is_finite(log_sine), math.log(math.pi) - log_sine - log_gamma, -log_sine)
    return _select(b.eq(size, scalar_like(x, math.inf)), math.inf, _select(mirrored, image, log_gamma))


def _nearest(fraction: XlaOp) -> XlaOp:
    """The distance of a value in [0, 1) to the nearer of 0 and 1."""
    return _select(fraction > 0.5, 1.0 - fraction, fraction)


@_in_f64
def digamma(x: XlaOp) -> XlaOp:
    """The derivative of log gamma; NaN at 0, -1, -2 ..."""
    b = x.builder
    mirrored, z = _reflected(x)
    series: Any = _LANCZOS[0]
    derivative: Any = 0.0
    for k, coefficient in enumerate(_LANCZOS[1:], 1):
        shifted = z + float(k)
        derivative = derivative - coefficient / (shifted * shifted)
        series = coefficient / shifted + series
    log_t = b.log1p(z / _G) + math.log(_G)
    value = log_t + derivative / series - (_G - 0.5) / (z + _G)
    # digamma(1 - x) - digamma(x) = pi cot(pi x), with x reduced to about 0.
    near = x + abs(b.floor(x + 0.5))
    angle = near * math.pi
    image = value - b.cos(angle) * math.pi / b.sin(angle)
    is_pole = b.and_(x <= 0.0, b.eq(x, b.floor(x)))
    return _select(is_pole, math.nan, _select(mirrored, image, value))


# The Hurwitz zeta function by Euler-Maclaurin summation: nine terms, an integral, and Bernoulli corrections

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
    854513 / 138, -236364091 / 2730,
)  # fmt: skip


@_in_f64
def zeta(x: XlaOp, q: XlaOp) -> XlaOp:
    """The Hurwitz zeta function: the sum of (q + n)^-x over n >= 0."""
    b = x.builder
    exponent = -x
    total, term = b.pow(q, exponent), q
    for _ in range(9):
        term = term + 1.0
        total = total + b.pow(term, exponent)
    last = term + 1.0
    power = b.pow(last, exponent)
    total = total + power * last / (x - 1.0) + power * 0.5
    # sum of B_2k / (2k)! x (x + 1) .. (x + 2k - 2) last^(-x - 2k + 1)
    factor = x * power / last
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + factor * (bernoulli / math.factorial(2 * k))
        factor = factor * (x + float(2 * k - 1)) * (x + float(2 * k)) / (last * last)
    is_integer, at_pole = b.eq(q, b.floor(q)), q <= 0.0
    even = b.and_(b.eq(x, b.floor(x)), b.eq(x - 2.0 * b.floor(x * 0.5), scalar_like(x, 0.0)))
    outside = _select(is_integer, _select(even, math.inf, math.nan), _select(b.eq(x, b.floor(x)), total, math.nan))
    value = _select(at_pole, outside, total)
    value = _select(x < 1.0, math.nan, value)
    return _select(b.eq(x, scalar_like(x, 1.0)), math.inf, value)


@_in_f64
def polygamma(n: XlaOp, x: XlaOp) -> XlaOp:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x); NaN unless n is a natural number."""
    b = x.builder
    sign = (n - 2.0 * b.floor(n * 0.5)) * 2.0 - 1.0
    value = sign * b.exp(lgamma(n + 1.0)) * zeta(n + 1.0, x)
    value = _select(b.eq(n, scalar_like(n, 0.0)), digamma(x), value)
    allowed = b.and_(b.eq(n, b.floor(n)), n >= 0.0)
    return _select(allowed, value, math.nan)


# erfc for |x| > 1 is e^(-x^2) times a quotient of polynomials in |x|, one for |x| < 8 and one beyond (Cephes)

_ERFC_P = (
    2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0, 4.86371970985681366614e1,
    1.96520832956077098242e2, 5.26445194995477358631e2, 9.34528527171957607540e2, 1.02755188689515710272e3,
    5.57535335369399327526e2,
)  # fmt: skip
_ERFC_Q = (
    1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
    1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2,
)  # fmt: skip
_ERFC_R = (
    5.64189583547755073984e-1, 1.27536670759978104416e0, 5.01905042251180477414e0, 6.16021097993053585195e0,
    7.40974269950448939160e0, 2.97886665372100240670e0,
)  # fmt: skip
_ERFC_S = (
    1.0, 2.26052863220117276590e0, 9.39603524938001434673e0, 1.20489539808096656605e1, 1.70814450747565897222e1,
    9.60896809063285878198e0, 3.36907645100081516050e0,
)  # fmt: skip


@_in_f64
def erfc(x: XlaOp) -> XlaOp:
    """1 - erf(x), accurate in the right tail too."""
    b = x.builder
    size = abs(x)
    quotient = _select(
        size < 8.0,
        _polynomial(size, _ERFC_P) / _polynomial(size, _ERFC_Q),
        _polynomial(size, _ERFC_R) / _polynomial(size, _ERFC_S),
    )
    tail = b.exp(-(x * x)) * quotient
    tail = _select(x < 0.0, 2.0 - tail, tail)
    # Beyond 27 the tail is 0 in f64; the quotient may be inf / inf.
    tail = _select(size > 27.5, _select(x < 0.0, 2.0, 0.0), tail)
    return _select(size > 1.0, tail, 1.0 - b.erf(x))


# The inverse of erf: Giles' polynomials in w = -log(1 - x^2) to single precision, then Newton steps

_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


@_in_f64
def erf_inv(x: XlaOp) -> XlaOp:
    """The inverse of erf; infinite at -1 and 1."""
    b = x.builder
    w = -b.log1p(-(x * x))
    near, far = _polynomial(w - 2.5, _NEAR), _polynomial(b.sqrt(w) - 3.0, _FAR)
    size = abs(x)
    y = abs(x * _select(w < 5.0, near, far))
    for _ in range(3):
        # erf(y) - |x| or (1 - |x|) - erfc(y), whichever does not cancel.
        error = _select(y < 0.5, b.erf(y) - size, (1.0 - size) - erfc(y))
        step = error * b.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (y * step + 1.0)
    signed = b.sign(x) * y
    return _select(b.eq(size, scalar_like(x, 1.0)), x * math.inf, signed)


# e^-|x| I_1(x) by Chebyshev series, for |x| <= 8 and beyond (Cephes)

_I1E_NEAR = (
    2.7779141127610464e-18, -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15,
    7.6006842947354077e-15, -5.0421855047279118e-14, 3.2237933659455748e-13, -1.9839743977649436e-12,
    1.1736186298890901e-11, -6.6634897235020271e-11, 3.6255902815521172e-10, -1.8872497517228294e-09,
    9.3815373864957726e-09, -4.4450591287963281e-08, 2.0032947535521353e-07, -8.5687202646954547e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.7815651075500542e-05, -0.00016176081582589674,
    0.00051228595616857576, -0.0015135724506312532, 0.0041564229443128882, -0.010564084894626197,
    0.024726449030626516, -0.052945981208094989, 0.10264365868984709, -0.17641651835783406, 0.25258718644363365,
)  # fmt: skip
_I1E_FAR = (
    7.5172963108421052e-18, 4.4143483230717077e-18, -4.6503053684893586e-17, -3.2095259219934238e-17,
    2.96262899764595e-16, 3.3082023109209285e-16, -1.8803547755107825e-15, -3.8144030724370075e-15,
    1.0420276984128802e-14, 4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.1985517762459084e-13, 2.0356285441470896e-12, 1.4125807436613782e-11, 3.2526035830154884e-11,
    -1.8974958123505413e-11, -5.5897434621965838e-10, -3.835380385964237e-09, -2.6314688468895196e-08,
    -2.5122362378702088e-07, -3.8825648088776906e-06, -0.00011058893876262371, -0.0097610974913614687,
    0.77857623501828011,
)  # fmt: skip


def _chebyshev(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """Evaluates a Chebyshev series by Clenshaw's recurrence; the last coefficient counts half."""
    current: Any = x * 0.0 + coefficients[0]
    previous: Any = x * 0.0
    before = previous
    for coefficient in coefficients[1:]:
        before, previous = previous, current
        current = x * previous - before + coefficient
    return 0.5 * (current - before)


@_in_f64
def bessel_i1e(x: XlaOp) -> XlaOp:
    """The modified Bessel function of the first kind and order 1, times e^-|x|."""
    b = x.builder
    size = abs(x)
    near = size * _chebyshev(size * 0.5 - 2.0, _I1E_NEAR)
    far = _chebyshev(32.0 / size - 2.0, _I1E_FAR) / b.sqrt(size)
    return b.sign(x) * _select(size <= 8.0, near, far)
