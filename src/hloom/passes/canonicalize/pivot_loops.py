"""pivot-loops: loops over the pivots of LU factorisations, as JAX writes them, as calls of LAPACK's laswp.

    p = while(0, iota, pivots - 1)  # swaps elements i and pivots[i] - 1 of each permutation, for i = 0, 1 ..
->  p = laswp(iota, pivots)

The routine moves floats: the numbers of rows are bitcast to them and back. An instruction of the body is one of the
values that a swap consists of, whatever gathers, slices and changes of shape it is written with.
"""

from __future__ import annotations

import enum
import math
from typing import ClassVar

from hloom.analysis.counted_loop import counted_loop
from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, CustomCallApiVersion
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import FUNCTIONS, Compare
from hloom.ops.control_flow import While
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.custom_call import CustomCall
from hloom.ops.elementwise_binary import Add, And, Subtract
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.ops.reshape import Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.structure import Constant, GetTupleElement, Parameter
from hloom.passes.edit import Edit, constant_value, counts_along_last, has_control_edges, keeps_order, loops_of
from hloom.passes.op_builder import OpBuilder
from hloom.runtime.custom_calls.targets import is_lapack_call
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType


class Value(enum.Enum):
    """A part of a swap that an array of the body holds: one number for all matrices, or one or a row for each."""

    ZERO = "0"
    FALSE = False
    TRUE = True
    STEP = "i"
    PIVOTS = "pivots - 1"
    PIVOT = "pivots[i] - 1"
    ROWS = "the permutation"
    ROW = "the permutation's element i"
    OTHER = "the permutation's element pivots[i] - 1"
    HALF = "the permutation, with OTHER as element i"
    SWAPPED = "the permutation, with ROW as the other element as well"


FOR_ALL = (Value.ZERO, Value.FALSE, Value.TRUE, Value.STEP)
"""Numbers that are the same for all matrices."""
ELEMENTS = {
    (Value.PIVOTS, Value.STEP): Value.PIVOT, (Value.ROWS, Value.STEP): Value.ROW,
    (Value.ROWS, Value.PIVOT): Value.OTHER,
}  # fmt: skip
"""The elements of arrays, by their index."""
WRITES = {
    (Value.ROWS, Value.STEP, Value.OTHER): Value.HALF, (Value.HALF, Value.PIVOT, Value.ROW): Value.SWAPPED,
}  # fmt: skip
"""Arrays with a new element, by their index and the element."""


@record
class PivotLoops:
    """Before: a loop that applies the swaps of rows of an LU factorisation to the numbers of the rows. After: one call
    of `lapack_slaswp_ffi`.

    The pivots must be those of `lapack_sgetrf_ffi` or its variants for other types, less 1: all are rows then.
    """

    name: ClassVar[str] = "pivot-loops"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)

    def run(self, module: Module) -> int:
        """Replaces the permutations of the loops; returns the number of loops."""
        return sum(_replace(loop) for loop in loops_of(module))


def _replace(loop: Instruction) -> bool:
    found = _permutation_of(loop)
    if found is None or loop.parent is None:
        return False
    position, pivots = found
    edit = Edit(loop.parent)
    for user in [*loop.users]:
        if isinstance(user.op, GetTupleElement) and user.op.index == position:
            edit.replace(user, _swapped(OpBuilder.at(edit, user), user.shape, pivots))
    edit.finish()
    return True


def _swapped(build: OpBuilder, shape: Shape, pivots: Instruction) -> Instruction:
    """Returns the permutation of some pivots, which count from 1."""
    rows = build(Iota(iota_dimension=shape.rank - 1), shape=shape.without_layout())
    as_floats = build(BitcastConvert(), rows, shape=rows.shape.with_element_type(PrimitiveType.F32))
    op = CustomCall(target_name="lapack_slaswp_ffi", api_version=CustomCallApiVersion.API_VERSION_TYPED_FFI)
    swapped = build(op, as_floats, pivots, shape=as_floats.shape)
    return build(BitcastConvert(), swapped, shape=rows.shape)


def _permutation_of(loop: Instruction) -> tuple[int, Instruction] | None:
    """Returns the position of the permutation in the state of a loop, and the pivots from 1 on; None for others."""
    op, counted = loop.op, counted_loop(loop)
    if (
        not isinstance(op, While)
        or counted is None
        or has_control_edges(loop)
        or (counted.start, counted.step) != (0, 1)
    ):
        return None
    body = _Body(loop, op, counted.index)
    if body.pivots is None or body.rows is None or body.pivots[1].shape.dimensions[-1] != counted.trips:
        return None
    return (body.rows, body.pivots[1]) if body.value(op.body.root.operands[body.rows]) is Value.SWAPPED else None


