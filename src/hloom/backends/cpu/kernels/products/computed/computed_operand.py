"""Operands of products as expressions: quantised weights that are converted, scaled and shifted in registers.

An element of the operand is an expression of elements of arrays in memory, over three loop variables: of the batch, the
free and the contracted dimensions. A variable that is divided by the size of a group (of elements that share a scale)
is split into the group and the position in it, so that within a group lanes of one vector have the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hloom.affine import Expression, Index, IndexSpace, Quotient, Variable
from hloom.backends.cpu.elements.byte_tables import CODES, LANES, ORDER_OF_HALVES, has_byte_tables
from hloom.backends.cpu.elements.small_values import SmallInteger, as_rounded_product, integers_of, magnitudes_of
from hloom.backends.cpu.kernels.products.computed.tabulated import (
    ByteFunction,
    Coded,
    byte_function,
    coded_part,
    coded_with_shared_parts,
)
from hloom.ir import Instruction
from hloom.lir import Type
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Load, walk
from hloom.loops.nest import BufferType, atoms_of, loads_of
from hloom.loops.pull import Puller
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Multiply, Subtract
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.target import L3_BYTES, align_up
from hloom.types import PrimitiveType
from hloom.values import Array

VECTOR, STEPS = 16, 8
"""Elements of a vector, and indices across vectors, that are emitted together, so that they have to be in one group."""
PARTS = 4
"""Vectors of floats whose bytes are looked up together."""
MAX_INTEGER = 1 << 8
"""Up to which bf16 has all integers."""
MAX_EXPONENT = 127
"""The largest exponent of f32."""
Sources = Mapping[Instruction, int]
"""The instructions in memory from which an operand is computed, and the positions of their pointers."""
Roles = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Batch, free and contracted dimensions of an operand."""


@record
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


@record
class Factor:
    """A factor of sums: the products of elements and factors up to a limit do not overflow."""

    value: Expression
    limit: float


@record
class Integers:
    """A buffer of numbers that have to be small integers."""

    buffer: int
    op: SmallInteger


