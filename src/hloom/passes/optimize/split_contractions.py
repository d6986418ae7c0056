"""split-contractions: dots of long vectors to small matrices as sums of dots over parts of the vectors."""

from __future__ import annotations

import math
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add
from hloom.ops.reduce import Reduce
from hloom.passes.op_builder import OpBuilder, ScalarComputations, expand_each
from hloom.system.records import record
from hloom.types import PrimitiveType

F32, F64 = PrimitiveType.F32, PrimitiveType.F64
TERMS = range(192, 513)
"""Terms of a part: few enough that its operands stay in the cache, enough that its result is small beside them."""
MIN_SIDE = 8
"""Rows and columns of a result."""
MAX_RESULT = 128
"""Elements of a result for each element of the operands and each term."""


@record
class SplitContractions:
    """Before: dot(%x, %y) over k terms. After: reduce(dot(%x', %y')), whose batch dimension has the parts of k.

    A gradient of weights is such a product: k is the size of the batch, and no other side of it is long. Undivided, the
    threads would share the few rows of the result, and each would read an operand that no cache holds.
    """

    name: ClassVar[str] = "split-contractions"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot,)
    min_terms: int = 2048
    min_ratio: int = 8
    """Terms for each row and each column of the result."""

    def run(self, module: Module) -> int:
        """Expands the dots; returns their number."""
        combiners = ScalarComputations(module)

        def expand(op: Dot, build: OpBuilder, old: Instruction, _: Module) -> Instruction | None:
            terms = self._terms(op, old)
            if terms is None:
                return None
            left, right = op.lhs_contracting_dims[0], op.rhs_contracting_dims[0]
            parts = [_split(build, x, d, terms) for x, d in zip(old.operands, (left, right), strict=True)]
            of_parts = {"lhs_batch_dims": (left,), "rhs_batch_dims": (right,)}
            inside = {"lhs_contracting_dims": (left + 1,), "rhs_contracting_dims": (right + 1,)}
            sums = build(op.replace(**of_parts, **inside), *parts)
            zero = build.constant(0, old.shape.element_type)
            return build(Reduce(dimensions=(0,), computation=combiners(Add(), old.shape.element_type)), sums, zero)

        return expand_each(module, Dot, expand)

    def _terms(self, op: Dot, old: Instruction) -> int | None:
        """Returns the terms of a part; None for a dot that stays whole."""
        lhs, rhs = old.operand_shapes
        types = {lhs.element_type, rhs.element_type, old.shape.element_type}
        if op.lhs_batch_dims or len(op.lhs_contracting_dims) != 1 or types not in ({F32}, {F64}):
            return None
        k = lhs.dimensions[op.lhs_contracting_dims[0]]
        m, n = (math.prod(shape.dimensions) // k if k else 0 for shape in (lhs, rhs))
        is_small = min(m, n) >= MIN_SIDE and m * n <= MAX_RESULT * (m + n)
        if not is_small or k < self.min_terms or k < self.min_ratio * max(m, n):
            return None
        return next((terms for terms in reversed(TERMS) if k % terms == 0), None)


def _split(build: OpBuilder, operand: Instruction, dimension: int, size: int) -> Instruction:
    """Splits a dimension of the operand into parts of a size."""
    sizes = operand.shape.dimensions
    return build.reshape(operand, (*sizes[:dimension], sizes[dimension] // size, size, *sizes[dimension + 1 :]))
