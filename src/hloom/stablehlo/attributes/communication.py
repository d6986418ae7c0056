"""Codecs of attributes of collectives and transfers: replica groups, channels, source-target pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hloom.errors import ArgumentError
from hloom.ops.attributes import AxisRef, MeshReplicaGroups, ReplicaGroups
from hloom.shape import Shape
from hloom.stablehlo.attributes.codecs import AttributeCodec
from hloom.stablehlo.attributes.values import (
    Attributes,
    FieldValues,
    entries,
    integer,
    integers,
    parameters,
    required,
    string,
    table,
)
from hloom.stablehlo.mlir.ir import Attribute, DenseElements, DialectAttribute
from hloom.stablehlo.mlir.types import i64, i64_table
from hloom.system.records import record


class Groups(AttributeCodec):
    """`replica_groups`: a table whose shorter rows are filled with -1, or axes of a mesh."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        attribute = required(attributes, "replica_groups")
        if isinstance(attribute, DialectAttribute):
            return {"replica_groups": groups_along_axes(attribute)}
        if isinstance(attribute, DenseElements) and attribute.values.size == 0:
            return {"replica_groups": ReplicaGroups()}
        return {"replica_groups": ReplicaGroups(tuple(tuple(i for i in row if i >= 0) for row in table(attribute)))}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        groups = fields["replica_groups"].groups
        width = max(map(len, groups), default=0)
        return {"replica_groups": i64_table([[*row, *[-1] * (width - len(row))] for row in groups], 0)}


def groups_along_axes(attribute: DialectAttribute) -> ReplicaGroups:
    """The explicit groups of `#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [..]>, axes = [..]>`.

    They are enumerated since XLA does not read groups of one device as mesh axes. Raises ArgumentError for malformed
    axes.
    """
    body = parameters(attribute, "replica_group_mesh_axes")
    mesh = parameters(required(body, "mesh"), "mesh")
    axes = [parameters(axis, "mesh_axis") for axis in entries(required(mesh, "axes"))]
    names = tuple(string(required(axis, "name")) for axis in axes)
    sizes = tuple(integer(required(axis, "size")) for axis in axes)
    refs = tuple(_axis_ref(parameters(ref, "axis_ref"), names) for ref in entries(required(body, "axes")))
    groups = MeshReplicaGroups(names, sizes, refs, integers(mesh.get("device_ids", [])))
    groups.check()
    return ReplicaGroups(groups.groups)


def _axis_ref(body: Attributes, names: Sequence[str]) -> AxisRef:
    """Reads an axis by its name; `sub_axis_info = (2)4` is a sub-axis of size 4 after sub-axes of size 2."""
    name, part = string(required(body, "name")), body.get("sub_axis_info")
    if name not in names:
        raise ArgumentError(f"the mesh has no axis {name!r}; it has: {', '.join(names) or 'none'}")
    sizes = map(int, re.findall(r"\d{1,9}", part)) if isinstance(part, str) else ()
    return AxisRef(names.index(name), *sizes)


@record(slots=True)
class Channel(AttributeCodec):
    """HLO's channel id from `channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>`; handle 0 means none.

    `type` is the channel type that is written: 0 or 1 between devices, 2 from device to host, 3 from host to device.
    """

    type: int = 0
    optional: bool = True

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        if self.optional and "channel_handle" not in attributes:
            return {"channel_id": None}
        body = parameters(required(attributes, "channel_handle"), "channel_handle")
        handle = integer(body.get("handle", i64(0)))
        return {"channel_id": handle if handle > 0 or not self.optional else None}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        channel = fields["channel_id"]
        if channel is None and self.optional:
            return {}
        body: dict[str, Attribute] = {"handle": i64(channel or 0), "type": i64(self.type)}
        return {"channel_handle": DialectAttribute("stablehlo.channel_handle", body)}


class Pairs(AttributeCodec):
    """`source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>`."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        attribute = required(attributes, "source_target_pairs")
        if isinstance(attribute, DenseElements) and attribute.values.size == 0:
            return {"source_target_pairs": ()}
        return {"source_target_pairs": table(attribute)}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        return {"source_target_pairs": i64_table(fields["source_target_pairs"])}
