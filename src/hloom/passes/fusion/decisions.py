"""Decisions of fusion: for each instruction, whether its users compute its value, or the reason why it is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from hloom.ir import Computation, Instruction
from hloom.ops.broadcast import Broadcast, Iota
from hloom.ops.control_flow import Fusion
from hloom.ops.gather import Gather
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.structure import Constant, Parameter, Tuple
from hloom.ops.traits import Update
from hloom.passes.edit import has_control_edges, runs_effects
from hloom.passes.fusion.access_patterns import (
    AccessPattern,
    access_pattern,
    average_reads,
    joins_columns,
    reads_same_index,
)
from hloom.passes.fusion.costs import (
    RECOMPUTED_COST,
    chain_costs,
    pair_values,
    reduced_apart,
    reducing_instructions,
    repeats_pairs,
)
from hloom.passes.fusion.in_place import ROOT_ONLY, array_versions, conflicting_updates, is_padding, versions_read

CanFuse = Callable[[Instruction], bool]
"""Whether the target can compute an instruction element by element."""

_READS_MEMORY = (Gather, Update)
"""Operations whose first operand must be in memory: it is read at run-time indices, or updated in place."""

MAX_JOINED = 4
"""Largest size of a concatenated dimension whose loop kernels unroll, so that each copy reads one operand."""


class Decision(NamedTuple):
    """Whether the value of an instruction is stored in memory, for a reason, or computed inside its users."""

    roots: set[Instruction]
    """The roots of the fusions that compute the instruction; itself if it is stored."""
    reason: str = ""
    """The reason why it is stored; "" if it is computed inside its users."""
    evaluations: float = 1.0
    """Average number of times that an element is computed."""
    depth: int = 0
    """The largest number of instructions that are not element-wise on a path from it to a root of its fusions."""
    patterns: Set[AccessPattern] = frozenset()
    """The access pattern of the reductions in these fusions: at most one."""

    @property
    def is_inlined(self) -> bool:
        """Whether the users compute the value."""
        return not self.reason


@dataclass(slots=True)
class _Kernel:
    """The fusion of a root, as far as it is decided."""

    size: int = 1
    """Number of its instructions."""
    patterns: Set[AccessPattern] = frozenset()
    """The access pattern of its reductions: at most one."""
    versions: dict[Instruction, int] = field(default_factory=dict)
    """The versions that it reads of arrays that are updated in place (see `array_versions`)."""


class Decisions:
    """The decisions for the instructions of one computation, which are made from users to operands."""

    def __init__(self, computation: Computation, can_fuse: CanFuse, max_instructions: int, max_depth: int) -> None:
        self.computation = computation
        self.max_instructions = max_instructions
        self.max_depth = max_depth
        self.fusible = {i for i in computation.instructions if _is_fusible(i, can_fuse)}
        self.kernels: dict[Instruction, _Kernel] = {}
        """The fusions by root."""
        self._costs = chain_costs(computation, self.fusible)
        self._pairs = pair_values(computation, self.fusible)
        self._apart = reduced_apart(self._pairs)
        self._reducing = reducing_instructions(computation, self.fusible, self._apart)
        self._conflicting = conflicting_updates(self.fusible, max_instructions)
        self._versions = array_versions(computation.instructions)
        self.of: dict[Instruction, Decision] = {}
        for instruction in reversed(computation.instructions):
            self._record(instruction, self._decide(instruction))
        self.inlined = {instruction for instruction, decision in self.of.items() if decision.is_inlined}
        self.inside = {user: self._inside(user) for user in self.fusible}
        """The operands that the fusion of each user computes."""

    def _inside(self, user: Instruction) -> set[Instruction]:
        """Returns the operands that the fusion of the user computes.

        Scalar constants are among them, also those that are stored because another user reads them from memory.
        """
        return {
            operand
            for operand in user.operands
            if operand in self.inlined or (_is_scalar_constant(operand) and not self._obstacle(operand, [user]))
        }

    def _record(self, instruction: Instruction, decision: Decision) -> None:
        self.of[instruction] = decision
        versions = versions_read(instruction, self._versions)
        if not decision.is_inlined:
            self.kernels[instruction] = _Kernel(versions=versions)
            return
        for kernel in map(self.kernels.__getitem__, decision.roots):
            kernel.size += 1
            kernel.patterns = decision.patterns
            kernel.versions |= versions

    def _decide(self, instruction: Instruction) -> Decision:
        users = list(instruction.users)
        reason = self._obstacle(instruction, users)
        if reason:
            return Decision({instruction}, reason)
        decided = [self.of[user] for user in users]
        roots = set().union(*[decision.roots for decision in decided])
        evaluations = self._count_evaluations(instruction, users)
        depth = max([decision.depth for decision in decided]) + (not instruction.op.elementwise)
        patterns = self._patterns(instruction, roots)
        if depth > self.max_depth:
            reason = f"the fusion would have more than {self.max_depth} instructions that move elements on a path"
        elif len(patterns) > 1:
            reason = "the fusion would have two access patterns: rows and columns, or columns of two shapes"
        elif max([self.kernels[root].size for root in roots]) >= self.max_instructions:
            reason = f"the fusion has {self.max_instructions} instructions already"
        elif self._reads_another_version(instruction, roots):
            reason = "it reads an array that the fusion reads after an update: the array would have to be copied"
        elif not self._pays(instruction, roots, evaluations):
            names = ", ".join(sorted(f"%{root.name}" for root in roots)[:4])
            reason = (
                f"each element would be computed {max(evaluations, len(roots)):.3g} times, in {len(roots)} kernels "
                f"({names}), at {self._costs[instruction]:.3g} additions each: more than reading it from memory costs "
                f"({RECOMPUTED_COST})"
            )
        if reason:
            return Decision({instruction}, reason)
        return Decision(roots, evaluations=max(1.0, evaluations), depth=depth, patterns=patterns)

    # Whether the users can compute the value

    def _obstacle(self, instruction: Instruction, users: Sequence[Instruction]) -> str:
        """Returns the reason why the users of an instruction cannot compute its value; "" if they can."""
        if instruction not in self.fusible:
            return f"{instruction.opcode} is not computed element by element: it has a kernel of its own or runs others"
        if instruction is self.computation.root or not users:
            return "it is the result of the computation"
        for user in users:
            if user not in self.fusible:
                return f"its user %{user.name} ({user.opcode}) is not part of a fusion, and reads it from memory"
            if not self._can_compute(user, instruction):
                detail = "; its rows are not read whole and in order" if instruction in self._reducing else ""
                return f"its user %{user.name} ({user.opcode}) cannot compute its elements where it reads them{detail}"
        return ""

    def _can_compute(self, user: Instruction, operand: Instruction) -> bool:
        """Whether the kernel of the user can compute the operand's elements where it reads them."""
        if user.op.elementwise and operand.op.elementwise and operand not in self._reducing:  # as most are
            return True
        if (
            isinstance(user.op, _READS_MEMORY)
            and user.operands[0] is operand
            and not isinstance(operand.op, (Broadcast, Constant))
        ):
            return False
        if (user in self._conflicting or is_padding(user)) and user.operands[1] is operand:
            return False
        if isinstance(operand.op, Pad) or is_padding(operand):
            return user.op.elementwise
        if operand.shape.is_tuple or (isinstance(operand.op, ROOT_ONLY) and not self._joins_inside(user, operand)):
            return False
        if operand not in self._reducing:
            return True
        return user not in self._apart and access_pattern(user, operand) is not None

    def _joins_inside(self, user: Instruction, operand: Instruction) -> bool:
        """Whether the kernel of the user knows which operand of a concatenation it reads."""
        if _reads_concatenated_indices(user, operand):
            return True
        is_short = isinstance(operand.op, Concatenate) and operand.shape.dimensions[operand.op.dimension] <= MAX_JOINED
        return is_short and operand in self._pairs

    def _patterns(self, instruction: Instruction, roots: set[Instruction]) -> set[AccessPattern]:
        """Access patterns of the reductions in the fusions of these roots if the instruction becomes part of them."""
        if not self._reducing:
            return set()
        found: set[AccessPattern] = set().union(*[self.kernels[root].patterns for root in roots])
        if instruction in self._reducing:
            found |= {pattern for user in instruction.users if (pattern := access_pattern(user, instruction))}
        return found

    def _reads_another_version(self, instruction: Instruction, roots: set[Instruction]) -> bool:
        """Whether an instruction reads another version of an array that is updated in place than one of the fusions."""
        if not self._versions:
            return False
        read = versions_read(instruction, self._versions).items()
        return any(self.kernels[root].versions.get(array, count) != count for array, count in read for root in roots)

    # Whether it pays

    def _count_evaluations(self, instruction: Instruction, users: Sequence[Instruction]) -> float:
        """Average number of times that an element is computed inside its users.

        Users that read it at the index that they compute share one evaluation; others evaluate it at each read.
        """
        is_reduction = instruction in self._reducing
        same = others = 0.0
        for user in users:
            evaluations = self.of[user].evaluations
            if self._reads_same_index(user, instruction):
                same = max(same, evaluations)
            else:
                others += evaluations * average_reads(user, instruction, is_reduction)
        return others + same

    def _reads_same_index(self, user: Instruction, operand: Instruction) -> bool:
        if isinstance(user.op, Concatenate):
            # Only gathers inline it, and they know which operand they read.
            return self.of[user].is_inlined or joins_columns(user)
        return reads_same_index(user, operand)

    def _pays(self, instruction: Instruction, roots: set[Instruction], evaluations: float) -> bool:
        """Whether computing the value inside its users costs less than storing and reading it."""
        if isinstance(instruction.op, (Constant, Iota)) or _repeats_less(instruction):
            return True
        if instruction.shape.is_scalar and self._costs[instruction] <= RECOMPUTED_COST:
            return True
        if len(roots) == 1 and (evaluations <= 1.5 or _is_kept_along_rows(instruction, evaluations)):
            return True
        if instruction in self._reducing:
            return False
        count = evaluations if len(roots) == 1 else max(evaluations, float(len(roots)))
        if instruction in self._pairs and repeats_pairs(instruction, self.fusible, count):
            return True
        return self._costs[instruction] * (count - 1.0) <= RECOMPUTED_COST


