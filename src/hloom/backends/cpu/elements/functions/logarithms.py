"""Logarithm and power, and the inverse hyperbolic functions, on `Lanes`.

log: x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), log x = e ln 2 + log(1 + f).
"""

from __future__ import annotations

from hloom.backends.cpu.elements.avx512 import emit_avx512, has_avx512
from hloom.backends.cpu.elements.functions.exponentials import (
    LN2,
    LN2_HIGH,
    LN2_LOW,
    MIN_EXPONENT,
    exp_of_sum,
)
from hloom.backends.cpu.elements.functions.lanes import (
    INF,
    NAN,
    ROUNDER,
    Lanes,
    at_least,
    at_most,
    bit_pattern,
    fma,
    muladd,
    sqrt,
    upper_part,
    where,
    with_sign_of,
)
from hloom.lir import I32, constant

# The immediate operand of VGETMANT: numbers in [1, 2), and NaN for negative ones other than -0.
MANTISSA_FROM_ONE = constant(I32, 0b1100)

# The sum with any exponent of f64 is positive.
OFFSET = 1280

# float: (log(1 + f) - f + f^2 / 2) / f^3; double: (2 atanh(s) / s - 2) / s^2 by s^2, s = f / (2 + f).
# Relative errors of the logarithm: 2^-27.3 and 2^-58.5.
LOG = {
    "float": (
        -0.07633061,
        0.12761512,
        -0.13160528,
        0.14201702,
        -0.16623324,
        0.20001237,
        -0.25000823,
        0.3333333,
    ),
    "double": (
        0.14795941542048366,
        0.15314057279457546,
        0.18183563787128873,
        0.22222198590150746,
        0.28571428742137883,
        0.39999999999416347,
        0.6666666666666734,
    ),
}

# ((atanh(s) / s - 1) / s^2 - 1/3) / s^2 by s^2: error of atanh 2^-66.
POWER_ATANH = {
    "float": (0.11709737, 0.14273547, 0.20000076),
    "double": (
        0.06598493781024524,
        0.06628372640939516,
        0.07693380263177689,
        0.09090892147675511,
        0.11111111260390455,
        0.14285714285047232,
        0.20000000000001134,
    ),
}

# Logarithms


def _split(bits: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Splits positive x = 2^e m, from its bits, into e as the exponent in bits and as a float, and m in [sqrt(1/2),
    sqrt(2)).

    The bits of subnormal numbers are to be those that they would have if exponents could be negative.
    """
    single = bits.type.bits == 32
    mantissa_bits, element = (23, "float") if single else (52, "double")
    above = bits - bit_pattern(element, 0.5**0.5)
    power = above & (-1 << mantissa_bits)
    m = (bits - power).float
    if single:
        e = Lanes(bits.b, bits.b.convert("sitofp", above.shift_right_signed(mantissa_bits).value, element))
    else:
        # AVX2 neither shifts nor converts signed numbers of 64 bits.
        positive = above + (OFFSET << mantissa_bits) >> mantissa_bits
        e = (positive + bit_pattern(element, ROUNDER[1])).float - (ROUNDER[1] + OFFSET)
    return power, e, m


def _log(e: Lanes, f: Lanes) -> Lanes:
    """e ln 2 + log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2))."""
    high, low = f.pick(*LN2_HIGH), f.pick(*LN2_LOW)
    square = f * f
    if f.type.bits == 32:
        whole = upper_part(high)  # its multiples are exact, with and without fused instructions
        tail = muladd(f * square, f.polynomial(LOG), e * ((high - whole) + low))
        return muladd(e, whole, f + muladd(square, -0.5, tail))
    half = square * 0.5
    s = f / (f + 2.0)
    z = s * s
    return fma(e, high, f - (half - fma(s, fma(z, z.polynomial(LOG), half), e * low)))


def log(x: Lanes) -> Lanes:
    """The natural logarithm; -infinity for zeros, NaN for negative x."""
    if has_avx512(x.type):
        e, m = _split_by_avx512(x)
        return _log(e, m - 1.0)
    e, m = _exponent_and_mantissa(x)
    result = _log(e, m - 1.0)
    result = where(x.equals(INF), x, result)
    result = where(x.equals(0.0), -INF, result)
    return where(x.compare("ult", 0.0), NAN, result)


def _exponent_and_mantissa(x: Lanes) -> tuple[Lanes, Lanes]:
    """Splits positive x = 2^e m, which may be subnormal, into e as a float and m in [sqrt(1/2), sqrt(2))."""
    shift = 24 if x.type.bits == 32 else 54
    shifted = (x * 2.0**shift).bits - (shift << x.mantissa_bits)
    _, e, m = _split(where(x < x.pick(2.0**-126, 2.0**-1022), shifted, x.bits))
    return e, m


def _split_by_avx512(x: Lanes) -> tuple[Lanes, Lanes]:
    """Splits x = 2^e m as `_exponent_and_mantissa`; e is infinite for zeros and infinities, m NaN for negative x."""
    e, m = (
        Lanes(x.b, emit_avx512(x.b, name, x.value, immediates=immediates))
        for name, immediates in (("getexp", ()), ("getmant", [MANTISSA_FROM_ONE]))
    )
    is_upper = m >= 2 * 0.5**0.5
    return where(is_upper, e + 1.0, e), where(is_upper, m * 0.5, m)


def log_of_sum(u: Lanes, rest: Lanes, exponent: Lanes | None = None) -> Lanes:
    """log(u + rest), or log((u + rest) 2^exponent), for a rounded sum u that is not subnormal and its error."""
    power, e, m = _split(u.bits)
    # 2^-e, or 0 where the rest is too small to matter.
    one = bit_pattern(u.type.element, 1.0)
    inverse = (one - power.intrinsic("smin", one)).float
    result = _log(e if exponent is None else e + exponent, fma(rest, inverse, m - 1.0))
    result = where(u.equals(INF), INF, result)
    return where(u.compare("ult", 0.0), NAN, where(u.equals(0.0), -INF, result))


def _log1p(x: Lanes, low: Lanes | None = None) -> Lanes:
    """log(1 + x + low), with the rounding error of 1 + x."""
    u = x + 1.0
    rest = x - (u - 1.0)
    return log_of_sum(u, rest if low is None else rest + low)


def log1p(x: Lanes) -> Lanes:
    """log(1 + x)."""
    # The sign of x = -0 is lost in 1 + x.
    return where(x.equals(0.0), x, _log1p(x))


def asinh(x: Lanes) -> Lanes:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))) with a = |x|; log(2 a) for large a."""
    a = abs(x)
    large = a > a.pick(2.0**30, 2.0**60)
    square = a * a
    rest = square / (sqrt(square + 1.0) + 1.0)
    total = a + rest
    result = _log1p(where(large, a, total), where(large, 0.0, rest - (total - a)))
    return with_sign_of(result + where(large, a.like(LN2), 0.0), x)


