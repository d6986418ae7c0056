"""Emission of element-wise operations: `apply` emits one on registers of any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.backends.cpu.elements import integer_division, narrow_floats
from hloom.backends.cpu.elements.complex_ops import COMPLEX
from hloom.backends.cpu.elements.conversions import convert, has_bf16_nans, reduce_precision
from hloom.backends.cpu.elements.extrema import float_extremum, in_total_order
from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.backends.cpu.elements.functions.logarithms import power
from hloom.backends.cpu.elements.functions.vector_math import FUNCTIONS
from hloom.backends.cpu.elements.scalar_function import ScalarFunctionCall, apply_function
from hloom.backends.cpu.elements.shifts import disjunction, exclusive_or, shift
from hloom.backends.cpu.elements.small_values import (
    Multiple,
    RoundedProduct,
    SmallInteger,
    is_exact,
    multiple_of,
    rounded_product,
    small_integer,
)
from hloom.backends.cpu.elements.types import (
    Element,
    is_native,
    load_element,
    memory_element,
    rounded,
    rounded_arithmetic,
    select_element,
    store_element,
)
from hloom.lir import Builder, Value, constant, type_of
from hloom.loops.expressions import Apply
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision
from hloom.ops.elementwise_binary import (
    Add,
    And,
    Complex,
    Divide,
    Maximum,
    Minimum,
    Monoid,
    Mulhi,
    Multiply,
    Or,
    Power,
    Remainder,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Subtract,
    Xor,
)
from hloom.ops.elementwise_unary import (
    Abs,
    Ceil,
    CountLeadingZeros,
    Floor,
    Imag,
    IsFinite,
    Negate,
    Not,
    PopulationCount,
    Real,
    RoundNearestAfz,
    RoundNearestEven,
    Sign,
)
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.ops.select import Clamp, Select
from hloom.types import PrimitiveType

Emit = Callable[..., Element]
"""Emits an operation: (op, builder, expression, *operands), where the expression has the types of the operands."""

REAL = Registry[..., Element]()
"""Emits operations on real elements."""


def can_apply(op: Operation, result: PrimitiveType, operands: Sequence[PrimitiveType]) -> bool:
    """Whether `apply` can emit the operation for these element types."""
    if not all(map(is_native, (result, *operands))):
        return False
    if isinstance(op, BitcastConvert) and result.bits != operands[0].bits:
        return False  # an element of one is several of the other
    if isinstance(op, BitcastConvert) and not operands[0].is_complex:
        return True
    return op in (COMPLEX if operands and operands[0].is_complex else REAL)


def apply(b: Builder, expression: Apply, operands: list[Element]) -> Element:
    """Emits an element-wise operation on operands of equal width."""
    op = expression.op
    emitters = COMPLEX if operands and isinstance(operands[0], tuple) else REAL
    return emitters[op](op, b, expression, *operands)


REAL.add(ScalarFunctionCall, apply_function)

# Mathematical functions


def _on_lanes(function: Callable[..., Lanes]) -> Emit:
    def emit(op: Operation, b: Builder, e: Apply, *operands: Value) -> Element:
        return rounded(b, function(*(Lanes(b, operand) for operand in operands)).value, e.type)

    return emit


for _declaration, _function in FUNCTIONS.items():
    REAL.add(_declaration, _on_lanes(_function))
_power_of_floats = _on_lanes(power)


# Arithmetic


def _arithmetic(integer: str, floating: str, predicate: str = "") -> Emit:
    def emit(op: Operation, b: Builder, e: Apply, x: Value, y: Value) -> Element:
        if e.type.is_pred:
            return b.binary(predicate, x, y)
        result = b.binary(floating if e.type.is_float else integer, x, y)
        return result if is_exact(e) else rounded_arithmetic(b, result, e.type)

    return emit


REAL.add(Add, _arithmetic("add", "fadd", "or"))
REAL.add(Multiply, _arithmetic("mul", "fmul", "and"))
REAL.add(Subtract, _arithmetic("sub", "fsub"))
REAL.add(Multiple, multiple_of)
REAL.add(SmallInteger, small_integer)
REAL.add(RoundedProduct, rounded_product)


@REAL.rule(Divide)
def _divide(op: Divide, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    if e.type.is_float:
        return rounded_arithmetic(b, b.binary("fdiv", x, y), e.type)
    return integer_division.quotient(b, e, x, y)


@REAL.rule(Remainder)
def _remainder(op: Remainder, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    if e.type.is_float:
        return rounded(b, b.binary("frem", x, y), e.type)
    return integer_division.remainder(b, e, x, y)


@REAL.rule(Power)
def _power(op: Power, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    if e.type.is_float:
        return _power_of_floats(op, b, e, x, y)
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
    def emit(op: Operation, b: Builder, e: Apply, x: Value, y: Value) -> Element:
        if e.type.is_pred:
            return b.binary(predicate, x, y)
        if e.type.is_float:
            return float_extremum(b, intrinsic, x, y)
        return b.intrinsic(signed if e.type.is_signed else unsigned, x, y)

    return emit


_maximum = _extremum("maximum", "smax", "umax", "or")
_minimum = _extremum("minimum", "smin", "umin", "and")
REAL.add(Maximum, _maximum)
REAL.add(Minimum, _minimum)


@REAL.rule(Clamp)
def _clamp(op: Clamp, b: Builder, e: Apply, low: Value, x: Value, high: Value) -> Element:
    return _minimum(op, b, e, _maximum(op, b, e, low, x), high)


@REAL.rule(And)
def _and(op: And, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    return b.binary("and", x, y)


@REAL.rule(Or)
def _or(op: Or, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    return disjunction(b, x, y)


@REAL.rule(Xor)
def _xor(op: Xor, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    return exclusive_or(b, x, y)


def _shift(instruction: str) -> Emit:
    def emit(op: Operation, b: Builder, e: Apply, x: Value, y: Value) -> Element:
        return shift(b, instruction, x, y, e.type)

    return emit


REAL.add(ShiftLeft, _shift("shl"))
REAL.add(ShiftRightArithmetic, _shift("ashr"))
REAL.add(ShiftRightLogical, _shift("lshr"))


@REAL.rule(Mulhi)
def _mulhi(op: Mulhi, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    extend = "sext" if e.type.is_signed else "zext"
    wide = type_of(f"i{2 * x.type.bits}", x.type.width)
    a, c = b.convert(extend, x, wide.element), b.convert(extend, y, wide.element)
    product = b.binary("mul", a, c)
    high = b.binary("ashr" if e.type.is_signed else "lshr", product, constant(wide, e.type.bits))
    return b.convert("trunc", high, x.type.element)


# One operand


@REAL.rule(Abs)
def _abs(op: Abs, b: Builder, e: Apply, x: Value) -> Element:
    if e.type.is_float:
        return b.intrinsic("fabs", x)
    negative = b.binary("sub", constant(x.type, 0), x)
    return rounded(b, b.select(b.compare("slt", x, constant(x.type, 0)), negative, x), e.type)


@REAL.rule(Negate)
def _negate(op: Negate, b: Builder, e: Apply, x: Value) -> Element:
    if e.type.is_float:
        return _representable(b, b.fneg(x), e.type)
    return rounded(b, b.binary("sub", constant(x.type, 0), x), e.type)


@REAL.rule(Sign)
def _sign(op: Sign, b: Builder, e: Apply, x: Value) -> Element:
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
    def emit(op: Operation, b: Builder, e: Apply, x: Value) -> Element:
        return _representable(b, b.intrinsic(intrinsic, x), e.type)

    return emit


REAL.add(Ceil, _rounding("ceil"))
REAL.add(Floor, _rounding("floor"))
REAL.add(RoundNearestAfz, _rounding("round"))
REAL.add(RoundNearestEven, _rounding("rint"))


@REAL.rule(Not)
def _not(op: Not, b: Builder, e: Apply, x: Value) -> Element:
    return rounded(b, b.binary("xor", x, constant(x.type, -1)), e.type)


@REAL.rule(IsFinite)
def _is_finite(op: IsFinite, b: Builder, e: Apply, x: Value) -> Element:
    return b.compare("olt", b.intrinsic("fabs", x), constant(x.type, float("inf")))


def _code(b: Builder, x: Value, type: PrimitiveType) -> Value:
    """The bits of an integer, zero-extended to the width of the register."""
    return b.binary("and", x, constant(x.type, (1 << type.bits) - 1)) if type.bits < 8 else x


@REAL.rule(PopulationCount)
def _popcnt(op: PopulationCount, b: Builder, e: Apply, x: Value) -> Element:
    return rounded(b, b.intrinsic("ctpop", _code(b, x, e.type)), e.type)


@REAL.rule(CountLeadingZeros)
def _clz(op: CountLeadingZeros, b: Builder, e: Apply, x: Value) -> Element:
    code = _code(b, x, e.type)
    count = b.call(f"llvm.ctlz.{x.type.suffix}", x.type, code, constant(type_of("i1"), 0))
    if e.type.bits < 8:
        count = b.binary("sub", count, constant(x.type, 8 - e.type.bits))
    return rounded(b, count, e.type)


# Choices and comparisons


@REAL.rule(Select)
def _select(op: Select, b: Builder, e: Apply, condition: Value, x: Element, y: Element) -> Element:
    return select_element(b, condition, x, y)


_ORDERED = {"EQ": "oeq", "NE": "une", "GE": "oge", "GT": "ogt", "LE": "ole", "LT": "olt"}
_INTEGER = {"EQ": "eq", "NE": "ne", "GE": "ge", "GT": "gt", "LE": "le", "LT": "lt"}


@REAL.rule(Compare)
def _compare(op: Compare, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    type = e.operands[0].type
    name = op.direction.value
    signed = type.is_signed
    if type.is_float:
        if not op.is_total_order:
            return b.compare(_ORDERED[name], x, y)
        if narrow_floats.is_narrow(type):
            x, y = narrow_floats.ordered(b, x, type), narrow_floats.ordered(b, y, type)
        x, y = (in_total_order(b, b.bitcast(value, value.type.integer)) for value in (x, y))
        signed = True
    predicate = _INTEGER[name]
    return b.compare(predicate if name in ("EQ", "NE") else ("s" if signed else "u") + predicate, x, y)


# Conversions


@REAL.rule(Convert)
def _convert(op: Convert, b: Builder, e: Apply, x: Value) -> Element:
    source = e.operands[0].type
    if e.type.is_complex:
        real = convert(b, x, source, e.type.real)
        return real, constant(real.type, 0)
    if e.type is PrimitiveType.BF16 and source is PrimitiveType.F32 and has_bf16_nans(e.operands[0]):
        return rounded_arithmetic(b, x, e.type)
    return convert(b, x, source, e.type)


@REAL.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, b: Builder, e: Apply, x: Value) -> Element:
    source = e.operands[0].type
    stored = store_element(b, x, source)
    raw = b.bitcast(stored, stored.type.of(memory_element(e.type)))
    value = load_element(b, raw, e.type)
    return rounded(b, value, e.type) if e.type.bits < 8 else value


REAL.add(ReducePrecision, reduce_precision)


# Complex numbers from and to real ones


@REAL.rule(Real)
def _real(op: Real, b: Builder, e: Apply, x: Value) -> Element:
    return x


@REAL.rule(Imag)
def _imag(op: Imag, b: Builder, e: Apply, x: Value) -> Element:
    return constant(x.type, 0)


@REAL.rule(Complex)
def _complex(op: Complex, b: Builder, e: Apply, x: Value, y: Value) -> Element:
    return x, y


def float_instruction(monoid: type[Monoid] | None) -> str | None:
    """LLVM's instruction of a monoid of floats; None for those that need several, as `maximum` before AVX-512."""
    return "fadd" if monoid is Add else "fmul" if monoid is Multiply else None
