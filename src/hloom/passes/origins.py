"""Origins of values: the arrays that elements may be copied from, through tuples, loops and other computations."""

from __future__ import annotations

from collections.abc import Iterator

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate, Call, Conditional, Fusion, While
from hloom.ops.custom_call import PAD_TO_STATIC, SLICE_TO_DYNAMIC, TOP_K_TARGETS, CustomCall
from hloom.ops.reduce import Map
from hloom.ops.select import Select
from hloom.ops.sort import Sort, TopK
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.ops.traits import AppliesScalar, Communication, Done, Identity, Movement
from hloom.passes.edit import callers
from hloom.runtime.custom_calls.targets import markers

ShapeIndex = tuple[int, ...]
"""Index of an array in nested tuples, as XLA's ShapeIndex; () if the value is an array itself."""
Position = tuple[Instruction, ShapeIndex]
"""An array that an instruction returns, as XLA's HloPosition."""

_MOVING_TARGETS = TOP_K_TARGETS | {PAD_TO_STATIC, SLICE_TO_DYNAMIC}


class Origins:
    """The origins of the values of a module."""

    def __init__(self, module: Module) -> None:
        self.callers = callers(module)

    def of(self, instruction: Instruction, index: ShapeIndex) -> list[Position] | None:
        """Returns the positions that elements of a value may be copied from; None if the instruction computes them.

        The arguments of the module are copied from nowhere.
        """
        operands = instruction.operands
        match instruction.op:
            case Identity():
                return [(operands[0], index)]
            case Movement() as op:
                return [(operand, ()) for operand in operands[: op.moved_operands]]
            case Select():
                return [(operand, ()) for operand in operands[1:]]
            case Parameter() as op:
                computation = instruction.parent
                assert computation is not None
                called = self.callers[computation]
                return [position for caller in called for position in _given(caller, computation, op.number, index)]
            case GetTupleElement() as op:
                return self.of(operands[0], (op.index, *index))
            case Tuple():
                return [(operands[index[0]], index[1:])]
            case While() as op:
                return [(operands[0], index), (op.body.root, index)]
            case Call() | Conditional() | Fusion() as op:
                return [(computation.root, index) for computation in op.computations]
            case Sort() | TopK():
                return [(operands[index[0] if index else 0], ())]
            case Done() | AsyncDone():
                return _awaited(instruction, index)
        return [(operand, ()) for operand in operands] if _only_moves(instruction) else None


def _only_moves(instruction: Instruction) -> bool:
    """Whether the results have elements of operands: a collective without a combiner, a combiner that chooses, .."""
    op = instruction.op
    if isinstance(op, CustomCall):
        return op.target_name in markers() | _MOVING_TARGETS or op.target_name.startswith("xla.sdy.")
    if isinstance(op, (AppliesScalar, Communication)):
        return all(isinstance(computation.root.op, Parameter) for computation in op.computations)
    return False


def _awaited(done: Instruction, index: ShapeIndex) -> list[Position] | None:
    """Returns the positions that the result of a start, for which `done` waits, may be copied from."""
    (start,) = done.operands
    while isinstance(start.op, AsyncUpdate):
        (start,) = start.operands
    if isinstance(start.op, AsyncStart):
        return [(start.op.calls.root, index)]
    return None if [*start.op.computations] else [(operand, ()) for operand in start.operands]


def _given(caller: Instruction, computation: Computation, number: int, index: ShapeIndex) -> Iterator[Position]:
    """Yields the values that an instruction passes to parameter `number` of a computation that it calls."""
    match caller.op:
        case While() as op:
            yield from ((caller.operands[0], index), (op.body.root, index))
        case Conditional() as op:
            branches = enumerate(op.branch_computations, 1)
            yield from ((caller.operands[k], index) for k, branch in branches if branch is computation)
        case Call() | Fusion() | Map() | AsyncStart():
            yield caller.operands[number], index
        case Sort():
            yield caller.operands[number // 2], index
        case AsyncUpdate() | AsyncDone():
            return
        case _:
            # Elements of any operand, and earlier results of the computation.
            root = computation.root
            yield from ((operand, ()) for operand in caller.operands)
            yield from ((root, (k,)) for k in range(len(root.shape.elements))) if root.shape.is_tuple else [(root, ())]
