"""Floats of 8 bits and less: their numbers are those of f32, in which they are computed (GEN-7).

Both directions follow from the interpreter's conversions: the formula of a normal number with all exceptions, and the
numbers of f32 at which the result of rounding changes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import z3

from hloom.numerics import convert, has_infinity, has_nan
from hloom.ops.convert import ReducePrecision
from hloom.prove.solver.conversions import with_fewer_bits
from hloom.prove.solver.element import Element, choose, from_bits, from_number, sort_of
from hloom.prove.terms.concrete import from_codes, to_codes
from hloom.types import PrimitiveType
from hloom.values import Array

F32 = PrimitiveType.F32
NARROW = frozenset(t for t in PrimitiveType if t.is_array and t.is_float and t.bits <= 8)
"""The formats of 8 bits and less."""


def widened(x: Element) -> Element:
    """Returns an element of a narrow format as one of f32."""
    return from_bits(F32, _as_f32(x.type, x.bits))


def _as_f32(type: PrimitiveType, code: Any) -> Any:
    """Returns the bits in f32: those of a normal number, or the right ones for codes that are none."""
    mantissa = type.mantissa_bits
    exponent = type.bits - mantissa - (type is not PrimitiveType.F8E8M0FNU)
    wide = z3.ZeroExt(32 - type.bits, code)
    sign = (wide >> (exponent + mantissa)) << 31
    magnitude = wide & ((1 << (exponent + mantissa)) - 1)
    wanted = to_codes(F32, _f32_values(type))
    middle = 1 << (exponent + mantissa - 1)  # a normal number of every format
    bias = wanted[middle] - (middle << (23 - mantissa))
    result = sign | (magnitude << (23 - mantissa)) + bias
    mask = (1 << (exponent + mantissa)) - 1
    for at, want in enumerate(wanted):
        normal = (at >> (exponent + mantissa)) << 31 | ((at & mask) << (23 - mantissa)) + bias & 0xFFFFFFFF
        if normal != want:
            result = z3.If(code == at, z3.BitVecVal(want, 32), result)
    return result


def _f32_values(type: PrimitiveType) -> Array:
    """Returns the numbers of all codes of a format, in f32."""
    with np.errstate(all="ignore"):
        return convert(from_codes(type, np.arange(1 << type.bits)), F32.dtype)


def narrowed(x: Element, type: PrimitiveType, of_nan: Element | None = None) -> Element:
    """Rounds an element of f32 to a narrow format; in one without NaNs the sign of a NaN `of_nan` shows (GEN-7)."""
    bits = z3.fpToIEEEBV(x.number)
    with np.errstate(all="ignore"):
        nans = to_codes(type, np.array([np.nan, -np.nan], np.float32).astype(type.dtype))
    nan = z3.BitVecVal(nans[0], type.bits)
    if of_nan is not None and not has_nan(type.dtype):
        nan = z3.If(of_nan.bits < 0, z3.BitVecVal(nans[1], type.bits), nan)
    sides = [_by_magnitude(bits & 0x7FFFFFFF, _steps(type, sign)) for sign in (0, 1 << 31)]
    code = z3.If(z3.fpIsNegative(x.number), sides[1], sides[0])
    return from_bits(type, z3.If(z3.fpIsNaN(x.number), nan, code))


def _rounded(type: PrimitiveType, values: Array) -> Array:
    if not has_nan(type.dtype):
        values = np.where(np.isnan(values), np.abs(values), values)
    with np.errstate(all="ignore"):
        return values.astype(type.dtype)


@functools.cache
def _steps(type: PrimitiveType, sign: int) -> list[tuple[int, int, int]]:
    """Returns the magnitudes at which the code of a number with a sign changes, each with that code and the width.

    NaNs, which stand for numbers out of range in some formats, have no sign (GEN-7).
    """
    nan = to_codes(type, _rounded(type, np.array([np.nan], np.float32)))[0]

    def codes(magnitudes: Array) -> Array:
        bits = (magnitudes.astype(np.uint32) | np.uint32(sign)).view(np.float32)
        values = _rounded(type, bits)
        return np.where(np.isnan(values.astype(np.float32)), nan, np.array(to_codes(type, values)))

    known = np.abs(_f32_values(type))
    finite = np.unique(known[np.isfinite(known)]).astype(np.float64)
    points = np.unique(np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, [0, 2 * finite[-1], np.inf]]))
    low = np.unique(points.astype(np.float32)).view(np.uint32).astype(np.int64)
    low, high = low[:-1], low[1:]
    first, last = codes(low), codes(high)
    result = [(0, int(first[0]), type.bits)]
    while (high - low > 1).any():  # each interval has at most one change
        middle = (low + high) // 2
        is_below = codes(middle) == first
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    result += [(int(h), int(c), type.bits) for h, c, f in zip(high, last, first, strict=True) if c != f]
    return result


def _by_magnitude(magnitude: Any, steps: list[tuple[int, int, int]]) -> Any:
    """Returns the code of the last step that is not above a magnitude, by a tree of comparisons."""
    if len(steps) == 1:
        return z3.BitVecVal(steps[0][1], steps[0][2])
    half = len(steps) // 2
    is_below = z3.ULT(magnitude, z3.BitVecVal(steps[half][0], 32))
    return z3.If(is_below, _by_magnitude(magnitude, steps[:half]), _by_magnitude(magnitude, steps[half:]))


def rounded_to_odd(x: Element) -> Element:
    """Converts f64 to f32 so that rounding the result to a narrow format is as if the f64 were rounded."""
    toward_zero = z3.fpFPToFP(z3.RTZ(), x.number, sort_of(F32))
    is_exact = z3.Or(z3.fpEQ(z3.fpFPToFP(z3.RTZ(), toward_zero, sort_of(x.type)), x.number), z3.fpIsNaN(x.number))
    odd = z3.fpBVToFP(z3.fpToIEEEBV(toward_zero) | 1, sort_of(F32))
    return from_number(F32, z3.If(is_exact, toward_zero, odd))


def reduced_narrow(op: ReducePrecision, x: Element) -> Element:
    """Reduces the precision of a narrow float: on its own bits, or in f32 for formats without infinities."""
    mantissa = x.type.mantissa_bits
    exponent = x.type.bits - 1 - mantissa
    wide = widened(x)
    if has_infinity(x.type.dtype):
        bits = with_fewer_bits(x.bits, exponent, mantissa, op.exponent_bits, op.mantissa_bits)
        return from_bits(x.type, z3.If(z3.fpIsNaN(wide.number), x.bits, bits))
    kept = op.exponent_bits if op.exponent_bits < exponent else 8
    reduced = from_bits(F32, with_fewer_bits(wide.bits, 8, 23, kept, op.mantissa_bits))
    return narrowed(choose(z3.fpIsNaN(wide.number), wide, reduced), x.type)
