"""Sine, cosine, tangent and their inverses on `Lanes`.

x = n pi/2 + r with |r| <= pi/4; sin r and cos r are polynomials, selected and signed by the last two bits of n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.backends.cpu.elements.functions.lanes import INF, ROUNDER, Lanes, fma, muladd, sqrt, where, with_sign_of
from hloom.backends.cpu.elements.shared import shared
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import (
    F64,
    PTR,
    Builder,
    CallAttribute,
    Function,
    FunctionBuilder,
    Global,
    Parameter,
    Type,
    Value,
    constant,
    type_of,
)

TWO_OVER_PI = 0.6366197723675814

# pi / 2 in three parts of the element type.
HALF_PI = (
    (1.5707963705062866, 1.5707963267948966),
    (-4.371138828673793e-08, 6.123233995736766e-17),
    (-1.7151245100058819e-15, -1.4973849048591698e-33),
)

# 2 / pi in groups of 26 bits.
DIGIT_BITS = 26
DIGITS = tuple(
    int(
        "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1d"
        "eb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b"
        "5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d"
        "",
        16,
    )
    >> (DIGIT_BITS * (43 - k))
    & ((1 << DIGIT_BITS) - 1)
    for k in range(44)
)
DIGITS_OF_TWO_OVER_PI = Global("two_over_pi", [constant(F64, digit) for digit in DIGITS])

QUARTER_PI_HIGH = (0.7853981852531433, 0.7853981633974483)
QUARTER_PI_LOW = (-2.1855694143368964e-08, 3.061616997868383e-17)

# (sin(r) - r) / r^3 by r^2, |r| <= pi / 4; relative errors 2^-27.8 and 2^-57.8.
SIN = {
    "float": (-0.00019506583, 0.008332101, -0.16666654),
    "double": (
        1.589301745959793e-10,
        -2.5050694386236925e-08,
        2.7557313295349417e-06,
        -0.00019841269828698905,
        0.008333333333321077,
        -0.16666666666666627,
    ),
}

# (cos(r) - 1 + r^2 / 2) / r^4 by r^2; errors 2^-33 and 2^-63.
COS = {
    "float": (2.44307e-05, -0.0013887301, 0.041666646),
    "double": (
        -1.135670759086434e-11,
        2.0875667741299275e-09,
        -2.755731395418044e-07,
        2.480158728814459e-05,
        -0.0013888888888872056,
        0.04166666666666659,
    ),
}

# (atan(t) - t) / t^3 by t^2, |t| <= sqrt(2) - 1; relative errors 2^-28.6 and 2^-58.7.
ATAN = {
    "float": (-0.06082755, 0.10595702, -0.14243804, 0.19998486, -0.33333316),
    "double": (
        -0.01792032754546581,
        0.03807646895013487,
        -0.05039769539113892,
        0.05847991280433826,
        -0.0666311783755328,
        0.07692061400451174,
        -0.09090897822287679,
        0.11111110785608183,
        -0.14285714280236939,
        0.19999999999953955,
        -0.333333333333332,
    ),
}

# (asin(t) - t) / t^3 by t^2, |t| <= 1/2; relative errors 2^-27.6 and 2^-55.9.
ASIN = {
    "float": (0.042211317, 0.024152277, 0.045476023, 0.07495252, 0.16666754),
    "double": (
        0.03195726412630514,
        -0.01629158304642903,
        0.019572313816900555,
        0.006511436843881332,
        0.012173144171602777,
        0.013884619035975926,
        0.01735976903510802,
        0.022371753659283698,
        0.030381959325673582,
        0.04464285682361472,
        0.0750000000034289,
        0.16666666666665383,
    ),
}


def _reduce(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Reduces x = n pi/2 + r + low: integers with the low bits of n, r, and the rounding error of r.

    If a lane is so large that n pi/2 needs more than three parts of pi/2, a function reduces such lanes in memory: its
    code is long and rarely runs.
    """
    b = x.b
    quick = _reduce_moderate(x)
    large = _is_large(x)
    any_large = b.any_lane(large.value)
    entry, slow, join = b.block, b.label("large"), b.label("reduced")
    b.branch_if(any_large, slow, join)
    b.start(slow)
    exact = _call_large(x, quick)
    end = b.block
    b.branch(join)
    b.start(join)
    n, r, low = (Lanes(b, b.phi(q.type, (q.value, entry), (e, end))) for e, q in zip(exact, quick))
    return n, r, low


def _is_large(x: Lanes) -> Lanes:
    return abs(x) > x.pick(2.0**15, 2.0**30)


