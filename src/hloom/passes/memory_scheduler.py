"""memory-scheduler: an order of the instructions in which less memory is in use at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate
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
    order is taken only where its peak is lower. Instructions with effects keep their order; fused computations stay as
    they are.
    """

    name: ClassVar[str] = "memory-scheduler"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        effectful = effectful_computations(module)
        return sum(_reorder(computation, effectful) for computation in run_computations(module))


def run_computations(module: Module) -> list[Computation]:
    """The computations whose instructions run one after the other: not those that fusions and reductions apply."""
    called = {id(c) for i in module.instructions() if is_control_flow(i) for c in i.op.computations}
    entry = module.entry_computation
    return [computation for computation in module.computations if computation is entry or id(computation) in called]


def _reorder(computation: Computation, effectful: set[Computation]) -> int:
    old = computation.instructions
    if len(old) <= 2:
        return 0
    new = _greedy(computation, effectful)
    if new == old or peak_bytes(computation, new) >= peak_bytes(computation, old):
        return 0
    root = computation.root
    computation.instructions = new
    computation.root = root
    return 1


def _greedy(computation: Computation, effectful: set[Computation]) -> list[Instruction]:
    order = {instruction: k for k, instruction in enumerate(computation.instructions)}
    before = predecessors(computation.instructions, effectful)
    after = successors(before)
    unscheduled = {instruction: len(needed) for instruction, needed in before.items()}
    memory = _Memory(computation)
    instructions = list(order)
    ready = [(memory.growth(i), order[i]) for i in instructions if not unscheduled[i]]
    heapify(ready)
    result: dict[Instruction, None] = {}
    while ready:
        best = instructions[heappop(ready)[1]]
        if best in result:
            continue
        result[best] = None
        last_readers = memory.run(best)
        for following in after[best]:
            unscheduled[following] -= 1
        # What is the last to read a value frees it: it grows by less than it was listed with.
        for changed in {*last_readers, *after[best]}:
            if not unscheduled[changed] and changed not in result:
                heappush(ready, (memory.growth(changed), order[changed]))
    return list(result)


def predecessors(
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


def successors(before: dict[Instruction, set[Instruction]]) -> dict[Instruction, list[Instruction]]:
    """The instructions that must come after each one, from those that must come before it."""
    after: dict[Instruction, list[Instruction]] = {instruction: [] for instruction in before}
    for instruction, needed in before.items():
        for other in needed:
            after[other].append(instruction)
    return after


class _Memory:
    """Which values are alive while instructions run; tuples and reshapes are other names of their operands."""

    def __init__(self, computation: Computation) -> None:
        self.sources: dict[Instruction, frozenset[Instruction]] = {}
        self.size: dict[Instruction, int] = {}
        self.read: dict[Instruction, frozenset[Instruction]] = {}
        """The values that an instruction reads."""
        self.readers: dict[Instruction, set[Instruction]] = {}
        """Of each value: what has yet to read it, the caller of the computation, under its root's name, included."""
        for instruction in computation.instructions:
            operands = frozenset(value for operand in instruction.operands for value in self.sources[operand])
            own = instruction.op.opcode not in _ALIASES
            self.sources[instruction] = frozenset((instruction,)) if own else operands
            if own:
                self.size[instruction] = instruction.shape.byte_size
                self.read[instruction] = operands
                self.readers[instruction] = set()
                for operand in operands:
                    self.readers[operand].add(instruction)
        for value in self.sources[computation.root]:
            self.readers[value].add(computation.root)
        self.now = self.peak = 0

    def growth(self, instruction: Instruction) -> int:
        """How much more memory is in use after the instruction than before it."""
        if instruction not in self.read:
            return -1
        freed = sum(self.size[v] for v in self.read[instruction] if len(self.readers[v]) == 1)
        return self.size[instruction] - freed

    def run(self, instruction: Instruction) -> list[Instruction]:
        """Gives the instructions that are the last to read a value now."""
        last: list[Instruction] = []
        if instruction not in self.read:
            return last
        self.now += self.size[instruction]
        self.peak = max(self.peak, self.now)
        for value in self.read[instruction]:
            readers = self.readers[value]
            readers.discard(instruction)
            if not readers:
                self.now -= self.size[value]
            elif len(readers) == 1:
                last += readers
        return last


def live_ranges(computation: Computation) -> dict[Instruction, tuple[int, int]]:
    """For each value that takes memory, the place of what makes it and of what reads it last, as instructions stand."""
    memory = _Memory(computation)
    definitions: dict[Instruction, int] = {}
    found: dict[Instruction, tuple[int, int]] = {}
    end = len(computation.instructions) - 1
    for position, instruction in enumerate(computation.instructions):
        memory.run(instruction)
        if instruction in memory.size:
            definitions[instruction] = position
            found.update({v: (definitions[v], position) for v in memory.read[instruction] if not memory.readers[v]})
    rest = {value: (first, end if memory.readers[value] else first) for value, first in definitions.items()}
    return rest | found


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in use after each instruction of a computation, the place where they are most, and what is alive there."""

    bytes: list[int]
    peak: int
    live: list[Instruction]
    """The largest first."""


def memory_use(computation: Computation) -> MemoryUse:
    """What values take as the instructions stand; parameters, and what only gives them other names, do not count."""
    ranges = {i: live_range for i, live_range in live_ranges(computation).items() if i.shape.is_static}
    changes = [0] * (len(computation.instructions) + 1)
    for instruction, (first, last) in ranges.items():
        changes[first] += instruction.shape.byte_size
        changes[last + 1] -= instruction.shape.byte_size
    use = list(accumulate(changes[:-1]))
    peak = max(range(len(use)), key=use.__getitem__, default=0)
    live = [i for i, (first, last) in ranges.items() if first <= peak <= last]
    return MemoryUse(use, peak, sorted(live, key=lambda i: -i.shape.byte_size))


def peak_bytes(computation: Computation, order: Sequence[Instruction]) -> int:
    """The most memory that values take at once when a computation runs in an order."""
    memory = _Memory(computation)
    for instruction in order:
        memory.run(instruction)
    return memory.peak
