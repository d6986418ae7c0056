"""fusion: producers that can be computed element by element become part of the kernels of their consumers.

The pass visits users before operands and decides for each instruction whether its value is stored in memory. A value is
computed inside its users if this saves more memory traffic than it costs in repeated work:

- Each element is computed once, because all users end up in one fusion, or is cheap enough to be computed again.
- A reduction is fused with users that read its result along leading dimensions. Its loop then precedes the loop over
  the other dimensions, and each row is read, reduced and used while it is in the cache. A reduction of short dimensions
  in the middle is fused too; its loop is then inside the loop over vectors of columns. All reductions of a fusion have
  the same access pattern.

Fusions over the same elements that share operands are then merged (`sibling_fusion.py`), so that each operand is read
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module, post_order
from hloom.ops.attributes import FusionKind
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.control_flow import Fusion
from hloom.ops.gather import Gather
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.reshape import Reshape
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice, Slice
from hloom.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.ops.transpose import Transpose
from hloom.passes.edit import Edit, applied_computations, has_control_edges, runs_effects
from hloom.passes.fusion.access_patterns import (
    BY_ROWS,
    AccessPattern,
    access_pattern,
    columns_of_broadcast,
    row_length,
    without_ones,
)
from hloom.passes.fusion.sibling_fusion import merge_siblings
from hloom.passes.optimize.update_scheduler import origin
from hloom.shape import Shape

CanFuse = Callable[[Instruction], bool]
"""Whether the target can compute an instruction element by element."""

_READS_MEMORY = (Gather, DynamicUpdateSlice)
"""Operations whose first operand must be in memory: it is read at run-time indices, or updated in place."""
_ROOT_ONLY = (Concatenate, DynamicUpdateSlice)
"""Operations that store their operands one after the other, and so are roots of fusions, except where a user knows
which operand it reads."""
_READS_ONCE = (Concatenate, DynamicUpdateSlice, Reduce, Reshape, Transpose)
"""Operations that read each element of an operand once."""

RECOMPUTED_COST = 12
"""Cost of an element, in additions, up to which computing it again is cheaper than storing and reading it."""
SMALL_REDUCTION = 8
"""Elements up to which a reduction is fused like an element-wise operation."""


@dataclass(frozen=True)
class FusionPass:
    """Fuses element-wise producers and reductions into their consumers, and sibling fusions with each other.

    Needs a simplified module without calls. Before -> after: instructions -> `fusion` instructions whose computations
    contain them. Instructions that `can_fuse` refuses, and those with effects or control edges, are left alone.
    """

    name: ClassVar[str] = "fusion"
    optional: ClassVar[bool] = True
    can_fuse: CanFuse = field(compare=False)
    max_instructions: int = 400
    max_depth: int = 100
    """Length of the longest chain of instructions in a fusion: code generation recurses along it."""

    def run(self, module: Module) -> int:
        """Fuses the instructions of each computation; returns the number of fusions created."""
        return sum(_ComputationFusion(self, module, computation).run() for computation in _running(module))


def reasons(options: FusionPass, module: Module) -> dict[Instruction, str]:
    """Explains for each instruction that would stay unfused why it is not computed inside its users.

    The decisions are those that `options` would make on this module, which should be simplified but not fused yet.
    """
    found: dict[Instruction, str] = {}
    for computation in _running(module):
        found |= _ComputationFusion(options, module, computation).reasons()
    return found


def _running(module: Module) -> list[Computation]:
    """Computations that run instruction by instruction, in contrast to those that reductions and fusions apply."""
    inside = applied_computations(module)
    return [computation for computation in module.computations if computation not in inside]


class _ComputationFusion:
    """The state of fusing one computation."""

    def __init__(self, options: FusionPass, module: Module, computation: Computation) -> None:
        self.options = options
        self.module = module
        self.computation = computation
        self.order = {instruction: k for k, instruction in enumerate(computation.instructions)}
        self.fusible = {i for i in computation.instructions if self._is_fusible(i)}
        self.evaluations: dict[Instruction, float] = {}
        """Average number of times that an element is computed; 1 for instructions in memory."""
        self.roots: dict[Instruction, set[Instruction]] = {}
        """The roots of the fusions that compute an instruction; itself for an instruction in memory."""
        self.inlined: set[Instruction] = set()
        """Instructions that are computed inside their users."""
        self.cost = self._chain_costs()
        self.reducing = self._find_reducing()
        self.sizes: dict[Instruction, int] = {}
        """Number of instructions in the fusion of each root."""
        self.patterns: dict[Instruction, set[AccessPattern]] = {}
        """The access pattern of the reductions in the fusion of each root: a set of at most one."""
        self.updated_arrays = {origin(i.operands[0]) for i in self.fusible if isinstance(i.op, DynamicUpdateSlice)}
        """Arrays that are updated in place."""
        self.conflicting_updates = {
            i for i in self.fusible if isinstance(i.op, DynamicUpdateSlice) and self._has_conflict(i)
        }
        """Updates that must not be fused with the computation of the values that they write."""
        self.depths: dict[Instruction, int] = {}
        """Length of the longest chain of instructions from an instruction to a root of its fusions."""

    def _is_fusible(self, instruction: Instruction) -> bool:
        if isinstance(instruction.op, (Parameter, Tuple, Fusion)) or has_control_edges(instruction):
            return False
        return self.options.can_fuse(instruction) and not runs_effects(instruction.op)

    def _has_conflict(self, update: Instruction) -> bool:
        """Whether the written values depend on other elements of the updated array, or on another updated array.

        A kernel that reads other elements of the array that it writes cannot update it in place. Two kernels that each
        read the array that the other one updates cannot be ordered so that both updates are in place.
        """
        array, part, starts = origin(update.operands[0]), update.operands[1], update.operands[2:]
        seen, stack = {part}, [part]
        while stack and len(seen) < self.options.max_instructions:
            instruction = stack.pop()
            if instruction not in self.fusible or isinstance(instruction.op, _ROOT_ONLY):
                continue
            is_same_part = isinstance(instruction.op, DynamicSlice) and instruction.operands[1:] == starts
            is_same_part = is_same_part and instruction.shape.dimensions == part.shape.dimensions
            changing = self.updated_arrays.intersection(map(origin, instruction.operands))
            if changing - ({array} if is_same_part else set()):
                return True
            stack += [operand for operand in instruction.operands if operand not in seen]
            seen.update(instruction.operands)
        return False

    def _chain_costs(self) -> dict[Instruction, float]:
        """Computes the cost of one element, in additions, if all its fusible producers are computed with it."""
        costs: dict[Instruction, float] = {}
        for instruction in self.computation.instructions:
            if instruction in self.fusible:
                before = sum(min(costs.get(o, 0.0), 200.0) for o in dict.fromkeys(instruction.operands))
                costs[instruction] = float(_reduced_count(instruction) or instruction.op.cost) + before
        return costs

    def _find_reducing(self) -> set[Instruction]:
        """Finds the instructions whose kernel would contain a reduction of more than SMALL_REDUCTION elements if every
        possible fusion were made."""
        found: set[Instruction] = set()
        for instruction in self.computation.instructions:
            if instruction not in self.fusible:
                continue
            if _reduced_count(instruction) > SMALL_REDUCTION or any(
                operand in found and access_pattern(instruction, operand) is not None
                for operand in instruction.operands
            ):
                found.add(instruction)
        return found

    def run(self) -> int:
        """Decides, then builds the fusions; returns their number."""
        self._decide_all()
        return self._build(self._groups())

    def reasons(self) -> dict[Instruction, str]:
        """Explains the instructions that are not fused; parameters are left out."""
        self._decide_all()
        rest = (i for i in self.computation.instructions if i not in self.inlined and not isinstance(i.op, Parameter))
        return {instruction: self._reason(instruction) for instruction in rest}

    def _reason(self, instruction: Instruction) -> str:
        users = list(instruction.users)
        if instruction not in self.fusible:
            return f"{instruction.opcode} is not computed element by element: it has a kernel of its own or runs others"
        if instruction is self.computation.root or not users:
            return "it is the result of the computation"
        for user in users:
            if user not in self.fusible:
                return f"its user %{user.name} ({user.opcode}) is not part of a fusion, and reads it from memory"
            if not self._can_compute(user, instruction):
                detail = "; its rows are not read whole and in order" if instruction in self.reducing else ""
                return f"its user %{user.name} ({user.opcode}) cannot compute its elements where it reads them{detail}"
        evaluations = self._count_evaluations(instruction, users)
        roots = set().union(*(self.roots[user] for user in users))
        if 1 + max(self.depths[user] for user in users) > self.options.max_depth:
            return f"the fusion would be more than {self.options.max_depth} instructions deep"
        if len(self._access_patterns(instruction, users, roots)) > 1:
            return "the fusion would have two access patterns: rows and columns, or columns of two shapes"
        if any(self.sizes[root] >= self.options.max_instructions for root in roots):
            return f"the fusion has {self.options.max_instructions} instructions already"
        names = ", ".join(sorted(f"%{root.name}" for root in roots)[:4])
        return (
            f"each element would be computed {max(evaluations, len(roots)):.3g} times, in {len(roots)} kernels "
            f"({names}), at {self.cost[instruction]:.3g} additions each: more than reading it from memory costs "
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
        """Access patterns of the reductions in the fusions of these roots if the instruction becomes part of them."""
        found = set().union(*(self.patterns[root] for root in roots))
        if instruction in self.reducing:
            found |= {pattern for user in users if (pattern := access_pattern(user, instruction))}
        return found

    def _count_evaluations(self, instruction: Instruction, users: list[Instruction]) -> float:
        """Average number of times that an element is computed inside its users.

        Users that read it at the index that they compute share one evaluation; others evaluate it at each read.
        """
        same = [u for u in users if self._reads_same_index(u, instruction)]
        others = sum(self.evaluations[u] * self._average_reads(u, instruction) for u in users if u not in same)
        return others + max((self.evaluations[user] for user in same), default=0.0)

    def _reads_same_index(self, user: Instruction, operand: Instruction) -> bool:
        """Whether each element of the user reads the operand's element at the same index."""
        if isinstance(user.op, Concatenate):
            return user in self.inlined  # Only gathers inline it, and they know which operand they read.
        if isinstance(user.op, Reshape):
            return without_ones(user.shape.dimensions) == without_ones(operand.shape.dimensions)
        return user.op.elementwise and user.shape.dimensions == operand.shape.dimensions

    def _can_compute(self, user: Instruction, operand: Instruction) -> bool:
        """Whether the kernel of the user can compute the operand's elements where it reads them."""
        if (
            isinstance(user.op, _READS_MEMORY)
            and user.operands[0] is operand
            and not isinstance(operand.op, (Broadcast, Constant))
        ):
            return False
        if (user in self.conflicting_updates or _is_padding(user)) and user.operands[1] is operand:
            return False
        if isinstance(operand.op, Pad) or _is_padding(operand):
            return user.op.elementwise
        if operand.shape.is_tuple or (
            isinstance(operand.op, _ROOT_ONLY) and not _reads_concatenated_indices(user, operand)
        ):
            return False
        return operand not in self.reducing or access_pattern(user, operand) is not None

    def _average_reads(self, user: Instruction, operand: Instruction) -> float:
        """Average number of reads of each element of the operand, if each element of the user is computed once."""
        op, size = user.op, max(1, operand.shape.element_count if operand.shape.is_array else 1)
        own = next(user.shape.leaves()).element_count
        if isinstance(op, _READS_ONCE):
            return 1.0
        if isinstance(op, Broadcast):
            # The value is computed before the loop over the other dimensions, or in at most four unrolled copies.
            is_once = row_length(op, user.shape.dimensions) is not None or own <= 4 * size
            by_columns = operand in self.reducing and columns_of_broadcast(op, user.shape.dimensions) is not None
            return 1.0 if is_once or by_columns else own / size
        if isinstance(op, ReduceWindow):
            return own * _reduced_count(user) / size
        if op.elementwise and not operand.shape.dimensions:
            return 1.0
        return min(1.0, own / size) if isinstance(op, (Slice, DynamicSlice)) else own / size

    def _pays(self, instruction: Instruction, roots: set[Instruction], evaluations: float) -> bool:
        if any(self.sizes[root] >= self.options.max_instructions for root in roots):
            return False
        if isinstance(instruction.op, (Constant, Iota)) or (
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
        """Whether a fusion over rows keeps the value for a row, so that several uses share its computation."""
        return evaluations <= 8.0 and all(access_pattern(user, instruction) is not None for user in instruction.users)

    # Groups: the roots that share a fusion

    def _groups(self) -> list[list[Instruction]]:
        """Returns the roots of each fusion: one, or several siblings over the same elements."""
        roots = [i for i in self.computation.instructions if i in self.fusible and i not in self.inlined]
        merged = merge_siblings(roots, self._members, self.order, self._may_merge, self.options.max_instructions)
        return [group for group in merged if self._is_worth_fusing(group)]

    def _may_merge(self, root: Instruction) -> bool:
        by_columns = bool(self.patterns[root] - {BY_ROWS})
        return (
            not isinstance(root.op, _ROOT_ONLY)
            and root.shape.is_array
            and bool(root.shape.dimensions)
            and not by_columns
        )

    def _is_worth_fusing(self, group: list[Instruction]) -> bool:
        """Whether the group has more than one instruction; a single one is a kernel without a fusion."""
        return len(group) > 1 or any(operand in self.inlined for operand in group[0].operands)

    def _build(self, groups: list[list[Instruction]]) -> int:
        if not groups:
            return 0
        edit = Edit(self.computation)
        for group in groups:
            self._fuse(edit, group)
        edit.finish()
        # A fusion is listed where the last of its members was: users of other members may precede it.
        self.computation.instructions = post_order(self.computation)
        return len(groups)

    def _fuse(self, edit: Edit, group: list[Instruction]) -> None:
        """Copies the members of a group into a new computation, and replaces the roots by a fusion that calls it."""
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
        """Returns the instructions that the fusion of a group computes, operands first."""
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
    """Whether an update of a broadcast pads its operand: each element is one of the operand's or the fill value."""
    return isinstance(instruction.op, DynamicUpdateSlice) and isinstance(instruction.operands[0].op, Broadcast)


def _reads_concatenated_indices(user: Instruction, operand: Instruction) -> bool:
    """Whether a gather reads start indices that a concatenation joins from one operand for each index component."""
    op, joined = user.op, operand.op
    if not isinstance(op, Gather) or not isinstance(joined, Concatenate) or user.operands[0] is operand:
        return False
    return joined.dimension == op.index_vector_dim


def _reduced_count(instruction: Instruction) -> int:
    """Number of elements that each element of a reduction combines; 0 for other operations."""
    match instruction.op:
        case Reduce() as op:
            sizes = instruction.operands[0].shape.dimensions
            return math.prod(sizes[d] for d in op.dimensions)
        case ReduceWindow() as op:
            return math.prod(d.size for d in op.window)
    return 0


def _kind(group: list[Instruction]) -> FusionKind:
    return FusionKind.INPUT if any(isinstance(root.op, Reduce) for root in group) else FusionKind.LOOP
