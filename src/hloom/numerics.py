"""NumPy routines where NumPy and ml_dtypes differ from XLA: conversions, narrow types, total order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hloom.types import BY_DTYPE

Array = np.ndarray[Any, np.dtype[Any]]

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)


def is_narrow_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is f16, bf16 or an 8- or 4-bit float: computed in f32 and rounded after each instruction
    (GEN-7).
    """
    return BY_DTYPE[dtype].is_float and dtype.itemsize < 4


def is_narrow_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a 2- or 4-bit integer, which NumPy computes in bytes."""
    return BY_DTYPE[dtype].is_integer and BY_DTYPE[dtype].bits < 8


def widen(x: Array) -> Array:
    """Converts an array to its computation type: f32 for narrow floats, a byte for narrow integers."""
    if is_narrow_float(x.dtype):
        return x.astype(F32)
    if is_narrow_integer(x.dtype):
        return x.astype(np.int8 if BY_DTYPE[x.dtype].is_signed else np.uint8)
    return x


def compute(function: Callable[..., Array], *operands: Array) -> Array:
    """Applies an element-wise function in the computation type; rounds to the operands' type once, or wraps."""
    dtype = operands[0].dtype
    return _rounded(np.asarray(function(*map(widen, operands))), dtype)


def compute_accurately(function: Callable[..., Array], *operands: Array) -> Array:
    """Like `compute`, but computes f32 in f64 and c64 in c128: results are correctly rounded except in near ties."""
    dtype = operands[0].dtype
    wide = [widen(x) for x in operands]
    if wide[0].dtype == F32:
        return _rounded(np.asarray(function(*(x.astype(F64) for x in wide))).astype(F32), dtype)
    if wide[0].dtype == C64:
        return np.asarray(function(*(x.astype(C128) for x in wide))).astype(dtype)
    return np.asarray(function(*wide)).astype(dtype, copy=False)


def pairwise_sum(terms: Iterable[Array], zero: Array) -> Array:
    """Returns `zero` plus the sum of the terms, arrays of its shape and type, added as a balanced tree (GEN-13)."""
    sums: list[Array] = []  # sums of powers of two of terms, in decreasing order
    for number, term in enumerate(terms, 1):
        while number % 2 == 0:
            number, term = number // 2, sums.pop() + term
        sums.append(term)
    while sums:
        zero = sums.pop() + zero
    return zero


def scaled_alike(*operands: Array) -> list[Array]:
    """Returns complex numbers times a power of 2 that brings the largest part near 1, so that squares are in range."""
    largest = functools.reduce(np.maximum, [abs(part) for z in operands for part in (z.real, z.imag)])
    exponent = -np.frexp(np.where(np.isfinite(largest), largest, 1))[1]
    scaled = [np.empty(largest.shape, z.dtype) for z in operands]
    for z, result in zip(operands, scaled, strict=True):
        result.real, result.imag = np.ldexp(z.real, exponent), np.ldexp(z.imag, exponent)
    return scaled


