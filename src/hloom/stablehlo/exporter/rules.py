"""Rules of HLO operations that are not one StableHLO op on the same operands.

A rule takes the operation, the exporter of the block, which has the operands' leaves, and the instruction; it emits ops
and returns the leaves of the result.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction
from hloom.ops.async_collectives import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
    CollectivePermuteDone,
    CollectivePermuteStart,
)
from hloom.ops.collectives import AllGather, AllReduce, CollectivePermute
from hloom.ops.communication import CopyDone, CopyStart, Recv, RecvDone, Send, SendDone, transfer_pairs
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate, Call, Conditional, Fusion, While
from hloom.ops.convert import StochasticConvert
from hloom.ops.operation import Operation
from hloom.ops.reshape import Copy, DynamicReshape
from hloom.ops.rng import Rng, RngGetAndUpdateState
from hloom.ops.structure import (
    AddDependency,
    AfterAll,
    Constant,
    Domain,
    ElidedConstant,
    GetTupleElement,
    OptimizationBarrier,
    Tuple,
)
from hloom.shape import Shape
from hloom.stablehlo.exporter.block import (
    RULES,
    BlockExporter,
    Leaf,
    Leaves,
    leaf_count,
    leaf_types,
)
from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute, ElidedElements, Symbol
from hloom.stablehlo.mlir.parser import parse_attribute
from hloom.stablehlo.mlir.types import TOKEN_TYPE, i32, i64, i64_table, tensor_type
from hloom.stablehlo.operations import BY_OPCODE, attributes_of
from hloom.types import PrimitiveType

# Operations without a counterpart, whose values are their operands


def _operands(op: Operation, block: BlockExporter, instruction: Instruction) -> Leaves:
    """The leaves of the operands: tuple, and operations that are the identity on values."""
    return [leaf for operand in instruction.operands for leaf in block.values[operand]]


def _result_done(op: Operation, block: BlockExporter, instruction: Instruction) -> Leaves:
    """The result in the context (operands, results, contexts..) of a start."""
    return block.element(instruction.operands[0], 1)


for _identity in (Tuple, Copy, Domain, AsyncUpdate, AllReduceDone):
    RULES.add(_identity, _operands)
for _done in (AllGatherDone, AsyncDone, CollectivePermuteDone):
    RULES.add(_done, _result_done)


@RULES.rule(CopyStart)
def _copy_start(op: CopyStart, block: BlockExporter, instruction: Instruction) -> Leaves:
    """The tuple (copy, operand, context), in which the copy is the operand itself."""
    leaves = _operands(op, block, instruction)
    return [*leaves, *leaves, None]


@RULES.rule(CopyDone)
def _copy_done(op: CopyDone, block: BlockExporter, instruction: Instruction) -> Leaves:
    return block.element(instruction.operands[0], 0)


@RULES.rule(GetTupleElement)
def _get_tuple_element(op: GetTupleElement, block: BlockExporter, instruction: Instruction) -> Leaves:
    return block.element(instruction.operands[0], op.index)


@RULES.rule(Constant)
def _constant(op: Constant, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits a constant; unused ones, such as the sizes of an rng that was read from StableHLO, emit nothing."""
    if not instruction.users and (instruction.parent is None or instruction.parent.root is not instruction):
        return [None] * leaf_count(op.literal.shape)
    return _literal(block, op.literal.shape, op.literal.value)


@RULES.rule(ElidedConstant)
def _elided_constant(op: ElidedConstant, block: BlockExporter, instruction: Instruction) -> Leaves:
    types = [tensor_type(leaf) for leaf in instruction.shape.leaves()]
    return [block.emit("stablehlo.constant", [], [type_], {"value": ElidedElements(type_)})[0] for type_ in types]


def _literal(block: BlockExporter, shape: Shape, value: object) -> Leaves:
    if isinstance(value, tuple):
        parts = zip(shape.elements, value, strict=True)
        return [leaf for element, part in parts for leaf in _literal(block, element, part)]
    return [block.constant(np.asarray(value), tensor_type(shape)) if shape.is_array else block.zeros(shape)]


# Tokens


@RULES.rule(AfterAll)
def _after_all(op: AfterAll, block: BlockExporter, instruction: Instruction) -> Leaves:
    if not instruction.operands:
        return [block.emit("stablehlo.create_token", [], [TOKEN_TYPE])[0]]
    return block.regular(instruction)


