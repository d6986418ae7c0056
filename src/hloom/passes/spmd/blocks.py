"""Adapts operations to blocks: attributes that hold sizes or offsets, iotas, and constants that must count once."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir import Instruction
from hloom.ops.attributes import SliceDimension
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.convert import Convert
from hloom.ops.custom_call import CustomCall
from hloom.ops.elementwise_binary import Add
from hloom.ops.gather import Gather
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, Slice
from hloom.ops.structure import Constant
from hloom.passes.spmd.mesh import Spec
from hloom.passes.spmd.resharding import Resharding
from hloom.shape import Shape
from hloom.types import PrimitiveType

_CHANGES = Registry[[Instruction, list[Shape], Shape], Operation]()


def on_blocks(op: Operation, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    """The operation for operands and a result of these shapes, which are blocks of those of the instruction `whole`."""
    change = _CHANGES.get(op)
    return op if change is None else change(op, whole, operands, result)


@_CHANGES.rule(Slice)
def _slice(op: Slice, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    before = whole.operands[0].shape.dimensions
    parts = [
        part if old == new else SliceDimension(0, new)
        for part, old, new in zip(op.slice, before, operands[0].dimensions, strict=True)
    ]
    return Slice(slice=tuple(parts))


@_CHANGES.rule(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    return DynamicSlice(size_indices=result.dimensions)


@_CHANGES.rule(Gather)
def _gather(op: Gather, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    before = whole.operands[0].shape.dimensions
    sizes = [
        min(size, new) if size == old else size
        for size, old, new in zip(op.slice_sizes, before, operands[0].dimensions, strict=True)
    ]
    return op.replace(slice_sizes=tuple(sizes))


@_CHANGES.rule(Reshape)
def _reshape(op: Reshape, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    return Reshape()


@_CHANGES.rule(CustomCall)
def _custom_call(op: CustomCall, whole: Instruction, operands: list[Shape], result: Shape) -> Operation:
    if op.operand_layout_constraints is None:
        return op
    pairs = zip(operands, op.operand_layout_constraints, strict=True)
    layouts = [new.with_layout(old.layout) if old.is_array else old for new, old in pairs]
    return op.replace(operand_layout_constraints=tuple(layouts))


def write_iota(moves: Resharding, op: Iota, whole: Shape, spec: Spec) -> Instruction:
    """Emits the block of an iota, which counts from the offset of the block."""
    build = moves.build
    block = moves.mesh.local_shape(whole, spec)
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
    if isinstance(value.op, Broadcast):
        value = value.operands[0]
    if not isinstance(value.op, Constant):
        return False
    array = np.asarray(value.op.literal.value)
    return bool(np.all(array == np.asarray(element).astype(array.dtype)))
