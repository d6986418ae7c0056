"""Constants, tuples, tokens, sizes, and conversions of bits between widths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.ir import Instruction
from hloom.numerics import convert
from hloom.ops.broadcast import Iota
from hloom.ops.communication import CopyStart
from hloom.ops.convert import BitcastConvert
from hloom.ops.structure import AfterAll, Constant, GetTupleElement, Tuple
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol, elementwise
from hloom.prove.terms.concrete import to_codes
from hloom.prove.terms.functions import joined, part
from hloom.prove.terms.term import array_of, constant, from_code
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import TOKEN_VALUE, Array, Value


def symbol_of(value: Value, shape: Shape) -> Symbol:
    """Returns a known value as constants."""
    if shape.is_tuple:
        return tuple(symbol_of(v, s) for v, s in zip(value, shape.elements, strict=True))
    if not shape.is_array:
        return TOKEN_VALUE
    array = np.asarray(value)
    return array_of([from_code(shape.element_type, code) for code in to_codes(shape.element_type, array)], array.shape)


@RULES.rule(Constant)
def _constant(op: Constant, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return symbol_of(op.literal.value, op.literal.shape)


@RULES.rule(Iota)
def _iota(op: Iota, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    type, sizes, d = instruction.shape.element_type, instruction.shape.dimensions, op.iota_dimension
    counted = [constant(type, value) for value in convert(np.arange(sizes[d]), type.dtype)]
    return np.broadcast_to(array_of(counted, (sizes[d], *(1,) * (len(sizes) - 1 - d))), sizes)


@RULES.rule(Tuple)
def _tuple(op: Tuple, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return tuple(operands)


@RULES.rule(GetTupleElement)
def _get_tuple_element(
    op: GetTupleElement, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    return operands[0][op.index]


@RULES.rule(AfterAll)
def _after_all(op: AfterAll, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return TOKEN_VALUE


@RULES.rule(CopyStart)
def _copy_start(op: CopyStart, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return (operands[0], operands[0], array_of([constant(PrimitiveType.U32, 0)], ()))


@RULES.rule(BitcastConvert)
def _bitcast_convert(
    op: BitcastConvert, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Array:
    """Splits wider elements along a new last dimension, or joins those of the last one (BITCASTCONVERT-2, -3)."""
    (array,), type = operands, instruction.shape.element_type
    old = instruction.operand_shapes[0].element_type.bits
    if old == type.bits:
        return elementwise(instruction, operands)
    if old > type.bits:
        count = old // type.bits
        return array_of([part(x, type, k) for x in array.reshape(-1) for k in range(count)], (*array.shape, count))
    rows = array.reshape(-1, array.shape[-1])
    return array_of([joined(tuple(row), type) for row in rows], array.shape[:-1])
