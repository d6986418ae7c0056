"""Element functions: the expression of a result element in terms of operand elements, one function an operation.

`Puller.element(instruction, index)` composes these functions from an instruction back to buffers in memory. Expressions
are shared, so that nothing is computed twice for one index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction
from hloom.loops import expressions
from hloom.loops.expressions import Apply, ExpressionSpace, FunctionCall, walk
from hloom.loops.index import Expression, Index, Variable
from hloom.loops.scalar_computation import compute
from hloom.monoids import monoid_of
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.convert import BitcastConvert
from hloom.ops.dynamic_size import GetDimensionSize
from hloom.ops.elementwise_binary import And
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.registry import Registry
from hloom.ops.reshape import Bitcast, Copy, Reshape
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.structure import Constant, GetTupleElement, OptimizationBarrier
from hloom.ops.traits import Reduction
from hloom.ops.transpose import Reverse, Transpose
from hloom.shape import Shape
from hloom.types import PrimitiveType

Indices = tuple[Index, ...]


def row_major_strides(sizes: Sequence[int]) -> list[int]:
    """The strides, in elements, of the dimensions of a dense row-major array."""
    strides, step = [0] * len(sizes), 1
    for d in range(len(sizes) - 1, -1, -1):
        strides[d] = step
        step *= sizes[d]
    return strides


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
        """The elements of an array, or of all arrays of a tuple, at one index."""
        key = (instruction, index)
        found = self.pulled.get(key)
        if found is None:
            found = self.pulled[key] = self._pull(instruction, index)
        return found

    def _pull(self, instruction: Instruction, index: Indices) -> list[Expression]:
        buffer = self.buffers.get(instruction)
        if buffer is not None:
            shape = instruction.shape
            offset = self.space.indices.linear(index, row_major_strides(shape.dimensions))
            return [self.space.load(shape.element_type, buffer, offset)]
        op = instruction.op
        if op.elementwise:
            operands = [self.element(o, index if o.shape.rank or not index else ()) for o in instruction.operands]
            return [self.space.apply(op, instruction.shape.element_type, *operands)]
        result = PULL[op](op, self, instruction, index)
        return result if isinstance(result, list) else [result]

    def compute(self, computation: Computation, arguments: Sequence[Expression]) -> list[Expression]:
        """Evaluates a scalar computation on expressions; returns its results."""
        return compute(self.space, computation, arguments)

    def scalar_index(self, instruction: Instruction, low: int, high: int) -> Index:
        """A scalar integer instruction as an index clamped to [low, high]."""
        value = self.element(instruction, ())
        return self.clamped(value, low, high)

    def clamped(self, value: Expression, low: int, high: int) -> Index:
        """An integer expression as an index clamped to [low, high]."""
        if isinstance(value, expressions.Constant):
            return self.space.indices.constant(max(low, min(int(value.value), high)))
        return self.space.indices.dynamic(value, low, high)

    def logical_and(self, a: Expression | bool, b: Expression | bool) -> Expression | bool:
        """The conjunction of conditions, some of which may be known."""
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return self.space.apply(And(), PrimitiveType.PRED, a, b)


# The element functions

PULL = Registry[[Puller, Instruction, Indices], Expression | list[Expression]]()
"""The element functions: each makes the element at an index of an instruction, or the elements of a tuple of arrays.

Element-wise operations need none.
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


