"""part-sums: sums of a loop's array and an update of zeros, computed for the updated part alone.

    add(x, dynamic-update-slice(zeros, u, i))  ->  dynamic-update-slice(x, add(dynamic-slice(x, i), u), i)

The gradient of a loop that reads parts of its state adds up sums of this form, and also of `pad(u, 0)`: without the
rewrite each iteration takes time proportional to the whole array. Adding zero changes one float, -0 to +0, so that the
array must have no element -0. The proof is by induction on the time at which values are computed: a -0 of the array is
copied from somewhere, or is the sum of two.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np

from hloom.ir import Instruction, Module
from hloom.ops.broadcast import Iota
from hloom.ops.control_flow import While
from hloom.ops.elementwise_binary import Add
from hloom.ops.pad import Pad
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.structure import Constant, GetTupleElement, Parameter
from hloom.ops.traits import Update
from hloom.passes.edit import constant_value
from hloom.passes.op_builder import S32, OpBuilder, expand_each
from hloom.passes.origins import Origins, Position
from hloom.passes.pattern import splat_source
from hloom.system.records import record

MAX_SEARCH = 512
"""Positions visited in the proof that no element is -0."""


@record
class PartSums:
    """Before: add(%x, dynamic-update-slice(zeros, %u, %i)) in the body of a loop, %x an array of its state, updated or
    not. After: dynamic-update-slice(%x, add(dynamic-slice(%x, %i), %u), %i).

    Needs %u to be at most half of %x, and, for floats, a proof that no element of %x is -0.
    """

    name: ClassVar[str] = "part-sums"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (While,)

    def run(self, module: Module) -> int:
        """Replaces the sums; returns their number."""
        return expand_each(module, Add, partial(_expanded, Origins(module)))


def _expanded(origins: Origins, op: Add, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    for array, other in (old.operands, reversed(old.operands)):
        if not _is_state(array, origins) or not _pads_with_zeros(other):
            continue
        type = array.shape.element_type
        if not (type.is_integer or (type.is_float and _is_never_minus_zero((array, ()), origins))):
            continue
        part, starts = _part(build, other)
        before = build(DynamicSlice(size_indices=part.shape.dimensions), array, *starts)
        return build(DynamicUpdateSlice(), array, build(op, before, part), *starts)
    return None


def _is_state(array: Instruction, origins: Origins) -> bool:
    """Whether a value is an array of the state of a loop, or results from updates of parts of it."""
    while isinstance(array.op, Update):
        array = array.operands[0]
    if not isinstance(array.op, GetTupleElement) or not isinstance(array.operands[0].op, Parameter):
        return False
    return array.parent is not None and any(isinstance(caller.op, While) for caller in origins.callers[array.parent])


def _pads_with_zeros(value: Instruction) -> bool:
    """Whether a value is +0 but for a part, at most half of it, that `_part` returns."""
    match value.op:
        case DynamicUpdateSlice():
            fill, part = value.operands[:2]
        case Pad() as op if all(
            min(d.edge_padding_low, d.edge_padding_high) >= 0 and not d.interior_padding for d in op.padding_config
        ):
            part, fill = value.operands
        case _:
            return False
    zero = splat_source(fill)
    is_part = 0 < 2 * part.shape.element_count <= value.shape.element_count
    return is_part and zero is not None and not any(constant_value(zero).tobytes())


def _part(build: OpBuilder, value: Instruction) -> tuple[Instruction, list[Instruction]]:
    """Returns the part of a padded value that is not zero, and the indices at which it starts."""
    if isinstance(value.op, Pad):
        return value.operands[0], [build.constant(d.edge_padding_low, S32) for d in value.op.padding_config]
    return value.operands[1], [*value.operands[2:]]


def _is_never_minus_zero(position: Position, origins: Origins) -> bool:
    """Whether no element is -0, whatever the arguments are."""
    seen, worklist = {position}, [position]
    while worklist:
        instruction, index = worklist.pop()
        before = origins.of(instruction, index)
        if before is None:
            before = _needed(instruction, origins)
        is_argument = isinstance(instruction.op, Parameter) and not before
        if before is None or is_argument or len(seen) > MAX_SEARCH:
            return False
        new = [each for each in before if each not in seen]
        seen.update(new)
        worklist += new
    return True


def _needed(instruction: Instruction, origins: Origins) -> list[Position] | None:
    """Returns the values that must have no -0 for the result to have none; None if the result may have one anyway."""
    match instruction.op:
        case Constant() as op if instruction.shape.is_array:
            array = op.literal.value
            return None if bool(((array == 0) & np.signbit(array)).any()) else []
        case Iota():
            return []
        case Add():  # of two -0; one operand without them is enough
            operands = instruction.operands
            return [(next((each for each in operands if origins.of(each, ()) is not None), operands[0]), ())]
    return None
