"""product-types: products of types that the target has no code for, in wider ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.passes.op_builder import OpBuilder, expand_all
from hloom.types import PrimitiveType

# Whether the target multiplies two types into a third.
CanMultiply = Callable[[PrimitiveType, PrimitiveType, PrimitiveType], bool]


@dataclass(frozen=True)
class ProductTypes:
    """Before: dot(f8, f8) -> f8. After: the operands converted to f32, their dot, and that converted back.

    Floats are multiplied and added in f32, integers and predicates in s32 (or wider, where an operand or the result
    is); as the operation's meaning has it.
    """

    can_multiply: CanMultiply
    name: ClassVar[str] = "product-types"

    def run(self, module: Module) -> int:
        return expand_all(module, {"dot": self._widen, "convolution": self._widen})

    def _widen(self, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        types = [*(operand.shape.element_type for operand in old.operands), old.shape.element_type]
        if self.can_multiply(types[0], types[1], types[2]):
            return None
        wide = _wide(types)
        if wide is None or not self.can_multiply(wide, wide, wide):
            return None
        operands = [build.convert(operand, wide) for operand in old.operands]
        product = build(old.op, *operands, shape=old.shape.with_element_type(wide).without_layout())
        return build.convert(product, old.shape.element_type)


def _wide(types: list[PrimitiveType]) -> PrimitiveType | None:
    """The type to compute in; None for complex numbers, and for integers that none holds."""
    if any(type.is_complex for type in types):
        return None
    if any(type.is_float for type in types):
        return PrimitiveType.F64 if PrimitiveType.F64 in types else PrimitiveType.F32
    if all(type.bits <= 32 for type in types):
        # Sums wrap modulo 2^32, which is right for all narrower types too.
        return PrimitiveType.S32
    return PrimitiveType.S64
