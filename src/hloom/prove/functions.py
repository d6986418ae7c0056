"""Element-wise operations on terms, as their clauses define them on numbers.

Sums, products, quotients and roots of floats are IEEE's. Those of narrow floats are computed in f32 and rounded, which
gives the same results, because f32 has more than twice their digits (Figueroa, 1995). Other functions of floats, such
as exp, are uninterpreted: equal arguments give equal results, and nothing else is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from hloom.literal import extreme
from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.ops.select import Clamp, Select
from hloom.prove.terms import FORMATS, NEAREST, Term, choose, constant, from_bits, from_number, sort_of
from hloom.types import PrimitiveType

FUNCTIONS = Registry[[PrimitiveType, Sequence[Term]], Term]()
"""The function of each operation, of the element type of the result and the operands."""


Apply = Callable[[Operation, PrimitiveType, Sequence[Term]], Term]
"""A function that applies an element-wise operation to elements, for an element type of the result."""


def apply(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Applies an element-wise operation as its clauses say, if it has a function on these types; else an unknown
    function."""
    function = FUNCTIONS.get(op)
    is_interpreted = all(t in FORMATS or t.is_integer or t.is_pred for t in (type, *(x.type for x in operands)))
    if function is None or not (is_interpreted or isinstance(op, MOVES)):
        return uninterpreted(op, type, operands)
    return function(op, type, operands)


