"""Rules of HLO operations that are not one StableHLO op on the same operands: `RULES`, by opcode.

A rule takes the exporter of the block, which has the operands' leaves, and the instruction; it emits operations and
returns the leaves of the result. `UNSUPPORTED` has the opcodes that StableHLO cannot express, with the reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hloom.errors import ArgumentError
from hloom.ops.attributes import CustomCallApiVersion, PaddingType
from hloom.shape import Shape
from hloom.stablehlo.exporter.block import BlockExporter, Leaf, Rule, layout_attribute, leaf_count
from hloom.stablehlo.exporter.expansions import EXPANSIONS
from hloom.stablehlo.mlir.ir import Attribute, DenseElements, DialectAttribute, ElidedElements, Number, Symbol, Value
from hloom.stablehlo.mlir.parser import parse_attribute
from hloom.stablehlo.mlir.types import I32, I64, TOKEN_TYPE, mlir_type, tensor_type
from hloom.stablehlo.operations import BY_OPCODE
from hloom.types import PrimitiveType

if TYPE_CHECKING:
    from hloom.ir import Computation, Instruction


# Operations without a counterpart, whose values are their operands


def _operands(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """The leaves of the operands: tuple, and operations that are the identity on values."""
    return [leaf for operand in instruction.operands for leaf in block.values[operand]]


def _element_rule(index: int) -> Rule:
    """The rule of a `-done` operation: an element of the tuple that the start returned."""
    return lambda block, instruction: list(block.element(instruction.operands[0], index))


def _copy_start(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """The tuple (copy, operand, context), in which the copy is the operand itself."""
    leaves = _operands(block, instruction)
    return [*leaves, *leaves, None]


def _get_tuple_element(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    return list(block.element(instruction.operands[0], instruction.op.index))  # type: ignore[attr-defined]


def _constant(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits a constant; unused ones, such as the sizes of an rng that was read from StableHLO, emit nothing."""
    literal = instruction.op.literal  # type: ignore[attr-defined]
    if not instruction.users and (instruction.parent is None or instruction.parent.root is not instruction):
        return [None] * leaf_count(literal.shape)
    return _literal(block, literal.shape, literal.value)


