"""Shardings, frontend attributes and meshes of StableHLO text as HLO has them.

A sharding is a string in HLO's own syntax (`mhlo.sharding = "{devices=[2,1]<=[2]}"`), or names axes of a mesh
(`sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>`). The latter becomes the former where all its axes are whole; its
text is kept as a frontend attribute, where XLA looks for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.proto.annotations import read_sharding
from hloom.proto.schema import message_class
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType, simplest_iota
from hloom.stablehlo.attributes import boolean
from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, Operation, Symbol
from hloom.stablehlo.mlir.types import i64
from hloom.text.scanner import Scanner, without_comments
from hloom.text.sharding import scan_sharding

Meshes = Mapping[str, str]
REPLICATED = Sharding(ShardingType.REPLICATED)

_MESH_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d{1,9})')
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_AXIS = re.compile(r'"([^"]*)"(:?)')


def mesh_texts(operation: Operation) -> dict[str, str]:
    """The name and the text of a mesh."""
    mesh = operation.attributes.get("mesh")
    if not isinstance(mesh, DialectAttribute) or not isinstance(mesh.body, str):
        return {}
    return {str(operation.attributes["sym_name"]): mesh.body}


def with_mesh(groups: DialectAttribute, meshes: Meshes) -> DialectAttribute:
    """Groups along axes of a mesh that has a name, `mesh = @mesh`, with what the mesh is in place of the name."""
    mesh = groups.body.get("mesh") if isinstance(groups.body, dict) else None
    if not isinstance(groups.body, dict) or not isinstance(mesh, Symbol):
        return groups
    if mesh.name not in meshes:
        raise ArgumentError(f"there is no mesh @{mesh.name}; there is: {', '.join(meshes) or 'none'}")
    text = meshes[mesh.name]
    axes = [
        DialectAttribute("stablehlo.mesh_axis", {"name": name, "size": i64(size)})
        for name, size in mesh_axes(text).items()
    ]
    devices = re.search(r"device_ids\s*=\s*\[([^\]]*)\]", text)
    body: dict[str, Attribute] = {"axes": list(axes)}
    if devices:
        body["device_ids"] = [i64(int(device)) for device in re.findall(r"\d{1,9}", devices[1])]
    return DialectAttribute(groups.name, {**groups.body, "mesh": DialectAttribute("stablehlo.mesh", body)})


def mesh_axes(text: str) -> dict[str, int]:
    """The sizes of the axes in the text of a mesh, in order."""
    return {axis: int(size) for axis, size in _MESH_AXIS.findall(text)}


def annotate(attributes: Mapping[str, Attribute], results: Sequence[Instruction], meshes: Meshes) -> None:
    """Puts shardings and frontend attributes on the instruction that computes an op's results."""
    interesting = {
        key: value for key, value in attributes.items() if key.startswith(("mhlo.sharding", "mhlo.fro", "sdy.s"))
    }
    if not interesting or not results:
        return
    instruction = results[0]
    if instruction.opcode == "get-tuple-element" and instruction.operands:
        instruction = instruction.operands[0]
    frontend = attributes.get("mhlo.frontend_attributes")
    if isinstance(frontend, dict):
        instruction.frontend_attributes |= {key: str(value) for key, value in frontend.items()}
    _shard(instruction, attributes, meshes, "#sdy.sharding_per_value<[<{}>]>")


def argument_annotations(parameter: Instruction, attributes: Mapping[str, Attribute], meshes: Meshes) -> None:
    """Puts what an argument of the main function says on its parameter."""
    frontend = attributes.get("mhlo.frontend_attributes")
    if isinstance(frontend, dict):
        parameter.frontend_attributes |= {key: str(value) for key, value in frontend.items()}
    replication = attributes.get("mhlo.parameter_replication")
    if isinstance(replication, list) and replication:
        flags = tuple(map(boolean, replication))
        parameter.op = parameter.op.replace(parameter_replicated_at_leaf_buffers=flags)
    _shard(parameter, attributes, meshes, "#sdy.sharding<{}>")


