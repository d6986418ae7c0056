"""Operands of products as expressions: quantised weights that are converted, scaled and shifted in registers.

An element of the operand is an expression of elements of arrays in memory, over three loop variables: of the batch, the
free and the contracted dimensions. A variable that is divided by the size of a group (of elements that share a scale)
is split into the group and the position in it, so that within a group lanes of one vector have the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from hloom.affine import Expression, Index, IndexSpace, Quotient, Variable
from hloom.backends.cpu.elements.byte_tables import LANES, has_byte_tables, look_up, look_up_halves, table_of_halves
from hloom.backends.cpu.elements.types import Element, resized
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.tabulated import ByteFunction, byte_function, halved_part
from hloom.backends.cpu.nests.emitter import NestEmitter
from hloom.backends.cpu.nests.indices import lane_index
from hloom.ir import Instruction
from hloom.lir import I64, IndexValue, Type, Value, type_of, zero
from hloom.loops.expressions import ExpressionSpace, Load, walk
from hloom.loops.nest import BufferType, Nest, Store, atoms_of, loads_of
from hloom.loops.pull import Puller

VECTOR, STEPS = 16, 8
"""Elements of a vector, and indices across vectors, that are emitted together, so that they have to be in one group."""
Sources = Mapping[Instruction, int]
"""The instructions in memory from which an operand is computed, and the positions of their pointers."""
Roles = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Batch, free and contracted dimensions of an operand."""


@dataclass(frozen=True)
class Axis:
    """Loop variables of a dimension of the operand: of groups of `size` elements, and of the elements of a group."""

    group: Variable
    within: Variable

    @property
    def size(self) -> int:
        """Elements of a group: all, if there is one."""
        return self.within.extent

    def index(self, space: IndexSpace) -> Index:
        """Returns the index along the dimension."""
        return space.add(space.scale(space.of(self.group), self.size), space.of(self.within))


@dataclass(frozen=True)
class ComputedOperand:
    """The element of an operand, and the arrays that it is computed from."""

    space: ExpressionSpace
    value: Expression
    buffers: tuple[BufferType, ...]
    batch: Axis
    free: Axis
    contracted: Axis

    @property
    def largest(self) -> Load:
        """The load of the largest array: the weights."""
        return max(loads_of([self.value]), key=lambda load: self.buffers[load.buffer].byte_size)

    @cached_property
    def contiguous(self) -> Axis | None:
        """The axis along which neighbours are neighbours among the weights, or halves of one byte: the free or the
        contracted one.

        None if there is neither, or if no array is read.
        """
        if not loads_of([self.value]):
            return None
        return next(filter(self._is_contiguous, (self.free, self.contracted)), None)

    def _is_contiguous(self, axis: Axis) -> bool:
        index = self.largest.index
        if index.coefficient(axis.within) == 1 and index.is_affine_in(axis.within):
            return True
        return any(function.half is not None for function in self._functions(axis))

    def _functions(self, axis: Axis) -> list[ByteFunction]:
        """Returns the parts of the expression that are tables along an axis."""
        found = (byte_function(self.space, part, axis.within) for part in walk([self.value]))
        return [function for function in found if function is not None]

    @cached_property
    def has_bytes_to_look_up(self) -> bool:
        """Whether parts of the expression are tables of bytes that the processor looks up in registers."""
        if self.contiguous is None or not has_byte_tables():
            return False
        return any(function.half is None for function in self._functions(self.contiguous))

    def parts(self, type: Type) -> int:
        """Returns the number of vectors of a type that are computed together."""
        return LANES // type.width if type.width == VECTOR and self.has_bytes_to_look_up else 1


