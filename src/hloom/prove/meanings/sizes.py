"""Sizes that are known at run time: set-dimension-size, dynamic-reshape, conversions of dynamic arrays.

Arrays of terms have known sizes: an evaluation assumes a value for each unknown size (`Evaluator.size`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ir import Instruction
from hloom.ops.custom_call import PAD_TO_STATIC, REFUSE_SIZES, SLICE_TO_DYNAMIC
from hloom.ops.dynamic_size import GetDimensionSize, SetDimensionSize
from hloom.ops.reshape import DynamicReshape
from hloom.prove.meanings.evaluator import RULES, Evaluator, Refused, Symbol
from hloom.prove.terms.term import array_of, constant
from hloom.shape import Shape
from hloom.types import PrimitiveType

CONVERSIONS = (PAD_TO_STATIC, SLICE_TO_DYNAMIC, REFUSE_SIZES)
"""Custom calls that convert dynamic arrays, and check sizes."""


@RULES.rule(GetDimensionSize)
def _get_dimension_size(
    op: GetDimensionSize, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    return _number(operands[0].shape[op.dimension])


def _number(size: int) -> Symbol:
    return array_of([constant(PrimitiveType.S32, size)], ())


@RULES.rule(SetDimensionSize)
def _set_dimension_size(
    op: SetDimensionSize, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    """Elements beyond the size are dropped; a size that is raised again gives zeros (SETDIMENSIONSIZE-1, -2)."""
    operand, d = operands[0], op.dimension
    size = _size(evaluator, operands[1], instruction.shape, d)
    return _padded(operand, [size if k == d else n for k, n in enumerate(operand.shape)], instruction.shape)


def _size(evaluator: Evaluator, size: Symbol, shape: Shape, dimension: int) -> int:
    """Returns the assumed size of a dimension. Raises Refused if it does not fit the shape."""
    found = evaluator.size(size[()], shape.dimensions[dimension])
    if found < shape.dimensions[dimension] and not shape.dynamic_dimensions[dimension]:
        raise Refused(f"a size of {found} in {shape}")
    return found


def _padded(array: Symbol, sizes: Sequence[int], shape: Shape) -> Symbol:
    """Returns an array limited to some sizes, or filled up with zeros."""
    limited = array[tuple(slice(n) for n in sizes)]
    if limited.shape == tuple(sizes):
        return limited
    zero: Any = constant(shape.element_type, 0)
    return np.pad(limited, [(0, n - m) for n, m in zip(sizes, limited.shape, strict=True)], constant_values=zero)


@RULES.rule(DynamicReshape)
def _dynamic_reshape(
    op: DynamicReshape, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    operand, *sizes = operands
    found = [_size(evaluator, size, instruction.shape, d) for d, size in enumerate(sizes)]
    if math.prod(found) != operand.size:
        raise Refused(f"sizes {found} for {operand.size} elements")
    return operand.reshape(found)


def converted_sizes(target: str, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Returns the result of a custom call that converts a dynamic array, or checks a size (CUSTOMCALL-7).

    A call that refuses a size has no result; that of a choice against it does not matter.
    """
    operand, *sizes = operands
    if target == REFUSE_SIZES:
        return operand
    if target == PAD_TO_STATIC:
        shape = instruction.shape.elements[0]
        return (_padded(operand, shape.dimensions, shape), *map(_number, operand.shape))
    found = [_size(evaluator, size, instruction.shape, d) for d, size in enumerate(sizes)]
    return operand[tuple(slice(n) for n in found)]
