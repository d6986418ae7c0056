"""The rule of custom calls, whose operands and results may be tuples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.ops.attributes import CustomCallApiVersion, PaddingType
from hloom.ops.custom_call import CustomCall
from hloom.shape import Shape
from hloom.stablehlo.exporter.block import RULES, BlockExporter, Leaf, Leaves, layout_attribute
from hloom.stablehlo.mlir.ir import Attribute, DenseElements, DialectAttribute, Symbol, Value
from hloom.stablehlo.mlir.parser import parse_attribute
from hloom.stablehlo.mlir.types import i32, i64, mlir_type, tensor_type
from hloom.stablehlo.operations import attributes_of

_UNSUPPORTED_FIELDS = {
    "window": None,
    "dimension_numbers": None,
    "feature_group_count": 1,
    "batch_group_count": 1,
    "padding_type": PaddingType.PADDING_INVALID,
}
"""Fields that stablehlo.custom_call has no attribute for, with the default that may be dropped."""


@RULES.rule(CustomCall)
def _custom_call(op: CustomCall, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits a custom call with tuples as they are, since the callee counts operands; drops a schedule."""
    shape = instruction.shape
    lost = [name for name, default in _UNSUPPORTED_FIELDS.items() if op.__dict__[name] != default]
    if lost:
        raise ArgumentError(f"stablehlo.custom_call has no attribute for {', '.join(lost)} of custom-call")
    results = shape.elements if shape.is_tuple and len(shape.elements) != 1 else (shape,)
    attributes = attributes_of(op)
    attributes |= _backend_config(op, instruction) | _call_layouts(op, results)
    if op.literal is not None:
        attributes["mhlo.literal"] = DenseElements(tensor_type(op.literal.shape), np.asarray(op.literal.value))
    called = [Symbol(block.context.symbol(computation)) for computation in op.computations]
    if called:
        attributes["called_computations"] = list(called)
    values = block.emit_for(
        instruction,
        "stablehlo.custom_call",
        types=map(mlir_type, results),
        attributes=attributes,
        operands=[_packed(block, operand.shape, iter(block.leaves(operand))) for operand in instruction.operands],
    )
    return [leaf for value, result in zip(values, results, strict=True) for leaf in _unpacked(block, value, result)]


def _packed(block: BlockExporter, shape: Shape, leaves: Iterator[Value]) -> Value:
    """The value of a shape, built of its leaves."""
    if not shape.is_tuple:
        return next(leaves)
    parts = [_packed(block, element, leaves) for element in shape.elements]
    return block.emit("stablehlo.tuple", parts, [mlir_type(shape)])[0]


def _unpacked(block: BlockExporter, value: Value, shape: Shape) -> Leaves:
    """The leaves of a value."""
    if not shape.is_tuple:
        return [value]
    leaves: list[Leaf] = []
    for i, element in enumerate(shape.elements):
        index: dict[str, Attribute] = {"index": i32(i)}
        part = block.emit("stablehlo.get_tuple_element", [value], [mlir_type(element)], index)[0]
        leaves += _unpacked(block, part, element)
    return leaves


def _backend_config(op: CustomCall, instruction: Instruction) -> dict[str, Attribute]:
    """The backend config as a string, or as a dictionary for API_VERSION_TYPED_FFI."""
    config = instruction.backend_config
    if op.api_version is not CustomCallApiVersion.API_VERSION_TYPED_FFI:
        return {"backend_config": config} if config else {}
    parsed = parse_attribute(config or "{}")
    if not isinstance(parsed, dict):
        raise ArgumentError(f"backend_config of API_VERSION_TYPED_FFI is a dictionary, {{a = 1 : i64}}, got {config}")
    return {"backend_config": parsed}


def _call_layouts(op: CustomCall, results: tuple[Shape, ...]) -> dict[str, Attribute]:
    """Layouts of operands and results if the call constrains them, and aliases of results with operands."""
    written: dict[str, Attribute] = {}
    constraints = op.operand_layout_constraints
    if constraints is not None and not any(shape.is_tuple for shape in (*constraints, *results)):
        written["operand_layouts"] = list(map(layout_attribute, constraints))
        written["result_layouts"] = list(map(layout_attribute, results))
    if op.output_to_operand_aliasing:
        written["output_operand_aliases"] = [
            DialectAttribute(
                "stablehlo.output_operand_alias",
                {
                    "output_tuple_indices": [i64(i) for i in alias.output_index],
                    "operand_index": i64(alias.operand_number),
                    "operand_tuple_indices": [i64(i) for i in alias.operand_index],
                },
            )
            for alias in op.output_to_operand_aliasing
        ]
    return written
