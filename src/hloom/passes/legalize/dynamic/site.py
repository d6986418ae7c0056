"""Building blocks of the rules for arrays of dynamic sizes: padded arrays with their sizes, arithmetic, masks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, PaddingDimension
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Conditional
from hloom.ops.convert import Convert
from hloom.ops.custom_call import REFUSE_SIZES, CustomCall
from hloom.ops.elementwise_binary import Add, And, Divide, Maximum, Minimum, Multiply, Subtract
from hloom.ops.indexing import indexing_map
from hloom.ops.operation import Operation
from hloom.ops.pad import Pad
from hloom.ops.select import Select
from hloom.ops.slice import DynamicSlice
from hloom.ops.structure import Constant
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.shape import Shape, scalar
from hloom.stablehlo.importer.size_bounds import SizeBounds
from hloom.system.records import record
from hloom.types import PrimitiveType

S32 = scalar(PrimitiveType.S32)
Sizes = Mapping[int, Instruction]
"""The size of each dynamic dimension, as an instruction s32[]."""


@record
class Padded:
    """An array padded to its bounds with arbitrary elements, and the sizes of its dynamic dimensions."""

    array: Instruction
    sizes: Sizes = field(default_factory=dict)

    @property
    def bounds(self) -> tuple[int, ...]:
        """Sizes of the padded array."""
        return self.array.shape.dimensions


@record
class Site:
    """The instruction that a rule replaces, and methods to build the replacement.

    Scalars of sizes and indices are s32[] instructions, or integers for constants.
    """

    build: OpBuilder
    old: Instruction
    shapes: Sequence[Shape]
    """The dynamic shapes of the operands before padding."""
    module: Module
    bounds: SizeBounds
    """Bounds of sizes in the computation."""

    # Scalars

    def s32(self, value: Instruction | int) -> Instruction:
        """Returns a constant s32[] for an integer, and an instruction unchanged."""
        return self.build.constant(value, PrimitiveType.S32) if isinstance(value, int) else value

    def _chain(self, op: Operation, values: Iterable[Instruction | int]) -> Instruction:
        return functools.reduce(lambda a, b: self.build(op, a, b), map(self.s32, values))

    def sum(self, *terms: Instruction | int) -> Instruction:
        """Adds scalars."""
        return self._chain(Add(), terms)

    def product(self, *factors: Instruction | int) -> Instruction:
        """Multiplies scalars; 1 without any."""
        return self._chain(Multiply(), factors or (1,))

    def difference(self, a: Instruction | int, b: Instruction | int) -> Instruction:
        """Returns a - b."""
        return self._chain(Subtract(), (a, b))

    def quotient(self, a: Instruction | int, b: Instruction | int) -> Instruction:
        """Returns a / b, rounded toward zero."""
        return self._chain(Divide(), (a, b))

    def maximum(self, *values: Instruction | int) -> Instruction:
        """Returns the maximum of scalars."""
        return self._chain(Maximum(), values)

    def minimum(self, *values: Instruction | int) -> Instruction:
        """Returns the minimum of scalars."""
        return self._chain(Minimum(), values)

    def compare(self, a: Instruction | int, direction: ComparisonDirection, b: Instruction | int) -> Instruction:
        """Compares scalars, or arrays element by element."""
        return self.build(Compare(direction=direction), self.s32(a), self.s32(b))

    # Sizes

    def size(self, operand: Padded, dimension: int) -> Instruction:
        """Returns the size of a dimension: its dynamic size or its bound."""
        return operand.sizes.get(dimension) or self.s32(operand.bounds[dimension])

    def checked(self, size: Instruction, is_valid: Instruction, message: str) -> Instruction:
        """Returns the size, and raises a RunError with the message at run time if `is_valid` is false."""
        right, wrong = new_computation(self.module, "right"), new_computation(self.module, "wrong")
        OpBuilder.of(right).parameter(0, S32)
        build = OpBuilder.of(wrong)
        refused = build(CustomCall(target_name=REFUSE_SIZES, has_effect=True), build.parameter(0, S32), shape=S32)
        refused.name, refused.backend_config = self.old.name, message
        refused.location = self.old.location
        return self.build(Conditional(branch_computations=(right, wrong)), is_valid, size, size)

    def fitting(self, size: Instruction, direction: ComparisonDirection, bound: int, message: str) -> Instruction:
        """Returns the size, checked to be equal to the bound (EQ) or in [0, bound] (LE) at run time if necessary."""
        known = self.bounds.of(size)
        if (
            known is not None
            and (0 if direction is ComparisonDirection.LE else bound) <= known.low <= known.high <= bound
        ):
            return size
        is_valid = self._chain(
            And(), [self.compare(size, direction, bound), self.compare(size, ComparisonDirection.GE, 0)]
        )
        return self.checked(size, is_valid, message)

    def one_size(self, sizes: Iterable[Instruction]) -> Instruction:
        """Returns the common size of several operands, checked to be equal at run time (SETDIMENSIONSIZE-3)."""
        distinct = {origin(size): size for size in sizes}.values()
        static = {int(size.op.literal.value): size for size in distinct if isinstance(size.op, Constant)}
        first, *others = [*(size for size in distinct if not isinstance(size.op, Constant)), *static.values()]
        for other in others:
            equal = self.compare(first, ComparisonDirection.EQ, other)
            first = self.checked(first, equal, f"SETDIMENSIONSIZE-3: {self.old.opcode} of different actual sizes")
        return first

    def joint_sizes(self, operands: Sequence[Padded]) -> Sizes:
        """Returns the common sizes of operands with the same dimensions; scalars among them are ignored."""
        arrays = [operand for operand in operands if operand.bounds]
        dynamic = sorted({d for operand in arrays for d in operand.sizes})
        return {d: self.one_size(self.size(operand, d) for operand in arrays) for d in dynamic}

    def independent_sizes(self, operands: Sequence[Padded]) -> Sizes | None:
        """Returns the sizes of the result's dimensions that are dimensions of the operands, by the indexing map.

        None without a map, or if the operation is not independent along a dynamic dimension of an operand.
        """
        mapped = indexing_map(self.old.op, self.old.shape, self.shapes)
        sizes: dict[int, list[Instruction]] = {}
        for k, operand in enumerate(operands):
            variables = mapped.dimension_variables[k] if mapped else ()
            for d, size in operand.sizes.items():
                if mapped is None or variables[d] not in mapped.dimensions:
                    return None
                sizes.setdefault(mapped.dimensions.index(variables[d]), []).append(size)
        return {d: self.one_size(same) for d, same in sizes.items()}

    # Arrays

    def apply(self, *arrays: Instruction) -> Instruction:
        """Applies the original operation to padded arrays."""
        return self.build(self.old.op, *arrays, shape=self.old.shape.static())

    def zero(self, array: Instruction) -> Instruction:
        """Returns a scalar 0 of the array's element type."""
        return self.build.constant(0, array.shape.element_type)

    def splat(self, value: Instruction, shape: Shape) -> Instruction:
        """Broadcasts a scalar to the dimensions of a shape."""
        return self.build.broadcast(value, shape)

    def positions(self, shape: Shape, dimension: int) -> Instruction:
        """Returns the index of each element along a dimension, as s32 in the dimensions of a shape."""
        return self.build(Iota(iota_dimension=dimension), shape=Shape.array(PrimitiveType.S32, shape.dimensions))

    def valid(self, shape: Shape, sizes: Sizes) -> Instruction:
        """Returns a mask, pred in the dimensions of a shape, of the elements whose indices are below the sizes."""
        below = [
            self.compare(self.positions(shape, d), ComparisonDirection.LT, self.splat(size, shape))
            for d, size in sizes.items()
        ]
        return self._chain(And(), below)

    def masked(self, array: Instruction, sizes: Sizes, fill: Instruction) -> Instruction:
        """Replaces the elements beyond the sizes by a scalar."""
        if not sizes:
            return array
        return self.build(Select(), self.valid(array.shape, sizes), array, self.splat(fill, array.shape))

    def shifted(self, array: Instruction, starts: Sizes) -> Instruction:
        """Shifts the array to begin at the indices `starts`; the elements at its end become arbitrary."""
        bounds = array.shape.dimensions
        padding = tuple(PaddingDimension(0, bound if d in starts else 0) for d, bound in enumerate(bounds))
        padded = self.build(Pad(padding_config=padding), array, self.zero(array))
        at = [starts.get(d) or self.s32(0) for d in range(len(bounds))]
        return self.build(DynamicSlice(size_indices=bounds), padded, *at)


def origin(size: Instruction) -> Instruction:
    """Returns the instruction that gives a size, before conversions to other integers and back."""
    while isinstance(size.op, Convert) and size.operands[0].shape.element_type in (
        PrimitiveType.S32,
        PrimitiveType.S64,
    ):
        size = size.operands[0]
    return size
