"""Conversions, narrow types, total order and reduced precision, on arrays (spec: CONVERT, TOTALORDER, REDUCEPRECISION)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.numerics import (
    bits_of,
    compute,
    convert,
    float_to_integer,
    pack_narrow,
    reduce_precision,
    roots_of_unity,
    total_order_key,
    unpack_narrow,
    widen,
)
from hloom.types import BY_NAME, PrimitiveType

IEEE_LIKE = ["f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"]
INTEGERS = [t for t in PrimitiveType if t.is_integer]


def of_bits(name: str, bits: list[int]) -> np.ndarray:
    dtype = BY_NAME[name].dtype
    return np.array(bits, np.dtype(f"u{dtype.itemsize}")).view(dtype)


@pytest.mark.parametrize(
    ("source", "target", "value", "want"),
    [
        ("s32", "f32", 16777217, 16777216.0),
        ("s32", "f32", 16777219, 16777220.0),
        ("s64", "f32", 2**53 + 1, 2.0**53),
        ("u64", "f64", 2**64 - 1, 2.0**64),
        ("s32", "f16", 2049, 2048.0),
        ("s32", "f16", 2051, 2052.0),
        ("s32", "f16", 65520, math.inf),
        ("f64", "f32", 1e300, math.inf),
        ("f32", "f16", 65519.996, 65504.0),
        ("f32", "f16", 65520.0, math.inf),
        ("f64", "f16", 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-10),
        ("f64", "bf16", 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-7),
        ("f32", "f8e4m3fn", 464.0, 448.0),
        ("f32", "f8e4m3fn", 465.0, math.nan),
        ("f32", "f8e4m3fn", math.inf, math.nan),
        ("f32", "f8e5m2", 1e6, math.inf),
        ("f32", "f4e2m1fn", 5.0, 4.0),
        ("f32", "f4e2m1fn", 0.75, 1.0),
    ],
)
def test_rounding_to_nearest_even(source: str, target: str, value: float, want: float) -> None:
    """CONVERT-2: one rounding, also from f64 to a narrow type; overflow gives infinity, or NaN."""
    got = float(convert(np.array([value], BY_NAME[source].dtype), BY_NAME[target].dtype)[0])
    assert got == want or (math.isnan(got) and math.isnan(want))


@pytest.mark.parametrize(
    ("target", "value", "want"),
    [
        ("s32", 1.9, 1), ("s32", -1.9, -1), ("s32", 3e9, 2147483647), ("u32", -1.9, 0), ("s8", 300.7, 127),
        ("s64", math.inf, 2**63 - 1), ("s64", -math.inf, -(2**63)), ("u64", 1e30, 2**64 - 1), ("u64", 2.0**63, 2**63),
        ("s16", math.nan, 0), ("s4", 7.9, 7), ("s4", 9.0, 7), ("s4", -9.0, -8), ("u2", 3.9, 3), ("u4", -0.5, 0),
    ],
)  # fmt: skip
def test_floats_become_integers_by_truncation_and_clamping(target: str, value: float, want: int) -> None:
    """CONVERT-3."""
    for source in (np.float32, np.float64):
        assert int(float_to_integer(np.array([value], source), BY_NAME[target].dtype)[0]) == want


@pytest.mark.parametrize(
    ("source", "target", "value", "want"),
    [
        ("s32", "s8", 300, 44), ("s32", "u32", -1, 4294967295), ("s32", "s4", 300, -4), ("s32", "s4", 9, -7),
        ("s32", "u2", -1, 3), ("s4", "s32", -8, -8), ("u4", "s8", 15, 15), ("u64", "s64", 2**64 - 1, -1),
    ],
)  # fmt: skip
def test_integers_wrap(source: str, target: str, value: int, want: int) -> None:
    """CONVERT-4."""
    x = np.array([value]).astype(BY_NAME[source].dtype) if value < 2**63 else np.array([value], np.uint64)
    assert int(convert(x, BY_NAME[target].dtype)[0]) == want


def test_predicates() -> None:
    """CONVERT-4: true is 1; false exactly where the value equals 0, so NaN gives true and -0 gives false."""
    x = np.array([0.0, -0.0, math.nan, 1e-45, math.inf], np.float32)
    assert convert(x, np.dtype(bool)).tolist() == [False, False, True, True, True]
    assert convert(np.array([0j, 1j], np.complex64), np.dtype(bool)).tolist() == [False, True]
    for name in ("s4", "u64", "bf16", "f8e5m2", "c64"):
        assert convert(np.array([True, False]), BY_NAME[name].dtype).astype(np.complex64).tolist() == [1, 0]


def test_complex() -> None:
    """CONVERT-5."""
    assert convert(np.array([1.5, -2.0]), np.dtype(np.complex64)).tolist() == [1.5, -2]
    z = np.array([1.9 + 5j, -300.5 - 1j], np.complex64)
    assert convert(z, np.dtype(np.float32)).tolist() == np.array([1.9, -300.5], np.float32).tolist()
    assert convert(z, np.dtype(np.int8)).tolist() == [1, -128]
    assert convert(z, np.dtype(np.complex128)).tolist() == z.astype(complex).tolist()


def exact(value: Any) -> Fraction:
    return Fraction(float(value))


@given(st.sampled_from(["f16", "bf16", "f8e5m2", "f8e4m3"]), st.floats(-400, 400, width=64))
def test_narrowing_gives_the_nearest_value_with_ties_to_even(name: str, value: float) -> None:
    """CONVERT-2: found among all finite values of the type, in exact fractions."""
    dtype = BY_NAME[name].dtype
    codes = np.arange(1 << BY_NAME[name].bits, dtype=np.dtype(f"u{dtype.itemsize}"))
    everything = codes.view(dtype).astype(np.float64)
    finite = np.isfinite(everything)
    largest = everything[finite].max()
    if abs(value) > largest:
        return
    distance = np.abs(np.where(finite, everything, np.inf) - value)
    near = np.argsort(distance, kind="stable")[:6]
    best = min(abs(exact(everything[i]) - exact(value)) for i in near)
    winners = [i for i in near if abs(exact(everything[i]) - exact(value)) == best]
    nonzero = len({everything[i] for i in winners}) > 1
    want = {everything[i] for i in winners if not nonzero or i % 2 == 0}
    assert float(convert(np.array([value]), dtype)[0]) in want


@given(st.sampled_from(INTEGERS), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_integer_conversion_is_modulo_two_to_the_bits(element_type: PrimitiveType, values: list[int]) -> None:
    """CONVERT-4."""
    got = convert(np.array(values, np.int64), element_type.dtype)
    modulus = 1 << element_type.bits
    for value, result in zip(values, got.tolist() if element_type.bits >= 8 else map(int, got)):
        assert (result - value) % modulus == 0
        assert -(modulus >> 1) <= result < modulus >> 1 if element_type.is_signed else 0 <= result < modulus


@pytest.mark.parametrize("name", IEEE_LIKE)
def test_total_order_of_the_landmarks(name: str) -> None:
    """TOTALORDER-1, TOTALORDER-2: -NaN < -Inf < -1 < -0 < +0 < 1 < +Inf < +NaN, NaNs by their payload."""
    dtype, bits = BY_NAME[name].dtype, BY_NAME[name].bits
    sign, mantissa = 1 << (bits - 1), int(ml_dtypes.finfo(dtype).nmant)
    infinity = sign - (1 << mantissa)
    one = int(bits_of(np.ones(1, dtype))[0])
    magnitudes = [0, 1, one, infinity - 1, infinity, infinity + 1, sign - 1]
    chain = of_bits(name, [sign | m for m in reversed(magnitudes)] + magnitudes)
    keys = total_order_key(chain)
    assert bool(np.all(keys[:-1] < keys[1:]))


@pytest.mark.parametrize("name", ["f8e4m3fn", "f4e2m1fn"])
def test_total_order_without_infinities(name: str) -> None:
    """TOTALORDER-1: ascending sign-magnitude codes."""
    bits = BY_NAME[name].bits
    half = 1 << (bits - 1)
    chain = of_bits(name, [*range(2 * half - 1, half - 1, -1), *range(half)])
    keys = total_order_key(chain)
    assert bool(np.all(keys[:-1] < keys[1:]))


@pytest.mark.parametrize(
    "name",
    [
        "f8e8m0fnu",
        "f8e4m3fnuz",
        "f8e5m2fnuz",
        "f8e4m3b11fnuz",
    ],
)
def test_total_order_of_types_with_one_zero(name: str) -> None:
    """TOTALORDER-1: numbers ascend, and NaN stands at an end."""
    everything = of_bits(name, list(range(256)))
    values = everything.astype(np.float64)
    keys = total_order_key(everything).astype(np.int64)
    ordered = np.flatnonzero(~np.isnan(values))
    ascending = ordered[np.argsort(values[ordered], kind="stable")]
    assert bool(np.all(np.diff(keys[ascending]) > 0))
    for nan in np.flatnonzero(np.isnan(values)):
        assert keys[nan] < keys[ordered].min() or keys[nan] > keys[ordered].max()


@given(st.lists(st.floats(width=64, allow_nan=False), min_size=2, max_size=2))
def test_total_order_extends_the_usual_order(pair: list[float]) -> None:
    """TOTALORDER-1."""
    x, y = np.array(pair[:1]), np.array(pair[1:])
    if x[0] != y[0]:
        assert (total_order_key(x) < total_order_key(y))[0] == (x[0] < y[0])
    else:
        assert (total_order_key(x) == total_order_key(y))[0] == (np.signbit(x[0]) == np.signbit(y[0]))


@pytest.mark.parametrize(
    ("value", "exponent_bits", "mantissa_bits", "want"),
    [
        (65519.0, 5, 10, 65504.0), (65520.0, 5, 10, math.inf), (-65520.0, 5, 10, -math.inf), (6e-5, 5, 10, 0.0),
        (1.5, 8, 0, 2.0), (3.0, 8, 0, 2.0), (1.1, 8, 23, float(np.float32(1.1))), (1.1, 11, 52, float(np.float32(1.1))),
        (1 + 2.0**-8, 8, 7, 1.0), (1 + 3 * 2.0**-8, 8, 7, 1 + 2.0**-6), (math.inf, 5, 2, math.inf), (-0.0, 5, 2, -0.0),
        (2.0**-14, 5, 10, 2.0**-14), (3.4e38, 8, 2, math.inf),
    ],
)  # fmt: skip
def test_reduced_precision(value: float, exponent_bits: int, mantissa_bits: int, want: float) -> None:
    """REDUCEPRECISION-2, REDUCEPRECISION-4, REDUCEPRECISION-5."""
    got = float(reduce_precision(np.array([value], np.float32), exponent_bits, mantissa_bits)[0])
    assert got == want and math.copysign(1, got) == math.copysign(1, want)


def test_reduced_precision_keeps_nan() -> None:
    """REDUCEPRECISION-3: also where rounding would carry the payload into the sign."""
    for name, bits in (("f32", [0x7FFFFFFF, 0xFFC00000, 0x7F800001]), ("f16", [0x7FFF, 0xFE00]), ("f8e5m2", [0x7F])):
        assert np.all(np.isnan(reduce_precision(of_bits(name, bits), 4, 1).astype(np.float32)))


@given(st.lists(st.floats(2.0**-14, 65504.0, width=32), min_size=1, max_size=10), st.booleans())
def test_reduced_precision_to_half_is_a_conversion_and_back(values: list[float], negative: bool) -> None:
    """REDUCEPRECISION-1: for the normal numbers of f16."""
    x = np.array(values, np.float32) * (-1 if negative else 1)
    assert np.array_equal(reduce_precision(x, 5, 10), x.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(("exponent_bits", "mantissa_bits"), [(4, 1), (3, 3)])
def test_reduced_precision_that_overflows_a_type_without_infinity(exponent_bits: int, mantissa_bits: int) -> None:
    """REDUCEPRECISION-2 with CONVERT-2: NaN, as XLA CPU gives."""
    got = reduce_precision(of_bits("f8e4m3fn", [0x7E, 0xFE]), exponent_bits, mantissa_bits)
    assert np.all(np.isnan(got.astype(np.float32)))


@given(
    st.sampled_from([t for t in PrimitiveType if t.is_array and t.bits < 8]),
    st.lists(st.integers(0, 15), max_size=9),
)
def test_packing_narrow_elements_and_back(element_type: PrimitiveType, codes: list[int]) -> None:
    """SL-23, BITCASTCONVERT-4: the first element in the lowest bits."""
    bits = element_type.bits
    codes = [code % (1 << bits) for code in codes]
    signed = [c - (1 << bits) if element_type.is_signed and c >> (bits - 1) else c for c in codes]
    if element_type.is_integer:
        x = np.array(signed, np.int8).astype(element_type.dtype)
    else:
        x = np.array(codes, np.uint8).view(element_type.dtype)
    packed = pack_narrow(x)
    number = int.from_bytes(packed.tobytes(), "little")
    assert len(packed) == -(-len(codes) * bits // 8)
    assert [(number >> (k * bits)) % (1 << bits) for k in range(len(codes))] == codes
    assert unpack_narrow(packed, len(codes), element_type.dtype).tobytes() == x.tobytes()


def test_narrow_types_are_computed_wide_and_rounded_once() -> None:
    """GEN-6, GEN-7."""
    assert compute(np.add, np.array([7, -8]).astype(ml_dtypes.int4), np.ones(2, np.int8).astype(ml_dtypes.int4)).astype(
        int
    ).tolist() == [-8, -7]
    a, b = np.array([1.0], ml_dtypes.bfloat16), np.array([2.0**-8], ml_dtypes.bfloat16)
    assert float(compute(np.add, a, b)[0]) == 1.0
    assert float(compute(np.add, a, b * ml_dtypes.bfloat16(3))[0]) == 1 + 2.0**-6
    assert widen(np.zeros(1, ml_dtypes.uint2)).dtype == np.uint8 and widen(a).dtype == np.float32
    assert widen(np.zeros(1, np.int32)).dtype == np.int32


def test_converting_to_the_same_type_changes_no_bit() -> None:
    """BITCASTCONVERT-7 asks it of bits; a conversion to the same type does nothing at all."""
    x = of_bits("f32", [0x7F800001, 0xFFC12345, 0x80000000])
    assert convert(x, np.dtype(np.float32)).tobytes() == x.tobytes()
    assert hl.f32.dtype == np.float32


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 12, 1000, 1009])
def test_roots_of_unity(n: int) -> None:
    powers = np.arange(-n, 2 * n)
    got = roots_of_unity(powers, n)
    with mpmath.workprec(120):
        want = [mpmath.expjpi(mpmath.mpf(-2 * int(power)) / n) for power in powers]
        assert max(abs(mpmath.mpc(complex(g)) - w) for g, w in zip(got, want, strict=True)) < 2.0**-52
    if n % 4 == 0:
        assert got[:: n // 4].tolist() == [1, -1j, -1, 1j] * 3