def _shard(instruction: Instruction, attributes: Mapping[str, Attribute], meshes: Meshes, form: str) -> None:
    named = attributes.get("sdy.sharding")
    if isinstance(named, DialectAttribute) and isinstance(named.body, str):
        body = re.sub(r"^\[<(.*)>\]$", r"\1", named.body)
        instruction.frontend_attributes["xla.sdy.sharding"] = form.format(body)
        instruction.sharding = mesh_sharding(body, meshes)
    sharding = _written(attributes)
    if sharding is not None:
        instruction.sharding = sharding


def _written(attributes: Mapping[str, Attribute]) -> Sharding | None:
    text = attributes.get("mhlo.sharding")
    if not isinstance(text, str):
        return None
    if not text.lstrip().startswith("{"):
        return _serialised(text)
    scanner = Scanner(without_comments(text))
    sharding = scan_sharding(scanner)
    if not scanner.at_end():
        raise ArgumentError(f"mhlo.sharding: expected the end of the sharding, got {scanner.shown()}")
    return sharding


def _serialised(text: str) -> Sharding:
    """The sharding in the bytes of a proto, as older programs have it."""
    from google.protobuf.message import DecodeError

    proto = message_class("OpSharding")()
    try:
        proto.ParseFromString(text.encode("utf-8", "surrogateescape"))
    except (DecodeError, UnicodeError):
        raise ArgumentError(
            f"mhlo.sharding is a sharding in text or the bytes of an OpSharding, got {text!r}"
        ) from None
    return read_sharding(proto)


def result_sharding(entries: Attribute, shape: Shape, meshes: Meshes) -> Sharding | None:
    """The sharding of the main function's results; results that say nothing are replicated."""
    if not isinstance(entries, list):
        return None
    found: list[Sharding | None] = []
    for attributes in entries:
        named = attributes.get("sdy.sharding") if attributes else None
        if isinstance(named, DialectAttribute) and isinstance(named.body, str):
            found.append(mesh_sharding(named.body, meshes))
        else:
            found.append(_written(attributes or {}))
    if not any(found):
        return None
    if shape.is_tuple and len(found) == len(shape.elements):
        return Sharding(ShardingType.TUPLE, tuple_shardings=tuple(sharding or REPLICATED for sharding in found))
    return found[0]


def mesh_sharding(body: str, meshes: Meshes) -> Sharding | None:
    """`@mesh, [{"x"}, {}]` as tiles of devices: one tile dimension an array dimension, what is left replicates.

    Axes that are cut (`"x":(1)2`) have no such form: None.
    """
    name, _, rest = body.partition(",")
    mesh = meshes.get(name.strip().lstrip("@"), name.strip().removeprefix("mesh") if name.startswith("mesh") else "")
    axes = mesh_axes(mesh)
    if "device_ids" in mesh:
        return _on_one_device(mesh) if not axes else None
    names = list(axes)
    dimensions: list[list[str]] = []
    for entry in _DIMENSION.findall(rest.partition("]")[0]):
        refs = _AXIS.findall(entry)
        if any(cut or axis not in axes for axis, cut in refs):
            return None
        dimensions.append([axis for axis, _ in refs])
    used = [axis for refs in dimensions for axis in refs]
    if not used or all(axes[axis] == 1 for axis in used):
        return REPLICATED
    tiles = [math.prod(axes[axis] for axis in refs) for refs in dimensions]
    free = [axis for axis in names if axis not in used]
    replicas = math.prod(axes[axis] for axis in free)
    order = tuple(names.index(axis) for axis in (*used, *free))
    sizes, order = simplest_iota(tuple(axes[axis] for axis in names), order)
    return Sharding(
        ShardingType.OTHER,
        tile_assignment_dimensions=(*tiles, *([replicas] if replicas > 1 else [])),
        iota_reshape_dims=sizes,
        iota_transpose_perm=order,
        replicate_on_last_tile_dim=replicas > 1,
    )


def _on_one_device(mesh: str) -> Sharding:
    found: Any = re.search(r"device_ids\s*=\s*\[(\d+)\]", mesh)
    return Sharding(ShardingType.MAXIMAL, tile_assignment_devices=(int(found[1]),)) if found else REPLICATED
