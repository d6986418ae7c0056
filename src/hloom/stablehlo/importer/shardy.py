"""Ops of the Shardy dialect: what they become in HLO (`RULES`).

Meshes and the shardings of values are annotations: `annotations.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hloom.builder import XlaOp
from hloom.ops.operation import OPERATIONS
from hloom.shape import Shape
from hloom.stablehlo.attributes import required
from hloom.stablehlo.importer.annotations import mesh_axes
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import DialectAttribute, Operation
from hloom.stablehlo.mlir.types import shape_of

Ops = list[XlaOp]
_MANUAL = ("in_shardings", "out_shardings", "manual_axes")


def _sharding_constraint(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """`sdy.sharding_constraint`: what XLA knows as the custom call `Sharding`."""
    sharding = required(operation.attributes, "sharding")
    if isinstance(sharding, DialectAttribute) and isinstance(sharding.body, str):
        operation.attributes["sdy.sharding"] = sharding
    op = OPERATIONS["custom-call"](target_name="Sharding")
    return body._add(op, operands, operands[0].shape)


def _manual_computation(body: Body, operation: Operation, operands: Ops) -> Ops:
    """`sdy.manual_computation`: a call between two custom calls, to the shapes that each device has and back.

    Where the manual axes have size 1 each device has whole arrays, and the region is part of its surroundings.
    """
    (region,) = operation.regions
    if all(size == 1 for size in _manual_sizes(body, operation)):
        body.values |= dict(zip(region.block.arguments, operands, strict=True))
        return body.block(region)
    inner = [shape_of(argument.type) for argument in region.block.arguments]
    local = _shape_change(body, operation, "GlobalToLocalShape", "in_shardings", operands, inner)
    computation = body.computation(region, "xla.sdy.manual_computation_body", inner)
    call = body._add(OPERATIONS["call"](computation=computation), local)
    call.instruction.frontend_attributes["inlineable"] = "false"
    count = len(operation.results)
    results = [call] if count == 1 else [body.get_tuple_element(call, i) for i in range(count)]
    outer = [shape_of(value.type) for value in operation.results]
    return _shape_change(body, operation, "LocalToGlobalShape", "out_shardings", results, outer)


def _manual_sizes(body: Body, operation: Operation) -> list[int]:
    """The sizes of the manual axes, in the meshes that the shardings name."""
    texts = [str(getattr(operation.attributes.get(name), "body", "")) for name in _MANUAL]
    named = {name.strip('"') for name in re.findall(r'@("[^"]*"|[\w.$\-]+)', "".join(texts[:2]))}
    meshes = [mesh for name, mesh in body.whole.meshes.items() if name in named or not named]
    manual = re.findall(r'"([^"]*)"', texts[2])
    return [size for mesh in meshes for axis, size in mesh_axes(mesh).items() if axis in manual]


def _shape_change(
    body: Body, operation: Operation, target: str, shardings: str, operands: Ops, shapes: Sequence[Shape]
) -> Ops:
    if not shapes:
        return []
    op = OPERATIONS["custom-call"](target_name=f"xla.sdy.{target}", has_effect=True)
    changed = body._add(op, operands, shapes[0] if len(shapes) == 1 else Shape.tuple_of(shapes))
    texts = {name: getattr(operation.attributes.get(name), "body", "") for name in (shardings, "manual_axes")}
    changed.instruction.frontend_attributes |= {
        f"xla.sdy.{shardings}": f"#sdy.sharding_per_value<{texts[shardings]}>",
        "xla.sdy.manual_axes": f"#sdy<manual_axes{{{texts['manual_axes']}}}>",
    }
    return [changed] if len(shapes) == 1 else [body.get_tuple_element(changed, i) for i in range(len(shapes))]


RULES: dict[str, Rule] = {
    "sdy.sharding_constraint": _sharding_constraint,
    "sdy.reshard": _sharding_constraint,
    "sdy.manual_computation": _manual_computation,
}