class _Body:
    """Says what the instructions of a loop's body hold."""

    def __init__(self, loop: Instruction, op: While, counter: int) -> None:
        self.root, self.initial = op.body.root, loop.operands[0]
        self.known: dict[Instruction, Value | None] = {}
        self.parameter = op.body.parameters[0]
        self.counters = [k for k in range(len(self.root.operands)) if k == counter or self._counts(k)]
        self.rows = next(filter(self._are_rows, range(len(self.root.operands))), None)
        found = ((k, self._pivots(k)) for k in range(len(self.root.operands)) if self._is_kept(k))
        self.pivots = next(((k, pivots) for k, pivots in found if pivots is not None), None)

    @property
    def last_row(self) -> int:
        """The number of the last row."""
        assert self.rows is not None
        return self.root.operands[self.rows].shape.dimensions[-1] - 1

    def _counts(self, k: int) -> bool:
        """Whether an element of the state is the number of the iteration."""
        new = self.root.operands[k]
        if not isinstance(new.op, Add) or new.shape.rank or _number(self.initial.operands[k]) != 0:
            return False
        return _number(new.operands[1]) == 1 and self.is_state(new.operands[0], k)

    def _is_kept(self, k: int) -> bool:
        return self.is_state(self.root.operands[k], k)

    def is_state(self, value: Instruction, k: int) -> bool:
        return isinstance(value.op, GetTupleElement) and value.op.index == k and value.operands[0] is self.parameter

    def _are_rows(self, k: int) -> bool:
        """Whether an element of the state starts with the numbers of the rows, in s32."""
        given = self.initial.operands[k]
        is_s32 = given.shape.is_array and given.shape.element_type is PrimitiveType.S32
        return is_s32 and counts_along_last(given) and not self._is_kept(k)

    def _pivots(self, k: int) -> Instruction | None:
        """Returns the pivots of a factorisation if an element of the state is these less 1."""
        given = self.initial.operands[k]
        if not isinstance(given.op, Subtract) or _number(given.operands[1]) != 1:
            return None
        pivots = given.operands[0]
        return pivots if _are_pivots(pivots) else None

    def value(self, instruction: Instruction) -> Value | None:
        """Returns what an instruction holds; None if it is nothing that a swap consists of."""
        if instruction not in self.known:
            rule = _VALUES.get(instruction.op)
            self.known[instruction] = rule(instruction.op, self, instruction) if rule is not None else None
        return self.known[instruction]

    def values(self, instruction: Instruction) -> list[Value | None]:
        """Returns what the operands of an instruction hold."""
        return [self.value(operand) for operand in instruction.operands]


_VALUES = Registry[[_Body, Instruction], Value | None]()
"""The value that an instruction holds, from (op, body, instruction)."""


@_VALUES.rule(Constant)
def _constant(op: Constant, body: _Body, instruction: Instruction) -> Value | None:
    return None if op.literal.value.any() else Value.ZERO


@_VALUES.rule(GetTupleElement)
def _state(op: GetTupleElement, body: _Body, instruction: Instruction) -> Value | None:
    if not body.is_state(instruction, op.index):
        return None
    if op.index in body.counters:
        return Value.STEP
    if op.index == body.rows:
        return Value.ROWS
    return Value.PIVOTS if body.pivots is not None and op.index == body.pivots[0] else None


def _same(op: Operation, body: _Body, instruction: Instruction) -> Value | None:
    """Numbers for each matrix keep their order; those for all matrices may be repeated."""
    (value,) = body.values(instruction)
    return value if value in FOR_ALL or keeps_order(instruction) else None


_VALUES.add(Reshape, _same)
_VALUES.add(Broadcast, _same)


@_VALUES.rule(Convert)
def _convert(op: Convert, body: _Body, instruction: Instruction) -> Value | None:
    """Numbers of rows are numbers in all types that indices of arrays have."""
    type = instruction.shape.element_type
    return body.value(instruction.operands[0]) if type in (PrimitiveType.S32, PrimitiveType.S64) else None


