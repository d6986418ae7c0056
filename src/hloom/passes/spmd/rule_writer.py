"""Operations on blocks by their rules: operands are resharded as a rule demands, and sums are completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.ir import Instruction
from hloom.ops.broadcast import Iota
from hloom.ops.elementwise_binary import Add
from hloom.ops.rng import Rng
from hloom.ops.traits import AppliesScalar
from hloom.ops.transpose import Reverse
from hloom.passes.spmd.block_values import BlockValues
from hloom.passes.spmd.choice import choose_assignment, spec_of_labels, summed_axes
from hloom.passes.spmd.planning.partial_sums import UnreducedOperands, unreduced_axes, unreduced_operands
from hloom.passes.spmd.planning.rules import Rule
from hloom.passes.spmd.shardings.blocks import is_constant, write_iota
from hloom.passes.spmd.shardings.markers import MANUAL
from hloom.passes.spmd.shardings.mesh import Axes, Placement, Spec
from hloom.shape import Shape


class RuleWriter(BlockValues):
    """Emits operations that have a rule."""

    def write_by_rule(self, old: Instruction, rule: Rule) -> Instruction:
        """Emits an operation on blocks: operands are resharded as the rule demands, and sums are completed."""
        cells, sources = self.cells.of[old], self.cells.operands(old)
        unreduced = {
            axis: having
            for axis, having in unreduced_operands(old, rule, sources).items()
            if axis in cells[0].unreduced
        }
        assigned = choose_assignment(rule, sources, cells, self.mesh, unreduced)
        labels = iter(rule.operands)
        operands = []
        for k, o in enumerate(old.operands):
            axes = unreduced_axes(unreduced, k)
            wanted = [Placement(spec_of_labels(next(labels), assigned), axes) for _ in self.cells.of[o]]
            operands.append(self.move_to(o, self.values[o], wanted))
        produced = [Placement(spec_of_labels(result, assigned), tuple(sorted(unreduced))) for result in rule.results]
        if summed := summed_axes(rule, assigned):
            return self.write_reduction(old, rule, operands, produced[0], summed, unreduced)
        value = self.write_blocks(old, operands, [placement.spec for placement in produced], old.shape)
        if all(cell.placement == m for cell, m in zip(cells, produced, strict=True)):
            return value
        moved = [
            self.reshard(leaf, m, cell.placement)
            for leaf, m, cell in zip(self.build.leaves(value), produced, cells, strict=True)
        ]
        return self.build.assemble(old.shape, iter(moved))

    def write_blocks(
        self, old: Instruction, operands: Sequence[Instruction], produced: Sequence[Spec], whole: Shape
    ) -> Instruction:
        """Emits the operation on blocks of the operands, for results of the shape `whole` in the specs `produced`."""
        if isinstance(old.op, Iota):
            return write_iota(self.moves, old.op, whole, produced[0])
        blocks = iter([self.mesh.local_shape(s, m) for s, m in zip(whole.leaves(), produced, strict=True)])
        shape = shape_of_leaves(whole, blocks)
        op = old.op.on_blocks(old.operand_shapes, [o.shape for o in operands], shape)
        value = self.build_like(old, op, *operands, shape=shape)
        if isinstance(op, Rng) and old.sharding != MANUAL:
            value = self.moves.broadcast_from(value, 0)  # every partition would draw numbers of its own
        if isinstance(op, Reverse):
            value = self.moves.reverse_blocks(value, sum((produced[0][d] for d in op.dimensions), ()))
        return value

    def write_reduction(
        self,
        old: Instruction,
        rule: Rule,
        operands: list[Instruction],
        produced: Placement,
        summed: Axes,
        unreduced: UnreducedOperands,
    ) -> Instruction:
        """Emits a reduction whose operands are sharded along reduced dimensions, the axes `summed`.

        Each partition reduces its blocks from the identity; the results are reduced over the axes, except for those
        along which partial sums are wanted, and combined with the accumulators, which count once. Sums of products are
        rounded to a narrow float when they are complete (DOT-3).
        """
        monoid = rule.monoid
        assert monoid is not None
        accumulators = [(k, operands[k]) for k in rule.accumulators]
        for k, value in accumulators:
            initial = self.build.constant(monoid.identity(value.shape.element_type), value.shape.element_type)
            operands[k] = self.build.broadcast(initial, value.shape)
        type = old.shape.element_type
        wide = type if isinstance(old.op, AppliesScalar) else type.computation_type
        part = self.write_blocks(old, operands, [produced.spec], old.shape.with_element_type(wide))
        combiner = self.combiners(monoid(), part.shape.element_type)
        (wanted,) = (cell.placement for cell in self.cells.of[old])
        kept = tuple(axis for axis in summed if monoid is Add and axis in wanted.unreduced)
        sums = tuple(axis for axis in summed if axis not in kept)
        value, spec = self.reduce_over(part, produced.spec, wanted.spec, sums, combiner)
        value = self.build.convert(value, type)
        reduced_placement = Placement(spec, tuple(sorted(produced.unreduced + kept)))
        for k, accumulator in accumulators:
            if not is_constant(old.operands[k], monoid.identity(accumulator.shape.element_type)):
                before, after = (produced.spec, reduced_placement.spec) if accumulator.shape.rank else ((), ())
                source = Placement(before, unreduced_axes(unreduced, k))
                accumulator = self.reshard(accumulator, source, Placement(after, reduced_placement.unreduced))
                value = self.build(monoid(), self.build.broadcast(accumulator, value.shape), value)
        return self.reshard(value, reduced_placement, wanted)


def shape_of_leaves(whole: Shape, blocks: Iterator[Shape]) -> Shape:
    """A shape of the same structure, with other leaves."""
    if whole.is_tuple:
        return Shape.tuple_of([shape_of_leaves(element, blocks) for element in whole.elements])
    return next(blocks)
