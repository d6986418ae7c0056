"""Sums of products: dot, ragged-dot, scaled-dot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.ir import Instruction
from hloom.ops.dot import Dot, DotDimensions, RaggedDot, ScaledDot, accumulator
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.meanings.reductions import combination
from hloom.prove.terms.functions import apply, both, converted, is_less, negation
from hloom.prove.terms.term import Combination, Term, Unsupported, array_of, constant
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

SUM, SUM_OF_PRODUCTS, TIMES = Combination(Add()), Combination(Add(), from_zero=True), Multiply()


def accumulating_type(instruction: Instruction) -> PrimitiveType:
    """Returns the type in which the products of an instruction are summed (DOT-3)."""
    types = [shape.element_type for shape in instruction.operand_shapes[:2]]
    return BY_DTYPE[accumulator(*types, instruction.shape.element_type)]


def sum_of_products(type: PrimitiveType, factors: Sequence[tuple[Term, Term]]) -> Term:
    """Returns the sum of products of pairs, to 0: the sign of a sum of zeros is open (GEN-13)."""
    zero = constant(type, 0)
    products = [apply(TIMES, type, pair) for pair in factors]
    return combination(SUM_OF_PRODUCTS, [zero, combination(SUM, products)]) if products else zero


@RULES.rule(Dot)
def _dot(op: Dot, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    return product(op, operands[0], operands[1], accumulating_type(instruction), instruction.shape.element_type)


def product(dot: DotDimensions, lhs: Array, rhs: Array, wide: PrimitiveType, type: PrimitiveType) -> Array:
    """Returns the dot of two arrays, computed in `wide`."""
    left, right = dot.lhs_free_dims(lhs.ndim), dot.rhs_free_dims(rhs.ndim)
    a = _matrix(lhs, dot.lhs_batch_dims, left, dot.lhs_contracting_dims)
    b = _matrix(rhs, dot.rhs_batch_dims, right, dot.rhs_contracting_dims)
    rows = [[[converted(x, wide) for x in row] for row in matrix] for matrix in a]
    columns = [[[converted(x, wide) for x in row] for row in matrix] for matrix in b]
    found = [
        converted(sum_of_products(wide, list(zip(x, y, strict=True))), type)
        for m, n in zip(rows, columns, strict=True)
        for x in m
        for y in n
    ]
    batch = [lhs.shape[d] for d in dot.lhs_batch_dims]
    return array_of(found, (*batch, *(lhs.shape[d] for d in left), *(rhs.shape[d] for d in right)))


def _matrix(array: Array, batch: Sequence[int], rows: Sequence[int], summed: Sequence[int]) -> Array:
    """Reshapes an array to a batch of matrices, summed over their last dimension."""
    sizes = [math.prod(array.shape[d] for d in dims) for dims in (batch, rows, summed)]
    return array.transpose([*batch, *rows, *summed]).reshape(sizes)


@RULES.rule(ScaledDot)
def _scaled_dot(op: ScaledDot, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """Multiplies blocks of the operands by their scales first; a scalar stands for no scale."""
    wide = PrimitiveType.F32
    sides = []
    for array, scale in zip(operands[:2], operands[2:], strict=True):
        if scale.ndim:
            for axis in range(scale.ndim):
                scale = np.repeat(scale, array.shape[axis] // scale.shape[axis], axis)
            pairs = zip(array.reshape(-1), scale.reshape(-1), strict=True)
            array = array_of(
                [apply(TIMES, wide, (converted(x, wide), converted(s, wide))) for x, s in pairs], array.shape
            )
        sides.append(array)
    return product(op, sides[0], sides[1], wide, instruction.shape.element_type)


@RULES.rule(RaggedDot)
def _ragged_dot(op: RaggedDot, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """Sums the dots of the groups, each with the rows of other groups multiplied by 0."""
    lhs, rhs, sizes = operands
    wide, type = accumulating_type(instruction), instruction.shape.element_type
    (ragged,) = op.lhs_ragged_dims
    if ragged in op.lhs_batch_dims:
        return product(op, lhs, rhs, wide, type)
    if sizes.ndim > 1:
        raise Unsupported("group sizes that differ within a batch")
    groups = []
    for group in range(sizes.shape[0]):
        inside = [_is_in_group(sizes, group, k, wide) for k in range(lhs.shape[ragged])]
        masks = np.broadcast_to(
            array_of(inside, (-1,)).reshape([-1 if d == ragged else 1 for d in range(lhs.ndim)]), lhs.shape
        )
        pairs = zip(lhs.reshape(-1), masks.reshape(-1), strict=True)
        masked = array_of([apply(TIMES, wide, (converted(x, wide), mask)) for x, mask in pairs], lhs.shape)
        chosen = np.take(rhs, [group], axis=op.rhs_group_dims[0]) if op.rhs_group_dims else rhs
        groups.append(product(op, masked, chosen, wide, wide).reshape(-1))
    if ragged in op.lhs_contracting_dims:
        return array_of([converted(x, type) for part in groups for x in part], instruction.shape.dimensions)
    sums = [converted(combination(SUM, [constant(wide, 0), *terms]), type) for terms in zip(*groups, strict=True)]
    return array_of(sums, instruction.shape.dimensions)


def _is_in_group(sizes: Array, group: int, position: int, type: PrimitiveType) -> Term:
    """Returns 1 if a position belongs to a group, else 0."""
    at = constant(PrimitiveType.S64, position)
    end = constant(PrimitiveType.S64, 0)
    ends = [end]
    for size in sizes:
        end = apply(Add(), PrimitiveType.S64, (end, converted(size, PrimitiveType.S64)))
        ends.append(end)
    return converted(both([negation(is_less(at, ends[group])), is_less(at, ends[group + 1])]), type)
