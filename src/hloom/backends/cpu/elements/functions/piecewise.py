"""Functions of f32 as a polynomial for each of some intervals, whose coefficients are looked up in registers.

A lookup takes one instruction, where the exponential that these functions have otherwise takes a dozen. Of 32
intervals, as many as two registers of AVX-512 have lanes, four divide the numbers between two powers of two, so that
the exponent and the highest bits of the mantissa are the number of an interval. Of 8, as many as a register of AVX2
has, all are equally long.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence

from hloom.backends.cpu.elements.functions.lanes import (
    ROUNDER,
    Lanes,
    at_least,
    at_most,
    bit_pattern,
    muladd,
    with_sign_of,
)
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Value, type_of, vector_constant

INTERVALS = 32
"""The entries of a table in two registers: only the lowest bits of the number of an interval count."""
MANTISSA_BITS = 23 - 2
"""Bits of an f32 below those that number the intervals."""
DEGREE = 5
CENTRES = [k / 4096 for k in range(-64, 64)]
"""Numbers near a zero, of which the one is taken as a centre whose function value is closest to an f32."""

EQUAL_INTERVALS = 8
LENGTH = 17 / 32
"""The length of equal intervals, of which the first one is around 0."""
EQUAL_DEGREE = 6

SMALLEST = 0.0625
"""Smaller numbers belong to the first interval, which ends a quarter above it."""
TANH_IS_ONE, ERF_IS_ONE, EQUAL_ERF_IS_ONE = 9.99, 3.99, 3.95
"""The hyperbolic tangent or error function of larger numbers is 1 in f32, and so is the last polynomial."""

Piece = tuple[float, ...]
"""The centre of an interval, and the coefficients of the differences from it, from the highest power."""


def tanh(x: Lanes) -> Lanes:
    """The hyperbolic tangent of f32."""
    difference, coefficients = _piece_of(at_most(abs(x), TANH_IS_ONE), _table(math.tanh, TANH_IS_ONE))
    return with_sign_of(_polynomial(difference, coefficients), x)


def erf(x: Lanes) -> Lanes:
    """The error function of f32.

    Its slope at 0, unlike that of tanh, is rounded, so near 0 nothing else may be rounded with it.
    """
    if processor().table_entries == EQUAL_INTERVALS:
        return _erf_by_equal_pieces(x)
    difference, coefficients = _piece_of(at_most(abs(x), ERF_IS_ONE), _table(math.erf, ERF_IS_ONE))
    *curved, slope, at_centre = coefficients
    rest = muladd(difference * difference, _polynomial(difference, curved), at_centre)
    return with_sign_of(muladd(difference, slope, rest), x)


def _erf_by_equal_pieces(x: Lanes) -> Lanes:
    """The error function by long intervals, where the value at a centre is added last, as it may be much larger."""
    difference, coefficients = _equal_piece_of(at_most(abs(x), EQUAL_ERF_IS_ONE), _equal_table(math.erf))
    *curved, slope, at_centre = coefficients
    rest = difference * difference * _polynomial(difference, curved)
    return with_sign_of(muladd(difference, slope, rest) + at_centre, x)


def _piece_of(x: Lanes, table: tuple[Piece, ...]) -> tuple[Lanes, list[Lanes]]:
    """Returns the differences of x from the centres of its intervals, and the coefficients there."""
    indices = at_least(x.bits, bit_pattern("float", SMALLEST)) >> MANTISSA_BITS
    centre, *coefficients = _look_up(indices, table)
    return x - centre, coefficients


def _equal_piece_of(x: Lanes, table: tuple[Piece, ...]) -> tuple[Lanes, list[Lanes]]:
    """Returns the same for equal intervals, whose centres are multiples of their length."""
    rounder = x.pick(*ROUNDER)
    shifted = muladd(x, 1 / LENGTH, rounder)
    coefficients = _look_up(shifted.bits, [coefficients for _, *coefficients in table])
    return muladd(shifted - rounder, -LENGTH, x), coefficients


def _polynomial(x: Lanes, coefficients: list[Lanes]) -> Lanes:
    """Evaluates a polynomial with coefficients of each lane."""
    return functools.reduce(lambda result, coefficient: muladd(result, x, coefficient), coefficients)


def _look_up(indices: Lanes, table: Sequence[Sequence[float]]) -> list[Lanes]:
    """Returns each column of the pieces with these numbers."""
    b, width = indices.b, indices.type.width
    lanes = processor().vector_bytes // 4
    registers = [_register(indices, first, lanes) for first in range(0, max(1, width), lanes)]

    def column(entries: Sequence[float]) -> Value:
        bits = [bit_pattern("float", entry) for entry in entries]
        parts = (vector_constant("i32", bits[first : first + lanes]) for first in range(0, len(bits), lanes))
        first, *others = (b.bitcast(part, type_of("float", lanes)) for part in parts)
        look_up = "avx512.vpermi2var.ps.512" if others else "avx2.permps"
        found = [b.call(f"llvm.x86.{look_up}", first.type, first, each, *others) for each in registers]
        whole = functools.reduce(b.joined, found)
        if not width:
            return b.extract(whole, 0)
        return whole if width >= lanes else b.shuffle(whole, None, range(width))

    return [Lanes(b, column(entries)) for entries in zip(*table, strict=True)]


def _register(indices: Lanes, first: int, lanes: int) -> Value:
    """Returns a register of the lanes from the first one on, or of all of them."""
    b, width = indices.b, indices.type.width
    if not width:
        return b.splat(indices.value, lanes)
    if width == lanes:
        return indices.value
    return b.shuffle(indices.value, None, [first + lane % width for lane in range(lanes)])


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


@functools.cache
def _equal_table(function: Callable[[float], float]) -> tuple[Piece, ...]:
    """Returns the pieces for equal intervals of a function that is zero at 0, of which the first needs no negative
    numbers."""
    half = LENGTH / 2
    zeros = _zeros(EQUAL_DEGREE)
    first = _interpolation(function, 0.0, [half / 2 * (zero + 1) for zero in zeros])
    others = (_interpolation(function, k * LENGTH, [half * zero for zero in zeros]) for k in range(1, EQUAL_INTERVALS))
    return (first, *others)


def _zeros(degree: int) -> list[float]:
    """Returns the zeros of the polynomial of Chebyshev of a degree."""
    return [math.cos(math.pi * (k + 0.5) / degree) for k in range(degree)]


def _piece(function: Callable[[float], float], low: float, high: float) -> Piece:
    """Returns the polynomial that interpolates a function at a centre and at the zeros of one of Chebyshev's, in the
    difference from the centre, which replaces a zero but in the interval around 0."""
    middle, half = (low + high) / 2, (high - low) / 2
    zeros = _zeros(DEGREE + bool(middle))
    centres = [0.0]
    if middle:
        replaced = zeros.pop(DEGREE // 2)
        centres = [_single(middle + half * (replaced + shift)) for shift in CENTRES]
    centre = min(centres, key=lambda c: abs(function(c) - _single(function(c))))
    return _interpolation(function, centre, [middle + half * zero - centre for zero in zeros])


def _interpolation(function: Callable[[float], float], centre: float, nodes: list[float]) -> Piece:
    """Returns the polynomial that interpolates a function at a centre and at nodes beside it."""
    at_centre = function(centre)
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
