"""Batch normalisation (spec 5, 6, 7). Sums are over all dimensions except the feature dimension."""

from __future__ import annotations

import numpy as np

from hloom.numerics import convert, widen
from hloom.ops.context import Context
from hloom.ops.kinds import FLOAT, INT
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimension, check_same_type
from hloom.shape import Shape
from hloom.values import Array


class BatchNorm(Operation):
    """Base class of the batch normalisations: feature dimension and epsilon (BATCHNORMGRAD-4)."""

    epsilon: float = attribute(FLOAT, doc="small number that is added to the variance")
    feature_index: int = attribute(INT, doc="the feature dimension")

    def check_vectors(self, operand: Shape, *vectors: Shape) -> Shape:
        """Checks vectors with an element for each feature, and returns their shape."""
        check_array(self, "BATCHNORMGRAD-4", operand, *vectors)
        check_same_type(self, "BATCHNORMGRAD-4", operand, *vectors)
        if not operand.element_type.is_float:
            self.reject("BATCHNORMGRAD-4", f"takes floating-point arrays, got {operand}")
        check_dimension(self, "BATCHNORMGRAD-4", self.feature_index, operand.rank, "feature_index")
        vector = Shape.array(operand.element_type, [operand.dimensions[self.feature_index]])
        for got in vectors:
            if got.dimensions != vector.dimensions:
                self.reject("BATCHNORMGRAD-4", f"scale, offset, mean and variance are {vector}, got {got}")
        return vector

    def sum(self, array: Array) -> Array:
        """Returns the f64 sums over all dimensions but the feature dimension."""
        axes = tuple(d for d in range(array.ndim) if d != self.feature_index)
        return np.asarray(array.sum(axis=axes, dtype=np.float64))

    def along(self, vector: Array, rank: int) -> Array:
        """Reshapes a vector of features to broadcast along the feature dimension."""
        return vector.reshape([-1 if d == self.feature_index else 1 for d in range(rank)])

    def count(self, array: Array) -> int:
        """Returns the number of elements of each feature."""
        return array.size // max(1, array.shape[self.feature_index])


class BatchNormTraining(BatchNorm, opcode="batch-norm-training", builder="batch_norm_training"):
    """Normalises each feature by its mean and biased variance, then scales and shifts it (BATCHNORMTRAINING-1, -4).

    Vectors have the feature dimension's size. The result is (output, batch_mean, batch_var).
    """

    see_also = ("batch-norm-inference", "batch-norm-grad")
    operands = {
        "operand": "floats, of any rank above 0",
        "scale": "factor of each feature: a vector",
        "offset": "what is added to each feature: a vector",
    }

    def infer(self, operand: Shape, scale: Shape, offset: Shape) -> Shape:
        vector = self.check_vectors(operand, scale, offset)
        return Shape.tuple_of([operand.without_layout(), vector, vector])

    def evaluate(self, ctx: Context, operand: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
        x = widen(operand).astype(np.float64)
        rank, n = operand.ndim, self.count(operand)
        mean = self.sum(x) / n
        deviation = x - self.along(mean, rank)
        variance = self.sum(deviation * deviation) / n
        normal = deviation / np.sqrt(self.along(variance, rank) + self.epsilon)
        output = self.along(widen(scale), rank) * normal + self.along(widen(offset), rank)
        return convert(output, operand.dtype), convert(mean, operand.dtype), convert(variance, operand.dtype)


class BatchNormInference(BatchNorm, opcode="batch-norm-inference", builder="batch_norm_inference"):
    """Computes scale * (operand - mean) / sqrt(variance + epsilon) + offset for given moments (BATCHNORMINFERENCE-1).

    Vectors have the feature dimension's size; the result has the operand's shape.
    """

    see_also = ("batch-norm-grad",)
    operands = {
        "operand": "floats, of any rank above 0",
        "scale": "factor of each feature: a vector",
        "offset": "what is added to each feature: a vector",
        "mean": "mean of each feature: a vector",
        "variance": "variance of each feature: a vector",
    }

    def infer(self, operand: Shape, scale: Shape, offset: Shape, mean: Shape, variance: Shape) -> Shape:
        self.check_vectors(operand, scale, offset, mean, variance)
        return operand.without_layout()

    def evaluate(
        self, ctx: Context, operand: Array, scale: Array, offset: Array, mean: Array, variance: Array
    ) -> Array:
        gamma, beta, mu, v = (
            self.along(widen(vector).astype(np.float64), operand.ndim) for vector in (scale, offset, mean, variance)
        )
        return convert(gamma * (widen(operand) - mu) / np.sqrt(v + self.epsilon) + beta, operand.dtype)


class BatchNormGrad(BatchNorm, opcode="batch-norm-grad", builder="batch_norm_grad"):
    """Computes the gradients of batch-norm-training (BATCHNORMGRAD-1).

    Vectors have the feature dimension's size. The result is (grad_operand, grad_scale, grad_offset).
    """

    operands = {
        "operand": "the operand of batch-norm-training",
        "scale": "factor of each feature: a vector",
        "mean": "mean of each feature, as batch-norm-training returned it",
        "variance": "variance of each feature, as batch-norm-training returned it",
        "grad_output": "gradient of the normalised array, of the operand's shape",
    }

    def infer(self, operand: Shape, scale: Shape, mean: Shape, variance: Shape, grad_output: Shape) -> Shape:
        vector = self.check_vectors(operand, scale, mean, variance)
        if not grad_output.compatible(operand):
            self.reject("BATCHNORMGRAD-4", f"grad_output has the shape of {operand}, got {grad_output}")
        return Shape.tuple_of([operand.without_layout(), vector, vector])

    def evaluate(
        self, ctx: Context, operand: Array, scale: Array, mean: Array, variance: Array, grad_output: Array
    ) -> tuple[Array, ...]:
        rank, n = operand.ndim, self.count(operand)
        x, g = widen(operand).astype(np.float64), widen(grad_output).astype(np.float64)
        gamma, mu, v = (self.along(widen(vector).astype(np.float64), rank) for vector in (scale, mean, variance))
        deviation, root = x - mu, np.sqrt(v + self.epsilon)
        c = self.along(self.sum(g * deviation / (v + self.epsilon)) / n, rank)
        d = self.along(self.sum(g) / n, rank)
        grad_operand = gamma / root * (g - d - c * deviation)
        grad_scale = self.sum(g * deviation / root)
        return tuple(convert(np.asarray(a), operand.dtype) for a in (grad_operand, grad_scale, self.sum(g)))
