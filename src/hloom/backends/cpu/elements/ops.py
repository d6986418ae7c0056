"""Emission of element-wise operations: `apply` emits one on registers of any width."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes

from hloom.backends.cpu.elements import complex_math, narrow_floats, vector_math
from hloom.backends.cpu.elements.extrema import float_extremum
from hloom.backends.cpu.elements.scalar_function import ScalarFunctionCall, apply_function
from hloom.backends.cpu.elements.types import (
    Element,
    is_native,
    load_element,
    memory_element,
    register_element,
    rounded,
    rounded_arithmetic,
    select_element,
    store_element,
)
from hloom.backends.cpu.llvm.text import Builder, Value, constant, type_of
from hloom.loops.expressions import Apply, Constant
from hloom.numerics import has_infinity
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.compare import Compare
from hloom.ops.elementwise_binary import Add, Monoid, Multiply
from hloom.ops.operation import Operation
from hloom.types import PrimitiveType

Emit = Callable[..., Element]


def can_apply(op: Operation, result: PrimitiveType, operands: Sequence[PrimitiveType]) -> bool:
    """Whether `apply` can emit the operation for these element types."""
    return _can_apply(op.opcode, isinstance(op, ScalarFunctionCall), result, *operands)


@functools.cache
def _can_apply(opcode: str, is_function: bool, result: PrimitiveType, *operands: PrimitiveType) -> bool:
    if not all(map(is_native, [result, *operands])):
        return False
    if is_function:
        return True
    if operands and operands[0].is_complex:
        return opcode in _COMPLEX or opcode in complex_math.COMPLEX_UNARY or opcode in complex_math.COMPLEX_BINARY
    if opcode == "bitcast-convert":
        return result.bits == operands[0].bits
    return opcode in _REAL or opcode in vector_math.UNARY or opcode in vector_math.BINARY


def apply(b: Builder, expression: Apply, operands: list[Element]) -> Element:
    """Emits an element-wise operation on operands of equal width."""
    opcode = expression.op.opcode
    if isinstance(expression.op, ScalarFunctionCall):
        return apply_function(b, expression, *operands)
    types = [operand.type for operand in expression.operands]
    if (types and types[0].is_complex) or (opcode == "select" and expression.type.is_complex):
        return _apply_complex(b, expression, operands)
    if opcode in _REAL:
        return _REAL[opcode](b, expression, *operands)
    function = vector_math.UNARY.get(opcode) or vector_math.BINARY[opcode]
    return rounded(b, function(b, *cast(list[Value], operands)), expression.type)


def _apply_complex(b: Builder, expression: Apply, operands: list[Element]) -> Element:
    opcode = expression.op.opcode
    if opcode in _COMPLEX:
        return _COMPLEX[opcode](b, expression, *operands)
    function = complex_math.COMPLEX_UNARY.get(opcode) or complex_math.COMPLEX_BINARY[opcode]
    return function(b, *cast(list[tuple[Value, Value]], operands))


# Arithmetic


def _arithmetic(integer: str, floating: str, predicate: str = "") -> Emit:
    def emit(b: Builder, e: Apply, x: Value, y: Value) -> Element:
        if e.type.is_pred:
            return b.binary(predicate, x, y)
        return rounded_arithmetic(b, b.binary(floating if e.type.is_float else integer, x, y), e.type)

    return emit


def _divide(b: Builder, e: Apply, x: Value, y: Value) -> Element:
    if e.type.is_float:
        return rounded_arithmetic(b, b.binary("fdiv", x, y), e.type)
    safe, zero, overflow = _safe_divisor(b, e, x, y)
    quotient = b.binary("sdiv" if e.type.is_signed else "udiv", x, safe)
    if overflow is not None:
        quotient = b.select(overflow, x, quotient)
    if zero is not None:
        quotient = b.select(zero, constant(x.type, -1), quotient)
    return rounded(b, quotient, e.type)


def _remainder(b: Builder, e: Apply, x: Value, y: Value) -> Element:
    if e.type.is_float:
        return rounded(b, b.binary("frem", x, y), e.type)
    safe, zero, overflow = _safe_divisor(b, e, x, y)
    rest = b.binary("srem" if e.type.is_signed else "urem", x, safe)
    if overflow is not None:
        rest = b.select(overflow, constant(x.type, 0), rest)
    return b.select(zero, x, rest) if zero is not None else rest


def _safe_divisor(b: Builder, e: Apply, x: Value, y: Value) -> tuple[Value, Value | None, Value | None]:
    """A divisor that cannot trap, and i1 values for a zero divisor and for overflow; None if impossible (DIV-2)."""
    divisor = e.operands[1]
    if isinstance(divisor, Constant) and int(divisor.value) not in (0, -1):
        return y, None, None
    zero = b.compare("eq", y, constant(y.type, 0))
    one = constant(y.type, 1)
    if not e.type.is_signed:
        return b.select(zero, one, y), zero, None
    lowest = constant(x.type, int(ml_dtypes.iinfo(e.type.dtype).min))
    overflow = b.binary("and", b.compare("eq", x, lowest), b.compare("eq", y, constant(y.type, -1)))
    return b.select(b.binary("or", zero, overflow), one, y), zero, overflow


def _power(b: Builder, e: Apply, x: Value, y: Value) -> Element:
    if e.type.is_float:
        return rounded(b, vector_math.BINARY["power"](b, x, y), e.type)
    one, zero = constant(x.type, 1), constant(x.type, 0)
    result, square, rest = one, x, y
    for _ in range(e.type.bits):
        odd = b.compare("ne", b.binary("and", rest, one), zero)
        result = b.select(odd, b.binary("mul", result, square), result)
        square = b.binary("mul", square, square)
        rest = b.binary("lshr", rest, one)
    if e.type.is_signed:
        odd = b.compare("ne", b.binary("and", y, one), zero)
        minus = constant(x.type, -1)
        of_minus = b.select(b.compare("eq", x, minus), b.select(odd, minus, one), zero)
        of_negative = b.select(b.compare("eq", x, one), one, of_minus)
        result = b.select(b.compare("slt", y, zero), of_negative, result)
    return rounded(b, result, e.type)


def _extremum(intrinsic: str, signed: str, unsigned: str, predicate: str) -> Emit:
    def emit(b: Builder, e: Apply, x: Value, y: Value) -> Element:
        if e.type.is_pred:
            return b.binary(predicate, x, y)
        if e.type.is_float:
            return float_extremum(b, intrinsic, x, y)
        return b.intrinsic(signed if e.type.is_signed else unsigned, x, y)

    return emit


_maximum = _extremum("maximum", "smax", "umax", "or")
_minimum = _extremum("minimum", "smin", "umin", "and")


def _clamp(b: Builder, e: Apply, low: Value, x: Value, high: Value) -> Element:
    return _minimum(b, e, _maximum(b, e, low, x), high)


def _bitwise(opcode: str) -> Emit:
    def emit(b: Builder, e: Apply, x: Value, y: Value) -> Element:
        return b.binary(opcode, x, y)

    return emit


def _shift(opcode: str) -> Emit:
    def emit(b: Builder, e: Apply, x: Value, y: Value) -> Element:
        # Unsigned types narrower than a byte are zero-extended: their sign bit is not that of the register.
        bits = e.type.bits
        if opcode == "ashr" and bits < 8:
            amount = constant(x.type, 8 - bits)
            x = b.binary("ashr", b.binary("shl", x, amount), amount)
        if opcode == "lshr" and bits < 8:
            x = b.binary("and", x, constant(x.type, (1 << bits) - 1))
        inside = b.compare("ult", y, constant(y.type, bits))
        safe = b.select(inside, y, constant(y.type, 0 if opcode != "ashr" else bits - 1))
        shifted = b.binary(opcode, x, safe)
        if opcode != "ashr":
            shifted = b.select(inside, shifted, constant(x.type, 0))
        return rounded(b, shifted, e.type)

    return emit


def _mulhi(b: Builder, e: Apply, x: Value, y: Value) -> Element:
    extend = "sext" if e.type.is_signed else "zext"
    wide = type_of(f"i{2 * x.type.bits}", x.type.width)
    a, c = b.convert(extend, x, wide.element), b.convert(extend, y, wide.element)
    product = b.binary("mul", a, c)
    high = b.binary("ashr" if e.type.is_signed else "lshr", product, constant(wide, e.type.bits))
    return b.convert("trunc", high, x.type.element)


# One operand


def _abs(b: Builder, e: Apply, x: Value) -> Element:
    if e.type.is_float:
        return b.intrinsic("fabs", x)
    negative = b.binary("sub", constant(x.type, 0), x)
    return rounded(b, b.select(b.compare("slt", x, constant(x.type, 0)), negative, x), e.type)


def _negate(b: Builder, e: Apply, x: Value) -> Element:
    if e.type.is_float:
        return _representable(b, b.fneg(x), e.type)
    return rounded(b, b.binary("sub", constant(x.type, 0), x), e.type)


def _sign(b: Builder, e: Apply, x: Value) -> Element:
    zero, one = constant(x.type, 0), constant(x.type, 1)
    if e.type.is_float:
        return b.select(b.compare("une", x, zero), _nan_or(b, x, b.intrinsic("copysign", one, x)), x)
    positive = b.convert("zext", b.compare("sgt", x, zero), x.type.element)
    return b.select(b.compare("slt", x, zero), constant(x.type, -1), positive)


def _representable(b: Builder, x: Value, type: PrimitiveType) -> Value:
    """Rounds the result of an operation that is exact for floats of 16 bits or more, but not for narrower ones."""
    return rounded(b, x, type) if narrow_floats.is_narrow(type) else x


def _nan_or(b: Builder, x: Value, otherwise: Value) -> Value:
    return b.select(b.compare("uno", x, x), x, otherwise)


def _rounding(intrinsic: str) -> Emit:
    def emit(b: Builder, e: Apply, x: Value) -> Element:
        return _representable(b, b.intrinsic(intrinsic, x), e.type)

    return emit


def _not(b: Builder, e: Apply, x: Value) -> Element:
    return rounded(b, b.binary("xor", x, constant(x.type, -1)), e.type)


def _is_finite(b: Builder, e: Apply, x: Value) -> Element:
    return b.compare("olt", b.intrinsic("fabs", x), constant(x.type, float("inf")))


def _code(b: Builder, x: Value, type: PrimitiveType) -> Value:
    """The bits of an integer, zero-extended to the width of the register."""
    return b.binary("and", x, constant(x.type, (1 << type.bits) - 1)) if type.bits < 8 else x


def _popcnt(b: Builder, e: Apply, x: Value) -> Element:
    return rounded(b, b.intrinsic("ctpop", _code(b, x, e.type)), e.type)


def _clz(b: Builder, e: Apply, x: Value) -> Element:
    code = _code(b, x, e.type)
    count = b.call(f"llvm.ctlz.{x.type.suffix}", x.type, code, constant(type_of("i1"), 0))
    if e.type.bits < 8:
        count = b.binary("sub", count, constant(x.type, 8 - e.type.bits))
    return rounded(b, count, e.type)


# Choices and comparisons


def _select(b: Builder, e: Apply, condition: Value, x: Element, y: Element) -> Element:
    return select_element(b, condition, x, y)


_ORDERED = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}
_INTEGER = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


def _compare(b: Builder, e: Apply, x: Value, y: Value) -> Element:
    op = cast(Compare, e.op)
    type = e.operands[0].type
    name = op.direction.value
    signed = type.is_signed
    if type.is_float:
        if op.type is not ComparisonType.TOTALORDER:
            return b.compare(_ORDERED[name], x, y)
        if narrow_floats.is_narrow(type):
            x, y = narrow_floats.ordered(b, x, type), narrow_floats.ordered(b, y, type)
        x, y, signed = _total_order_key(b, x), _total_order_key(b, y), True
    predicate = _INTEGER[name]
    return b.compare(predicate if name in ("EQ", "NE") else ("s" if signed else "u") + predicate, x, y)


def _total_order_key(b: Builder, x: Value) -> Value:
    """Maps floats to signed integers in the order -NaN < -Inf < .. < -0 < +0 < .. < +NaN (TOTALORDER-1)."""
    bits = b.bitcast(x, x.type.integer)
    sign = b.binary("ashr", bits, constant(bits.type, bits.type.bits - 1))
    return b.binary("xor", bits, b.binary("lshr", sign, constant(bits.type, 1)))


# Conversions


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
        return rounded(b, _resized(b, x, source, element), target)
    opcode = "sitofp" if source.is_signed else "uitofp"
    return rounded(b, b.convert(opcode, x, element), target)


def _resized(b: Builder, x: Value, source: PrimitiveType, element: str) -> Value:
    new = x.type.of(element).bits
    if new == x.type.bits:
        return x
    return b.convert("trunc" if new < x.type.bits else "sext" if source.is_signed else "zext", x, element)


def _float_to_integer(b: Builder, x: Value, target: PrimitiveType) -> Value:
    """Rounds toward zero and clamps; NaN gives 0 (CONVERT-3). LLVM's saturating conversion is not vectorised."""
    limits, digits = ml_dtypes.iinfo(target.dtype), 53 if x.type.element == "double" else 24
    least, most = int(limits.min), int(limits.max)
    dropped = max(0, most.bit_length() - digits)
    largest = most >> dropped << dropped  # the largest integer of the target that x can represent
    low, high = constant(x.type, float(least)), constant(x.type, float(largest))
    inside = b.select(b.compare("ogt", x, low), x, low)
    inside = b.select(b.compare("olt", inside, high), inside, high)
    wide = "i64" if target.bits == 64 else "i32"
    is_wide = not target.is_signed and target.bits >= 32
    value = b.convert("fptoui" if is_wide else "fptosi", inside, wide)
    value = _resized(b, value, target, register_element(target))
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
    return rounded(b, x, target)


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


