"""Functions of f32 as a polynomial for each of 32 intervals, whose coefficients are looked up in registers.

Four intervals divide the numbers between two powers of two, so that the exponent and the highest bits of the mantissa
are the number of an interval. A lookup takes one instruction of AVX-512, where the exponential that these functions
have otherwise takes a dozen, and a division follows.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable

from hloom.backends.cpu.elements.functions.lanes import Lanes, at_least, at_most, bit_pattern, muladd, with_sign_of
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Value, type_of, vector_constant

INTERVALS = 32
"""The entries of a table in two registers: only the lowest bits of the number of an interval count."""
LANES = INTERVALS // 2
MANTISSA_BITS = 23 - 2
"""Bits of an f32 below those that number the intervals."""
DEGREE = 5
CENTRES = [k / 4096 for k in range(-64, 64)]
"""Numbers near a zero, of which the one is taken as a centre whose function value is closest to an f32."""

SMALLEST = 0.0625
"""Smaller numbers belong to the first interval, which ends a quarter above it."""
TANH_IS_ONE, ERF_IS_ONE = 9.99, 3.99
"""The hyperbolic tangent or error function of larger numbers is 1 in f32, and so is the last polynomial."""

Piece = tuple[float, ...]
"""The centre of an interval, and the coefficients of the differences from it, from the highest power."""


def has_piecewise(x: Lanes) -> bool:
    """Whether polynomials of intervals are to be used: for f32 of any width, which then have equal results."""
    target = processor()
    return x.type.element == "float" and target.architecture == "x86_64" and target.vector_bytes == 4 * LANES


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent of f32."""
    difference, coefficients = _piece_of(at_most(abs(x), TANH_IS_ONE), _table(math.tanh, TANH_IS_ONE))
    return with_sign_of(_polynomial(difference, coefficients), x)


def erf(x: Lanes) -> Lanes:
    """The error function of f32.

    Its slope at 0, unlike that of tanh, is rounded, so near 0 nothing else may be rounded with it.
    """
    difference, coefficients = _piece_of(at_most(abs(x), ERF_IS_ONE), _table(math.erf, ERF_IS_ONE))
    *curved, slope, at_centre = coefficients
    rest = muladd(difference * difference, _polynomial(difference, curved), at_centre)
    return with_sign_of(muladd(difference, slope, rest), x)


def _piece_of(x: Lanes, table: tuple[Piece, ...]) -> tuple[Lanes, list[Lanes]]:
    """Returns the differences of x from the centres of its intervals, and the coefficients there."""
    indices = at_least(x.bits, bit_pattern("float", SMALLEST)) >> MANTISSA_BITS
    centre, *coefficients = _look_up(indices, table)
    return x - centre, coefficients


def _polynomial(x: Lanes, coefficients: list[Lanes]) -> Lanes:
    """Evaluates a polynomial with coefficients of each lane."""
    return functools.reduce(lambda result, coefficient: muladd(result, x, coefficient), coefficients)


def _look_up(indices: Lanes, table: tuple[Piece, ...]) -> list[Lanes]:
    """Returns each column of the pieces with these numbers."""
    b, width = indices.b, indices.type.width
    registers = [_register(indices, first) for first in range(0, max(1, width), LANES)]

    def column(entries: tuple[float, ...]) -> Value:
        bits = [bit_pattern("float", entry) for entry in entries]
        halves = (vector_constant("i32", half) for half in (bits[:LANES], bits[LANES:]))
        first, second = (b.bitcast(half, type_of("float", LANES)) for half in halves)
        found = [b.call("llvm.x86.avx512.vpermi2var.ps.512", first.type, first, each, second) for each in registers]
        whole = functools.reduce(b.joined, found)
        if not width:
            return b.extract(whole, 0)
        return whole if width >= LANES else b.shuffle(whole, None, range(width))

    return [Lanes(b, column(entries)) for entries in zip(*table, strict=True)]


def _register(indices: Lanes, first: int) -> Value:
    """Returns a register of the lanes from the first one on, or of all of them."""
    b, width = indices.b, indices.type.width
    if not width:
        return b.splat(indices.value, LANES)
    if width == LANES:
        return indices.value
    return b.shuffle(indices.value, None, [first + lane % width for lane in range(LANES)])


# Tables


@functools.cache
def _table(function: Callable[[float], float], last: float) -> tuple[Piece, ...]:
    """Returns the pieces of a function that is odd, or zero at 0, ordered by the lowest bits of their numbers."""
    first = bit_pattern("float", SMALLEST) >> MANTISSA_BITS
    pieces: list[Piece] = [(0.0,) * (DEGREE + 2)] * INTERVALS
    for number in range(first, (bit_pattern("float", last) >> MANTISSA_BITS) + 1):
        low, high = (_float(each << MANTISSA_BITS) for each in (number, number + 1))
        pieces[number % INTERVALS] = _piece(function, -high if number == first else low, high)
    return tuple(pieces)


def _piece(function: Callable[[float], float], low: float, high: float) -> Piece:
    """Returns the polynomial that interpolates a function at a centre and at the zeros of one of Chebyshev's, in the
    difference from the centre, which replaces a zero but in the interval around 0."""
    middle, half = (low + high) / 2, (high - low) / 2
    zeros = [math.cos(math.pi * (k + 0.5) / (DEGREE + bool(middle))) for k in range(DEGREE + bool(middle))]
    centres = [0.0]
    if middle:
        replaced = zeros.pop(DEGREE // 2)
        centres = [_single(middle + half * (replaced + shift)) for shift in CENTRES]
    centre = min(centres, key=lambda c: abs(function(c) - _single(function(c))))
    at_centre = function(centre)
    nodes = [middle + half * zero - centre for zero in zeros]
    slopes = [(function(centre + node) - at_centre) / node for node in nodes]
    return (centre, *(_single(each) for each in (*_interpolated(nodes, slopes), at_centre)))


def _interpolated(nodes: list[float], values: list[float]) -> list[float]:
    """Returns the coefficients, from the highest power, of the polynomial with these values, by Newton's method."""
    differences = list(values)
    for order in range(1, len(nodes)):
        for k in range(len(nodes) - 1, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) / (nodes[k] - nodes[k - order])
    result = [differences[-1]]
    for node, difference in zip(nodes[-2::-1], differences[-2::-1], strict=True):
        result = [a - node * b for a, b in zip([*result, 0.0], [0.0, *result], strict=True)]
        result[-1] += difference
    return result


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _single(value: float) -> float:
    """Rounds to f32."""
    return _float(bit_pattern("float", value))
