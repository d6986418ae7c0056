"""Rules of calls and composites: `RULES`, by op name. A called function becomes a computation."""

from __future__ import annotations

from typing import Any

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ir import Computation
from hloom.ops.control_flow import Call
from hloom.stablehlo.attributes.values import integer, required, string, symbol_name
from hloom.stablehlo.importer.body import Body, Rule, computation_of
from hloom.stablehlo.mlir.attribute_text import dictionary_text
from hloom.stablehlo.mlir.ir import Attribute, Operation
from hloom.stablehlo.mlir.types import shape_of

Ops = list[XlaOp]


def _call(body: Body, operation: Operation, operands: Ops) -> Ops:
    symbol = required(operation.attributes, "callee")
    return call_function(body, operation, operands, symbol)[0]


def call_function(
    body: Body, operation: Operation, operands: Ops, symbol: Attribute, **fields: Any
) -> tuple[Ops, XlaOp | None]:
    """Returns the results, and the call unless it is inlined."""
    name = symbol_name(symbol)
    function = body.context.function(operation, name)
    interface = body.context.function_type(function)
    if len(interface.inputs) != len(operands):
        raise ArgumentError(f"@{name} takes {len(interface.inputs)} arguments, got {len(operands)}")
    if body.context.is_bounded:
        # Sizes of one origin stay one instruction, and bounds are found across calls.
        body.values |= zip(function.regions[0].block.arguments, operands, strict=True)
        return body.block(function.regions[0]), None
    values = map(body.size_of, operands if body.context.is_specialized else ())
    known_values = {i: value for i, value in enumerate(values) if value is not None}
    shapes = [operand.shape.without_layout() for operand in operands]
    computation = computation_of(body.context, function, shapes, known_values)
    result = body._add(Call(computation=computation, **fields), operands)
    count = len(interface.results)
    results = body.unpacked(result, count)
    sizes = body.context.known_results.get(id(computation), [None] * count)
    pairs = zip(results, sizes, strict=True)
    return [value if size is None else body.constant(size) for value, size in pairs], result


def _composite(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds a call of the decomposition, with the composite's name, version and attributes as frontend attributes."""
    attributes = operation.attributes
    results, call = call_function(body, operation, operands, required(attributes, "decomposition"), is_composite=True)
    given = attributes.get("composite_attributes") or {}
    if not isinstance(given, dict):
        raise ArgumentError("composite_attributes is a dictionary")
    version = integer(attributes["version"]) if "version" in attributes else 0
    if call is not None:
        call.instruction.frontend_attributes |= {
            "composite.attributes": dictionary_text(given),
            "composite.name": string(required(attributes, "name")),
            "composite.version": str(version),
        }
    return results


def called_computation(body: Body, operation: Operation, symbol: Attribute) -> Computation:
    """The computation of a function that an op names; raises ParseError without one."""
    function = body.context.function(operation, symbol_name(symbol))
    inputs = body.context.function_type(function).inputs
    return computation_of(body.context, function, [shape_of(type_) for type_ in inputs])


RULES: dict[str, Rule] = {"func.call": _call, "stablehlo.composite": _composite}
