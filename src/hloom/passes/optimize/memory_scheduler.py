"""memory-scheduler: reorders instructions to reduce the peak memory of a computation.

The module also has the live ranges and memory use of a computation in its current order.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module, dependencies
from hloom.ops.structure import OptimizationBarrier
from hloom.ops.traits import ControlFlow, Structural, View
from hloom.passes.edit import effectful_computations, has_effect
from hloom.system.records import record

_ALIASES = (Structural, View, OptimizationBarrier)
"""Operations whose results need no memory of their own: aliases of operands, parameters and constants."""


@record
class MemoryScheduler:
    """An order of instructions -> an order with a lower peak of live bytes.

    Greedy list scheduling: of the instructions whose predecessors are scheduled, the next one is that with the largest
    decrease, or least increase, of live bytes. The new order is used only if its peak is lower. Instructions with
    effects keep their order; computations that fusions and reductions apply are left alone.
    """

    name: ClassVar[str] = "memory-scheduler"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        """Reorders the instructions; returns the number of computations whose order changed."""
        effectful = effectful_computations(module)
        return sum(_reorder(computation, effectful) for computation in run_computations(module))


def run_computations(module: Module) -> list[Computation]:
    """Returns the entry and the computations that control flow runs, but not those that fusions or reductions apply."""
    called = {id(c) for i in module.instructions() if isinstance(i.op, ControlFlow) for c in i.op.computations}
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
        # The last reader of a value frees it, so its growth is now less than in its entry of the heap.
        for changed in {*last_readers, *after[best]}:
            if not unscheduled[changed] and changed not in result:
                heappush(ready, (memory.growth(changed), order[changed]))
    return list(result)


def predecessors(
    instructions: Sequence[Instruction], effectful: set[Computation]
) -> dict[Instruction, set[Instruction]]:
    """Returns the instructions that must precede each one: operands, control predecessors, and the previous effect."""
    found: dict[Instruction, set[Instruction]] = {}
    last: Instruction | None = None
    for instruction in instructions:
        found[instruction] = {*dependencies(instruction)}
        if has_effect(instruction, effectful):
            if last is not None:
                found[instruction].add(last)
            last = instruction
    return found


def successors(before: dict[Instruction, set[Instruction]]) -> dict[Instruction, list[Instruction]]:
    """Inverts `predecessors`: returns the instructions that must follow each one."""
    after: dict[Instruction, list[Instruction]] = {instruction: [] for instruction in before}
    for instruction, needed in before.items():
        for other in needed:
            after[other].append(instruction)
    return after


class _Memory:
    """The bytes of live values while instructions run in some order; tuples, reshapes and the like are aliases."""

    def __init__(self, computation: Computation) -> None:
        self.sources: dict[Instruction, frozenset[Instruction]] = {}
        """The values with memory of their own that an instruction is an alias of; itself if it has its own."""
        self.size: dict[Instruction, int] = {}
        self.read: dict[Instruction, frozenset[Instruction]] = {}
        """Values that an instruction reads."""
        self.readers: dict[Instruction, set[Instruction]] = {}
        """Instructions that have yet to read each value; the root stands for the caller, which reads the result."""
        for instruction in computation.instructions:
            operands = frozenset(value for operand in instruction.operands for value in self.sources[operand])
            own = not isinstance(instruction.op, _ALIASES)
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
        """Increase of live bytes if the instruction runs next."""
        if instruction not in self.read:
            return -1
        freed = sum(self.size[v] for v in self.read[instruction] if len(self.readers[v]) == 1)
        return self.size[instruction] - freed

    def run(self, instruction: Instruction) -> list[Instruction]:
        """Runs an instruction; returns those that became the only remaining reader of a value."""
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
    """Returns the live range of each value with memory of its own: the positions of its definition and last use."""
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


@record
class MemoryUse:
    """Memory that the values of a computation use in its current order."""

    bytes: list[int]
    """Bytes of live values while each instruction runs."""
    peak: int
    """Position of the instruction with the most live bytes."""
    live: list[Instruction]
    """Values that are live at the peak, the largest first."""


def memory_use(computation: Computation) -> MemoryUse:
    """Computes the memory use of a computation in its current order.

    Parameters, constants and arrays of dynamic sizes are not counted.
    """
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
    """Returns the maximum of live bytes if the computation runs in the given order."""
    memory = _Memory(computation)
    for instruction in order:
        memory.run(instruction)
    return memory.peak