def apply_opaque(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Applies an element-wise operation, of which nothing is known if it computes with floats or complex numbers.

    Equal results of such functions are equal for all meanings: a proof needs no arithmetic of floats. Monoids commute,
    and have their identities.
    """
    is_exact = all(t.is_integer or t.is_pred for t in (type, *(x.type for x in operands)))
    if is_exact or isinstance(op, MOVES):
        return apply(op, type, operands)
    function = unknown(op, type)
    if isinstance(op, binary.Monoid):
        x, y = sorted((operand.bits for operand in operands), key=lambda bits: int(bits.get_id()))
        value = z3.If(z3.ULE(x, y), function(x, y), function(y, x))
        if type in FORMATS:
            identity = constant(type, op.identity(type)).bits
            value = z3.If(x == identity, y, z3.If(y == identity, x, value))
        return from_bits(type, value)
    return from_bits(type, function(*(x.bits for x in operands)))


MOVES = (Select, BitcastConvert, binary.Complex, unary.Real, unary.Imag)
"""Operations that only move bits."""


def uninterpreted(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Applies an unknown function, the same for all equal operations; of numbers it is a function of their values."""
    if type not in FORMATS or any(x.type not in FORMATS and x.type.is_float for x in operands):
        return from_bits(type, unknown(op, type)(*(x.bits for x in operands)))
    arguments = [x.number if x.type in FORMATS else x.bits for x in operands]
    function = z3.Function(_name(op), *(a.sort() for a in arguments), sort_of(type))
    return from_number(type, function(*arguments))


def unknown(op: Operation, type: PrimitiveType) -> Callable[..., Any]:
    """Returns a function of bits, of which only its name is known."""

    def function(*arguments: Any) -> Any:
        result = z3.BoolSort() if type.is_pred else z3.BitVecSort(type.bits)
        return z3.Function(f"{_name(op)}.{type}", *(a.sort() for a in arguments), result)(*arguments)

    return function


def _name(op: Operation) -> str:
    return f"{op.opcode}{sorted((k, str(v)) for k, v in vars(op).items())}"


def _ordered(x: Term, y: Term) -> tuple[Term, Term]:
    """Returns the operands of a commutative operation in an order that does not depend on the program's."""
    keys = [(t.number if t.type in FORMATS else t.bits).get_id() for t in (x, y)]
    return (x, y) if keys[0] <= keys[1] else (y, x)


def _add_arithmetic() -> None:
    """Registers the operations on two numbers that have a function of z3 for floats, bit-vectors and booleans."""
    table: list[tuple[type[Operation], Any, Any, Any]] = [
        (binary.Add, z3.fpAdd, lambda x, y: x + y, z3.Or),
        (binary.Subtract, z3.fpSub, lambda x, y: x - y, None),
        (binary.Multiply, z3.fpMul, lambda x, y: x * y, z3.And),
        (binary.And, None, lambda x, y: x & y, z3.And),
        (binary.Or, None, lambda x, y: x | y, z3.Or),
        (binary.Xor, None, lambda x, y: x ^ y, z3.Xor),
    ]
    for declaration, of_floats, of_bits, of_booleans in table:
        FUNCTIONS.add(declaration, _arithmetic(of_floats, of_bits, of_booleans))


def _arithmetic(of_floats: Any, of_bits: Any, of_booleans: Any) -> Callable[..., Term]:
    def function(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
        x, y = _ordered(*operands) if isinstance(op, binary.Monoid) else operands
        if type.is_float:
            return from_number(type, of_floats(NEAREST, x.number, y.number))
        return from_bits(type, (of_booleans if type.is_pred else of_bits)(x.bits, y.bits))

    return function


_add_arithmetic()


@FUNCTIONS.rule(binary.Divide)
def _divide(op: binary.Divide, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Divides; x / 0 has all bits set, and the minimum / -1 is the minimum, as bit-vectors wrap (DIV-2)."""
    x, y = operands
    if type.is_float:
        return from_number(type, z3.fpDiv(NEAREST, x.number, y.number))
    quotient = x.bits / y.bits if type.is_signed else z3.UDiv(x.bits, y.bits)
    return from_bits(type, z3.If(y.bits == 0, z3.BitVecVal(-1, type.bits), quotient))


@FUNCTIONS.rule(binary.Remainder)
def _remainder(op: binary.Remainder, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    x, y = operands
    if type.is_float:
        return uninterpreted(op, type, operands)
    return from_bits(type, z3.If(y.bits == 0, x.bits, (z3.SRem if type.is_signed else z3.URem)(x.bits, y.bits)))


@FUNCTIONS.rule(binary.Power)
def _power(op: binary.Power, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Powers with an exponent of 0, 1 or 2 are products; others are unknown."""
    x, y = operands
    for exponent in range(3):
        if y.known is not None and y.known == constant(type, exponent).known:
            one = constant(type, 1)
            return (one, x, apply(binary.Multiply(), type, (x, x)))[exponent]
    return uninterpreted(op, type, operands)


def _extremum(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """NaN if an operand is; zeros are ordered by their signs (MAX-1, MIN-1)."""
    x, y = _ordered(*operands)
    is_maximum = isinstance(op, binary.Maximum)
    if type.is_pred:
        return from_bits(type, (z3.Or if is_maximum else z3.And)(x.bits, y.bits))
    if not type.is_float:
        less = x.bits < y.bits if type.is_signed else z3.ULT(x.bits, y.bits)
        return choose(less, *((y, x) if is_maximum else (x, y)))
    both_zero = z3.And(z3.fpIsZero(x.number), z3.fpIsZero(y.number))
    less = z3.Or(z3.fpLT(x.number, y.number), z3.And(both_zero, z3.fpIsNegative(x.number)))
    chosen = choose(less, *((y, x) if is_maximum else (x, y)))
    return choose(z3.fpIsNaN(x.number), x, choose(z3.fpIsNaN(y.number), y, chosen))


FUNCTIONS.add(binary.Maximum, _extremum)
FUNCTIONS.add(binary.Minimum, _extremum)


@FUNCTIONS.rule(binary.Shift)
def _shift(op: binary.Shift, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Bit-vectors are shifted out by amounts beyond their width, as HLO's integers are (SHIFTLEFT-1)."""
    x, y = (operand.bits for operand in operands)
    if isinstance(op, binary.ShiftLeft):
        return from_bits(type, x << y)
    return from_bits(type, x >> y if isinstance(op, binary.ShiftRightArithmetic) else z3.LShR(x, y))


@FUNCTIONS.rule(unary.Negate)
def _negate(op: unary.Negate, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    return from_number(type, z3.fpNeg(x.number)) if type.is_float else Term(type, -x.bits)


@FUNCTIONS.rule(unary.Not)
def _not(op: unary.Not, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    return from_bits(type, z3.Not(x.bits) if type.is_pred else ~x.bits)


@FUNCTIONS.rule(unary.Abs)
def _abs(op: unary.Abs, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    if type.is_float:
        return from_number(type, z3.fpAbs(x.number))
    return from_bits(type, z3.If(x.bits < 0, -x.bits, x.bits))


@FUNCTIONS.rule(unary.Sign)
def _sign(op: unary.Sign, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    one, minus_one = constant(type, 1), constant(type, -1)
    if not type.is_float:
        return choose(x.bits < 0, minus_one, choose(x.bits == 0, x, one))
    unsigned = choose(z3.Or(z3.fpIsZero(x.number), z3.fpIsNaN(x.number)), x, one)
    return choose(z3.And(z3.fpIsNegative(x.number), z3.Not(z3.fpIsZero(x.number))), minus_one, unsigned)


@FUNCTIONS.rule(unary.IsFinite)
def _is_finite(op: unary.IsFinite, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    return from_bits(type, z3.Not(z3.Or(z3.fpIsInf(x.number), z3.fpIsNaN(x.number))))


@FUNCTIONS.rule(unary.Sqrt)
def _sqrt(op: unary.Sqrt, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    return from_number(type, z3.fpSqrt(NEAREST, operands[0].number))


def _rounding(mode: Any) -> Callable[..., Term]:
    def function(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
        return from_number(type, z3.fpRoundToIntegral(mode, operands[0].number))

    return function


FUNCTIONS.add(unary.Ceil, _rounding(z3.RTP()))
FUNCTIONS.add(unary.Floor, _rounding(z3.RTN()))
FUNCTIONS.add(unary.RoundNearestEven, _rounding(z3.RNE()))
FUNCTIONS.add(unary.RoundNearestAfz, _rounding(z3.RNA()))


@FUNCTIONS.rule(unary.PopulationCount)
def _population_count(op: unary.PopulationCount, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    bits = operands[0].bits
    ones = [z3.ZeroExt(type.bits - 1, z3.Extract(k, k, bits)) for k in range(type.bits)]
    return from_bits(type, z3.simplify(sum(ones[1:], ones[0])))


@FUNCTIONS.rule(unary.CountLeadingZeros)
def _count_leading_zeros(op: unary.CountLeadingZeros, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    count = z3.BitVecVal(type.bits, type.bits)
    for k in range(type.bits):
        is_set = z3.Extract(k, k, operands[0].bits) == 1
        count = z3.If(is_set, z3.BitVecVal(type.bits - 1 - k, type.bits), count)
    return from_bits(type, count)


@FUNCTIONS.rule(Select)
def _select(op: Select, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    return choose(operands[0].bits, operands[1], operands[2])


@FUNCTIONS.rule(Clamp)
def _clamp(op: Clamp, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    low, x, high = operands
    return apply(binary.Minimum(), type, (apply(binary.Maximum(), type, (low, x)), high))


_COMPARISONS: dict[ComparisonDirection, tuple[Any, Any, Any]] = {
    ComparisonDirection.EQ: (z3.fpEQ, lambda x, y: x == y, lambda x, y: x == y),
    ComparisonDirection.NE: (z3.fpNEQ, lambda x, y: x != y, lambda x, y: x != y),
    ComparisonDirection.LT: (z3.fpLT, lambda x, y: x < y, z3.ULT),
    ComparisonDirection.LE: (z3.fpLEQ, lambda x, y: x <= y, z3.ULE),
    ComparisonDirection.GT: (z3.fpGT, lambda x, y: x > y, z3.UGT),
    ComparisonDirection.GE: (z3.fpGEQ, lambda x, y: x >= y, z3.UGE),
}
"""Comparisons of floats, of signed and of unsigned bit-vectors."""


@FUNCTIONS.rule(Compare)
def _compare(op: Compare, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    x, y = operands
    of_floats, of_signed, of_unsigned = _COMPARISONS[op.direction]
    if x.type.is_float:
        if op.is_total_order:
            return from_bits(type, of_signed(_total_order_key(x), _total_order_key(y)))
        return from_bits(type, of_floats(x.number, y.number))
    if x.type.is_pred:
        bits = [z3.If(t.bits, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) for t in operands]
        return from_bits(type, of_unsigned(*bits))
    return from_bits(type, (of_signed if x.type.is_signed else of_unsigned)(x.bits, y.bits))


def _total_order_key(x: Term) -> Any:
    """Returns a signed bit-vector in the order of TOTALORDER-1."""
    magnitude = z3.BitVecVal((1 << (x.type.bits - 1)) - 1, x.type.bits)
    return z3.If(x.bits < 0, x.bits ^ magnitude, x.bits)


@FUNCTIONS.rule(Convert)
def _convert(op: Convert, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    return converted(operands[0], type)


def converted(x: Term, type: PrimitiveType) -> Term:
    """Converts an element to another type (CONVERT-2 to CONVERT-5)."""
    if x.type is type:
        return x
    if x.type.is_pred:
        return choose(x.bits, constant(type, 1), constant(type, 0))
    if type.is_pred:
        return from_bits(type, z3.Not(z3.fpIsZero(x.number)) if x.type.is_float else x.bits != 0)
    if x.type.is_float:
        if type.is_float:
            return from_number(type, z3.fpFPToFP(NEAREST, x.number, sort_of(type)))
        return _float_to_integer(x, type)
    if type.is_integer:
        return from_bits(type, _resized(x, type.bits))
    if type.bits < 32:  # through f32, as in XLA
        return converted(converted(x, PrimitiveType.F32), type)
    to_float = z3.fpSignedToFP if x.type.is_signed else z3.fpUnsignedToFP
    return from_number(type, to_float(NEAREST, x.bits, sort_of(type)))


def _resized(x: Term, bits: int) -> Any:
    if bits <= x.type.bits:
        return z3.Extract(bits - 1, 0, x.bits)
    return (z3.SignExt if x.type.is_signed else z3.ZeroExt)(bits - x.type.bits, x.bits)


def _float_to_integer(x: Term, type: PrimitiveType) -> Term:
    """Truncates and clamps; NaN gives 0 (CONVERT-3)."""
    low, high = extreme(type, highest=False), extreme(type, highest=True)
    to_integer = (z3.fpToSBV if type.is_signed else z3.fpToUBV)(z3.RTZ(), x.number, z3.BitVecSort(type.bits))
    # Limits beyond the range of the format are infinities, which are clamped, too.
    is_above, is_below = (
        compare(x.number, z3.simplify(z3.fpRealToFP(NEAREST, z3.RealVal(limit), sort_of(x.type))))
        for compare, limit in ((z3.fpGEQ, int(high) + 1), (z3.fpLEQ, int(low)))
    )
    above = choose(is_above, constant(type, high), from_bits(type, to_integer))
    below = choose(is_below, constant(type, low), above)
    return choose(z3.fpIsNaN(x.number), constant(type, 0), below)


@FUNCTIONS.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    return operands[0] if operands[0].type is type else from_bits(type, operands[0].bits)


@FUNCTIONS.rule(binary.Complex)
def _complex(op: binary.Complex, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    return from_bits(type, z3.Concat(operands[1].bits, operands[0].bits))


@FUNCTIONS.rule(unary.Real)
def _real(op: unary.Real, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    return from_bits(type, z3.simplify(z3.Extract(type.bits - 1, 0, x.bits))) if x.type.is_complex else x


@FUNCTIONS.rule(unary.Imag)
def _imag(op: unary.Imag, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    (x,) = operands
    if not x.type.is_complex:
        return constant(type, 0)
    return from_bits(type, z3.simplify(z3.Extract(2 * type.bits - 1, type.bits, x.bits)))


@FUNCTIONS.rule(ReducePrecision)
def _reduce_precision(op: ReducePrecision, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    exponent, significand = sort_of(type).ebits(), sort_of(type).sbits()
    keeps_all = op.exponent_bits >= exponent and op.mantissa_bits >= significand - 1
    return operands[0] if keeps_all else uninterpreted(op, type, operands)