def computed_operand(operand: Instruction, roles: Roles, sources: Sources) -> ComputedOperand:
    """Returns an operand of a product, whose dimensions have these roles, in terms of the sources."""
    buffers = tuple(BufferType(i.shape.element_type, i.shape.element_count, "input") for i in sources)
    sizes = [math.prod(operand.shape.dimensions[d] for d in role) for role in roles]
    whole = _pulled(operand, roles, sources, buffers, [(1, size) for size in sizes])
    along = LANES if whole.has_bytes_to_look_up else VECTOR
    axes = (whole.batch, whole.free, whole.contracted)
    groups = [_group_size(whole.value, axis, along if axis is whole.contiguous else STEPS) for axis in axes]
    if groups == sizes:
        return whole
    return _pulled(operand, roles, sources, buffers, [(n // g, g) for n, g in zip(sizes, groups, strict=True)])


def _pulled(
    operand: Instruction,
    roles: Roles,
    sources: Sources,
    buffers: tuple[BufferType, ...],
    sizes: Sequence[tuple[int, int]],
) -> ComputedOperand:
    space = ExpressionSpace([buffer.size for buffer in buffers])
    names = ("b", "n", "k")
    axes = [
        Axis(space.indices.variable(f"{name}g", groups), space.indices.variable(name, size))
        for name, (groups, size) in zip(names, sizes, strict=True)
    ]
    position: dict[int, Index] = {}
    for role, axis in zip(roles, axes, strict=True):
        role_sizes = tuple(operand.shape.dimensions[d] for d in role)
        position |= dict(zip(role, space.indices.delinearize(axis.index(space.indices), role_sizes), strict=True))
    value = Puller(space, sources).element(operand, tuple(position[d] for d in range(operand.shape.rank)))
    return ComputedOperand(space, value, buffers, *axes)


def _group_size(value: Expression, axis: Axis, unit: int) -> int:
    """Returns the largest number of elements along an axis that are in one group of every kind that consists of whole
    units, which the halves of a byte do not; all, if there is none.
    """
    divisors = [
        atom.divisor
        for load in loads_of([value])
        for atom in atoms_of(load.index)
        if isinstance(atom, Quotient) and axis.within in atom.variables and atom.divisor % unit == 0
    ]
    size = math.gcd(axis.size, *divisors)
    return size if divisors and size % unit == 0 else axis.size


class OperandEmitter(NestEmitter):
    """Emits elements of a computed operand in a function, as vectors along the free or the contracted axis.

    The elements of `parts` vectors are emitted together, as one long vector.
    """

    def __init__(
        self, f: KernelFunction, operand: ComputedOperand, pointers: Sequence[Value], type: Type, parts: int = 1
    ) -> None:
        index = operand.largest.index
        axes = (operand.batch, operand.free, operand.contracted)
        loops = tuple(variable for axis in axes for variable in (axis.group, axis.within))
        nest = Nest(loops, (Store(operand.largest.buffer, index, operand.value),))
        super().__init__("", operand.buffers, [], nest, f.register_bytes, builder=f)
        self.f, self.operand, self.type, self.parts = f, operand, type, parts
        self.functions: dict[tuple[int, Variable], ByteFunction | None] = {}
        self.tabulated = self._tabulated()
        self.pointers.update(enumerate(pointers))

    def _tabulated(self) -> tuple[Expression, ByteFunction] | None:
        along, value = self.operand.contiguous, self.operand.value
        if not has_byte_tables() or along is None or self.type.element != "float":
            return None
        return halved_part(self.operand.space, value, along.within)

    @contextmanager
    def at(self, axis: Axis, index: IndexValue) -> Iterator[None]:
        """Binds an axis to an index, in a scope in which all that is known then is emitted."""
        with self._in_group(axis, index), self.bound(axis.within, self._within(axis, index)):
            self.hoist([self.operand.value])
            yield

    @contextmanager
    def lanes_along(self, axis: Axis, mask: Value | None) -> Iterator[None]:
        """Makes values vectors along an axis; lanes outside the mask are not read, and zero."""
        self.vector, self.lanes, self.tail = axis.within, self.parts * self.type.width, mask
        yield
        self.vector, self.lanes, self.tail = None, 0, None

    def elements(self, axis: Axis, first: IndexValue, count: int) -> list[list[Value]]:
        """Returns elements that are adjacent along the last axis, which has as many in each group, or a multiple: of
        each index, `parts` vectors.
        """
        found = []
        with self._in_group(axis, first):
            within = self._within(axis, first)
            for i in range(count):
                with self.bound(axis.within, self.f.index(self.f.add(within, i))):
                    found.append(self._element())
        return found

    @contextmanager
    def _in_group(self, axis: Axis, index: IndexValue) -> Iterator[None]:
        with self.bound(axis.group, self.f.index(self.f.divide(index, axis.size))):
            self.hoist([self.operand.value])
            yield

    def _within(self, axis: Axis, index: IndexValue) -> Value:
        return self.f.index(index if axis.group.extent == 1 else self.f.remainder(index, axis.size))

    def _element(self) -> list[Value]:
        """Returns the elements at the bound indices, in the type of the sums."""
        f, type, width = self.f, self.type, self.type.width
        value = self._from_run_time_table() or self.value(self.operand.value)
        assert isinstance(value, Value)
        if value.type.element != type.element and type.is_float:
            value = f.convert("fpext", value, type.element)
        elif value.type.element != type.element:
            value = resized(f, value, type.element, self.operand.value.type.is_signed)
        value = value if value.type.width else f.splat(value, self.lanes)
        value = value if self.tail is None else f.select(self.tail, value, zero(value.type))
        return [f.shuffle(value, None, range(k, k + width)) for k in range(0, self.lanes, width)]

    def _from_run_time_table(self) -> Element | None:
        """Returns the elements if they are functions of halves of bytes with parameters that the lanes share, such as
        the scale of a group: the functions of all 16 halves are computed, and looked up.
        """
        if self.tabulated is None or self.vector is None or self.lanes != LANES // 4:
            return None
        part, function = self.tabulated
        self.scopes.append({id(part): table_of_halves(self.f, function.table)})
        table = self.value(self.operand.value)
        self.scopes.pop()
        assert isinstance(table, Value)
        return self._halves(function, table)

    def _emit(self, expression: Expression) -> Element:
        function = self._byte_function(expression)
        if function is None:
            return super()._emit(expression)
        if function.half is not None:
            return self._halves(function, table_of_halves(self.f, function.table))
        return self._looked_up(function)

    def _byte_function(self, expression: Expression) -> ByteFunction | None:
        if not has_byte_tables() or self.vector is None or self.vector not in expression.variables:
            return None
        key = id(expression), self.vector
        if key not in self.functions:
            self.functions[key] = byte_function(self.operand.space, expression, self.vector)
        function = self.functions[key]
        lanes = LANES if function is None or function.half is None else LANES // 4
        return function if self.lanes == lanes else None

    def _looked_up(self, function: ByteFunction) -> Value:
        """Returns the floats of the codes that are loaded."""
        f, load = self.f, function.load
        address = f.at(self.pointers[load.buffer], lane_index(self, load.index).base, "i8")
        return look_up(f, f.load_masked(address, type_of("i8", self.lanes), 1, self.tail), function.table)

    def _halves(self, function: ByteFunction, table: Value) -> Value:
        """Returns the floats of the halves of bytes that are loaded."""
        f, load, mask = self.f, function.load, self.tail
        assert self.vector is not None and function.half is not None
        with self.bound(function.half, f.index(f.divide(self.variables[self.vector], 2))):
            address = f.at(self.pointers[load.buffer], lane_index(self, load.index).base, "i8")
        pairs = None if mask is None else f.shuffle(mask, None, range(0, self.lanes, 2))
        packed = f.load_masked(address, type_of("i8", self.lanes // 2), 1, pairs)
        return look_up_halves(f, f.bitcast(packed, I64), table, function.is_swapped)
