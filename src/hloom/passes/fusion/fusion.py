"""Fusion: what can be computed element by element becomes one `fusion` instruction around its last step.

Which instructions write their value to memory is decided from the users to the operands. An instruction is computed
inside its users if that costs little more work than it saves in traffic:

- it is computed once for each element (its users end in one fusion), or is cheap enough to be computed again;
- a reduction is computed inside users that read its result along leading dimensions, where it can stand before the
  loop over the others: rows are read, reduced and used while they are in the cache. Or along all but short dimensions
  in the middle, whose loop then stands inside the one over vectors of columns. A fusion does it in one way.

Fusions over the same elements that share operands are then merged, so that each operand is read once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hloom.ir import Computation, Instruction, Module, post_order
from hloom.ops.attributes import FusionKind
from hloom.ops.control_flow import Fusion
from hloom.ops.slice import DynamicUpdateSlice
from hloom.ops.structure import GetTupleElement, Parameter, Tuple
from hloom.passes.costs import element_cost
from hloom.passes.edit import Edit, applied_computations, has_control_edges, runs_effects
from hloom.passes.fusion.sibling_fusion import merge_siblings
from hloom.passes.update_scheduler import origin
from hloom.shape import Shape

CanFuse = Callable[[Instruction], bool]

FREE = {"constant", "iota", "broadcast", "reshape", "bitcast", "transpose", "slice", "reverse", "copy"}
# Their first operand must lie in memory: it is read at places known at run time only, or changed in place.
READS_MEMORY = {"gather", "dynamic-update-slice"}
# These store their parts one by one and so are the last step of a fusion, but where a user knows which part it reads.
ROOT_ONLY = {"concatenate", "dynamic-update-slice"}

RECOMPUTED_COST = 12
"""Work for each element, in additions, that may be done again rather than stored and read."""
MAX_ROW = 1 << 14
MAX_COLUMN = 256
"""Vectors of as many rows stay in the cache."""
MIN_COLUMNS = 64
MIN_ROWS = 16
SMALL_REDUCTION = 8

AccessPattern = tuple[tuple[int, ...], ...]
"""How a user reads what holds a reduction: in any way, by rows, or by columns (an array's sizes, which are reduced)."""
ELEMENTWISE: AccessPattern = ()
BY_ROWS: AccessPattern = ((),)


@dataclass(frozen=True)
class FusionPass:
    """Fuses chains of element functions, reductions with what comes before and after them, and siblings.

    Needs a module without calls, simplified. Before -> after: instructions -> `fusion` instructions whose computations
    hold them. Instructions that `can_fuse` refuses, and those with effects or control edges, stay as they are.
    """

    name: ClassVar[str] = "fusion"
    optional: ClassVar[bool] = True
    can_fuse: CanFuse = field(compare=False)
    max_instructions: int = 400
    max_depth: int = 100
    """Instructions in a row: what looks at a fusion from its last step on goes so deep."""

    def run(self, module: Module) -> int:
        return sum(_ComputationFusion(self, module, computation).run() for computation in _running(module))


def reasons(options: FusionPass, module: Module) -> dict[Instruction, str]:
    """Why instructions of a module are not computed inside their users; those that are fused are left out.

    It says what `options` would decide on the module as it is: on one that was simplified, before its fusion.
    """
    found: dict[Instruction, str] = {}
    for computation in _running(module):
        found |= _ComputationFusion(options, module, computation).reasons()
    return found


def _running(module: Module) -> list[Computation]:
    """The computations that run instruction by instruction: what reductions and fusions call does not."""
    inside = applied_computations(module)
    return [computation for computation in module.computations if computation not in inside]


class _ComputationFusion:
    """Fusion of one computation."""

    def __init__(self, options: FusionPass, module: Module, computation: Computation) -> None:
        self.options = options
        self.module = module
        self.computation = computation
        self.order = {instruction: k for k, instruction in enumerate(computation.instructions)}
        self.fusible = {i for i in computation.instructions if self._is_fusible(i)}
        self.evaluations: dict[Instruction, float] = {}
        """How often an element of the instruction is computed, if it is computed inside its users."""
        self.roots: dict[Instruction, set[Instruction]] = {}
        """The instructions in memory whose computation an instruction is part of."""
        self.inlined: set[Instruction] = set()
        self.cost = self._chain_costs()
        self.reducing = self._find_reducing()
        self.sizes: dict[Instruction, int] = {}
        self.patterns: dict[Instruction, set[AccessPattern]] = {}
        """By the instructions in memory: the one way in which their reductions are read."""
        self.updated_arrays = {origin(i.operands[0]) for i in self.fusible if isinstance(i.op, DynamicUpdateSlice)}
        """The arrays that change in place."""
        self.conflicting_updates = {
            i for i in self.fusible if isinstance(i.op, DynamicUpdateSlice) and self._has_conflict(i)
        }
        """The updates that are computed from arrays that change: from other parts of their own, or from others."""
        self.depths: dict[Instruction, int] = {}
        """How many steps of its fusion follow an instruction at most."""

    def _is_fusible(self, instruction: Instruction) -> bool:
        if instruction.opcode in ("parameter", "tuple", "fusion") or has_control_edges(instruction):
            return False
        return self.options.can_fuse(instruction) and not runs_effects(instruction.op)

    def _has_conflict(self, update: Instruction) -> bool:
        """Whether the update is computed from other elements of its array, or from another array that changes.

        A kernel that reads the first and writes cannot work in place, and two kernels that each read what the other
        one writes have no order in which both do.
        """
        array, part, starts = origin(update.operands[0]), update.operands[1], update.operands[2:]
        seen, stack = {part}, [part]
        while stack and len(seen) < self.options.max_instructions:
            instruction = stack.pop()
            if instruction not in self.fusible or instruction.opcode in ROOT_ONLY:
                continue
            is_same_part = instruction.opcode == "dynamic-slice" and instruction.operands[1:] == starts
            is_same_part = is_same_part and instruction.shape.dimensions == part.shape.dimensions
            changing = self.updated_arrays.intersection(map(origin, instruction.operands))
            if changing - ({array} if is_same_part else set()):
                return True
            stack += [operand for operand in instruction.operands if operand not in seen]
            seen.update(instruction.operands)
        return False

    def _chain_costs(self) -> dict[Instruction, float]:
        """What one element costs with everything cheap before it computed along."""
        costs: dict[Instruction, float] = {}
        for instruction in self.computation.instructions:
            if instruction in self.fusible:
                before = sum(min(costs.get(o, 0.0), 200.0) for o in dict.fromkeys(instruction.operands))
                costs[instruction] = _own_cost(instruction) + before
        return costs

    def _find_reducing(self) -> set[Instruction]:
        """The instructions that would compute a reduction of more than a few steps, if all that can be were fused."""
        found: set[Instruction] = set()
        for instruction in self.computation.instructions:
            if instruction not in self.fusible:
                continue
            is_reduction = instruction.opcode in ("reduce", "reduce-window")
            if (is_reduction and _reduced_count(instruction) > SMALL_REDUCTION) or any(
                operand in found and _access_pattern(instruction, operand) is not None
                for operand in instruction.operands
            ):
                found.add(instruction)
        return found

    def run(self) -> int:
        self._decide_all()
        return self._build(self._groups())

    def reasons(self) -> dict[Instruction, str]:
        self._decide_all()
        rest = (i for i in self.computation.instructions if i not in self.inlined and i.opcode != "parameter")
        return {instruction: self._reason(instruction) for instruction in rest}

    def _reason(self, instruction: Instruction) -> str:
        users = list(instruction.users)
        if instruction not in self.fusible:
            return f"{instruction.opcode} has a kernel of its own, or runs others: no element function"
        if instruction is self.computation.root or not users:
            return "it is the result of the computation"
        for user in users:
            if user not in self.fusible:
                return f"its user %{user.name} ({user.opcode}) is no part of a fusion, and reads it from memory"
            if not self._can_compute(user, instruction):
                after = "; rows are not read whole and in order" if instruction in self.reducing else ""
                return f"its user %{user.name} ({user.opcode}) cannot compute its elements where it needs them{after}"
        evaluations = self._count_evaluations(instruction, users)
        roots = set().union(*(self.roots[user] for user in users))
        if 1 + max(self.depths[user] for user in users) > self.options.max_depth:
            return f"the fusion would be more than {self.options.max_depth} instructions deep"
        if len(self._access_patterns(instruction, users, roots)) > 1:
            return "the fusion would reduce in two ways: rows and columns, or columns of two kinds"
        if any(self.sizes[root] >= self.options.max_instructions for root in roots):
            return f"the fusion has {self.options.max_instructions} instructions already"
        names = ", ".join(sorted(f"%{root.name}" for root in roots)[:4])
        return (
            f"each element would be computed {max(evaluations, len(roots)):.3g} times, in {len(roots)} kernels "
            f"({names}), at {self.cost[instruction]:.3g} additions each: more than reading it again takes "
            f"({RECOMPUTED_COST})"
        )

    # Which instructions are computed inside their users

    def _decide_all(self) -> None:
        for instruction in reversed(self.computation.instructions):
            if instruction in self.fusible:
                self._decide(instruction)

    def _decide(self, instruction: Instruction) -> None:
        users = list(instruction.users)
        inline = (
            instruction is not self.computation.root
            and bool(users)
            and all(user in self.fusible for user in users)
            and all(self._can_compute(user, instruction) for user in users)
        )
        if inline:
            roots = set().union(*(self.roots[user] for user in users))
            evaluations = self._count_evaluations(instruction, users)
            depth = 1 + max(self.depths[user] for user in users)
            patterns = self._access_patterns(instruction, users, roots)
            inline = (
                depth <= self.options.max_depth and len(patterns) <= 1 and self._pays(instruction, roots, evaluations)
            )
        if not inline:
            self.depths[instruction] = 0
            self.patterns[instruction] = set()
            self.roots[instruction] = {instruction}
            self.evaluations[instruction] = 1.0
            self.sizes[instruction] = 1
            return
        self.inlined.add(instruction)
        self.depths[instruction] = depth
        self.roots[instruction] = roots
        self.evaluations[instruction] = max(1.0, evaluations)
        for root in roots:
            self.sizes[root] += 1
            self.patterns[root] = patterns

    def _access_patterns(
        self, instruction: Instruction, users: list[Instruction], roots: set[Instruction]
    ) -> set[AccessPattern]:
        """In which ways the fusions of these roots read reductions, with this instruction among them."""
        found = set().union(*(self.patterns[root] for root in roots))
        if instruction in self.reducing:
            found |= {pattern for user in users if (pattern := _access_pattern(user, instruction))}
        return found

    def _count_evaluations(self, instruction: Instruction, users: list[Instruction]) -> float:
        """How often an element is computed: once for all users that read it at the index that they compute."""
        same = [u for u in users if self._reads_same_index(u, instruction)]
        others = sum(self.evaluations[u] * self._average_reads(u, instruction) for u in users if u not in same)
        return others + max((self.evaluations[user] for user in same), default=0.0)

    def _reads_same_index(self, user: Instruction, operand: Instruction) -> bool:
        """Whether the user's elements come from those of the operand at the same place."""
        if user.opcode == "concatenate":
            return user in self.inlined  # into gathers, which know the piece
        if user.opcode == "reshape":
            return _without_ones(user.shape.dimensions) == _without_ones(operand.shape.dimensions)
        return user.op.elementwise and user.shape.dimensions == operand.shape.dimensions

    def _can_compute(self, user: Instruction, operand: Instruction) -> bool:
        """Whether the user can compute the operand's elements where it needs them."""
        if (
            user.opcode in READS_MEMORY
            and user.operands[0] is operand
            and operand.opcode not in ("broadcast", "constant")
        ):
            return False
        if (user in self.conflicting_updates or _is_padding(user)) and user.operands[1] is operand:
            return False
        if operand.opcode == "pad" or _is_padding(operand):
            return user.op.elementwise
        if operand.shape.is_tuple or (operand.opcode in ROOT_ONLY and not _reads_concatenated_indices(user, operand)):
            return False
        return operand not in self.reducing or _access_pattern(user, operand) is not None

    def _average_reads(self, user: Instruction, operand: Instruction) -> float:
        """How many elements of the operand one element of the user reads, on average over the operand."""
        size = max(1, operand.shape.element_count if operand.shape.is_array else 1)
        own = next(user.shape.leaves()).element_count
        if user.opcode in ("reduce", "concatenate", "reshape", "transpose"):
            return 1.0
        if user.opcode == "broadcast":
            # Computed before the loop over the other dimensions, or a few times that are written out.
            is_once = _row_length(user) is not None or own <= 4 * size
            by_columns = operand in self.reducing and _columns_of_broadcast(user) is not None
            return 1.0 if is_once or by_columns else own / size
        if user.opcode == "reduce-window":
            return own * math.prod(d.size for d in user.op.window) / size  # type: ignore[attr-defined]
        if user.op.elementwise and not operand.shape.dimensions:
            return 1.0
        if user.opcode == "dynamic-update-slice":
            return 1.0
        return min(1.0, own / size) if user.opcode in ("slice", "dynamic-slice") else own / size

    def _pays(self, instruction: Instruction, roots: set[Instruction], evaluations: float) -> bool:
        if any(self.sizes[root] >= self.options.max_instructions for root in roots):
            return False
        if instruction.opcode in ("constant", "iota") or (
            instruction.shape.is_scalar and self._is_free_chain(instruction)
        ):
            return True
        if len(roots) == 1 and (evaluations <= 1.5 or self._is_kept_along_rows(instruction, evaluations)):
            return True
        if instruction in self.reducing:
            return False
        count = evaluations if len(roots) == 1 else max(evaluations, float(len(roots)))
        return self.cost[instruction] * (count - 1.0) <= RECOMPUTED_COST

    def _is_free_chain(self, instruction: Instruction) -> bool:
        return self.cost[instruction] <= RECOMPUTED_COST

    def _is_kept_along_rows(self, instruction: Instruction, evaluations: float) -> bool:
        """Several uses in one fusion of rows: the value is kept for the row, or is computed together with itself."""
        return evaluations <= 8.0 and all(_access_pattern(user, instruction) is not None for user in instruction.users)

    # Groups: the instructions in memory, and which of them share a fusion

    def _groups(self) -> list[list[Instruction]]:
        """The last steps of each fusion: alone, or with siblings over the same elements."""
        roots = [i for i in self.computation.instructions if i in self.fusible and i not in self.inlined]
        merged = merge_siblings(roots, self._members, self.order, self._may_merge, self.options.max_instructions)
        return [group for group in merged if self._is_worth_fusing(group)]

    def _may_merge(self, root: Instruction) -> bool:
        by_columns = bool(self.patterns[root] - {BY_ROWS})
        return root.opcode not in ROOT_ONLY and root.shape.is_array and bool(root.shape.dimensions) and not by_columns

    def _is_worth_fusing(self, group: list[Instruction]) -> bool:
        """A single instruction is a kernel as it is."""
        return len(group) > 1 or any(operand in self.inlined for operand in group[0].operands)

    def _build(self, groups: list[list[Instruction]]) -> int:
        if not groups:
            return 0
        edit = Edit(self.computation)
        for group in groups:
            self._fuse(edit, group)
        edit.finish()
        # Operands before users again: a fusion stands where the last of its members stood.
        self.computation.instructions = post_order(self.computation)
        return len(groups)

    def _fuse(self, edit: Edit, group: list[Instruction]) -> None:
        """Moves a copy of everything computed inside the group into a computation, and calls it."""
        members = self._members(group)
        fused = Computation(self._fresh_name())
        new: dict[Instruction, Instruction] = {}
        operands: list[Instruction] = []
        bodies: list[Instruction] = []
        for member in members:
            for operand in member.operands:
                if operand not in members and operand not in new:
                    name = f"param_{len(operands)}"
                    new[operand] = fused.add(Instruction(name, operand.shape, Parameter(number=len(operands))))
                    operands.append(operand)
            copy = Instruction(member.name, member.shape, member.op, [new[o] for o in member.operands])
            copy.metadata, copy.location = dict(member.metadata), member.location
            new[member] = copy
            bodies.append(copy)
        for copy in bodies:
            fused.add(copy)
        last = group[-1]
        if len(group) == 1:
            fused.root = new[group[0]]
            shape = group[0].shape
        else:
            shape = Shape.tuple_of(root.shape for root in group)
            fused.root = fused.add(Instruction("tuple", shape, Tuple(), [new[root] for root in group]))
        self.module.add(fused)
        self.module.computations.insert(0, self.module.computations.pop())
        op = Fusion(kind=_kind(group), calls=fused)
        fusion = edit.add(op, operands, shape, last)
        if len(group) == 1:
            edit.replace(group[0], fusion)
            return
        for position, root in enumerate(group):
            part = edit.add(GetTupleElement(index=position), [fusion], root.shape, last)
            edit.replace(root, part)

    def _members(self, group: list[Instruction]) -> dict[Instruction, None]:
        """The instructions that the group computes, operands first."""
        found: set[Instruction] = set()
        stack = list(group)
        while stack:
            instruction = stack.pop()
            if instruction not in found:
                found.add(instruction)
                stack += [o for o in instruction.operands if o in self.inlined]
        return dict.fromkeys(sorted(found, key=self.order.__getitem__))

    def _fresh_name(self) -> str:
        return f"fused_computation.{len(self.module.computations)}"


def _is_padding(instruction: Instruction) -> bool:
    """Whether an update is the only part of an array that is not one value: an element is read or is that value."""
    return instruction.opcode == "dynamic-update-slice" and instruction.operands[0].opcode == "broadcast"


def _reads_concatenated_indices(user: Instruction, operand: Instruction) -> bool:
    """Whether a gather reads its start indices, each from one of the operands of a concatenation."""
    if user.opcode != "gather" or operand.opcode != "concatenate" or user.operands[0] is operand:
        return False
    return bool(operand.op.dimension == user.op.index_vector_dim)  # type: ignore[attr-defined]


def _own_cost(instruction: Instruction) -> float:
    if instruction.opcode in FREE:
        return 0.0
    if instruction.opcode in ("reduce", "reduce-window"):
        return float(_reduced_count(instruction))
    if instruction.opcode == "map":
        return 20.0
    return float(6 if instruction.opcode == "gather" else element_cost(instruction.opcode))


def _reduced_count(instruction: Instruction) -> int:
    op: Any = instruction.op
    if instruction.opcode == "reduce-window":
        return math.prod(d.size for d in op.window)
    sizes = instruction.operands[0].shape.dimensions
    return math.prod(sizes[d] for d in op.dimensions)


def _access_pattern(user: Instruction, operand: Instruction) -> AccessPattern | None:
    """How the user reads elements of an operand that holds a reduction; None where it would be computed often."""
    sizes = operand.shape.dimensions
    if user.op.elementwise:
        return ELEMENTWISE
    if user.opcode == "broadcast":
        rest, rows = _row_length(user), math.prod(sizes)
        if rest is not None and rest <= MAX_ROW and (rows >= MIN_ROWS or rest * rows <= 4096):
            return BY_ROWS
        return _columns_of_broadcast(user)
    if user.opcode == "reduce":
        reduced = tuple(user.op.dimensions)  # type: ignore[attr-defined]
        if user.operands[0] is not operand:
            return None
        kept = [d for d in range(len(sizes)) if d not in reduced]
        return BY_ROWS if _are_leading(kept, sizes) else _column_pattern(sizes, reduced)
    is_same = user.opcode == "reshape" and _without_ones(sizes) == _without_ones(user.shape.dimensions)
    return ELEMENTWISE if is_same else None


def _columns_of_broadcast(broadcast: Instruction) -> AccessPattern | None:
    dimensions, sizes = broadcast.op.broadcast_dimensions, broadcast.shape.dimensions  # type: ignore[attr-defined]
    in_order = list(dimensions) == sorted(dimensions)
    return _column_pattern(sizes, [d for d in range(len(sizes)) if d not in dimensions]) if in_order else None


def _column_pattern(sizes: tuple[int, ...], reduced: Sequence[int]) -> AccessPattern | None:
    """By columns, where few dimensions are reduced and there are many columns behind them."""
    reduced_dimensions = [d for d in sorted(reduced) if sizes[d] > 1]
    if not reduced_dimensions or math.prod(sizes[d] for d in reduced_dimensions) > MAX_COLUMN:
        return None
    behind = math.prod(sizes[reduced_dimensions[-1] + 1 :])
    return (sizes, tuple(reduced_dimensions)) if behind >= MIN_COLUMNS else None


def _row_length(broadcast: Instruction) -> int | None:
    """How often each element of the operand follows itself; None where they come in another order."""
    dimensions, sizes = broadcast.op.broadcast_dimensions, broadcast.shape.dimensions  # type: ignore[attr-defined]
    if not _are_leading(dimensions, sizes):
        return None
    return math.prod(size for d, size in enumerate(sizes) if d not in dimensions)


def _are_leading(dimensions: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether these dimensions, in order, come before all others; those of size 1 may stand anywhere."""
    wide = [d for d, size in enumerate(sizes) if size > 1]
    chosen = [d for d in dimensions if sizes[d] > 1]
    return chosen == wide[: len(chosen)]


def _without_ones(sizes: tuple[int, ...]) -> list[int]:
    return [size for size in sizes if size != 1]


def _kind(group: list[Instruction]) -> FusionKind:
    return FusionKind.LOOP if all(root.opcode != "reduce" for root in group) else FusionKind.INPUT
