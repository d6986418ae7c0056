"""cholesky-calls: Cholesky factorisations with what is done before and after them, as JAX writes it, as one call.

    l, info = potrf((a + transpose(a)) / 2), r = select(row >= column, select(info = 0, l, NaN), 0)
->  r = cholesky(a)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import ClassVar

import numpy as np

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.compare import Compare
from hloom.ops.custom_call import CustomCall
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.ops.select import Select
from hloom.ops.structure import GetTupleElement
from hloom.ops.transpose import Transpose
from hloom.passes.edit import is_filled
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.runtime.custom_calls.signature import parse_attributes
from hloom.runtime.custom_calls.targets import is_lapack_call
from hloom.system.records import record

LOWER = {"uplo": ord("L")}
CanFactorise = Callable[[int, int], bool]
"""Whether the target has code of its own for matrices of an order, in batches of a size."""


@record
class CholeskyCalls:
    """Before: a Cholesky factorisation, whose factor is replaced by NaN where there is none, and whose other triangle
    is set to zero. After: a call of `lapack_scholesky` or `lapack_dcholesky`, which does both.

    The call also takes the mean of a matrix and its transpose. Factorisations of sizes that `can_factorise` refuses,
    and those of which more is read, are left alone.
    """

    name: ClassVar[str] = "cholesky-calls"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (CustomCall,)
    can_factorise: CanFactorise = field(compare=False)

    def run(self, module: Module) -> int:
        """Replaces the factorisations; returns their number."""
        return expand_each(module, Select, self._called)

    def _called(self, op: Select, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        found = _triangle_of(old) or _complete_or_nan(old)
        if found is None:
            return None
        call, is_whole = found
        *batch, order, _ = old.shape.dimensions
        if not self.can_factorise(order, math.prod(batch)):
            return None
        a, mean = call.operands[0], _symmetric(call.operands[0])
        flags = {"symmetric": mean is not None, "whole": is_whole}
        assert isinstance(call.op, CustomCall)
        target = call.op.target_name.replace("potrf_ffi", "cholesky")
        new = build(CustomCall(target_name=target), a if mean is None else mean, shape=old.shape.without_layout())
        new.backend_config = "{" + ", ".join(f"{key} = {str(value).lower()}" for key, value in flags.items()) + "}"
        return new


def _triangle_of(root: Instruction) -> tuple[Instruction, bool] | None:
    """Returns the factorisation of which an array is the triangle, NaN if there is no factor, and zeros."""
    condition, kept, other = root.operands
    if not _is_lower(condition) or not is_filled(other, 0) or not _is_only_read_by(kept, root):
        return None
    call = _factor_or_nan(kept)
    return None if call is None else (call, False)


def _complete_or_nan(root: Instruction) -> tuple[Instruction, bool] | None:
    """Returns the factorisation of which an array is the triangle and zeros, or all NaN if there is no factor."""
    condition, triangle, other = root.operands
    if not isinstance(triangle.op, Select) or not is_filled(other, np.nan) or not _is_only_read_by(triangle, root):
        return None
    inside, factor, zeros = triangle.operands
    if not _is_lower(inside) or not is_filled(zeros, 0):
        return None
    call = _succeeded(condition, factor, triangle)
    return None if call is None else (call, True)


def _factor_or_nan(kept: Instruction) -> Instruction | None:
    if not isinstance(kept.op, Select) or not is_filled(kept.operands[2], np.nan):
        return None
    return _succeeded(kept.operands[0], kept.operands[1], kept)


def _succeeded(condition: Instruction, factor: Instruction, reader: Instruction) -> Instruction | None:
    """Returns the factorisation of a factor and a condition, its success; None if anything else reads them."""
    while isinstance(condition.op, Broadcast) and len(condition.users) == 1:
        (condition,) = condition.operands
    is_equal = isinstance(condition.op, Compare) and condition.op.direction is ComparisonDirection.EQ
    if not is_equal or not is_filled(condition.operands[1], 0) or not _is_only_read_by(factor, reader):
        return None
    call, other = _result(factor, 0), _result(condition.operands[0], 1)
    is_alone = call is other and len(condition.users) == len(condition.operands[0].users) == 1
    return call if is_alone else None


def _result(instruction: Instruction, position: int) -> Instruction | None:
    """Returns the factorisation of lower triangles that an instruction is a result of."""
    op = instruction.op
    if not isinstance(op, GetTupleElement) or op.index != position:
        return None
    (call,) = instruction.operands
    return call if is_lapack_call(call, "potrf", "sd") and parse_attributes(call.backend_config) == LOWER else None


def _is_only_read_by(instruction: Instruction, reader: Instruction) -> bool:
    return [*instruction.users] == [reader]


def _is_lower(condition: Instruction) -> bool:
    """Whether a condition holds for the elements of the lower triangles, whose rows are not less than their columns."""
    op, rank = condition.op, condition.shape.rank
    if isinstance(op, Broadcast):
        return op.broadcast_dimensions == (rank - 2, rank - 1) and _is_lower(condition.operands[0])
    if not isinstance(op, Compare) or op.direction is not ComparisonDirection.GE:
        return False
    ops = [operand.op for operand in condition.operands]
    return [o.iota_dimension for o in ops if isinstance(o, Iota)] == [rank - 2, rank - 1]


def _symmetric(mean: Instruction) -> Instruction | None:
    """Returns the matrices whose means with their transposes an array has."""
    if not isinstance(mean.op, Multiply) or not is_filled(mean.operands[1], 0.5):
        return None
    total, rank = mean.operands[0], mean.shape.rank
    if not isinstance(total.op, Add):
        return None
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    for a, transposed in (total.operands, total.operands[::-1]):
        if (
            isinstance(transposed.op, Transpose)
            and transposed.op.permutation == swapped
            and transposed.operands[0] is a
        ):
            return a
    return None
