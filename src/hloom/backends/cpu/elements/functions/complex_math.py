"""Emission of element-wise functions of complex numbers, as pairs of a real and an imaginary part.

Functions of c64, except for products, are computed in f64, so that their parts are rounded nearly correctly. Functions
of c128 are accurate to a few ulps of the modulus, and in each part where a formula without cancellation is known.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.elements.functions.complex_arithmetic import (
    Pair,
    divide,
    is_infinite,
    modulus,
    multiply,
    quotient,
    reciprocal_root,
    scaled_parts,
    sign,
    square_root,
)
from hloom.backends.cpu.elements.functions.exponentials import LN2, SINH, exp, exp_parts, expm1
from hloom.backends.cpu.elements.functions.lanes import (
    INF,
    NAN,
    Lanes,
    at_least,
    at_most,
    fma,
    muladd,
    where,
    with_sign_of,
)
from hloom.backends.cpu.elements.functions.logarithms import asinh, log, log1p, log_of_sum
from hloom.backends.cpu.elements.functions.trigonometry import atan2, sin, sin_and_cos
from hloom.ops.elementwise_binary import Atan2, Divide, Power
from hloom.ops.elementwise_unary import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atanh,
    Cosh,
    Cosine,
    Expm1,
    Exponential,
    Log,
    Log1p,
    Logistic,
    Rsqrt,
    Sign,
    Sine,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
)
from hloom.ops.operation import Operation

# Exponential and logarithm


def exponential(z: Pair) -> Pair:
    """e^x (cos y + i sin y), with the powers of two in e^x multiplied last, as they alone may overflow."""
    x, y = z
    sine, cosine = sin_and_cos(y)
    power, scale, other = exp_parts(at_least(at_most(x, 1400.0), -1400.0))
    other = where(x > 1400.0, INF, other)
    scaled = power * scale
    real, imaginary = scaled * cosine * other, scaled * sine * other
    # Cosine and sine of infinite y are NaN.
    infinite = where(x.equals(INF), INF, where(x.equals(-INF), x.like(0.0), cosine))
    real = where(cosine.compare("uno", cosine), infinite, real)
    imaginary = where(sine.compare("uno", sine) & x.equals(-INF), 0.0, imaginary)
    return real, where(y.equals(0.0), y, imaginary)


def exponential_minus_one(z: Pair) -> Pair:
    """e^z - 1, with the real part (e^x - 1) cos y - 2 sin(y / 2)^2."""
    x, y = z
    sine, cosine = sin_and_cos(y)
    half = sin(y * 0.5)
    return expm1(x) * cosine - half * half * 2.0, where(y.equals(0.0), y, exp(x) * sine)


def logistic(z: Pair) -> Pair:
    """1 / (1 + e^-z), or e^z / (1 + e^z) where e^-z may overflow.

    Where the real part of e^z = a + i b is negative, 1 + a is (1 - e^2x + b^2) / (1 - a), which does not cancel near
    the poles, odd multiples of i pi.
    """
    left = z[0] < 0.0
    x = where(left, z[0], -z[0])
    real, imaginary = exponential((x, where(left, z[1], -z[1])))
    m = expm1(x)
    near = fma(imaginary, imaginary, -m * (m + 2.0)) / (1.0 - real)
    below = where(real < 0.0, near, real + 1.0), imaginary
    return quotient((where(left, real, 1.0), where(left, imaginary, 0.0)), below)


def _log_modulus(z: Pair) -> Lanes:
    """log |z| = log(x^2 + y^2) / 2, with the squares and their sum in double-double, which |z| near 1 needs."""
    large, small, exponent = scaled_parts(z)
    first, second = large * large, small * small
    total = first + second
    rest = (second - (total - first)) + (fma(large, large, -first) + fma(small, small, -second))
    result = log_of_sum(total, rest, exponent * 2.0) * 0.5
    return where(is_infinite(z), INF, result)


def logarithm(z: Pair) -> Pair:
    """The principal value of log z: log |z| + i arg z."""
    return _log_modulus(z), atan2(z[1], z[0])


def logarithm_of_one_plus(z: Pair) -> Pair:
    """log(1 + z), with |1 + z|^2 = (1 + x)^2 + y^2 in double-double, including the rounding error of 1 + x."""
    x, y = z
    u = x + 1.0
    lost = x - (u - 1.0)
    u_square, y_square = u * u, y * y
    swap = u_square < y_square
    first, second = where(swap, y_square, u_square), where(swap, u_square, y_square)
    total = first + second
    rest = (second - (total - first)) + (fma(u, u, -u_square) + fma(y, y, -y_square)) + 2.0 * u * lost
    near = log_of_sum(total, rest) * 0.5
    moderate = (total > 2.0**-800) & (total < 2.0**1000)
    return where(moderate, near, _log_modulus((u, y))), atan2(y, u)


def power(z: Pair, w: Pair) -> Pair:
    """e^(w log z); 1 for w = 0, and 0 for z = 0 if the exponent has a positive real part."""
    size, angle = logarithm(z)
    real, imaginary = exponential((fma(w[0], size, -(w[1] * angle)), fma(w[0], angle, w[1] * size)))
    is_zero = z[0].equals(0.0) & z[1].equals(0.0)
    at_zero = where((w[0] > 0.0), w[0].like(0.0), NAN)
    real, imaginary = where(is_zero, at_zero, real), where(is_zero, at_zero, imaginary)
    is_one = w[0].equals(0.0) & w[1].equals(0.0)
    return where(is_one, 1.0, real), where(is_one, 0.0, imaginary)


# Trigonometric and hyperbolic functions: sin(z) = -i sinh(i z), cos(z) = cosh(i z)


def _times_i(z: Pair) -> Pair:
    return -z[1], z[0]


def _over_i(z: Pair) -> Pair:
    return z[1], -z[0]


def _products(x: Lanes, for_cosh: Lanes, for_sinh: Lanes) -> Pair:
    """cosh(x) for_cosh and sinh(x) for_sinh, of which cosh and sinh alone may overflow; zero factors give 0."""
    a = abs(x)
    power, scale, other = exp_parts(at_most(a, 1400.0), halved=True)
    other = where(a > 1400.0, INF, other)
    scaled = power * scale
    small = 0.25 / (scaled * other)
    cosh_part = fma(scaled * for_cosh, other, small * for_cosh)
    square = a * a
    near_zero = muladd(a * square, square.polynomial(SINH), a) * for_sinh
    sinh_part = where(a < 1.0, near_zero, fma(scaled * for_sinh, other, -(small * for_sinh)))
    cosh_part = where(for_cosh.equals(0.0), for_cosh, cosh_part)
    sinh_part = where(for_sinh.equals(0.0), for_sinh, sinh_part)
    sinh_part = where(x.equals(0.0) & for_sinh.compare("uno", for_sinh), 0.0, sinh_part)
    return cosh_part, where(x.bits < 0, -sinh_part, sinh_part)


def _of_infinite(x: Lanes, real: Lanes) -> Lanes:
    """`real`, or infinity where x is infinite and the sine or cosine of the imaginary part made `real` NaN."""
    return where(abs(x).equals(INF) & real.compare("uno", real), INF, real)


def hyperbolic_sine(z: Pair) -> Pair:
    """sinh x cos y + i cosh x sin y."""
    sine, cosine = sin_and_cos(z[1])
    imaginary, real = _products(z[0], sine, cosine)
    return _of_infinite(z[0], real), imaginary


def hyperbolic_cosine(z: Pair) -> Pair:
    """cosh x cos y + i sinh x sin y."""
    sine, cosine = sin_and_cos(z[1])
    real, imaginary = _products(z[0], cosine, sine)
    return _of_infinite(z[0], real), imaginary


def hyperbolic_tangent(z: Pair) -> Pair:
    """(sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y); for large |x| +-1 + i 4 sin y cos y e^-2|x|."""
    x, y = z
    sine, cosine = sin_and_cos(y)
    a = abs(x)
    one = a.like(1.0)
    cosh_x, sinh_x = _products(at_most(a, 22.0), one, one)
    denominator = fma(cosine, cosine, sinh_x * sinh_x)
    product = sine * cosine
    far = a > 22.0
    real = where(far, fma(product, 0.0, 1.0), sinh_x * cosh_x / denominator)
    imaginary = where(far, 4.0 * product * exp(a * -2.0), product / denominator)
    # For infinite x the result is +-1 +- 0 i, with signs from x and y.
    infinite = a.equals(INF)
    real = where(infinite, 1.0, where(a.equals(0.0), a, real))
    imaginary = where(infinite, with_sign_of(a.like(0.0), where(abs(y) < INF, product, y)), imaginary)
    return with_sign_of(real, x), where(y.equals(0.0), y, imaginary)


def sine(z: Pair) -> Pair:
    """sin z = -i sinh(i z)."""
    return _over_i(hyperbolic_sine(_times_i(z)))


def cosine(z: Pair) -> Pair:
    """cos z = cosh(i z)."""
    return hyperbolic_cosine(_times_i(z))


def tangent(z: Pair) -> Pair:
    """tan z = -i tanh(i z)."""
    return _over_i(hyperbolic_tangent(_times_i(z)))


# Inverse functions, by Kahan's formulas


def _is_huge(z: Pair) -> Lanes:
    return (abs(z[0]) > 2.0**1000) | (abs(z[1]) > 2.0**1000)


def _finite(z: Pair) -> Pair:
    """A quarter of huge z, beside which 1 is nothing, so that |z| does not overflow.

    Infinite z are replaced by a number of the same angle: infinite parts by the largest number, others by 0.
    """
    infinite, huge, largest = is_infinite(z), _is_huge(z), 2.0**1023 * (2.0 - 2.0**-52)
    real, imaginary = (
        where(infinite & (abs(x) < INF), with_sign_of(x.like(0.0), x), at_least(at_most(x, largest), -largest))
        for x in z
    )
    return where(huge, real * 0.25, real), where(huge, imaginary * 0.25, imaginary)


def _arc_length(z: Pair, x: Lanes) -> Lanes:
    """asinh(x), to which huge z, of which x is that of a quarter, add log 4; infinite if z is."""
    result = asinh(x)
    result = where(_is_huge(z), result + with_sign_of(x.like(2.0 * LN2), result), result)
    return where(is_infinite(z), with_sign_of(x.like(INF), result), result)


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    x, y = _finite(z)
    return square_root((1.0 - x, -y)), square_root((x + 1.0, y))


def arc_sine(z: Pair) -> Pair:
    """The principal value of asin z, from sqrt(1 - z) and sqrt(1 + z)."""
    minus, plus = _roots(z)
    angle = atan2(_finite(z)[0], minus[0] * plus[0] - minus[1] * plus[1])
    length = _arc_length(z, minus[0] * plus[1] - minus[1] * plus[0])
    has_real_result = z[1].equals(0.0) & (abs(z[0]) <= 1.0)
    return where(z[0].equals(0.0), z[0], angle), where(has_real_result, z[1], with_sign_of(length, z[1]))


def arc_cosine(z: Pair) -> Pair:
    """The principal value of acos z, from sqrt(1 - z) and sqrt(1 + z)."""
    minus, plus = _roots(z)
    return 2.0 * atan2(minus[0], plus[0]), _arc_length(z, plus[0] * minus[1] - plus[1] * minus[0])


def hyperbolic_arc_sine(z: Pair) -> Pair:
    """asinh z = -i asin(i z)."""
    return _over_i(arc_sine(_times_i(z)))


def hyperbolic_arc_cosine(z: Pair) -> Pair:
    """The principal value of acosh z, from sqrt(z - 1) and sqrt(z + 1)."""
    x, y = _finite(z)
    minus, plus = square_root((x - 1.0, y)), square_root((x + 1.0, y))
    return _arc_length(z, minus[0] * plus[0] + minus[1] * plus[1]), 2.0 * atan2(minus[1], plus[0])


def hyperbolic_arc_tangent(z: Pair) -> Pair:
    """log1p(4 |x| / ((1 - |x|)^2 + y^2)) / 4 and atan2(2 y, (1 - x) (1 + x) - y^2) / 2; about 1 / z for large z."""
    large = (abs(z[0]) > 2.0**400) | (abs(z[1]) > 2.0**400)
    x, y = z
    a = abs(x)
    below = 1.0 - a
    real = 0.25 * log1p(4.0 * a / fma(below, below, y * y))
    # Beside 1, the square of a small y underflows: log(4 / y^2) / 4, beside which y^2 / 16 is nothing.
    real = where(below.equals(0.0) & (abs(y) < 2.0**-30), 0.5 * (LN2 - log(abs(y))), real)
    angle = 0.5 * atan2(y + y, fma(below, a + 1.0, -(y * y)))
    # For large z the angle is pi / 2, and the real part x / |z|^2, by two divisions that do not overflow.
    size = modulus((x * 0.5, y * 0.5))
    real = where(large, where(is_infinite(z), 0.0, a * 0.25 / size / size), real)
    right_angle = where(y.compare("uno", y), y, with_sign_of(y.like(1.5707963267948966), y))
    return with_sign_of(real, x), where(large, right_angle, angle)


def arc_tangent_of_quotient(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2)), with both scaled alike so that squares stay in range.

    To the left, the sign of the angle is that of the real part of -y / x, which a small y loses beside x.
    """
    largest = at_least(at_least(abs(x[0]), abs(x[1])), at_least(abs(y[0]), abs(y[1])))
    scale = where(largest > 2.0**500, largest.like(2.0**-600), where(largest < 2.0**-400, largest.like(2.0**600), 1.0))
    x, y = (x[0] * scale, x[1] * scale), (y[0] * scale, y[1] * scale)
    squares = multiply(x, x), multiply(y, y)
    root = square_root((squares[0][0] + squares[1][0], squares[0][1] + squares[1][1]))
    iy = _times_i(y)
    real, imaginary = divide((x[0] + iy[0], x[1] + iy[1]), root)
    side = fma(y[0], x[0], y[1] * x[1])
    is_left = (real < -abs(imaginary)) & ~side.equals(0.0)
    return _over_i(logarithm((real, where(is_left, with_sign_of(imaginary, -side), imaginary))))


FUNCTIONS: dict[type[Operation], Callable[..., Pair]] = {
    Atan2: arc_tangent_of_quotient,
    Divide: divide,
    Power: power,
    Acos: arc_cosine,
    Acosh: hyperbolic_arc_cosine,
    Asin: arc_sine,
    Asinh: hyperbolic_arc_sine,
    Atanh: hyperbolic_arc_tangent,
    Cosh: hyperbolic_cosine,
    Cosine: cosine,
    Exponential: exponential,
    Expm1: exponential_minus_one,
    Log: logarithm,
    Log1p: logarithm_of_one_plus,
    Logistic: logistic,
    Rsqrt: reciprocal_root,
    Sign: sign,
    Sine: sine,
    Sinh: hyperbolic_sine,
    Sqrt: square_root,
    Tan: tangent,
    Tanh: hyperbolic_tangent,
}
"""The functions that are computed in f64 by operation: all but the product and the absolute value."""
