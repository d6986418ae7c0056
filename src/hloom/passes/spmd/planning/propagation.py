"""Sharding propagation: annotations propagate along the rules of operations, forward and backward.

Every array leaf of a value has a `Cell`: the spec found so far. Values that are the same array share one (the elements
of a tuple, the state of a loop in its body, condition and result). `Link`s connect the cells of an operation by the
labels of its rule. Propagation works as follows:

 1. Parameters, constraints and demanded results start with their annotation; closed dimensions stay as annotated.
 2. Forward: the axes of an operand's dimension go to the result dimensions of the same label.
    Backward, once nothing moves forward: the axes of any dimension go to the operand dimensions of its label.
 3. A dimension takes axes only if it is open, its own axes are a prefix of them, its size is divisible by the number of
    shards, and no other dimension of the array has them. The first axes win; larger operands come first.
 4. Both steps are repeated until nothing changes, at first without going forward through broadcasts: the small operand
    of a broadcast must not decide how the large arrays are sharded that its result is added to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.reshape import Copy
from hloom.ops.structure import GetTupleElement, Tuple
from hloom.ops.traits import Identity
from hloom.passes.spmd.planning.rules import Label, Labels, Rule
from hloom.passes.spmd.shardings.mesh import Axes, Mesh, Placement, Spec
from hloom.shape import Shape
from hloom.system.records import record


@dataclass(eq=False)
class Cell:
    """The sharding of one array, as far as it is known.

    `spec` has the axes of each dimension, `closed` tells which dimensions are final. Along the axes `unreduced`
    partitions hold partial sums; `unreduced_closed` tells whether these are final.
    """

    shape: Shape
    spec: list[Axes]
    closed: list[bool]
    unreduced: Axes = ()
    unreduced_closed: bool = False

    @staticmethod
    def of(shape: Shape, closed: bool = False) -> Cell:
        """Returns the cell of an array without a sharding; dynamic dimensions are never sharded."""
        fixed = closed or shape.is_dynamic
        return Cell(shape, [()] * shape.rank, [fixed] * shape.rank)

    @property
    def placement(self) -> Placement:
        """The spec and the unreduced axes as a placement."""
        return Placement(tuple(self.spec), self.unreduced)

    def set(self, spec: Sequence[Axes], is_open: Sequence[bool], unreduced: Axes = ()) -> None:
        """Replaces the sharding by an annotation."""
        self.spec, self.closed = [*spec], [not open_dimension for open_dimension in is_open]
        self.unreduced, self.unreduced_closed = tuple(sorted(unreduced)), True

    def add_unreduced(self, axes: Iterable[int]) -> bool:
        """Adds axes along which partitions hold partial sums; returns whether any is new."""
        used = {axis for axes_of_dimension in self.spec for axis in axes_of_dimension}
        new = () if self.unreduced_closed else {*axes} - used - {*self.unreduced}
        self.unreduced = tuple(sorted({*self.unreduced, *new}))
        return bool(new)

    def extend(self, dimension: int, axes: Axes, mesh: Mesh) -> bool:
        """Shards a dimension along `axes`, or the longest prefix that it can take; returns whether axes were added."""
        have = self.spec[dimension]
        if self.closed[dimension] or axes == have or axes[: len(have)] != have:
            return False
        used = {axis for d, other in enumerate(self.spec) if d != dimension for axis in other} | {*self.unreduced}
        taken = usable_prefix(axes, used, [self.shape.dimensions[dimension]], mesh)
        if len(taken) <= len(have):
            return False
        self.spec[dimension] = taken
        return True


def usable_prefix(axes: Axes, used: Iterable[int], sizes: Iterable[int], mesh: Mesh) -> Axes:
    """The longest prefix of the axes that contains no used axis and whose shard count divides all sizes."""
    taken, sizes = {*used}, [*sizes]
    while axes and (not taken.isdisjoint(axes) or not all(mesh.divides(size, axes) for size in sizes)):
        axes = axes[:-1]
    return axes


@record
class Port:
    """A cell in a link.

    `labels` are the labels of its dimensions, `prefix` the axes of each that precede those of the label, and axes in
    `excluded` do not propagate through the link.
    """

    cell: Cell
    labels: Labels
    prefix: Spec
    excluded: frozenset[int] = frozenset()

    def axes(self, dimension: int) -> Axes:
        """The axes of a dimension that propagate through the link."""
        prefix, axes = self.prefix[dimension], self.cell.spec[dimension]
        if axes[: len(prefix)] != prefix:
            return ()
        return tuple(itertools.takewhile(lambda axis: axis not in self.excluded, axes[len(prefix) :]))


@record
class Link:
    """A constraint between the shardings of an operation's operands and results."""

    operands: tuple[Port, ...]
    results: tuple[Port, ...]
    is_broadcast: bool = False

    def forward(self, mesh: Mesh) -> bool:
        """Propagates axes from operands to results, larger operands first; returns whether anything changed."""
        ordered = sorted(self.operands, key=lambda port: -port.cell.shape.byte_size)
        return _extend_targets(ordered, self.results, mesh)

    def backward(self, mesh: Mesh) -> bool:
        """Propagates axes from results and operands to operands; returns whether anything changed."""
        return _extend_targets([*self.results, *self.operands], self.operands, mesh)


