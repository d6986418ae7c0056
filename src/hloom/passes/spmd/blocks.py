"""Adapts operations to blocks: attributes that hold sizes or offsets, iotas, and constants that must count once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from hloom.ir import Instruction
from hloom.ops.attributes import SliceDimension
from hloom.ops.broadcast import Iota
from hloom.ops.convert import Convert
from hloom.ops.custom_call import CustomCall
from hloom.ops.elementwise_binary import Add
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, Slice
from hloom.ops.structure import Constant
from hloom.passes.spmd.mesh import Spec
from hloom.passes.spmd.resharding import Resharding
from hloom.shape import Shape
from hloom.types import PrimitiveType


def on_blocks(op: Operation, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    """The operation for operands and a result of these shapes, which are blocks of those of the instruction `whole`."""
    change = _CHANGES.get(type(op))
    return op if change is None else change(op, whole, operands, result)


def _slice(op: Any, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    before = whole.operands[0].shape.dimensions
    parts = [
        part if old == new else SliceDimension(0, new)
        for part, old, new in zip(op.slice, before, operands[0].dimensions, strict=True)
    ]
    return Slice(slice=tuple(parts))


def _dynamic_slice(op: Any, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    return DynamicSlice(size_indices=result.dimensions)


def _gather(op: Any, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    before = whole.operands[0].shape.dimensions
    sizes = [
        min(size, new) if size == old else size
        for size, old, new in zip(op.slice_sizes, before, operands[0].dimensions, strict=True)
    ]
    return op.replace(slice_sizes=tuple(sizes))


def _reshape(op: Any, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    return Reshape()


def _custom_call(op: Any, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    if op.operand_layout_constraints is None:
        return cast(Operation, op)
    pairs = zip(operands, op.operand_layout_constraints, strict=True)
    layouts = [new.with_layout(old.layout) if old.is_array else old for new, old in pairs]
    return cast(Operation, op.replace(operand_layout_constraints=tuple(layouts)))


_CHANGES: dict[type[Operation], Callable[[Any, Instruction, list[Shape], Shape], Operation]] = {
    Slice: _slice,
    DynamicSlice: _dynamic_slice,
    Gather: _gather,
    Reshape: _reshape,
    CustomCall: _custom_call,
}


def write_iota(moves: Resharding, whole: Instruction, spec: Spec) -> Instruction:
    """Emits the block of an iota, which counts from the offset of the block."""
    op, build = whole.op, moves.build
    assert isinstance(op, Iota)
    block = moves.mesh.local_shape(whole.shape, spec)
    axes = spec[op.iota_dimension]
    if not axes:
        return build(op, shape=block)
    size = block.dimensions[op.iota_dimension]
    starts = [moves.mesh.block_index(p, axes) * size for p in range(moves.mesh.count)]
    counting = Shape.array(PrimitiveType.S32, block.dimensions)
    counted = build(op, shape=counting)
    shifted = build(Add(), counted, build.broadcast(moves.select_by_partition(starts), counting))
    return shifted if block.element_type is PrimitiveType.S32 else build(Convert(), shifted, shape=block)


def is_constant(value: Instruction, element: Any) -> bool:
    """Whether a value is a constant, or a broadcast of one, whose elements all equal `element`."""
    if value.opcode == "broadcast":
        value = value.operands[0]
    if not isinstance(value.op, Constant):
        return False
    array = np.asarray(value.op.literal.value)
    return bool(np.all(array == np.asarray(element).astype(array.dtype)))
