"""Element-wise functions of complex numbers, given as pairs of real and imaginary part, as LLVM IR.

c64 is computed in f64 but for products, so that its parts are rounded nearly correctly. c128 is good to a few ulps of
the modulus; the parts are as good each where a formula without cancellation is known.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.elements.exponentials import (
    INF,
    NAN,
    SINH,
    asinh,
    exp,
    exp_parts,
    expm1,
    log1p,
    log_of_sum,
)
from hloom.backends.cpu.elements.lanes import Lanes, at_least, at_most, fma, sqrt, where, with_sign_of
from hloom.backends.cpu.elements.trigonometry import atan2, sin, sin_and_cos
from hloom.backends.cpu.llvm.text import Builder, Value

Pair = tuple[Lanes, Lanes]


# Arithmetic


def multiply(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def divide(a: Pair, b: Pair) -> Pair:
    """The quotient, with the infinities and zeros of C's Annex G where its parts would both be NaN (DIV-1)."""
    real, imaginary = quotient(a, b)
    lost = real.compare("uno", real) & imaginary.compare("uno", imaginary)
    signed = with_sign_of(b[0].like(INF), b[0])
    by_zero = b[0].equals(0.0) & b[1].equals(0.0)
    a_infinite, b_infinite = _is_infinite(a), _is_infinite(b)
    of_infinity = _times_conjugate(_signs(a), b, INF)
    by_infinity = _times_conjugate(a, _signs(b), 0.0)
    parts = []
    for part, zero, large, small in zip(
        (real, imaginary), (signed * a[0], signed * a[1]), of_infinity, by_infinity, strict=True
    ):
        fixed = where(b_infinite & _is_finite(a), small, part)
        fixed = where(a_infinite & _is_finite(b), large, fixed)
        parts.append(where(by_zero, zero, where(lost, fixed, part)))
    return parts[0], parts[1]


def _is_infinite(z: Pair) -> Lanes:
    return abs(z[0]).equals(INF) | abs(z[1]).equals(INF)


def _is_finite(z: Pair) -> Lanes:
    return (abs(z[0]) < INF) & (abs(z[1]) < INF)


def _signs(z: Pair) -> Pair:
    """1 for an infinite part and 0 for a finite one, with their signs."""
    ones = [with_sign_of(where(abs(x).equals(INF), x.like(1.0), x.like(0.0)), x) for x in z]
    return ones[0], ones[1]


def _times_conjugate(a: Pair, b: Pair, factor: float) -> Pair:
    return (a[0] * b[0] + a[1] * b[1]) * factor, (a[1] * b[0] - a[0] * b[1]) * factor


def quotient(a: Pair, b: Pair) -> Pair:
    """Smith's algorithm: the larger part of the divisor is divided out."""
    swap = abs(b[0]) < abs(b[1])
    large, small = where(swap, b[1], b[0]), where(swap, b[0], b[1])
    p, q = where(swap, a[1], a[0]), where(swap, a[0], a[1])
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    real, difference = (p + q * ratio) * scale, (q - p * ratio) * scale
    by_zero = large.equals(0.0) & small.equals(0.0)
    imaginary = where(swap, -difference, difference)
    return where(by_zero, a[0] * INF, real), where(by_zero, a[1] * INF, imaginary)


def _real(x: Lanes, value: float) -> Pair:
    return x.like(value), x.like(0.0)


def _reciprocal(z: Pair) -> Pair:
    return quotient(_real(z[0], 1.0), z)


def _times_i(z: Pair) -> Pair:
    return -z[1], z[0]


def _over_i(z: Pair) -> Pair:
    return z[1], -z[0]


def _scaled(z: Pair) -> tuple[Lanes, Lanes, Lanes]:
    """The larger and the smaller part, absolute, scaled by 2^-exponent so that squares stay in range; the exponent."""
    x, y = abs(z[0]), abs(z[1])
    swap = x < y
    large, small = where(swap, y, x), where(swap, x, y)
    is_large, is_small = large > 2.0**500, large < 2.0**-400
    scale = where(is_large, large.like(2.0**-600), where(is_small, large.like(2.0**600), 1.0))
    exponent = where(is_large, large.like(600.0), where(is_small, large.like(-600.0), 0.0))
    return large * scale, small * scale, exponent


def _power_of_600(exponent: Lanes) -> Lanes:
    """2^exponent, where that is 600, 0 or -600."""
    return where(exponent > 0.0, exponent.like(2.0**600), where(exponent < 0.0, exponent.like(2.0**-600), 1.0))