@PULL.rule(Broadcast)
def _broadcast(op: Broadcast, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    return puller.element(instruction.operands[0], tuple(index[d] for d in op.broadcast_dimensions))


def _forwarded(op: Operation, puller: Puller, instruction: Instruction, index: Indices) -> list[Expression]:
    return puller.elements(instruction.operands[0], index)


PULL.add(Copy, _forwarded)
PULL.add(OptimizationBarrier, _forwarded)


def _reshape(op: Operation, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    indices = puller.space.indices
    old, new = instruction.operands[0].shape.dimensions, instruction.shape.dimensions
    if 0 in new:
        return puller.element(instruction.operands[0], tuple(indices.constant(0) for _ in old))
    linear = indices.linear(index, row_major_strides(new))
    return puller.element(instruction.operands[0], tuple(indices.delinearize(linear, old)))


PULL.add(Reshape, _reshape)
PULL.add(Bitcast, _reshape)


@PULL.rule(Transpose)
def _transpose(op: Transpose, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    inner: list[Index] = [index[0]] * len(index)
    for result, source in enumerate(op.permutation):
        inner[source] = index[result]
    return puller.element(instruction.operands[0], tuple(inner))


@PULL.rule(Reverse)
def _reverse(op: Reverse, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    indices = puller.space.indices
    reversed_index = [
        indices.shift(indices.scale(i, -1), size - 1) if d in op.dimensions else i
        for d, (i, size) in enumerate(zip(index, instruction.shape.dimensions, strict=True))
    ]
    return puller.element(instruction.operands[0], tuple(reversed_index))


@PULL.rule(Slice)
def _slice(op: Slice, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    indices = puller.space.indices
    inner = tuple(indices.shift(indices.scale(i, p.stride), p.start) for i, p in zip(index, op.slice, strict=True))
    return puller.element(instruction.operands[0], inner)


def start_indices(puller: Puller, operands: Sequence[Instruction], shape: Shape, sizes: Sequence[int]) -> list[Index]:
    """The clamped start indices of dynamic-slice and dynamic-update-slice."""
    limits = [size - part for size, part in zip(shape.dimensions, sizes, strict=True)]
    if len(operands) == 1 and operands[0].shape.rank == 1:
        values = [puller.element(operands[0], (puller.space.indices.constant(d),)) for d in range(shape.rank)]
        return [puller.clamped(value, 0, limit) for value, limit in zip(values, limits, strict=True)]
    return [puller.scalar_index(o, 0, limit) for o, limit in zip(operands, limits, strict=True)]


@PULL.rule(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    operand = instruction.operands[0]
    starts = start_indices(puller, instruction.operands[1:], operand.shape, instruction.shape.dimensions)
    return puller.element(operand, tuple(puller.space.indices.add(i, s) for i, s in zip(index, starts, strict=True)))


@PULL.rule(DynamicUpdateSlice)
def _dynamic_update_slice(
    op: DynamicUpdateSlice, puller: Puller, instruction: Instruction, index: Indices
) -> Expression:
    operand, update = instruction.operands[:2]
    indices, space = puller.space.indices, puller.space
    starts = start_indices(puller, instruction.operands[2:], operand.shape, update.shape.dimensions)
    inner = tuple(indices.add(i, indices.scale(s, -1)) for i, s in zip(index, starts, strict=True))
    inside: Expression | bool = True
    for i, size in zip(inner, update.shape.dimensions, strict=True):
        inside = puller.logical_and(inside, space.in_range(i, 0, size))
    if inside is False:
        return puller.element(operand, index)
    return space.where(inside, puller.element(update, inner), puller.element(operand, index))


@PULL.rule(Pad)
def _pad(op: Pad, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    operand, padding = instruction.operands
    inside: Expression | bool = True
    inner = []
    for i, p, size in zip(index, op.padding_config, operand.shape.dimensions, strict=True):
        position, here = dilated_index(
            puller, puller.space.indices.shift(i, -p.edge_padding_low), size, p.interior_padding + 1
        )
        inside = puller.logical_and(inside, here)
        inner.append(position)
    filler = puller.element(padding, ())
    return filler if inside is False else puller.space.where(inside, puller.element(operand, tuple(inner)), filler)


def dilated_index(puller: Puller, position: Index, size: int, step: int) -> tuple[Index, Expression | bool]:
    """The index of the element at a position of a dimension dilated by `step`, and whether there is one."""
    indices, space = puller.space.indices, puller.space
    inside = space.in_range(position, 0, (size - 1) * step + 1 if size else 0)
    if step == 1 or inside is False:
        return position, inside
    here = space.in_range(indices.remainder(position, step), 0, 1)
    return indices.quotient(position, step), puller.logical_and(inside, here)


@PULL.rule(Concatenate)
def _concatenate(op: Concatenate, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    dimension = op.dimension
    indices, space = puller.space.indices, puller.space
    position = index[dimension]
    result: Expression | None = None
    end = instruction.shape.dimensions[dimension]
    for operand in reversed(instruction.operands):
        size = operand.shape.dimensions[dimension]
        start = end - size
        here = space.in_range(position, start, max(start, end)) if size else False
        if here is not False:
            inner = (*index[:dimension], indices.shift(position, -start), *index[dimension + 1 :])
            element = puller.element(operand, inner)
            result = element if result is None else space.where(here, element, result)
        end = start
    if result is None:
        return space.constant(instruction.shape.element_type, np.zeros((), instruction.shape.element_type.dtype))
    return result


@PULL.rule(Gather)
def _gather(op: Gather, puller: Puller, instruction: Instruction, index: Indices) -> Expression:
    operand, starts = instruction.operands
    batch = [index[d] for d in range(len(index)) if d not in op.offset_dims]
    offsets = [index[d] for d in op.offset_dims]
    inner: list[Index] = [puller.space.indices.constant(0)] * operand.shape.rank
    collapsed = {*op.collapsed_slice_dims, *op.operand_batching_dims}
    for d, offset in zip((d for d in range(operand.shape.rank) if d not in collapsed), offsets, strict=True):
        inner[d] = offset
    for component, d in enumerate(op.start_index_map):
        start_index = list(batch)
        start_index.insert(op.index_vector_dim, puller.space.indices.constant(component))
        start_index = start_index if op.index_vector_dim < starts.shape.rank else batch
        value = puller.element(starts, tuple(start_index))
        start = puller.clamped(value, 0, operand.shape.dimensions[d] - op.slice_sizes[d])
        inner[d] = puller.space.indices.add(inner[d], start)
    for d, source in zip(op.operand_batching_dims, op.start_indices_batching_dims, strict=True):
        inner[d] = batch[source - (source > op.index_vector_dim)]
    return puller.element(operand, tuple(inner))


@PULL.rule(Reduce)
def _reduce(op: Reduce, puller: Puller, instruction: Instruction, index: Indices) -> list[Expression]:
    count = len(instruction.operands) // 2
    operands, initial = instruction.operands[:count], instruction.operands[count:]
    sizes = operands[0].shape.dimensions
    kept = iter(index)
    depth = puller.reduction_depth(instruction)
    inner: list[Index] = []
    over = []
    for d, size in enumerate(sizes):
        if d in op.dimensions:
            variable = puller.space.reduction_variable(size, depth, len(inner))
            if size != 1:
                over.append(variable)
            inner.append(puller.space.indices.of(variable) if size else puller.space.indices.constant(0))
        else:
            inner.append(next(kept))
    values = tuple(puller.element(operand, tuple(inner)) for operand in operands)
    return _reduction(puller, op.computation, tuple(over), values, tuple(puller.element(i, ()) for i in initial))


def _reduction(
    puller: Puller, computation: Computation, over: tuple[Any, ...], values: tuple[Expression, ...],
    initial: tuple[Expression, ...],
) -> list[Expression]:  # fmt: skip
    types = [value.type for value in values]
    arguments = [puller.space.argument(type, k) for k, type in enumerate([*types, *types])]
    combine = tuple(puller.compute(computation, arguments))
    return puller.space.reduction(over, values, initial, combine, monoid_of(computation))


@PULL.rule(ReduceWindow)
def _reduce_window(op: ReduceWindow, puller: Puller, instruction: Instruction, index: Indices) -> list[Expression]:
    count = len(instruction.operands) // 2
    operands, initial = instruction.operands[:count], instruction.operands[count:]
    indices = puller.space.indices
    depth = puller.reduction_depth(instruction)
    inside: Expression | bool = True
    inner: list[Index] = []
    over: list[Variable] = []
    for i, d, size in zip(index, op.window, operands[0].shape.dimensions, strict=True):
        step = indices.constant(0)
        if d.size > 1:
            variable = puller.space.reduction_variable(d.size, depth, len(inner))
            over.append(variable)
            step = indices.scale(indices.of(variable), d.window_dilation)
        position = indices.shift(indices.add(indices.scale(i, d.stride), step), -d.padding_low)
        element, here = dilated_index(puller, position, size, d.base_dilation)
        inside = puller.logical_and(inside, here)
        inner.append(element)
    starts = tuple(puller.element(i, ()) for i in initial)
    if inside is False:
        return list(starts)
    values = tuple(puller.element(operand, tuple(inner)) for operand in operands)
    if inside is True:
        return _reduction(puller, op.computation, tuple(over), values, starts)
    return _guarded_reduction(puller, op.computation, tuple(over), inside, values, starts)


def _guarded_reduction(
    puller: Puller, computation: Computation, over: tuple[Any, ...], inside: Expression,
    values: tuple[Expression, ...], initial: tuple[Expression, ...],
) -> list[Expression]:  # fmt: skip
    """A reduction that skips the values in iterations for which `inside` does not hold."""
    space = puller.space
    monoid = monoid_of(computation)
    if monoid is not None:
        identity_value = space.constant(values[0].type, monoid.identity(values[0].type))
        return _reduction(puller, computation, over, (space.where(inside, values[0], identity_value),), initial)
    types = [value.type for value in values]
    arguments = [space.argument(type, k) for k, type in enumerate([*types, *types])]
    flag = space.argument(PrimitiveType.PRED, len(arguments))
    combined = _guarded_calls(space, puller.compute(computation, arguments), flag)
    chosen = tuple(space.where(flag, new, old) for new, old in zip(combined, arguments))
    zeros = [space.constant(type, np.zeros((), type.dtype)) for type in types]
    safe = tuple(space.where(inside, value, zero) for value, zero in zip(values, zeros, strict=True))
    return space.reduction(over, (*safe, inside), initial, chosen, None)


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
