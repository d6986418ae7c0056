"""Edit: changes to a computation whose list of instructions is rebuilt once; and queries that passes share.

Removing instructions from the list one by one would make passes quadratic. With an edit each change takes time
proportional to the instructions that it touches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.control_flow import While
from hloom.ops.operation import Operation
from hloom.ops.reshape import Bitcast, Copy, Reshape
from hloom.ops.structure import Constant, Parameter
from hloom.ops.traits import ControlFlow
from hloom.shape import Shape


class Edit:
    """Changes to one computation: instructions added, replaced and removed. `finish` must be called at the end.

    Until then the list `computation.instructions` still contains removed instructions and lacks new ones; operands,
    users and the root are up to date at any time.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        computation.root = computation.root
        self.removed: set[Instruction] = set()
        self._before: dict[Instruction, list[Instruction]] = {}
        self._names: set[str] = set()
        self._number = 0

    def add(self, op: Operation, operands: Iterable[Instruction], shape: Shape, like: Instruction) -> Instruction:
        """Adds an instruction before `like`, the instruction that it replaces or computes an operand of.

        It gets the metadata and location of `like`.
        """
        instruction = Instruction(self.unique_name(op.opcode), shape, op, operands)
        instruction.parent = self.computation
        instruction.metadata = like.metadata.copy()
        instruction.location = like.location
        self._before.setdefault(like, []).append(instruction)
        return instruction

    def made_for(self, instruction: Instruction) -> Sequence[Instruction]:
        """Returns the instructions that were added with `like=instruction`, in order."""
        return self._before.get(instruction, ())

    def unique_name(self, base: str) -> str:
        """Returns a name, such as `base.12`, that no instruction of the computation has."""
        if not self._names:
            self._names = {instruction.name for instruction in self.computation.instructions}
            self._number = len(self._names)
        while (name := f"{base}.{self._number}") in self._names:
            self._number += 1
        self._number += 1
        self._names.add(name)
        return name

    def replace(self, old: Instruction, new: Instruction) -> list[Instruction]:
        """Redirects all uses of `old` to `new`, and removes `old` and its operands if they become unused.

        Returns the removed instructions.
        """
        self.redirect(old, new)
        return self.remove_unused(old)

    def redirect(self, old: Instruction, new: Instruction) -> None:
        """Makes all users of `old`, and the root, refer to `new`; bitcasts read a copy of it in the layout of `old`."""
        if new.shape != old.shape:
            for user in [user for user in old.users if isinstance(user.op, Bitcast) and user is not new]:
                user.replace_operand(0, self.add(Copy(), [new], old.shape, user))
        old.replace_all_uses_with(new)

    def remove(self, instruction: Instruction) -> None:
        """Removes an instruction without users, even if it has effects or control edges."""
        self.removed.add(instruction)
        instruction.disconnect()

    def remove_unused(self, instruction: Instruction) -> list[Instruction]:
        """Removes an instruction if it is unused and has no effects, and then its operands by the same rule.

        Returns the removed instructions.
        """
        stack, removed = [instruction], list[Instruction]()
        while stack:
            candidate = stack.pop()
            if candidate in self.removed or not self._is_unused(candidate):
                continue
            self.remove(candidate)
            removed.append(candidate)
            stack += [operand for operand in candidate.operands if not operand.users]
        return removed

    def _is_unused(self, instruction: Instruction) -> bool:
        return not (
            instruction.users
            or instruction is self.computation.root
            or isinstance(instruction.op, Parameter)
            or has_control_edges(instruction)
            or runs_effects(instruction.op)
        )

    def finish(self) -> None:
        """Removes new instructions that are unused, and rebuilds the list of instructions."""
        if not self._before and not self.removed:
            return
        for made in [*self._before.values()]:
            for instruction in reversed(made):
                if not instruction.users:
                    self.remove_unused(instruction)
        self.computation.instructions = [*self.instructions()]

    def instructions(self) -> Iterator[Instruction]:
        """Yields the current instructions, operands before users."""
        for instruction in self.computation.instructions:
            if instruction in self._before:
                yield from self._made_before(instruction)
            if instruction not in self.removed:
                yield instruction

    def _made_before(self, instruction: Instruction) -> Iterator[Instruction]:
        """Yields the new instructions before one, each after those before itself."""
        stack, opened = self._before[instruction][::-1], set[Instruction]()
        while stack:
            made = stack.pop()
            if made in self._before and made not in opened:
                opened.add(made)
                stack.append(made)
                stack += reversed(self._before[made])
            elif made not in self.removed:
                yield made


