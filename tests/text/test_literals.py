"""Constants in HLO text: syntax, and exact values (SL-23, GEN-3)."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.bench.peer_process import XlaPeer
from hloom.text import parse_shape
from hloom.text.literals import print_literal
from hloom.types import BY_NAME, PrimitiveType

ARRAY_TYPES = [t for t in PrimitiveType if t.is_array]


def constant(shape: str, text: str) -> hl.Literal:
    module = hl.parse(f"HloModule m\nENTRY e {{ ROOT c = {shape} constant({text}) }}")
    return module.entry.root.op.literal  # type: ignore[attr-defined]


def bits(shape: str, text: str) -> list[int]:
    array = np.ravel(constant(shape, text).value)
    return [int(code) for code in array.view(np.dtype(f"u{array.itemsize}"))]


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        ("f32[]", "1.5", 1.5),
        ("f32[]", "-2.5e-3", np.float32(-2.5e-3)),
        ("f32[]", "1.", 1.0),
        ("f32[]", "inf", math.inf),
        ("f32[]", "-inf", -math.inf),
        ("s8[]", "-128", -128),
        ("u64[]", "18446744073709551615", 2**64 - 1),
        ("s64[]", "-9223372036854775808", -(2**63)),
        ("s4[3]", "{-8, 7, 0}", [-8, 7, 0]),
        ("pred[4]", "{true, false, 1, 0}", [True, False, True, False]),
        ("f32[2,3]", "{ { 1, 2, 3 }, { 4, 5, 6 } }", [[1, 2, 3], [4, 5, 6]]),
        ("f32[2,3]", "{{1,2,3},{4,5,6}}", [[1, 2, 3], [4, 5, 6]]),
        ("f32[2,3]{0,1}", "{{1,2,3},{4,5,6}}", [[1, 2, 3], [4, 5, 6]]),
        ("f32[2,1,2]", "{{{1,2}},{{3,4}}}", [[[1, 2]], [[3, 4]]]),
        ("f32[2]", "{/*i0=0*/ 1, /*i0=1*/ 2}", [1, 2]),
        ("f32[2]", "{\n 1,\n 2\n}", [1, 2]),
        ("f32[0]", "{}", []),
        ("f32[2,0]", "{{},{}}", [[], []]),
        ("c64[]", "(1, -2)", 1 - 2j),
        ("c64[2]", "{(1, -2), (0, 3.5)}", [1 - 2j, 3.5j]),
        ("c128[2]", "{(1,2),(3,4)}", [1 + 2j, 3 + 4j]),
        ("f8e5m2[2]", "{0.25, -57344}", [0.25, -57344]),
        ("f4e2m1fn[2]", "{0.5, -6}", [0.5, -6]),
    ],
)
def test_constants(shape: str, text: str, value: Any) -> None:
    """The values stand in row-major order, whatever the layout (SL-3)."""
    literal = constant(shape, text)
    assert literal.shape == parse_shape(shape)
    assert np.array_equal(literal.value.astype(np.complex128 if shape[0] == "c" else object), np.asarray(value))


def test_tuple_constants() -> None:
    """SL-24: tuples nest."""
    literal = constant("(f32[2], (s32[], pred[]), ())", "({1, 2}, (3, true), ())")
    assert literal.value[0].tolist() == [1, 2] and [v.tolist() for v in literal.value[1]] == [3, True]
    assert literal.value[2] == ()


@pytest.mark.parametrize(
    ("shape", "text", "want"),
    [
        ("f32[2]", "{nan, -nan}", [0x7FC00000, 0xFFC00000]),
        ("f32[2]", "{nan(0x1), -nan(0x7fffff)}", [0x7F800001, 0xFFFFFFFF]),
        ("f64[2]", "{nan(0x1), -nan}", [0x7FF0000000000001, 0xFFF8000000000000]),
        ("f16[2]", "{nan, -nan(0x3ff)}", [0x7E00, 0xFFFF]),
        ("bf16[2]", "{nan, -nan(0x1)}", [0x7FC0, 0xFF81]),
        ("f8e5m2[2]", "{nan(0x1), -nan(0x3)}", [0x7D, 0xFF]),
        ("f32[2]", "{0, -0}", [0, 0x80000000]),
        ("f32[1]", "{1e-45}", [1]),
        ("f32[1]", "{3.40282347e+38}", [0x7F7FFFFF]),
        ("f64[1]", "{4.9406564584124654e-324}", [1]),
    ],
)
def test_bits_of_constants(shape: str, text: str, want: list[int]) -> None:
    """IEEE 754's encodings; `nan(0x..)` gives the payload."""
    assert bits(shape, text) == want


