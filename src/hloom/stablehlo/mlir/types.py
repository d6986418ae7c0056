"""Conversions between HLO's element types and shapes and MLIR's types.

HLO's `pred` is `i1`, signed integers are signless (`i32`), unsigned ones `ui32`; floats have MLIR's names. A bounded
dynamic dimension `f32[<=4]` is `tensor<?xf32, #stablehlo.bounds<4>>`. Types have no layout.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from hloom.errors import ArgumentError
from hloom.shape import TOKEN, UNBOUNDED, Shape
from hloom.stablehlo.mlir.ir import (
    DenseArray,
    DenseElements,
    DialectType,
    Number,
    QuantizedType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
)
from hloom.types import PrimitiveType

TOKEN_TYPE = DialectType("stablehlo.token")
INDEX = ScalarType("index")
I1, I32, I64 = ScalarType("i1"), ScalarType("i32"), ScalarType("i64")
F32, F64 = ScalarType("f32"), ScalarType("f64")


def _mlir_name(element_type: PrimitiveType) -> str:
    """`i32`, `ui8`, `bf16`, `f8E4M3FN`, `complex<f32>`."""
    if element_type.is_pred:
        return "i1"
    if element_type.is_complex:
        return f"complex<{element_type.real.text}>"
    if element_type.is_integer:
        return ("i" if element_type.is_signed else "ui") + element_type.text[1:]
    name = element_type.text
    return name if name in ("f16", "bf16", "f32", "f64") else name[0] + name[1:].upper()


_TO_SCALAR = {t: ScalarType(_mlir_name(t)) for t in PrimitiveType if t.is_array}
_FROM_NAME = {scalar.name: element_type for element_type, scalar in _TO_SCALAR.items()}
# Names that are only read: integers with explicit sign, and index, which XLA treats as 64 bits.
_FROM_NAME |= {f"si{t.bits}": t for t in PrimitiveType if t.is_array and t.is_signed}
_FROM_NAME["index"] = PrimitiveType.S64


def scalar_type(element_type: PrimitiveType) -> ScalarType:
    """The MLIR element type of an HLO element type; raises ArgumentError for token, opaque and tuple."""
    if element_type not in _TO_SCALAR:
        raise ArgumentError(f"{element_type} is not an element type of arrays")
    return _TO_SCALAR[element_type]


def element_type_of(scalar: ScalarType | QuantizedType) -> PrimitiveType:
    """The HLO element type of an MLIR element type, for a quantised type that of its storage.

    Raises ArgumentError if HLO lacks it.
    """
    name = scalar.storage.name if isinstance(scalar, QuantizedType) else scalar.name
    if name not in _FROM_NAME:
        raise ArgumentError(f"there is no HLO element type for {name}; there is for: {', '.join(sorted(_FROM_NAME))}")
    return _FROM_NAME[name]


def mlir_type(shape: Shape) -> Type:
    """The MLIR type of a shape, without its layout; raises ArgumentError for shapes that StableHLO lacks."""
    if shape.is_tuple:
        return TupleType(tuple(map(mlir_type, shape.elements)))
    if shape.is_token:
        return TOKEN_TYPE
    if not shape.is_array:
        raise ArgumentError(f"StableHLO has no type for {shape}")
    return tensor_type(shape)


def tensor_type(shape: Shape) -> TensorType:
    """The MLIR type of an array shape, without its layout."""
    element = scalar_type(shape.element_type)
    if not shape.is_dynamic:
        return TensorType(shape.dimensions, element)
    pairs = list(zip(shape.dimensions, shape.dynamic_dimensions, strict=True))
    sizes = tuple(None if dynamic else size for size, dynamic in pairs)
    bounds = tuple(size if dynamic and size != UNBOUNDED else None for size, dynamic in pairs)
    return TensorType(sizes, element, None if set(bounds) == {None} else bounds)


def shape_of(type_: Type) -> Shape:
    """The shape of an MLIR type, in default layout.

    Raises ArgumentError for types that HLO lacks, and for sizes that have no value and no bound.
    """
    if isinstance(type_, TensorType):
        return _array_shape(type_)
    if isinstance(type_, TupleType):
        return Shape.tuple_of(map(shape_of, type_.elements))
    if isinstance(type_, DialectType) and type_.name in ("stablehlo.token", "mhlo.token"):
        return TOKEN
    if isinstance(type_, ScalarType):
        return Shape.array(element_type_of(type_))
    raise ArgumentError(f"there is no HLO shape for {type_text(type_)}")


def open_shape_of(type_: Type) -> Shape:
    """The shape of an MLIR type, with unbounded sizes where the type has neither a value nor a bound (SL-25).

    Raises ArgumentError for types that HLO lacks.
    """
    if isinstance(type_, TupleType):
        return Shape.tuple_of(map(open_shape_of, type_.elements))
    return _array_shape(type_, UNBOUNDED) if isinstance(type_, TensorType) else shape_of(type_)


@functools.lru_cache(4096)
def _array_shape(type_: TensorType, open_size: int | None = None) -> Shape:
    bounds = type_.bounds or (None,) * len(type_.dimensions)
    sizes, dynamic = [], []
    for size, bound in zip(type_.dimensions, bounds, strict=True):
        known = size if size is not None else open_size if bound is None else bound
        if known is None:
            raise ArgumentError(f"{type_text(type_)} has a size that is not known while importing, and no bound")
        sizes.append(known)
        dynamic.append(size is None)
    return Shape.array(element_type_of(type_.element_type), sizes, dynamic)


def is_sized(type_: Type) -> bool:
    """Whether each dimension has a size or a bound."""
    if isinstance(type_, TupleType):
        return all(map(is_sized, type_.elements))
    if not isinstance(type_, TensorType):
        return True
    bounds = type_.bounds or (None,) * len(type_.dimensions)
    return all(size is not None or bound is not None for size, bound in zip(type_.dimensions, bounds, strict=True))


def type_text(type_: Type) -> str:
    """The MLIR syntax of a type."""
    if isinstance(type_, ScalarType):
        return type_.name
    if isinstance(type_, TupleType):
        return f"tuple<{', '.join(map(type_text, type_.elements))}>"
    if isinstance(type_, DialectType):
        return f"!{type_.name}"
    if isinstance(type_, QuantizedType):
        return _quantized_text(type_)
    if isinstance(type_, TensorType):
        sizes = "".join(f"{'?' if size is None else size}x" for size in type_.dimensions)
        bounds = ", ".join("?" if bound is None else str(bound) for bound in type_.bounds or ())
        encoding = f", #stablehlo.bounds<{bounds}>" if type_.bounds and any(b is not None for b in type_.bounds) else ""
        return f"tensor<{sizes}{type_text(type_.element_type)}{encoding}>"
    results = ", ".join(map(type_text, type_.results))
    single = len(type_.results) == 1 and not isinstance(type_.results[0], TupleType)
    return f"({', '.join(map(type_text, type_.inputs))}) -> {results if single else f'({results})'}"


def _quantized_text(type_: QuantizedType) -> str:
    low_high = f"<{type_.storage_range[0]}:{type_.storage_range[1]}>" if type_.storage_range else ""
    axis = "" if type_.axis is None else f":{type_.axis}"
    entries = [
        repr(scale) + (f":{zero}" if zero else "") for scale, zero in zip(type_.scales, type_.zero_points, strict=True)
    ]
    scales = entries[0] if type_.axis is None else "{" + ",".join(entries) + "}"
    return f"!quant.uniform<{type_.storage.name}{low_high}:{type_.expressed.name}{axis}, {scales}>"


def i64(value: int) -> Number:
    """The attribute `value : i64`."""
    return Number(int(value), I64)


def i32(value: int) -> Number:
    """The attribute `value : i32`."""
    return Number(int(value), I32)


def i64_array(values: Sequence[int]) -> DenseArray:
    """The attribute `array<i64: ..>`."""
    return DenseArray(I64, tuple(map(int, values)))


def i64_table(rows: Sequence[Sequence[int]], width: int = 2) -> DenseElements:
    """The attribute `dense<..> : tensor<Nxwidthxi64>`; `width` counts only without rows."""
    values = np.array([list(row) for row in rows], np.int64).reshape(len(rows), len(rows[0]) if rows else width)
    return DenseElements(TensorType(values.shape, I64), values)
