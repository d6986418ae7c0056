"""Collectives and indices of a single device, and communication with the host.

Values that a program sends are effects, in order; values that it receives are unknown, the n-th being the same in both
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import RuleError
from hloom.ir import Instruction
from hloom.ops.async_collectives import AllGatherDone, AllReduceDone, CollectivePermuteDone
from hloom.ops.collectives import CollectivePermute
from hloom.ops.communication import CopyDone, Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from hloom.ops.device_index import PartitionId, ReplicaId
from hloom.ops.operation import Operation
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.replica_groups import Collective
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.meanings.structure import symbol_of
from hloom.prove.terms.term import Term, Unknown, Unsupported, array_of, constant, node
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import TOKEN_VALUE, zeros

U32 = scalar(PrimitiveType.U32)


class Alone:
    """The part of a context that collectives look at, on the only device of a program."""

    replica_id = partition_id = 0
    replica_count = partition_count = 1

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.shape, self.operand_shapes = instruction.shape, tuple(instruction.operand_shapes)

    def exchange(
        self, members: Sequence[int], value: Any, channel_id: int | None, combine: Callable[[list[Any]], Any]
    ) -> Any:
        """Returns `combine` of this device's value alone."""
        return combine([value])


def _alone(op: Operation, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Runs the semantics of a collective, which move the elements of a single device."""
    try:
        op.check_run(1, 1, instruction.shape, instruction.operand_shapes)
    except RuleError as error:
        raise Unsupported(f"several devices ({error})") from None
    site: Any = Alone(instruction)
    return _symbols(op.evaluate(site, *op.bind(operands)), instruction.shape)


def _symbols(value: Any, shape: Shape) -> Symbol:
    """Makes constants of the zeros that a collective adds."""
    if shape.is_tuple:
        return tuple(_symbols(v, s) for v, s in zip(value, shape.elements, strict=True))
    if not shape.is_array:
        return TOKEN_VALUE
    flat = [x if isinstance(x, Term) else constant(shape.element_type, x) for x in np.asarray(value).reshape(-1)]
    return array_of(flat, np.shape(value))


for _declaration in (Collective, CollectivePermute, ReplicaId, PartitionId):
    RULES.add(_declaration, _alone)


@RULES.rule(RaggedAllToAll)
def _ragged_all_to_all(
    op: RaggedAllToAll, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    """Moves rows, if the offsets and sizes are constants."""
    offsets = []
    for array in operands[2:]:
        if any(x.known is None for x in array.reshape(-1)):
            raise Unsupported("rows whose number and place depend on the arguments")
        offsets.append(np.array([x.known for x in array.reshape(-1)], np.int64).reshape(array.shape))
    return _alone(op, evaluator, instruction, [*operands[:2], *offsets])


def _done(op: Operation, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Runs the semantics of a done, which take the result out of the context."""
    site: Any = None
    return op.evaluate(site, operands[0])


for _completion in (AllGatherDone, AllReduceDone, CollectivePermuteDone, CopyDone):
    RULES.add(_completion, _done)


def taken(evaluator: Evaluator, kind: str, shape: Shape) -> Symbol:
    """Returns unknown elements of a value that comes from outside."""
    name = evaluator.next_source(kind)
    return _unknown(name, shape)


def _unknown(name: str, shape: Shape) -> Symbol:
    if shape.is_tuple:
        return tuple(_unknown(f"{name}.{k}", element) for k, element in enumerate(shape.elements))
    if not shape.is_array:
        return TOKEN_VALUE
    terms = [node(shape.element_type, Unknown(f"{name}[{k}]"), ()) for k in range(shape.element_count)]
    return array_of(terms, shape.dimensions)


@RULES.rule(Infeed)
def _infeed(op: Infeed, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return (taken(evaluator, "infeed", instruction.shape.elements[0]), TOKEN_VALUE)


@RULES.rule(Outfeed)
def _outfeed(op: Outfeed, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    evaluator.effects.append(("outfeed", operands[0]))
    return TOKEN_VALUE


@RULES.rule(Send)
def _send(op: Send, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Gives the data to the host. Raises Unsupported for transfers between devices."""
    if not op.is_host_transfer:
        raise Unsupported("transfers between devices")
    evaluator.effects.append((f"send on channel {op.channel_id}", operands[0]))
    return (operands[0], symbol_of(zeros(U32), U32), TOKEN_VALUE)


@RULES.rule(SendDone)
def _send_done(op: SendDone, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return TOKEN_VALUE


@RULES.rule(Recv)
def _recv(op: Recv, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return symbol_of(zeros(instruction.shape), instruction.shape)


@RULES.rule(RecvDone)
def _recv_done(op: RecvDone, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Takes the data from the host. Raises Unsupported for transfers between devices."""
    if not op.is_host_transfer:
        raise Unsupported("transfers between devices")
    return (taken(evaluator, f"recv on channel {op.channel_id}", instruction.shape.elements[0]), TOKEN_VALUE)
