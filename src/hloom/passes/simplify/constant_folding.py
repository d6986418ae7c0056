"""constant_folding: evaluates instructions whose operands are constants."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hloom.errors import HloomError
from hloom.ir import Instruction, Module
from hloom.literal import Literal
from hloom.ops.broadcast import Broadcast
from hloom.ops.convert import BitcastConvert
from hloom.ops.dot import Dot
from hloom.ops.gather import Gather
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.structure import Constant
from hloom.ops.transpose import Reverse, Transpose
from hloom.passes.edit import Edit, constant_value, edits, has_control_edges
from hloom.system.records import record
from hloom.values import Array
from hloom.verifier.precision import is_mixed

if TYPE_CHECKING:
    from hloom.runtime.device import Device
    from hloom.runtime.rendezvous import Rendezvous

_FOLDED = (
    BitcastConvert, Reshape, Transpose, Reverse, Slice, DynamicSlice, DynamicUpdateSlice, Pad, Concatenate, Gather,
    Reduce, Dot,
)  # fmt: skip
"""Operations that are evaluated besides element-wise ones. Not broadcast and iota: the constant would be larger."""


@record
class ConstantFolding:
    """Before: an instruction without effects whose operands are constants. After: a constant.

    The values are computed by the interpreter. A result of more than `max_bytes` must not be larger than the operands,
    and the evaluation must not take more than `max_steps` multiplications or moves of elements. Broadcasts, iotas,
    random numbers, loops, custom calls and tuples are left alone; but small broadcasts of constants are reduced.
    """

    name: ClassVar[str] = "constant_folding"
    optional: ClassVar[bool] = True
    max_bytes: int = 65536
    max_steps: int = 1_000_000

    def run(self, module: Module) -> int:
        """Evaluates instructions; returns the number that became constants."""
        changes = 0
        for edit in edits(module.computations):
            for instruction in edit.computation.instructions:
                if instruction.operands and instruction not in edit.removed and self._is_foldable(instruction):
                    changes += _fold(edit, instruction)
        return changes

    def _is_foldable(self, instruction: Instruction) -> bool:
        op, shape = instruction.op, instruction.shape
        return (
            isinstance(instruction.operands[0].op, (Constant, Broadcast))  # of most instructions it is not
            and (op.elementwise or isinstance(op, _FOLDED))
            and all(self._is_known(operand, isinstance(op, Reduce)) for operand in instruction.operands)
            and not op.has_side_effect
            and not has_control_edges(instruction)
            and shape.is_array
            and not shape.is_dynamic
            and not is_mixed(instruction)
            and self._is_small(instruction)
        )

    def _is_known(self, operand: Instruction, is_reduced: bool) -> bool:
        """Whether an operand is a constant, or if it is reduced a small broadcast of one."""
        is_small = is_reduced and isinstance(operand.op, Broadcast) and operand.shape.byte_size <= self.max_bytes
        return isinstance((operand.operands[0] if is_small else operand).op, Constant)

    def _is_small(self, instruction: Instruction) -> bool:
        shape, operands = instruction.shape, instruction.operand_shapes
        steps = max(shape.element_count, *(operand.element_count for operand in operands))
        if isinstance(instruction.op, Dot):
            steps = shape.element_count * math.prod(operands[0].dimensions)
        return steps <= self.max_steps and (
            shape.byte_size <= self.max_bytes or shape.byte_size <= sum(operand.byte_size for operand in operands)
        )


def _fold(edit: Edit, instruction: Instruction) -> bool:
    """Replaces an instruction by the constant that it computes, unless evaluating it raises an error."""
    value = evaluate(instruction)
    if value is not None:
        literal = Literal(instruction.shape, value)
        constant = edit.add(Constant(literal=literal), (), instruction.shape, instruction)
        constant.sharding = instruction.sharding
        edit.replace(instruction, constant)
    return value is not None


def evaluate(instruction: Instruction) -> Array | None:
    """Returns the value of an instruction of constants or broadcasts of them; None if evaluating it raises an error."""
    from hloom.backends.interpreter.interpreter import Execution, Site
    from hloom.backends.interpreter.plan import Plans

    plans = {key: plan for called in instruction.op.computations for key, plan in Plans(called).complete().items()}
    execution = Execution(plans, *_single_device(), 0, 0, seed=0)
    values = [
        evaluate(operand) if isinstance(operand.op, Broadcast) else constant_value(operand)
        for operand in instruction.operands
    ]
    try:
        with np.errstate(all="ignore"):
            value = instruction.op.evaluate(Site(execution, instruction, on_arrays=False), *instruction.op.bind(values))
    except HloomError:
        return None
    array = np.array(value, order="C")
    array.flags.writeable = False
    return array


@functools.cache
def _single_device() -> tuple[Device, Rendezvous]:
    """Returns a device for evaluations, which do not communicate, and its rendezvous."""
    from hloom.runtime.device import Device
    from hloom.runtime.rendezvous import Rendezvous

    return Device(0), Rendezvous(1, 1, 1.0)
