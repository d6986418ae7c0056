"""Reads the elements of MLIR constants: nested lists, splats, hexadecimal numbers and strings, complex pairs."""

from __future__ import annotations

import math
import re

import numpy as np

from hloom.errors import ArgumentError
from hloom.numerics import unpack_narrow
from hloom.stablehlo.mlir.ir import TensorType
from hloom.stablehlo.mlir.lexer import unquote_mlir
from hloom.stablehlo.mlir.types import element_type_of, type_text
from hloom.types import PrimitiveType
from hloom.values import Array

MAX_RANK = 32
MAX_ELEMENTS = 1 << 48

_PAIR = re.compile(r"\(\s*+([^,()\s]++)\s*+,\s*+([^,()\s]++)\s*+\)")
_NOT_STRUCTURE = re.compile(r"[^\[\],]++")
_BRACKETS = re.compile(r"[\[\]\s]++")
_FLOAT = re.compile(r"-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]++")
_INTEGER = re.compile(r"-?(?:0x[0-9a-fA-F]++|\d++)")
_WORDS = {"true": 1, "false": 0}


def dense_values(body: str, type_: TensorType) -> Array:
    """The elements that the text between the angle brackets of `dense<..>` gives; a splat is a view of one element.

    Raises ArgumentError for malformed or missing elements, and for types without static sizes.
    """
    sizes = static_sizes(type_)
    element_type = element_type_of(type_.element_type)
    text = body.strip()
    if text.startswith('"'):
        string = unquote_mlir(text)
        if not re.fullmatch(r"0x(?:[0-9a-fA-F]{2})*+", string):
            raise ArgumentError(f'the string of a constant is hexadecimal, "0x..", got {text[:40]}')
        return from_bytes(bytes.fromhex(string[2:]), element_type, sizes)
    if "__elided__" in text:
        raise ArgumentError("the constant's values have been left out of the text (__elided__)")
    structure, elements = _split(text)
    if structure == "":
        if len(elements) != 1:
            if 0 in sizes:
                return np.zeros(sizes, element_type.dtype)
            raise ArgumentError(f"{type_text(type_)} needs values, got none")
        return np.broadcast_to(_convert(elements, element_type).reshape(()), sizes)
    if len(elements) != math.prod(sizes) or structure != _skeleton(sizes):
        raise ArgumentError(f"the nesting of the values is not that of {type_text(type_)}")
    return _convert(elements, element_type).reshape(sizes)


def is_splat(values: Array) -> bool:
    """Whether all elements have the same bits (0.0 and -0.0 differ); `values` has at least one."""
    if not any(values.strides):
        return True
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(values.size, -1)
    return bool((raw == raw[0]).all())


def static_sizes(type_: TensorType) -> tuple[int, ...]:
    """The sizes of a tensor type; raises ArgumentError for unknown sizes, over MAX_RANK or over MAX_ELEMENTS."""
    sizes = tuple(size for size in type_.dimensions if size is not None)
    if len(sizes) != len(type_.dimensions):
        raise ArgumentError(f"a constant has a static type, got {type_text(type_)}")
    if len(sizes) > MAX_RANK or math.prod(sizes) > MAX_ELEMENTS:
        raise ArgumentError(f"a constant has at most {MAX_RANK} dimensions and 2^48 elements, got {type_text(type_)}")
    return sizes


def from_bytes(raw: bytes, element_type: PrimitiveType, sizes: tuple[int, ...]) -> Array:
    """Elements from bytes in row-major order, or a splat of one element; booleans may be packed in bits.

    Raises ArgumentError for another number of bytes.
    """
    count, width = int(np.prod(sizes, dtype=np.int64)), element_type.byte_width
    if element_type.is_pred:
        if len(raw) == 1 and count != 1 and raw[0] in (0, 0xFF):
            return np.broadcast_to(np.array(raw[0] != 0), sizes)
        if len(raw) == (count + 7) // 8 and len(raw) != count:
            bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
            return bits[:count].astype(bool).reshape(sizes)
        if len(raw) == count:
            return (np.frombuffer(raw, np.uint8) != 0).reshape(sizes)
    if len(raw) == width and count != 1:
        return np.broadcast_to(_bytes_as(raw, element_type), sizes)
    if element_type.bits < 8 and len(raw) == (count * element_type.bits + 7) // 8 and len(raw) != count:
        return unpack_narrow(np.frombuffer(raw, np.uint8), count, element_type.dtype).reshape(sizes)
    if len(raw) != count * width:
        raise ArgumentError(f"{element_type}{list(sizes)} has {count * width} bytes, got {len(raw)}")
    return _bytes_as(raw, element_type).reshape(sizes)