def _extend_targets(sources: Sequence[Port], targets: Sequence[Port], mesh: Mesh) -> bool:
    changed = False
    for source in sources:
        for d, label in enumerate(source.labels):
            axes = source.axes(d) if label is not None else ()
            if not axes:
                continue
            for target in targets:
                for e, other in enumerate(target.labels):
                    if other == label and target.cell is not source.cell:
                        changed |= target.cell.extend(e, target.prefix[e] + axes, mesh)
    return changed


def identity(source: Cell, target: Cell) -> Link:
    """Links two cells of the same array, in one sharding and in another."""
    labels: tuple[Label, ...] = tuple(range(source.shape.rank))
    none = ((),) * source.shape.rank
    return Link((Port(source, labels, none),), (Port(target, labels, none),))


@dataclass
class Cells:
    """The cells of all values of a module, and the links between them."""

    mesh: Mesh
    of: dict[Instruction, list[Cell]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    flows: list[tuple[Cell, Cell]] = field(default_factory=list)
    """Pairs of cells; the value of the first becomes that of the second."""

    def operands(self, instruction: Instruction) -> list[Cell]:
        """The cells of all leaves of the operands."""
        return [cell for operand in instruction.operands for cell in self.of[operand]]

    def new(self, instruction: Instruction, closed: bool = False) -> list[Cell]:
        """Adds the cells of an instruction's leaves, without shardings."""
        cells = [Cell.of(leaf, closed) for leaf in instruction.shape.leaves()]
        self.of[instruction] = cells
        return cells

    def connect(self, sources: Sequence[Cell], targets: Sequence[Cell]) -> None:
        """Links values to the cells that they flow to; they may be resharded on the way."""
        self.flows += zip(sources, targets, strict=True)
        self.align(sources, targets)

    def align(self, sources: Sequence[Cell], targets: Sequence[Cell]) -> None:
        """Links arrays that are sharded alike, dimension by dimension."""
        self.links += [identity(a, b) for a, b in zip(sources, targets, strict=True)]

    def follow(self, instruction: Instruction, rule: Rule) -> None:
        """Links the cells of an operation by its rule."""
        ports = [
            Port(cell, labels, ((),) * len(labels))
            for cells, all_labels in (
                (self.operands(instruction), rule.operands),
                (self.of[instruction], rule.results),
            )
            for cell, labels in zip(cells, all_labels, strict=True)
        ]
        count = len(rule.operands)
        is_broadcast = isinstance(instruction.op, Broadcast)
        self.links.append(Link(tuple(ports[:count]), tuple(ports[count:]), is_broadcast))

    def share(self, instruction: Instruction) -> bool:
        """Reuses the operands' cells for an instruction that only rearranges values; False for any other one."""
        op, operands = instruction.op, instruction.operands
        if isinstance(op, Tuple):
            self.of[instruction] = self.operands(instruction)
        elif isinstance(op, GetTupleElement):
            before = sum(len([*shape.leaves()]) for shape in operands[0].shape.elements[: op.index])
            count = len([*instruction.shape.leaves()])
            self.of[instruction] = self.of[operands[0]][before : before + count]
        elif isinstance(op, Identity) and not isinstance(op, Copy):  # a copy may be resharded
            self.of[instruction] = self.of[operands[0]]
        else:
            return False
        return True

    def specs(self) -> list[tuple[Cell, list[Axes]]]:
        """The current spec of each linked cell."""
        cells = {port.cell: None for link in self.links for port in (*link.operands, *link.results)}
        return [(cell, [*cell.spec]) for cell in cells]

    def propagate(self) -> None:
        """Propagates shardings along all links until nothing changes."""
        self._propagate_along([link for link in self.links if not link.is_broadcast])
        self._propagate_along(self.links)

    def _propagate_along(self, forward: Sequence[Link]) -> None:
        changed = True
        while changed:
            changed = False
            while sum(link.forward(self.mesh) for link in forward):
                changed = True
            for link in reversed(self.links):
                changed |= link.backward(self.mesh)
