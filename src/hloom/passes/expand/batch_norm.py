"""batchnorm_expander: batch normalisation as element-wise operations and sums (spec 5, 6, 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.batch_norm import BatchNorm
from hloom.ops.elementwise_binary import Add, Divide, Multiply, Subtract
from hloom.ops.elementwise_unary import Sqrt
from hloom.ops.reduce import Reduce
from hloom.passes.expand.maker import Expander, Maker, ScalarComputations, expand_all
from hloom.shape import Shape
from hloom.types import PrimitiveType


@dataclass(frozen=True)
class BatchNormExpander:
    """Before: batch-norm-training, -inference or -grad. After: the formulas of the specification, on arrays.

    Computes in the operand's type, or in f32 where that is narrower, and rounds the results once; the variance is that
    of the deviations from the mean. The interpreter sums in f64, so results are equal but for rounding.
    """

    name: ClassVar[str] = "batchnorm_expander"

    def run(self, module: Module) -> int:
        combiners = ScalarComputations(module)

        def expander(expand: type[_Expansion]) -> Expander:
            return lambda make, old, _: expand(make, old, combiners).result()

        return expand_all(
            module,
            {
                "batch-norm-training": expander(_Training),
                "batch-norm-inference": expander(_Inference),
                "batch-norm-grad": expander(_Grad),
            },
        )


class _Expansion:
    """One instruction being expanded: its operands in the computing type, and the arithmetic to do it with."""

    def __init__(self, make: Maker, old: Instruction, combiners: ScalarComputations) -> None:
        op = old.op
        assert isinstance(op, BatchNorm)
        self.make = make
        self.element_type = old.operands[0].shape.element_type
        self.computing = self.element_type if self.element_type.bits >= 32 else PrimitiveType.F32
        self.feature = op.feature_index
        self.operands = [make.convert(operand, self.computing) for operand in old.operands]
        self.shape = self.operands[0].shape
        features = self.shape.dimensions[self.feature]
        self.vector = Shape.array(self.computing, [features])
        self.count = self.number(self.shape.element_count // max(1, features))
        self.epsilon = self.number(op.epsilon)
        self.add = combiners(Add(), self.computing)

    def result(self) -> Instruction:
        raise NotImplementedError

    def number(self, value: float) -> Instruction:
        """A vector of equal numbers, one a feature."""
        return self.make.broadcast(self.make.constant(value, self.computing), self.vector)

    def along(self, vector: Instruction) -> Instruction:
        """A vector of features, spread over the operand."""
        return self.make.broadcast(vector, self.shape, (self.feature,))

    def sum(self, array: Instruction) -> Instruction:
        """The sum over all but the feature dimension."""
        others = tuple(d for d in range(self.shape.rank) if d != self.feature)
        return self.make(Reduce(dimensions=others, computation=self.add), array, self.make.constant(0, self.computing))

    def mean(self, array: Instruction) -> Instruction:
        return self.make(Divide(), self.sum(array), self.count)

    def root(self, variance: Instruction) -> Instruction:
        """sqrt(variance + epsilon)."""
        return self.make(Sqrt(), self.make(Add(), variance, self.epsilon))

    def rounded(self, value: Instruction) -> Instruction:
        return self.make.convert(value, self.element_type)


class _Training(_Expansion):
    def result(self) -> Instruction:
        make, (x, scale, offset) = self.make, self.operands
        mean = self.mean(x)
        deviation = make(Subtract(), x, self.along(mean))
        variance = self.mean(make(Multiply(), deviation, deviation))
        normal = make(Divide(), deviation, self.along(self.root(variance)))
        output = make(Add(), make(Multiply(), self.along(scale), normal), self.along(offset))
        return make.tuple(*map(self.rounded, (output, mean, variance)))


class _Inference(_Expansion):
    def result(self) -> Instruction:
        make, (x, scale, offset, mean, variance) = self.make, self.operands
        deviation = make(Subtract(), x, self.along(mean))
        scaled = make(Multiply(), self.along(scale), deviation)
        normal = make(Divide(), scaled, self.along(self.root(variance)))
        return self.rounded(make(Add(), normal, self.along(offset)))


class _Grad(_Expansion):
    def result(self) -> Instruction:
        make, (x, scale, mean, variance, grad) = self.make, self.operands
        deviation, root = make(Subtract(), x, self.along(mean)), self.root(variance)
        product = make(Multiply(), grad, deviation)
        # What the mean and the variance, which depend on x too, contribute.
        through_variance = make(Divide(), self.mean(product), make(Add(), variance, self.epsilon))
        through_mean = self.mean(grad)
        centred = make(Subtract(), make(Subtract(), grad, self.along(through_mean)),
                       make(Multiply(), self.along(through_variance), deviation))  # fmt: skip
        grad_operand = make(Multiply(), self.along(make(Divide(), scale, root)), centred)
        grad_scale = make(Divide(), self.sum(product), root)
        return make.tuple(*map(self.rounded, (grad_operand, grad_scale, self.sum(grad))))