def _convert(b: Builder, e: Apply, x: Value) -> Element:
    source = e.operands[0].type
    if e.type.is_complex:
        real = convert(b, x, source, e.type.real)
        return real, constant(real.type, 0)
    return convert(b, x, source, e.type)


def _bitcast_convert(b: Builder, e: Apply, x: Value) -> Element:
    source = e.operands[0].type
    stored = store_element(b, x, source)
    raw = b.bitcast(stored, stored.type.of(memory_element(e.type)))
    value = load_element(b, raw, e.type)
    return rounded(b, value, e.type) if e.type.bits < 8 else value


def _reduce_precision(b: Builder, e: Apply, x: Value) -> Element:
    """Works on the bits of the type, or of f32 if the type has no infinity (REDUCEPRECISION-1 to -5)."""
    op: Any = e.op
    own = e.type if has_infinity(e.type.dtype) else PrimitiveType.F32
    stored = store_element(b, x, own)
    bits = b.bitcast(stored, stored.type.integer)
    width, type = bits.type.bits, bits.type
    own_mantissa = int(ml_dtypes.finfo(own.dtype).nmant)
    own_exponent = width - 1 - own_mantissa
    narrowest = own_exponent if own is e.type else e.type.bits - 1 - int(ml_dtypes.finfo(e.type.dtype).nmant)
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


