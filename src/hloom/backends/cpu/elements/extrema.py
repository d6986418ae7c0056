"""Emission of maximum and minimum of floats: -0 is less than +0, and NaN propagates (MAX-1, MIN-1)."""

from __future__ import annotations

import math

from hloom.backends.cpu.elements.avx512 import CURRENT_ROUNDING, emit_avx512, has_avx512
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I32, Builder, Constant, Value, constant, poison, type_of


def _range_operand(intrinsic: str) -> Value:
    """The immediate operand of AVX-512's VRANGE: the larger or smaller of two numbers, with its own sign."""
    return constant(I32, 0b0101 if intrinsic == "maximum" else 0b0100)


def float_extremum(b: Builder, intrinsic: str, x: Value, y: Value) -> Value:
    """Emits LLVM's `maximum` or `minimum`, or VRANGE of AVX-512 and two instructions that propagate NaN."""
    type = x.type
    if type.bits == 64 and processor().architecture in ("armv7", "thumbv7em"):
        return _by_comparison(b, intrinsic, x, y)  # LLVM 22 has no code for the intrinsic there, and aborts
    if isinstance(x, Constant) or isinstance(y, Constant):
        return b.intrinsic(intrinsic, x, y)
    if has_avx512(type):
        return _with_nan(b, x, y, emit_avx512(b, "range", x, y, immediates=[_range_operand(intrinsic)]))
    if not type.width and has_avx512(type_of(type.element, 128 // type.bits)):
        return _with_nan(b, x, y, _scalar_range(b, intrinsic, x, y))
    return b.intrinsic(intrinsic, x, y)


def extremum_of_lanes(b: Builder, intrinsic: str, lanes: Value) -> Value | None:
    """Emits the extremum of the lanes of a vector, or NaN if there is one; None if LLVM's intrinsic is as good.

    On x86 each of its log2(width) steps would have to propagate NaN, and without AVX-512 to order zeros: so lanes are
    compared by VRANGE, or as integers of the same order.
    """
    least, has_range = 128 // lanes.type.bits, has_avx512(lanes.type)
    if processor().architecture != "x86_64" or lanes.type.bits < 32 or lanes.type.width < least * (1 + has_range):
        return None
    is_nan = b.any_lane(b.compare("uno", *(_halves(b, lanes) if lanes.type.width > least else (lanes, lanes))))

    def extremum(x: Value, y: Value) -> Value:
        if has_range:
            return emit_avx512(b, "range", x, y, immediates=[_range_operand(intrinsic)])
        return b.intrinsic("smax" if intrinsic == "maximum" else "smin", x, y)

    values = lanes if has_range else in_total_order(b, b.bitcast(lanes, lanes.type.integer))
    while values.type.width > least:
        values = extremum(*_halves(b, values))
    for distance in (2, 1) if least == 4 else (1,):
        values = extremum(values, b.shuffle(values, None, [lane ^ distance for lane in range(least)]))
    value = b.extract(values, 0)
    if not has_range:
        value = b.bitcast(in_total_order(b, value), lanes.type.scalar)
    return b.select(is_nan, constant(value.type, math.nan), value)


def in_total_order(b: Builder, bits: Value) -> Value:
    """Converts the bits of floats to signed integers in the order -NaN < -Inf < .. < -0 < +0 < .. < +NaN
    (TOTALORDER-1), and back.
    """
    type = bits.type
    sign = b.binary("ashr", bits, constant(type, type.bits - 1))
    return b.binary("xor", bits, b.binary("lshr", sign, constant(type, 1)))


def _halves(b: Builder, lanes: Value) -> tuple[Value, Value]:
    half = lanes.type.width // 2
    return b.shuffle(lanes, None, range(half)), b.shuffle(lanes, None, range(half, 2 * half))


def _by_comparison(b: Builder, intrinsic: str, x: Value, y: Value) -> Value:
    """The extremum by two comparisons; of zeros, which are equal, the sign bits decide."""
    order, bits = ("ogt", "and") if intrinsic == "maximum" else ("olt", "or")
    word = x.type.integer
    equal = b.bitcast(b.binary(bits, b.bitcast(x, word), b.bitcast(y, word)), x.type)
    number = b.select(b.compare("oeq", x, y), equal, b.select(b.compare(order, x, y), x, y))
    return _with_nan(b, x, y, number)


def _with_nan(b: Builder, x: Value, y: Value, number: Value) -> Value:
    """`number`, or NaN where x or y is NaN."""
    return b.select(b.compare("uno", x, y), b.binary("fadd", x, y), number)


def _scalar_range(b: Builder, intrinsic: str, x: Value, y: Value) -> Value:
    type = type_of(x.type.element, 128 // x.type.bits)
    first = [b.insert(poison(type), value, 0) for value in (x, y)]
    name = f"llvm.x86.avx512.mask.range.{'ss' if x.type.bits == 32 else 'sd'}"
    rest = [constant(type_of("i8"), -1), _range_operand(intrinsic), CURRENT_ROUNDING]
    return b.extract(b.call(name, type, *first, first[0], *rest), 0)
