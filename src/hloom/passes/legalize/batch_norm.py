"""batchnorm_expander: batch normalisation as element-wise operations and reductions (spec 5, 6, 7)."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.batch_norm import BatchNorm, BatchNormGrad, BatchNormInference, BatchNormTraining
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Subtract
from hloom.ops.elementwise_unary import Sqrt
from hloom.ops.reduce import Reduce
from hloom.ops.registry import Registry
from hloom.passes.op_builder import OpBuilder, ScalarComputations, expand_each
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class BatchNormExpander:
    """Before: batch-norm-training, -inference or -grad. After: the formulas of the specification, on arrays.

    Computes in the operand's type, or in f32 if that is narrower, with one final rounding. The variance is the mean of
    squared deviations. The interpreter sums in f64, so results differ by rounding errors.
    """

    name: ClassVar[str] = "batchnorm_expander"
    operations: ClassVar[tuple[type, ...]] = (BatchNorm,)

    def run(self, module: Module) -> int:
        """Expands the instructions; returns their number."""
        combiners = ScalarComputations(module)

        def expanded(op: BatchNorm, build: OpBuilder, old: Instruction, _: Module) -> Instruction:
            return _EXPANSIONS[op](op, build, old, combiners).result()

        return expand_each(module, BatchNorm, expanded)


class _Expansion:
    """The expansion of one instruction: its operands in the type that it computes in, and helpers for arithmetic.

    Vectors have one element per feature; arrays have the dimensions of the first operand.
    """

    def __init__(self, op: BatchNorm, build: OpBuilder, old: Instruction, combiners: ScalarComputations) -> None:
        self.build = build
        self.element_type = old.operands[0].shape.element_type
        self.computing = self.element_type if self.element_type.bits >= 32 else PrimitiveType.F32
        self.feature = op.feature_index
        self.operands = [build.convert(operand, self.computing) for operand in old.operands]
        self.shape = self.operands[0].shape
        features = self.shape.dimensions[self.feature]
        self.vector = Shape.array(self.computing, [features])
        self.count = self.splat(self.shape.element_count // max(1, features))
        self.epsilon = self.splat(op.epsilon)
        self.add = combiners(Add(), self.computing)

    def result(self) -> Instruction:
        """Builds the replacement of the instruction."""
        raise NotImplementedError

    def splat(self, value: float) -> Instruction:
        """Returns a vector of equal elements."""
        return self.build.broadcast(self.build.constant(value, self.computing), self.vector)

    def along(self, vector: Instruction) -> Instruction:
        """Broadcasts a vector along the feature dimension to an array."""
        return self.build.broadcast(vector, self.shape, (self.feature,))

    def sum(self, array: Instruction) -> Instruction:
        """Sums an array over all dimensions but the feature dimension."""
        others = tuple(d for d in range(self.shape.rank) if d != self.feature)
        return self.build(
            Reduce(dimensions=others, computation=self.add), array, self.build.constant(0, self.computing)
        )

    def mean(self, array: Instruction) -> Instruction:
        return self.build(Divide(), self.sum(array), self.count)

    def root(self, variance: Instruction) -> Instruction:
        """Returns sqrt(variance + epsilon)."""
        return self.build(Sqrt(), self.build(Add(), variance, self.epsilon))

    def rounded(self, value: Instruction) -> Instruction:
        return self.build.convert(value, self.element_type)


_EXPANSIONS = Registry[[OpBuilder, Instruction, ScalarComputations], _Expansion]()


@_EXPANSIONS.rule(BatchNormTraining)
class _Training(_Expansion):
    def result(self) -> Instruction:
        build, (x, scale, offset) = self.build, self.operands
        mean = self.mean(x)
        deviation = build(Subtract(), x, self.along(mean))
        variance = self.mean(build(Multiply(), deviation, deviation))
        normal = build(Divide(), deviation, self.along(self.root(variance)))
        output = build(Add(), build(Multiply(), self.along(scale), normal), self.along(offset))
        return build.tuple(*map(self.rounded, (output, mean, variance)))


@_EXPANSIONS.rule(BatchNormInference)
class _Inference(_Expansion):
    def result(self) -> Instruction:
        build, (x, scale, offset, mean, variance) = self.build, self.operands
        deviation = build(Subtract(), x, self.along(mean))
        scaled = build(Multiply(), self.along(scale), deviation)
        normal = build(Divide(), scaled, self.along(self.root(variance)))
        return self.rounded(build(Add(), normal, self.along(offset)))


@_EXPANSIONS.rule(BatchNormGrad)
class _Grad(_Expansion):
    def result(self) -> Instruction:
        build, (x, scale, mean, variance, grad) = self.build, self.operands
        deviation, root = build(Subtract(), x, self.along(mean)), self.root(variance)
        product = build(Multiply(), grad, deviation)
        # The contributions of the mean and the variance, which depend on x too.
        through_variance = build(Divide(), self.mean(product), build(Add(), variance, self.epsilon))
        through_mean = self.mean(grad)
        centred = build(Subtract(), build(Subtract(), grad, self.along(through_mean)),
                       build(Multiply(), self.along(through_variance), deviation))  # fmt: skip
        grad_operand = build(Multiply(), self.along(build(Divide(), scale, root)), centred)
        grad_scale = self.sum(product)
        if self.shape.element_count:  # an empty sum of quotients is 0, even if the root is NaN
            grad_scale = build(Divide(), grad_scale, root)
        return build.tuple(*map(self.rounded, (grad_operand, grad_scale, self.sum(grad))))
