"""Readers and writers of OpMetadata, OpSharding and StackFrameIndexProto (xla_data.proto, hlo.proto)."""

from __future__ import annotations

import re
from typing import Any

from hloom.errors import ProtoError
from hloom.proto.schema import message_class
from hloom.shape import Ints
from hloom.sharding import Sharding, ShardingType, simplest_iota

_SIMPLE_TYPES = {5, 3, 8, 9}  # int32, int64, bool, string


def utf8(text: str) -> str:
    """Text for a string field, which must be UTF-8: other bytes become the replacement character."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def utf8_entries(entries: dict[str, str]) -> dict[str, str]:
    """Applies `utf8` to names and values."""
    return {utf8(name): utf8(value) for name, value in entries.items()}


def read_metadata(proto: Any) -> dict[str, Any]:
    """Reads OpMetadata as the dictionary that HLO text shows."""
    metadata: dict[str, Any] = {}
    for descriptor, value in proto.ListFields():
        if descriptor.is_repeated and descriptor.enum_type is not None:
            metadata[descriptor.name] = "{" + ",".join(map(str, value)) + "}"
        elif descriptor.type in _SIMPLE_TYPES:
            metadata[descriptor.name] = value
    return metadata


def write_metadata(metadata: dict[str, Any]) -> Any:
    """Writes OpMetadata; entries that XLA's proto lacks are dropped.

    Raises ProtoError for values that do not fit their field.
    """
    proto = message_class("OpMetadata")()
    for name, value in metadata.items():
        descriptor = proto.DESCRIPTOR.fields_by_name.get(name)
        if descriptor is None:
            continue
        try:
            if descriptor.is_repeated:
                getattr(proto, name).extend(map(int, re.findall(r"\d{1,18}", str(value))))
            elif descriptor.type in _SIMPLE_TYPES:
                setattr(proto, name, utf8(value) if isinstance(value, str) else value)
        except (TypeError, ValueError) as error:
            raise ProtoError(f"metadata {name}={value!r} does not fit the proto: {error}") from None
    return proto


def read_sharding(proto: Any, depth: int = 0) -> Sharding:
    """Reads an OpSharding; `depth` counts the tuples around it.

    Raises ProtoError for unknown types, a maximal sharding without exactly one device, and invalid permutations.
    """
    names = {t.number: t.name for t in message_class("OpSharding").DESCRIPTOR.enum_types_by_name["Type"].values}
    if proto.type not in names or depth > 200 or any(t not in names for t in proto.last_tile_dims):
        raise ProtoError(f"a sharding has the unknown type {proto.type}")
    extra = ""
    if proto.is_shard_group:
        extra = f"shard_{'like' if proto.shard_group_type else 'as'} {proto.shard_group_id}"
    kind = ShardingType[names[proto.type]]
    if kind is ShardingType.MAXIMAL and len(proto.tile_assignment_devices) != 1:
        raise ProtoError("a maximal sharding names one device")
    return Sharding(
        kind,
        tuple(proto.tile_assignment_dimensions) if kind is not ShardingType.MAXIMAL else (),
        tuple(proto.tile_assignment_devices),
        *read_iota(proto),
        proto.replicate_on_last_tile_dim,
        tuple(ShardingType[names[t]] for t in proto.last_tile_dims),
        tuple(read_sharding(part, depth + 1) for part in proto.tuple_shardings),
        extra,
    )


def read_iota(proto: Any) -> tuple[Ints, Ints]:
    """Reads the fields iota_reshape_dims and iota_transpose_perm of a message, in the simplest form.

    Raises ProtoError unless the latter permutes the former.
    """
    sizes, permutation = tuple(proto.iota_reshape_dims), tuple(proto.iota_transpose_perm)
    if permutation and sorted(permutation) != list(range(len(sizes))):
        raise ProtoError(f"the order {list(permutation)} of devices must permute the {len(sizes)} sizes {list(sizes)}")
    return simplest_iota(sizes, permutation) if sizes else ((), ())


def write_iota(proto: Any, sizes: Ints, permutation: Ints) -> None:
    """Writes the fields that `read_iota` reads; XLA's reader requires the permutation, even the identity."""
    proto.iota_reshape_dims.extend(sizes)
    proto.iota_transpose_perm.extend(permutation or range(len(sizes)))


def write_sharding(sharding: Sharding) -> Any:
    """Writes an OpSharding; raises ProtoError for shardings over named mesh axes, which are kept as text only."""
    if sharding.named:
        raise ProtoError("the proto cannot express shardings over named mesh axes: they are kept in text only")
    proto = message_class("OpSharding")()
    types = {t.name: t.number for t in proto.DESCRIPTOR.enum_types_by_name["Type"].values}
    proto.type = types[sharding.type.name]
    maximal = sharding.type is ShardingType.MAXIMAL
    proto.tile_assignment_dimensions.extend([1] if maximal else sharding.tile_assignment_dimensions)
    proto.tile_assignment_devices.extend(sharding.tile_assignment_devices)
    write_iota(proto, sharding.iota_reshape_dims, sharding.iota_transpose_perm)
    proto.replicate_on_last_tile_dim = sharding.replicate_on_last_tile_dim
    proto.last_tile_dims.extend(types[t.name] for t in sharding.last_tile_dims)
    proto.tuple_shardings.extend(map(write_sharding, sharding.tuple_shardings))
    group = re.search(r"shard_(as|like) (\d{1,18})\b", sharding.extra)
    if group:
        proto.is_shard_group, proto.shard_group_id = True, int(group[2])
        proto.shard_group_type = 1 if group[1] == "like" else 0
    return proto


# Tables of stack frames

_TABLES = {
    "FileNames": "file_names",
    "FunctionNames": "function_names",
    "FileLocations": "file_locations",
    "StackFrames": "stack_frames",
}
"""Titles of the tables in HLO text -> fields of StackFrameIndexProto."""
_ROW_FIELDS = {
    "file_locations": ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column"),
    "stack_frames": ("file_location_id", "parent_frame_id"),
}


_TEXT_OFFSET = {"parent_frame_id": 1}
"""Differences between text and proto: parent_frame_id is 1 in XLA's text for none, 0 in its proto."""


def read_stack_frames(proto: Any) -> dict[str, list[str]]:
    """Reads a StackFrameIndexProto as the tables that HLO text shows: title -> rows as text."""
    from hloom.text.scanner import quote

    tables: dict[str, list[str]] = {}
    for title, name in _TABLES.items():
        rows = getattr(proto, name)
        if not rows:
            continue
        if name in _ROW_FIELDS:
            tables[title] = [
                "{"
                + " ".join(f"{field}={getattr(row, field) + _TEXT_OFFSET.get(field, 0)}" for field in _ROW_FIELDS[name])
                + "}"
                for row in rows
            ]
        else:
            tables[title] = [quote(row) for row in rows]
    return tables


def write_stack_frames(tables: dict[str, list[str]], proto: Any) -> None:
    """Writes the tables of HLO text to a StackFrameIndexProto; unknown tables and fields are dropped."""
    from hloom.text.scanner import unquote

    for title, rows in tables.items():
        name = _TABLES.get(title)
        if name is None:
            continue
        for row in rows:
            if name in _ROW_FIELDS:
                fields = {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d{1,9})\b", row)}
                known = {
                    key: value - _TEXT_OFFSET.get(key, 0) for key, value in fields.items() if key in _ROW_FIELDS[name]
                }
                getattr(proto, name).add(**known)
            else:
                getattr(proto, name).append(utf8(unquote(row)))
