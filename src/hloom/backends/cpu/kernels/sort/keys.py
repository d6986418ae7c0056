"""Comparators that order by one number: recognised, and turned into unsigned integers of the same order."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.backends.cpu.elements import narrow_floats
from hloom.backends.cpu.elements.types import Element, memory_element, register_element, store_element
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation, emit_expressions
from hloom.backends.cpu.llvm.text import Builder, Value, constant, type_of
from hloom.loops.expressions import Apply, Argument, ExpressionSpace, walk
from hloom.loops.index import Expression
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.compare import Compare
from hloom.types import PrimitiveType


@dataclass(frozen=True, slots=True)
class SortKey:
    """The order of an expression of one operand's element; `argument` is the number of its Argument."""

    operand: int
    argument: int
    expression: Expression
    descending: bool
    is_total: bool

    @property
    def bits(self) -> int:
        type = self.expression.type
        return type_of((register_element if narrow_floats.is_narrow(type) else memory_element)(type)).bits

    def emit(self, b: Builder, element: Element) -> Value:
        """An unsigned integer of `bits` bits that is less where the element comes first."""
        (value,) = emit_expressions(b, [self.expression], [element] * (self.argument + 1))
        assert isinstance(value, Value)
        type = self.expression.type
        if type.is_pred:
            key = b.convert("zext", value, "i8")
        elif type.is_float:
            key = _float_key(b, value if self.is_total else _without_signs(b, value), type)
        else:
            key = b.binary("xor", value, constant(value.type, 1 << (value.type.bits - 1))) if type.is_signed else value
        return b.binary("xor", key, constant(key.type, -1)) if self.descending else key


def _float_key(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """Total order: the sign bit turned, and of negative numbers all others too; of 8- and 4-bit floats as f32."""
    is_narrow = narrow_floats.is_narrow(type)
    stored = narrow_floats.ordered(b, value, type) if is_narrow else store_element(b, value, type)
    bits = b.bitcast(stored, stored.type.integer)
    width = bits.type.bits
    sign = b.binary("ashr", bits, constant(bits.type, width - 1))
    return b.binary("xor", bits, b.binary("or", sign, constant(bits.type, 1 << (width - 1))))


def _without_signs(b: Builder, value: Value) -> Value:
    """-0 as +0, and every NaN as one."""
    zero, nan = constant(value.type, 0.0), constant(value.type, float("nan"))
    value = b.select(b.compare("oeq", value, zero), zero, value)
    return b.select(b.compare("uno", value, value), nan, value)


def natural_key(type: PrimitiveType, descending: bool) -> SortKey:
    """The order of the elements themselves, of floats the total one."""
    argument = ExpressionSpace([]).argument(type, 0)
    return SortKey(0, 0, argument, descending, is_total=True)


def sort_key(comparator: ScalarComputation) -> SortKey | None:
    """The key of a comparator that is `key(x) < key(y)`, or `>`, for elements x and y of one operand."""
    (root,) = comparator.results
    if not (isinstance(root, Apply) and isinstance(root.op, Compare)) or root.operands[0].type.is_complex:
        return None
    left, right = root.operands
    exchanged = comparator.on([comparator.arguments[number ^ 1] for number in range(len(comparator.arguments))])[0]
    used = {expression.number for expression in walk([left]) if isinstance(expression, Argument)}
    if not isinstance(exchanged, Apply) or exchanged.operands != (right, left) or len(used) != 1:
        return None
    if root.op.direction not in (ComparisonDirection.LT, ComparisonDirection.GT):
        return None
    (argument,) = used
    descending = (root.op.direction is ComparisonDirection.GT) != (argument % 2 == 1)
    is_total = root.op.type is ComparisonType.TOTALORDER
    return SortKey(argument // 2, argument, left, descending, is_total)
