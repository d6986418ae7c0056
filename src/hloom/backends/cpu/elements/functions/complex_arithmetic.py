"""Arithmetic and roots of complex numbers, as pairs of a real and an imaginary part."""

from __future__ import annotations

from hloom.backends.cpu.elements.functions.lanes import INF, Lanes, fma, sqrt, where, with_sign_of

Pair = tuple[Lanes, Lanes]
"""A real and an imaginary part."""


def multiply(a: Pair, b: Pair) -> Pair:
    """The product a * b."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def divide(a: Pair, b: Pair) -> Pair:
    """The quotient; where both its parts would be NaN, with the infinities and zeros of C's Annex G (DIV-1)."""
    real, imaginary = quotient(a, b)
    lost = real.compare("uno", real) & imaginary.compare("uno", imaginary)
    signed = with_sign_of(b[0].like(INF), b[0])
    by_zero = b[0].equals(0.0) & b[1].equals(0.0)
    a_infinite, b_infinite = is_infinite(a), is_infinite(b)
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


def is_infinite(z: Pair) -> Lanes:
    """The lanes of numbers with an infinite part, even where the other part is NaN."""
    return abs(z[0]).equals(INF) | abs(z[1]).equals(INF)


def _is_finite(z: Pair) -> Lanes:
    return (abs(z[0]) < INF) & (abs(z[1]) < INF)


def _signs(z: Pair) -> Pair:
    """Replaces infinite parts by 1 and finite ones by 0, with their signs."""
    ones = [with_sign_of(where(abs(x).equals(INF), x.like(1.0), x.like(0.0)), x) for x in z]
    return ones[0], ones[1]


def _times_conjugate(a: Pair, b: Pair, factor: float) -> Pair:
    return (a[0] * b[0] + a[1] * b[1]) * factor, (a[1] * b[0] - a[0] * b[1]) * factor


def quotient(a: Pair, b: Pair) -> Pair:
    """The quotient by Smith's algorithm, which divides by the larger part of the divisor first."""
    swap = abs(b[0]) < abs(b[1])
    large, small = where(swap, b[1], b[0]), where(swap, b[0], b[1])
    p, q = where(swap, a[1], a[0]), where(swap, a[0], a[1])
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    real, difference = (p + q * ratio) * scale, (q - p * ratio) * scale
    by_zero = large.equals(0.0) & small.equals(0.0)
    imaginary = where(swap, -difference, difference)
    return where(by_zero, a[0] * INF, real), where(by_zero, a[1] * INF, imaginary)


def _ordered(z: Pair) -> Pair:
    """The larger and smaller absolute part."""
    x, y = abs(z[0]), abs(z[1])
    swap = x < y
    return where(swap, y, x), where(swap, x, y)


def scaled_parts(z: Pair) -> tuple[Lanes, Lanes, Lanes]:
    """The larger and smaller absolute part, scaled by 2^-exponent so that squares stay in range, and the exponent."""
    large, small = _ordered(z)
    step = 75 if large.type.bits == 32 else 600
    is_large, is_small = large > large.pick(2.0**60, 2.0**500), large < large.pick(2.0**-50, 2.0**-400)
    scale = where(is_large, large.like(2.0**-step), where(is_small, large.like(2.0**step), 1.0))
    exponent = where(is_large, large.like(step), where(is_small, large.like(-step), 0.0))
    return large * scale, small * scale, exponent


def squared_modulus(z: Pair) -> Lanes:
    """The number of which `modulus` takes the root where it does not scale; infinite or nearly 0 where it would."""
    large, small = _ordered(z)
    return fma(large, large, small * small)


def modulus(z: Pair) -> Lanes:
    """|z|, without overflow of squares."""
    large, small, exponent = scaled_parts(z)
    up, down = large.pick(2.0**75, 2.0**600), large.pick(2.0**-75, 2.0**-600)
    scale = where(exponent > 0.0, up, where(exponent < 0.0, down, 1.0))
    return where(is_infinite(z), INF, sqrt(fma(large, large, small * small)) * scale)


def sign(z: Pair) -> Pair:
    """z / |z|, without overflow or rounding of |z| at the ends of the range; 0 for z = 0."""
    large, small, exponent = scaled_parts(z)
    # The scales of large numbers must keep their small parts: |z| / 2 is in range.
    up, half = large.pick(2.0**75, 2.0**600), large.pick(2.0**74, 2.0**599)
    scale = where(exponent > 0.0, 0.5, where(exponent < 0.0, up, 1.0))
    size = sqrt(fma(large, large, small * small)) * where(exponent > 0.0, half, 1.0)
    size = where(is_infinite(z), INF, where(size.equals(0.0), 1.0, size))
    return z[0] * scale / size, z[1] * scale / size


def square_root(z: Pair) -> Pair:
    """The square root: one part is t = sqrt((|x| + |z|) / 2), the other y / 2t, both without cancellation."""
    large, small, exponent = scaled_parts(z)
    size = sqrt(fma(large, large, small * small))
    x = abs(z[0])
    part = where(x < abs(z[1]), small, large)
    t = sqrt((part + size) * 0.5) * where(
        exponent > 0.0, x.like(2.0**300), where(exponent < 0.0, x.like(2.0**-300), 1.0)
    )
    other = where(t.equals(0.0), 0.0, abs(z[1]) / (t + t))
    # An infinite real part makes the other part 0, an infinite imaginary part makes both infinite.
    infinite = abs(z[1]).equals(INF)
    t = where(infinite | x.equals(INF), INF, t)
    other = where(infinite, INF, where(x.equals(INF) & (abs(z[1]) < INF), 0.0, other))
    swap = (z[0].bits < 0) & z[0].compare("ord", 0.0)
    return where(swap, other, t), with_sign_of(where(swap, t, other), z[1])


def reciprocal_root(z: Pair) -> Pair:
    """1 / sqrt(z)."""
    return quotient((z[0].like(1.0), z[0].like(0.0)), square_root(z))
