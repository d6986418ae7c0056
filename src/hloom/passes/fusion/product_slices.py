"""product-slices: dots read slices that are contiguous in memory where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.dot import Dot
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, Slice
from hloom.ops.structure import Constant, GetTupleElement, Parameter
from hloom.passes.edit import edits, has_control_edges, is_dynamic, reshape_chain, running_computations
from hloom.passes.fusion.build import build_fusion
from hloom.system.records import record

MIN_BYTES = 1 << 12
"""Bytes of a slice whose copy takes longer than a call of a kernel."""

CanMultiply = Callable[[Instruction], bool]
"""Whether the target has code for a dot."""


@record
class ProductSlices:
    """Before: dot(x, slice(w)), or a dynamic slice, perhaps reshaped, that is one piece of memory. After: a fusion of
    these, whose root is the dot.

    The dot reads the part where it is, such as the weights of one of many layers, or a block of keys. Slices that
    others read are left alone, and so are those smaller than another operand that the computation does not make, whose
    packing may move out of a loop, and dots that `can_multiply` refuses.
    """

    name: ClassVar[str] = "product-slices"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot,)
    can_multiply: CanMultiply = field(compare=False)

    def run(self, module: Module) -> int:
        """Makes the fusions; returns their number."""
        changes = 0
        for edit in edits(running_computations(module)):
            for dot in edit.computation.instructions:
                if not isinstance(dot.op, Dot) or is_dynamic(dot) or not self.can_multiply(dot):
                    continue
                found = {i for operand in dot.operands for i in _part_read_by(dot, operand)}
                if found:
                    build_fusion(module, edit, [dot], [*(i for i in edit.computation.instructions if i in found), dot])
                    changes += 1
        return changes


def _part_read_by(dot: Instruction, operand: Instruction) -> list[Instruction]:
    """Returns the slice that an operand is, with its reshapes and constant starts; nothing if it stays in memory."""
    size, chain = operand.shape.byte_size, reshape_chain(operand)
    if size < MIN_BYTES or any(size < other.shape.byte_size and _is_given(other) for other in dot.operands):
        return []
    part = chain[-1]
    if not is_contiguous_part(part) or not all(map(_is_read_by_dots, chain)):
        return []
    return [*chain, *(start for start in part.operands[1:] if isinstance(start.op, Constant))]


def _is_given(operand: Instruction) -> bool:
    """Whether a value, perhaps reshaped, comes from outside of its computation: iterations of a loop may share it."""
    return isinstance(reshape_chain(operand)[-1].op, (Parameter, GetTupleElement, Constant))


def is_contiguous_part(instruction: Instruction) -> bool:
    """Whether an instruction is a slice whose elements are adjacent in the operand."""
    op = instruction.op
    if not isinstance(op, (Slice, DynamicSlice)) or is_dynamic(instruction):
        return False
    if isinstance(op, Slice) and any(part.stride != 1 for part in op.slice):
        return False
    pairs = [*zip(instruction.shape.dimensions, instruction.operands[0].shape.dimensions, strict=True)]
    first = next((d for d, (size, _) in enumerate(pairs) if size != 1), len(pairs))
    return all(size == whole for size, whole in pairs[first + 1 :])


def _is_read_by_dots(instruction: Instruction) -> bool:
    """Whether dots alone use a value, perhaps reshaped."""
    is_root = instruction.parent is not None and instruction is instruction.parent.root
    return not (is_root or has_control_edges(instruction)) and all(
        isinstance(user.op, Dot) or (isinstance(user.op, Reshape) and _is_read_by_dots(user))
        for user in instruction.users
    )
