"""Batch normalisation by its formulas, in the operand's type, or in f32 if that is narrower (BATCHNORMTRAINING-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ir import Instruction
from hloom.ops import elementwise_binary as binary
from hloom.ops.batch_norm import BatchNorm, BatchNormGrad, BatchNormInference, BatchNormTraining
from hloom.ops.elementwise_unary import Sqrt
from hloom.ops.operation import Operation
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.meanings.products import SUM
from hloom.prove.meanings.reductions import combination
from hloom.prove.terms.functions import apply, converted
from hloom.prove.terms.term import array_of, constant
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class _Arithmetic:
    """Arithmetic on arrays of terms of one type; vectors have an element for each feature, along its dimension."""

    op: BatchNorm
    type: PrimitiveType
    rank: int

    def __call__(self, op: Operation, *arrays: Symbol) -> Any:
        wide = np.broadcast_arrays(*arrays)
        terms = [apply(op, self.type, x) for x in zip(*(a.reshape(-1) for a in wide), strict=True)]
        return array_of(terms, wide[0].shape)

    def wide(self, array: Symbol) -> Any:
        """Converts an operand; vectors are laid along the feature dimension."""
        terms = array_of([converted(x, self.type) for x in array.reshape(-1)], array.shape)
        if array.ndim == self.rank and self.rank > 1:
            return terms
        return terms.reshape([-1 if d == self.op.feature_index else 1 for d in range(self.rank)])

    def sum(self, array: Symbol) -> Any:
        """Sums over all dimensions but that of the features."""
        rows = np.moveaxis(array, self.op.feature_index, 0)
        rows = rows.reshape(rows.shape[0], int(np.prod(rows.shape[1:])))
        zero = constant(self.type, 0)
        sums = [combination(SUM, [zero, combination(SUM, list(row))]) if len(row) else zero for row in rows]
        return array_of(sums, (-1,)).reshape([-1 if d == self.op.feature_index else 1 for d in range(self.rank)])

    def mean(self, array: Symbol) -> Any:
        count = array.size // max(1, array.shape[self.op.feature_index])
        return self(binary.Divide(), self.sum(array), self.constant(count))

    def root(self, variance: Symbol) -> Any:
        """Returns sqrt(variance + epsilon)."""
        return self(Sqrt(), self(binary.Add(), variance, self.constant(self.op.epsilon)))

    def constant(self, value: float) -> Any:
        return array_of([constant(self.type, value)], (1,) * self.rank)


def _arithmetic(op: BatchNorm, instruction: Instruction, operands: Sequence[Symbol]) -> tuple[_Arithmetic, list[Any]]:
    type = instruction.operand_shapes[0].element_type
    of = _Arithmetic(op, type if type.bits >= 32 else PrimitiveType.F32, operands[0].ndim)
    return of, [of.wide(operand) for operand in operands]


def _narrow(array: Symbol, instruction: Instruction, sizes: tuple[int, ...]) -> Any:
    type = instruction.operand_shapes[0].element_type
    return array_of([converted(x, type) for x in array.reshape(-1)], sizes)


@RULES.rule(BatchNormTraining)
def _training(
    op: BatchNormTraining, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    of, (x, scale, offset) = _arithmetic(op, instruction, operands)
    mean = of.mean(x)
    deviation = of(binary.Subtract(), x, mean)
    variance = of.mean(of(binary.Multiply(), deviation, deviation))
    normal = of(binary.Divide(), deviation, of.root(variance))
    output = of(binary.Add(), of(binary.Multiply(), scale, normal), offset)
    features = (operands[0].shape[op.feature_index],)
    return (
        _narrow(output, instruction, operands[0].shape),
        _narrow(mean, instruction, features),
        _narrow(variance, instruction, features),
    )


@RULES.rule(BatchNormInference)
def _inference(
    op: BatchNormInference, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    of, (x, scale, offset, mean, variance) = _arithmetic(op, instruction, operands)
    scaled = of(binary.Multiply(), scale, of(binary.Subtract(), x, mean))
    output = of(binary.Add(), of(binary.Divide(), scaled, of.root(variance)), offset)
    return _narrow(output, instruction, operands[0].shape)


@RULES.rule(BatchNormGrad)
def _gradient(op: BatchNormGrad, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    of, (x, scale, mean, variance, grad) = _arithmetic(op, instruction, operands)
    deviation, root = of(binary.Subtract(), x, mean), of.root(variance)
    product = of(binary.Multiply(), grad, deviation)
    epsilon = of.constant(op.epsilon)
    through_variance = of(binary.Divide(), of.mean(product), of(binary.Add(), variance, epsilon))
    centred = of(
        binary.Subtract(),
        of(binary.Subtract(), grad, of.mean(grad)),
        of(binary.Multiply(), through_variance, deviation),
    )
    of_operand = of(binary.Multiply(), of(binary.Divide(), scale, root), centred)
    of_scale = of(binary.Divide(), of.sum(product), root) if x.size else of.sum(product)  # an empty sum is 0
    features = (operands[0].shape[op.feature_index],)
    return (
        _narrow(of_operand, instruction, operands[0].shape),
        _narrow(of_scale, instruction, features),
        _narrow(of.sum(grad), instruction, features),
    )
