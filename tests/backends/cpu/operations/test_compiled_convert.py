"""Convert and reduce-precision, compiled; `elements/test_conversions.py` has floats to integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hloom as hl
from backends.cpu.operations.one_operation import same, shape_of, twice, values
from hlo_text import compiled
from hloom.types import BY_NAME


def converted(x: Any, type: str) -> Any:
    shape = f"{type}[{','.join(map(str, x.shape))}]"
    return compiled(f"ENTRY e {{ x = {shape_of(x)} parameter(0) ROOT r = {shape} convert(x) }}", x)[0]


INTEGERS = {"s4": 4, "s8": 8, "s32": 32, "s64": 64, "u4": 4, "u8": 8, "u16": 16, "u64": 64}


@pytest.mark.parametrize("target", INTEGERS)
def test_integers_wrap(target: str) -> None:
    """CONVERT-4: modulo 2^bits."""
    values = [0, 1, -1, 7, 8, 300, -300, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63)]
    bits, found = INTEGERS[target], converted(np.array(values), target)
    for value, result in zip(values, found):
        wrapped = value % 2**bits
        assert int(result) == (wrapped - 2**bits if target[0] == "s" and wrapped >= 2 ** (bits - 1) else wrapped)


def nearest(value: float, mantissa: int, least: int, most: float) -> float:
    """Rounds to the nearest multiple of the last bit, ties to even; beyond `most`: infinity."""
    if value == 0:
        return value
    exponent = max(math.frexp(value)[1] - 1, least)
    unit = 2.0 ** (exponent - mantissa)
    result = round(value / unit) * unit
    return math.copysign(math.inf, value) if abs(result) > most else result


FORMATS = {"f16": (10, -14, 65504.0), "bf16": (7, -126, 255 * 2.0**120), "f8e5m2": (2, -14, 57344.0)}


@pytest.mark.parametrize("target", FORMATS)
def test_floats_are_rounded_to_even(target: str) -> None:
    """CONVERT-2: ties, overflow, and numbers below the smallest normal one."""
    x = np.array(
        [1, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 1.125, 1.375, 65519, 65520, 61439, 61440, 3.4e38]
        + [2.0**-14, 2.0**-17, 3 * 2.0**-17, 2.0**-24, 2.0**-25, 3 * 2.0**-26, -0.0, -1.1, 1 / 3, -70000],
        np.float32,
    )  # fmt: skip
    expected = [nearest(float(value), *FORMATS[target]) for value in x]
    same(converted(x, target).astype(np.float64), np.array(expected))


def test_integers_to_floats_are_rounded_to_even() -> None:
    """CONVERT-2: 2^24 + 1 and 2^24 + 3 lie between two f32."""
    x = np.array([0, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 1], np.int32)
    assert converted(x, "f32").tolist() == [0, 2**24, 2**24 + 4, -(2**24), 2**31]
    large = np.array([2**64 - 1, 2**63, 2**53 + 1], np.uint64)
    assert converted(large, "f64").tolist() == [2.0**64, 2.0**63, 2.0**53]


@pytest.mark.parametrize("source", ["pred", "s2", "u2", "s8", "u16", "s64"])
def test_what_is_not_positive_is_no_power_of_two(source: str) -> None:
    """CONVERT-2: f8e8m0fnu has neither zero nor negative numbers, whose conversions are NaN."""
    type = BY_NAME[source]
    x = np.array([1, 0] if type.is_pred or not type.is_signed else [1, 0, -1, -2]).astype(type.dtype)
    same(converted(x, "f8e8m0fnu").astype(float), np.array([1.0, *[np.nan] * (len(x) - 1)]))


def test_overflow_gives_nan_in_types_without_infinity() -> None:
    """CONVERT-2: the largest f8e4m3fn is 448, the next would be 480."""
    found = converted(np.array([448, 464, 465, -1000, np.inf], np.float32), "f8e4m3fn").astype(float).tolist()
    assert found[:2] == [448, 448] and all(map(math.isnan, found[2:]))


def test_predicates() -> None:
    """CONVERT-4: false exactly where the value is 0; NaN gives true."""
    x = np.array([0, -0.0, 0.25, np.nan, np.inf, 1e-40], np.float32)
    assert converted(x, "pred").tolist() == [False, False, True, True, True, True]
    assert converted(np.array([0, 256, -1], np.int32), "pred").tolist() == [False, True, True]
    for type in ("f32", "bf16", "u8", "c64"):
        assert converted(np.array([True, False]), type).astype(complex).tolist() == [1, 0]


def test_complex_elements() -> None:
    """CONVERT-5: the imaginary part becomes 0, or is left out."""
    z = values([3, 5], "c64")
    same(converted(z, "f64"), z.real.astype(np.float64))
    same(converted(z.real.copy(), "c128"), z.real.astype(np.complex128))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("sizes", [[0], [2, 0], [], [1, 1], [3, 21]])
@pytest.mark.parametrize(("source", "target"), [("s8", "f32"), ("f32", "bf16"), ("u4", "s64"), ("f8e4m3fn", "f16")])
def test_between_element_wise_operations(source: str, target: str, sizes: list[int]) -> None:
    """CONVERT-1: the dimensions stay; these values are exact in both types."""
    x, dims = values(sizes, source), ",".join(map(str, sizes))
    text = f"""ENTRY e {{ x = {source}[{dims}] parameter(0)
  y = {source}[{dims}] add(x, x)
  z = {target}[{dims}] convert(y)
  ROOT r = {target}[{dims}] add(z, z) }}"""
    same(compiled(text, x)[0], twice(twice(x).astype(BY_NAME[target].dtype)))


def test_reduced_precision() -> None:
    """REDUCEPRECISION-2, REDUCEPRECISION-4: to even, to infinity, and to zero below the smallest normal number."""
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, 65519, 65520, -65520, 6e-5, -6e-5, 2.0**-14], np.float32)
    text = """ENTRY e { x = f32[8] parameter(0)
  ROOT r = f32[8] reduce-precision(x), exponent_bits=5, mantissa_bits=10 }"""
    expected = np.array([1, 1 + 2**-9, 65504, np.inf, -np.inf, 0, -0.0, 2.0**-14], np.float32)
    (found,) = compiled(text, x)
    same(found, expected)
    assert np.signbit(found).tolist() == np.signbit(expected).tolist()


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_bits_of_nans_pass_unchanged(backend: str) -> None:
    """BITCASTCONVERT-7: payloads, and signalling NaNs, from integers and back."""
    text = """HloModule bits
    ENTRY e {
      u = u32[4] parameter(0)
      f = f32[4] bitcast-convert(u)
      ROOT r = u32[4] bitcast-convert(f)
    }"""
    bits = np.array([0x7FC00001, 0xFFC12345, 0x7F812345, 0x00000001], np.uint32)
    assert np.array_equal(np.asarray(hl.compile(text, backend=backend)(bits)), bits)


@pytest.mark.parametrize(("source", "target"), [("c64[2]", "c128[]"), ("c128[3]", "c64[3,2]"), ("f32[2]", "f64[]")])
def test_bits_of_another_width_are_not_read_element_by_element(source: str, target: str) -> None:
    """BITCASTCONVERT-2, -3: what makes the operand is not fused into the bitcast."""
    text = f"ENTRY e {{ x = {source} parameter(0)\n y = {source} negate(x)\n ROOT r = {target} bitcast-convert(y) }}"
    shape = hl.parse(text).entry.parameter_shapes[0]
    x = np.arange(1, 1 + shape.element_count).astype(shape.element_type.dtype).reshape(shape.dimensions)
    assert np.array_equal(hl.compile(text)(x), hl.compile(text, "interpreter")(x))
