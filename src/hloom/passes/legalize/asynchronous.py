"""async-to-sync: replaces asynchronous operations by synchronous ones."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.async_collectives import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
    CollectivePermuteDone,
    CollectivePermuteStart,
)
from hloom.ops.collectives import AllGather, AllReduce, CollectivePermute
from hloom.ops.communication import CopyDone, CopyStart
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate, Call
from hloom.ops.operation import Operation
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all
from hloom.system.records import record


@record
class AsyncToSync:
    """Before: async-start(..), calls=f, with its async-done; copy-start with its copy-done. After: a call of f; the
    operand.

    Likewise all-reduce-start(%x) with its done becomes all-reduce(%x), and so do other collectives.
    """

    name: ClassVar[str] = "async-to-sync"

    def run(self, module: Module) -> int:
        """Replaces the starts and dones; returns their number."""
        return expand_all(module, _EXPANDERS)


_EXPANDERS = Expanders()


@_EXPANDERS.rule(AsyncStart)
def _start(op: AsyncStart, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    """Returns the context with the result, also where its shape leaves that to async-done."""
    called = build(Call(computation=op.calls), *old.operands)
    contexts = [build.zeros(shape) for shape in old.shape.elements[2:]]
    return build.tuple(build.tuple(*old.operands), called, *contexts)


def _context(op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    operand = old.operands[0]
    return operand if operand.shape.compatible(old.shape) else None


def _update(op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    return old.operands[0]


def _done(op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    result = old.operands[0].shape.elements[1]
    return build.element(old.operands[0], 1) if result.compatible(old.shape) else None


@_EXPANDERS.rule(CopyStart)
def _copy_start(op: CopyStart, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    (operand,) = old.operands
    return build.tuple(operand, operand, build.zeros(old.shape.elements[2]))


@_EXPANDERS.rule(CopyDone)
def _copy_done(op: CopyDone, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    return build.element(old.operands[0], 0)


@_EXPANDERS.rule(AllReduceStart)
def _all_reduce_start(op: AllReduceStart, build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    return build(AllReduce(**op.__dict__), *old.operands, shape=old.shape)


def _collective_start(
    op: AllGatherStart | CollectivePermuteStart, build: OpBuilder, old: Instruction, module: Module
) -> Instruction | None:
    """Returns the tuple (operands, results of the synchronous operation, zeros for contexts..)."""
    given, received, *contexts = old.shape.elements
    operands = build.tuple(*old.operands) if given.is_tuple else old.operands[0]
    if not operands.shape.compatible(given):
        return None
    operation = AllGather if isinstance(op, AllGather) else CollectivePermute
    result = build(operation(**op.__dict__), *old.operands, shape=received)
    return build.tuple(operands, result, *(build.zeros(shape) for shape in contexts))


_EXPANDERS.add(AllGatherStart, _collective_start)
_EXPANDERS.add(AllGatherDone, _done)
_EXPANDERS.add(AllReduceDone, _context)
_EXPANDERS.add(AsyncUpdate, _update)
_EXPANDERS.add(AsyncDone, _done)
_EXPANDERS.add(CollectivePermuteStart, _collective_start)
_EXPANDERS.add(CollectivePermuteDone, _done)
