"""fusion: producers that can be computed element by element become part of the kernels of their consumers.

The pass visits users before operands and decides for each instruction whether its value is stored in memory. A value is
computed inside its users if this saves more memory traffic than it costs in repeated work:

- Each element is computed once, because all users end up in one fusion, or is cheap enough to be computed again. Of a
  broadcast value the smaller operand is stored.
- Large arrays that are computed from much smaller ones, such as functions of all pairs of points, may be computed by
  several kernels that reduce them, at a cost below that of passing them through memory.
- A reduction is fused with users that read its result along leading dimensions. Its loop then precedes the loop over
  the other dimensions, and each row is read, reduced and used while it is in the cache. A reduction of short dimensions
  in the middle is fused too; its loop is then inside the loop over vectors of columns. All reductions of a fusion have
  the same access pattern.

Fusions over the same elements that share operands are then merged (`sibling_fusion.py`), so that each operand is read
once, and a result that only the merged fusion reads is not stored. Values that a loop collects in arrays are stored by
the kernel that computes them, or what they are computed from.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import field
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module, post_order, reachable
from hloom.ops.structure import Parameter
from hloom.passes.edit import Edit, effectful_computations, running_computations
from hloom.passes.fusion.access_patterns import BY_ROWS
from hloom.passes.fusion.build import build_fusion
from hloom.passes.fusion.decisions import CanFuse, Decisions
from hloom.passes.fusion.in_place import ROOT_ONLY, written_part
from hloom.passes.fusion.sibling_fusion import merge_siblings
from hloom.system.records import record


@record
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
    """The largest number of instructions on a path in a fusion that are not element-wise: code generation recurses
    along them."""

    def run(self, module: Module) -> int:
        """Fuses the instructions of each computation; returns the number of fusions created."""
        effectful = effectful_computations(module)
        return sum(_fuse(self, module, computation, effectful) for computation in running_computations(module))


def reasons(options: FusionPass, module: Module) -> dict[Instruction, str]:
    """Explains for each instruction that would stay unfused why it is not computed inside its users.

    The decisions are those that `options` would make on this module, which should be simplified but not fused yet.
    """
    found: dict[Instruction, str] = {}
    for computation in running_computations(module):
        decisions = _decisions(options, computation)
        stored = (i for i in computation.instructions if i not in decisions.inlined)
        found |= {i: decisions.of[i].reason for i in stored if not isinstance(i.op, Parameter)}
    return found


def _decisions(options: FusionPass, computation: Computation) -> Decisions:
    return Decisions(computation, options.can_fuse, options.max_instructions, options.max_depth)


def _fuse(options: FusionPass, module: Module, computation: Computation, effectful: Set[Computation]) -> int:
    """Builds the fusions of one computation; returns their number."""
    groups = _Groups(_decisions(options, computation), effectful)
    fused = [(groups.read_outside(roots), groups.members(roots)) for roots in groups.worth_fusing()]
    if not fused:
        return 0
    edit = Edit(computation)
    for roots, members in fused:
        build_fusion(module, edit, roots, members)
    edit.finish()
    # A fusion is listed where the last of its members was: users of other members may precede it.
    computation.instructions = post_order(computation)
    return len(fused)


class _Groups:
    """The roots that share a fusion: one, or several siblings over the same elements."""

    def __init__(self, decisions: Decisions, effectful: Set[Computation]) -> None:
        self.decisions, self.effectful = decisions, effectful
        self.order = {instruction: k for k, instruction in enumerate(decisions.computation.instructions)}
        self.stored = decisions.fusible - decisions.inlined

    def worth_fusing(self) -> list[list[Instruction]]:
        """Returns the roots of each fusion of more than one instruction; a single one is a kernel without a fusion."""
        decisions = self.decisions
        roots = [i for i in self.order if i in self.stored]
        merged = merge_siblings(
            roots,
            self.members,
            self.order,
            self._may_merge,
            self._read_same_versions,
            decisions.max_instructions,
            self.effectful,
        )
        return [group for group in merged if len(group) > 1 or decisions.inside[group[0]]]

    def read_outside(self, roots: Sequence[Instruction]) -> list[Instruction]:
        """Returns the roots of a fusion that others read: it does not store those that it alone uses."""
        of, result = self.decisions.of, self.decisions.computation.root
        return [r for r in roots if r is result or not r.users or any(of[u].roots.difference(roots) for u in r.users)]

    def _may_merge(self, root: Instruction) -> bool:
        by_columns = bool(self.decisions.kernels[root].patterns - {BY_ROWS})
        is_array = root.shape.is_array and bool(root.shape.dimensions)
        is_alone = isinstance(root.op, ROOT_ONLY) and not self._only_updates(root)
        return is_array and not is_alone and not by_columns

    def _only_updates(self, root: Instruction) -> bool:
        """Whether a root writes a part of an array that nothing else reads, as where a loop collects values: the kernel
        that computes these, or what they are computed from, may store both.
        """
        part, array = written_part(root), root.operands[0]
        return part is not root and array not in self.decisions.inlined and [*array.users] == [root]

    def _read_same_versions(self, a: Instruction, b: Instruction) -> bool:
        """Whether the fusions of two roots read the same versions of arrays that are updated in place."""
        mine, other = (self.decisions.kernels[root].versions for root in (a, b))
        return all(other.get(array, count) == count for array, count in mine.items())

    def members(self, roots: Sequence[Instruction]) -> dict[Instruction, None]:
        """Returns the instructions that the fusion of these roots computes, operands first."""
        found = reachable(roots, self.decisions.inside.__getitem__)
        return dict.fromkeys(sorted(found, key=self.order.__getitem__))