# Complex numbers: operations on each part, and conversions


def _partwise(emit: Emit) -> Emit:
    def on_parts(b: Builder, e: Apply, *operands: tuple[Value, Value]) -> Element:
        real = emit(b, e, *(operand[0] for operand in operands))
        return cast(Value, real), cast(Value, emit(b, e, *(operand[1] for operand in operands)))

    return on_parts


def _float_binary(opcode: str) -> Emit:
    def emit(b: Builder, e: Apply, x: Value, y: Value) -> Element:
        return b.binary(opcode, x, y)

    return emit


def _complex_compare(b: Builder, e: Apply, x: tuple[Value, Value], y: tuple[Value, Value]) -> Element:
    if cast(Compare, e.op).direction is ComparisonDirection.EQ:
        return b.binary("and", b.compare("oeq", x[0], y[0]), b.compare("oeq", x[1], y[1]))
    return b.binary("or", b.compare("une", x[0], y[0]), b.compare("une", x[1], y[1]))


def _complex_convert(b: Builder, e: Apply, x: tuple[Value, Value]) -> Element:
    source = e.operands[0].type.real
    if e.type.is_complex:
        return convert(b, x[0], source, e.type.real), convert(b, x[1], source, e.type.real)
    if e.type.is_pred:
        zero = constant(x[0].type, 0)
        return b.binary("or", b.compare("une", x[0], zero), b.compare("une", x[1], zero))
    return convert(b, x[0], source, e.type)


