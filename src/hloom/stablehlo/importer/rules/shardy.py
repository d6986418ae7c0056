"""Rules of Shardy ops: `RULES`, by op name. `importer/annotations.py` converts meshes and shardings of values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hloom.builder import XlaOp
from hloom.ops.control_flow import Call
from hloom.ops.custom_call import CustomCall
from hloom.ops.rules import result_shape
from hloom.shape import Shape
from hloom.stablehlo.attributes.values import required
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.importer.meshes import mesh_axes, with_named_meshes
from hloom.stablehlo.mlir.assembly.shardy import COLLECTIVES
from hloom.stablehlo.mlir.attribute_text import attribute_text
from hloom.stablehlo.mlir.ir import DialectAttribute, Operation
from hloom.stablehlo.mlir.types import shape_of

Ops = list[XlaOp]
_MANUAL = ("in_shardings", "out_shardings", "manual_axes")


def _sharding_constraint(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Adds the custom call `Sharding`, as XLA does.

    Shardy's collectives are constraints, too: they change the sharding of an array but not its value.
    """
    name = "out_sharding" if "out_sharding" in operation.attributes else "sharding"
    sharding = required(operation.attributes, name)
    if isinstance(sharding, DialectAttribute) and isinstance(sharding.body, str):
        operation.attributes["sdy.sharding"] = sharding
    op = CustomCall(target_name="Sharding")
    return body._add(op, operands, operands[0].shape)


def _manual_computation(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Rule of `sdy.manual_computation`: a call between custom calls that convert to local shapes and back.

    If all manual axes have size 1, each device has whole arrays, and the region is inlined.
    """
    (region,) = operation.regions
    if _is_on_one_device(body, operation):
        body.values |= dict(zip(region.block.arguments, operands, strict=True))
        return body.block(region)
    inner = [shape_of(argument.type) for argument in region.block.arguments]
    local = _shape_change(body, operation, "GlobalToLocalShape", "in_shardings", operands, inner)
    computation = body.computation(region, "xla.sdy.manual_computation_body", inner)
    call = body._add(Call(computation=computation), local)
    call.instruction.frontend_attributes["inlineable"] = "false"
    outer = list(map(shape_of, operation.result_types))
    results = body.unpacked(call, len(outer))
    return _shape_change(body, operation, "LocalToGlobalShape", "out_shardings", results, outer)


def _is_on_one_device(body: Body, operation: Operation) -> bool:
    """Whether all manual axes have size 1 in the meshes that the shardings name."""
    texts = [_text(body, operation, name) for name in _MANUAL]
    named = {name.strip('"') for name in re.findall(r'@("[^"]*"|[\w.$\-]+)', "".join(texts[:2]))}
    meshes = [mesh for name, mesh in body.context.meshes.items() if name in named or not named]
    manual = re.findall(r'"([^"]*)"', texts[2])
    return all(mesh_axes(mesh).get(axis) == 1 for axis in manual for mesh in meshes)


def _text(body: Body, operation: Operation, name: str) -> str:
    """The text of an attribute, without the braces around axes in generic form."""
    text = str(getattr(operation.attributes.get(name), "body", ""))
    return with_named_meshes(text.strip("{}") if name == "manual_axes" else text, body.context.meshes)


def _shape_change(
    body: Body, operation: Operation, target: str, shardings: str, operands: Ops, shapes: Sequence[Shape]
) -> Ops:
    if not shapes:
        return []
    op = CustomCall(target_name=f"xla.sdy.{target}", has_effect=True)
    changed = body._add(op, operands, result_shape(shapes))
    changed.instruction.frontend_attributes |= {
        f"xla.sdy.{shardings}": f"#sdy.sharding_per_value<{_text(body, operation, shardings)}>",
        "xla.sdy.manual_axes": f"#sdy<manual_axes{{{_text(body, operation, 'manual_axes')}}}>",
    }
    return body.unpacked(changed, len(shapes))


def _propagation_barrier(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """Rule of `sdy.propagation_barrier`: shardings propagate in the allowed direction only."""
    return _marker(body, operation, operands, "PropagationBarrier", "allowed_direction", "allowed_direction")


def _sharding_group(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Rule of `sdy.sharding_group`: all members of a group have the same sharding."""
    _marker(body, operation, operands, "ShardingGroup", "group_id", "sharding_group_id")
    return []


def _marker(body: Body, operation: Operation, operands: Ops, target: str, attribute: str, name: str) -> XlaOp:
    """Adds a custom call that annotates its operand by a frontend attribute."""
    shape = operands[0].shape if operation.results else Shape.tuple_of([])
    call = body._add(CustomCall(target_name=f"xla.sdy.{target}", has_effect=True), operands, shape)
    value = attribute_text(required(operation.attributes, attribute))
    call.instruction.frontend_attributes[f"xla.sdy.{name}"] = value
    return call


RULES: dict[str, Rule] = {
    "sdy.sharding_constraint": _sharding_constraint,
    "sdy.reshard": _sharding_constraint,
    **{f"sdy.{name}": _sharding_constraint for name in COLLECTIVES},
    "sdy.manual_computation": _manual_computation,
    "sdy.propagation_barrier": _propagation_barrier,
    "sdy.sharding_group": _sharding_group,
}