def _bytes_as(raw: bytes, element_type: PrimitiveType) -> Array:
    if element_type.bits < 8:
        return np.frombuffer(raw, np.uint8).view(np.int8).astype(element_type.dtype)
    return np.frombuffer(raw, element_type.dtype)


def _split(text: str) -> tuple[str, list[str]]:
    """The brackets and commas alone, and the elements; a complex element becomes `real;imaginary`."""
    if "(" in text:
        text = _PAIR.sub(r"\1;\2", text)
    if "[" not in text:
        return "", [text] if text else []
    structure = _NOT_STRUCTURE.sub("", text)
    flat = _BRACKETS.sub("", text)
    return structure, flat.split(",") if flat.strip(",") else []


def _skeleton(sizes: tuple[int, ...]) -> str:
    """The brackets and commas of a constant of these sizes."""
    inner = ""
    for size in reversed(sizes):
        inner = "[" + ",".join([inner] * size) + "]"
    return inner


def _convert(elements: list[str], element_type: PrimitiveType) -> Array:
    dtype = element_type.dtype
    if element_type.is_complex:
        # A real number is a complex element without imaginary part.
        pairs = [element.split(";") if ";" in element else [element, "0"] for element in elements]
        flat = _convert([part for pair in pairs for part in pair], element_type.real)
        return flat.view(dtype)
    if element_type.is_float:
        return _floats(elements, element_type)
    try:
        values = [_WORDS[e] if e in _WORDS else int(e, 16 if "x" in e else 10) for e in map(str.strip, elements)]
    except ValueError:
        # int() also raises ValueError for thousands of digits.
        bad = next(
            (e for e in elements if not _INTEGER.fullmatch(e.strip()) and e.strip() not in _WORDS),
            max(elements, key=len),
        )
        raise ArgumentError(f"{bad.strip()[:40]!r} is no value of {element_type}") from None
    if element_type.is_pred:
        return np.array([value != 0 for value in values], bool)
    bits = element_type.bits
    low, high = min(values, default=0), max(values, default=0)
    if low < -(1 << bits - 1) or high >= 1 << bits:
        raise ArgumentError(f"{low if low < 0 else high} does not fit {element_type}")
    wide = np.array([value & (1 << bits) - 1 for value in values], np.uint64)
    if bits < 8:
        signed = wide.astype(np.int64)
        signed[signed >= 1 << bits - 1] -= (1 << bits) if element_type.is_signed else 0
        return signed.astype(dtype)
    return wide.astype(f"u{bits // 8}").view(dtype)


def _floats(elements: list[str], element_type: PrimitiveType) -> Array:
    """Converts decimal numbers, and hexadecimal ones, which are bit patterns."""
    stripped = [element.strip() for element in elements]
    hexadecimal = {i: int(e, 16) for i, e in enumerate(stripped) if "x" in e and _HEXADECIMAL.fullmatch(e)}
    try:
        decimals = [0.0 if "x" in e and i in hexadecimal else float(e) for i, e in enumerate(stripped)]
    except ValueError:
        decimals = [math.nan]
    wide = np.array(decimals, np.float64)
    if not np.isfinite(wide).all() or any("_" in element for element in stripped):
        # Python's float() accepts "inf", "nan" and underscores, MLIR does not.
        bad = [e for i, e in enumerate(stripped) if i not in hexadecimal and not _FLOAT.fullmatch(e)]
        if bad:
            raise ArgumentError(f"{bad[0][:40]!r} is no value of {element_type}")
    with np.errstate(over="ignore"):
        values = wide.astype(element_type.dtype)
    if hexadecimal:
        if max(hexadecimal.values()) >= 1 << max(element_type.bits, 8):
            raise ArgumentError(f"the bits {max(hexadecimal.values()):#x} do not fit {element_type}")
        bits = values.view(f"u{element_type.byte_width}")
        for position, pattern in hexadecimal.items():
            bits[position] = pattern
    return values
