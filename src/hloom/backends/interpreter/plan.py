"""What the interpreter prepares once for each computation: slots for values, and the steps in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction, post_order
from hloom.ops.operation import Operation, Value

# Scalars pass through these unchanged, so a computation of scalars may hold them and still be applied to whole arrays.
_IDENTITY_ON_SCALARS = {"broadcast", "reshape", "bitcast", "copy", "transpose", "reverse", "opt-barrier"}
_FREE_OF_SHAPES = {"parameter", "constant", "tuple", "get-tuple-element", "add-dependency", "after-all"}


class Step:
    """One instruction to evaluate: where its operands lie, where its value goes, and which values end with it."""

    __slots__ = ("dtype", "ends", "instruction", "is_identity_on_scalars", "op", "operand_slots", "sizes", "slot")

    def __init__(self, instruction: Instruction, slot: int, operand_slots: Sequence[int]) -> None:
        self.instruction = instruction
        self.op: Operation = instruction.op
        self.slot = slot
        self.operand_slots = tuple(operand_slots)
        self.ends: tuple[int, ...] = ()
        shape = instruction.shape
        self.dtype: np.dtype[Any] | None = shape.element_type.dtype if shape.is_array else None
        self.sizes = None if shape.is_dynamic else shape.dimensions
        self.is_identity_on_scalars = (
            instruction.opcode in _IDENTITY_ON_SCALARS
            and shape.is_scalar
            and instruction.operands[0].shape.compatible(shape)
        )


class Plan:
    """A computation ready to run: `template` has the constants in their slots; parameters take the first slots."""

    __slots__ = ("applies_to_arrays", "computation", "parameter_count", "root_slot", "steps", "template")

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        live = _live_instructions(computation)
        slots = {parameter: i for i, parameter in enumerate(computation.parameters)}
        self.parameter_count = len(slots)
        self.template: list[Value] = [None] * len(slots)
        self.steps: list[Step] = []
        for instruction in live:
            if instruction.opcode == "parameter":
                continue
            slots[instruction] = len(self.template)
            if instruction.opcode == "constant":
                self.template.append(instruction.op.literal.value)  # type: ignore[attr-defined]
            else:
                self.template.append(None)
                operand_slots = [slots[operand] for operand in instruction.operands]
                self.steps.append(Step(instruction, slots[instruction], operand_slots))
        self.root_slot = slots[computation.root]
        self._end_values_early(slots)
        self.applies_to_arrays = all(_applies_to_arrays(instruction) for instruction in live)

    def _end_values_early(self, slots: dict[Instruction, int]) -> None:
        """Lets go of each value after its last use, so that memory holds only what is still needed."""
        last_use: dict[int, Step] = {}
        for step in self.steps:
            for slot in step.operand_slots:
                last_use[slot] = step
        ends: dict[Step, list[int]] = {}
        constants = {slots[i] for i in slots if i.opcode == "constant"}
        for slot, step in last_use.items():
            if slot != self.root_slot and slot not in constants:
                ends.setdefault(step, []).append(slot)
        for step, ended in ends.items():
            step.ends = tuple(ended)


def has_effects(instruction: Instruction) -> bool:
    """True where the instruction, or what it calls, must run even if nothing reads its value (GEN-11)."""
    return instruction.op.has_side_effect or any(
        has_effects(inner) for computation in instruction.op.computations for inner in computation.instructions
    )


def _live_instructions(computation: Computation) -> list[Instruction]:
    """The instructions in running order without the pure ones whose values nobody reads."""
    order = computation.instructions
    if any(instruction.control_predecessors for instruction in order):
        order = post_order(computation)
    live: set[Instruction] = {computation.root}
    for instruction in reversed(order):
        if instruction in live or has_effects(instruction):
            live.add(instruction)
            live.update(instruction.operands)
            live.update(instruction.control_predecessors)
    return [instruction for instruction in order if instruction in live]


def _applies_to_arrays(instruction: Instruction) -> bool:
    """True where the instruction means the same element by element when its scalars are whole arrays."""
    if not all(leaf.is_scalar for leaf in instruction.shape.leaves()):
        return False
    op = instruction.op
    if op.elementwise or op.opcode in _FREE_OF_SHAPES:
        return True
    if op.opcode in ("call", "fusion"):
        return all(_applies_to_arrays(inner) for c in op.computations for inner in c.instructions)
    return op.opcode in _IDENTITY_ON_SCALARS and instruction.operands[0].shape.compatible(instruction.shape)