def modulus(z: Pair) -> Lanes:
    large, small, exponent = _scaled(z)
    result = sqrt(fma(large, large, small * small)) * _power_of_600(exponent)
    return where(_is_infinite(z), INF, result)


def sign(z: Pair) -> Pair:
    """z / |z|; 0 of 0."""
    size = modulus(z)
    size = where(size.equals(0.0), 1.0, size)
    return z[0] / size, z[1] / size


def square_root(z: Pair) -> Pair:
    """t = sqrt((|x| + |z|) / 2) is one part, y / 2t the other; none of them cancels."""
    large, small, exponent = _scaled(z)
    size = sqrt(fma(large, large, small * small))
    x = abs(z[0])
    part = where(x < abs(z[1]), small, large)
    t = sqrt((part + size) * 0.5) * where(
        exponent > 0.0, x.like(2.0**300), where(exponent < 0.0, x.like(2.0**-300), 1.0)
    )
    other = where(t.equals(0.0), 0.0, abs(z[1]) / (t + t))
    # An infinity in the real part leaves 0 times it in the other; one in the imaginary part is in both.
    infinite = abs(z[1]).equals(INF)
    t = where(infinite | x.equals(INF), INF, t)
    other = where(infinite, INF, where(x.equals(INF) & (abs(z[1]) < INF), 0.0, other))
    swap = (z[0].bits < 0) & z[0].compare("ord", 0.0)
    return where(swap, other, t), with_sign_of(where(swap, t, other), z[1])


def reciprocal_root(z: Pair) -> Pair:
    return _reciprocal(square_root(z))


# Exponential and logarithm


def exponential(z: Pair) -> Pair:
    """e^x (cos y + i sin y); the powers of two of e^x are multiplied last, as they may overflow alone."""
    x, y = z
    sine, cosine = sin_and_cos(y)
    power, scale, other = exp_parts(at_least(at_most(x, 1400.0), -1400.0))
    other = where(x > 1400.0, INF, other)
    scaled = power * scale
    real, imaginary = scaled * cosine * other, scaled * sine * other
    # Of infinite y cosine and sine are NaN.
    infinite = where(x.equals(INF), INF, where(x.equals(-INF), x.like(0.0), cosine))
    real = where(cosine.compare("uno", cosine), infinite, real)
    imaginary = where(sine.compare("uno", sine) & x.equals(-INF), 0.0, imaginary)
    return real, where(y.equals(0.0), y, imaginary)


def exponential_minus_one(z: Pair) -> Pair:
    """Real part: (e^x - 1) cos y - 2 sin(y / 2)^2."""
    x, y = z
    sine, cosine = sin_and_cos(y)
    half = sin(y * 0.5)
    return expm1(x) * cosine - half * half * 2.0, where(y.equals(0.0), y, exp(x) * sine)


def logistic(z: Pair) -> Pair:
    real, imaginary = exponential((-z[0], -z[1]))
    return _reciprocal((real + 1.0, imaginary))


def _log_modulus(z: Pair) -> Lanes:
    """log |z| = log(x^2 + y^2) / 2, the squares and their sum in two parts: exact enough near |z| = 1."""
    large, small, exponent = _scaled(z)
    first, second = large * large, small * small
    total = first + second
    rest = (second - (total - first)) + (fma(large, large, -first) + fma(small, small, -second))
    result = log_of_sum(total, rest, exponent * 2.0) * 0.5
    return where(_is_infinite(z), INF, result)


def logarithm(z: Pair) -> Pair:
    return _log_modulus(z), atan2(z[1], z[0])


def logarithm_of_one_plus(z: Pair) -> Pair:
    """log |1 + z| from |1 + z|^2 in two parts: (1 + x)^2 + y^2 with what 1 + x lacks."""
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
    """e^(w log z); 1 of w = 0, 0 of z = 0 with a positive real exponent."""
    size, angle = logarithm(z)
    real, imaginary = exponential((fma(w[0], size, -(w[1] * angle)), fma(w[0], angle, w[1] * size)))
    is_zero = z[0].equals(0.0) & z[1].equals(0.0)
    at_zero = where((w[0] > 0.0), w[0].like(0.0), NAN)
    real, imaginary = where(is_zero, at_zero, real), where(is_zero, at_zero, imaginary)
    is_one = w[0].equals(0.0) & w[1].equals(0.0)
    return where(is_one, 1.0, real), where(is_one, 0.0, imaginary)