def _real(b: Builder, e: Apply, x: Value) -> Element:
    return x


def _imag(b: Builder, e: Apply, x: Value) -> Element:
    return constant(x.type, 0)


def _complex(b: Builder, e: Apply, x: Value, y: Value) -> Element:
    return x, y


FLOAT_INSTRUCTIONS: dict[type[Monoid] | None, str] = {Add: "fadd", Multiply: "fmul"}
"""The LLVM instructions of monoids of floats that are one, unlike `maximum` before AVX-512."""

_REAL: dict[str, Emit] = {
    "abs": _abs,
    "add": _arithmetic("add", "fadd", "or"),
    "and": _bitwise("and"),
    "bitcast-convert": _bitcast_convert,
    "ceil": _rounding("ceil"),
    "clamp": _clamp,
    "compare": _compare,
    "complex": _complex,
    "convert": _convert,
    "count-leading-zeros": _clz,
    "divide": _divide,
    "floor": _rounding("floor"),
    "imag": _imag,
    "is-finite": _is_finite,
    "maximum": _maximum,
    "minimum": _minimum,
    "mulhi": _mulhi,
    "multiply": _arithmetic("mul", "fmul", "and"),
    "negate": _negate,
    "not": _not,
    "or": _bitwise("or"),
    "popcnt": _popcnt,
    "power": _power,
    "real": _real,
    "reduce-precision": _reduce_precision,
    "remainder": _remainder,
    "round-nearest-afz": _rounding("round"),
    "round-nearest-even": _rounding("rint"),
    "select": _select,
    "shift-left": _shift("shl"),
    "shift-right-arithmetic": _shift("ashr"),
    "shift-right-logical": _shift("lshr"),
    "sign": _sign,
    "subtract": _arithmetic("sub", "fsub"),
    "xor": _bitwise("xor"),
}

_COMPLEX: dict[str, Emit] = {
    "add": _partwise(_float_binary("fadd")),
    "bitcast-convert": lambda b, e, x: x,
    "compare": _complex_compare,
    "convert": _complex_convert,
    "imag": lambda b, e, x: x[1],
    "negate": _partwise(lambda b, e, x: b.fneg(x)),
    "real": lambda b, e, x: x[0],
    "select": _select,
    "subtract": _partwise(_float_binary("fsub")),
}
