"""Shardings and frontend attributes of StableHLO ops, arguments and results as annotations of HLO instructions.

A sharding is a string in HLO's syntax (`mhlo.sharding = "{devices=[2,1]<=[2]}"`) or names axes of a mesh (`sdy.sharding
= #sdy.sharding<@mesh, [{"x"}, {}]>`). The latter is converted to the former; its text is kept as the frontend attribute
in which XLA looks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.ops.structure import GetTupleElement
from hloom.proto.annotations import read_sharding
from hloom.proto.schema import message_class
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.stablehlo.attributes.values import boolean
from hloom.stablehlo.importer.meshes import REPLICATED, Meshes, mesh_shardings, with_named_meshes
from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute
from hloom.text.scanner import Scanner, without_comments
from hloom.text.sharding import scan_sharding


def annotate(attributes: Mapping[str, Attribute], results: Sequence[Instruction], meshes: Meshes) -> None:
    """Annotates the instruction that computes an op's results with the op's shardings and frontend attributes.

    Raises ArgumentError or ParseError for a malformed sharding.
    """
    interesting = {
        key: value for key, value in attributes.items() if key.startswith(("mhlo.sharding", "mhlo.fro", "sdy.s"))
    }
    if not interesting or not results:
        return
    instruction = results[0]
    if isinstance(instruction.op, GetTupleElement) and instruction.operands:
        instruction = instruction.operands[0]
    instruction.frontend_attributes |= frontend_attributes(attributes)
    rule = attributes.get("sdy.sharding_rule")
    if isinstance(rule, DialectAttribute):
        instruction.frontend_attributes["xla.sdy.sharding_rule"] = f"#sdy.op_sharding_rule<{rule.body}>"
    _shard(instruction, attributes, meshes, "#sdy.sharding_per_value<[<{}>]>")


def frontend_attributes(attributes: Mapping[str, Attribute]) -> dict[str, str]:
    """The frontend attributes among the attributes of an op, an argument or a module."""
    frontend = attributes.get("mhlo.frontend_attributes")
    return {key: str(value) for key, value in frontend.items()} if isinstance(frontend, dict) else {}


def argument_annotations(parameter: Instruction, attributes: Mapping[str, Attribute], meshes: Meshes) -> None:
    """Annotates a parameter of the entry with the attributes of the main function's argument.

    Raises ArgumentError or ParseError for a malformed sharding.
    """
    parameter.frontend_attributes |= frontend_attributes(attributes)
    replication = attributes.get("mhlo.parameter_replication")
    if isinstance(replication, list) and replication:
        flags = tuple(map(boolean, replication))
        parameter.op = parameter.op.replace(parameter_replicated_at_leaf_buffers=flags)
    _shard(parameter, attributes, meshes, "#sdy.sharding<{}>")


def _shard(instruction: Instruction, attributes: Mapping[str, Attribute], meshes: Meshes, form: str) -> None:
    named = attributes.get("sdy.sharding")
    if isinstance(named, DialectAttribute) and isinstance(named.body, str):
        body = with_named_meshes(named.body, meshes)
        values = re.sub(r"^\[<(.*)>\]$", r"\1", body, flags=re.DOTALL)
        instruction.frontend_attributes["xla.sdy.sharding"] = form.format(values)
        instruction.sharding = _of_leaves(mesh_shardings(body, meshes), instruction.shape)
    sharding = _written(attributes)
    if sharding is not None:
        parts = sharding.tuple_shardings
        is_tuple = sharding.type is ShardingType.TUPLE and instruction.shape.is_tuple
        instruction.sharding = _of_leaves(parts, instruction.shape) if is_tuple else sharding


def _of_leaves(shardings: Sequence[Sharding | None], shape: Shape) -> Sharding | None:
    """The sharding of an array, or of all leaves of a tuple; leaves without one are replicated."""
    if not shape.is_tuple or not any(shardings):
        return next(iter(shardings), None)
    count = max(sum(1 for _ in shape.leaves()), len(shardings))
    parts = [sharding or REPLICATED for sharding in shardings]
    return Sharding(ShardingType.TUPLE, tuple_shardings=(*parts, *[REPLICATED] * (count - len(parts))))


def _written(attributes: Mapping[str, Attribute]) -> Sharding | None:
    text = attributes.get("mhlo.sharding")
    if not isinstance(text, str):
        return None
    if not text.lstrip().startswith("{"):
        return serialised_sharding(text)
    scanner = Scanner(without_comments(text))
    sharding = scan_sharding(scanner)
    if not scanner.at_end():
        raise ArgumentError(f"mhlo.sharding: expected the end of the sharding, got {scanner.preview()}")
    return sharding


def serialised_sharding(text: str) -> Sharding:
    """Reads a sharding from the bytes of an OpSharding (xla_data.proto), which older programs have.

    Raises ArgumentError for bytes that are not an OpSharding, ProtoError for an invalid one.
    """
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
    """The sharding of the main function's results; None if no result has one. Other results are replicated.

    Raises ArgumentError or ParseError for a malformed sharding.
    """
    if not isinstance(entries, list):
        return None
    shardings: list[Sharding | None] = []
    for attributes in entries:
        named = attributes.get("sdy.sharding") if attributes else None
        if isinstance(named, DialectAttribute) and isinstance(named.body, str):
            shardings += mesh_shardings(with_named_meshes(named.body, meshes), meshes)[:1] or [None]
        else:
            shardings.append(_written(attributes or {}))
    if not any(shardings):
        return None
    if shape.is_tuple and len(shardings) == len(shape.elements):
        return Sharding(ShardingType.TUPLE, tuple_shardings=tuple(sharding or REPLICATED for sharding in shardings))
    return shardings[0]
