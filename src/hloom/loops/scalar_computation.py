"""Scalar computations (combiners, comparators, maps) as expressions of their parameters.

Element-wise instructions become expressions. Calls and conditionals are inlined; all branches of a conditional are
computed, and one result is selected. Computations with loops or arrays must be outlined before: the backend replaces
them by one element-wise instruction that calls a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hloom.affine import Expression
from hloom.ir import Computation, Instruction
from hloom.loops.expression_space import ExpressionSpace
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Call, Conditional, Fusion
from hloom.ops.convert import BitcastConvert
from hloom.ops.operation import Operation
from hloom.ops.reduce import Map
from hloom.ops.select import Select
from hloom.ops.structure import Constant, GetTupleElement, Tuple
from hloom.ops.traits import Identity, Movement, Structural
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import leaves

CanApply = Callable[[Operation, PrimitiveType, Sequence[PrimitiveType]], bool]
"""Whether the target can compute an element-wise operation: (operation, result type, operand types)."""

_INLINED = (Call, Conditional, Fusion, Map)
"""Operations whose computations are inlined: each runs at most once, which while and reduce do not guarantee."""
MAX_BRANCH = 64
"""The largest number of instructions of a branch of a conditional that is inlined."""
MAX_INLINED = 4096
"""The largest number of instructions inlined into a computation, counted at each call."""
MAX_DEPTH = 100
"""The largest number of instructions on a path of dependences, also through calls: emitters recurse along them."""


def is_scalar_computation(computation: Computation) -> bool:
    """Whether `compute` can evaluate a computation: all values are scalars, or tuples of them, and it has no loops.

    The computations that it calls are inlined, so their size is limited (MAX_INLINED), and so is the depth (MAX_DEPTH).
    """
    extent = _size_and_depth(computation, {}, MAX_DEPTH)
    return extent is not None and extent[0] - len(computation.instructions) <= MAX_INLINED


def _size_and_depth(
    computation: Computation, known: dict[Computation, tuple[int, int] | None], levels: int
) -> tuple[int, int] | None:
    """The number of instructions of a computation and its callees, and the length of its longest path of dependences.

    None if it has instructions that cannot be inlined, or too long paths. Calls may nest `levels` deep.
    """
    if computation not in known:
        known[computation] = None
        if not levels:
            return None
        depths: dict[Instruction, int] = {}
        size = len(computation.instructions)
        for instruction in computation.instructions:
            inside: Sequence[tuple[int, int] | None] = ()
            if isinstance(instruction.op, _INLINED):
                inside = [_size_and_depth(called, known, levels - 1) for called in instruction.op.computations]
            if None in inside or not _is_scalar(instruction):
                return None
            size += sum(called[0] for called in inside if called)
            before = max((depths[operand] for operand in instruction.operands), default=0)
            depths[instruction] = before + max((called[1] for called in inside if called), default=1)
            if depths[instruction] > MAX_DEPTH:
                return None
        known[computation] = (size, depths[computation.root])
    return known[computation]


def _is_scalar(instruction: Instruction) -> bool:
    """Whether `compute` can evaluate an instruction, if it can evaluate the computations that it calls."""
    if not all(leaf.is_scalar for leaf in instruction.shape.leaves()):
        return False
    op = instruction.op
    if is_applied_to_elements(op) or isinstance(op, Structural):
        return True
    if isinstance(op, (Identity, Movement)) and len(instruction.operands) == 1:
        operand = instruction.operands[0].shape
        return all(a.compatible(b) for a, b in zip(operand.leaves(), instruction.shape.leaves(), strict=True))
    if isinstance(op, Conditional):
        return all(len(branch.instructions) <= MAX_BRANCH for branch in op.branch_computations)
    return isinstance(op, _INLINED)


def is_applied_to_elements(op: Operation) -> bool:
    """Whether an expression can apply an operation to elements, if the sizes of its operand and result are equal."""
    return op.elementwise or isinstance(op, BitcastConvert)


def elementwise_instructions(computation: Computation) -> Iterator[Instruction]:
    """The element-wise instructions of a scalar computation and of the computations that it calls."""
    worklist, found = [computation], {computation}
    while worklist:
        for instruction in worklist.pop().instructions:
            op = instruction.op
            if is_applied_to_elements(op):
                yield instruction
            elif isinstance(op, _INLINED):
                new = [called for called in op.computations if called not in found]
                found.update(new)
                worklist += new


def can_compute(computation: Computation, can_apply: CanApply) -> bool:
    """Whether a computation can be evaluated as expressions, and the target supports all its operations."""
    return is_scalar_computation(computation) and all(
        can_apply(i.op, i.shape.element_type, [operand.element_type for operand in i.operand_shapes])
        for i in elementwise_instructions(computation)
    )


Value = Any
"""An expression, or a tuple of values."""


def compute(space: ExpressionSpace, computation: Computation, arguments: Sequence[Expression]) -> list[Expression]:
    """Evaluates a scalar computation on expressions; returns its results, tuples flattened."""
    return list(leaves(_evaluate(space, computation, arguments)))


def _evaluate(space: ExpressionSpace, computation: Computation, arguments: Sequence[Value]) -> Value:
    values: dict[Instruction, Value] = dict(zip(computation.parameters, arguments, strict=True))
    for instruction in computation.instructions:
        if instruction not in values:
            values[instruction] = _apply(space, instruction, [values[operand] for operand in instruction.operands])
    return values[computation.root]


def _apply(space: ExpressionSpace, instruction: Instruction, operands: list[Value]) -> Value:
    op = instruction.op
    if is_applied_to_elements(op):
        return space.apply(op, instruction.shape.element_type, *operands)
    match op:
        case Constant():
            return _constant(space, instruction.shape, op.literal.value)
        case Tuple():
            return tuple(operands)
        case GetTupleElement():
            return operands[0][op.index]
        case Conditional():
            return _conditional(space, op.branch_computations, operands)
        case Call() | Fusion() | Map():
            (called,) = op.computations
            return _evaluate(space, called, operands)
        case _:
            return operands[0]


def _constant(space: ExpressionSpace, shape: Shape, value: Any) -> Value:
    if shape.is_tuple:
        return tuple(_constant(space, s, v) for s, v in zip(shape.elements, value, strict=True))
    return space.constant(shape.element_type, value.reshape(()))


def _conditional(space: ExpressionSpace, branches: Sequence[Computation], operands: list[Value]) -> Value:
    """Evaluates all branches and selects a result; indices out of range select the last branch (CONDITIONAL-4)."""
    selector, *arguments = operands
    results = [_evaluate(space, branch, [argument]) for branch, argument in zip(branches, arguments, strict=True)]
    if selector.type is PrimitiveType.PRED:
        return _selected(space, selector, results[0], results[1])
    chosen = results[-1]
    for branch_index, result in enumerate(results[:-1]):
        wanted = space.constant(selector.type, np.asarray(branch_index, selector.type.dtype))
        equal = space.apply(Compare(direction=ComparisonDirection.EQ), PrimitiveType.PRED, selector, wanted)
        chosen = _selected(space, equal, result, chosen)
    return chosen


def _selected(space: ExpressionSpace, condition: Expression, then: Value, otherwise: Value) -> Value:
    if isinstance(then, tuple):
        return tuple(_selected(space, condition, t, o) for t, o in zip(then, otherwise, strict=True))
    return then if then is otherwise else space.apply(Select(), then.type, condition, then, otherwise)
