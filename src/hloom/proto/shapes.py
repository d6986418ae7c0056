"""Readers and writers of ShapeProto, LayoutProto and LiteralProto (xla_data.proto)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.errors import ProtoError
from hloom.layout import Layout, PaddingValue, SplitConfig, Tile
from hloom.literal import Literal
from hloom.numerics import bits_of, pack_narrow, unpack_narrow
from hloom.proto.schema import message_class
from hloom.proto.wire import fields_of
from hloom.shape import TOKEN, Shape
from hloom.types import BY_NUMBER, PrimitiveType
from hloom.values import TOKEN_VALUE, Array

MAX_NESTING = 200
MAX_SHAPE_NESTING = 80
"""Maximum depth of tuples that are written: protobuf reads messages nested 100 deep, including those around a shape."""
_PADDING_VALUES = frozenset(p.value for p in PaddingValue)


def read_shape(proto: Any, depth: int = 0) -> Shape:
    """Reads a ShapeProto; a shape without a layout has the default one. `depth` counts the tuples around it.

    Raises ProtoError for unknown element types and inconsistent messages, RuleError for invalid sizes.
    """
    element_type = BY_NUMBER.get(proto.element_type)
    if element_type is None or depth > MAX_NESTING:
        raise ProtoError(f"element type {proto.element_type} is not one that hloom holds")
    if element_type is PrimitiveType.TUPLE:
        return Shape.tuple_of(read_shape(element, depth + 1) for element in proto.tuple_shapes)
    if element_type is PrimitiveType.BUFFER:
        if len(proto.tuple_shapes) != 1:
            raise ProtoError(f"a buffer has one array, got {len(proto.tuple_shapes)} shapes")
        return Shape.buffer_of(read_shape(proto.tuple_shapes[0], depth + 1))
    if not element_type.is_array:
        return TOKEN if element_type is PrimitiveType.TOKEN else Shape(element_type)
    dynamic = tuple(proto.is_dynamic_dimension)
    if dynamic and len(dynamic) != len(proto.dimensions):
        raise ProtoError(f"is_dynamic_dimension needs {len(proto.dimensions)} entries, got {len(dynamic)}")
    layout = read_layout(proto.layout, depth) if proto.HasField("layout") else None
    return Shape.array(element_type, tuple(proto.dimensions), dynamic, layout)


def write_shape(shape: Shape, depth: int = 0) -> Any:
    """Writes a ShapeProto; `depth` counts the tuples around it.

    Raises ProtoError for tuples nested over MAX_SHAPE_NESTING deep.
    """
    if depth > MAX_SHAPE_NESTING:
        raise ProtoError(f"a proto holds tuples nested at most {MAX_SHAPE_NESTING} deep")
    proto = message_class("ShapeProto")(element_type=shape.element_type.value)
    if shape.elements:
        proto.tuple_shapes.extend(write_shape(element, depth + 1) for element in shape.elements)
    elif shape.layout is not None:
        proto.dimensions.extend(shape.dimensions)
        proto.is_dynamic_dimension.extend(shape.dynamic_dimensions)
        proto.layout.CopyFrom(write_layout(shape.layout))
    return proto


def read_layout(proto: Any, depth: int = 0) -> Layout:
    """Reads a LayoutProto; `depth` counts the shapes around it. Raises ProtoError for an unknown padding value."""
    padding = proto.padding_value
    if padding not in _PADDING_VALUES:
        raise ProtoError(f"padding_value {padding} is not one of XLA's")
    physical = read_shape(proto.physical_shape, depth + 1) if proto.HasField("physical_shape") else None
    return Layout(
        tuple(proto.minor_to_major),
        tuple(proto.padded_dimensions),
        PaddingValue(padding) if padding else None,
        tuple(Tile(tuple(tile.dimensions)) for tile in proto.tiles),
        proto.element_size_in_bits,
        proto.memory_space,
        proto.tail_padding_alignment_in_elements or 1,
        BY_NUMBER.get(proto.index_primitive_type),
        BY_NUMBER.get(proto.pointer_primitive_type),
        tuple(SplitConfig(split.dimension, tuple(split.split_indices)) for split in proto.split_configs),
        physical,
        proto.dynamic_shape_metadata_prefix_bytes,
    )


def write_layout(layout: Layout) -> Any:
    """Writes a LayoutProto."""
    proto = message_class("LayoutProto")(
        minor_to_major=layout.minor_to_major,
        padded_dimensions=layout.padded_dimensions,
        padding_value=layout.padding_value.value if layout.padding_value else 0,
        element_size_in_bits=layout.element_size_in_bits,
        memory_space=layout.memory_space,
        tail_padding_alignment_in_elements=layout.tail_padding_alignment_in_elements,
        dynamic_shape_metadata_prefix_bytes=layout.dynamic_shape_metadata_prefix_bytes,
    )
    for tile in layout.tiles:
        proto.tiles.add(dimensions=tile.dimensions)
    for split in layout.split_configs:
        proto.split_configs.add(dimension=split.dimension, split_indices=split.split_indices)
    if layout.index_primitive_type:
        proto.index_primitive_type = layout.index_primitive_type.value
    if layout.pointer_primitive_type:
        proto.pointer_primitive_type = layout.pointer_primitive_type.value
    if layout.physical_shape:
        proto.physical_shape.CopyFrom(write_shape(layout.physical_shape))
    return proto


# Literals. Floats are copied as bytes of the wire format: a Python float would make signalling NaNs quiet.

_FIXED = {PrimitiveType.F32: 8, PrimitiveType.F64: 9, PrimitiveType.C64: 12, PrimitiveType.C128: 18}
_VARINT = {"pred": "preds", "s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s"}


def is_elided(proto: Any) -> bool:
    """Whether a LiteralProto has only a shape: its elements were omitted to save space."""
    if proto.tuple_literals:
        return any(map(is_elided, proto.tuple_literals))
    if [field.name for field, _ in proto.ListFields()] != ["shape"]:
        return False
    shape = read_shape(proto.shape)
    return shape.is_array and shape.element_count > 0


def read_literal(proto: Any, depth: int = 0) -> Literal:
    """Reads a LiteralProto, whose elements are in the order of linear memory; `depth` counts the tuples around it.

    Raises ProtoError for another number of elements.
    """
    shape = read_shape(proto.shape)
    if shape.is_tuple:
        if len(proto.tuple_literals) != len(shape.elements) or depth > MAX_NESTING:
            raise ProtoError(
                f"a literal of {shape} needs {len(shape.elements)} elements, got {len(proto.tuple_literals)}"
            )
        parts = [read_literal(element, depth + 1) for element in proto.tuple_literals]
        return Literal(shape, tuple(part.value for part in parts))
    if not shape.is_array:
        return Literal(shape, TOKEN_VALUE)
    array = _read_array(proto, shape)
    if array.size != shape.element_count:
        raise ProtoError(f"a literal of {shape} needs {shape.element_count} elements, got {array.size}")
    array = array.reshape(shape.dimensions)
    if not shape.layout or not shape.layout.is_dim0_major:
        order = shape.layout.minor_to_major if shape.layout else ()
        # XLA lists the elements in the order of linear memory.
        physical = [shape.dimensions[d] for d in reversed(order)]
        array = array.reshape(physical).transpose(np.argsort(order[::-1]))
    array.flags.writeable = False
    return Literal(shape, array)


def _read_array(proto: Any, shape: Shape) -> Array:
    element_type = shape.element_type
    dtype = element_type.dtype
    if element_type in _FIXED:
        part = element_type.real.dtype
        fields = fields_of(proto.SerializeToString())  # elements of fixed width, packed or not
        raw = b"".join(content for number, _, content in fields if number == _FIXED[element_type])
        if len(raw) % dtype.itemsize:
            raise ProtoError(f"the bytes of a literal of {shape} are cut off")
        return np.frombuffer(raw, part).view(dtype).copy()
    if element_type.text in _VARINT:
        return np.array(getattr(proto, _VARINT[element_type.text]), dtype)
    raw = getattr(proto, f"{element_type.text}s")
    if element_type.bits < 8:
        return _read_narrow(np.frombuffer(raw, np.uint8), shape)
    if len(raw) % dtype.itemsize:
        raise ProtoError(f"the bytes of a literal of {shape} are cut off")
    return np.frombuffer(raw, dtype).copy()


def _read_narrow(raw: Array, shape: Shape) -> Array:
    """Reads elements of less than a byte: each in a byte, or packed, as in older files."""
    count, dtype = shape.element_count, shape.element_type.dtype
    each = 8 // shape.element_type.bits
    if len(raw) == count:
        raw = pack_narrow(raw.view(dtype))
    elif len(raw) != -(-count // each):
        raise ProtoError(f"a literal of {shape} needs {count} elements, got {len(raw)}, or {len(raw) * each} if packed")
    return unpack_narrow(raw, count, dtype)


def write_literal(literal: Literal) -> Any:
    """Writes a LiteralProto in the order of linear memory; raises ProtoError for deeply nested tuples."""
    shape = literal.shape
    proto = message_class("LiteralProto")()
    proto.shape.CopyFrom(write_shape(shape))
    if shape.is_tuple:
        proto.tuple_literals.extend(map(write_literal, literal.elements))
        return proto
    if shape.layout is None:
        return proto
    array = np.asarray(literal.value).transpose(shape.layout.minor_to_major[::-1]).reshape(-1)
    element_type = shape.element_type
    if element_type in _FIXED:
        raw = np.ascontiguousarray(array).tobytes()
        if raw:
            proto.MergeFromString(_encoded(_FIXED[element_type] << 3 | 2) + _encoded(len(raw)) + raw)
    elif element_type.text in _VARINT:
        getattr(proto, _VARINT[element_type.text]).extend(array.tolist())
    elif element_type.bits < 8:
        mask = np.uint8((1 << element_type.bits) - 1)
        setattr(proto, f"{element_type.text}s", (bits_of(np.ascontiguousarray(array)) & mask).tobytes())
    else:
        setattr(proto, f"{element_type.text}s", array.tobytes())
    return proto


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