@_VALUES.rule(Compare)
def _compare(op: Compare, body: _Body, instruction: Instruction) -> Value | None:
    """Compares with constants: both iterations and pivots are indices of rows."""
    x, limit = body.value(instruction.operands[0]), _number(instruction.operands[1])
    if x not in (Value.STEP, Value.PIVOT) or limit is None:
        return None
    outcomes = {bool(FUNCTIONS[op.direction](row, limit)) for row in (0, body.last_row)}
    is_ordered = op.direction not in (ComparisonDirection.EQ, ComparisonDirection.NE)
    return Value(outcomes.pop()) if is_ordered and len(outcomes) == 1 else None


@_VALUES.rule(And)
def _and(op: And, body: _Body, instruction: Instruction) -> Value | None:
    return Value.TRUE if body.values(instruction) == [Value.TRUE] * 2 else None


@_VALUES.rule(Select)
def _select(op: Select, body: _Body, instruction: Instruction) -> Value | None:
    condition, *values = body.values(instruction)
    return {Value.TRUE: values[0], Value.FALSE: values[1]}.get(condition) if condition is not None else None


@_VALUES.rule(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, body: _Body, instruction: Instruction) -> Value | None:
    array, *starts = body.values(instruction)
    is_element = _is_element_of_all(instruction.operands[0].shape, op.size_indices, starts)
    return ELEMENTS.get((array, starts[-1])) if is_element else None  # type: ignore[arg-type]


@_VALUES.rule(DynamicUpdateSlice)
def _dynamic_update_slice(op: DynamicUpdateSlice, body: _Body, instruction: Instruction) -> Value | None:
    array, element, *starts = body.values(instruction)
    is_element = _is_element_of_all(instruction.shape, instruction.operands[1].shape.dimensions, starts)
    return WRITES.get((array, starts[-1], element)) if is_element else None  # type: ignore[arg-type]


def _is_element_of_all(array: Shape, sizes: tuple[int, ...], starts: list[Value | None]) -> bool:
    """Whether a slice has one element of the last dimension, at an index that is in bounds, and all of the others."""
    return sizes == (*array.dimensions[:-1], 1) and all(start is Value.ZERO for start in starts[:-1])


@_VALUES.rule(Gather)
def _gather(op: Gather, body: _Body, instruction: Instruction) -> Value | None:
    array, index = body.values(instruction)
    shapes, last = instruction.operand_shapes, instruction.operands[0].shape.rank - 1
    batching = op.operand_batching_dims, op.start_indices_batching_dims
    is_whole = op.slice_sizes == ((*shapes[0].dimensions[:-1], 1) if not batching[0] else (1,) * (last + 1))
    is_element = is_whole and op.start_index_map == (last,) and {*op.collapsed_slice_dims} <= {last}
    found = is_element and _is_index(shapes[0], shapes[1], batching)
    return ELEMENTS.get((array, index)) if found else None  # type: ignore[arg-type]


@_VALUES.rule(Scatter)
def _scatter(op: Scatter, body: _Body, instruction: Instruction) -> Value | None:
    if len(instruction.operands) != 3 or not _keeps_update(op):
        return None
    array, index, element = body.values(instruction)
    shapes, last = instruction.operand_shapes, instruction.shape.rank - 1
    batching = op.input_batching_dims, op.scatter_indices_batching_dims
    is_element = op.scatter_dims_to_operand_dims == (last,) and {*op.inserted_window_dims} <= {last}
    is_whole = shapes[2].element_count == math.prod(shapes[0].dimensions[:-1])
    found = is_element and is_whole and _is_index(shapes[0], shapes[1], batching)
    return WRITES.get((array, index, element)) if found else None  # type: ignore[arg-type]


def _keeps_update(op: Scatter) -> bool:
    root = op.update_computation.root.op
    return isinstance(root, Parameter) and root.number == 1


def _is_index(array: Shape, indices: Shape, batching: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether there is one index for all matrices, or one for each, in their order."""
    if not batching[0]:
        return indices.element_count == 1
    every = tuple(range(array.rank - 1))
    return batching == (every, every) and indices.element_count == math.prod(array.dimensions[:-1])


def _are_pivots(instruction: Instruction) -> bool:
    """Whether an instruction is the second result of an LU factorisation."""
    if not isinstance(instruction.op, GetTupleElement) or instruction.op.index != 1:
        return False
    return is_lapack_call(instruction.operands[0], "getrf", "sdcz")


def _number(array: Instruction) -> int | None:
    """Returns the integer that all elements of an array are, if it is a constant of integers."""
    value = constant_value(array.operands[0] if isinstance(array.op, Broadcast) else array)
    is_integer = value is not None and value.size == 1 and array.shape.element_type.is_integer
    return int(value.flat[0]) if is_integer else None
