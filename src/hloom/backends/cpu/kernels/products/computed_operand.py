"""Operands of products as expressions: quantised weights that are converted, scaled and shifted in registers.

An element of the operand is an expression of elements of arrays in memory, over three loop variables: of the batch, the
free and the contracted dimensions. A variable that is divided by the size of a group (of elements that share a scale)
is split into the group and the position in it, so that within a group lanes of one vector have the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from hloom.affine import Expression, Index, IndexSpace, Quotient, Variable
from hloom.backends.cpu.elements.byte_tables import (
    CODES,
    LANES,
    ORDER_OF_HALVES,
    halves_of_bytes,
    has_byte_tables,
    look_up,
    look_up_codes,
    table_of_codes,
)
from hloom.backends.cpu.elements.types import Element, resized
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.tabulated import ByteFunction, byte_function, coded_part
from hloom.backends.cpu.nests.emitter import NestEmitter
from hloom.backends.cpu.nests.indices import lane_index
from hloom.backends.cpu.nests.memory import element_address
from hloom.ir import Instruction
from hloom.lir import I64, IndexValue, Type, Value, type_of, zero
from hloom.loops.expressions import ExpressionSpace, Load, walk
from hloom.loops.nest import BufferType, Nest, Store, atoms_of, loads_of
from hloom.loops.pull import Puller
from hloom.target import L3_BYTES

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

    @property
    def extent(self) -> int:
        """Elements of all groups."""
        return self.group.extent * self.size

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

    @property
    def is_in_memory(self) -> bool:
        """Whether the weights are larger than the caches."""
        return self.buffers[self.largest.buffer].byte_size >= L3_BYTES

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
        return not all(function.has_codes for function in self._functions(self.contiguous))

    @cached_property
    def coded(self) -> tuple[Expression, ByteFunction] | None:
        """The part by which alone the operand depends on its contiguous axis, if that is a function of codes of 4 bits
        that the processor looks up; else None.
        """
        if not has_byte_tables() or self.contiguous is None:
            return None
        return coded_part(self.space, self.value, self.contiguous.within)

    def order(self, type: Type) -> Sequence[int] | None:
        """Returns which of adjacent elements of K the lanes of a vector of a type have; None if they are in order."""
        if self.coded is None or self.coded[1].half is None or (type.element, type.width) != ("float", CODES):
            return None
        return ORDER_OF_HALVES if self.contiguous is self.contracted else None

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


_LANES_OF_HALVES = [ORDER_OF_HALVES.index(half) for half in range(CODES)]


class OperandEmitter(NestEmitter):
    """Emits elements of a computed operand in a function, as vectors along the free or the contracted axis.

    The elements of `parts` vectors are emitted together, as one long vector. Along K, lanes have the elements that
    `order` says.
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
        self.order = operand.order(type)
        self.pointers.update(enumerate(pointers))

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

    def prefetch(self, *indices: tuple[Axis, IndexValue]) -> None:
        """Prefetches the weights of an element."""
        load = self.operand.largest
        with ExitStack() as stack:
            for axis, index in indices:
                stack.enter_context(self.bound(axis.group, self.f.index(self.f.divide(index, axis.size))))
                stack.enter_context(self.bound(axis.within, self._within(axis, index)))
            self.f.prefetch(
                element_address(self, self.pointers[load.buffer], lane_index(self, load.index).base, load.type)
            )

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
        if self.tail is not None:
            mask = f.shuffle(self.tail, None, self.order) if self.order else self.tail
            value = f.select(mask, value, zero(value.type))
        return [f.shuffle(value, None, range(k, k + width)) for k in range(0, self.lanes, width)]

    def _from_run_time_table(self) -> Element | None:
        """Returns the elements if they are functions of codes of 4 bits with parameters that the lanes share, such as
        the scale of a group: the functions of all 16 codes are computed, and looked up.
        """
        coded = self.operand.coded
        if coded is None or self.vector is None or self.lanes != CODES or self.type.element != "float":
            return None
        part, function = coded
        self.scopes.append({id(part): table_of_codes(self.f, function.table)})
        table = self.value(self.operand.value)
        self.scopes.pop()
        assert isinstance(table, Value)
        # Without a fence LLVM looks up the factors of scaled codes, and multiplies what it finds, for each vector anew.
        return self._of_codes(function, self.f.intrinsic("arithmetic.fence", table))

    def _emit(self, expression: Expression) -> Element:
        function = self._byte_function(expression)
        if function is None:
            return super()._emit(expression)
        if function.has_codes:
            return self._of_codes(function, table_of_codes(self.f, function.table))
        return self._of_bytes(function)

    def _byte_function(self, expression: Expression) -> ByteFunction | None:
        if not has_byte_tables() or self.vector is None or self.vector not in expression.variables:
            return None
        key = id(expression), self.vector
        if key not in self.functions:
            self.functions[key] = byte_function(self.operand.space, expression, self.vector)
        function = self.functions[key]
        lanes = CODES if function is not None and function.has_codes else LANES
        return function if self.lanes == lanes else None

    def _of_bytes(self, function: ByteFunction) -> Value:
        """Returns the floats of the bytes that are loaded."""
        return look_up(self.f, self._bytes(function.load, self.tail), function.table)

    def _of_codes(self, function: ByteFunction, table: Value) -> Value:
        """Returns the floats of the codes of 4 bits that are loaded."""
        f, mask = self.f, self.tail
        if function.half is None:
            return look_up_codes(f, f.convert("zext", self._bytes(function.load, mask), "i32"), table)
        assert self.vector is not None
        pairs = None if mask is None else f.shuffle(mask, None, range(0, self.lanes, 2))
        with self.bound(function.half, f.index(f.divide(self.variables[self.vector], 2))):
            packed = self._bytes(function.load, pairs, self.lanes // 2)
        found = look_up_codes(f, halves_of_bytes(f, f.bitcast(packed, I64), function.is_swapped), table)
        return found if self.order else f.shuffle(found, None, _LANES_OF_HALVES)

    def _bytes(self, load: Load, mask: Value | None, count: int = 0) -> Value:
        address = self.f.at(self.pointers[load.buffer], lane_index(self, load.index).base, "i8")
        return self.f.load_masked(address, type_of("i8", count or self.lanes), 1, mask)
