"""Execution plans of computations: value slots, and steps in order, prepared once for each computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction, callees_first, post_order
from hloom.ops.communication import RecvDone
from hloom.ops.convert import BitcastConvert
from hloom.ops.operation import Operation
from hloom.ops.reduce import Map
from hloom.ops.structure import Constant, Parameter
from hloom.ops.traits import CallLike, Identity, Movement, Structural
from hloom.values import Value


class Step:
    """Instruction to evaluate: slots of its operands and its value, and the slots whose last use it is."""

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
        self.is_identity_on_scalars = shape.is_scalar and _returns_first_operand(instruction)


class Plan:
    """Plan of a computation. `template` holds the constants in their slots; parameters take the first slots.

    `plans` holds the plans of called computations. `applies_to_arrays`: on whole arrays in place of scalars it computes
    the same for each element.
    """

    __slots__ = (
        "applies_to_arrays",
        "computation",
        "parameter_count",
        "root_slot",
        "steps",
        "template",
    )

    def __init__(self, computation: Computation, plans: Plans) -> None:
        self.computation = computation
        live = _live_instructions(computation, plans)
        slots = {parameter: i for i, parameter in enumerate(computation.parameters)}
        self.parameter_count = len(slots)
        self.template: list[Value] = [None] * len(slots)
        self.steps: list[Step] = []
        for instruction in live:
            op = instruction.op
            if isinstance(op, Parameter):
                continue
            slots[instruction] = len(self.template)
            if isinstance(op, Constant):
                self.template.append(op.literal.value)
            else:
                self.template.append(None)
                operand_slots = [slots[operand] for operand in instruction.operands]
                self.steps.append(Step(instruction, slots[instruction], operand_slots))
        self.root_slot = slots[computation.root]
        self._end_values_early(slots)
        self.applies_to_arrays = all(_applies_to_arrays(instruction, plans) for instruction in live)

    def _end_values_early(self, slots: dict[Instruction, int]) -> None:
        """Determines the last use of each value, after which it is freed."""
        last_use: dict[int, Step] = {}
        for step in self.steps:
            for slot in step.operand_slots:
                last_use[slot] = step
        ends: dict[Step, list[int]] = {}
        constants = {slots[i] for i in slots if isinstance(i.op, Constant)}
        for slot, step in last_use.items():
            if slot != self.root_slot and slot not in constants:
                ends.setdefault(step, []).append(slot)
        for step, ended in ends.items():
            step.ends = tuple(ended)


class Plans(dict[int, Plan]):
    """The plans of a computation and of its callees, by the id of the computation; each is made at its first use."""

    def __init__(self, entry: Computation) -> None:
        super().__init__()
        self.computations = {id(computation): computation for computation in callees_first(entry)}
        self._with_effects: set[int] = set()
        for key, computation in self.computations.items():
            if any(map(self.has_effects, computation.instructions)):
                self._with_effects.add(key)

    def __missing__(self, key: int) -> Plan:
        self[key] = plan = Plan(self.computations[key], self)
        return plan

    def has_effects(self, instruction: Instruction) -> bool:
        """Whether an instruction must run even if its value is unused (GEN-11)."""
        op = instruction.op
        if op.has_side_effect or not op.calling_fields:
            return op.has_side_effect
        return any(id(c) in self._with_effects for c in op.computations)

    def complete(self) -> Plans:
        """Makes the plans that have not been used, and returns all."""
        for key in self.computations:
            self[key]
        return self


def _live_instructions(computation: Computation, plans: Plans) -> list[Instruction]:
    """Returns the instructions in execution order, without pure ones whose values are unused."""
    order = computation.instructions
    if any(instruction.control_predecessors for instruction in order):
        order = post_order(computation)
    if any(isinstance(instruction.op, RecvDone) for instruction in order):
        order = _waiting_last(order)
    live: set[Instruction] = {computation.root}
    for instruction in reversed(order):
        if instruction in live or plans.has_effects(instruction):
            live.add(instruction)
            live.update(instruction.operands)
            live.update(instruction.control_predecessors)
    return [instruction for instruction in order if instruction in live]


def _waiting_last(order: list[Instruction]) -> list[Instruction]:
    """Returns an order in which each recv-done comes after all instructions that do not depend on it."""
    waiting = {i: len(set(i.operands) | set(i.control_predecessors)) for i in order}
    ready = [i for i in order if not waiting[i]]
    result: list[Instruction] = []
    while ready:
        position = next((k for k, i in enumerate(ready) if not isinstance(i.op, RecvDone)), 0)
        instruction = ready.pop(position)
        result.append(instruction)
        for after in {**instruction.users, **dict.fromkeys(instruction.control_successors)}:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return result


def _applies_to_arrays(instruction: Instruction, plans: Plans) -> bool:
    """Whether an instruction computes the same for each element on whole arrays in place of scalars."""
    if not all(leaf.is_scalar for leaf in instruction.shape.leaves()):
        return False
    op = instruction.op
    if op.elementwise or isinstance(op, (Structural, BitcastConvert)):
        return True
    if isinstance(op, (CallLike, Map)):
        return all(plans[id(c)].applies_to_arrays for c in op.computations)
    return _returns_first_operand(instruction)


def _returns_first_operand(instruction: Instruction) -> bool:
    """Whether an instruction whose result is a scalar returns its first operand: moving one element changes nothing."""
    op = instruction.op
    moves_first = isinstance(op, Identity) or (isinstance(op, Movement) and op.moved_operands == 1)
    return moves_first and instruction.operands[0].shape.compatible(instruction.shape)
