"""Formulas of comparisons, choices and conversions."""

from __future__ import annotations

from typing import Any

import z3

from hloom.literal import extreme
from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision
from hloom.ops.select import Select
from hloom.prove.solver.arithmetic import FORMULAS as FORMULAS
from hloom.prove.solver.arithmetic import Elements
from hloom.prove.solver.element import NEAREST, Element, choose, from_bits, from_code, from_number, known, sort_of
from hloom.types import PrimitiveType


@FORMULAS.rule(Select)
def _select(op: Select, type: PrimitiveType, operands: Elements) -> Element:
    return choose(operands[0].bits, operands[1], operands[2])


COMPARISONS: dict[ComparisonDirection, tuple[Any, Any, Any]] = {
    ComparisonDirection.EQ: (z3.fpEQ, lambda x, y: x == y, lambda x, y: x == y),
    ComparisonDirection.NE: (z3.fpNEQ, lambda x, y: x != y, lambda x, y: x != y),
    ComparisonDirection.LT: (z3.fpLT, lambda x, y: x < y, z3.ULT),
    ComparisonDirection.LE: (z3.fpLEQ, lambda x, y: x <= y, z3.ULE),
    ComparisonDirection.GT: (z3.fpGT, lambda x, y: x > y, z3.UGT),
    ComparisonDirection.GE: (z3.fpGEQ, lambda x, y: x >= y, z3.UGE),
}
"""Comparisons of floats, of signed and of unsigned bit-vectors."""


@FORMULAS.rule(Compare)
def _compare(op: Compare, type: PrimitiveType, operands: Elements) -> Element:
    x, y = operands
    of_floats, of_signed, of_unsigned = COMPARISONS[op.direction]
    if x.type.is_float:
        if op.is_total_order:
            return from_bits(type, of_signed(_total_order_key(x), _total_order_key(y)))
        return from_bits(type, of_floats(x.number, y.number))
    if x.type.is_pred:
        bits = [z3.If(t.bits, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) for t in operands]
        return from_bits(type, of_unsigned(*bits))
    return from_bits(type, (of_signed if x.type.is_signed else of_unsigned)(x.bits, y.bits))


def _total_order_key(x: Element) -> Any:
    """Returns a signed bit-vector in the order of TOTALORDER-1."""
    magnitude = z3.BitVecVal((1 << (x.type.bits - 1)) - 1, x.type.bits)
    return z3.If(x.bits < 0, x.bits ^ magnitude, x.bits)


@FORMULAS.rule(Convert)
def _convert(op: Convert, type: PrimitiveType, operands: Elements) -> Element:
    return converted(operands[0], type)


def converted(x: Element, type: PrimitiveType) -> Element:
    """Converts an element to another type (CONVERT-2 to CONVERT-5)."""
    if x.type is type:
        return x
    if x.type.is_pred:
        return choose(x.bits, known(type, 1), known(type, 0))
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


def _resized(x: Element, bits: int) -> Any:
    if bits <= x.type.bits:
        return z3.Extract(bits - 1, 0, x.bits)
    return (z3.SignExt if x.type.is_signed else z3.ZeroExt)(bits - x.type.bits, x.bits)


def _float_to_integer(x: Element, type: PrimitiveType) -> Element:
    """Truncates and clamps; NaN gives 0 (CONVERT-3)."""
    low, high = extreme(type, highest=False), extreme(type, highest=True)
    to_integer = (z3.fpToSBV if type.is_signed else z3.fpToUBV)(z3.RTZ(), x.number, z3.BitVecSort(type.bits))
    # Limits beyond the range of the format are infinities, which are clamped, too.
    is_above, is_below = (
        compare(x.number, z3.simplify(z3.fpRealToFP(NEAREST, z3.RealVal(limit), sort_of(x.type))))
        for compare, limit in ((z3.fpGEQ, int(high) + 1), (z3.fpLEQ, int(low)))
    )
    above = choose(is_above, known(type, high), from_bits(type, to_integer))
    below = choose(is_below, known(type, low), above)
    return choose(z3.fpIsNaN(x.number), known(type, 0), below)


@FORMULAS.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    return converted(x, type) if x.type.is_pred or type.is_pred else from_bits(type, x.bits)


@FORMULAS.rule(binary.Complex)
def _complex(op: binary.Complex, type: PrimitiveType, operands: Elements) -> Element:
    return from_bits(type, z3.Concat(operands[1].bits, operands[0].bits))


@FORMULAS.rule(unary.Real)
def _real(op: unary.Real, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    return from_bits(type, z3.simplify(z3.Extract(type.bits - 1, 0, x.bits))) if x.type.is_complex else x


@FORMULAS.rule(unary.Imag)
def _imag(op: unary.Imag, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    if not x.type.is_complex:
        return from_code(type, 0)
    return from_bits(type, z3.simplify(z3.Extract(2 * type.bits - 1, type.bits, x.bits)))


@FORMULAS.rule(ReducePrecision)
def _reduce_precision(op: ReducePrecision, type: PrimitiveType, operands: Elements) -> Element:
    (x,) = operands
    exponent, mantissa = sort_of(type).ebits(), sort_of(type).sbits() - 1
    reduced = with_fewer_bits(x.bits, exponent, mantissa, op.exponent_bits, op.mantissa_bits)
    return choose(z3.fpIsNaN(x.number), x, from_bits(type, reduced))


def with_fewer_bits(bits: Any, exponent: int, mantissa: int, exponent_bits: int, mantissa_bits: int) -> Any:
    """Rounds the mantissa of a float, then replaces numbers out of range (REDUCEPRECISION-2, -4)."""
    width = bits.size()
    if mantissa_bits < mantissa:
        drop = mantissa - mantissa_bits
        last = z3.LShR(bits, drop) & 1
        bits = (bits + ((1 << (drop - 1)) - 1) + last) & ~z3.BitVecVal((1 << drop) - 1, width)
    if exponent_bits < exponent:
        bias, reduced = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        mask = z3.BitVecVal(((1 << exponent) - 1) << mantissa, width)
        sign, found = bits & (1 << (width - 1)), bits & mask
        small = z3.If(z3.ULE(found, (bias - reduced) << mantissa), sign, bits)
        bits = z3.If(z3.UGT(found, (bias + reduced) << mantissa), sign | mask, small)
    return bits
