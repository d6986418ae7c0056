"""product-operands: narrow operands of dots that are converted and scaled are computed inside the dot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.broadcast import Iota
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.dot import Dot
from hloom.ops.gather import Gather
from hloom.ops.structure import Constant
from hloom.ops.traits import Movement
from hloom.passes.edit import edits, is_dynamic, running_computations
from hloom.passes.fusion.build import build_fusion
from hloom.passes.fusion.decisions import CanFuse
from hloom.system.records import record

MAX_INSTRUCTIONS = 48
"""Instructions from which an operand is computed."""
MIN_BYTES = 1 << 14
"""Bytes of an operand that is worth it."""
SHRINKAGE = 1.75
"""Ratio of the bits of an operand to those of the arrays that it is computed from, from which fusion pays: weights of
half the bits, with scales and zero points of groups."""
MAX_REPETITION = 8
"""Elements of an operand for each of which a member is computed again, such as the halves of a byte."""

CanCompute = Callable[[Instruction, Instruction, tuple[Instruction, ...]], bool]
"""Whether the target has code for a dot, of which it computes an operand from arrays in memory."""


@record
class ProductOperands:
    """Before: dot(x, multiply(convert(w), broadcast(scale))). After: a fusion of these, whose root is the dot.

    The operand is computed from arrays that are smaller by `SHRINKAGE` in all: quantised weights, scales and zero
    points. Instructions that `can_fuse` refuses, and dots that `can_compute` refuses, are left alone, and so are
    gathers of elements that are as wide as the operand's: products read results faster than they gather.
    """

    name: ClassVar[str] = "product-operands"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (Dot,)
    can_fuse: CanFuse = field(compare=False)
    can_compute: CanCompute = field(compare=False)

    def run(self, module: Module) -> int:
        """Makes the fusions; returns their number."""
        changes = 0
        for edit in edits(running_computations(module)):
            for dot in edit.computation.instructions:
                if not isinstance(dot.op, Dot) or is_dynamic(dot):
                    continue
                members = next(filter(None, (self._members(dot, operand) for operand in dot.operands)), None)
                if members is not None:
                    build_fusion(module, edit, [dot], [*members, dot])
                    changes += 1
        return changes

    def _members(self, dot: Instruction, operand: Instruction) -> list[Instruction] | None:
        """Returns the instructions that compute an operand in the dot, operands first; None if it stays in memory."""
        if operand.shape.byte_size < MIN_BYTES or [*dot.operands].count(operand) > 1:
            return None
        seen, found, room = set[Instruction](), set[Instruction](), _bits(operand) / SHRINKAGE
        stack = [operand]
        while stack:
            member = stack.pop()
            if member in seen:
                continue
            seen.add(member)
            if self._is_computed(member, operand.shape.element_count) and not _is_wide_gather(member, operand):
                found.add(member)
                stack += member.operands
            else:
                room -= _bits(member)
            if room < 0 or len(found) > MAX_INSTRUCTIONS:
                return None
        members = [i for i in dot.parent.instructions if i in found] if dot.parent else []
        sources = tuple(dict.fromkeys(o for i in members for o in i.operands if o not in found))
        return members if self.can_compute(dot, operand, sources) else None

    def _is_computed(self, instruction: Instruction, elements: int) -> bool:
        """Whether an instruction is computed for each of the operand's elements, rather than once for many."""
        op = instruction.op
        if isinstance(op, (Constant, Iota)):
            return self.can_fuse(instruction)
        if not instruction.shape.is_array or not (op.elementwise or isinstance(op, (Movement, BitcastConvert))):
            return False
        is_repeated = MAX_REPETITION * instruction.shape.element_count < elements
        is_worth_it = not is_repeated or _converts_bytes(instruction) or self._reads_no_array(instruction)
        return self.can_fuse(instruction) and is_worth_it

    def _reads_no_array(self, instruction: Instruction) -> bool:
        """Whether an instruction is computed from indices and constants, as distances of shifts are."""
        seen: set[Instruction] = set()
        stack = [*instruction.operands]
        while stack:
            operand = stack.pop()
            if operand in seen:
                continue
            seen.add(operand)
            if not self._is_computed(operand, 0) or len(seen) > MAX_INSTRUCTIONS:
                return False
            stack += operand.operands
        return True


def _bits(instruction: Instruction) -> int:
    """Returns the bits of all elements: codes of 4 bits have half of those of bytes, even if they are one a byte."""
    shape = instruction.shape
    return shape.element_count * shape.element_type.bits if shape.is_array else 8 * shape.byte_size


def _converts_bytes(instruction: Instruction) -> bool:
    """Whether an instruction converts bytes, or narrower integers, to floats, or moves what does, as zero points are:
    reading them takes less time than storing and reading floats, and differences of small integers need no rounding.
    """
    while isinstance(instruction.op, Movement) and len(instruction.operands) == 1:
        (instruction,) = instruction.operands
    if not isinstance(instruction.op, Convert):
        return False
    source, target = instruction.operands[0].shape.element_type, instruction.shape.element_type
    return source.is_integer and source.bits <= 8 and target.is_float


def _is_wide_gather(instruction: Instruction, operand: Instruction) -> bool:
    """Whether an instruction gathers elements that are as wide as the operand's."""
    if not isinstance(instruction.op, Gather):
        return False
    return instruction.shape.element_type.bits >= operand.shape.element_type.bits