# Trigonometric and hyperbolic functions: those of iz are those of z turned by i


def _products(x: Lanes, for_cosh: Lanes, for_sinh: Lanes) -> Pair:
    """cosh(x) for_cosh and sinh(x) for_sinh, where cosh and sinh alone may overflow; 0 times anything is 0."""
    a = abs(x)
    power, scale, other = exp_parts(at_most(a, 1400.0), halved=True)
    other = where(a > 1400.0, INF, other)
    scaled = power * scale
    small = 0.25 / (scaled * other)
    cosh_part = fma(scaled * for_cosh, other, small * for_cosh)
    square = a * a
    near_zero = fma(a * square, square.polynomial(SINH), a) * for_sinh
    sinh_part = where(a < 1.0, near_zero, fma(scaled * for_sinh, other, -(small * for_sinh)))
    cosh_part = where(for_cosh.equals(0.0), for_cosh, cosh_part)
    sinh_part = where(for_sinh.equals(0.0), for_sinh, sinh_part)
    sinh_part = where(x.equals(0.0) & for_sinh.compare("uno", for_sinh), 0.0, sinh_part)
    return cosh_part, where(x.bits < 0, -sinh_part, sinh_part)


def _of_infinite(x: Lanes, real: Lanes) -> Lanes:
    """The real part inf of infinite x, though the imaginary part has no cosine."""
    return where(abs(x).equals(INF) & real.compare("uno", real), INF, real)


def hyperbolic_sine(z: Pair) -> Pair:
    sine, cosine = sin_and_cos(z[1])
    imaginary, real = _products(z[0], sine, cosine)
    return _of_infinite(z[0], real), imaginary


def hyperbolic_cosine(z: Pair) -> Pair:
    sine, cosine = sin_and_cos(z[1])
    real, imaginary = _products(z[0], cosine, sine)
    return _of_infinite(z[0], real), imaginary


def hyperbolic_tangent(z: Pair) -> Pair:
    """(sinh x cosh x + i sin y cos y) / (sinh^2 x + cos^2 y); of large |x| +-1 + i 4 sin y cos y e^-2|x|."""
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
    # Of infinite x the sign alone depends on y, whatever that is.
    infinite = a.equals(INF)
    real = where(infinite, 1.0, where(a.equals(0.0), a, real))
    imaginary = where(infinite, with_sign_of(a.like(0.0), where(abs(y) < INF, product, y)), imaginary)
    return with_sign_of(real, x), where(y.equals(0.0), y, imaginary)


def sine(z: Pair) -> Pair:
    return _over_i(hyperbolic_sine(_times_i(z)))


def cosine(z: Pair) -> Pair:
    return hyperbolic_cosine(_times_i(z))


def tangent(z: Pair) -> Pair:
    return _over_i(hyperbolic_tangent(_times_i(z)))


# Inverse functions, by Kahan's formulas


def _finite(z: Pair) -> Pair:
    """Infinite z as the largest numbers in their place and zeros in that of finite parts: the angle stays."""
    infinite, largest = _is_infinite(z), 2.0**1023 * (2.0 - 2.0**-52)
    real, imaginary = (
        where(infinite & (abs(x) < INF), with_sign_of(x.like(0.0), x), at_least(at_most(x, largest), -largest))
        for x in z
    )
    return real, imaginary


def _arc_length(z: Pair, x: Lanes) -> Lanes:
    """asinh(x); infinite of infinite z."""
    result = asinh(x)
    return where(_is_infinite(z), with_sign_of(x.like(INF), result), result)


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    x, y = _finite(z)
    return square_root((1.0 - x, -y)), square_root((x + 1.0, y))


def arc_sine(z: Pair) -> Pair:
    minus, plus = _roots(z)
    angle = atan2(_finite(z)[0], minus[0] * plus[0] - minus[1] * plus[1])
    length = _arc_length(z, minus[0] * plus[1] - minus[1] * plus[0])
    has_real_result = z[1].equals(0.0) & (abs(z[0]) <= 1.0)
    return where(z[0].equals(0.0), z[0], angle), where(has_real_result, z[1], with_sign_of(length, z[1]))


def arc_cosine(z: Pair) -> Pair:
    minus, plus = _roots(z)
    return 2.0 * atan2(minus[0], plus[0]), _arc_length(z, plus[0] * minus[1] - plus[1] * minus[0])


def hyperbolic_arc_sine(z: Pair) -> Pair:
    return _over_i(arc_sine(_times_i(z)))


