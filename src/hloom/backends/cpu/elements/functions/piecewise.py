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
CENTRES = 64
"""Numbers in the middle half of an interval, of which the one is taken whose function value is closest to an f32."""

SMALLEST = 0.0625
"""Smaller numbers belong to the first interval, which ends a quarter above it."""
TANH_IS_ONE = 9.99
"""The hyperbolic tangent of larger numbers is 1 after rounding, and so is the last polynomial here."""

Piece = tuple[float, ...]
"""The centre of an interval, and the coefficients of the differences from it, from the highest power."""


def has_piecewise(x: Lanes) -> bool:
    """Whether polynomials of intervals are to be used: for f32 of any width, which then have equal results."""
    target = processor()
    return x.type.element == "float" and target.architecture == "x86_64" and target.vector_bytes == 4 * LANES


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent of f32."""
    a = at_most(abs(x), TANH_IS_ONE)
    return with_sign_of(_piecewise(a, _table(math.tanh, TANH_IS_ONE)), x)


def _piecewise(x: Lanes, table: tuple[Piece, ...]) -> Lanes:
    """Evaluates the polynomials of the intervals of x."""
    indices = at_least(x.bits, bit_pattern("float", SMALLEST)) >> MANTISSA_BITS
    centre, *coefficients = _look_up(indices, table)
    difference, result = x - centre, coefficients[0]
    for coefficient in coefficients[1:]:
        result = muladd(result, difference, coefficient)
    return result


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
    """Returns the polynomial that interpolates a function at the zeros of one of Chebyshev's, in the difference from a
    centre."""
    middle, half = (low + high) / 2, (high - low) / 2
    shifts = range(-CENTRES // 2, CENTRES // 2) if middle else (0,)
    centres = [_single(middle + half * shift / CENTRES) for shift in shifts]
    centre = min(centres, key=lambda c: abs(function(c) - _single(function(c))))
    at_centre = function(centre)
    nodes = [middle + half * math.cos(math.pi * (k + 0.5) / DEGREE) - centre for k in range(DEGREE)]
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
