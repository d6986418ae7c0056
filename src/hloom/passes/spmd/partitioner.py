"""The SPMD partitioner: emits the program that each partition of a module with shardings runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Iota
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Call, Conditional, While
from hloom.ops.structure import Constant, Parameter
from hloom.passes.op_builder import OpBuilder, ScalarComputations, adopt, new_computation
from hloom.passes.pipeline import clone_module
from hloom.passes.spmd.block_values import copy_attributes
from hloom.passes.spmd.planning.custom import Partitioner, inspector_of, is_local, partitioner_of
from hloom.passes.spmd.planning.normalization import normalize, remove_annotations
from hloom.passes.spmd.planning.plan import Plan, plan_shardings
from hloom.passes.spmd.planning.propagation import Cell
from hloom.passes.spmd.rule_writer import RuleWriter, shape_of_leaves
from hloom.passes.spmd.shardings.annotations import Annotation, maximal_device
from hloom.passes.spmd.shardings.markers import CONSTRAINTS, ENTRIES, GROUPS, IDENTITIES, marker
from hloom.passes.spmd.shardings.mesh import Mesh, Placement
from hloom.passes.spmd.shardings.resharding import block_shape
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.verifier.annotations import check_loop_shardings


@record
class Partitioned:
    """The program of one partition.

    `parameters` and `results` are the shardings of the array leaves of the entry's parameters and of its result, in
    order.
    """

    module: Module
    parameters: list[Sharding]
    results: list[Sharding]


def partition(
    module: Module,
    num_partitions: int,
    open_results: Sequence[bool] | None = None,
    open_parameters: Sequence[bool] | None = None,
) -> Partitioned:
    """Returns the per-partition program of a module, which is not changed; see the package's docstring.

    `open_results[k]` is true if the k-th array of the result may have any sharding although the module annotates it as
    `replicated`: JAX's `allow_spmd_sharding_propagation_to_output`. `open_parameters[k]` is true if the k-th array of
    the parameters may have any sharding where the module has no annotation for it.
    """
    if num_partitions < 1:
        raise ArgumentError(f"a program runs on at least one partition, got {num_partitions}")
    own = clone_module(module)
    if num_partitions == 1 and not any(partitioner_of(i) or inspector_of(i) for i in own.instructions()):
        remove_annotations(own)
        own.num_partitions = 1
        whole = Sharding(ShardingType.REPLICATED)
        parameters = [whole for parameter in own.entry.parameters for _ in parameter.shape.leaves()]
        return Partitioned(own, parameters, [whole for _ in own.entry.result_shape.leaves()])
    check_loop_shardings(own)
    normalize(own)
    plan = plan_shardings(own, num_partitions, open_results, open_parameters)
    _Partitioner(plan).run()
    own.num_partitions = num_partitions
    mesh = plan.mesh
    parameters = [
        _reported_sharding(mesh, cell, plan.irregular.get((parameter_number, k)))
        for parameter_number, cells in enumerate(plan.parameters)
        for k, cell in enumerate(cells)
    ]
    results = [_reported_sharding(mesh, cell, plan.irregular_results.get(k)) for k, cell in enumerate(plan.results)]
    return Partitioned(own, parameters, results)


def _reported_sharding(mesh: Mesh, cell: Cell, irregular: Annotation | None) -> Sharding:
    """The sharding of a parameter or result as the caller sees it."""
    if irregular is None:
        return mesh.sharding(cell.placement)
    copies = irregular.assignment.shape[-1]
    tiles = irregular.tiles if copies == 1 else irregular.assignment.shape
    return Sharding(
        ShardingType.OTHER,
        tiles,
        tile_assignment_devices=tuple(map(int, irregular.assignment.flat)),
        replicate_on_last_tile_dim=copies > 1,
    )


class _Partitioner:
    """Emits the entry and all computations that it runs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.module = plan.module
        used = [getattr(i.op, "channel_id", None) or 0 for i in plan.module.instructions()]
        self.channels = itertools.count(max([0, *used]) + 1)
        self.combiners = ScalarComputations(self.module)

    def run(self) -> None:
        """Replaces the entry of the module, its layouts and its aliases."""
        old, module = self.module.entry, self.module
        donors = [*module.input_output_alias]
        entry = self.write(old, self.plan.results)
        module.entry_computation = entry
        module.computations = callees_first(entry)
        parameters, result = module.entry_parameter_layouts, module.entry_result_layout
        if parameters is not None:
            pairs = zip(entry.parameter_shapes, parameters, strict=True)
            module.entry_parameter_layouts = [_with_layouts(new, layout) for new, layout in pairs]
        if result is not None:
            module.entry_result_layout = _with_layouts(entry.result_shape, result)
        module.input_output_alias = [
            alias
            for alias in donors
            if entry.parameter_shapes[alias.parameter_number].subshape(alias.parameter_index).byte_size
            == entry.result_shape.subshape(alias.output_index).byte_size
        ]

    def write(self, old: Computation, results: Sequence[Cell]) -> Computation:
        """Emits a computation for one partition, with its result sharded as `results` are."""
        return _Writer(self, old).write(results)