@record
class ComputedOperand:
    """The element of an operand, and the arrays that it is computed from; with a factor, what sums are multiplied by
    instead of their terms; with `integers`, what has to be in memory for elements not to be NaN.
    """

    space: ExpressionSpace
    value: Expression
    buffers: tuple[BufferType, ...]
    batch: Axis
    free: Axis
    contracted: Axis
    factor: Factor | None = None
    integers: Integers | None = None

    @property
    def largest(self) -> Load:
        """The load of the largest array: the weights."""
        return max(loads_of([self.value]), key=lambda load: self.buffers[load.buffer].byte_size)

    @property
    def is_in_memory(self) -> bool:
        """Whether the weights are larger than the caches."""
        return self.buffers[self.largest.buffer].byte_size >= L3_BYTES

    @property
    def bits_of_weights(self) -> int:
        """Bits of the weight of an element, which is half of a byte where two are in one."""
        is_half = any(function.half is not None for function in self._functions(self.contiguous or self.free))
        return self.largest.type.bits // 2 if is_half else align_up(self.largest.type.bits, 8)

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

    @property
    def loads_of_codes(self) -> list[Load]:
        """The loads of the halves of bytes that the processor looks up."""
        return [self.coded.function.load] if self.coded is not None else []

    @cached_property
    def of_groups(self) -> list[Expression]:
        """The parts that elements of a group along K share and that are computed as floats, such as zero points."""
        found: dict[Expression, None] = {}
        stack, group, within = [self.value], self.contracted.group, self.contracted.within
        while stack:
            part = stack.pop()
            if within in part.variables:
                stack += part.children
            elif group in part.variables and not _is_stored_float(part) and all(_is_along(part, group)):
                found[part] = None
        return [*found]

    @cached_property
    def looked_up(self) -> int:
        """The most codes that the processor looks up together in a table of the operand; 0 if it has none."""
        if self.contiguous is None:
            return 0
        return max((function.codes_together for function in self._functions(self.contiguous)), default=0)

    @cached_property
    def coded(self) -> Coded | None:
        """The part by which alone the operand depends on its contiguous axis, if that is a function of codes of 4 bits
        that the processor looks up; else None.
        """
        if not has_byte_tables() or self.contiguous is None:
            return None
        return coded_part(self.space, self.value, self.contiguous.within)

    @property
    def table(self) -> Array | None:
        """The floats of all codes if the operand's elements are looked up as they are; else None."""
        if self.coded is None or self.coded.part is not self.value:
            return None
        return self.coded.function.table.view(np.float32)

    @property
    def has_words(self) -> bool:
        """Whether elements are halves of bytes along K that the processor looks up as bf16. Their table is a constant,
        or that of a group.
        """
        if self.coded is None or self.contiguous is not self.contracted or self.coded.function.half is None:
            return False
        return self.table is not None or self.contracted.size % LANES == 0

    @property
    def has_words_of_rows(self) -> bool:
        """Whether elements are halves of bytes along the free axis that the processor looks up as bf16 in a constant
        table.
        """
        return self.of_rows is not None and self.table is not None

    @cached_property
    def of_rows(self) -> Coded | None:
        """The halves of bytes along the free axis that the processor looks up, and what the elements of a row in a
        group share beside, such as scales; None if elements depend on others.
        """
        if not has_byte_tables() or self.contiguous is not self.free:
            return None
        found = coded_with_shared_parts(self.space, self.value, self.free.within, self.contracted.within)
        return None if found is None or found.function.half is None else found

    @property
    def block_of_words(self) -> int:
        """Elements of K that are looked up as words together: those of up to 64 bytes."""
        return math.gcd(self.contracted.size, 2 * LANES) if self.contracted.size % (LANES // 2) == 0 else LANES // 2

    @property
    def has_group_factor(self) -> bool:
        """Whether groups along K have factors of their own."""
        return self.factor is not None and self.contracted.group in self.factor.value.variables

    def order(self, type: Type) -> Sequence[int] | None:
        """Returns which of adjacent elements of K the lanes of a vector of a type have; None if they are in order."""
        if self.coded is None or self.coded.function.half is None or (type.element, type.width) != ("float", CODES):
            return None
        return ORDER_OF_HALVES if self.contiguous is self.contracted else None

    def parts(self, type: Type) -> int:
        """Returns the number of vectors of a type that are computed together."""
        return PARTS if PARTS * type.width == self.looked_up else 1


def computed_operand(
    operand: Instruction, roles: Roles, sources: Sources, type: PrimitiveType | None = None
) -> ComputedOperand:
    """Returns an operand of a product, whose dimensions have these roles, in terms of the sources; converted to `type`
    if one is given.
    """
    type = operand.shape.element_type if type is None else type
    buffers = tuple(BufferType(i.shape.element_type, i.shape.element_count, "input") for i in sources)
    sizes = [math.prod(operand.shape.dimensions[d] for d in role) for role in roles]
    whole = _pulled(operand, roles, sources, buffers, [(1, size) for size in sizes], type)
    along = whole.looked_up or VECTOR
    axes = (whole.batch, whole.free, whole.contracted)
    groups = [_group_size(whole.value, axis, along if axis is whole.contiguous else STEPS) for axis in axes]
    if groups == sizes:
        return whole
    return _pulled(operand, roles, sources, buffers, [(n // g, g) for n, g in zip(sizes, groups, strict=True)], type)


def with_rounded_products(operand: ComputedOperand) -> ComputedOperand:
    """Returns an operand of bf16 that is a small value times a factor which steps of K share, such as a scale, in f32,
    with products rounded by multiply-adds; other operands as they are.
    """
    value, within = operand.value, operand.contracted.within
    if operand.contiguous is None or not isinstance(value, Apply) or not isinstance(value.op, Multiply):
        return operand
    for number, factor in (value.operands, value.operands[::-1]):
        if within not in factor.variables:
            found = as_rounded_product(operand.space, number, factor)
            return operand if found is None else replace(operand, value=found)
    return operand


def with_integers(operand: ComputedOperand) -> ComputedOperand:
    """Returns an operand of codes less a zero point in f32, times a factor, with NaN for zero points with which bf16
    does not have all differences; other operands as they are.
    """
    value, within, space = operand.value, operand.contracted.within, operand.space
    if not isinstance(value, Apply) or not isinstance(value.op, Multiply):
        return operand
    for number, factor in (value.operands, value.operands[::-1]):
        if not isinstance(number, Apply) or not isinstance(number.op, Subtract):
            continue
        code, zero_point = number.operands
        limits = integers_of(code)
        if limits is None or not isinstance(zero_point, Load) or within in zero_point.variables:
            continue
        if zero_point.in_bounds and _is_stored_float(zero_point):
            op = SmallInteger(least=limits[1] - MAX_INTEGER, most=limits[0] + MAX_INTEGER)
            integer = space.apply(op, value.type, zero_point)
            difference = space.apply(Subtract(), value.type, code, integer)
            found = space.apply(Multiply(), value.type, difference, factor)
            return replace(operand, value=found, integers=Integers(zero_point.buffer, op))
    return operand


def with_factor(operand: ComputedOperand, in_tiles: bool = False) -> ComputedOperand | None:
    """Returns an operand of integers times a factor that all steps of K share, such as a scale, in f32, with the factor
    outside of sums; None for other operands. In tile registers, numbers may be narrow floats, and groups along K may
    have factors of their own.

    A multiply-add has the product with an integer exactly, a subnormal one too, so that sums are rounded less often.
    """
    value, axis = operand.value, operand.contracted
    if value.type is not PrimitiveType.F32 or not isinstance(value, Apply) or not isinstance(value.op, Multiply):
        return None
    for number, factor in (value.operands, value.operands[::-1]):
        magnitudes = magnitudes_of(number) if in_tiles or integers_of(number) is not None else None
        has_groups = axis.group in factor.variables
        is_shared = axis.within not in factor.variables and not (has_groups and not in_tiles)
        if magnitudes is not None and is_shared and loads_of([number]):
            found = Factor(factor, 2.0 ** (MAX_EXPONENT - math.frexp(magnitudes.largest)[1]))
            along = axis.group if operand.contiguous is axis else operand.free.within
            is_read = not has_groups or all(_is_along(factor, along))
            return replace(operand, value=number, factor=found) if is_read else None
    return None


def _is_stored_float(part: Expression) -> bool:
    """Whether a value is loaded as sums have it."""
    return isinstance(part, Load) and part.type is PrimitiveType.F32


def _is_along(part: Expression, variable: Variable) -> Iterator[bool]:
    """Tests whether a value is a float in registers, of elements that are adjacent along a variable."""
    yield part.type.is_float and part.type.bits <= 32
    for load in loads_of([part]):
        index = load.index
        yield load.in_bounds
        yield variable not in index.variables or (index.coefficient(variable) == 1 and index.is_affine_in(variable))


def _pulled(
    operand: Instruction,
    roles: Roles,
    sources: Sources,
    buffers: tuple[BufferType, ...],
    sizes: Sequence[tuple[int, int]],
    type: PrimitiveType,
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
    value = value if value.type is type else space.apply(Convert(), type, value)
    batch, free, contracted = axes
    return ComputedOperand(space, value, buffers, batch, free, contracted)


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