def has_control_edges(instruction: Instruction) -> bool:
    """Whether the instruction is ordered by control edges; passes then leave it alone."""
    return bool(instruction.control_predecessors or instruction.control_successors)


def is_dynamic(instruction: Instruction) -> bool:
    """Whether the result or an operand has dynamic dimensions."""
    return instruction.shape.is_dynamic or any(shape.is_dynamic for shape in instruction.operand_shapes)


def constant_value(instruction: Instruction) -> Any:
    """Returns the value of a constant; None for other instructions."""
    return instruction.op.literal.value if isinstance(instruction.op, Constant) else None


def reshape_chain(instruction: Instruction) -> list[Instruction]:
    """Returns the instruction, the array that it reshapes if it is a reshape, and so on."""
    chain = [instruction]
    while isinstance(chain[-1].op, Reshape):
        chain += chain[-1].operands
    return chain


def is_filled(array: Instruction, number: float) -> bool:
    """Whether all elements of an array are a number, which may be NaN, of a constant."""
    while isinstance(array.op, Broadcast):
        (array,) = array.operands
    value = constant_value(array)
    return value is not None and bool(np.all(value != value if math.isnan(number) else value == number))


def counts_along_last(array: Instruction) -> bool:
    """Whether elements are 0, 1, 2 .. along the last dimension."""
    last = array.shape.rank - 1
    if isinstance(array.op, Broadcast):
        return array.op.broadcast_dimensions == (last,) and counts_along_last(array.operands[0])
    return isinstance(array.op, Iota) and array.op.iota_dimension == last


def keeps_order(instruction: Instruction) -> bool:
    """Whether the result has the operand's elements in their order, in other dimensions: a reshape, or a broadcast that
    adds dimensions of size 1.
    """
    if isinstance(instruction.op, Broadcast):
        dimensions, (operand,) = instruction.op.broadcast_dimensions, instruction.operands
        return operand.shape.element_count == instruction.shape.element_count and [*dimensions] == sorted(dimensions)
    return isinstance(instruction.op, Reshape)


def calls(op: Operation) -> Sequence[Computation]:
    """Returns the computations that an operation calls."""
    return [*op.computations] if op.calling_fields else ()


def applied_computations(module: Module) -> set[Computation]:
    """Returns the computations that reductions, sorts, fusions and the like call, but not those of control flow."""
    return {c for i in module.instructions() if not isinstance(i.op, ControlFlow) for c in calls(i.op)}


def edits(computations: Iterable[Computation]) -> Iterator[Edit]:
    """Yields an edit of each computation, and finishes it before the next one."""
    for computation in computations:
        edit = Edit(computation)
        yield edit
        edit.finish()


def running_computations(module: Module) -> list[Computation]:
    """Returns the computations that run instruction by instruction, unlike those that reductions and fusions apply."""
    applied = applied_computations(module)
    return [computation for computation in module.computations if computation not in applied]


def runs_effects(op: Operation) -> bool:
    """Whether the operation, or an instruction in a computation that it calls, has a side effect (GEN-11)."""
    if op.has_side_effect or not op.calling_fields:
        return op.has_side_effect
    reached = {c for called in op.computations for c in callees_first(called)}
    return any(i.op.has_side_effect for computation in reached for i in computation.instructions)


def effectful_computations(module: Module) -> set[Computation]:
    """Returns the computations that contain an instruction with a side effect, directly or in a callee (GEN-11)."""
    found: set[Computation] = set()
    if not any(i.op.has_side_effect for i in module.instructions()):
        return found
    for computation in callees_first_of(module):
        calling = [i for i in computation.instructions if i.op.has_side_effect or i.op.calling_fields]
        if any(has_effect(instruction, found) for instruction in calling):
            found.add(computation)
    return found


def has_effect(instruction: Instruction, effectful: Set[Computation]) -> bool:
    """Whether the instruction, or a computation that it calls, has a side effect, given `effectful_computations`."""
    op = instruction.op
    if op.has_side_effect or not op.calling_fields:
        return op.has_side_effect
    return any(computation in effectful for computation in op.computations)


