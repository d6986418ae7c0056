"""Keys of comparators that order by one value: unsigned integers of the same order."""

from __future__ import annotations

import math

from hloom.affine import Expression
from hloom.backends.cpu.elements import narrow_floats
from hloom.backends.cpu.elements.types import Element, memory_element, register_element, store_element
from hloom.backends.cpu.kernels.scalar_computation import ScalarComputation, emit_expressions
from hloom.lir import Builder, Value, constant, type_of
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Argument, Constant, walk
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.select import Select
from hloom.system.records import record
from hloom.types import PrimitiveType


@record(slots=True)
class SortKey:
    """The order of an expression of one operand's element; `argument` is the index of its Argument."""

    operand: int
    argument: int
    expression: Expression
    descending: bool
    is_total: bool

    @property
    def bits(self) -> int:
        """Bits of a key."""
        type = self.expression.type
        return type_of((register_element if narrow_floats.is_narrow(type) else memory_element)(type)).bits

    @property
    def ambiguous_values(self) -> tuple[Constant, ...] | None:
        """Values whose keys several elements have; None if any key may be such."""
        if self.expression.type not in (PrimitiveType.F32, PrimitiveType.F64) and not self.expression.type.is_integer:
            return None
        constants = _constant_alternatives(self.expression)
        if constants is None or self.is_total or not self.expression.type.is_float:
            return constants
        return (*constants, *(Constant(self.expression.type, value) for value in (0.0, math.nan)))

    def emit(self, b: Builder, element: Element) -> Value:
        """Emits an unsigned integer of `bits` bits that is smaller for elements that come first."""
        (value,) = emit_expressions(b, [self.expression], [element] * (self.argument + 1))
        assert isinstance(value, Value)
        return self._encode(b, value)

    def encode_constant(self, b: Builder, value: Constant) -> Value:
        """Emits the key of a constant."""
        (emitted,) = emit_expressions(b, [value], [])
        assert isinstance(emitted, Value)
        return self._encode(b, emitted)

    def _encode(self, b: Builder, value: Value) -> Value:
        type = self.expression.type
        if type.is_pred:
            key = b.convert("zext", value, "i8")
        elif type.is_float:
            key = _float_key(b, value if self.is_total else _canonical(b, value), type)
        else:
            key = b.binary("xor", value, constant(value.type, 1 << (value.type.bits - 1))) if type.is_signed else value
        return b.binary("xor", key, constant(key.type, -1)) if self.descending else key

    def decode(self, b: Builder, key: Value) -> Value:
        """Emits the bits of the element that has a key, if its value is not ambiguous and has as many bits."""
        type, bits = self.expression.type, key.type.bits
        highest = constant(key.type, 1 << (bits - 1))
        key = b.binary("xor", key, constant(key.type, -1)) if self.descending else key
        if type.is_float:
            is_negative = b.binary("ashr", b.binary("xor", key, highest), constant(key.type, bits - 1))
            return b.binary("xor", key, b.binary("or", is_negative, highest))
        return b.binary("xor", key, highest) if type.is_signed else key


def _constant_alternatives(expression: Expression) -> tuple[Constant, ...] | None:
    """Returns the constants that an expression may be instead of its argument; None for other expressions."""
    if isinstance(expression, Argument):
        return ()
    if isinstance(expression, Constant):
        return (expression,)
    if not (isinstance(expression, Apply) and isinstance(expression.op, Select)):
        return None
    alternatives = [_constant_alternatives(operand) for operand in expression.operands[1:]]
    return (
        None if None in alternatives else tuple(constant for constants in alternatives for constant in constants or ())
    )


def _float_key(b: Builder, value: Value, type: PrimitiveType) -> Value:
    """Keys in total order: the sign bit is flipped, and all other bits of negative values too; narrow floats as f32."""
    is_narrow = narrow_floats.is_narrow(type)
    stored = narrow_floats.ordered(b, value, type) if is_narrow else store_element(b, value, type)
    bits = b.bitcast(stored, stored.type.integer)
    width = bits.type.bits
    sign = b.binary("ashr", bits, constant(bits.type, width - 1))
    return b.binary("xor", bits, b.binary("or", sign, constant(bits.type, 1 << (width - 1))))


def _canonical(b: Builder, value: Value) -> Value:
    """Replaces -0 by +0, and every NaN by one."""
    zero, nan = constant(value.type, 0.0), constant(value.type, float("nan"))
    value = b.select(b.compare("oeq", value, zero), zero, value)
    return b.select(b.compare("uno", value, value), nan, value)


def natural_key(type: PrimitiveType, descending: bool) -> SortKey:
    """Returns the key of the elements themselves; floats are in total order."""
    argument = ExpressionSpace([]).argument(type, 0)
    return SortKey(0, 0, argument, descending, is_total=True)


def sort_key(comparator: ScalarComputation) -> SortKey | None:
    """Returns the key of a comparator `key(x) < key(y)` or `>`, for elements x, y of one operand; None for others."""
    (root,) = comparator.results
    if not (isinstance(root, Apply) and isinstance(root.op, Compare)) or root.operands[0].type.is_complex:
        return None
    left, right = root.operands
    swapped = comparator.results_for([comparator.arguments[index ^ 1] for index in range(len(comparator.arguments))])[0]
    used = {expression.number for expression in walk([left]) if isinstance(expression, Argument)}
    if not isinstance(swapped, Apply) or swapped.operands != (right, left) or len(used) != 1:
        return None
    if root.op.direction not in (ComparisonDirection.LT, ComparisonDirection.GT):
        return None
    (argument,) = used
    descending = (root.op.direction is ComparisonDirection.GT) != (argument % 2 == 1)
    is_total = root.op.is_total_order
    return SortKey(argument // 2, argument, left, descending, is_total)
