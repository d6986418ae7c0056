"""Replica groups in HloInstructionProto: lists of ids, iota lists, or axes of a mesh."""

from __future__ import annotations

import math
from typing import Any

from hloom.errors import ArgumentError, ProtoError
from hloom.ops.attributes import AnyReplicaGroups, AxisRef, IotaReplicaGroups, MeshReplicaGroups, ReplicaGroups
from hloom.proto.annotations import read_iota, write_iota


def read_groups(message: Any) -> AnyReplicaGroups:
    """Reads the groups of a collective; raises ProtoError if they are inconsistent."""
    if message.HasField("iota_collective_device_list"):
        iota = message.iota_collective_device_list
        reshape, transpose = read_iota(iota)
        count = iota.num_replica_groups * iota.num_devices_per_group
        if count != math.prod(reshape) or not 0 < count <= 1 << 24:
            raise ProtoError(f"iota replica groups {list(reshape)} do not hold {count} ids")
        return IotaReplicaGroups(iota.num_replica_groups, iota.num_devices_per_group, reshape, transpose)
    if message.HasField("mesh_axes_replica_group_list"):
        return _read_mesh(message.mesh_axes_replica_group_list)
    groups = message.collective_device_list.replica_groups or message.replica_groups
    return ReplicaGroups(tuple(tuple(group.replica_ids) for group in groups))


def _read_mesh(proto: Any) -> MeshReplicaGroups:
    mesh = proto.mesh
    names, sizes = tuple(axis.name for axis in mesh.axes), tuple(axis.size for axis in mesh.axes)
    refs = tuple(AxisRef(ref.mesh_axis_index, ref.sub_axis_info.pre_size, ref.sub_axis_info.size) for ref in proto.axes)
    iota = mesh.iota_transform
    groups = MeshReplicaGroups(
        names, sizes, refs, tuple(mesh.device_ids), tuple(iota.reshape_dims), tuple(iota.transpose_perm)
    )
    try:
        groups.check()
    except ArgumentError as error:
        raise ProtoError(f"mesh replica groups: {error.message}") from None
    return groups


def _write_mesh(proto: Any, value: MeshReplicaGroups) -> None:
    target = proto.mesh_axes_replica_group_list
    for name, size in zip(value.axis_names, value.axis_sizes, strict=True):
        target.mesh.axes.add(name=name, size=size)
    target.mesh.device_ids.extend(value.device_ids)
    if value.iota_reshape_dims:
        target.mesh.iota_transform.reshape_dims.extend(value.iota_reshape_dims)
        target.mesh.iota_transform.transpose_perm.extend(value.iota_transpose_perm)
    for ref in value.axes:
        axis = target.axes.add(mesh_axis_index=ref.axis)
        if ref.size:
            axis.sub_axis_info.pre_size, axis.sub_axis_info.size = ref.pre_size, ref.size


def write_groups(message: Any, value: AnyReplicaGroups) -> None:
    """Writes the groups of a collective in the field of their form."""
    if isinstance(value, MeshReplicaGroups):
        _write_mesh(message, value)
        return
    if isinstance(value, IotaReplicaGroups):
        iota = message.iota_collective_device_list
        iota.num_replica_groups, iota.num_devices_per_group = value.num_replica_groups, value.num_devices_per_group
        write_iota(iota, value.iota_reshape_dims, value.iota_transpose_perm)
        return
    message.collective_device_list.SetInParent()
    for group in value.groups:
        message.collective_device_list.replica_groups.add(replica_ids=group)
