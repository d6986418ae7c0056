"""Editing computations: `Edit` collects changes to one computation and puts its list of instructions right once.

Taking instructions out of a list one by one would make passes quadratic; here each change costs what it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.operation import Operation
from hloom.shape import Shape


class Edit:
    """Changes to one computation: instructions added and replaced. `finish` must be called at the end.

    Until then the list `computation.instructions` still has instructions that are gone and lacks those that are new;
    operands, users and the root are right at any time.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        computation.root = computation.root
        self.removed: set[Instruction] = set()
        self._before: dict[Instruction, list[Instruction]] = {}
        self._names: set[str] = set()

    def add(self, op: Operation, operands: Iterable[Instruction], shape: Shape, like: Instruction) -> Instruction:
        """A new instruction, listed before `like` and with its metadata: the one that it replaces or works for."""
        instruction = Instruction(self.unique_name(op.opcode), shape, op, operands)
        instruction.parent = self.computation
        instruction.metadata = dict(like.metadata)
        instruction.location = like.location
        self._before.setdefault(like, []).append(instruction)
        return instruction

    def made_for(self, instruction: Instruction) -> Sequence[Instruction]:
        """The new instructions that were added before this one."""
        return self._before.get(instruction, ())

    def unique_name(self, base: str) -> str:
        """A name like `base.12` that no instruction of the computation has."""
        if not self._names:
            self._names = {instruction.name for instruction in self.computation.instructions}
        suffix = len(self._names)
        while (name := f"{base}.{suffix}") in self._names:
            suffix += 1
        self._names.add(name)
        return name

    def replace(self, old: Instruction, new: Instruction) -> None:
        """Users of `old` read `new`; what is unused then is removed."""
        old.replace_all_uses_with(new)
        self.remove_unused(old)

    def remove(self, instruction: Instruction) -> None:
        """Removes an instruction that has no users, whatever it is."""
        self.removed.add(instruction)
        for operand in instruction.operands:
            operand.users.pop(instruction, None)

    def remove_unused(self, instruction: Instruction) -> None:
        """Removes an instruction that nobody needs, and the operands that only it needed."""
        stack = [instruction]
        while stack:
            candidate = stack.pop()
            if candidate in self.removed or not self._is_unused(candidate):
                continue
            self.remove(candidate)
            stack += candidate.operands

    def _is_unused(self, instruction: Instruction) -> bool:
        return not (
            instruction.users
            or instruction is self.computation.root
            or instruction.opcode == "parameter"
            or has_control_edges(instruction)
            or runs_effects(instruction.op)
        )

    def finish(self) -> None:
        """Lists what there is now: new instructions stand before those that they were made for."""
        if not self._before and not self.removed:
            return
        for made in [*self._before.values()]:
            for instruction in reversed(made):
                self.remove_unused(instruction)
        self.computation.instructions = [*self.instructions()]

    def instructions(self) -> Iterator[Instruction]:
        """The instructions that there are now, operands before users."""
        stack = self.computation.instructions[::-1]
        waiting = dict(self._before)
        while stack:
            instruction = stack.pop()
            before = waiting.pop(instruction, None)
            if before:
                stack.append(instruction)
                stack += reversed(before)
            elif instruction not in self.removed:
                yield instruction


def has_control_edges(instruction: Instruction) -> bool:
    """True where the order of the instruction among others matters: passes leave it where it is."""
    return bool(instruction.control_predecessors or instruction.control_successors)


def is_dynamic(instruction: Instruction) -> bool:
    """Whether the result or an operand has dynamic dimensions."""
    return instruction.shape.is_dynamic or any(shape.is_dynamic for shape in instruction.operand_shapes)


def is_control_flow(instruction: Instruction) -> bool:
    """Whether the instruction runs the computations that it calls as they are, rather than on elements."""
    return instruction.opcode in ("call", "conditional", "while")


def calls(op: Operation) -> Sequence[Computation]:
    """The computations that an operation calls."""
    return [*op.computations] if op.calling_fields else ()


def applied_computations(module: Module) -> set[Computation]:
    """The computations that instructions apply to elements: of reductions, sorts, fusions, not of control flow."""
    return {c for i in module.instructions() if not is_control_flow(i) for c in calls(i.op)}


def runs_effects(op: Operation) -> bool:
    """True where the operation, or something in the computations that it calls, has an effect (GEN-11)."""
    if op.has_side_effect or not op.calling_fields:
        return op.has_side_effect
    reached = {c for called in op.computations for c in callees_first(called)}
    return any(i.op.has_side_effect for computation in reached for i in computation.instructions)


def effectful_computations(module: Module) -> set[Computation]:
    """The computations that must run even if nothing reads their value, since something in them has an effect."""
    found: set[Computation] = set()
    for computation in callees_first_of(module):
        calling = [i for i in computation.instructions if i.op.has_side_effect or i.op.calling_fields]
        if any(has_effect(instruction, found) for instruction in calling):
            found.add(computation)
    return found


def has_effect(instruction: Instruction, effectful: set[Computation]) -> bool:
    """As `runs_effects`, where the effectful computations of the module are known."""
    op = instruction.op
    if op.has_side_effect or not op.calling_fields:
        return op.has_side_effect
    return any(computation in effectful for computation in op.computations)


def callees_first_of(module: Module) -> list[Computation]:
    """All computations of a module, each after those that it calls."""
    return callees_first(*module.computations)


def loops_of(module: Module) -> list[Instruction]:
    """The whiles of a module, inner ones first."""
    return [i for c in callees_first_of(module) for i in c.instructions if i.opcode == "while"]


def inlined_size(computation: Computation, sizes: Mapping[Computation, int]) -> int:
    """How many instructions a computation would have if calls, loops and conditionals held what they run.

    `sizes` has this of those that it calls. Where computations share callees it may be exponential in their number.
    """
    run = (c for i in computation.instructions if is_control_flow(i) for c in i.op.computations)
    return len(computation.instructions) + sum(sizes[c] for c in run)


def callers(module: Module) -> dict[Computation, list[Instruction]]:
    """For each computation the instructions that call it."""
    found: dict[Computation, list[Instruction]] = {computation: [] for computation in module.computations}
    for instruction in module.instructions():
        for computation in calls(instruction.op):
            found[computation].append(instruction)
    return found


def copy_annotations(old: Instruction, new: Instruction) -> None:
    """Gives an instruction what another one carries beside operation, operands and metadata."""
    new.frontend_attributes, new.extra_attributes = dict(old.frontend_attributes), dict(old.extra_attributes)
    new.sharding, new.backend_config = old.sharding, old.backend_config


def copy_into(edit: Edit, callee: Computation, arguments: Sequence[Instruction], caller: Instruction) -> Instruction:
    """Copies the instructions of a computation behind an edit, parameters replaced; gives the copy of its root.

    The copies keep their metadata; those without take the caller's.
    """
    new: dict[Instruction, Instruction] = {}
    for old in callee.instructions:
        if old.opcode == "parameter":
            new[old] = arguments[old.op.number]  # type: ignore[attr-defined]
            continue
        copy = edit.add(old.op, [new[operand] for operand in old.operands], old.shape, caller)
        copy.metadata = dict(old.metadata or caller.metadata)
        copy.location = old.location or caller.location
        copy_annotations(old, copy)
        new[old] = copy
    for old, copy in new.items():
        for before in old.control_predecessors:
            new[before].add_control_dependency(copy)
    return new[callee.root]