def _barrier(op: Operation, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits optimization_barrier, also for add-dependency: its results are computed after all of its operands."""
    operands = block.leaves(*instruction.operands)
    results = block.emit_for(instruction, "stablehlo.optimization_barrier", types=[value.type for value in operands])
    return results[: leaf_count(instruction.shape)]


RULES.add(OptimizationBarrier, _barrier)
RULES.add(AddDependency, _barrier)


# Calls and control flow


@RULES.rule(Call)
def _call(op: Call, block: BlockExporter, instruction: Instruction) -> Leaves:
    if op.is_composite:
        return _composite(op, block, instruction)
    return _function_call(op.computation, block, instruction)


@RULES.rule(Fusion)
def _fusion(op: Fusion, block: BlockExporter, instruction: Instruction) -> Leaves:
    return _function_call(op.calls, block, instruction)


def _function_call(computation: Computation, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits a call of the private function of a computation."""
    types = leaf_types(computation.result_shape)
    callee: dict[str, Attribute] = {"callee": Symbol(block.context.symbol(computation))}
    return block.emit_for(instruction, "func.call", types=types, attributes=callee)


def _composite(op: Call, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits a composite, whose name, attributes and version are in frontend attributes with the prefix `composite.`."""
    given = instruction.frontend_attributes
    if "composite.name" not in given:
        raise ArgumentError("a composite call has the frontend attribute composite.name")
    attributes: dict[str, Attribute] = {
        "name": given["composite.name"],
        "decomposition": Symbol(block.context.symbol(op.computation)),
    }
    if given.get("composite.attributes", "{}").strip() not in ("", "{}"):
        attributes["composite_attributes"] = parse_attribute(given["composite.attributes"])
    version = given.get("composite.version", "0")
    if not re.fullmatch(r"\d{1,9}", version):
        raise ArgumentError(f"composite.version is a number of at most 9 digits, got {version[:40]!r}")
    if int(version):
        attributes["version"] = i32(int(version))
    rest = {key: value for key, value in given.items() if not key.startswith("composite.")}
    if rest:
        attributes["mhlo.frontend_attributes"] = dict(rest)
    operands = block.leaves(*instruction.operands)
    return block.emit("stablehlo.composite", operands, leaf_types(instruction.shape), attributes)


@RULES.rule(AsyncStart)
def _async_start(op: AsyncStart, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the call itself."""
    return _started(op, block, instruction, _function_call(op.calls, block, instruction))


def _started(op: Operation, block: BlockExporter, instruction: Instruction, results: Leaves) -> Leaves:
    """The leaves of the tuple (operands, results, contexts..) of a start, whose contexts are undefined."""
    known = [*_operands(op, block, instruction), *results]
    return [*known, *[None] * (leaf_count(instruction.shape) - len(known))]


@RULES.rule(While)
def _while(op: While, block: BlockExporter, instruction: Instruction) -> Leaves:
    return block.emit_for(instruction, "stablehlo.while", regions=map(block.region, (op.condition, op.body)))


@RULES.rule(Conditional)
def _conditional(op: Conditional, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits if or case. Their regions take no arguments: branches refer to their operands as outer values."""
    index, *operands = instruction.operands
    regions = [
        block.region(branch, [block.leaves(operand)])
        for branch, operand in zip(op.branch_computations, operands, strict=True)
    ]
    name = "stablehlo.if" if index.shape.element_type.is_pred else "stablehlo.case"
    return block.emit_for(instruction, name, operands=block.leaves(index), regions=regions)


# Communication


@RULES.rule(AllReduceStart)
def _all_reduce_start(op: AllReduceStart, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the whole all-reduce, whose result is the context."""
    return block.regular(instruction, AllReduce.opcode)


@RULES.rule(AllGatherStart)
def _all_gather_start(op: AllGatherStart, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the whole all-gather."""
    results = block.regular(instruction, AllGather.opcode, instruction.shape.elements[1])
    return _started(op, block, instruction, results)


@RULES.rule(CollectivePermuteStart)
def _permute_start(op: CollectivePermuteStart, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the whole collective-permute."""
    return _started(op, block, instruction, _permute(op, block, instruction))


@RULES.rule(CollectivePermute)
def _permute(op: CollectivePermute, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits a collective_permute for each operand."""
    attributes = BY_OPCODE[CollectivePermute.opcode].attributes(op)
    results: list[Leaf] = []
    for value in block.leaves(*instruction.operands):
        results += block.emit_for(
            instruction, "stablehlo.collective_permute", operands=[value], types=[value.type], attributes=attributes
        )
    return results


def _transfer(op: Send | Recv, instruction: Instruction, host_type: int) -> dict[str, Attribute]:
    """Attributes of send and recv; `host_type` is the channel type for a transfer to or from the host."""
    attributes = attributes_of(op)
    if pairs := transfer_pairs(instruction):
        attributes["source_target_pairs"] = i64_table(pairs)
    handle = attributes["channel_handle"]
    if op.is_host_transfer and isinstance(handle, DialectAttribute):
        body = {**handle.body, "type": i64(host_type)} if isinstance(handle.body, dict) else handle.body
        attributes["channel_handle"] = DialectAttribute(handle.name, body)
    return attributes


@RULES.rule(Send)
def _send(op: Send, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits the whole send; the tuple is (operand, request id, token), of which send-done returns the token."""
    attributes = _transfer(op, instruction, 2)
    (token,) = block.emit_for(instruction, "stablehlo.send", types=[TOKEN_TYPE], attributes=attributes)
    return [*block.values[instruction.operands[0]], None, token]


@RULES.rule(SendDone)
def _send_done(op: SendDone, block: BlockExporter, instruction: Instruction) -> Leaves:
    return [block.values[instruction.operands[0]][-1]]


@RULES.rule(Recv)
def _recv(op: Recv, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits nothing: recv-done receives, so that sends between the two come first."""
    return [None] * leaf_count(instruction.shape)


@RULES.rule(RecvDone)
def _recv_done(op: RecvDone, block: BlockExporter, instruction: Instruction) -> Leaves:
    (start,) = instruction.operands
    if not isinstance(start.op, Recv):
        raise ArgumentError(f"recv-done of the context of {start.opcode} cannot be exported: only that of recv can")
    types = leaf_types(instruction.shape)
    return block.emit_for(start, "stablehlo.recv", types=types, attributes=_transfer(start.op, start, 3))


# Operations with sizes as operands


@RULES.rule(DynamicReshape)
def _dynamic_reshape(op: DynamicReshape, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits dynamic_reshape, with the sizes concatenated to a vector."""
    operand, *sizes = block.leaves(*instruction.operands)
    if not sizes:
        return block.emit_for(instruction, "stablehlo.reshape", operands=[operand])
    one = tensor_type(Shape.array(instruction.operands[1].shape.element_type, (1,)))
    parts = [block.emit("stablehlo.reshape", [size], [one])[0] for size in sizes]
    count = Shape.array(instruction.operands[1].shape.element_type, (len(parts),))
    dimension: dict[str, Attribute] = {"dimension": i64(0)}
    (vector,) = block.emit("stablehlo.concatenate", parts, [tensor_type(count)], dimension)
    return block.emit_for(instruction, "stablehlo.dynamic_reshape", operands=[operand, vector])


@RULES.rule(Rng)
def _rng(op: Rng, block: BlockExporter, instruction: Instruction) -> Leaves:
    """Emits rng with the sizes of the result as the third operand."""
    sizes = np.array(instruction.shape.dimensions, np.int64)
    shape = block.constant(sizes, tensor_type(Shape.array(PrimitiveType.S64, sizes.shape)))
    operands = [*block.leaves(*instruction.operands), shape]
    return block.emit_for(instruction, "stablehlo.rng", operands=operands, attributes=attributes_of(op))


# Unsupported operations


@RULES.rule(RngGetAndUpdateState)
def _random_state(op: RngGetAndUpdateState, block: BlockExporter, instruction: Instruction) -> NoReturn:
    _unsupported(op, "the random state of an execution is not part of a StableHLO program")


@RULES.rule(StochasticConvert)
def _stochastic_convert(op: StochasticConvert, block: BlockExporter, instruction: Instruction) -> NoReturn:
    _unsupported(op, "StableHLO has no rounding that takes random bits")


def _unsupported(op: Operation, reason: str) -> NoReturn:
    raise ArgumentError(f"{op.opcode} has no meaning in StableHLO: {reason}")
