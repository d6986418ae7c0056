"""Rule of custom calls: `RULES`, by op name. Some targets are ops, assertions or operations of HLO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.layout import Layout
from hloom.ops.attributes import CustomCallApiVersion, OutputOperandAlias
from hloom.ops.custom_call import CustomCall
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.rules import result_shape
from hloom.ops.sort import Sort
from hloom.shape import Shape
from hloom.stablehlo.attributes.communication import Groups
from hloom.stablehlo.attributes.values import entries, integer, integers, parameters, required, string
from hloom.stablehlo.importer.body import Body, Rule
from hloom.stablehlo.importer.rules import chlo, dynamic
from hloom.stablehlo.importer.rules.calls import called_computation
from hloom.stablehlo.mlir.attribute_text import dictionary_text
from hloom.stablehlo.mlir.ir import Attribute, Operation
from hloom.stablehlo.mlir.types import shape_of
from hloom.stablehlo.operations import BY_NAME

Ops = list[XlaOp]


def _refused(body: Body, attributes: dict[str, Attribute], operands: Ops) -> Ops:
    """Raises ArgumentError for an assertion that never holds, and adds a check to the program for others.

    The message is that of the program, in which {0}, {1} .. stand for the checked sizes.
    """
    message = string(attributes.get("error_message") or "an assertion about sizes does not hold")
    values = [body.constant_of(operand) for operand in operands[1:]]
    text = re.sub(r"\{(\d)\}", lambda match: _size_text(values, int(match[1])), message)
    if body.constant_of(operands[0]) is not None:
        raise ArgumentError(text)
    dynamic.refuse_unless(body, operands[0], [*operands[1:], body.constant(np.int32(0))][0], text)
    return []


def _size_text(values: list[Any], index: int) -> str:
    return str(values[index]) if index < len(values) else "?"


def _custom_call(body: Body, operation: Operation, operands: Ops) -> Ops:
    """Adds a custom call; targets such as `mhlo.erf` are imported as that op, with its `mhlo.attributes`."""
    attributes = operation.attributes
    target = string(required(attributes, "call_target_name"))
    if target.startswith(("mhlo.", "chlo.", "stablehlo.")) and "mhlo.attributes" in attributes:
        return _named_op(body, operation, operands, target)
    if target == "shape_assertion" and operands and (holds := body.bounds_of(operands[0])) is not None:
        return [] if holds.low else _refused(body, attributes, operands)
    if target == "stablehlo.dynamic_reduce_window":
        combiners = attributes.get("called_computations")
        (combiner,) = combiners if isinstance(combiners, list) else [combiners]
        return dynamic.reduce_window(body, operation, operands, called_computation(body, operation, combiner))
    if target == "ApproxTopK":
        return _approximate_top_k(body, operation, operands)
    if target == "ragged_all_to_all" and isinstance(config := attributes.get("backend_config"), dict):
        channel = integer(config["channel_id"]) if "channel_id" in config else None
        return [body._add(RaggedAllToAll(channel_id=channel, **Groups().read(config, ())), operands)]
    fields = BY_NAME["custom_call"].fields(attributes, ())
    fields |= _aliasing(attributes)
    if isinstance(attributes.get("mhlo.backend_config"), dict) and "api_version" not in attributes:
        fields["api_version"] = CustomCallApiVersion.API_VERSION_TYPED_FFI
    called = attributes.get("called_computations")
    if isinstance(called, list) and called:
        fields["called_computations"] = [called_computation(body, operation, symbol) for symbol in called]
    shapes = [shape_of(type_) for type_ in operation.result_types]
    if isinstance(attributes.get("operand_layouts"), list):
        inputs = [operand.shape.without_layout() for operand in operands]
        fields["operand_layout_constraints"] = _layouts(inputs, attributes["operand_layouts"])
    if isinstance(attributes.get("result_layouts"), list):
        shapes = _layouts(shapes, attributes["result_layouts"])
    result = body._add(CustomCall(**fields).canonical(()), operands, result_shape(shapes))
    result.instruction.backend_config = _backend_config(attributes)
    return body.unpacked(result, len(shapes))


def _approximate_top_k(body: Body, operation: Operation, operands: Ops) -> Ops:
    """The k largest elements along a dimension, computed exactly: operands are sorted and sliced."""
    config = operation.attributes.get("mhlo.backend_config")
    if not isinstance(config, dict):
        raise ArgumentError("ApproxTopK has its options in mhlo.backend_config")
    dimension = integer(required(config, "reduction_dim"))
    arrays = operands[: len(operands) // 2]
    called = entries(required(operation.attributes, "called_computations"))
    if len(called) != 1:
        raise ArgumentError("ApproxTopK calls one computation")
    comparator = called_computation(body, operation, called[0])
    sort = Sort(dimension=dimension, comparator=comparator)
    ordered = body.unpacked(body._add(sort, arrays), len(arrays))
    limits = [shape_of(declared).dimensions for declared in operation.result_types]
    return [body.slice(array, [0] * len(sizes), sizes) for array, sizes in zip(ordered, limits, strict=True)]


def _named_op(body: Body, operation: Operation, operands: Ops, target: str) -> Ops:
    inner = operation.attributes["mhlo.attributes"]
    dialect, _, short = target.partition(".")
    row = BY_NAME.get(short)
    if row is not None and not row.irregular:
        dialect = row.dialect
    elif dialect != "chlo":
        dialect = "chlo" if f"chlo.{short}" in chlo.RULES else "stablehlo"
    given = inner if isinstance(inner, dict) else {}
    return body.results(replace(operation, name=f"{dialect}.{short}", attributes=given), operands)


def _layouts(shapes: Sequence[Shape], layouts: Attribute) -> list[Shape]:
    if not isinstance(layouts, list) or len(layouts) != len(shapes):
        raise ArgumentError(f"{len(shapes)} layouts are needed")
    return [
        shape.with_layout(Layout(integers(layout))) if shape.is_array else shape
        for shape, layout in zip(shapes, layouts, strict=True)
    ]


def _aliasing(attributes: dict[str, Attribute]) -> dict[str, Any]:
    aliases = [
        OutputOperandAlias(
            integers(fields.get("output_tuple_indices", [])),
            integer(required(fields, "operand_index")),
            integers(fields.get("operand_tuple_indices", [])),
        )
        for alias in entries(attributes.get("output_operand_aliases", []))
        for fields in (parameters(alias, "output_operand_alias"),)
    ]
    return {"output_to_operand_aliasing": tuple(aliases)} if aliases else {}


def _backend_config(attributes: dict[str, Attribute]) -> str:
    """The backend config: a string itself, a dictionary as MLIR text, as in XLA."""
    config = attributes.get("mhlo.backend_config", attributes.get("backend_config", ""))
    return config if isinstance(config, str) else dictionary_text(config) if isinstance(config, dict) else ""


RULES: dict[str, Rule] = {"stablehlo.custom_call": _custom_call}
