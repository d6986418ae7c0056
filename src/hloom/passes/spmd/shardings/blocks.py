"""Blocks of iotas, and constants that must count once."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Add
from hloom.ops.structure import Constant
from hloom.passes.spmd.shardings.mesh import Spec
from hloom.passes.spmd.shardings.resharding import Resharding
from hloom.shape import Shape
from hloom.types import PrimitiveType


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
