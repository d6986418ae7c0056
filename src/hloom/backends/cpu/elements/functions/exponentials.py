"""Exponential and its relatives (hyperbolic functions, logistic, erf) on `Lanes`.

e^x: x = n ln 2 + r with |r| <= ln 2 / 2, e^r = 1 + r + r^2 q(r), and 2^n is built from its exponent bits.
"""

from __future__ import annotations

from hloom.backends.cpu.elements.avx512 import emit_avx512, has_avx512
from hloom.backends.cpu.elements.functions import piecewise
from hloom.backends.cpu.elements.functions.lanes import (
    ROUNDER,
    Lanes,
    Number,
    add_multiple,
    at_least,
    at_most,
    bit_pattern,
    fma,
    muladd,
    where,
    with_sign_of,
)
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I32, constant

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634

# ln 2 in two parts: rounded to the element type, and the rounding error.
LN2_HIGH = (0.6931471824645996, 0.6931471805599453)
LN2_LOW = (-1.9046542121259336e-09, 2.3190468138462996e-17)

# The bias of exponents.
BIAS = (127, 1023)

# Powers of two far from both ends of the range of exponents.
LARGE = (2.0**64, 2.0**512)
SMALL = (2.0**-64, 2.0**-512)

# (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2; relative errors of e^r - 1: 2^-26.1 and 2^-55.4.
EXP = {
    "float": (0.0013864405, 0.008366558, 0.041667506, 0.16666543, 0.49999997),
    "double": (
        2.5059352712035674e-08,
        2.76262988093915e-07,
        2.7557390516292913e-06,
        2.48015045707529e-05,
        0.0001984126973735006,
        0.001388888893221529,
        0.008333333333381451,
        0.041666666666574384,
        0.16666666666666602,
        0.5000000000000006,
    ),
}

# A bound of |r| after the reduction, which is at most ln 2 / 2 and its rounding error.
HALF_LN2 = 0.35

# The immediate operand of AVX-512's VRANGE: the smaller magnitude, with the sign of the first number.
LEAST_MAGNITUDE = constant(I32, 0b0010)

# (sinh(x) - x) / x^3 by x^2 for |x| <= 1; relative errors 2^-27 and 2^-56.
SINH = {
    "float": (2.8174513e-06, 0.00019836063, 0.0083333505, 0.16666667),
    "double": (
        7.759322463775537e-13,
        1.6057239967940657e-10,
        2.5052123403931554e-08,
        2.7557319155298115e-06,
        0.00019841269841437825,
        0.008333333333333139,
        0.16666666666666669,
    ),
}

# (-log(erfc(x)) / x - 2 / sqrt(pi)) / x for x in [0, 3.95] and [0, 5.93]; relative errors of erf 2^-27 and 2^-56.
ERF = {
    "float": (
        -9.263723e-06,
        0.00011770469,
        -0.0006330508,
        0.0016673942,
        -0.00016073571,
        -0.019152896,
        0.102777794,
        0.6366194,
    ),
    "double": (
        7.833668818678505e-16,
        -3.8502711339524337e-14,
        8.845005826836661e-13,
        -1.2610237883982756e-11,
        1.2483412228778925e-10,
        -9.081785134065725e-10,
        4.9974940275432966e-09,
        -2.0961899248161086e-08,
        6.573144511712467e-08,
        -1.4175776165165617e-07,
        1.3717576166445827e-07,
        3.3637136563573673e-07,
        -1.7415514080022043e-06,
        2.835139131960363e-06,
        3.407270929247012e-06,
        -2.972405286247709e-05,
        6.449186596254881e-05,
        2.5878601612498285e-05,
        -0.000590125551930544,
        0.0016962063855092266,
        -0.0002091946948051614,
        -0.019128447005073865,
        0.10277260330178893,
        0.6366197723675836,
    ),
}

# 2 / sqrt(pi) in two parts.
ERF_AT_0_HIGH = (1.128379225730896, 1.1283791670955126)
ERF_AT_0_LOW = (-5.8635382771399236e-08, 1.533545961316588e-17)

# e^x is zero for these and smaller exponents.
MIN_EXPONENT = (-104.0, -746.0)