def _is_fusible(instruction: Instruction, can_fuse: CanFuse) -> bool:
    if isinstance(instruction.op, (Parameter, Tuple, Fusion)) or has_control_edges(instruction):
        return False
    return can_fuse(instruction) and not runs_effects(instruction.op)


def _repeats_less(instruction: Instruction) -> bool:
    """Whether an instruction repeats the elements of a smaller array, which is stored instead."""
    if not isinstance(instruction.op, Broadcast):
        return False
    return 0 < 2 * instruction.operands[0].shape.element_count <= instruction.shape.element_count


def _is_scalar_constant(instruction: Instruction) -> bool:
    return isinstance(instruction.op, Constant) and instruction.shape.is_scalar


def _is_kept_along_rows(instruction: Instruction, evaluations: float) -> bool:
    """Whether a fusion over rows keeps the value for a row, so that several uses share its computation."""
    return evaluations <= 8.0 and all(access_pattern(user, instruction) is not None for user in instruction.users)


def _reads_concatenated_indices(user: Instruction, operand: Instruction) -> bool:
    """Whether a gather reads start indices that a concatenation joins from one operand for each index component."""
    op, joined = user.op, operand.op
    if not isinstance(op, Gather) or not isinstance(joined, Concatenate) or user.operands[0] is operand:
        return False
    return joined.dimension == op.index_vector_dim