@pytest.mark.parametrize(
    ("shape", "text", "message"),
    [
        ("f32[]", "", "a scalar is one number, got ''"),
        ("f32[]", "1 2", "a scalar is one number, got '1 2'"),
        ("f32[]", "{1}", "a scalar is one number, got '{1}'"),
        ("f32[]", "one", "'one' is not a number"),
        ("f32[]", "1..2", "'1..2' is not a number"),
        ("f32[]", "nan(0x0)", "the payload must be in [1, 2^23)"),
        ("f32[]", "nan(0x800000)", "the payload must be in [1, 2^23)"),
        ("f16[]", "nan(0x400)", "the payload must be in [1, 2^10)"),
        ("s32[]", "1.0", "'1.0' is not an integer"),
        ("s32[]", "nan", "'nan' is not an integer"),
        ("s32[]", "2147483648", "2147483648 does not fit s32, which holds -2147483648 .. 2147483647"),
        ("u8[]", "-1", "-1 does not fit u8, which holds 0 .. 255"),
        ("s4[]", "8", "8 does not fit s4, which holds -8 .. 7"),
        ("u2[]", "4", "4 does not fit u2, which holds 0 .. 3"),
        ("pred[]", "True", "'True' is neither true nor false"),
        ("f32[2]", "1, 2", "the braces do not nest as 2 numbers do"),
        ("f32[2]", "{1, 2, 3}", "the braces do not nest as 2 numbers do"),
        ("f32[2]", "{1}", "the braces do not nest as 2 numbers do"),
        ("f32[2,2]", "{1, 2, 3, 4}", "the braces do not nest as 2 x 2 numbers do"),
        ("f32[2,3]", "{{1,2},{3,4},{5,6}}", "the braces do not nest as 2 x 3 numbers do"),
        ("f32[2]", "{,}", "the braces do not nest as 2 numbers do"),
        ("c64[2]", "{(1, 2), 3}", "complex numbers are written (real, imaginary)"),
        ("c64[]", "(1, i)", "'i' is not a number"),
        ("(f32[], s32[])", "(1)", "needs 2 elements, got 1"),
        ("(f32[], s32[])", "1, 2", "a tuple constant is written in parentheses"),
        ("(f32[2], s32[])", "({1, 2}, 3.5)", "'3.5' is not an integer"),
    ],
)
def test_damaged_constants(shape: str, text: str, message: str) -> None:
    """GEN-3: the error points at the constant and names its shape."""
    with pytest.raises(hl.ParseError) as error:
        constant(shape, text)
    assert message in str(error.value) and f"constant of {shape.split('{')[0]}" in str(error.value)
    start = f"ENTRY e {{ ROOT c = {shape} constant("
    assert (error.value.line, error.value.column) == (2, len(start) + 1)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("f32[2]", "{1,}2"),
        ("f32[2]", "1{,2}"),
        ("s32[]", "1_0"),
        ("f32[]", "1_0"),
        ("f32[]", "infinity"),
        ("s32[]", "\u0663"),
        ("f32[]", "1e50"),
        ("f16[]", "1e10"),
    ],
)
def test_constants_that_xla_refuses(shape: str, text: str) -> None:
    """GEN-3: each of these is a syntax error, or out of the type's range, for XLA's parser."""
    with pytest.raises(hl.ParseError):
        constant(shape, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1), "1"),
        (np.float32(0.1), "0.1"),
        (np.float64(0.1), "0.1"),
        (np.float32(-0.0), "-0.0"),
        (np.array([1.5, np.inf, -np.inf, np.nan], np.float32), "{1.5,inf,-inf,nan}"),
        (np.array([[1, 2], [3, 4]], np.int8), "{ {1,2}, {3,4} }"),
        (np.array([True, False]), "{true,false}"),
        (np.array([1 - 2j], np.complex64), "{(1, -2)}"),
        (np.zeros((2, 0), np.float32), "{{},{}}"),
        (np.zeros((0, 2), np.float32), "{}"),
        ((np.int32(1), (np.float32(2), ())), "(1, (2, ()))"),
    ],
)
def test_texts(value: Any, text: str) -> None:
    assert print_literal(hl.Literal.from_value(value)).replace(" ", "") == text.replace(" ", "")


def test_large_constants_are_left_out_on_demand() -> None:
    literal = hl.Literal.from_value(np.arange(5))
    assert print_literal(literal, elide=4) == "{...}" and print_literal(literal, elide=5) == "{0,1,2,3,4}"


