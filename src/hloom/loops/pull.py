"""Element functions: the expression of a result element in terms of operand elements, one function per operation.

`Puller.element(instruction, index)` composes these functions from an instruction back to buffers in memory. Expressions
are shared, so that nothing is computed twice for one index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloom.affine import Expression, Index, Variable, row_major_strides
from hloom.analysis.monoids import independent_parts
from hloom.ir import Computation, Instruction
from hloom.loops import expressions
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, FunctionCall, walk
from hloom.loops.scalar_computation import compute
from hloom.ops.broadcast import Iota
from hloom.ops.convert import BitcastConvert
from hloom.ops.dynamic_size import GetDimensionSize
from hloom.ops.elementwise_binary import And, Monoid
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.operation import Operation
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.registry import Registry
from hloom.ops.structure import Constant, GetTupleElement, OptimizationBarrier
from hloom.ops.traits import Movement, Reduction
from hloom.types import PrimitiveType


class Puller:
    """Makes the expressions of elements of instructions; `buffers` maps the instructions in memory to their buffers."""

    def __init__(self, space: ExpressionSpace, buffers: Mapping[Instruction, int]) -> None:
        self.space = space
        self.buffers = buffers
        self.pulled: dict[tuple[Instruction, Indices], list[Expression]] = {}
        """The expressions of the elements of each instruction at each index, operands before users."""
        self._depths: dict[Instruction, int] = {}

    def reduction_depth(self, instruction: Instruction) -> int:
        """The largest number of reductions on a path from the buffers to the instruction, including itself."""
        stack = [instruction]
        while stack:
            top = stack[-1]
            missing = [] if top in self.buffers else [o for o in top.operands if o not in self._depths]
            if missing:
                stack += missing
                continue
            stack.pop()
            before = 0 if top in self.buffers else max((self._depths[o] for o in top.operands), default=0)
            self._depths[top] = before + (isinstance(top.op, Reduction) and top not in self.buffers)
        return self._depths[instruction]

    def element(self, instruction: Instruction, index: Indices) -> Expression:
        """The element of an array instruction at an index."""
        return self.elements(instruction, index)[0]

    def elements(self, instruction: Instruction, index: Indices) -> list[Expression]:
        """The elements of an array, or of all arrays of a tuple, at one index.

        Chains of element-wise operations, which may be long, are followed without recursion.
        """
        stack = [(instruction, index)]
        while stack:
            key = stack[-1]
            missing = [] if key in self.pulled else [each for each in self._operands(*key) if each not in self.pulled]
            stack += reversed(missing)
            if not missing:
                stack.pop()
                if key not in self.pulled:
                    self.pulled[key] = self._pull(*key)
        return self.pulled[instruction, index]

    def _operands(self, instruction: Instruction, index: Indices) -> list[tuple[Instruction, Indices]]:
        """The operands of an element-wise instruction, each with the index of the element that it needs."""
        if instruction in self.buffers or not instruction.op.elementwise:
            return []
        return [(o, index if o.shape.rank or not index else ()) for o in instruction.operands]

    def _pull(self, instruction: Instruction, index: Indices) -> list[Expression]:
        buffer = self.buffers.get(instruction)
        if buffer is not None:
            shape = instruction.shape
            offset = self.space.indices.linear(index, row_major_strides(shape.dimensions))
            return [self.space.load(shape.element_type, buffer, offset)]
        op = instruction.op
        if op.elementwise:
            operands = [self.pulled[key][0] for key in self._operands(instruction, index)]
            return [self.space.apply(op, instruction.shape.element_type, *operands)]
        if isinstance(op, Movement):
            return [self.moved(instruction, index)]
        result = PULL[op](op, self, instruction, index)
        return result if isinstance(result, list) else [result]

    def compute(self, computation: Computation, arguments: Sequence[Expression]) -> list[Expression]:
        """Evaluates a scalar computation on expressions; returns its results."""
        return compute(self.space, computation, arguments)

    def reads(self, instruction: Instruction, index: Indices) -> tuple[PullIndexing, list[Read]]:
        """The reads of an operation with an indexing map, and the context, which has the reduction variables."""
        at = PullIndexing(self, instruction)
        reads = instruction.op.indexing(at, index)
        assert reads is not None, instruction.opcode
        return at, reads

    def moved(self, instruction: Instruction, index: Indices) -> Expression:
        """The element of a movement: that of the first read whose conditions hold."""
        result: Expression | None = None
        for read in reversed(self.reads(instruction, index)[1]):
            inside = self.holds(read)
            if inside is not False:
                element = self.element(instruction.operands[read.operand], read.index)
                result = element if result is None else self.space.where(inside, element, result)
        if result is None:  # the array has no elements
            type = instruction.shape.element_type
            return self.space.constant(type, np.zeros((), type.dtype))
        return result

    def holds(self, read: Read) -> Expression | bool:
        """Whether the conditions of a read hold."""
        result: Expression | bool = True
        for condition in read.conditions:
            inside = self.space.in_range(condition.index, condition.low, condition.high)
            result = self.logical_and(result, inside)
        return result

    def logical_and(self, a: Expression | bool, b: Expression | bool) -> Expression | bool:
        """The conjunction of conditions, some of which may be known."""
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return self.space.apply(And(), PrimitiveType.PRED, a, b)


class PullIndexing(Indexing):
    """Context of the indexing map of an instruction; `over` collects the variables of its reductions."""

    def __init__(self, puller: Puller, instruction: Instruction) -> None:
        shape = instruction.shape.elements[0] if instruction.shape.is_tuple else instruction.shape
        super().__init__(puller.space.indices, shape, instruction.operand_shapes)
        self.puller, self.instruction = puller, instruction
        self.over: list[Variable] = []

    def reduction(self, size: int, position: int) -> Index:
        if size == 1:
            return self.space.constant(0)
        depth = self.puller.reduction_depth(self.instruction)
        variable = self.puller.space.reduction_variable(size, depth, position)
        self.over.append(variable)
        return self.space.of(variable) if size else self.space.constant(0)

    def runtime(self, operand: int, index: Indices, low: int, high: int) -> Index:
        value = self.puller.element(self.instruction.operands[operand], index)
        if isinstance(value, expressions.Constant):
            return self.space.constant(max(low, min(int(value.value), high)))
        return self.space.runtime(value, low, high)


def can_pull(op: Operation) -> bool:
    """Whether there is an element function for operations of this class."""
    return op in PULL or (op.has_indexing() and isinstance(op, Movement))


# The element functions

PULL = Registry[[Puller, Instruction, Indices], Expression | list[Expression]]()
"""The element functions: each makes the element at an index of an instruction, or the elements of a tuple of arrays.

