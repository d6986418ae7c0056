"""Conversion of real elements, and reduction of their precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from hloom.affine import Expression
from hloom.backends.cpu.elements import narrow_floats
from hloom.backends.cpu.elements.types import Element, load_element, register_element, resized, rounded, store_element
from hloom.lir import Builder, Value, constant
from hloom.loops.expressions import Apply, Constant, ReductionResult
from hloom.numerics import has_infinity
from hloom.ops.convert import Convert, ReducePrecision
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Subtract
from hloom.types import PrimitiveType


def convert(b: Builder, x: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    """Converts the value of a real element to another type (CONVERT-2 to CONVERT-5)."""
    if source is target:
        return x
    element = register_element(target)
    if target.is_pred:
        return b.compare("une" if source.is_float else "ne", x, constant(x.type, 0))
    if source.is_float:
        return _float_to_integer(b, x, target) if target.is_integer else _float_to_float(b, x, source, target)
    if target.is_integer:
        return rounded(b, resized(b, x, element, source.is_signed), target)
    converted = b.convert("sitofp" if source.is_signed else "uitofp", x, element)
    return converted if _holds(target, source) else rounded(b, converted, target)


def _holds(target: PrimitiveType, source: PrimitiveType) -> bool:
    """Whether a float type has all values of an integer type, or of a narrow float type."""
    if target is PrimitiveType.F8E8M0FNU:
        return False  # which has neither zero nor negative numbers
    if source.is_integer:
        max_exponent = float(ml_dtypes.finfo(target.dtype).maxexp)
        return source.bits - source.is_signed <= target.mantissa_bits + 1 and source.bits < max_exponent
    return target is PrimitiveType.BF16 and narrow_floats.is_narrow(source)


def _float_to_integer(b: Builder, x: Value, target: PrimitiveType) -> Value:
    """Rounds toward zero and clamps; NaN gives 0 (CONVERT-3). LLVM's saturating conversion is not vectorised."""
    (least, most), digits = target.limits, 53 if x.type.element == "double" else 24
    dropped = max(0, most.bit_length() - digits)
    largest = most >> dropped << dropped  # the largest integer of the target that x can represent
    low, high = constant(x.type, float(least)), constant(x.type, float(largest))
    inside = b.select(b.compare("ogt", x, low), x, low)
    inside = b.select(b.compare("olt", inside, high), inside, high)
    wide = "i64" if target.bits == 64 else "i32"
    is_wide = not target.is_signed and target.bits >= 32
    value = b.convert("fptoui" if is_wide else "fptosi", inside, wide)
    value = resized(b, value, register_element(target), target.is_signed)
    if dropped:
        value = b.select(b.compare("ogt", x, high), constant(value.type, most), value)
    return b.select(b.compare("uno", x, x), constant(value.type, 0), value)


def _float_to_float(b: Builder, x: Value, source: PrimitiveType, target: PrimitiveType) -> Value:
    if narrow_floats.is_narrow(source):
        x = narrow_floats.plain_nan(b, x, source)
    if target is PrimitiveType.F64:
        return b.convert("fpext", x, "double")
    if source is PrimitiveType.F64:
        nearest = b.convert("fptrunc", x, "float")
        x = nearest if target is PrimitiveType.F32 else _rounded_to_odd(b, x, nearest)
    if narrow_floats.is_narrow(target):
        return narrow_floats.rounded(b, x, target, is_data=True)
    return x if _holds(target, source) else rounded(b, x, target)


def _rounded_to_odd(b: Builder, x: Value, nearest: Value) -> Value:
    """Rounds f64 to f32, inexact results to an odd last bit, so that a further rounding equals one of the f64."""
    back = b.convert("fpext", nearest, "double")
    bits = b.bitcast(nearest, nearest.type.integer)
    one = constant(bits.type, 1)
    even = b.compare("eq", b.binary("and", bits, one), constant(bits.type, 0))
    finite = b.compare("olt", b.intrinsic("fabs", nearest), constant(nearest.type, float("inf")))
    wrong = b.binary("and", b.binary("and", even, finite), b.compare("one", back, x))
    larger = b.compare("ogt", b.intrinsic("fabs", x), b.intrinsic("fabs", back))
    moved = b.select(larger, b.binary("add", bits, one), b.binary("sub", bits, one))
    return b.bitcast(b.select(wrong, moved, bits), nearest.type)


def has_bf16_nans(expression: Expression, depth: int = 4) -> bool:
    """Whether an f32 expression has no NaNs but those of bf16, as far as its outermost `depth` operations tell.

    A sum, difference, product or quotient is the default NaN, or a NaN among its operands.
    """
    if isinstance(expression, Constant):
        return not np.isnan(expression.value)
    if isinstance(expression, Apply) and isinstance(expression.op, Convert):
        return expression.operands[0].type is PrimitiveType.BF16
    is_sum = isinstance(expression, ReductionResult) and expression.reduction.monoid in (Add, Multiply)
    is_arithmetic = isinstance(expression, Apply) and isinstance(expression.op, (Add, Subtract, Multiply, Divide))
    return depth > 0 and (is_sum or is_arithmetic) and all(has_bf16_nans(x, depth - 1) for x in expression.children)


def reduce_precision(op: ReducePrecision, b: Builder, e: Apply, x: Value) -> Element:
    """Works on the bits of the type, or of f32 if the type has no infinity (REDUCEPRECISION-1 to -5)."""
    own = e.type if has_infinity(e.type.dtype) else PrimitiveType.F32
    stored = store_element(b, x, own)
    bits = b.bitcast(stored, stored.type.integer)
    width, type = bits.type.bits, bits.type
    own_mantissa = own.mantissa_bits
    own_exponent = width - 1 - own_mantissa
    narrowest = own_exponent if own is e.type else e.type.bits - 1 - e.type.mantissa_bits
    new = bits
    if op.mantissa_bits < own_mantissa:
        drop = own_mantissa - op.mantissa_bits
        last = b.binary("and", b.binary("lshr", bits, constant(type, drop)), constant(type, 1))
        half = constant(type, (1 << (drop - 1)) - 1)
        up = b.binary("add", b.binary("add", bits, half), last)
        new = b.binary("and", up, constant(type, ~((1 << drop) - 1)))
    if op.exponent_bits < narrowest:
        bias, reduced = (1 << (own_exponent - 1)) - 1, (1 << (op.exponent_bits - 1)) - 1
        mask = constant(type, ((1 << own_exponent) - 1) << own_mantissa)
        exponent, sign = b.binary("and", new, mask), b.binary("and", new, constant(type, 1 << (width - 1)))
        large = b.compare("ugt", exponent, constant(type, (bias + reduced) << own_mantissa))
        small = b.compare("ule", exponent, constant(type, (bias - reduced) << own_mantissa))
        new = b.select(large, b.binary("or", sign, mask), b.select(small, sign, new))
    value = load_element(b, b.bitcast(new, stored.type), own)
    return b.select(b.compare("uno", x, x), x, value if own is e.type else rounded(b, value, e.type))
