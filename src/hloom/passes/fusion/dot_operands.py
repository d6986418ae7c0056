"""dot-operands: transposes operands of dots so that batch, free and contracting dimensions have one stride each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.dot import Dot
from hloom.ops.transpose import Transpose
from hloom.passes.edit import Edit, is_dynamic
from hloom.shape import Shape
from hloom.system.records import record


@record
class DotOperands:
    """dot(a, b) -> dot(transpose(a), transpose(b)), if the dimensions of a role are not adjacent and in order.

    The roles are batch, free and contracting. Afterwards the dimensions of each role of each operand can be addressed
    as one dimension with one stride. Dots of dynamic shapes are left alone.
    """

    name: ClassVar[str] = "dot-operands"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot,)

    def run(self, module: Module) -> int:
        """Transposes the operands; returns the number of dots changed."""
        return sum(_run(computation) for computation in module.computations)


def _run(computation: Computation) -> int:
    edit = Edit(computation)
    changes = sum(_arrange(edit, i, i.op) for i in computation.instructions if isinstance(i.op, Dot))
    if changes:
        edit.finish()
    return changes


def _arrange(edit: Edit, dot: Instruction, op: Dot) -> int:
    if is_dynamic(dot):
        return 0
    lhs, rhs = dot.operands
    left = (op.lhs_batch_dims, op.lhs_free_dims(lhs.shape.rank), op.lhs_contracting_dims)
    right = (op.rhs_batch_dims, op.rhs_contracting_dims, op.rhs_free_dims(rhs.shape.rank))
    new: list[Instruction] = []
    attributes = {}
    for side, operand, roles in (("lhs", lhs, left), ("rhs", rhs, right)):
        if all(stride_of(operand.shape, role) is not None for role in roles):
            new.append(operand)
            continue
        order = tuple(d for role in roles for d in role)
        shape = Shape.array(operand.shape.element_type, (operand.shape.dimensions[d] for d in order))
        new.append(edit.add(Transpose(permutation=order), [operand], shape, dot))
        new_index = {d: k for k, d in enumerate(order)}
        attributes[f"{side}_batch_dims"] = tuple(new_index[d] for d in roles[0])
        contracting = roles[2] if side == "lhs" else roles[1]
        attributes[f"{side}_contracting_dims"] = tuple(new_index[d] for d in contracting)
    if not attributes:
        return 0
    edit.replace(dot, edit.add(op.replace(**attributes), new, dot.shape, dot))
    return 1


def stride_of(shape: Shape, dimensions: Sequence[int]) -> tuple[int, int] | None:
    """Returns (size, stride), in elements, of dimensions of a row-major array seen as one dimension.

    None if they are not one dimension: if the stride of one is not the stride times the size of the next.
    """
    strides = [1] * shape.rank
    for d in range(shape.rank - 2, -1, -1):
        strides[d] = strides[d + 1] * shape.dimensions[d + 1]
    size, stride = 1, 0
    for d in reversed(dimensions):
        own = shape.dimensions[d]
        if own == 1:
            continue
        if size == 1:
            stride = strides[d]
        elif strides[d] != stride * size:
            return None
        size *= own
    return size, stride
