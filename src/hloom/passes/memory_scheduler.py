"""memory-scheduler: an order of the instructions in which less memory is in use at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.passes.edit import effectful_computations, has_effect, is_control_flow

_ALIASES = {
    "tuple",
    "get-tuple-element",
    "bitcast",
    "reshape",
    "parameter",
    "constant",
    "opt-barrier",
    "add-dependency",
}


@dataclass(frozen=True)
class MemoryScheduler:
    """An order of instructions -> one in which values are used soon after they are made.

    Of the instructions whose operands are there, the one comes next that frees the most, or takes the least. The new
    order is taken only where its peak is lower. Instructions with effects keep their order; computations longer than
    `max_instructions`, and fused ones, stay as they are.
    """

    name: ClassVar[str] = "memory-scheduler"
    max_instructions: int = 4000

    def run(self, module: Module) -> int:
        called = {id(c) for i in module.instructions() if is_control_flow(i) for c in i.op.computations}
        changes, effectful = 0, effectful_computations(module)
        for computation in module.computations:
            is_run = computation is module.entry_computation or id(computation) in called
            if is_run and 2 < len(computation.instructions) <= self.max_instructions:
                changes += _reorder(computation, effectful)
        return changes


def _reorder(computation: Computation, effectful: set[Computation]) -> int:
    old = computation.instructions
    new = _greedy(computation, effectful)
    if new == old or peak_bytes(computation, new) >= peak_bytes(computation, old):
        return 0
    root = computation.root
    computation.instructions = new
    computation.root = root
    return 1


def _greedy(computation: Computation, effectful: set[Computation]) -> list[Instruction]:
    order = {instruction: k for k, instruction in enumerate(computation.instructions)}
    before = _predecessors(computation.instructions, effectful)
    after: dict[Instruction, list[Instruction]] = {i: [] for i in order}
    for instruction, needed in before.items():
        for other in needed:
            after[other].append(instruction)
    missing = {instruction: len(needed) for instruction, needed in before.items()}
    memory = _Memory(computation)
    ready = [instruction for instruction in order if not missing[instruction]]
    result = []
    while ready:
        best = min(ready, key=lambda i: (memory.growth(i), order[i]))
        ready.remove(best)
        memory.run(best)
        result.append(best)
        for following in after[best]:
            missing[following] -= 1
            if not missing[following]:
                ready.append(following)
    return result


def _predecessors(
    instructions: Sequence[Instruction], effectful: set[Computation]
) -> dict[Instruction, set[Instruction]]:
    """What must come before each instruction: operands, control edges, and the effect before an effect."""
    found: dict[Instruction, set[Instruction]] = {}
    last: Instruction | None = None
    for instruction in instructions:
        found[instruction] = {*instruction.operands, *instruction.control_predecessors}
        if has_effect(instruction, effectful):
            if last is not None:
                found[instruction].add(last)
            last = instruction
    return found


class _Memory:
    """Which values are alive while instructions run; tuples and reshapes are other names of their operands."""

    def __init__(self, computation: Computation) -> None:
        self.sources: dict[Instruction, frozenset[Instruction]] = {}
        self.uses: dict[Instruction, int] = {}
        for instruction in computation.instructions:
            operands = self._held(instruction.operands)
            own = instruction.opcode not in _ALIASES
            self.sources[instruction] = frozenset((instruction,)) if own else operands
            if own:
                self.uses[instruction] = 0
                for operand in operands:
                    self.uses[operand] += 1
        for value in self.sources[computation.root]:
            self.uses[value] += 1
        self.now = self.peak = 0

    def _held(self, instructions: Iterable[Instruction]) -> frozenset[Instruction]:
        return frozenset(value for i in instructions for value in self.sources[i])

    def growth(self, instruction: Instruction) -> int:
        """How much more memory is in use after the instruction than before it."""
        if instruction.opcode in _ALIASES:
            return -1
        freed = sum(v.shape.byte_size for v in self._held(instruction.operands) if self.uses[v] == 1)
        return instruction.shape.byte_size - freed

    def run(self, instruction: Instruction) -> None:
        if instruction.opcode in _ALIASES:
            return
        self.now += instruction.shape.byte_size
        self.peak = max(self.peak, self.now)
        for value in self._held(instruction.operands):
            self.uses[value] -= 1
            if not self.uses[value]:
                self.now -= value.shape.byte_size


def peak_bytes(computation: Computation, order: Sequence[Instruction]) -> int:
    """The most memory that values take at once when a computation runs in an order."""
    memory = _Memory(computation)
    for instruction in order:
        memory.run(instruction)
    return memory.peak
