"""joined-slices: concatenations of slices that element-wise users can read in place, such as rolled arrays.

    concatenate(slice(x), slice(y))  ->  select(i < n, pad(slice(x)), pad(slice(y)))

Here i is the index along the dimension and n the size of the first slice. A concatenation is stored, since it copies
one operand after the other; pads become masked loads of the kernels that read them. A step of a stencil that rolls an
array is then one kernel instead of five.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection, PaddingDimension
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.select import Select
from hloom.ops.slice import Slice
from hloom.passes.op_builder import S32, OpBuilder, expand_each
from hloom.shape import scalar

MAX_OPERANDS = 3
"""Slices of a concatenation up to which a load of each costs less than storing their elements."""


@dataclass(frozen=True)
class JoinedSlices:
    """Before: multiply(concatenate(slice(%x), slice(%x)), %y). After: multiply(select(i < n, pad(slice(%x)),
    pad(slice(%x))), %y).

    Needs at most `MAX_OPERANDS` slices without strides, all of whose users are element-wise.
    """

    name: ClassVar[str] = "joined-slices"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        """Replaces the concatenations; returns their number."""
        return expand_each(module, Concatenate, _expanded)


def _expanded(op: Concatenate, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    if len(old.operands) > MAX_OPERANDS or not all(map(_is_slice, old.operands)) or not _is_read_elementwise(old):
        return None
    index = build(Iota(iota_dimension=op.dimension), shape=old.shape.with_element_type(S32))
    first, result = 0, None
    for part in old.operands:
        low, first = first, first + part.shape.dimensions[op.dimension]
        padded = _padded(build, part, op.dimension, low, old.shape.dimensions[op.dimension] - first)
        if result is None:
            result = padded
        else:
            start = build.broadcast(build.constant(low, S32), old.shape)
            result = build(Select(), build(Compare(direction=ComparisonDirection.LT), index, start), result, padded)
    return result


def _padded(build: OpBuilder, part: Instruction, dimension: int, low: int, high: int) -> Instruction:
    """Pads a slice along a dimension with zeros."""
    sizes = [PaddingDimension()] * part.shape.rank
    sizes[dimension] = PaddingDimension(low, high)
    zero = build.zeros(scalar(part.shape.element_type))
    return build(Pad(padding_config=tuple(sizes)), part, zero)


def _is_slice(part: Instruction) -> bool:
    return isinstance(part.op, Slice) and all(d.stride == 1 for d in part.op.slice)


def _is_read_elementwise(joined: Instruction) -> bool:
    assert joined.parent is not None
    return (
        joined is not joined.parent.root
        and joined.shape.element_type.bits >= 8
        and all(user.op.elementwise and user.shape.dimensions == joined.shape.dimensions for user in joined.users)
    )
