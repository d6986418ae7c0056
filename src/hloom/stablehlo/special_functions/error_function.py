"""The complementary error function and the inverse of the error function.

erfc(x) = 1 - erf(x) near 0, and e^(-x^2) W(u) / (1 + 2 x) beyond, where u = (x - k) / (x + k) maps the half-line to an
interval on which W is smooth (Shepherd, Laframboise: Chebyshev approximation of (1 + 2x) exp(x^2) erfc(x), 1981).
erf_inv(x) = x p(w) with w = -log(1 - x^2) (Giles: Approximating the erfinv function, 2011).
"""

from __future__ import annotations

import math

from hloom.stablehlo.special_functions.typed import F32, F64, XlaOp, of_floats, pick, polynomial, scalar_like, select

# erf(x) / x by x^2 for |x| <= 1/2; relative errors 2^-29 and 2^-65.
_ERF = {
    F32: (
        0.0047190827, -0.026757732, 0.112828314, -0.37612608, 1.1283791,
    ),
    F64: (
        -1.462091340945175e-07, 1.637123442577e-06, -1.4923003368152099e-05, 0.00012055286202005714,
        -0.0008548326510724796, 0.0052239776220169365, -0.02686617064499972, 0.1128379167095487,
        -0.3761263890318375, 1.1283791670955126,
    ),
}  # fmt: skip

# (1 + 2 x) e^(x^2) erfc(x) by u for x >= 1/2, with k = 2 or 3; relative errors 2^-28 and 2^-58.
_TAIL = {
    F32: (
        -2.2331125e-05, 0.00031512417, -0.00032353657, -0.001566034, 0.0012348772, 0.00876092,
        -0.008029832, -0.054225553, 0.16405109, -0.16603011, -0.092763826, 1.2769784,
    ),
    F64: (
        3.406799072739471e-09, -7.763887227543918e-09, -2.0302023601517016e-08, 4.404797683733486e-08,
        1.1067996467700093e-07, -1.4642108599913235e-07, -6.230702414602326e-07, 3.6111326348255034e-07,
        3.4754123473751697e-06, -7.336864253861387e-07, -2.01015087071398e-05, 4.950173560329124e-06,
        0.00012509955426282286, -0.00010515993650968852, -0.0007798323014462275, 0.0018886903755554996,
        0.002529391818824781, -0.023770514919729348, 0.06830802734382649, -0.11927366341527468,
        0.12964515870276463, -0.04756229435345113, -0.1356211061245812, 1.2530080582697296,
    ),
}  # fmt: skip


@of_floats
def erfc(x: XlaOp) -> XlaOp:
    """1 - erf(x), accurate in the right tail too."""
    b = x.builder
    # Beyond the limit the tail is 0.
    size = b.min(b.abs(x), scalar_like(x, pick(x, 10.2, 27.4)))
    squared, lost = square(size)
    power = b.exp(-squared)
    tail = (power - power * lost) * scaled_erfc(size)
    return select(b.abs(x) < 0.5, erfc_near(x), select(x < 0.0, 2.0 - tail, tail))


def erfc_near(x: XlaOp) -> XlaOp:
    """erfc(x) for |x| <= 1/2."""
    return 1.0 - x * polynomial(x * x, _ERF)


def scaled_erfc(x: XlaOp) -> XlaOp:
    """e^(x^2) erfc(x) for x >= 1/2."""
    k = pick(x, 2.0, 3.0)
    return polynomial((x - k) / (x + k), _TAIL) / (2.0 * x + 1.0)


def square(x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """x^2 rounded, and its rounding error, from a high part of x whose square is exact (Dekker)."""
    squared = x * x
    high = x.builder.reduce_precision(x, pick(x, 8, 11), pick(x, 11, 25))
    low = x - high
    return squared, ((high * high - squared) + 2.0 * high * low) + low * low


# erf_inv(x) / x: by w - 5/2 or w - 25/8 below 5 or 25/4, then by sqrt(w) - 3 or, from 16 on for f64, sqrt(w) - 5.
# Relative errors 2^-26 and 2^-54.
_NEAR = {
    F32: (
        -8.931926e-09, 2.3335968e-08, 4.6813136e-07, -3.4639852e-06, -4.97242e-06, 0.00021834939,
        -0.0012527264, -0.004177393, 0.24664028, 1.5014094,
    ),
    F64: (
        3.240704459379902e-21, -1.113483769832702e-21, -3.4996044354754177e-19, 1.150022252066253e-18,
        1.557432024623325e-17, -1.3016928016796445e-16, -4.0282154327661744e-17, 6.596407712420834e-15,
        -4.001237735091896e-14, -8.118399443074353e-14, 2.6304834740560442e-12, -1.2976885526532075e-11,
        -5.414287198084716e-11, 1.0512181539804126e-09, -4.11266082002324e-09, -2.9070382262927266e-08,
        4.234788173782339e-07, -1.3654691850603575e-06, -1.3882523394405316e-05, 0.00018673420802464837,
        -0.000740702534154477, -0.00603367087142785, 0.2401581824255883, 1.6536545626831027,
    ),
}  # fmt: skip
_MIDDLE = {
    F32: (
        0.00011390817, -0.0003079133, -5.372657e-05, 0.0014826907, -0.0035992807, 0.005688058, -0.007636819,
        0.009445132, 1.0016749, 2.8329768,
    ),
    F64: (
        -1.5102695423335065e-08, 6.969241977629694e-10, 1.3104351499972014e-07, -2.713451105439456e-07,
        -2.7004219280868947e-08, 1.4987130784186127e-06, -3.986084395214756e-06, 2.9257291901789823e-06,
        1.2465167157087251e-05, -4.731898412011245e-05, 6.828708654753377e-05, 2.4031257015092525e-05,
        -0.00035503780975963814, 0.0009532893637435638, -0.0016882755357337071, 0.0024914420969817607,
        -0.003751208508215561, 0.00537091455357168, 1.0052589676941652, 3.0838856104922208,
    ),
}  # fmt: skip
_FAR = {
    F64: (
        3.963145924658085e-11, -2.2772394472761313e-11, -4.2401917084661897e-10, 1.4902433047498932e-09,
        -3.494653368877176e-09, 7.64410733347763e-09, -1.523376897450945e-08, 2.9123821685986172e-08,
        -6.756725498741952e-08, 2.2901618092413998e-07, -9.930261373154388e-07, 4.526059693479695e-06,
        -1.9681771203726043e-05, 7.599527739461002e-05, -0.00021503011979298579, -0.0001387193183536735,
        1.0103004648645446, 4.849906401408584,
    ),
}  # fmt: skip


@of_floats
def erf_inv(x: XlaOp) -> XlaOp:
    """The inverse of erf; infinite at -1 and 1, NaN beyond."""
    b = x.builder
    size = b.abs(x)
    w = -b.log((1.0 - size) * (1.0 + size))
    root = b.sqrt(w)
    factor = polynomial(root - pick(x, 3.0, 3.25), _MIDDLE)
    if x.shape.element_type is F64:
        factor = select(w < 16.0, factor, polynomial(root - 5.0, _FAR))
    factor = select(w < pick(x, 5.0, 6.25), polynomial(w - pick(x, 2.5, 3.125), _NEAR), factor)
    return x * select(b.eq(size, scalar_like(x, 1.0)), math.inf, factor)
