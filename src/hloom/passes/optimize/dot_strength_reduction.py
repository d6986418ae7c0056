"""dot-strength-reduction: dots over small contracted dimensions as sums of element-wise products."""

from __future__ import annotations

import math
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.ops.reduce import Reduce
from hloom.passes.op_builder import OpBuilder, ScalarComputations, expand_each
from hloom.shape import Shape
from hloom.system.records import record

MIN_BATCHES = 8
"""Adjacent batches that make vectorisation over them worthwhile."""
MAX_COMPUTED_TERMS = 64
"""Terms of a product of a vector and a matrix that is computed for it."""


@record
class DotStrengthReduction:
    """Before: dot(%x, %y) over at most `max_terms` terms. After: reduce(multiply(broadcast(%x), broadcast(%y))).

    In a product of few terms, packing and tiling cost more than the multiply-adds, while a reduction can be fused with
    its consumers. Matrix-vector products of any number of terms are expanded too, if the elements of different batches
    are adjacent: they are vectorised over the batches. So are those of at most `MAX_COMPUTED_TERMS` whose matrix is
    computed for them alone, element by element: fused, it need not be stored. Other dots to more than one element whose
    rows of %y are not contiguous, or whose sums are wider than the elements, are left alone.
    """

    name: ClassVar[str] = "dot-strength-reduction"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot,)
    max_terms: int = 12

    def run(self, module: Module) -> int:
        """Expands the dots; returns their number."""
        combiners = ScalarComputations(module)

        def expand(op: Dot, build: OpBuilder, old: Instruction, _: Module) -> Instruction | None:
            if not self._applies(op, old):
                return None
            return _sum_of_products(op, build, old, combiners(Add(), old.shape.element_type))

        return expand_each(module, Dot, expand)

    def _applies(self, op: Dot, old: Instruction) -> bool:
        lhs, rhs = old.operand_shapes
        types = {shape.element_type for shape in (lhs, rhs, old.shape)}
        terms = math.prod(lhs.dimensions[d] for d in op.lhs_contracting_dims)
        if len(types) > 1 or old.shape.element_type.bits < 32 or not terms or not old.shape.element_count:
            return False
        if _has_adjacent_batches(op, lhs, rhs) or (terms <= MAX_COMPUTED_TERMS and _computes_matrix(op, old)):
            return True
        return terms <= self.max_terms and (rhs.rank - 1 in op.rhs_free_dims(rhs.rank) or old.shape.element_count == 1)


def _has_adjacent_batches(op: Dot, lhs: Shape, rhs: Shape) -> bool:
    """Whether the batches are products of vectors and matrices, whose elements of different batches are adjacent."""
    left = lhs, op.lhs_batch_dims, op.lhs_free_dims(lhs.rank)
    right = rhs, op.rhs_batch_dims, op.rhs_free_dims(rhs.rank)
    for (vector, _, free), (matrix, batch, _) in ((left, right), (right, left)):
        is_vector = all(vector.dimensions[d] == 1 for d in free)
        if is_vector and matrix.rank - 1 in batch and matrix.dimensions[-1] >= MIN_BATCHES:
            return True
    return False


def _computes_matrix(op: Dot, old: Instruction) -> bool:
    """Whether a dot is of a vector and a matrix that is computed element by element, and has no other user."""
    lhs, rhs = old.operands
    left, right = op.lhs_free_dims(lhs.shape.rank), op.rhs_free_dims(rhs.shape.rank)
    for vector, matrix, free in ((lhs, rhs, left), (rhs, lhs, right)):
        is_vector = all(vector.shape.dimensions[d] == 1 for d in free)
        if is_vector and matrix.op.elementwise and len(matrix.users) == 1:
            return True
    return False


def _sum_of_products(op: Dot, build: OpBuilder, old: Instruction, add: Computation) -> Instruction:
    """Broadcasts the operands to the dimensions of the result and the terms, multiplies, and sums over the terms."""
    lhs, rhs = old.operands
    rank, terms = old.shape.rank, [lhs.shape.dimensions[d] for d in op.lhs_contracting_dims]
    element_type = old.shape.element_type
    whole = Shape.array(element_type, [*old.shape.dimensions, *terms])
    left, right = op.lhs_free_dims(lhs.shape.rank), op.rhs_free_dims(rhs.shape.rank)
    batch = len(op.lhs_batch_dims)
    products = []
    for operand, free, first, batches, contracted in (
        (lhs, left, batch, op.lhs_batch_dims, op.lhs_contracting_dims),
        (rhs, right, batch + len(left), op.rhs_batch_dims, op.rhs_contracting_dims),
    ):
        target_dimensions = {d: k for k, d in enumerate(batches)}
        target_dimensions |= {d: first + k for k, d in enumerate(free)} | {
            d: rank + k for k, d in enumerate(contracted)
        }
        products.append(_spread(build, operand, whole, [target_dimensions[d] for d in range(operand.shape.rank)]))
    zero = build.constant(0, element_type)
    over = tuple(range(rank, whole.rank))
    return build(Reduce(dimensions=over, computation=add), build(Multiply(), *products), zero)


def _spread(build: OpBuilder, operand: Instruction, whole: Shape, target_dimensions: list[int]) -> Instruction:
    """Broadcasts the operand so that its dimension d becomes target_dimensions[d], which may be in any order."""
    order = sorted(range(len(target_dimensions)), key=target_dimensions.__getitem__)
    return build.broadcast(build.transpose(operand, tuple(order)), whole, tuple(sorted(target_dimensions)))
