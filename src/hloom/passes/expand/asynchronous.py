"""async-to-sync: what is started and waited for becomes what is done at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.collectives import AllGather, AllReduce, CollectivePermute
from hloom.ops.control_flow import Call
from hloom.ops.operation import Operation
from hloom.passes.expand.maker import Expander, Maker, expand_all
from hloom.passes.expand.single_device import zeros


@dataclass(frozen=True)
class AsyncToSync:
    """Before: async-start(..), calls=f, and its done; copy-start and its done. After: a call of f; the operand.

    Collectives likewise: all-reduce-start(%x) and its done become all-reduce(%x).
    """

    name: ClassVar[str] = "async-to-sync"

    def run(self, module: Module) -> int:
        return expand_all(module, _EXPANDERS)


def _start(make: Maker, old: Instruction, module: Module) -> Instruction | None:
    op: Any = old.op
    if not op.calls.result_shape.compatible(old.shape.elements[1]):
        return None
    called = make(Call(computation=op.calls), *old.operands)
    contexts = [zeros(make, shape) for shape in old.shape.elements[2:]]
    return make.tuple(make.tuple(*old.operands), called, *contexts)


def _context(make: Maker, old: Instruction, module: Module) -> Instruction | None:
    operand = old.operands[0]
    return operand if operand.shape.compatible(old.shape) else None


def _done(make: Maker, old: Instruction, module: Module) -> Instruction | None:
    result = old.operands[0].shape.elements[1]
    return make.element(old.operands[0], 1) if result.compatible(old.shape) else None


def _copy_start(make: Maker, old: Instruction, module: Module) -> Instruction:
    (operand,) = old.operands
    return make.tuple(operand, operand, zeros(make, old.shape.elements[2]))


def _all_reduce_start(make: Maker, old: Instruction, module: Module) -> Instruction:
    return make(AllReduce(**old.op.__dict__), *old.operands, shape=old.shape)


def _collective_start(operation: type[Operation]) -> Expander:
    """(operands, results, contexts..), the results being those of an operation."""

    def expand(make: Maker, old: Instruction, module: Module) -> Instruction | None:
        given, received, *contexts = old.shape.elements
        operands = make.tuple(*old.operands) if given.is_tuple else old.operands[0]
        if not operands.shape.compatible(given):
            return None
        result = make(operation(**old.op.__dict__), *old.operands, shape=received)
        return make.tuple(operands, result, *(zeros(make, shape) for shape in contexts))

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
    "copy-done": lambda make, old, module: make.element(old.operands[0], 0),
}