@st.composite
def values(draw: Any) -> hl.Literal:
    """A literal of random bits, NaN payloads included."""
    element_type = draw(st.sampled_from(ARRAY_TYPES))
    sizes = draw(st.lists(st.integers(0, 3), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if element_type.is_pred:
        array = rng.random(sizes) < 0.5
    elif element_type.is_integer and element_type.bits < 8:
        array = rng.integers(0, 1 << element_type.bits, sizes, np.int64).astype(element_type.dtype)
    else:
        raw = rng.integers(0, min(256, 1 << element_type.bits), (*sizes, element_type.byte_width), np.uint8)
        if element_type.is_float and draw(st.booleans()):
            # Many NaNs: exponents of ones.
            raw[..., -1] |= 0x7F if element_type.bits >= 8 else 0
            raw[..., -2:] |= 0x78 if element_type.bits == 16 else 0
        array = raw.view(element_type.dtype).reshape(sizes)
    return hl.Literal(hl.Shape.array(element_type, sizes), array)


def same(a: hl.Literal, b: hl.Literal) -> bool:
    if a.shape.is_tuple:
        return all(same(x, y) for x, y in zip(a.elements, b.elements, strict=True))
    name = a.shape.element_type.text
    if name.endswith(("fn", "fnuz", "fnu")) and name != "f4e2m1fn":
        # One NaN, perhaps with a sign: see test_the_sign_of_a_nan_without_payload.
        return np.array_equal(a.value.astype(np.float32), b.value.astype(np.float32), equal_nan=True)
    return a == b


def test_parts_of_complex_values_may_be_any_nan() -> None:
    text = "HloModule m\nENTRY e { ROOT c = c64[2]{0} constant({(-nan(0xb6050), 1), (2, -nan(0x1)) }) }"
    module = hl.parse(text)
    words = module.entry.root.op.literal.value.view(np.uint32).tolist()  # type: ignore[attr-defined]
    assert words == [0xFF8B6050, 0x3F800000, 0x40000000, 0xFF800001]
    assert hl.parse(module.to_text()).to_text() == module.to_text()


@given(st.recursive(values(), lambda inner: st.lists(inner, max_size=3).map(hl.Literal.tuple_of), max_leaves=4))
def test_literals_survive_their_text_bit_for_bit(literal: hl.Literal) -> None:
    """SL-23: NaN payloads, signed zeros and subnormal numbers included."""
    assert same(constant(literal.shape.to_text(), print_literal(literal)), literal)


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e5m2", "f8e4m3", "f8e3m4"])
def test_every_value_of_a_narrow_type_survives_its_text(name: str) -> None:
    dtype = BY_NAME[name].dtype
    codes = np.arange(1 << BY_NAME[name].bits, dtype=np.dtype(f"u{dtype.itemsize}"))
    literal = hl.Literal.from_numpy(codes.view(dtype))
    assert constant(f"{name}[{len(codes)}]", print_literal(literal)).value.tobytes() == codes.tobytes()


def test_the_sign_of_a_nan_without_payload() -> None:
    """f8e4m3fn has two NaNs, 0x7f and 0xff; XLA prints them as nan and -nan and reads them back."""
    array = np.array([0x7F, 0xFF], np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert print_literal(hl.Literal.from_numpy(array)) == "{nan,-nan}"
    assert bits("f8e4m3fn[2]", "{nan, -nan}") == [0x7F, 0xFF]


def test_xla_reads_the_constants_we_print(peer: XlaPeer) -> None:
    """Bits stay the same in XLA's hands (NaNs keep their payload there too)."""
    for name in ("f32", "f64", "f16", "bf16", "s8", "u64", "s4", "pred", "c64", "f8e5m2", "f8e4m3fn"):
        dtype = BY_NAME[name].dtype
        rng = np.random.default_rng(7)
        if name in ("s4", "pred"):
            array = rng.integers(0, 2, (2, 3)).astype(dtype)
        else:
            array = rng.integers(0, 256, (2, 3, dtype.itemsize), np.uint8).view(dtype).reshape(2, 3)
            array[0, 0] = np.negative(0.0).astype(dtype)
        text = print_literal(hl.Literal.from_numpy(array))
        module = f"HloModule m\nENTRY e {{ ROOT c = {name}[2,3] constant({text}) }}"
        (got,) = peer.run(module, [])
        assert got.tobytes() == array.tobytes() == hl.compile(module, backend="interpreter")().tobytes()


@pytest.mark.parametrize(
    ("shape", "text", "value"),
    [
        ("u64[]", "-1", 2**64 - 1),
        ("u64[]", "-9223372036854775808", 2**63),
        ("s64[]", "18446744073709551615", -1),
        ("s64[2]", "{9223372036854775808, 1}", [-(2**63), 1]),
        ("pred[]", "2", True),
        ("pred[3]", "{-1, 0, 1}", [True, False, True]),
    ],
)
def test_64_bit_integers_and_booleans_as_xla_reads_them(shape: str, text: str, value: Any) -> None:
    """SL-24: 64 bits are written with or without a sign; an integer is true unless it is 0."""
    assert constant(shape, text).value.tolist() == value


@pytest.mark.parametrize(("shape", "text"), [("u64[]", "-9223372036854775809"), ("s64[]", "18446744073709551616")])
def test_more_than_64_bits_are_refused(shape: str, text: str) -> None:
    with pytest.raises(hl.ParseError, match="does not fit"):
        constant(shape, text)


def test_xla_reads_the_largest_parts_of_complex_values(peer: XlaPeer) -> None:
    largest = float(np.finfo(np.float32).max)
    module = hl.parse(
        f"HloModule m\nENTRY e {{\n ROOT c = c64[2] constant({{({largest!r}, 1), (0, {-largest!r})}})\n}}"
    )
    peer.parse(module.to_text())
    value = hl.parse(module.to_text()).entry.root.op.literal.value  # type: ignore[attr-defined]
    assert value.tolist() == [complex(largest, 1), complex(0, -largest)]