def _call_large(x: Lanes, quick: Sequence[Lanes]) -> list[Value]:
    """The reduced x, in which the parts of large lanes are replaced, by a call for each vector of some lanes."""
    b, width, lanes = x.b, max(1, x.type.width), _large_lanes(x.type)
    types = [part.type for part in (x, *quick)]
    memory = [b.slot(type, 1) for type in types]
    for value, address in zip((x, *quick), memory):
        b.store(value.value, address, 64)
    function = large_function(x.type)
    with b.loop(width, lanes) as loop:
        at = b.index(loop.index)
        addresses = [b.element_pointer(base, at, type.element) for base, type in zip(memory, types)]
        b.call_function(function, *addresses, attribute=CallAttribute.RARE)
    return [b.load(address, type, 64) for address, type in zip(memory[1:], types[1:])]


def _large_lanes(type: Type) -> int:
    """Returns the number of lanes that the function for large operands of a type reduces at once."""
    return math.gcd(max(1, type.width), processor().vector_bytes // 4)


def large_function(of: Type) -> Function:
    """The function that replaces the parts n, r and low of large x of a type, all in memory."""
    type = type_of(of.element, _large_lanes(of) if of.width else 0)
    name = f"reduce_large.{type.suffix}"

    parameters = [Parameter(name, PTR) for name in ("x", "n", "r", "low")]

    def write() -> Builder:
        b = FunctionBuilder(Function(name, parameters), processor().vector_bytes)
        x, *quick = (
            Lanes(b, b.load(p, t, type.bits // 8)) for p, t in zip(parameters, (type, type.integer, type, type))
        )
        large = _is_large(x)
        for exact, part, address in zip(_reduce_large(x), quick, parameters[1:]):
            b.store(where(large, exact, part).value, address, type.bits // 8)
        return b

    return shared(Function(name, parameters), write)


def _reduce_moderate(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Subtracts n times the three parts of pi/2 one after another; the first product is exact for moderate n."""
    rounder = x.pick(*ROUNDER)
    shifted = muladd(x, TWO_OVER_PI, rounder)
    n = shifted - rounder
    first, second, third = (x.pick(*part) for part in HALF_PI)
    high = fma(-n, first, x)
    product = n * second
    r = high - product
    low = (high - r) - product - fma(n, second, -product)
    low = muladd(-n, third, low)
    return shifted.bits, r, low


def _reduce_large(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Computes x * 2/pi mod 4 from all significant digits of 2/pi, group by group, with a sum in double-double."""
    b, single = x.b, x.type.bits == 32
    wide = x.to("double")
    zero = wide.like(0.0)
    digits_of_two_over_pi = b.address_of(DIGITS_OF_TWO_OVER_PI)
    with b.loop(9 if single else len(DIGITS), carried=[wide.value, zero.value, zero.value]) as loop:
        pointer = b.element_pointer(digits_of_two_over_pi, b.index(loop.index), "double")
        digits = Lanes(b, b.splat(b.load(pointer, F64, 8), wide.type.width))
        scaled, total, rest = (Lanes(b, value) for value in loop.carried)
        scaled = scaled * 2.0**-DIGIT_BITS
        # Both factors have at most 27 bits, so that their products are exact.
        upper = (scaled.bits & -(1 << 27)).float
        for part in (upper, scaled - upper):
            total, error = _two_sum(total, _modulo_4(part * digits))
            rest = rest + error
        total, rest = _two_sum(_modulo_4(total), rest)
        loop.carried = [scaled.value, total.value, rest.value]
    n = total.intrinsic("rint")
    fraction, below = _two_sum(total - n, rest)
    half_pi, missing = HALF_PI[0][1], HALF_PI[1][1]
    r = fraction * half_pi
    r_low = fma(fraction, half_pi, -r) + fma(fraction, missing, below * half_pi)
    bits = (n + ROUNDER[1]).bits
    if single:
        r_single = r.to("float")
        bits = Lanes(b, b.convert("trunc", bits.value, "i32"))
        return bits, r_single, (r - r_single.to("double")).to("float")
    return bits, r, r_low


def _modulo_4(x: Lanes) -> Lanes:
    """The exact remainder of x by 4, in [-2, 2]."""
    return fma((x * 0.25).intrinsic("rint"), -4.0, x)


def _two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """The rounded sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _sin_cos_parts(r: Lanes, low: Lanes) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """The sine of r + low, |r| <= pi/4, as a sum of two parts, and the cosine as another two."""
    square = r * r
    half = square * 0.5
    sine = muladd(r * square, square.polynomial(SIN), low - half * low)
    rest = 1.0 - half
    cosine = ((1.0 - rest) - half) + muladd(square * square, square.polynomial(COS), -(r * low))
    return r, sine, rest, cosine


def _sin_cos(r: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
    sine, sine_rest, cosine, cosine_rest = _sin_cos_parts(r, low)
    return sine + sine_rest, cosine + cosine_rest


def _quadrant(n: Lanes, sine: Lanes, cosine: Lanes) -> Lanes:
    """sin(n pi/2 + r) from the sine and cosine of r."""
    odd = (n & 1).equals(1)
    sign = (n & 2) << (n.type.bits - 2)
    return (where(odd, cosine, sine).bits ^ sign).float


def sin(x: Lanes) -> Lanes:
    """sin x."""
    n, r, low = _reduce(x)
    return where(x.equals(0.0), x, _quadrant(n, *_sin_cos(r, low)))


def cos(x: Lanes) -> Lanes:
    """cos x."""
    n, r, low = _reduce(x)
    return _quadrant(n + 1, *_sin_cos(r, low))


def sin_and_cos(x: Lanes) -> tuple[Lanes, Lanes]:
    """sin x and cos x, with a single argument reduction."""
    n, r, low = _reduce(x)
    sine, cosine = _sin_cos(r, low)
    return where(x.equals(0.0), x, _quadrant(n, sine, cosine)), _quadrant(n + 1, sine, cosine)


def tan(x: Lanes) -> Lanes:
    """tan x as the quotient of sine and cosine, each a sum of two parts."""
    n, r, low = _reduce(x)
    sine, sine_rest, cosine, cosine_rest = _sin_cos_parts(r, low)
    odd = (n & 1).equals(1)
    above, above_rest = where(odd, cosine, sine), where(odd, cosine_rest, sine_rest)
    below, below_rest = where(odd, -sine, cosine), where(odd, -sine_rest, cosine_rest)
    numerator, denominator = above + above_rest, below + below_rest
    inverse = 1.0 / denominator
    quotient = numerator * inverse
    # The error of the quotient, from those of three roundings.
    residue = fma(-quotient, denominator, numerator) + ((above - numerator) + above_rest)
    residue = fma(-quotient, (below - denominator) + below_rest, residue)
    return where(x.equals(0.0), x, fma(residue, inverse, quotient))


def _add_octants(octants: Lanes, angle: Lanes, rest: Lanes) -> Lanes:
    """octants * pi/4 + angle + rest, for 0 to 4 octants and a small rest."""
    high, low = octants.pick(*QUARTER_PI_HIGH), octants.pick(*QUARTER_PI_LOW)
    base = octants * high
    return base + (angle + (rest + fma(octants, low, fma(octants, high, -base))))


def _negate_where(condition: Lanes, x: Lanes) -> Lanes:
    return where(condition, -x, x)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    """The angle of the point (x, y), from the quotient of the smaller and the larger coordinate and the octant."""
    a, b = abs(y), abs(x)
    steep, behind = a > b, x.bits < 0
    small, large = where(steep, b, a), where(steep, a, b)
    # With this scale the sum does not overflow, and products with subnormal numbers do not lose bits.
    tiny, huge = large.pick(2.0**-60, 2.0**-900), large.pick(2.0**120, 2.0**1000)
    scale = where(large > huge, large.like(0.25), where(large < tiny, large.pick(2.0**60, 2.0**100), 1.0))
    small, large = small * scale, large * scale
    above = (small > large * 0.41421356) | small.equals(INF)
    quotient = where(above, small - large, small) / where(above, small + large, large)
    # 0 / 0 and inf - inf.
    t = where(small.equals(large), 0.0, quotient)
    octants = where(above, t.like(1.0), 0.0)
    octants = where(steep, 2.0 - octants, octants)
    octants = where(behind, 4.0 - octants, octants)
    t = _negate_where(steep ^ behind, t)
    square = t * t
    return with_sign_of(_add_octants(octants, t, t * square * square.polynomial(ATAN)), y)


def atan(x: Lanes) -> Lanes:
    """atan x, in [-pi/2, pi/2]."""
    return atan2(x, x.like(1.0))


def _asin_parts(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Whether |x| > 1/2, and a sum of two parts: asin |x|, or 2 asin sqrt((1 - |x|) / 2) if |x| > 1/2."""
    a = abs(x)
    large = a > 0.5
    square = where(large, (1.0 - a) * 0.5, x * x)
    main = where(large, sqrt(square) * 2.0, a)
    return large, main, main * square * square.polynomial(ASIN)


def asin(x: Lanes) -> Lanes:
    """asin x, in [-pi/2, pi/2]; NaN for |x| > 1."""
    large, main, rest = _asin_parts(x)
    octants = where(large, x.like(2.0), 0.0)
    return with_sign_of(_add_octants(octants, _negate_where(large, main), _negate_where(large, rest)), x)


def acos(x: Lanes) -> Lanes:
    """acos x, in [0, pi]; NaN for |x| > 1."""
    large, main, rest = _asin_parts(x)
    negative = x < 0.0
    octants = where(large, where(negative, x.like(4.0), 0.0), 2.0)
    subtract = ~(large ^ negative)
    return _add_octants(octants, _negate_where(subtract, main), _negate_where(subtract, rest))
