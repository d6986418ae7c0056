"""async-to-sync: replaces asynchronous operations by synchronous ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.collectives import AllGather, AllReduce, CollectivePermute
from hloom.ops.control_flow import Call
from hloom.ops.operation import Operation
from hloom.passes.expand.single_device import zeros
from hloom.passes.op_builder import Expander, OpBuilder, expand_all


@dataclass(frozen=True)
class AsyncToSync:
    """Before: async-start(..), calls=f, with its async-done; copy-start with its copy-done. After: a call of f; the
    operand.

    Likewise all-reduce-start(%x) with its done becomes all-reduce(%x), and so do other collectives.
    """

    name: ClassVar[str] = "async-to-sync"

    def run(self, module: Module) -> int:
        """Replaces the starts and dones; returns their number."""
        return expand_all(module, _EXPANDERS)


def _start(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    op: Any = old.op
    if not op.calls.result_shape.compatible(old.shape.elements[1]):
        return None
    called = build(Call(computation=op.calls), *old.operands)
    contexts = [zeros(build, shape) for shape in old.shape.elements[2:]]
    return build.tuple(build.tuple(*old.operands), called, *contexts)


def _context(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    operand = old.operands[0]
    return operand if operand.shape.compatible(old.shape) else None


def _done(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    result = old.operands[0].shape.elements[1]
    return build.element(old.operands[0], 1) if result.compatible(old.shape) else None


def _copy_start(build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    (operand,) = old.operands
    return build.tuple(operand, operand, zeros(build, old.shape.elements[2]))


def _all_reduce_start(build: OpBuilder, old: Instruction, module: Module) -> Instruction:
    return build(AllReduce(**old.op.__dict__), *old.operands, shape=old.shape)


def _collective_start(operation: type[Operation]) -> Expander:
    """Returns the expander of a start: a tuple (operands, results of `operation`, zeros for contexts..)."""

    def expand(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        given, received, *contexts = old.shape.elements
        operands = build.tuple(*old.operands) if given.is_tuple else old.operands[0]
        if not operands.shape.compatible(given):
            return None
        result = build(operation(**old.op.__dict__), *old.operands, shape=received)
        return build.tuple(operands, result, *(zeros(build, shape) for shape in contexts))

    return expand


_EXPANDERS: dict[str, Expander] = {
    "all-gather-start": _collective_start(AllGather),
    "all-gather-done": _done,
    "all-reduce-start": _all_reduce_start,
    "all-reduce-done": _context,
    "async-start": _start,
    "async-update": _context,
    "async-done": _done,
    "collective-permute-start": _collective_start(CollectivePermute),
    "collective-permute-done": _done,
    "copy-start": _copy_start,
    "copy-done": lambda build, old, module: build.element(old.operands[0], 0),
}
