"""Constants in HLO text: elements in nested braces, with NaN payloads, complex numbers and tuples."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hloom.errors import ParseError
from hloom.literal import Literal
from hloom.numerics import bits_of, has_infinity
from hloom.shape import Shape
from hloom.text.scanner import Scanner
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import TOKEN_VALUE, Array

_NUMBER = re.compile(r"[^\s{},]++")
_PART = r"[^\s,()]++(?:\(0x[0-9a-fA-F]++\))?"
_PAIR = re.compile(rf"\(\s*({_PART})\s*,\s*({_PART})\s*\)")
_NAN = re.compile(r"([+-]?)nan(?:\(0x([0-9a-fA-F]++)\))?\Z")
_SEPARATORS = re.compile(r"[\s,]++")


def is_elided(text: str) -> bool:
    """Whether the text of a constant omits its elements: `{...}`."""
    return "..." in text


def parse_literal(text: str, shape: Shape, scanner: Scanner, start: int) -> Literal:
    """Parses the text of a literal of a shape; `start` is its offset in the scanner's text, for errors.

    Raises ParseError for malformed elements, another number of them, or values that do not fit the element type.
    """
    try:
        return _parse(text, shape, 0)
    except ValueError as error:
        scanner.fail(f"constant of {shape}: {error}", start)


def _parse(text: str, shape: Shape, depth: int) -> Literal:
    if shape.is_tuple:
        return _parse_tuple(text, shape, depth)
    if not shape.is_array:
        return Literal(shape, TOKEN_VALUE)
    if not text.isascii() or "_" in text or "infinity" in text.lower():
        # int() and float() accept these, HLO text does not.
        raise ValueError(f"cannot read the numbers in {text.strip()[:40]!r}")
    if shape.element_type.is_complex:
        return Literal(shape, _frozen(_parse_complex(text, shape)))
    tokens = _NUMBER.findall(text)
    if shape.rank and len(tokens) == 1 and tokens[0] == text.strip() and shape.element_count:
        return _first_element(tokens[0], shape)
    if shape.rank:
        _check_skeleton(text, shape)
    elif len(tokens) != 1 or tokens[0] != text.strip():
        raise ValueError(f"a scalar is one number, got {text.strip()[:40]!r}")
    if len(tokens) != shape.element_count:
        raise ValueError(f"needs {shape.element_count} numbers, got {len(tokens)}")
    return Literal(shape, _frozen(_parse_elements(tokens, shape.element_type).reshape(shape.dimensions)))


def _first_element(token: str, shape: Shape) -> Literal:
    """An array whose text is one number without braces: that is its first element, the others are 0, as in XLA."""
    array = np.zeros(shape.dimensions, shape.element_type.dtype)
    array.reshape(-1)[:1] = _parse_elements([token], shape.element_type)
    return Literal(shape, _frozen(array))


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _parse_tuple(text: str, shape: Shape, depth: int) -> Literal:
    body = text.strip()
    if not (body.startswith("(") and body.endswith(")")):
        raise ValueError("a tuple constant is written in parentheses")
    scanner = Scanner(body[1:-1])
    parts: list[str] = []
    while not scanner.at_end():
        if parts:
            scanner.expect(",")
            scanner.skip()
        begin = scanner.pos
        try:
            parts.append(scanner.raw_value())
        except ParseError:
            raise ValueError(f"cannot read a tuple element at {scanner.text[begin : begin + 20]!r}") from None
    if len(parts) != len(shape.elements) or depth > 100:
        raise ValueError(f"needs {len(shape.elements)} elements, got {len(parts)}")
    return Literal.tuple_of(_parse(p, s, depth + 1) for p, s in zip(parts, shape.elements, strict=True))


def _check_skeleton(text: str, shape: Shape) -> None:
    """Raises ValueError unless the braces nest as the dimensions; commas only separate, like blanks."""
    skeleton = _SEPARATORS.sub("", _NUMBER.sub("1", text))
    expected = "1"
    for size in reversed(shape.dimensions):
        if size * len(expected) > len(skeleton):
            expected = "?"
            break
        expected = "{" + expected * size + "}"
    if skeleton != expected and not (shape.element_count == 0 and re.fullmatch(r"[{}]*", skeleton)):
        sizes = " x ".join(map(str, shape.dimensions))
        raise ValueError(f"the braces do not nest as {sizes} numbers do")


def _parse_complex(text: str, shape: Shape) -> Array:
    dtype = shape.element_type.dtype
    pairs = _PAIR.findall(text)
    rest = _PAIR.sub("1", text)
    tokens = _NUMBER.findall(rest)
    if shape.rank:
        _check_skeleton(rest, shape)
    if len(tokens) != shape.element_count:
        raise ValueError(f"needs {shape.element_count} numbers, got {len(tokens)}")
    if len(pairs) != len(tokens):
        if pairs:
            raise ValueError("complex numbers are written (real, imaginary)")
        pairs = [(token, "0") for token in tokens]
    part = shape.element_type.real
    result = np.empty(len(pairs), dtype)
    result.real = _parse_elements([real for real, _ in pairs], part)
    result.imag = _parse_elements([imaginary for _, imaginary in pairs], part)
    return result.reshape(shape.dimensions)


def _parse_elements(tokens: list[str], element_type: PrimitiveType) -> Array:
    if element_type.is_pred:
        return np.array([_pred(token) for token in tokens], bool)
    if element_type.is_integer:
        return _integers(tokens, element_type)
    return _floats(tokens, element_type)


def _pred(token: str) -> bool:
    """Converts true, false, or an integer, which is true unless it is 0."""
    if token in ("true", "false"):
        return token == "true"
    if not re.fullmatch(r"[+-]?\d{1,20}", token):
        raise ValueError(f"{token[:40]!r} is neither true nor false")
    return int(token) != 0


def _integers(tokens: list[str], element_type: PrimitiveType) -> Array:
    try:
        values = [int(token) for token in tokens]
    except ValueError:
        wrong = next((token for token in tokens if not re.fullmatch(r"[+-]?\d+", token)), None)
        if wrong is None:  # int() also raises ValueError for thousands of digits.
            raise ValueError(f"{max(tokens, key=len)[:40]}.. does not fit {element_type}") from None
        raise ValueError(f"{wrong[:40]!r} is not an integer") from None
    low, high = element_type.limits
    if values and (min(values) < low or max(values) > high):
        if element_type.bits != 64 or min(values) < -(2**63) or max(values) >= 2**64:
            wrong_value = next(value for value in values if not low <= value <= high)
            raise ValueError(f"{wrong_value} does not fit {element_type}, which holds {low} .. {high}")
        # As in XLA, integers of 64 bits may be signed or unsigned, and wrap around.
        values = [(value - low) % 2**64 + low for value in values]
    wide = np.array(values, np.uint64 if high > 2**63 - 1 else np.int64)
    return wide.astype(element_type.dtype)


def _floats(tokens: list[str], element_type: PrimitiveType) -> Array:
    try:
        values = [float(token) for token in tokens]
        payloads = [i for i, value in enumerate(values) if value != value]
    except ValueError:
        values, payloads = _floats_with_payloads(tokens)
    exact = np.array(values, np.float64)
    result = exact.astype(element_type.dtype)
    lost = np.isfinite(exact) & ~np.isfinite(result)
    if lost.any():
        raise ValueError(f"{tokens[int(np.argmax(lost))][:40]} does not fit {element_type}")
    for i in payloads:
        _set_nan(result, i, tokens[i])
    return result


def _floats_with_payloads(tokens: list[str]) -> tuple[list[float], list[int]]:
    values, payloads = [], []
    for i, token in enumerate(tokens):
        try:
            values.append(float.fromhex(token) if "0x" in token and "nan" not in token else float(token))
        except ValueError:
            if not _NAN.match(token):
                raise ValueError(f"{token[:40]!r} is not a number") from None
            values.append(float("nan"))
        if values[-1] != values[-1]:
            payloads.append(i)
    return values, payloads


def _set_nan(array: Array, i: int, token: str) -> None:
    """Writes a NaN with the sign and payload of its token, if the element type has them."""
    match = _NAN.match(token)
    element_type = BY_DTYPE[array.dtype]
    mantissa = element_type.mantissa_bits
    if match and element_type is PrimitiveType.F8E4M3FN:
        bits_of(array)[i] = 0xFF if match[1] == "-" else 0x7F
    if not match or not has_infinity(array.dtype):
        return
    payload = int(match[2], 16) if match[2] else 1 << (mantissa - 1)
    if not 0 < payload < 1 << mantissa:
        raise ValueError(f"{token!r}: the payload must be in [1, 2^{mantissa})")
    exponent = ((1 << (element_type.bits - 1 - mantissa)) - 1) << mantissa
    sign = 1 << (element_type.bits - 1) if match[1] == "-" else 0
    bits_of(array)[i] = sign | exponent | payload


ELIDED = "{...}"


def print_literal(literal: Literal, elide: int | None = None) -> str:
    """The text of a literal; constants of more than `elide` elements print as `{...}` (None: all elements)."""
    shape = literal.shape
    if shape.is_tuple:
        return "(" + ", ".join(print_literal(element, elide) for element in literal.elements) + ")"
    if not shape.is_array:
        return "token[]"
    if elide is not None and shape.element_count > elide:
        return ELIDED
    array = literal.value
    return _nest(_element_texts(array), shape.dimensions)


def _nest(elements: list[str], dimensions: tuple[int, ...]) -> str:
    if not dimensions:
        return elements[0]
    if 0 in dimensions:
        inner = "{}"
        for size in reversed(dimensions[: dimensions.index(0)]):
            inner = "{" + ",".join([inner] * size) + "}"
        return inner
    parts = elements
    for d, size in enumerate(reversed(dimensions)):
        open_, close = ("{", "}") if d == 0 else ("{ ", " }")
        separator = "," if d == 0 else ", "
        parts = [open_ + separator.join(parts[i : i + size]) + close for i in range(0, len(parts), size)]
    return parts[0]


def _element_texts(array: Any) -> list[str]:
    flat = np.ravel(array)
    element_type = BY_DTYPE[flat.dtype]
    if element_type.is_pred:
        return ["true" if value else "false" for value in flat.tolist()]
    if element_type.is_integer:
        return [str(int(value)) for value in flat]
    if element_type.is_complex:
        return [
            f"({real}, {imaginary})"
            for real, imaginary in zip(_part_texts(flat.real), _part_texts(flat.imag), strict=True)
        ]
    texts = [float_text(value) for value in flat]
    for i in np.flatnonzero(np.isnan(flat.astype(np.float64))):
        texts[i] = _nan_text(flat, int(i))
    return texts


def _part_texts(parts: Array) -> list[str]:
    """Texts of the parts of complex numbers; XLA's parser refuses decimals beyond the largest finite value."""
    texts = _element_texts(parts)
    for i in np.flatnonzero(np.abs(parts) == np.finfo(parts.dtype).max):
        texts[i] = repr(float(parts[i]))
    return texts


def float_text(value: Any) -> str:
    """The shortest text that reads back to the same number of its type: without `.0`, but for -0.0.

    XLA's parser reads `-0` as an integer, which loses the sign.
    """
    text = str(value).removesuffix(".0")
    return text if text != "-0" else "-0.0"


def _nan_text(flat: Array, i: int) -> str:
    element_type = BY_DTYPE[flat.dtype]
    mantissa = element_type.mantissa_bits
    if element_type is PrimitiveType.F8E4M3FN:
        return "-nan" if int(bits_of(flat)[i]) & 0x80 else "nan"
    if not has_infinity(flat.dtype):
        return "nan"
    bits = int(bits_of(flat)[i])
    sign = "-" if bits >> (element_type.bits - 1) else ""
    payload = bits & ((1 << mantissa) - 1)
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan(0x{payload:x})"