def hyperbolic_arc_cosine(z: Pair) -> Pair:
    x, y = _finite(z)
    minus, plus = square_root((x - 1.0, y)), square_root((x + 1.0, y))
    return _arc_length(z, minus[0] * plus[0] + minus[1] * plus[1]), 2.0 * atan2(minus[1], plus[0])


def hyperbolic_arc_tangent(z: Pair) -> Pair:
    """log1p(4 |x| / ((1 - |x|)^2 + y^2)) / 4 and atan2(2 y, (1 - x) (1 + x) - y^2) / 2; about 1 / z of large z."""
    large = (abs(z[0]) > 2.0**400) | (abs(z[1]) > 2.0**400)
    x, y = z
    a = abs(x)
    below = 1.0 - a
    real = 0.25 * log1p(4.0 * a / fma(below, below, y * y))
    angle = 0.5 * atan2(y + y, fma(below, a + 1.0, -(y * y)))
    # There the angle is a right one, and the real part x / |z|^2 by two divisions that do not overflow.
    size = modulus(z)
    real = where(large, where(_is_infinite(z), 0.0, a / size / size), real)
    right_angle = with_sign_of(y.like(1.5707963267948966), y)
    return with_sign_of(real, x), where(large, right_angle, angle)


def arc_tangent_of_quotient(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    squares = multiply(x, x), multiply(y, y)
    root = square_root((squares[0][0] + squares[1][0], squares[0][1] + squares[1][1]))
    iy = _times_i(y)
    return _over_i(logarithm(divide((x[0] + iy[0], x[1] + iy[1]), root)))


# Tables

_Values = tuple[Value, Value]


def _lanes(b: Builder, z: _Values, element: str) -> Pair:
    return Lanes(b, z[0]).to(element), Lanes(b, z[1]).to(element)


def _unary(function: Callable[[Pair], Pair]) -> Callable[[Builder, _Values], _Values]:
    def emit(b: Builder, z: _Values) -> _Values:
        real, imaginary = function(_lanes(b, z, "double"))
        element = z[0].type.element
        return real.to(element).value, imaginary.to(element).value

    return emit


def _binary(
    function: Callable[[Pair, Pair], Pair], in_f64: bool = True
) -> Callable[[Builder, _Values, _Values], _Values]:
    def emit(b: Builder, z: _Values, w: _Values) -> _Values:
        element = z[0].type.element
        wide = "double" if in_f64 else element
        real, imaginary = function(_lanes(b, z, wide), _lanes(b, w, wide))
        return real.to(element).value, imaginary.to(element).value

    return emit


def _abs(b: Builder, z: _Values) -> Value:
    """max * sqrt(1 + (min / max)^2), which stays in the parts' own type."""
    x, y = (abs(part) for part in _lanes(b, z, z[0].type.element))
    if z[0].type.element == "double":
        return modulus((x, y)).value
    large, small = where(x < y, y, x), where(x < y, x, y)
    ratio = small / where(large.equals(0.0), 1.0, large)
    size = where(_is_infinite((x, y)), INF, large * sqrt(fma(ratio, ratio, 1.0)))
    return where(small.equals(0.0), large, size).value


COMPLEX_UNARY: dict[str, Callable[[Builder, _Values], _Values | Value]] = {
    "abs": _abs,
    **{
        opcode: _unary(function)
        for opcode, function in {
            "acos": arc_cosine,
            "acosh": hyperbolic_arc_cosine,
            "asin": arc_sine,
            "asinh": hyperbolic_arc_sine,
            "atanh": hyperbolic_arc_tangent,
            "cosh": hyperbolic_cosine,
            "cosine": cosine,
            "exponential": exponential,
            "exponential-minus-one": exponential_minus_one,
            "log": logarithm,
            "log-plus-one": logarithm_of_one_plus,
            "logistic": logistic,
            "rsqrt": reciprocal_root,
            "sign": sign,
            "sine": sine,
            "sinh": hyperbolic_sine,
            "sqrt": square_root,
            "tan": tangent,
            "tanh": hyperbolic_tangent,
        }.items()
    },
}
"""The complex functions of one operand by HLO opcode; the result of abs is real."""

COMPLEX_BINARY: dict[str, Callable[[Builder, _Values, _Values], _Values]] = {
    "atan2": _binary(arc_tangent_of_quotient),
    "divide": _binary(divide),
    "multiply": _binary(multiply, in_f64=False),
    "power": _binary(power),
}
"""The complex functions of two operands by HLO opcode."""