Element-wise operations and movements need none: their indexing maps say all.
"""


@PULL.rule(Constant)
def _constant(op: Constant, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    value = op.literal.value
    flat = value.reshape(-1)
    if flat.size == 0:
        return puller.space.constant(instruction.shape.element_type, np.zeros((), value.dtype))
    position = puller.space.indices.linear(index, row_major_strides(value.shape))
    if flat.size > 1 and position.low != position.high:
        first = flat[:1]
        if not (flat.view(np.uint8) == np.tile(first.view(np.uint8), flat.size)).all():
            raise ValueError("an array constant lies in memory")
        return puller.space.constant(instruction.shape.element_type, flat[0])
    return puller.space.constant(instruction.shape.element_type, flat[min(max(position.low, 0), flat.size - 1)])


@PULL.rule(Iota)
def _iota(op: Iota, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    return puller.space.from_index(instruction.shape.element_type, index[op.iota_dimension])


@PULL.rule(OptimizationBarrier)
def _optimization_barrier(
    op: OptimizationBarrier, puller: Puller, instruction: Instruction, index: Indices
) -> list[Expression]:
    return puller.elements(instruction.operands[0], index)


@PULL.rule(Reduce)
def _reduce(op: Reduce, puller: Puller, instruction: Instruction, index: Indices) -> list[Expression]:
    at, reads = puller.reads(instruction, index)
    elements = [puller.element(instruction.operands[read.operand], read.index) for read in reads]
    half = len(elements) // 2
    return _reductions(puller, op.computation, tuple(at.over), True, elements[:half], elements[half:])


@PULL.rule(ReduceWindow)
def _reduce_window(op: ReduceWindow, puller: Puller, instruction: Instruction, index: Indices) -> list[Expression]:
    at, reads = puller.reads(instruction, index)
    half = len(reads) // 2
    initial = [puller.element(operand, ()) for operand in instruction.operands[half:]]
    inside = puller.holds(reads[0])
    if inside is False:
        return initial
    values = [puller.element(instruction.operands[read.operand], read.index) for read in reads[:half]]
    return _reductions(puller, op.computation, tuple(at.over), inside, values, initial)


def _reductions(
    puller: Puller, computation: Computation, over: tuple[Variable, ...], inside: Expression | bool,
    values: Sequence[Expression], initial: Sequence[Expression],
) -> list[Expression]:  # fmt: skip
    """The results of a reduction, of which each independent part is one of its own.

    Values are skipped in iterations for which `inside` does not hold.
    """
    space, types = puller.space, [value.type for value in values]
    arguments = [space.argument(type, k) for k, type in enumerate([*types, *types])]
    combined = puller.compute(computation, arguments)
    found: dict[int, Expression] = {}
    for part in independent_parts(computation):
        own = part.accumulators
        positions = enumerate([*own, *(len(values) + k for k in own)])
        renumbered = {id(a := arguments[old]): space.argument(a.type, new) for new, old in positions}
        terms, combine = tuple(values[k] for k in own), space.replace([combined[k] for k in own], renumbered)
        if not isinstance(inside, bool):
            terms, combine = _guarded(space, inside, terms, combine, part.monoid)
        start = tuple(initial[k] for k in own)
        found |= zip(own, space.reduction(over, terms, start, tuple(combine), part.monoid), strict=True)
    return [found[k] for k in range(len(values))]


def _guarded(
    space: ExpressionSpace, inside: Expression, values: tuple[Expression, ...], combine: list[Expression],
    monoid: type[Monoid] | None,
) -> tuple[tuple[Expression, ...], list[Expression]]:  # fmt: skip
    """The values and the combiner of a reduction that skips values where `inside` does not hold."""
    if monoid is not None:
        identity_value = space.constant(values[0].type, monoid.identity(values[0].type))
        return (space.where(inside, values[0], identity_value),), combine
    flag = space.argument(PrimitiveType.PRED, 2 * len(values))
    old = [space.argument(value.type, k) for k, value in enumerate(values)]
    chosen = [space.where(flag, new, kept) for new, kept in zip(_guarded_calls(space, combine, flag), old, strict=True)]
    zeros = [space.constant(value.type, np.zeros((), value.type.dtype)) for value in values]
    safe = [space.where(inside, value, zero) for value, zero in zip(values, zeros, strict=True)]
    return (*safe, inside), chosen


def _guarded_calls(space: ExpressionSpace, values: list[Expression], flag: Expression) -> list[Expression]:
    """Replaces calls of functions by calls under a flag: the functions might not end for values that are skipped."""
    calls: dict[int, Expression] = {}
    for expression in walk(values):
        if isinstance(expression, Apply) and isinstance(op := expression.op, FunctionCall):
            calls[id(expression)] = space.apply(op.guarded(), expression.type, flag, *expression.operands)
    return space.replace(values, calls) if calls else values


@PULL.rule(GetDimensionSize)
def _get_dimension_size(op: GetDimensionSize, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    size = instruction.operands[0].shape.dimensions[op.dimension]
    return puller.space.constant(PrimitiveType.S32, np.asarray(size, np.int32))


@PULL.rule(GetTupleElement)
def _get_tuple_element(op: GetTupleElement, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    return puller.elements(instruction.operands[0], index)[op.index]


@PULL.rule(Map)
def _map(op: Map, puller: Puller, instruction: Instruction, index: Indices) -> list[Expression]:
    return puller.compute(op.computation, [puller.element(operand, index) for operand in instruction.operands])


@PULL.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    return puller.space.apply(op, instruction.shape.element_type, puller.element(instruction.operands[0], index))
