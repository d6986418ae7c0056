"""Formulas of arithmetic, as its clauses define it: integers wrap, sums and products of floats are those of IEEE 754.

Narrow floats are computed in f32 and rounded, which gives the results of their own formats, because f32 has more than
twice their digits (Figueroa, 1995).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.prove.solver.element import NEAREST, Element, choose, from_bits, from_number, known
from hloom.prove.terms.term import Unsupported
from hloom.types import PrimitiveType

Elements = Sequence[Element]

FORMULAS = Registry[[PrimitiveType, Elements], Element]()
"""The formula of each operation, of the element type of the result and the operands."""


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
        FORMULAS.add(declaration, _arithmetic(of_floats, of_bits, of_booleans))


def _arithmetic(of_floats: Any, of_bits: Any, of_booleans: Any) -> Callable[..., Element]:
    def function(op: Operation, type: PrimitiveType, operands: Elements) -> Element:
        x, y = operands
        if type.is_float:
            return from_number(type, of_floats(NEAREST, x.number, y.number))
        return from_bits(type, (of_booleans if type.is_pred else of_bits)(x.bits, y.bits))

    return function


_add_arithmetic()


@FORMULAS.rule(binary.Divide)
def _divide(op: binary.Divide, type: PrimitiveType, operands: Elements) -> Element:
    """Divides; x / 0 has all bits set, and the minimum / -1 is the minimum, as bit-vectors wrap (DIV-2)."""
    x, y = operands
    if type.is_float:
        return from_number(type, z3.fpDiv(NEAREST, x.number, y.number))
    quotient = x.bits / y.bits if type.is_signed else z3.UDiv(x.bits, y.bits)
    return from_bits(type, z3.If(y.bits == 0, z3.BitVecVal(-1, type.bits), quotient))


@FORMULAS.rule(binary.Remainder)
def _remainder(op: binary.Remainder, type: PrimitiveType, operands: Elements) -> Element:
    x, y = operands
    if type.is_float:
        raise Unsupported(f"the remainder of {type}")
    return from_bits(type, z3.If(y.bits == 0, x.bits, (z3.SRem if type.is_signed else z3.URem)(x.bits, y.bits)))


@FORMULAS.rule(binary.Mulhi)
def _mulhi(op: binary.Mulhi, type: PrimitiveType, operands: Elements) -> Element:
    extend = z3.SignExt if type.is_signed else z3.ZeroExt
    x, y = (extend(type.bits, operand.bits) for operand in operands)
    return from_bits(type, z3.Extract(2 * type.bits - 1, type.bits, x * y))


def _extremum(op: Operation, type: PrimitiveType, operands: Elements) -> Element:
    """NaN if an operand is; zeros are ordered by their signs (MAX-1, MIN-1)."""
    x, y = operands
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


FORMULAS.add(binary.Maximum, _extremum)
FORMULAS.add(binary.Minimum, _extremum)


@FORMULAS.rule(binary.Shift)
def _shift(op: binary.Shift, type: PrimitiveType, operands: Elements) -> Element:
    """Bit-vectors are shifted out by amounts beyond their width, as HLO's integers are (SHIFTLEFT-1)."""
    x, y = (operand.bits for operand in operands)
    if isinstance(op, binary.ShiftLeft):
        return from_bits(type, x << y)
    return from_bits(type, x >> y if isinstance(op, binary.ShiftRightArithmetic) else z3.LShR(x, y))


@FORMULAS.rule(unary.Negate)
def _negate(op: unary.Negate, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    return with_sign(op, x) if type.is_float else from_bits(type, -x.bits)


def with_sign(op: unary.Negate | unary.Abs, x: Element) -> Element:
    """Returns a float with another sign; a NaN keeps its other bits (GEN-7)."""
    if isinstance(op, unary.Abs):
        return Element(x.type, lambda: x.bits & ~_sign_bit(x.type), lambda: z3.fpAbs(x.number))
    return Element(x.type, lambda: x.bits ^ _sign_bit(x.type), lambda: z3.fpNeg(x.number))


def _sign_bit(type: PrimitiveType) -> Any:
    return z3.BitVecVal(1 << (type.bits - 1), type.bits)


@FORMULAS.rule(unary.Not)
def _not(op: unary.Not, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    return from_bits(type, z3.Not(x.bits) if type.is_pred else ~x.bits)


@FORMULAS.rule(unary.Abs)
def _abs(op: unary.Abs, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    if type.is_float:
        return with_sign(op, x)
    return from_bits(type, z3.If(x.bits < 0, -x.bits, x.bits))


@FORMULAS.rule(unary.Sign)
def _sign(op: unary.Sign, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    one, minus_one = known(type, 1), known(type, -1)
    if not type.is_float:
        return choose(x.bits < 0, minus_one, choose(x.bits == 0, x, one))
    unsigned = choose(z3.Or(z3.fpIsZero(x.number), z3.fpIsNaN(x.number)), x, one)
    return choose(z3.And(z3.fpIsNegative(x.number), z3.Not(z3.fpIsZero(x.number))), minus_one, unsigned)


@FORMULAS.rule(unary.IsFinite)
def _is_finite(op: unary.IsFinite, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    return from_bits(type, z3.Not(z3.Or(z3.fpIsInf(x.number), z3.fpIsNaN(x.number))))


@FORMULAS.rule(unary.Sqrt)
def _sqrt(op: unary.Sqrt, type: PrimitiveType, operands: Elements) -> Element:
    return from_number(type, z3.fpSqrt(NEAREST, operands[0].number))


def _rounding(mode: Any) -> Callable[..., Element]:
    def function(op: Operation, type: PrimitiveType, operands: Elements) -> Element:
        return from_number(type, z3.fpRoundToIntegral(mode, operands[0].number))

    return function


FORMULAS.add(unary.Ceil, _rounding(z3.RTP()))
FORMULAS.add(unary.Floor, _rounding(z3.RTN()))
FORMULAS.add(unary.RoundNearestEven, _rounding(z3.RNE()))
FORMULAS.add(unary.RoundNearestAfz, _rounding(z3.RNA()))


@FORMULAS.rule(unary.PopulationCount)
def _population_count(op: unary.PopulationCount, type: PrimitiveType, operands: Elements) -> Element:
    return from_bits(type, population(operands[0].bits))


def population(bits: Any) -> Any:
    """Returns the number of bits that are set, in as many bits."""
    ones = [z3.ZeroExt(bits.size() - 1, z3.Extract(k, k, bits)) for k in range(bits.size())]
    return z3.simplify(sum(ones[1:], ones[0]))


@FORMULAS.rule(unary.CountLeadingZeros)
def _count_leading_zeros(op: unary.CountLeadingZeros, type: PrimitiveType, operands: Elements) -> Element:
    return from_bits(type, leading_zeros(operands[0].bits))


def leading_zeros(bits: Any) -> Any:
    """Returns the number of zeros before the first bit that is set, in as many bits; all of them for 0."""
    size = bits.size()
    count = z3.BitVecVal(size, size)
    for k in range(size):
        count = z3.If(z3.Extract(k, k, bits) == 1, z3.BitVecVal(size - 1 - k, size), count)
    return count
