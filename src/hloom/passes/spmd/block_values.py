"""The values of the program of one partition: blocks, in the shardings of the plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from hloom.ir import Computation, Instruction
from hloom.ops.elementwise_binary import Add
from hloom.ops.operation import Operation
from hloom.passes.op_builder import OpBuilder, ScalarComputations
from hloom.passes.spmd.choice import reduce_scatter_axes
from hloom.passes.spmd.planning.plan import Plan, placement_of
from hloom.passes.spmd.planning.propagation import Cell
from hloom.passes.spmd.shardings.annotations import read_sharding
from hloom.passes.spmd.shardings.mesh import Placement, Spec
from hloom.passes.spmd.shardings.resharding import Resharding
from hloom.shape import Shape
from hloom.sharding import Sharding


class BlockValues:
    """The values of one computation for a partition, and how they are resharded.

    `values` maps instructions to the new ones, which are sharded as the plan's cells are.
    """

    def __init__(self, plan: Plan, old: Computation, channels: Iterator[int], combiners: ScalarComputations) -> None:
        self.plan, self.mesh, self.cells, self.combiners = plan, plan.mesh, plan.cells, combiners
        self.old = old
        self.new = Computation(old.name)
        self.new.execution_thread = old.execution_thread
        self.new.parent = plan.module
        self.values: dict[Instruction, Instruction] = {}
        self.moved: dict[tuple[Instruction, Placement, Placement], Instruction] = {}
        self.current: Instruction | None = None
        self.names = {instruction.name for instruction in old.instructions}
        self.name_counter = itertools.count(len(self.names))
        self.build = OpBuilder(self._add)
        self.moves = Resharding(plan.mesh, plan.module, channels, self.build)

    def _add(self, op: Operation, operands: Iterable[Instruction], shape: Shape) -> Instruction:
        """Appends an instruction, with the metadata of the instruction that is being partitioned."""
        name = next(n for k in self.name_counter if (n := f"{op.opcode}.{k}") not in self.names)
        instruction = self.new.add(Instruction(name, shape, op, operands))
        if self.current is not None:
            instruction.metadata = dict(self.current.metadata)
            instruction.location = self.current.location
        return instruction

    def build_like(
        self, old: Instruction, op: Operation, *operands: Instruction, shape: Shape | None = None
    ) -> Instruction:
        """Emits the replacement of an instruction, with its name and the attributes that users may have set."""
        return copy_attributes(old, self.build(op, *operands, shape=shape))

    def move(self, value: Instruction, source: Cell, target: Placement) -> Instruction:
        """Reshards a value to another placement; all users that want it there share the result."""
        key = (value, source.placement, target)
        if key not in self.moved:
            self.moved[key] = self.reshard(*key)
        return self.moved[key]

    def reshard(self, value: Instruction, source: Placement, target: Placement) -> Instruction:
        """Emits the change of a value from one placement to another.

        Sums that are to be complete are reduced, blocks are moved, and where partial sums are wanted a block becomes
        one by zeros, without communication.
        """
        spec = source.spec
        if sums := tuple(axis for axis in source.unreduced if axis not in target.unreduced):
            adding = self.combiners(Add(), value.shape.element_type)
            value, spec = self.reduce_over(value, spec, target.spec, sums, adding)
        new = {*target.unreduced} - {*source.unreduced}
        for d, axes in enumerate(spec):
            tail = axes[next((k for k in range(len(axes)) if new >= {*axes[k:]}), len(axes)) :]
            value = self.moves.pad_to_partial_sums(value, d, tail)
            spec, new = (*spec[:d], axes[: len(axes) - len(tail)], *spec[d + 1 :]), new - {*tail}
        value = self.moves.move(value, spec, target.spec)
        return self.moves.keep_one_partial_sum(value, tuple(sorted(new)))

    def move_leaves(self, old: Instruction, value: Instruction, targets: Sequence[Cell]) -> Instruction:
        """The value with each of its leaves in the sharding of a cell."""
        return self.move_to(old, value, [cell.placement for cell in targets])

    def move_to(self, old: Instruction, value: Instruction, wanted: Sequence[Placement]) -> Instruction:
        """The value with each of its leaves in the wanted placement."""
        have = self.cells.of[old]
        if all(cell.placement == want for cell, want in zip(have, wanted, strict=True)):
            return value
        leaves = zip(self.build.leaves(value), have, wanted, strict=True)
        return self.build.assemble(value.shape, iter([self.move(leaf, cell, want) for leaf, cell, want in leaves]))

    def block_of(self, value: Instruction, cell: Cell, sharding: Sharding) -> Instruction:
        """The block of a value under any sharding."""
        annotation = read_sharding(sharding, cell.shape.rank, self.mesh.count)
        placement = placement_of(annotation, cell.shape, self.mesh)
        if placement is not None:
            return self.move(value, cell, placement)
        return self.moves.distribute(self.move(value, cell, Placement.replicated(cell.shape.rank)), annotation)

    def from_block(self, block: Instruction, cell: Cell, sharding: Sharding) -> Instruction:
        """The value of a cell, from its block under any sharding."""
        annotation = read_sharding(sharding, cell.shape.rank, self.mesh.count)
        placement = placement_of(annotation, cell.shape, self.mesh)
        if placement is None:
            block, placement = self.moves.assemble(block, cell.shape, annotation), Placement.replicated(cell.shape.rank)
        return self.reshard(block, placement, cell.placement)

    def reduce_over(
        self, part: Instruction, produced: Spec, wanted: Spec, axes: tuple[int, ...], combiner: Computation
    ) -> tuple[Instruction, Spec]:
        """Reduces a value over some axes.

        A reduce-scatter handles the axes along which the result is to be sharded, an all-reduce the others.
        """
        d, tail = reduce_scatter_axes(produced, wanted, axes)
        if tail and self.mesh.divides(part.shape.dimensions[d], tail):
            part = self.moves.reduce_scatter(part, d, tail, combiner)
            produced = (*produced[:d], wanted[d], *produced[d + 1 :])
            axes = tuple(axis for axis in axes if axis not in tail)
        return self.moves.all_reduce(part, axes, combiner), produced


def copy_attributes(old: Instruction, new: Instruction) -> Instruction:
    """Copies name and attributes of an instruction to its replacement, except for Shardy's."""
    new.name = old.name
    new.extra_attributes, new.backend_config = dict(old.extra_attributes), old.backend_config
    new.frontend_attributes = {k: v for k, v in old.frontend_attributes.items() if not k.startswith("xla.sdy")}
    return new
