"""Constant folding of small instructions, for operands that give shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.errors import HloomError
from hloom.ir import Instruction
from hloom.ops.custom_call import CustomCall
from hloom.ops.dynamic_size import GetDimensionSize
from hloom.ops.structure import Constant, OptimizationBarrier, Parameter
from hloom.ops.traits import DeviceIndex
from hloom.values import Array

MAX_ELEMENTS = 4096
MAX_INSTRUCTIONS = 4096


class ConstantFolder:
    """Evaluates instructions and caches their values; None for values that depend on more than constants."""

    def __init__(self) -> None:
        self.values: dict[Instruction, Array | None] = {}

    def value(self, instruction: Instruction) -> Array | None:
        """The value of an instruction that is small and depends on constants only; None otherwise."""
        stack = [instruction]
        while stack:
            current = stack[-1]
            if current in self.values:
                stack.pop()
                continue
            missing = [operand for operand in self._needed(current) if operand not in self.values]
            if missing and len(stack) < MAX_INSTRUCTIONS:
                stack.extend(missing)
                continue
            stack.pop()
            self.values[current] = None if missing else self._evaluate(current)
        return self.values[instruction]

    def _needed(self, instruction: Instruction) -> list[Instruction]:
        if isinstance(instruction.op, GetDimensionSize) or not is_foldable(instruction):
            return []
        return instruction.operands

    def _evaluate(self, instruction: Instruction) -> Array | None:
        op = instruction.op
        if isinstance(op, Constant):
            value: Array = op.literal.value
            return value
        if not is_foldable(instruction):
            return None
        if isinstance(op, GetDimensionSize):
            shape = instruction.operands[0].shape
            is_dynamic = shape.dynamic_dimensions[op.dimension]
            return None if is_dynamic else np.asarray(shape.dimensions[op.dimension], np.int32)
        operands = [self.values[operand] for operand in instruction.operands]
        if any(operand is None for operand in operands):
            return None
        return evaluated(instruction, operands)


def is_foldable(instruction: Instruction) -> bool:
    """Whether an instruction is a pure operation on small static arrays, without computations."""
    shape = instruction.shape
    return (
        shape.is_array
        and not shape.is_dynamic
        and shape.element_count <= MAX_ELEMENTS
        and not instruction.op.has_side_effect
        and not any(True for _ in instruction.op.computations)
        and not isinstance(instruction.op, (Parameter, CustomCall, DeviceIndex, OptimizationBarrier))
        and all(operand.shape.is_array for operand in instruction.operands)
    )


def evaluated(instruction: Instruction, operands: Sequence[Any]) -> Array | None:
    """Returns the value of an instruction for values of its operands; None if there is none."""
    from hloom.backends.interpreter.interpreter import Execution, Site
    from hloom.runtime.device import Device
    from hloom.runtime.rendezvous import Rendezvous

    execution = Execution({}, Device(0), Rendezvous(1, 1, 1.0), 0, 0, seed=0)
    try:
        value = instruction.op.evaluate(Site(execution, instruction, on_arrays=False), *instruction.op.bind(operands))
    except HloomError:
        return None
    return np.asarray(value)
