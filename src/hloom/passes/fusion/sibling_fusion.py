"""Merging of sibling fusions into one with several results, so that operands that they share are read once.

A fusion is identified by its roots, the instructions whose values it stores. Two fusions are merged if

- their roots have equal sizes, where an update has those of the part that it writes;
- no path outside of the two leads from one to the other;
- they read a common array, or one reads the other's result element by element, which it then need not read from memory.

Reductions of the rows of a result, such as sums of exponentials that are weights as well, are merged with the fusion
that computes it, too.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from operator import itemgetter

from hloom.ir import Computation, Instruction
from hloom.ops.reduce import Reduce
from hloom.ops.reshape import Reshape
from hloom.passes.edit import has_effect
from hloom.passes.fusion.access_patterns import MIN_ROWS, reduced_count
from hloom.passes.fusion.costs import SMALL_REDUCTION
from hloom.passes.fusion.in_place import written_part
from hloom.shape import Shape
from hloom.target import MAX_CACHED_ROW

MIN_ROW = 32
"""Elements of the shortest row that is reduced where it is computed."""
MAX_CANDIDATES = 6
MAX_SEARCH = 300
"""Instructions visited in the search for a path; a search that reaches the limit prevents the merge."""
MAX_ROOTS = 24


def merge_siblings(
    roots: Sequence[Instruction],
    members_of: Callable[[list[Instruction]], dict[Instruction, None]],
    order: dict[Instruction, int],
    may_merge: Callable[[Instruction], bool],
    agree: Callable[[Instruction, Instruction], bool],
    max_members: int,
    effectful: Set[Computation],
) -> list[list[Instruction]]:
    """Partitions roots into groups that become one fusion each.

    `members_of` returns the instructions that the fusion of a group computes, `order` has the position of each
    instruction in its computation; `may_merge` says whether a root may share a fusion, and `agree` with which others.
    Instructions with effects, themselves or in `effectful` computations, keep their order (SEND-3).
    """
    return _Merger(roots, members_of, order, may_merge, agree, max_members, effectful).run()


class _Merger:
    def __init__(
        self,
        roots: Sequence[Instruction],
        members_of: Callable[[list[Instruction]], dict[Instruction, None]],
        order: dict[Instruction, int],
        may_merge: Callable[[Instruction], bool],
        agree: Callable[[Instruction, Instruction], bool],
        max_members: int,
        effectful: Set[Computation],
    ) -> None:
        self.roots, self.order, self.max_members = roots, order, max_members
        self.may_merge, self.agree = may_merge, agree
        self.members = {root: members_of([root]) for root in roots}
        self.reductions = {root: _reductions(root, members) for root, members in self.members.items()}
        self.group_of: dict[Instruction, list[Instruction]] = {root: [root] for root in roots}
        self.of_rows: set[Instruction] = set()
        """The roots that reduce rows of other results of their group."""
        self.readers: dict[Instruction, list[Instruction]] = {}
        """The roots of the fusions that read each array from memory."""
        self.inputs: dict[int, list[Instruction]] = {}
        """Operands of the fusion of each group, by the group's `id`."""
        self.spans: list[tuple[int, int]] = []
        """Disjoint, ascending ranges (first, last) of positions of merged roots.

        A path through a merged fusion can lead from any of its roots to any other, against the order of instructions.
        """
        effects = [instruction for instruction in order if has_effect(instruction, effectful)]
        self.earlier_effect = {after: [before] for before, after in itertools.pairwise(effects)}

    def run(self) -> list[list[Instruction]]:
        """Merges the roots in order; returns the groups."""
        for root in self.roots:
            if not self.may_merge(root):
                continue
            operands = self._operands(root)
            for candidate in self._candidates(operands):
                if self._try_merge(self.group_of[candidate], root):
                    break
            for operand in operands:
                self.readers.setdefault(operand, []).append(root)
        groups: dict[int, list[Instruction]] = {id(group): group for group in self.group_of.values()}
        return list(groups.values())

    def _operands(self, root: Instruction) -> list[Instruction]:
        """Arrays that the fusion of a root reads from memory, without scalars."""
        return [i for i in self._inputs(self.group_of[root]) if i.shape.is_array and i.shape.dimensions]

    def _candidates(self, operands: list[Instruction]) -> list[Instruction]:
        found: dict[int, Instruction] = {}
        for operand in operands:
            if operand in self.group_of and self.may_merge(operand):
                found.setdefault(id(self.group_of[operand]), operand)
            for reader in reversed(self.readers.get(operand, [])[-MAX_CANDIDATES:]):
                found.setdefault(id(self.group_of[reader]), reader)
        return list(found.values())[:MAX_CANDIDATES]

    def _try_merge(self, group: list[Instruction], root: Instruction) -> bool:
        if len(group) >= MAX_ROOTS or any(not self.agree(member, root) for member in group):
            return False
        merged = {m for r in group for m in self.members[r]} | set(self.members[root])
        of_rows = self._reduces_rows(group, root)
        if len(merged) > self.max_members or not (of_rows or self._shares_elements(group, root)):
            return False
        own = self.group_of[root]
        if self._has_path(group, own) or self._has_path(own, group):
            return False
        for changed in (group, own):
            self.inputs.pop(id(changed), None)
        group.append(root)
        self.of_rows.update([root] if of_rows else ())
        self._add_span(min(self.order[r] for r in group), self.order[root])
        group.sort(key=self.order.__getitem__)
        self.group_of[root] = group
        return True

    def _shares_elements(self, group: list[Instruction], root: Instruction) -> bool:
        """Whether one loop nest can compute the root and those of a group element by element."""
        wholes = [member for member in group if member not in self.of_rows]
        return all(self._can_share_loops(member, root) for member in wholes) and self._reads_elementwise(group, root)

    def _reduces_rows(self, group: list[Instruction], root: Instruction) -> bool:
        """Whether the fusion of a root reduces rows of the group's results, and does nothing else with these."""
        rows, whole, members = root.shape.dimensions, group[0].shape.dimensions, self.members[root]
        if whole[:-1] != rows or math.prod(rows) < MIN_ROWS or not MIN_ROW <= whole[-1] <= MAX_CACHED_ROW:
            return False
        if any(written_part(r) is not r for r in (*group, root)):
            return False
        if any(r in self.of_rows or self.reductions[r] for r in group):
            return False
        reached = {r for r in group if r not in members}
        for member in members:
            if not (reached.isdisjoint(member.operands) or isinstance(member.op, Reduce)):
                if not member.op.elementwise or member.shape.dimensions != whole:
                    return False
                reached.add(member)
        is_read = any(not reached.isdisjoint(member.operands) for member in members)
        return is_read and self.reductions[root] == {((len(rows),), whole)}

    def _can_share_loops(self, a: Instruction, b: Instruction) -> bool:
        """Whether one loop nest can compute both roots: equal sizes and equal reductions.

        Loops over rows read columns with a stride, and the reverse.
        """
        if a.shape.is_tuple or b.shape.is_tuple:
            return False
        parts = written_part(a), written_part(b)
        are_whole = parts == (a, b)
        return _has_sizes(parts[0].shape, parts[1].shape, are_whole) and self.reductions[a] == self.reductions[b]

    def _add_span(self, first: int, last: int) -> None:
        """Adds the range of a merged group, joined with the ranges that it overlaps.

        Roots are merged in order, so no range ends after the new one.
        """
        while self.spans and self.spans[-1][1] >= first:
            first = min(first, self.spans.pop()[0])
        self.spans.append((first, last))

    def _earliest_start(self, position: int) -> int:
        """The lowest position that a path through merged fusions to this position, or a later one, can start from."""
        index = bisect_left(self.spans, position, key=itemgetter(1))
        return min(position, self.spans[index][0]) if index < len(self.spans) else position

    def _reads_elementwise(self, group: list[Instruction], root: Instruction) -> bool:
        """Whether every read of the group's results by the root's fusion is at the index that is being computed."""
        members = self.members[root]
        part, reached = written_part(root), {r for r in group if r not in members}
        for member in members:
            read = reached.intersection(member.operands)
            if read and not (member is root and read == {part}):
                keeps_elements = member.op.elementwise or (isinstance(member.op, Reshape) and part is not root)
                if not keeps_elements or not all(_is_alike(i, part) for i in (member, *read)):
                    return False
                reached.add(member)
        return True

    def _has_path(self, start: list[Instruction], end: list[Instruction]) -> bool:
        """Whether a path through instructions outside of the two leads from one fusion to the other."""
        # Instructions before all roots do not depend on them, except by paths through merged fusions.
        lowest = self._earliest_start(min(self.order[root] for root in start))
        stack = [instruction for instruction in self._inputs(end) if instruction not in start]
        seen: set[Instruction] = set()
        while stack:
            instruction = stack.pop()
            if instruction in seen or self.order[instruction] < lowest:
                continue
            seen.add(instruction)
            if instruction in start or len(seen) > MAX_SEARCH:
                return True
            group = self.group_of.get(instruction)
            if group is None:
                earlier = self.earlier_effect.get(instruction, ())
                stack += [*instruction.operands, *instruction.control_predecessors, *earlier]
            else:
                # A merged fusion depends on all of its operands, whichever of its results is read.
                seen.update(group)
                stack += self._inputs(group)
        return False

    def _inputs(self, group: list[Instruction]) -> list[Instruction]:
        """Operands of the fusion of a group, scalars included."""
        found = self.inputs.get(id(group))
        if found is None:
            members = [self.members[root] for root in group]
            inside = set().union(*members)
            read = (operand for part in members for member in part for operand in member.operands)
            found = self.inputs[id(group)] = [operand for operand in dict.fromkeys(read) if operand not in inside]
        return found


def _is_alike(instruction: Instruction, part: Instruction) -> bool:
    """Whether an instruction has an element for each one of a part, which no update has."""
    sizes = instruction.shape.non_degenerate_dimensions
    return written_part(instruction) is instruction and sizes == part.shape.non_degenerate_dimensions


def _reductions(root: Instruction, members: Iterable[Instruction]) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The long reductions whose results have the sizes of the root, or of the part that it writes but for dimensions of
    size 1: the reduced dimensions and the operand's sizes."""
    part = written_part(root)
    return {
        (tuple(member.op.dimensions), member.operands[0].shape.dimensions)
        for member in members
        if isinstance(member.op, Reduce)
        and _has_sizes(next(member.shape.leaves()), part.shape, part is root)
        and reduced_count(member) > SMALL_REDUCTION
    }


def _has_sizes(shape: Shape, other: Shape, is_whole: bool) -> bool:
    if is_whole:
        return shape.dimensions == other.dimensions
    return shape.non_degenerate_dimensions == other.non_degenerate_dimensions
