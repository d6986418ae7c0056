"""Which sharding each value gets: annotations spread along the rules of operations, forward and backward.

Every array leaf of a value has a `Cell`: the spec found so far. Values that are the same array share one (the elements
of a tuple, the state of a loop in its body, condition and result). `Link`s connect the cells of an operation by the
labels of its rule. The rule of propagation:

 1. parameters, constraints and demanded results start with their annotation; closed dimensions stay as annotated;
 2. forward: the axes of an operand's dimension go to the result dimensions of the same label;
    backward, once nothing moves forward: the axes of any dimension go to the operand dimensions of its label;
 3. a dimension takes axes only if it is open, its own axes are the beginning of them, its size is a multiple of their
    number, and no other dimension of the array has them. The first one wins; larger operands come first.
 4. both are repeated until nothing changes, at first without going forward through broadcasts: the small array that
    a broadcast repeats must not decide how the large ones are cut that it is added to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hloom.ir import Instruction
from hloom.ops.structure import GetTupleElement
from hloom.passes.spmd.mesh import Axes, Mesh, Placement, Spec
from hloom.passes.spmd.rules import Label, Labels, Rule
from hloom.shape import Shape


@dataclass(eq=False)
class Cell:
    """The sharding of one array: the axes of each dimension, and which dimensions stay as they are; the axes along
    which partitions have partial sums of it, and whether these stay as they are."""

    shape: Shape
    spec: list[Axes]
    closed: list[bool]
    unreduced: Axes = ()
    unreduced_closed: bool = False

    @staticmethod
    def of(shape: Shape, closed: bool = False) -> Cell:
        fixed = closed or shape.is_dynamic
        return Cell(shape, [()] * shape.rank, [fixed] * shape.rank)

    @property
    def placement(self) -> Placement:
        return Placement(tuple(self.spec), self.unreduced)

    def set(self, spec: Sequence[Axes], is_open: Sequence[bool], unreduced: Axes = ()) -> None:
        """The annotation of the array; it replaces what was there."""
        self.spec, self.closed = [*spec], [not open_dimension for open_dimension in is_open]
        self.unreduced, self.unreduced_closed = tuple(sorted(unreduced)), True

    def add_unreduced(self, axes: Iterable[int]) -> bool:
        """There are partial sums along more axes; True where that is so only now."""
        used = {axis for axes_of_dimension in self.spec for axis in axes_of_dimension}
        new = () if self.unreduced_closed else {*axes} - used - {*self.unreduced}
        self.unreduced = tuple(sorted({*self.unreduced, *new}))
        return bool(new)

    def extend(self, dimension: int, axes: Axes, mesh: Mesh) -> bool:
        """Cuts a dimension by `axes`, or as many of them as it can take; True where that is more than before."""
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
    """The first axes, as long as none is used and all sizes are multiples of their number."""
    taken, sizes = {*used}, [*sizes]
    while axes and (not taken.isdisjoint(axes) or not all(mesh.divides(size, axes) for size in sizes)):
        axes = axes[:-1]
    return axes


@dataclass(frozen=True)
class Port:
    """A cell in a link: the label of each dimension, the axes that come before those of the label, and the axes that
    do not pass through the link."""

    cell: Cell
    labels: Labels
    prefix: Spec
    excluded: frozenset[int] = frozenset()

    def axes(self, dimension: int) -> Axes:
        prefix, axes = self.prefix[dimension], self.cell.spec[dimension]
        if axes[: len(prefix)] != prefix:
            return ()
        return tuple(itertools.takewhile(lambda axis: axis not in self.excluded, axes[len(prefix) :]))


@dataclass(frozen=True)
class Link:
    """What an operation says of the shardings of its operands and results; `is_broadcast`: it is a broadcast."""

    operands: tuple[Port, ...]
    results: tuple[Port, ...]
    is_broadcast: bool = False

    def forward(self, mesh: Mesh) -> bool:
        ordered = sorted(self.operands, key=lambda port: -port.cell.shape.byte_size)
        return _extend_targets(ordered, self.results, mesh)

    def backward(self, mesh: Mesh) -> bool:
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
    """The same array, in one sharding and in another."""
    labels: tuple[Label, ...] = tuple(range(source.shape.rank))
    none = ((),) * source.shape.rank
    return Link((Port(source, labels, none),), (Port(target, labels, none),))


@dataclass
class Cells:
    """The cells of all values of a module, and their links."""

    mesh: Mesh
    of: dict[Instruction, list[Cell]] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    flows: list[tuple[Cell, Cell]] = field(default_factory=list)
    """Where the value of a cell goes to another one."""

    def operands(self, instruction: Instruction) -> list[Cell]:
        """The cells of all leaves of the operands."""
        return [cell for operand in instruction.operands for cell in self.of[operand]]

    def new(self, instruction: Instruction, closed: bool = False) -> list[Cell]:
        cells = [Cell.of(leaf, closed) for leaf in instruction.shape.leaves()]
        self.of[instruction] = cells
        return cells

    def connect(self, sources: Sequence[Cell], targets: Sequence[Cell]) -> None:
        """The values of some cells go to others, and may be resharded on the way."""
        self.flows += zip(sources, targets, strict=True)
        self.align(sources, targets)

    def align(self, sources: Sequence[Cell], targets: Sequence[Cell]) -> None:
        """Arrays of the same dimensions are sharded alike."""
        self.links += [identity(a, b) for a, b in zip(sources, targets, strict=True)]

    def follow(self, instruction: Instruction, rule: Rule) -> None:
        """Links an operation by its rule."""
        ports = [
            Port(cell, labels, ((),) * len(labels))
            for cells, all_labels in (
                (self.operands(instruction), rule.operands),
                (self.of[instruction], rule.results),
            )
            for cell, labels in zip(cells, all_labels, strict=True)
        ]
        count = len(rule.operands)
        is_broadcast = instruction.opcode == "broadcast"
        self.links.append(Link(tuple(ports[:count]), tuple(ports[count:]), is_broadcast))

    def share(self, instruction: Instruction) -> bool:
        """Gives an instruction that only arranges values the cells of its operands; False where it is no such one."""
        op, operands = instruction.op, instruction.operands
        if instruction.opcode == "tuple":
            self.of[instruction] = self.operands(instruction)
        elif isinstance(op, GetTupleElement):
            before = sum(len([*shape.leaves()]) for shape in operands[0].shape.elements[: op.index])
            count = len([*instruction.shape.leaves()])
            self.of[instruction] = self.of[operands[0]][before : before + count]
        elif instruction.opcode in ("opt-barrier", "domain", "add-dependency"):
            self.of[instruction] = self.of[operands[0]]
        else:
            return False
        return True

    def specs(self) -> list[tuple[Cell, list[Axes]]]:
        """How each cell is cut now."""
        cells = {port.cell: None for link in self.links for port in (*link.operands, *link.results)}
        return [(cell, [*cell.spec]) for cell in cells]

    def propagate(self) -> None:
        """Spreads what is known until nothing changes."""
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
