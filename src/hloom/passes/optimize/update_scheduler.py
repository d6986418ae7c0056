"""update-scheduler: moves readers of an array before the instruction that updates it in place."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import Fusion, While
from hloom.ops.scatter import Scatter
from hloom.ops.slice import DynamicUpdateSlice
from hloom.ops.structure import Constant, Parameter, Tuple
from hloom.ops.traits import View
from hloom.passes.edit import effectful_computations
from hloom.passes.optimize.memory_scheduler import predecessors, run_computations, successors
from hloom.system.records import record

MAX_SEARCH = 4096
"""Instructions visited in the search for a dependence; a search that reaches the limit leaves the order alone."""


@record
class UpdateScheduler:
    """update(%a); reader(%a) -> reader(%a); update(%a), since the update would have to copy %a before the reader.

    Updates are dynamic-update-slice, alone or as the root of a fusion, scatter, and while for its initial state. If a
    reader depends on the update, the order stays; if an array has several updates, only the last one can be in place.
    Instructions with effects keep their order.
    """

    name: ClassVar[str] = "update-scheduler"
    optional: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        """Reorders the instructions; returns the number of updates moved behind readers."""
        effectful = effectful_computations(module)
        return sum(_Order(computation, effectful).run() for computation in run_computations(module))


class _Order:
    """The order of one computation, with the dependences between its instructions."""

    def __init__(self, computation: Computation, effectful: set[Computation]) -> None:
        self.computation = computation
        self.effectful = effectful
        self.position = {instruction: k for k, instruction in enumerate(computation.instructions)}
        self.readers: dict[Instruction, tuple[list[Instruction], Instruction]] = {}
        """The readers of updated arrays, in order, and the last of them that may change the array."""
        self.before: dict[Instruction, set[Instruction]] = {}
        self.after: dict[Instruction, list[Instruction]] = {}

    def run(self) -> int:
        """Reorders the computation; returns the number of updates moved."""
        pairs = [(update, array) for update in self.position for array in updated(update)]
        late_readers = [(update, readers) for update, array in pairs if (readers := self._late_readers(update, array))]
        if not late_readers:
            return 0
        self.before = predecessors(self.computation.instructions, self.effectful)
        self.after = successors(self.before)
        changes = sum(self._order_before(readers, update) for update, readers in late_readers)
        if changes:
            root = self.computation.root
            self.computation.instructions = self._sorted()
            self.computation.root = root
        return changes

    def _late_readers(self, update: Instruction, array: Instruction) -> list[Instruction]:
        """Returns the readers of an updated array that follow the update; none if one of them updates it as well."""
        if array not in self.readers:
            readers = sorted({*_readers(array)}, key=self.position.__getitem__)
            changing = [r for r in readers if isinstance(r.op, Tuple) or array in updated(r)]
            self.readers[array] = readers, changing[-1]  # the update, or a tuple that it reads, is one of them
        readers, last = self.readers[array]
        position = self.position[update]
        if position < self.position[last]:
            return []
        return [reader for reader in readers if self.position[reader] > position]

    def _order_before(self, readers: list[Instruction], update: Instruction) -> bool:
        """Adds dependences of the update on the readers, unless one of them depends on the update."""
        if not self._is_independent(set(readers), update):
            return False
        for reader in readers:
            if reader not in self.before[update]:
                self.before[update].add(reader)
                self.after[reader].append(update)
        return True

    def _is_independent(self, readers: set[Instruction], update: Instruction) -> bool:
        seen, stack = {update}, [update]
        while stack:
            for following in self.after[stack.pop()]:
                if following in readers or len(seen) > MAX_SEARCH:
                    return False
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return True

    def _sorted(self) -> list[Instruction]:
        """Returns the instructions in topological order, with ties resolved by the old order."""
        unscheduled = {instruction: len(needed) for instruction, needed in self.before.items()}
        instructions = list(self.position)
        ready = [k for instruction, k in self.position.items() if not unscheduled[instruction]]
        heapify(ready)
        result: list[Instruction] = []
        while ready:
            instruction = instructions[heappop(ready)]
            result.append(instruction)
            for following in self.after[instruction]:
                unscheduled[following] -= 1
                if not unscheduled[following]:
                    heappush(ready, self.position[following])
        return result


def updated(instruction: Instruction) -> Iterator[Instruction]:
    """Yields the arrays, through reshapes, that an instruction may update in place."""
    op, operands = instruction.op, instruction.operands
    if isinstance(op, DynamicUpdateSlice):
        yield origin(operands[0])
    elif isinstance(op, Scatter):
        yield from map(origin, operands[: len(operands) // 2])
    elif isinstance(op, While):
        state = operands[0]
        yield from map(origin, state.operands if isinstance(state.op, Tuple) else operands)
    elif isinstance(op, Fusion):
        root = op.calls.root
        for last in root.operands if isinstance(root.op, Tuple) else (root,):
            source = origin(last.operands[0]).op if isinstance(last.op, DynamicUpdateSlice) else None
            if isinstance(source, Parameter):
                yield origin(operands[source.number])


def writes_most(update: Instruction) -> bool:
    """Whether an update writes most of its array, at constant indices, so that writing all of another array takes less
    than storing the part first: a step of a stencil with fixed edges.
    """
    if not isinstance(update.op, DynamicUpdateSlice):
        return False
    are_known = all(isinstance(start.op, Constant) for start in update.operands[2:])
    return are_known and 2 * update.operands[1].shape.element_count > update.shape.element_count


def origin(value: Instruction) -> Instruction:
    """Returns the instruction that owns the memory of a value: that of a reshape is its operand's."""
    while isinstance(value.op, View):
        (value,) = value.operands
    return value


def _readers(array: Instruction) -> Iterator[Instruction]:
    for user in array.users:
        if isinstance(user.op, View):
            yield from _readers(user)
        else:
            yield user
