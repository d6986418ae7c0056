"""product-types: converts the operands of dots and convolutions to types that the target supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.operation import Operation
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all
from hloom.system.records import record
from hloom.types import PrimitiveType

CanMultiply = Callable[[PrimitiveType, PrimitiveType, PrimitiveType], bool]
"""Whether the target supports products with these types of lhs, rhs and result."""


@record
class ProductTypes:
    """Before: dot(f8, f8) -> f8. After: the operands converted to f32, their dot, and that converted back.

    Floats are multiplied and added in f32, or f64 if that is among the types; integers and predicates in s32, or s64
    if a type is wider than 32 bits. Complex types are left alone.
    """

    can_multiply: CanMultiply
    name: ClassVar[str] = "product-types"
    operations: ClassVar[tuple[type, ...]] = (Dot, Convolution)

    def run(self, module: Module) -> int:
        """Converts operands and results; returns the number of instructions changed."""
        expanders = Expanders()
        expanders.add(Dot, self._widen)
        expanders.add(Convolution, self._widen)
        return expand_all(module, expanders)

    def _widen(self, op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        types = [*(operand.shape.element_type for operand in old.operands), old.shape.element_type]
        if self.can_multiply(types[0], types[1], types[2]):
            return None
        wide = _wide(types)
        if wide is None or not self.can_multiply(wide, wide, wide):
            return None
        operands = [build.convert(operand, wide) for operand in old.operands]
        product = build(op, *operands, shape=old.shape.with_element_type(wide).without_layout())
        return build.convert(product, old.shape.element_type)


def _wide(types: list[PrimitiveType]) -> PrimitiveType | None:
    """Returns the type to compute in; None for complex types."""
    if any(type.is_complex for type in types):
        return None
    if any(type.is_float for type in types):
        return PrimitiveType.F64 if PrimitiveType.F64 in types else PrimitiveType.F32
    if all(type.bits <= 32 for type in types):
        # Sums wrap modulo 2^32; truncated, they are right for narrower types too.
        return PrimitiveType.S32
    return PrimitiveType.S64
