"""Operations of which only their inputs are known: Fourier transforms, factorisations, custom calls.

Each element of a result is an unknown function of all elements that it depends on: equal inputs give equal results.
Dimensions of a batch are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ir import Instruction
from hloom.ops.custom_call import CustomCall
from hloom.ops.fft import Fft
from hloom.ops.linear_algebra import Cholesky, TriangularSolve
from hloom.ops.operation import Operation
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol, arrays_of
from hloom.prove.meanings.sizes import CONVERSIONS, converted_sizes
from hloom.prove.terms.term import Term, Unknown, Unsupported, array_of, constant, node
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import TOKEN_VALUE, Array


def unknown_elements(name: str, type: PrimitiveType, count: int, arguments: Sequence[Term]) -> list[Term]:
    """Returns elements that are unknown functions of the same arguments."""
    return [node(type, Unknown(f"{name}[{k}]"), arguments) for k in range(count)]


def _batched(op: Operation, rank: int, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """Applies an unknown function to the last `rank` dimensions of the operands, for each index of the others."""
    shape, type = instruction.shape, instruction.shape.element_type
    batch, inner = operands[0].shape[: shape.rank - rank], shape.dimensions[shape.rank - rank :]
    inputs = [operand.shape[operand.ndim - rank :] for operand in operands]
    name = f"{op!r} {inputs} {type}{inner}"
    found = []
    for index in np.ndindex(*batch):
        arguments = [x for operand in operands for x in operand[index].reshape(-1)]
        found += unknown_elements(name, type, math.prod(inner), arguments)
    return array_of(found, (*batch, *inner))


@RULES.rule(Fft)
def _fft(op: Fft, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """The transform of no elements is zeros (FFT-6)."""
    shape = instruction.shape
    if not operands[0].size or not shape.element_count or 0 in op.fft_length:
        return array_of([constant(shape.element_type, 0)] * shape.element_count, shape.dimensions)
    return _batched(op, len(op.fft_length), instruction, operands)


@RULES.rule(Cholesky)
def _cholesky(op: Cholesky, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """Only one triangle is read; the other one of the result is zero (CHOLESKY-3)."""
    zero: Any = constant(instruction.shape.element_type, 0)
    is_read = _triangle(operands[0].shape[-1], op.lower)
    result = _batched(op, 2, instruction, [np.where(is_read, operands[0], zero)])
    return np.where(is_read, result, zero)


def _triangle(size: int, lower: bool) -> Array:
    return np.tri(size, dtype=bool) if lower else np.tri(size, dtype=bool).T


@RULES.rule(TriangularSolve)
def _triangular_solve(
    op: TriangularSolve, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Array:
    """Only one triangle is read, without a unit diagonal; each right-hand side is solved by itself."""
    matrix, right = operands
    type = instruction.shape.element_type
    one: Any = constant(type, 1)
    zero: Any = constant(type, 0)
    size = matrix.shape[-1]
    matrix = np.where(_triangle(size, op.lower), matrix, zero)
    if op.unit_diagonal:
        matrix = np.where(np.eye(size, dtype=bool), one, matrix)
    columns = right if op.left_side else np.swapaxes(right, -1, -2)
    found = np.empty(columns.shape, object)
    for index in np.ndindex(*columns.shape[:-2]):
        for k in range(columns.shape[-1]):
            arguments = [*matrix[index].reshape(-1), *columns[(*index, slice(None), k)]]
            found[(*index, slice(None), k)] = unknown_elements(repr(op), type, size, arguments)
    return found if op.left_side else np.swapaxes(found, -1, -2)


@RULES.rule(CustomCall)
def _custom_call(op: CustomCall, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """A call with side effects is an effect, and another function each time."""
    if op.target_name in CONVERSIONS:
        return converted_sizes(op.target_name, evaluator, instruction, operands)
    if op.called_computations:
        raise Unsupported(f"the custom call {op.target_name}")
    name = f"{op!r} {instruction.backend_config!r} {[str(s.without_layout()) for s in instruction.operand_shapes]}"
    if op.has_side_effect:
        evaluator.effects.append((name, tuple(operands)))
        name = f"{name} {evaluator.next_source('custom-call')}"
    arguments = [x for array in arrays_of(tuple(operands)) for x in array.reshape(-1)]
    return _unknown_value(name, instruction.shape, arguments)


def _unknown_value(name: str, shape: Shape, arguments: Sequence[Term]) -> Symbol:
    if shape.is_tuple:
        return tuple(_unknown_value(f"{name}.{k}", element, arguments) for k, element in enumerate(shape.elements))
    if not shape.is_array:
        return TOKEN_VALUE
    if not shape.is_static:
        raise Unsupported("a custom call with dynamic sizes")
    return array_of(unknown_elements(name, shape.element_type, shape.element_count, arguments), shape.dimensions)
