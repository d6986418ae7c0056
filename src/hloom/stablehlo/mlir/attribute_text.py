"""Writes MLIR attributes and constants: `1 : i64`, `array<i64: 1, 2>`, `dense<[1.5, 2.0]> : tensor<2xf32>`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hloom.numerics import bits_of
from hloom.stablehlo.mlir.dense import is_splat
from hloom.stablehlo.mlir.ir import (
    ELIDED_RESOURCE,
    Attribute,
    DenseArray,
    DenseElements,
    DialectAttribute,
    DialectType,
    ElidedElements,
    FunctionType,
    Number,
    ScalarType,
    Symbol,
    TensorType,
    TupleType,
)
from hloom.stablehlo.mlir.types import INDEX, element_type_of, type_text
from hloom.values import Array

_BARE_NAME = re.compile(r"[A-Za-z_][\w$.]*\Z")
_WORD = re.compile(r"\w+\Z")
_TYPES = (ScalarType, TensorType, TupleType, FunctionType, DialectType)


MIN_HEXADECIMAL_ELEMENTS = 101
"""Number of elements from which MLIR writes a constant as hexadecimal bytes."""


def attribute_text(value: Attribute) -> str:
    """An attribute with its type, as in a dictionary."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "unit"
        case str():
            return quoted(value)
        case list():
            return f"[{', '.join(map(attribute_text, value))}]"
        case dict():
            return dictionary_text(value)
        case Number():
            plain = value.value
            text = float_text(np.asarray(plain, _dtype(value.type))) if isinstance(plain, float) else str(plain)
            return f"{text} : {value.type.name}"
        case Symbol():
            return symbol_text(value.name)
        case DenseArray():
            values = ", ".join(_number_text(v) for v in value.values)
            return f"array<{value.element_type.name}: {values}>" if values else f"array<{value.element_type.name}>"
        case DenseElements():
            return dense_text(value)
        case ElidedElements():
            return f"dense_resource<{ELIDED_RESOURCE}> : {type_text(value.type)}"
        case DialectAttribute():
            return _dialect_text(value)
        case _:
            return type_text(value)


def dictionary_text(entries: dict[str, Any]) -> str:
    """`{a = 1 : i64, unit, "odd key" = "x"}`, sorted by name as MLIR sorts dictionaries."""
    return "{" + ", ".join(_entry(key, entries[key]) for key in sorted(entries)) + "}"


def _entry(key: str, value: Attribute) -> str:
    name = key if _BARE_NAME.match(key) else quoted(key)
    return name if value is None else f"{name} = {attribute_text(value)}"


def _dialect_text(value: DialectAttribute) -> str:
    dialect, _, name = value.name.partition(".")
    if isinstance(value.body, str):
        if _WORD.match(value.body):
            return f"#{dialect}<{name} {value.body}>"
        return f"#{value.name}<{value.body}>"
    fields = ", ".join(f"{key} = {bare_text(entry)}" for key, entry in value.body.items())
    return f"#{value.name}<{fields}>"


def bare_text(value: Any) -> str:
    """An attribute in a syntax that implies its type: numbers have none."""
    if isinstance(value, Number):
        return _number_text(value.value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(bare_text, value))}]"
    if isinstance(value, DenseArray):
        return bare_text(value.values)
    if isinstance(value, (bool, int, float)):
        return _number_text(value)
    if isinstance(value, DialectAttribute) and isinstance(value.body, str):
        return f"#{value.name}<{value.body}>"
    return attribute_text(value)


def _number_text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return float_text(np.asarray(value, np.float64)) if isinstance(value, float) else str(value)


def quoted(text: str) -> str:
    """A string literal; bytes that are not printable ASCII become two hexadecimal digits."""
    shown = []
    for byte in text.encode("utf-8", "surrogateescape"):
        character = chr(byte)
        if character in '"\\':
            shown.append("\\" + character)
        else:
            shown.append(character if 32 <= byte < 127 else f"\\{byte:02X}")
    return '"' + "".join(shown) + '"'


def symbol_text(name: str) -> str:
    """`@name`, quoted unless it is an identifier."""
    return "@" + (name if _BARE_NAME.match(name) else quoted(name))


# Constants


def _dtype(scalar: ScalarType) -> np.dtype[Any]:
    return np.dtype(np.int64) if scalar == INDEX else element_type_of(scalar).dtype


def dense_text(value: DenseElements) -> str:
    """`dense<...> : type`: a splat, nested lists, or hexadecimal bytes for long constants."""
    return f"dense<{_elements_text(value.values)}> : {type_text(value.type)}"


def _elements_text(values: Array) -> str:
    if values.size == 0:
        return ""
    if is_splat(values):
        return _element_text(values.reshape(-1)[0])
    if values.size >= MIN_HEXADECIMAL_ELEMENTS and not _is_packed(values.dtype):
        return f'"0x{np.ascontiguousarray(values).tobytes().hex().upper()}"'
    texts = [_element_text(element) for element in values.reshape(-1)]
    for size in reversed(values.shape):
        texts = [f"[{', '.join(texts[i : i + size])}]" for i in range(0, len(texts), size)]
    return texts[0]


def _is_packed(dtype: np.dtype[Any]) -> bool:
    """Whether elements are narrower than a byte; MLIR's bytes for these differ between releases."""
    return dtype.kind == "b" or dtype.name in ("int2", "uint2", "int4", "uint4", "float4_e2m1fn")


def _element_text(element: Any) -> str:
    dtype = np.asarray(element).dtype
    if dtype.kind == "b":
        return "true" if element else "false"
    if dtype.kind == "c":
        return f"({float_text(element.real)}, {float_text(element.imag)})"
    if dtype.kind in "iu" or "int" in dtype.name:
        return str(int(element))
    return float_text(np.asarray(element))


def float_text(element: Any) -> str:
    """A float that reads back to the same bits: `1.500000e+00`, more digits if needed, bits for inf and NaN."""
    value = np.asarray(element)
    wide = float(value)
    if np.isfinite(wide):
        for digits in (6, 8, 16):
            text = f"{wide:.{digits}e}"
            if float(np.asarray(float(text)).astype(value.dtype)) == wide:
                return text
    bits = bits_of(value)
    return f"0x{int(bits):0{2 * bits.dtype.itemsize}X}"
