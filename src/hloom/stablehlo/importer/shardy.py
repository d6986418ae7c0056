"""Ops of the Shardy dialect: what they become in HLO (`RULES`).

Meshes and the shardings of values are annotations: `annotations.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.builder import XlaOp
from hloom.ops.operation import OPERATIONS
from hloom.shape import Shape
from hloom.stablehlo.attributes import required
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.mlir.ir import DialectAttribute, Operation
from hloom.stablehlo.mlir.types import shape_of

Ops = list[XlaOp]


def _sharding_constraint(body: Body, operation: Operation, operands: Ops) -> XlaOp:
    """`sdy.sharding_constraint`: what XLA knows as the custom call `Sharding`."""
    sharding = required(operation.attributes, "sharding")
    if isinstance(sharding, DialectAttribute) and isinstance(sharding.body, str):
        operation.attributes["sdy.sharding"] = sharding
    op = OPERATIONS["custom-call"](target_name="Sharding")
    return body._add(op, operands, operands[0].shape)


def _manual_computation(body: Body, operation: Operation, operands: Ops) -> Ops:
    """`sdy.manual_computation`: a call between two custom calls, to the shapes that each device has and back."""
    (region,) = operation.regions
    inner = [shape_of(argument.type) for argument in region.block.arguments]
    local = _shape_change(body, operation, "GlobalToLocalShape", "in_shardings", operands, inner)
    computation = body.computation(region, "xla.sdy.manual_computation_body", inner)
    call = body._add(OPERATIONS["call"](computation=computation), local)
    call.instruction.frontend_attributes["inlineable"] = "false"
    count = len(operation.results)
    results = [call] if count == 1 else [body.get_tuple_element(call, i) for i in range(count)]
    outer = [shape_of(value.type) for value in operation.results]
    return _shape_change(body, operation, "LocalToGlobalShape", "out_shardings", results, outer)


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