def _reduce(x: Lanes, addend: int = 0) -> tuple[Lanes, Lanes, Lanes]:
    """The bits of n + addend + ROUNDER, n, and r with x = n LN2_HIGH + r, exactly."""
    rounder = x.pick(*(each + addend for each in ROUNDER))
    shifted = muladd(x, LOG2E, rounder)
    n = shifted - rounder
    return shifted.bits, n, add_multiple(n, -x.pick(*LN2_HIGH), x)


def _without_low(n: Lanes, value: Lanes | Number) -> Lanes:
    """value - n LN2_LOW."""
    return muladd(n, -n.pick(*LN2_LOW), value)


def _power_of_two(n: Lanes, mantissa_bits: int) -> Lanes:
    """2^n for integers n, of which only the low bits, those of an exponent, matter."""
    one = bit_pattern("double" if mantissa_bits == 52 else "float", 1.0)
    return ((n << mantissa_bits) + one).float


def _exp_of_reduced(x: Lanes, low: Lanes | None, addend: int = 0) -> tuple[Lanes, Lanes, Lanes]:
    """e^r of e^(x + low) = 2^n e^r, n, and the bits of n + addend + ROUNDER."""
    bits, n, r = _reduce(x, addend)
    r = _without_low(n, r) if low is None else r + _without_low(n, low)
    return _exp_of_small(r), n, bits


def _exp_of_small(r: Lanes) -> Lanes:
    """e^r for |r| <= ln 2 / 2 as 1 + r (1 + r q(r)): the error of a factor of r, at most 0.35, hardly counts."""
    return muladd(r, muladd(r, r.polynomial(EXP), 1.0), 1.0)


def exp_parts(x: Lanes, halved: bool = False) -> tuple[Lanes, Lanes, Lanes]:
    """Three factors of e^x, or half of it: e^r and two powers of two, all normal numbers.

    Their product in this order is rounded once where it is subnormal. |x| must be below twice the largest exponent.
    """
    power, _, bits = _exp_of_reduced(x, None)
    half = bits >> 1
    other = bits - half - 1 if halved else bits - half
    return power, _power_of_two(half, x.mantissa_bits), _power_of_two(other, x.mantissa_bits)


def exp_of_sum(x: Lanes, low: Lanes) -> Lanes:
    """e^(x + low)."""
    if has_avx512(x.type):
        power, n, _ = _exp_of_reduced(x, low)
        return _scaled(power, n)
    last = _last_factor(x)
    power, scale = _power_and_scale(x, low, last)
    return power * scale * last


def _half_of_exp(x: Lanes) -> Lanes:
    """e^x / 2 for positive x."""
    if has_avx512(x.type):
        power, n, _ = _exp_of_reduced(x, None)
        return _scaled(power, n - 1.0)
    power, scale = _power_and_scale(x, None, x.pick(*LARGE))
    return power * scale * x.pick(*(each / 2 for each in LARGE))


def _bias(x: Lanes) -> int:
    """The bias of the exponents of x."""
    return BIAS[x.type.bits == 64]


def _last_factor(x: Lanes) -> Lanes:
    """A power of two that leaves a normal number of e^x divided by it."""
    return where(x.bits < 0, x.pick(*SMALL), x.pick(*LARGE))


def _power_and_scale(x: Lanes, low: Lanes | None, last: Lanes) -> tuple[Lanes, Lanes]:
    """Two factors of e^(x + low), e^r and a power of two, beside a power of two that is the last factor."""
    power, _, bits = _exp_of_reduced(x, low, 2 * _bias(x))
    return power, ((bits << x.mantissa_bits) - last.bits).float


def _scaled(x: Lanes, n: Lanes) -> Lanes:
    """x 2^n, rounded once, by an instruction of AVX-512."""
    return Lanes(x.b, emit_avx512(x.b, "scalef", x.value, n.value))


def exp(x: Lanes) -> Lanes:
    """e^x."""
    if has_avx512(x.type):
        return _exp_of_any(x)
    return _exp_without_overflow(at_most(x, x.pick(90.0, 711.0)), _last_factor(x))


def _exp_of_any(x: Lanes) -> Lanes:
    """e^x by instructions of AVX-512, which scale by any n: r alone is limited, for x beyond the range of exponents."""
    _, n, r = _reduce(x)
    return _scaled(_exp_of_small(_limited(_without_low(n, r), HALF_LN2)), n)