def callees_first_of(module: Module) -> list[Computation]:
    """Returns all computations of a module, each after those that it calls."""
    return callees_first(*module.computations)


def loops_of(module: Module) -> list[Instruction]:
    """Returns the while instructions of a module, inner loops first."""
    if not any(isinstance(i.op, While) for i in module.instructions()):
        return []
    return [i for c in callees_first_of(module) for i in c.instructions if isinstance(i.op, While)]


def inlined_size(computation: Computation, sizes: Mapping[Computation, int]) -> int:
    """Number of instructions of a computation if calls, loops and conditionals are counted with their callees.

    `sizes` has this number for the callees. It may be exponential in the number of computations if they share callees.
    """
    run = (c for i in computation.instructions if isinstance(i.op, ControlFlow) for c in i.op.computations)
    return len(computation.instructions) + sum(sizes[c] for c in run)


def callers(module: Module) -> dict[Computation, list[Instruction]]:
    """Returns the instructions that call each computation."""
    found: dict[Computation, list[Instruction]] = {computation: [] for computation in module.computations}
    for instruction in module.instructions():
        for computation in calls(instruction.op):
            found[computation].append(instruction)
    return found


def copy_annotations(old: Instruction, new: Instruction) -> None:
    """Copies frontend attributes, extra attributes, sharding and backend configuration to another instruction."""
    if old.frontend_attributes or old.extra_attributes:
        new.frontend_attributes, new.extra_attributes = dict(old.frontend_attributes), dict(old.extra_attributes)
    new.sharding, new.backend_config = old.sharding, old.backend_config


class Copies:
    """Copies of called computations in one computation, whose callers are visited in order.

    Of an instruction without effects there is one copy for the same operands.
    """

    def __init__(self, effectful: Set[Computation]) -> None:
        self.effectful = effectful
        self._known: dict[tuple[Instruction, ...], Instruction] = {}
        self.results: dict[Instruction, Instruction] = {}
        """The results of callers that have been replaced."""
        self._may_share: dict[Instruction, bool] = {}

    def final(self, value: Instruction) -> Instruction:
        """Returns the result of a caller that has been replaced; any other instruction unchanged."""
        while value in self.results:
            value = self.results[value]
        return value

    def find(self, old: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """Returns the copy of an instruction that was added with these operands; None if there is none."""
        return self._known.get((old, *operands))

    def add(self, old: Instruction, operands: Sequence[Instruction], copy: Instruction) -> None:
        """Keeps a copy, unless others of the instruction may have other values or effects."""
        if old not in self._may_share:
            is_free = not (old.op.is_pinned or old.shape.is_token or has_control_edges(old))
            self._may_share[old] = is_free and not has_effect(old, self.effectful)
        if self._may_share[old]:
            self._known[old, *operands] = copy


def copy_into(
    edit: Edit,
    callee: Computation,
    arguments: Sequence[Instruction],
    caller: Instruction,
    copies: Copies | None = None,
) -> Instruction:
    """Copies the instructions of `callee` before `caller`, with arguments for parameters; returns the copied root.

    Copies keep their metadata; instructions without metadata get that of the caller. `copies` has those that are there
    already.
    """
    new: dict[Instruction, Instruction] = {}
    made: dict[Instruction, Instruction] = {}
    for old in callee.instructions:
        if isinstance(old.op, Parameter):
            new[old] = arguments[old.op.number]
            continue
        sources = [new[operand] for operand in old.operands]
        if copies is not None and (known := copies.find(old, sources)) is not None:
            new[old] = known
            continue
        operands = sources if copies is None else [copies.final(source) for source in sources]
        if isinstance(old.op, Bitcast) and operands[0].shape != old.operands[0].shape:
            operands = [edit.add(Copy(), operands, old.operands[0].shape, caller)]
        copy = edit.add(old.op, operands, old.shape, caller)
        if old.metadata:
            copy.metadata = old.metadata.copy()
        copy.location = old.location or caller.location
        copy_annotations(old, copy)
        new[old] = made[old] = copy
        if copies is not None:
            copies.add(old, sources, copy)
    for old, copy in made.items():
        for before in old.control_predecessors:
            new[before].add_control_dependency(copy)
    root = new[callee.root]
    return root if copies is None else copies.final(root)
