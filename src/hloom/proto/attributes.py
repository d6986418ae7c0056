"""Readers and writers of the fields of HloInstructionProto for each kind of attribute.

`Field.proto` is the dotted path of the field in the message. A reader returns None for an absent field, which means the
declared default; a writer is not called for None.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from hloom.errors import ProtoError
from hloom.ops import kinds
from hloom.ops.attributes import (
    ConvolutionDimensionNumbers,
    Domain,
    OutputOperandAlias,
    PaddingDimension,
    Precision,
    ResultAccuracy,
    SliceDimension,
    WindowDimension,
)
from hloom.ops.kinds import AttributeKind, EnumKind
from hloom.ops.operation import REQUIRED, Field, Operation
from hloom.proto.annotations import read_sharding, utf8, write_sharding
from hloom.proto.replica_groups import read_groups, write_groups
from hloom.proto.schema import message_class
from hloom.proto.shapes import read_literal, read_shape, write_literal, write_shape
from hloom.text import attributes as text_attributes

_FRONTEND_PREFIX = "attribute."
"""Prefix of frontend attributes that hold attributes of operations which XLA's proto lacks, as HLO text."""

Reader = Callable[[Any, str, Field], Any]
"""Reads the field of a name in a message, for a declared attribute."""
Writer = Callable[[Any, str, Any], None]
"""Writes a value to the field of a name in a message."""


def read(proto: Any, field: Field) -> Any:
    """Reads an attribute of an instruction proto; None if it is absent.

    Raises ProtoError for an inconsistent message, ParseError for malformed text in a frontend attribute.
    """
    path = field.proto or ""
    if not _has_field(path):
        text = proto.frontend_attributes.map.get(_FRONTEND_PREFIX + field.name)
        return None if text is None else text_attributes.read(field.kind, text, text, 0)
    *outer, name = path.split(".")
    for part in outer:
        if not proto.HasField(part):
            return None
        proto = getattr(proto, part)
    reader = _read_enum if isinstance(field.kind, EnumKind) else TABLE[field.kind][0]
    return reader(proto, name, field)


def write(proto: Any, field: Field, value: Any) -> None:
    """Writes an attribute to an instruction proto; raises ProtoError for a value that the proto cannot express."""
    path = field.proto or ""
    if not _has_field(path):
        proto.frontend_attributes.map[_FRONTEND_PREFIX + field.name] = text_attributes.write(field.kind, value)
        return
    *outer, name = path.split(".")
    for part in outer:
        proto = getattr(proto, part)
        proto.SetInParent()
    writer = _write_enum if isinstance(field.kind, EnumKind) else TABLE[field.kind][1]
    writer(proto, name, value)


def frontend_attributes(proto: Any, declaration: type[Operation]) -> dict[str, str]:
    """The frontend attributes of an instruction proto, without attributes of the operation that `write` put there."""
    entries = dict(proto.frontend_attributes.map)
    for field in declaration.fields if entries else ():
        entries.pop(_FRONTEND_PREFIX + field.name, None)
    return entries


@functools.cache
def _has_field(path: str) -> bool:
    """Whether XLA's proto has a field of this path; attributes without one are stored as frontend attributes."""
    descriptor = message_class("HloInstructionProto").DESCRIPTOR
    for name in path.split("."):
        if name.isdigit():
            continue
        field = descriptor.fields_by_name.get(name) if descriptor is not None else None
        if field is None:
            return False
        descriptor = field.message_type
    return True


def _is_repeated(message: Any, name: str) -> bool:
    return bool(message.DESCRIPTOR.fields_by_name[name].is_repeated)