def _limited(x: Lanes, limit: float) -> Lanes:
    """x, or the limit with the sign of x where |x| is larger or NaN."""
    return Lanes(x.b, emit_avx512(x.b, "range", x.value, x.like(limit).value, immediates=[LEAST_MAGNITUDE]))


def _exp_without_overflow(x: Lanes, last: Lanes) -> Lanes:
    """e^x with a last factor, for x that cannot overflow.

    Where the result is zero, as for masked scores of a softmax, this factor is zero: products that underflow are slow.
    """
    if has_avx512(x.type):
        return _exp_of_any(x)
    least = x.pick(*MIN_EXPONENT)
    power, scale = _power_and_scale(at_least(x, least), None, last)
    return power * scale * where(x > least, last, 0.0)


def expm1(x: Lanes) -> Lanes:
    """e^x - 1 = 2^n (e^r - 1) + 2^n - 1, with 2^n in two factors, since it may overflow before the result does."""
    clamped = at_least(at_most(x, x.pick(90.0, 711.0)), x.pick(-20.0, -40.0))
    bits, n, r = _reduce(clamped)
    rest = n * -x.pick(*LN2_LOW)
    half = bits >> 1
    scale = _power_of_two(half, x.mantissa_bits)
    other = _power_of_two(bits - half, x.mantissa_bits)
    inverse = (bit_pattern(x.type.element, 1.0) * 2 - scale.bits).float
    whole = r + rest
    tail = muladd(whole * whole, whole.polynomial(EXP), rest)
    return with_sign_of(muladd(other, tail, muladd(other, r, other - inverse)) * scale, x)


def logistic(x: Lanes) -> Lanes:
    """1 / (1 + e) with e = e^-|x|, or e / (1 + e) for negative x.

    The quotient s = a / (1 + e) equals a - e s, which has a smaller rounding error, since e is at most 1.
    """
    e = _exp_without_overflow(-abs(x), x.pick(*SMALL))
    above = where(x.bits < 0, e, 1.0)
    return muladd(-e, above / (e + 1.0), above)


def tanh(x: Lanes) -> Lanes:
    """h / (1 + h) with h = (e^2|x| - 1) / 2, computed near zero as h - h tanh |x|; of f32 polynomials, on AVX-512."""
    if x.type.bits == 32 and processor().table_entries == piecewise.INTERVALS:
        return piecewise.tanh(x)
    a = abs(x)
    biased, n, r = _reduce(at_most(a + a, x.pick(20.0, 40.0)), _bias(x) - 1)
    half = (biased << x.mantissa_bits).float
    tail = muladd(r * r, r.polynomial(EXP), n * -x.pick(*LN2_LOW))
    h = muladd(half, tail, muladd(half, r, half - 0.5))
    quotient = h / (h + 1.0)
    return with_sign_of(where(h < 1.0, muladd(-h, quotient, h), quotient), x)


def sinh(x: Lanes) -> Lanes:
    """(e^a - e^-a) / 2 with a = |x|; a polynomial near zero."""
    a = abs(x)
    half = _half_of_exp(at_most(a, x.pick(90.0, 711.0)))
    square = a * a
    near_zero = muladd(a * square, square.polynomial(SINH), a)
    return with_sign_of(where(a < 1.0, near_zero, half - 0.25 / half), x)


def cosh(x: Lanes) -> Lanes:
    """(e^a + e^-a) / 2 with a = |x|."""
    half = _half_of_exp(at_most(abs(x), x.pick(90.0, 711.0)))
    return half + 0.25 / half


def erf(x: Lanes) -> Lanes:
    """1 - e^-g with a polynomial for the smooth g = -log(erfc |x|); of f32 polynomials of x, on AVX2 and AVX-512."""
    if x.type.bits == 32 and processor().table_entries:
        return piecewise.erf(x)
    a = at_most(abs(x), x.pick(3.95, 5.93))
    factor = muladd(a, a.polynomial(ERF), a.pick(*ERF_AT_0_HIGH))
    g = a * factor
    biased, n, r = _reduce(-g, _bias(x))
    rest = _without_low(n, -muladd(a, x.pick(*ERF_AT_0_LOW), fma(a, factor, -g)))
    scale = (biased << x.mantissa_bits).float
    power = r + muladd(r * r, r.polynomial(EXP), rest)
    return with_sign_of(muladd(scale, power, scale - 1.0), x)