def roots_of_unity(powers: Array, n: int) -> Array:
    """Returns e^(-2 pi i power / n) in c128 for integers, from the exact angle to the nearest quarter of the circle."""
    quarters = np.mod(powers, n) * 4
    nearest = (quarters + n // 2) // n
    rest = np.exp(-1j * (np.pi / 2) * (quarters - nearest * n) / n)
    return rest * np.array([1, -1j, -1, 1j])[nearest % 4]


def _rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    """Converts a computed value to its type. A type without NaN would expose the sign of a NaN, which is unspecified
    (GEN-7).
    """
    if x.dtype == F32 != dtype and not has_nan(dtype):
        x = np.where(np.isnan(x), np.abs(x), x)
    return x.astype(dtype, copy=False)


@functools.cache
def has_nan(dtype: np.dtype[Any]) -> bool:
    """Whether a float type has a NaN; f4e2m1fn has none."""
    return bool(np.isnan(np.array(np.nan, F32).astype(dtype).astype(F32)))


def float_to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncates toward zero and clamps to the range of the integer type; NaN gives 0 (CONVERT-3)."""
    low, high = BY_DTYPE[dtype].limits
    wide = x.astype(F64) if x.dtype.itemsize < 8 else x
    # The limits of 64-bit integers are not floats: compare with the adjacent powers of two.
    below, above = wide < low, wide >= float(high + 1)
    inside = np.where(below | above | np.isnan(wide), 0.0, wide)
    truncated = inside.astype(np.uint64 if low == 0 else np.int64)
    clamped = np.where(
        below, np.asarray(low, truncated.dtype), np.where(above, np.asarray(high, truncated.dtype), truncated)
    )
    return clamped.astype(dtype)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Converts values to another element type (CONVERT-2 to CONVERT-5)."""
    if x.dtype == dtype:
        return x
    source, target = BY_DTYPE[x.dtype], BY_DTYPE[dtype]
    if source.is_complex and not target.is_complex and not target.is_pred:
        return convert(x.real, dtype)
    if target.is_pred:
        return widen(x) != 0
    if target.is_integer:
        return float_to_integer(x, dtype) if source.is_float else widen(x).astype(dtype)
    if source.is_integer and target.is_float and target.bits < 32:
        return _integer_to_narrow_float(x, dtype)
    if x.dtype == F64 and is_narrow_float(dtype):
        return _rounded_to_odd(x).astype(dtype)
    return widen(x).astype(dtype)


def _integer_to_narrow_float(x: Array, dtype: np.dtype[Any]) -> Array:
    """Converts integers to a narrow float through f32, as XLA does: values beyond 2^24 are rounded twice."""
    return widen(x).astype(F32).astype(dtype)


def _rounded_to_odd(x: Array) -> Array:
    """Converts f64 to f32 so that rounding the result to a narrower type is as if the f64 value were rounded (round to
    odd).

    If the f32 is inexact and its last bit is even, its neighbour on the side of `x` has an odd last bit, so that it
    cannot be a tie of the narrower type.
    """
    nearest = x.astype(F32)
    back = nearest.astype(F64)
    even = (nearest.view(np.uint32) & 1) == 0
    wrong = np.isfinite(nearest) & (back != x) & even
    toward = np.where(x > back, np.float32(np.inf), np.float32(-np.inf))
    return np.where(wrong, np.nextafter(nearest, toward), nearest)


def bits_of(x: Array) -> Array:
    """Returns the bit patterns as unsigned integers of the same width."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def pack_narrow(x: Array) -> Array:
    """Packs 2- or 4-bit elements into a uint8 array, several to a byte, the first in the lowest bits."""
    bits = BY_DTYPE[x.dtype].bits
    each = 8 // bits
    codes = bits_of(np.ascontiguousarray(x)).reshape(-1) & np.uint8((1 << bits) - 1)
    codes = np.concatenate([codes, np.zeros(-len(codes) % each, np.uint8)]).reshape(-1, each)
    packed = np.zeros(len(codes), np.uint8)
    for k in range(each):
        packed |= codes[:, k] << np.uint8(k * bits)
    return packed


def unpack_narrow(packed: Array, count: int, dtype: np.dtype[Any]) -> Array:
    """Unpacks the first `count` 2- or 4-bit elements of a uint8 array; the inverse of `pack_narrow`."""
    bits = BY_DTYPE[dtype].bits
    mask = np.uint8((1 << bits) - 1)
    codes = np.stack([(packed >> np.uint8(k * bits)) & mask for k in range(8 // bits)], axis=1).reshape(-1)[:count]
    return codes.view(dtype)


def total_order_key(x: Array) -> Array:
    """Returns signed integers in the order -NaN < -Inf < .. < -0 < +0 < .. < +Inf < +NaN (TOTALORDER-1, -2)."""
    name = BY_DTYPE[x.dtype].text
    if name == "f8e8m0fnu":
        # The type has no sign: bit patterns ascend with the values.
        return bits_of(np.ascontiguousarray(x)).reshape(x.shape).astype(np.int16)
    signed = np.ascontiguousarray(x).view(np.dtype(f"i{x.dtype.itemsize}")).reshape(x.shape)
    bits = BY_DTYPE[x.dtype].bits
    if bits < 8:
        signed = (signed << np.int8(8 - bits)) >> np.int8(8 - bits)
    flip = np.asarray((1 << (bits - 1)) - 1, signed.dtype)
    key = np.where(signed < 0, signed ^ flip, signed)
    if name.endswith("fnuz"):
        # The bit pattern of -0 is the only NaN, which comes last.
        return np.where(np.isnan(x), np.int16(1 << bits), key.astype(np.int16))
    return key


def has_infinity(dtype: np.dtype[Any]) -> bool:
    """Whether a float type has infinities; some of the narrow ones do not."""
    return bool(np.isinf(np.asarray(np.inf, F32).astype(dtype).astype(F32)))


@functools.cache
def has_signed_nans(dtype: np.dtype[Any]) -> bool:
    """Whether a float type has NaNs of both signs; some of the narrow ones have one NaN, or none."""
    positive, negative = bits_of(np.array([np.nan, -np.nan], F32).astype(dtype))
    return has_nan(dtype) and bool(positive != negative)


def reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounds to a float format of the given widths and converts back, on bit patterns (REDUCEPRECISION-1 to -5)."""
    element_type = BY_DTYPE[x.dtype]
    own_mantissa, width = element_type.mantissa_bits, element_type.bits
    own_exponent = width - 1 - own_mantissa
    if not has_infinity(x.dtype):
        # Overflow gives NaN, through the infinity of f32.
        exponent = exponent_bits if exponent_bits < own_exponent else 8
        return reduce_precision(x.astype(F32), exponent, mantissa_bits).astype(x.dtype)
    unsigned = bits_of(np.ascontiguousarray(x)).reshape(x.shape)
    one = unsigned.dtype.type(1)
    bits = unsigned
    if mantissa_bits < own_mantissa:
        drop = own_mantissa - mantissa_bits
        last = (bits >> unsigned.dtype.type(drop)) & one
        half = unsigned.dtype.type((1 << (drop - 1)) - 1)
        bits = (bits + half + last) & unsigned.dtype.type(~((1 << drop) - 1) & ((1 << width) - 1))
    if exponent_bits < own_exponent:
        sign_mask = unsigned.dtype.type(1 << (width - 1))
        exponent_mask = unsigned.dtype.type(((1 << own_exponent) - 1) << own_mantissa)
        bias, reduced_bias = (1 << (own_exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        largest = unsigned.dtype.type((bias + reduced_bias) << own_mantissa)
        smallest = unsigned.dtype.type((bias - reduced_bias) << own_mantissa)
        exponent, sign = bits & exponent_mask, bits & sign_mask
        infinity = sign | exponent_mask
        bits = np.where(exponent > largest, infinity, np.where(exponent <= smallest, sign, bits))
    result = bits.astype(unsigned.dtype).view(x.dtype).reshape(x.shape)
    return np.where(np.isnan(x), x, result)