def acosh(x: Lanes) -> Lanes:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1; log(2 x) for large x."""
    large = x > x.pick(2.0**30, 2.0**60)
    t = x - 1.0
    twice = t + t
    square = fma(t, t, twice)
    root = sqrt(square)
    # The exact square minus root^2; it is 0 where the root is, hence the 2^-99 below.
    residue = fma(-root, root, square) + fma(t, t, twice - square)
    total = root + t
    rest = (t - (total - root)) + residue / (root + root + 2.0**-99)
    result = _log1p(where(large, x, total), where(large, 0.0, rest)) + where(large, x.like(LN2), 0.0)
    return where(x < 1.0, NAN, result)


def atanh(x: Lanes) -> Lanes:
    """log1p(2 a / (1 - a)) / 2 with a = |x|."""
    a = abs(x)
    twice = a + a
    below = 1.0 - a
    quotient = twice / below
    residue = fma(-quotient, below, twice) - quotient * ((1.0 - below) - a)
    return with_sign_of(_log1p(quotient, residue / below) * 0.5, x)


# Powers


def power(x: Lanes, y: Lanes) -> Lanes:
    """x^y as IEEE pow: negative x have a signed result for odd y and NaN for non-integer y; x = 1 and y = 0 give 1."""
    base = abs(x)
    log_base, low = _log_in_two(base)
    log_base = where(base.equals(0.0), -INF, where(base < INF, log_base, base))
    # An infinite exponent times the logarithm 0 would be NaN.
    largest = y.pick(2.0**127, 2.0**1023)
    exponent = at_least(at_most(y, largest), -largest)
    product = exponent * log_base
    rest = fma(exponent, log_base, -product) + exponent * low
    clamped = at_least(at_most(product, x.pick(90.0, 711.0)), x.pick(*MIN_EXPONENT))
    result = exp_of_sum(clamped, where(clamped.equals(product), rest, 0.0))
    half = y * 0.5
    is_integer = y.intrinsic("trunc").equals(y)
    is_odd = is_integer & half.intrinsic("trunc").compare("one", half)
    result = where(is_odd, with_sign_of(result, x), result)
    result = where((x < 0.0) & (x > -INF) & ~is_integer, NAN, result)
    return where(y.equals(0.0) | x.equals(1.0), 1.0, result)


def _log_in_two(x: Lanes) -> tuple[Lanes, Lanes]:
    """The logarithm of finite positive x and its rounding error, together accurate to about 66 bits (f32: 36)."""
    e, m = _exponent_and_mantissa(x)
    f = m - 1.0
    # s = f / (2 + f) = sh + sl
    d = f + 2.0
    inverse = 1.0 / d
    sh = f * inverse
    sl = (fma(-sh, d, f) - sh * (f - (d - 2.0))) * inverse
    # z = s^2 = zh + zl
    zh = sh * sh
    zl = fma(sh, sh, -zh) + 2.0 * sh * sl
    # c = 1/3 + z Q(z) = ch + cl
    third, third_low = x.pick(0.3333333432674408, 0.3333333333333333), x.pick(-9.934108e-09, 1.850371707708594e-17)
    t = zh * zh.polynomial(POWER_ATANH)
    ch = t + third
    cl = (third - ch) + t + third_low
    # w = z c, a = s w
    wh = zh * ch
    wl = fma(zh, ch, -wh) + fma(zh, cl, zl * ch)
    ah = sh * wh
    al = fma(sh, wh, -ah) + fma(sh, wl, sl * wh)
    # log x = e ln 2 + 2 s + 2 a, with few enough bits of ln 2 that its product with e is exact.
    first, second, last = e * x.pick(0.693145751953125, 0.6931471804855391), sh + sh, ah + ah
    h1 = first + second
    h2 = h1 + last
    ln2_low = x.pick(1.4286068e-06, 7.440617110012397e-11)
    low = (second - (h1 - first)) + (last - (h2 - h1)) + fma(e, ln2_low, 2.0 * (sl + al))
    return h2, low