def _elided_constant(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    types = [tensor_type(leaf) for leaf in instruction.shape.leaves()]
    return [block.emit("stablehlo.constant", [], [type_], {"value": ElidedElements(type_)})[0] for type_ in types]


def _literal(block: BlockExporter, shape: Shape, value: object) -> list[Leaf]:
    if isinstance(value, tuple):
        parts = zip(shape.elements, value, strict=True)
        return [leaf for element, part in parts for leaf in _literal(block, element, part)]
    return [block.constant(np.asarray(value), tensor_type(shape)) if shape.is_array else block.zeros(shape)]


# Tokens


def _after_all(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    if not instruction.operands:
        return [block.emit("stablehlo.create_token", [], [TOKEN_TYPE])[0]]
    return block.regular(instruction)


def _barrier(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits optimization_barrier, also for add-dependency: its results are computed after all of its operands."""
    operands = block.leaves(*instruction.operands)
    results = block.emit_for(instruction, "stablehlo.optimization_barrier", [value.type for value in operands])
    return list(results[: leaf_count(instruction.shape)])


# Calls and control flow


def _call(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits a call of a private function: call, fusion and async-start."""
    op = instruction.op
    if getattr(op, "is_composite", False):
        return _composite(block, instruction)
    (computation,) = op.computations
    types = map(mlir_type, computation.result_shape.leaves())
    callee: dict[str, Attribute] = {"callee": Symbol(block.context.symbol(computation))}
    return list(block.emit_for(instruction, "func.call", types, attributes=callee))


def _composite(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits a composite, whose name, attributes and version are in frontend attributes with the prefix `composite.`."""
    (computation,) = instruction.op.computations
    given = instruction.frontend_attributes
    if "composite.name" not in given:
        raise ArgumentError("a composite call has the frontend attribute composite.name")
    attributes: dict[str, Attribute] = {
        "name": given["composite.name"],
        "decomposition": Symbol(block.context.symbol(computation)),
    }
    if given.get("composite.attributes", "{}").strip() not in ("", "{}"):
        attributes["composite_attributes"] = parse_attribute(given["composite.attributes"])
    version = given.get("composite.version", "0")
    if not re.fullmatch(r"\d{1,9}", version):
        raise ArgumentError(f"composite.version is a number of at most 9 digits, got {version[:40]!r}")
    if int(version):
        attributes["version"] = Number(int(version), I32)
    rest = {key: value for key, value in given.items() if not key.startswith("composite.")}
    if rest:
        attributes["mhlo.frontend_attributes"] = dict(rest)
    types = map(mlir_type, instruction.shape.leaves())
    return list(block.emit("stablehlo.composite", block.leaves(*instruction.operands), types, attributes))


def _async_start(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits the call itself; the tuple is (operands, results, contexts..), and contexts are undefined."""
    results = [*_operands(block, instruction), *_call(block, instruction)]
    return [*results, *[None] * (leaf_count(instruction.shape) - len(results))]


def _while(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    types = map(mlir_type, instruction.shape.leaves())
    regions = map(block.region, (instruction.op.condition, instruction.op.body))  # type: ignore[attr-defined]
    return list(block.emit_for(instruction, "stablehlo.while", types, regions=regions))


def _conditional(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits if or case. Their regions take no arguments: branches refer to their operands as outer values."""
    index, *operands = instruction.operands
    branches: tuple[Computation, ...] = instruction.op.branch_computations  # type: ignore[attr-defined]
    regions = [
        block.region(branch, [block.leaves(operand)]) for branch, operand in zip(branches, operands, strict=True)
    ]
    name = "stablehlo.if" if index.shape.element_type.is_pred else "stablehlo.case"
    types = map(mlir_type, instruction.shape.leaves())
    return list(block.emit_for(instruction, name, types, operands=block.leaves(index), regions=regions))


# Custom calls

# Fields that stablehlo.custom_call has no attribute for, with the default that may be dropped.
_UNSUPPORTED_FIELDS = {
    "window": None,
    "dimension_numbers": None,
    "feature_group_count": 1,
    "batch_group_count": 1,
    "padding_type": PaddingType.PADDING_INVALID,
}


def _custom_call(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits a custom call with tuples as they are, since the callee counts operands; drops a schedule."""
    op, shape = instruction.op, instruction.shape
    lost = [name for name, default in _UNSUPPORTED_FIELDS.items() if op.__dict__[name] != default]
    if lost:
        raise ArgumentError(f"stablehlo.custom_call has no attribute for {', '.join(lost)} of custom-call")
    results = shape.elements if shape.is_tuple and len(shape.elements) != 1 else (shape,)
    attributes = BY_OPCODE["custom-call"].attributes(op, instruction.operand_shapes)
    attributes |= _backend_config(instruction) | _call_layouts(instruction, results)
    if op.literal is not None:  # type: ignore[attr-defined]
        literal = op.literal  # type: ignore[attr-defined]
        attributes["mhlo.literal"] = DenseElements(tensor_type(literal.shape), np.asarray(literal.value))
    called = [Symbol(block.context.symbol(computation)) for computation in op.computations]
    if called:
        attributes["called_computations"] = list(called)
    values = block.emit_for(
        instruction,
        "stablehlo.custom_call",
        map(mlir_type, results),
        attributes=attributes,
        operands=[_packed(block, operand.shape, iter(block.leaves(operand))) for operand in instruction.operands],
    )
    return [leaf for value, result in zip(values, results, strict=True) for leaf in _unpacked(block, value, result)]


def _packed(block: BlockExporter, shape: Shape, leaves: object) -> Value:
    """The value of a shape, built of its leaves."""
    if not shape.is_tuple:
        return next(leaves)  # type: ignore[call-overload, no-any-return]
    parts = [_packed(block, element, leaves) for element in shape.elements]
    return block.emit("stablehlo.tuple", parts, [mlir_type(shape)])[0]


def _unpacked(block: BlockExporter, value: Value, shape: Shape) -> list[Leaf]:
    """The leaves of a value."""
    if not shape.is_tuple:
        return [value]
    leaves: list[Leaf] = []
    for i, element in enumerate(shape.elements):
        index: dict[str, Attribute] = {"index": Number(i, I32)}
        part = block.emit("stablehlo.get_tuple_element", [value], [mlir_type(element)], index)[0]
        leaves += _unpacked(block, part, element)
    return leaves


def _backend_config(instruction: Instruction) -> dict[str, Attribute]:
    """The backend config as a string, or as a dictionary for API_VERSION_TYPED_FFI."""
    config = instruction.backend_config
    if instruction.op.api_version is not CustomCallApiVersion.API_VERSION_TYPED_FFI:  # type: ignore[attr-defined]
        return {"backend_config": config} if config else {}
    parsed = parse_attribute(config or "{}")
    if not isinstance(parsed, dict):
        raise ArgumentError(f"backend_config of API_VERSION_TYPED_FFI is a dictionary, {{a = 1 : i64}}, got {config}")
    return {"backend_config": parsed}


def _call_layouts(instruction: Instruction, results: tuple[Shape, ...]) -> dict[str, Attribute]:
    """Layouts of operands and results if the call constrains them, and aliases of results with operands."""
    op = instruction.op
    written: dict[str, Attribute] = {}
    constraints: tuple[Shape, ...] | None = op.operand_layout_constraints  # type: ignore[attr-defined]
    if constraints is not None and not any(shape.is_tuple for shape in (*constraints, *results)):
        written["operand_layouts"] = list(map(layout_attribute, constraints))
        written["result_layouts"] = list(map(layout_attribute, results))
    aliases = op.output_to_operand_aliasing  # type: ignore[attr-defined]
    if aliases:
        written["output_operand_aliases"] = [
            DialectAttribute(
                "stablehlo.output_operand_alias",
                {
                    "output_tuple_indices": [Number(i, I64) for i in alias.output_index],
                    "operand_index": Number(alias.operand_number, I64),
                    "operand_tuple_indices": [Number(i, I64) for i in alias.operand_index],
                },
            )
            for alias in aliases
        ]
    return written


# Communication


def _start_rule(opcode: str, contexts: bool = True) -> Rule:
    """The rule of a `-start`, which does it all; with `contexts` its tuple is (operands, results, contexts..)."""

    def rule(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
        operands = _operands(block, instruction)
        row = BY_OPCODE[opcode]
        regions = [block.region(getattr(instruction.op, field)) for field in row.regions]
        shape = Shape.tuple_of([instruction.shape.elements[1]]) if contexts else instruction.shape
        if opcode == "collective-permute":
            results = _permute(block, instruction)
        else:
            types = map(mlir_type, shape.leaves())
            attributes = row.attributes(instruction.op, instruction.operand_shapes)
            results = list(
                block.emit_for(instruction, f"stablehlo.{row.name}", types, attributes=attributes, regions=regions)
            )
        if not contexts:
            return results
        known = [*operands, *results]
        return [*known, *[None] * (leaf_count(instruction.shape) - len(known))]

    return rule


def _permute(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits a collective_permute for each operand."""
    attributes = BY_OPCODE["collective-permute"].attributes(instruction.op, instruction.operand_shapes)
    results: list[Leaf] = []
    for value in block.leaves(*instruction.operands):
        results += block.emit_for(
            instruction, "stablehlo.collective_permute", [value.type], attributes=attributes, operands=[value]
        )
    return results


def _transfer(instruction: Instruction, host_type: int) -> dict[str, Attribute]:
    """Attributes of send and recv; `host_type` is the channel type for a transfer to or from the host."""
    attributes = BY_OPCODE[instruction.opcode].attributes(instruction.op, instruction.operand_shapes)
    handle = attributes["channel_handle"]
    if instruction.op.is_host_transfer and isinstance(handle, DialectAttribute):  # type: ignore[attr-defined]
        body = {**handle.body, "type": Number(host_type, I64)} if isinstance(handle.body, dict) else handle.body
        attributes["channel_handle"] = DialectAttribute(handle.name, body)
    return attributes


def _send(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits the whole send; the tuple is (operand, request id, token), of which send-done returns the token."""
    attributes = _transfer(instruction, 2)
    (token,) = block.emit_for(instruction, "stablehlo.send", [TOKEN_TYPE], attributes=attributes)
    return [*block.values[instruction.operands[0]], None, token]


def _send_done(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    return [block.values[instruction.operands[0]][-1]]


def _recv(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits nothing: recv-done receives, so that sends between the two come first."""
    return [None] * leaf_count(instruction.shape)


def _recv_done(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    (start,) = instruction.operands
    attributes, types = _transfer(start, 3), map(mlir_type, instruction.shape.leaves())
    return list(
        block.emit_for(start, "stablehlo.recv", types, attributes=attributes, operands=block.leaves(*start.operands))
    )


# Operations with sizes as operands


def _dynamic_reshape(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits dynamic_reshape, with the sizes concatenated to a vector."""
    operand, *sizes = block.leaves(*instruction.operands)
    one = tensor_type(Shape.array(instruction.operands[1].shape.element_type, (1,))) if sizes else None
    parts = [block.emit("stablehlo.reshape", [size], [one])[0] for size in sizes] if one is not None else []
    count = Shape.array(instruction.operands[1].shape.element_type, (len(parts),))
    dimension: dict[str, Attribute] = {"dimension": Number(0, I64)}
    (vector,) = block.emit("stablehlo.concatenate", parts, [tensor_type(count)], dimension)
    types = [mlir_type(instruction.shape)]
    return list(block.emit_for(instruction, "stablehlo.dynamic_reshape", types, operands=[operand, vector]))


def _rng(block: BlockExporter, instruction: Instruction) -> list[Leaf]:
    """Emits rng with the sizes of the result as the third operand."""
    sizes = np.array(instruction.shape.dimensions, np.int64)
    shape = block.constant(sizes, tensor_type(Shape.array(PrimitiveType.S64, sizes.shape)))
    attributes = BY_OPCODE["rng"].attributes(instruction.op, instruction.operand_shapes)
    return list(
        block.emit_for(
            instruction,
            "stablehlo.rng",
            [mlir_type(instruction.shape)],
            attributes=attributes,
            operands=[*block.leaves(*instruction.operands), shape],
        )
    )


# Unsupported operations

UNSUPPORTED = {
    "rng-get-and-update-state": "the random state of an execution is not part of a StableHLO program",
    "stochastic-convert": "StableHLO has no rounding that takes random bits",
}


def _unsupported(block: BlockExporter, instruction: Instruction) -> NoReturn:
    raise ArgumentError(f"{instruction.opcode} has no meaning in StableHLO: {UNSUPPORTED[instruction.opcode]}")


RULES: dict[str, Rule] = {
    **EXPANSIONS,
    **dict.fromkeys(UNSUPPORTED, _unsupported),
    **dict.fromkeys(("tuple", "copy", "domain", "async-update", "all-reduce-done"), _operands),
    **dict.fromkeys(("all-gather-done", "async-done", "collective-permute-done"), _element_rule(1)),
    **dict.fromkeys(("opt-barrier", "add-dependency"), _barrier),
    **dict.fromkeys(("call", "fusion"), _call),
    "after-all": _after_all,
    "all-gather-start": _start_rule("all-gather"),
    "all-reduce-start": _start_rule("all-reduce", contexts=False),
    "async-start": _async_start,
    "collective-permute": _permute,
    "collective-permute-start": _start_rule("collective-permute"),
    "conditional": _conditional,
    "constant": _constant,
    "elided-constant": _elided_constant,
    "copy-done": _element_rule(0),
    "copy-start": _copy_start,
    "custom-call": _custom_call,
    "dynamic-reshape": _dynamic_reshape,
    "get-tuple-element": _get_tuple_element,
    "recv": _recv,
    "recv-done": _recv_done,
    "rng": _rng,
    "send": _send,
    "send-done": _send_done,
    "while": _while,
}