def _read_scalar(message: Any, name: str, field: Field) -> Any:
    value = getattr(message, name)
    if _is_repeated(message, name):
        return _single(field, value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    absent = not message.HasField(name) if descriptor.has_presence else not value and not isinstance(value, bool)
    # Proto 3 does not distinguish 0 from absent: for a required attribute, 0 is its value.
    return None if absent and field.default is not REQUIRED else value


def _single(field: Field, values: Any) -> Any:
    if len(values) > 1:
        raise ProtoError(f"{field.proto} holds one number, got {list(values)}")
    return values[0] if values else None


def _write_scalar(message: Any, name: str, value: Any) -> None:
    if _is_repeated(message, name):
        getattr(message, name).append(value)
        return
    if message.DESCRIPTOR.fields_by_name[name].type == 12:
        value = value.encode("utf-8", "surrogateescape")
    setattr(message, name, utf8(value) if isinstance(value, str) else value)


def _read_enum(message: Any, name: str, field: Field) -> Any:
    value = getattr(message, name)
    if isinstance(value, str):
        return value or None
    assert isinstance(field.kind, EnumKind)
    members = field.kind.enumeration.__members__
    descriptor = message.DESCRIPTOR.fields_by_name[name].enum_type
    word = descriptor.values_by_number[value].name if value in descriptor.values_by_number else ""
    if word in members:
        return None if value == 0 and field.default is not REQUIRED else members[word]
    if value == 0 and field.default is not REQUIRED:
        return None
    raise ProtoError(f"{field.proto} is {word or value}, which is not a value of {field.kind}")


def _write_enum(message: Any, name: str, value: Any) -> None:
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    if descriptor.enum_type is None:
        setattr(message, name, value.value)
    else:
        setattr(message, name, descriptor.enum_type.values_by_name[value.name].number)


def _read_list(message: Any, name: str, field: Field) -> Any:
    values = tuple(getattr(message, name))
    return values if values or field.default is REQUIRED else None


def _write_list(message: Any, name: str, value: Any) -> None:
    getattr(message, name).extend(value)


def _read_precisions(message: Any, name: str, field: Field) -> Any:
    names = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number
    try:
        return tuple(Precision[names[number].name] for number in getattr(message, name))
    except KeyError:
        raise ProtoError(f"{field.proto} holds an unknown precision") from None


def _write_precisions(message: Any, name: str, value: Any) -> None:
    values = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_name
    getattr(message, name).extend(values[precision.name].number for precision in value)


def _records(cls: type) -> tuple[Reader, Writer]:
    """Reader and writer of a list of messages that have the fields of a data class."""
    names = [f.name for f in dataclasses.fields(cls)]

    def reader(message: Any, name: str, field: Field) -> Any:
        if not getattr(message, name) and field.default is not REQUIRED:
            return None
        return tuple(cls(*(getattr(entry, n) for n in names)) for entry in getattr(message, name))

    def writer(message: Any, name: str, value: Any) -> None:
        for entry in value:
            getattr(message, name).add(**{n: getattr(entry, n) for n in names})

    return reader, writer


_write_window_dimensions = _records(WindowDimension)[1]


def _read_window(message: Any, name: str, field: Field) -> Any:
    if not message.HasField(name):
        return None
    return tuple(
        WindowDimension(
            d.size,
            d.stride,
            d.padding_low,
            d.padding_high,
            d.window_dilation or 1,
            d.base_dilation or 1,
            d.window_reversal,
        )
        for d in getattr(message, name).dimensions
    )


def _write_window(message: Any, name: str, value: Any) -> None:
    window = getattr(message, name)
    window.SetInParent()
    _write_window_dimensions(window, "dimensions", value)


_DIMENSION_FIELDS = [f.name for f in dataclasses.fields(ConvolutionDimensionNumbers)]


def _read_dim_labels(message: Any, name: str, field: Field) -> Any:
    if not message.HasField(name):
        return None
    dimensions = getattr(message, name)
    fields = (getattr(dimensions, n) for n in _DIMENSION_FIELDS)
    values: list[Any] = [v if isinstance(v, int) else tuple(v) for v in fields]
    return ConvolutionDimensionNumbers(*values)


def _write_dim_labels(message: Any, name: str, value: Any) -> None:
    dimensions = getattr(message, name)
    dimensions.SetInParent()
    for n in _DIMENSION_FIELDS:
        field_value = getattr(value, n)
        if isinstance(field_value, int):
            setattr(dimensions, n, field_value)
        else:
            getattr(dimensions, n).extend(field_value)


def _read_pairs(message: Any, name: str, field: Field) -> Any:
    return tuple((pair.source, pair.target) for pair in getattr(message, name))


def _write_pairs(message: Any, name: str, value: Any) -> None:
    for source, target in value:
        getattr(message, name).add(source=source, target=target)


def _read_aliasing(message: Any, name: str, field: Field) -> Any:
    return tuple(
        OutputOperandAlias(tuple(a.output_shape_index), a.operand_index, tuple(a.operand_shape_index))
        for a in getattr(message, name)
    )


def _write_aliasing(message: Any, name: str, value: Any) -> None:
    for a in value:
        getattr(message, name).add(
            output_shape_index=a.output_index, operand_index=a.operand_number, operand_shape_index=a.operand_index
        )


def _read_shape(message: Any, name: str, field: Field) -> Any:
    return read_shape(getattr(message, name)) if message.HasField(name) else None


def _write_shape(message: Any, name: str, value: Any) -> None:
    getattr(message, name).CopyFrom(write_shape(value))


def _read_shapes(message: Any, name: str, field: Field) -> Any:
    return tuple(map(read_shape, getattr(message, name))) if message.constrain_layout else None


def _write_shapes(message: Any, name: str, value: Any) -> None:
    message.constrain_layout = True
    getattr(message, name).extend(map(write_shape, value))


def _read_literal(message: Any, name: str, field: Field) -> Any:
    return read_literal(getattr(message, name)) if message.HasField(name) else None


def _write_literal(message: Any, name: str, value: Any) -> None:
    getattr(message, name).CopyFrom(write_literal(value))


_MODES = ("default", "highest")


def _read_accuracy(message: Any, name: str, field: Field) -> Any:
    if not message.HasField(name):
        return None
    accuracy = getattr(message, name)
    if accuracy.HasField("tolerance"):
        tolerance = accuracy.tolerance
        return ResultAccuracy(atol=tolerance.atol, rtol=tolerance.rtol, ulps=tolerance.ulps)
    if accuracy.mode not in (0, 1):
        raise ProtoError(f"result_accuracy has the unknown mode {accuracy.mode}")
    return ResultAccuracy(_MODES[accuracy.mode])


def _write_accuracy(message: Any, name: str, value: Any) -> None:
    if value.has_tolerance:
        tolerance = getattr(message, name).tolerance
        tolerance.atol, tolerance.rtol, tolerance.ulps = value.atol, value.rtol, value.ulps
    elif value.mode != "default":
        getattr(message, name).mode = _MODES.index(value.mode)


def _read_domain(message: Any, name: str, field: Field) -> Any:
    if not message.HasField("domain_entry_sharding"):
        return None
    return Domain("sharding", read_sharding(message.domain_entry_sharding), read_sharding(message.domain_exit_sharding))


def _write_domain(message: Any, name: str, value: Any) -> None:
    message.domain_entry_sharding.CopyFrom(write_sharding(value.entry))
    message.domain_exit_sharding.CopyFrom(write_sharding(value.exit))


_SCALAR = (_read_scalar, _write_scalar)
_LIST = (_read_list, _write_list)

TABLE: dict[AttributeKind, tuple[Reader, Writer]] = {
    kinds.BOOL: _SCALAR,
    kinds.INT: _SCALAR,
    kinds.FLOAT: _SCALAR,
    kinds.STRING: _SCALAR,
    kinds.DIMENSION: _SCALAR,
    kinds.INTS: _LIST,
    kinds.BOOLS: _LIST,
    kinds.SHAPE: (_read_shape, _write_shape),
    kinds.SHAPES: (_read_shapes, _write_shapes),
    kinds.LITERAL: (_read_literal, _write_literal),
    kinds.WINDOW: (_read_window, _write_window),
    kinds.DIM_LABELS: (_read_dim_labels, _write_dim_labels),
    kinds.PADDING: _records(PaddingDimension),
    kinds.SLICES: _records(SliceDimension),
    kinds.REPLICA_GROUPS: (
        lambda message, name, field: read_groups(message),
        lambda message, name, value: write_groups(message, value),
    ),
    kinds.PAIRS: (_read_pairs, _write_pairs),
    kinds.PRECISIONS: (_read_precisions, _write_precisions),
    kinds.ALIASING: (_read_aliasing, _write_aliasing),
    kinds.RESULT_ACCURACY: (_read_accuracy, _write_accuracy),
    kinds.DOMAIN: (_read_domain, _write_domain),
}
