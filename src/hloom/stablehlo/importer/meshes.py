"""Shardy's meshes, and conversion of shardings and replica groups along mesh axes to HLO's.

A mesh is `<["x"=2, "y"=4]>`, with `device_ids=[..]` if devices are not in order. A sharding names a mesh, and for each
dimension of an array its axes or sub-axes: `@mesh, [{"x"}, {"y":(1)2}], unreduced={"z"}`. HLO expresses it as tiles of
devices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from hloom.errors import ArgumentError
from hloom.ops.attributes import AxisRef, MeshReplicaGroups
from hloom.sharding import Sharding, ShardingType, simplest_iota
from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, Operation, Symbol
from hloom.stablehlo.mlir.types import i64

Meshes = dict[str, str]
"""The text of each mesh between its angle brackets, by name."""

REPLICATED = Sharding(ShardingType.REPLICATED)

_MESH_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d{1,9})')
_DEVICE_IDS = re.compile(r"device_ids\s*=\s*\[([^\]]*)\]")
_INLINED = re.compile(r"mesh<([^<>]*)>")
_SHARDING = re.compile(r'@("[^"]*"|[\w.$\-]+)\s*,\s*\[([^\]]*)\]([^<>]*)')
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_AXIS = re.compile(r'"([^"]*)"(?::\((\d{1,9})\)(\d{1,9}))?')
_UNREDUCED = re.compile(r"unreduced\s*=\s*\w*\{([^{}]*)\}")


def mesh_texts(operation: Operation) -> Meshes:
    """The name and the text of the mesh that an `sdy.mesh` op defines."""
    mesh = operation.attributes.get("mesh")
    if not isinstance(mesh, DialectAttribute) or not isinstance(mesh.body, str):
        return {}
    return {str(operation.attributes["sym_name"]): mesh.body}


def mesh_axes(text: str) -> dict[str, int]:
    """The sizes of axes by name, in order, read from the text of a mesh."""
    return {axis: int(size) for axis, size in _MESH_AXIS.findall(text)}


def device_ids(text: str) -> tuple[int, ...]:
    """The devices in mesh order if the text of the mesh lists them, else ()."""
    match = _DEVICE_IDS.search(text)
    return tuple(map(int, re.findall(r"\d{1,9}", match[1]))) if match else ()


def with_named_meshes(text: str, meshes: Meshes) -> str:
    """Replaces meshes inlined in shardings, `mesh<["x"=2]>, [{"x"}]`, by names; adds unknown ones to `meshes`."""
    return _INLINED.sub(lambda match: f"@{_name_of(match[1], meshes)}", text)


def _name_of(mesh: str, meshes: Meshes) -> str:
    existing = next((name for name, text in meshes.items() if text.replace(" ", "") == mesh.replace(" ", "")), None)
    if existing is not None:
        return existing
    name = next(name for name in ("mesh", *(f"mesh_{i}" for i in range(len(meshes)))) if name not in meshes)
    meshes[name] = mesh
    return name


def with_mesh(groups: DialectAttribute, meshes: Meshes) -> DialectAttribute:
    """Replaces the name of the mesh in replica groups, `mesh = @mesh`, by the mesh itself.

    Raises ArgumentError for an unknown mesh.
    """
    mesh = groups.body.get("mesh") if isinstance(groups.body, dict) else None
    if not isinstance(groups.body, dict) or not isinstance(mesh, Symbol):
        return groups
    if mesh.name not in meshes:
        raise ArgumentError(f"there is no mesh @{mesh.name}; there is: {', '.join(meshes) or 'none'}")
    text = meshes[mesh.name]
    axes: list[Attribute] = [
        DialectAttribute("stablehlo.mesh_axis", {"name": name, "size": i64(size)})
        for name, size in mesh_axes(text).items()
    ]
    body: dict[str, Attribute] = {"axes": axes, "device_ids": list(map(i64, device_ids(text)))}
    return DialectAttribute(groups.name, {**groups.body, "mesh": DialectAttribute("stablehlo.mesh", body)})


def mesh_shardings(text: str, meshes: Meshes) -> list[Sharding | None]:
    """The shardings in a text, in order; None for one over an unknown mesh.

    Raises ArgumentError for unknown axes.
    """
    return [
        _sharding(meshes[name.strip('"')], dimensions, rest) if name.strip('"') in meshes else None
        for name, dimensions, rest in _SHARDING.findall(text)
    ]


def _sharding(mesh: str, dimensions: str, rest: str) -> Sharding:
    """Tiles of devices: a tile dimension for each array dimension, one for partial sums and one for replication."""
    axes, devices = mesh_axes(mesh), device_ids(mesh)
    if not axes and devices:
        return Sharding(ShardingType.MAXIMAL, tile_assignment_devices=devices[:1])
    dimension_axes = [_axis_refs(entry, axes) for entry in _DIMENSION.findall(dimensions)]
    match = _UNREDUCED.search(rest)
    unreduced_axes = _axis_refs(match[1], axes) if match else []
    used = [ref for refs in dimension_axes for ref in refs]
    groups = MeshReplicaGroups(tuple(axes), tuple(axes.values()), (*used, *unreduced_axes), devices)
    groups.check()
    sizes, order = groups.pieces()
    tiles = [_shard_count(refs, groups) for refs in dimension_axes]
    partial_sums = _shard_count(unreduced_axes, groups)
    copies = math.prod(sizes) // (math.prod(tiles) * partial_sums)
    if math.prod(tiles) * partial_sums == 1:
        return REPLICATED
    last = {ShardingType.UNREDUCED: partial_sums, ShardingType.REPLICATED: copies}
    kinds = tuple(kind for kind, size in last.items() if size > 1)
    iota = ((), ()) if devices else simplest_iota(tuple(sizes), tuple(order))
    listed = np.array(devices).reshape(sizes).transpose(order).reshape(-1).tolist() if devices else ()
    return Sharding(
        ShardingType.OTHER,
        (*tiles, *(last[kind] for kind in kinds)),
        tuple(listed),
        *iota,
        replicate_on_last_tile_dim=kinds == (ShardingType.REPLICATED,),
        last_tile_dims=kinds if ShardingType.UNREDUCED in kinds else (),
    )


def _axis_refs(text: str, axes: dict[str, int]) -> list[AxisRef]:
    names = list(axes)
    matches = _AXIS.findall(text)
    unknown = [name for name, _, _ in matches if name not in axes]
    if unknown:
        raise ArgumentError(f"the mesh has no axis {unknown[0]!r}; it has: {', '.join(axes) or 'none'}")
    return [AxisRef(names.index(name), int(before or 0), int(size or 0)) for name, before, size in matches]


def _shard_count(refs: Sequence[AxisRef], groups: MeshReplicaGroups) -> int:
    return math.prod(ref.size or groups.axis_sizes[ref.axis] for ref in refs)