def _with_layouts(shape: Shape, like: Shape) -> Shape:
    """A shape with the layouts of another one."""
    if shape.is_tuple:
        return Shape.tuple_of(map(_with_layouts, shape.elements, like.elements))
    return shape.with_layout(like.layout) if shape.is_array else shape


class _Writer(RuleWriter):
    """Emits one computation."""

    def __init__(self, partitioner: _Partitioner, old: Computation) -> None:
        super().__init__(partitioner.plan, old, partitioner.channels, partitioner.combiners)
        self.partitioner = partitioner

    def write(self, results: Sequence[Cell]) -> Computation:
        """Emits all instructions and the result, and returns the new computation."""
        for instruction in self.old.instructions:
            self.current = instruction
            self.values[instruction] = self.write_instruction(instruction)
        root = self.old.root
        if self.old is self.plan.module.entry:
            self.new.root = self.distribute_results(self.move_leaves(root, self.values[root], results))
        else:
            self.new.root = self.move_leaves(root, self.values[root], results)
        for instruction in self.old.instructions:
            for before in instruction.control_predecessors:
                if not marker(before) and not marker(instruction):
                    self.values[before].add_control_dependency(self.values[instruction])
        return self.new

    def write_instruction(self, old: Instruction) -> Instruction:
        """Emits the replacement of one instruction and returns it."""
        op = old.op
        if isinstance(op, Parameter):
            return self.write_parameter(old, op)
        if marker(old):
            return self.write_marker(old)
        if isinstance(op, While):
            return self.write_while(old, op)
        if isinstance(op, Conditional):
            return self.write_conditional(old, op)
        if (inspect := inspector_of(old)) is not None:
            (cell,) = self.cells.of[old]
            inspect(old, self.mesh.sharding(cell.placement))
            return self.values[old.operands[0]]
        if (partitioner := partitioner_of(old)) is not None:
            return self.write_custom_partition(old, partitioner)
        if is_local(old):
            return self.write_local(old)
        if old not in self.plan.rules:
            return self.build_like(old, op, *(self.values[operand] for operand in old.operands))
        device = maximal_device(old)
        if device is not None and not isinstance(op, (Constant, Iota)):
            return self.write_on_one_device(old, device)
        return self.write_by_rule(old, self.plan.rules[old])

    def write_parameter(self, old: Instruction, op: Parameter) -> Instruction:
        """Emits a parameter; blocks in irregular shardings are assembled to whole arrays."""
        cells = self.cells.of[old]
        entry = self.old is self.plan.module.entry
        irregular = [self.plan.irregular.get((op.number, k)) if entry else None for k in range(len(cells))]
        blocks = [
            self.mesh.local_shape(cell.shape, tuple(cell.spec))
            if annotation is None
            else block_shape(cell.shape, annotation)
            for cell, annotation in zip(cells, irregular, strict=True)
        ]
        value = self.build_like(old, op, shape=shape_of_leaves(old.shape, iter(blocks)))
        if not any(irregular):
            return value
        whole = [
            leaf if annotation is None else self.moves.assemble(leaf, cell.shape, annotation)
            for leaf, cell, annotation in zip(self.build.leaves(value), cells, irregular, strict=True)
        ]
        return self.build.assemble(value.shape, iter(whole))

    def distribute_results(self, value: Instruction) -> Instruction:
        """Extracts the blocks of results in irregular shardings."""
        irregular = self.plan.irregular_results
        if not irregular:
            return value
        leaves = self.build.leaves(value)
        distributed = [
            self.moves.distribute(leaf, irregular[k]) if k in irregular else leaf for k, leaf in enumerate(leaves)
        ]
        return self.build.assemble(value.shape, iter(distributed))

    def write_marker(self, old: Instruction) -> Instruction:
        """Replaces a marker by the resharding that it demands."""
        target = marker(old)
        if target in GROUPS:
            return self.build.tuple()
        if target in CONSTRAINTS | IDENTITIES:
            (operand,) = old.operands
            return self.move_leaves(operand, self.values[operand], self.cells.of[old])
        entering = target in ENTRIES
        leaves = [leaf for o in old.operands for leaf in self.build.leaves(self.values[o])]
        crossed = [
            self.cross_boundary(leaf, source, result, boundary, entering)
            for leaf, source, result, boundary in zip(
                leaves, self.cells.operands(old), self.cells.of[old], self.plan.boundaries[old], strict=True
            )
        ]
        return self.build.assemble(old.shape, iter(crossed))

    def cross_boundary(
        self, leaf: Instruction, source: Cell, result: Cell, boundary: Placement | Annotation, entering: bool
    ) -> Instruction:
        """Moves a value into or out of a manual region: the block stays the same, its meaning changes."""
        if isinstance(boundary, Annotation):
            leaf = self.move(leaf, source, Placement.replicated(source.shape.rank))
            return (
                self.moves.distribute(leaf, boundary) if entering else self.moves.assemble(leaf, result.shape, boundary)
            )
        if entering:
            outer = tuple(a + b for a, b in zip(boundary.spec, result.spec, strict=True))
            return self.move(leaf, source, Placement(outer, boundary.unreduced))
        inner = tuple(axes[len(manual) :] for axes, manual in zip(result.spec, boundary.spec, strict=True))
        return self.move(leaf, source, Placement(inner))

    def write_while(self, old: Instruction, op: While) -> Instruction:
        """Emits a loop whose state keeps its sharding."""
        (init,) = old.operands
        state = self.cells.of[old]
        value = self.move_leaves(init, self.values[init], state)
        body = self.partitioner.write(op.body, state)
        condition = self.partitioner.write(op.condition, [Cell.of(op.condition.root.shape)])
        return self.build_like(old, op.replace(body=body, condition=condition), value)

    def write_conditional(self, old: Instruction, op: Conditional) -> Instruction:
        """Emits a conditional on a replicated index; all branches return the same shardings."""
        branches = tuple(self.partitioner.write(branch, self.cells.of[old]) for branch in op.branch_computations)
        index, *operands = old.operands
        chosen = self.move_to(index, self.values[index], [Placement.replicated(0)])
        return self.build_like(
            old, Conditional(branch_computations=branches), chosen, *(self.values[operand] for operand in operands)
        )

    def whole_operands(self, old: Instruction) -> list[Instruction]:
        """The operands of an instruction, replicated."""
        return [
            self.move_to(o, self.values[o], [Placement.replicated(cell.shape.rank) for cell in self.cells.of[o]])
            for o in old.operands
        ]

    def write_on_one_device(self, old: Instruction, device: int) -> Instruction:
        """Emits the instruction in a branch that only `device` takes, and a broadcast of its result."""
        arguments = self.build.tuple(*self.whole_operands(old))
        is_here = self.build(
            Compare(direction=ComparisonDirection.EQ),
            self.moves.partition,
            self.build.constant(device, PrimitiveType.U32),
        )
        module = self.plan.module
        run, skip = (new_computation(module, f"{old.opcode}.{word}") for word in ("here", "elsewhere"))
        build = OpBuilder.of(run)
        operands = build.elements(build.parameter(0, arguments.shape))
        copy_attributes(old, build(old.op, *operands, shape=old.shape))
        build = OpBuilder.of(skip)
        build.parameter(0, arguments.shape)
        build.zeros(old.shape)
        branches = Conditional(branch_computations=(run, skip))
        value = self.build(branches, is_here, arguments, arguments)
        sent = [
            self.moves.broadcast_from(leaf, device) if leaf.shape.is_array else leaf
            for leaf in self.build.leaves(value)
        ]
        moved = [
            self.reshard(leaf, Placement.replicated(cell.shape.rank), cell.placement)
            for leaf, cell in zip(sent, self.cells.of[old], strict=True)
        ]
        return self.build.assemble(old.shape, iter(moved))

    def write_local(self, old: Instruction) -> Instruction:
        """Emits the call for the blocks that each partition holds; partial sums are completed before."""
        operands = [
            self.move_to(o, self.values[o], [Placement(tuple(cell.spec)) for cell in self.cells.of[o]])
            for o in old.operands
        ]
        op = old.op.on_blocks(old.operand_shapes, [operand.shape for operand in operands], old.shape)
        return self.build_like(old, op, *operands, shape=old.shape)

    def write_custom_partition(self, old: Instruction, partitioner: Partitioner) -> Instruction:
        """Emits a call of the program that a custom partitioner builds.

        Operands and results are resharded to and from the shardings that it chooses.
        """
        sources, cells = self.cells.operands(old), self.cells.of[old]
        have, want = ([self.mesh.sharding(Placement(tuple(c.spec))) for c in side] for side in (sources, cells))
        part = partitioner(old, have, want)
        leaves = [leaf for operand in old.operands for leaf in self.build.leaves(self.values[operand])]
        blocks = [self.block_of(*each) for each in zip(leaves, sources, part.operands, strict=True)]
        entry = part.module.entry
        adopt(self.plan.module, entry)
        called = self.build(Call(computation=entry), *blocks, shape=entry.result_shape)
        produced = [self.from_block(*each) for each in zip(self.build.leaves(called), cells, part.results, strict=True)]
        return self.build.assemble(old.shape, iter(produced))
