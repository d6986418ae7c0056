"""The plan of a partitioning: decides on the sharding of every value of a normalized module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, Module, flatten
from hloom.ops.control_flow import Conditional, While
from hloom.ops.structure import Parameter, Tuple
from hloom.passes.spmd.planning.custom import inspector_of, is_local, partitioner_of, sharding_rule
from hloom.passes.spmd.planning.partial_sums import keep_unreduced, propagate_partial_sums
from hloom.passes.spmd.planning.propagation import Cell, Cells, Link, Port, usable_prefix
from hloom.passes.spmd.planning.rules import Rule, rule_of
from hloom.passes.spmd.shardings.annotations import Annotation, Shardy, annotation_of, replicated
from hloom.passes.spmd.shardings.markers import CONSTRAINTS, ENTRIES, EXITS, GROUPS, marker
from hloom.passes.spmd.shardings.mesh import Axes, Mesh, Placement, Spec, SubAxis
from hloom.shape import Shape


@dataclass
class Plan:
    """The shardings of a normalized module.

    `cells` has those of all values, `rules` the rules of operations that follow one. `boundaries` has the placement of
    each value that enters or leaves a manual region, along the manual axes, or its annotation if no spec expresses it;
    `manual` are the manual axes. `parameters` and `results` are the cells of the entry's parameters and results;
    `irregular` and `irregular_results` the annotations of those that no spec expresses outside the program.
    """

    module: Module
    mesh: Mesh
    shardy: Shardy
    cells: Cells
    rules: dict[Instruction, Rule] = field(default_factory=dict)
    boundaries: dict[Instruction, list[Placement | Annotation]] = field(default_factory=dict)
    manual: dict[Instruction, frozenset[int]] = field(default_factory=dict)
    parameters: list[list[Cell]] = field(default_factory=list)
    irregular: dict[tuple[int, int], Annotation] = field(default_factory=dict)
    results: list[Cell] = field(default_factory=list)
    irregular_results: dict[int, Annotation] = field(default_factory=dict)
    groups: dict[str, list[Cell]] = field(default_factory=dict)


def plan_shardings(
    module: Module, count: int, open_results: Sequence[bool] | None, open_parameters: Sequence[bool] | None
) -> Plan:
    """Decides on the sharding of every value of a normalized module."""
    shardy = Shardy(module.frontend_attributes.get("xla.sdy.meshes", ""), count)
    mesh = Mesh.over(count, _sub_axes(module, shardy))
    plan = Plan(module, mesh, shardy, Cells(mesh))
    leaves = len(flatten(module.entry.parameter_shapes))
    flags = iter([False] * leaves if open_parameters is None else _flags(open_parameters, leaves, "parameters"))
    plan.parameters = [
        _entry_parameter_cells(plan, number, parameter, flags)
        for number, parameter in enumerate(module.entry.parameters)
    ]
    _visit(plan, module.entry, plan.parameters)
    _demand_results(plan, open_results)
    propagate_partial_sums(plan.cells, plan.rules)
    before = plan.cells.specs()
    plan.cells.propagate()
    if agreed := _group_specs(plan):
        for cell, spec in (*before, *agreed):
            cell.spec = spec
        plan.cells.propagate()
    return plan


def _sub_axes(module: Module, shardy: Shardy) -> list[SubAxis]:
    """The sub-axes that annotations of the module name, those of the entry parameters first."""
    annotations: list[Annotation] = []
    ordered = [*module.entry.parameters, *(i for c in reversed(module.computations) for i in c.instructions)]
    for instruction in ordered:
        shapes = [*instruction.shape.leaves()]
        if marker(instruction) in ENTRIES | EXITS:
            annotations += [side for sides in _boundary_annotations(instruction, shardy) for side in sides]
        elif instruction.sharding is not None or "xla.sdy.sharding" in instruction.frontend_attributes:
            annotations += annotation_of(instruction, shapes, shardy) or []
    return [
        sub_axis
        for annotation in annotations
        for sub_axes in (*(annotation.sub_axes or ()), annotation.manual, annotation.unreduced)
        for sub_axis in sub_axes
    ]


def placement_of(annotation: Annotation, shape: Shape, mesh: Mesh) -> Placement | None:
    """The placement that an annotation stands for; None if the mesh cannot express it or blocks differ in size.

    ArgumentError for partial sums without a placement.
    """
    spec, unreduced = spec_of(annotation, shape, mesh), axes_of(mesh, annotation.unreduced)
    if spec is not None and unreduced is not None:
        return Placement(spec, tuple(sorted(unreduced)))
    if annotation.unreduced:
        raise ArgumentError(
            f"an array {shape} of partial sums must be sharded into equal blocks along the axes of one "
            f"mesh, over which it can be summed; the module's shardings have the mesh {list(mesh.sizes)}"
        )
    return None


def spec_of(annotation: Annotation, shape: Shape, mesh: Mesh) -> Spec | None:
    """The spec that an annotation stands for; None if the mesh cannot express it or blocks differ in size."""
    if annotation.sub_axes is None:
        return None
    found = [axes_of(mesh, sub_axes) for sub_axes in annotation.sub_axes]
    if any(
        axes is None or not mesh.divides(n, axes) for axes, n in zip(found, shape.dimensions, strict=True) if axes != ()
    ):
        return None
    return tuple(axes or () for axes in found)


def axes_of(mesh: Mesh, sub_axes: Sequence[SubAxis]) -> Axes | None:
    """The axes of the mesh that make up some sub-axes; None if it cannot express them."""
    parts = [mesh.axes_of(sub_axis) for sub_axis in sub_axes]
    return None if any(part is None for part in parts) else tuple(axis for part in parts if part for axis in part)


def _constrain(cell: Cell, annotation: Annotation, mesh: Mesh) -> None:
    """Applies a constraint, leaving out axes that the mesh lacks or that do not divide the dimension."""
    if annotation.device is not None or (annotation.manual and not any(annotation.sub_axes or ())):
        return
    if annotation.sub_axes is None or cell.shape.is_dynamic:
        return
    spec = [
        usable_prefix(axes_of(mesh, sub_axes) or (), (), [n], mesh)
        for sub_axes, n in zip(annotation.sub_axes, cell.shape.dimensions, strict=True)
    ]
    used = {axis for axes in spec for axis in axes}
    cell.set(spec, annotation.open, tuple(a for a in axes_of(mesh, annotation.unreduced) or () if a not in used))


def _is_followed(shape: Shape, annotation: Annotation) -> bool:
    """Whether the annotation of a parameter or result is followed; arrays with dynamic dimensions are replicated."""
    return shape.is_array and not shape.is_dynamic and annotation.device is None


def _entry_parameter_cells(plan: Plan, number: int, parameter: Instruction, open_leaves: Iterator[bool]) -> list[Cell]:
    """The cells of a parameter of the entry; annotations that no spec expresses go to `plan.irregular`."""
    leaves = [*parameter.shape.leaves()]
    annotations = annotation_of(parameter, leaves, plan.shardy)
    cells = [Cell.of(leaf, closed=annotations is not None or not flag) for leaf, flag in zip(leaves, open_leaves)]
    for k, (cell, annotation) in enumerate(zip(cells, annotations or ())):
        if not _is_followed(cell.shape, annotation):
            continue
        placement = placement_of(annotation, cell.shape, plan.mesh)
        if placement is None:
            plan.irregular[number, k] = annotation
        else:
            cell.set(placement.spec, [False] * cell.shape.rank, placement.unreduced)
    return cells


def _demand_results(plan: Plan, open_results: Sequence[bool] | None) -> None:
    """Links the entry's results to cells with their annotations; open results and those without one are free."""
    root = plan.module.entry.root
    leaves = [*root.shape.leaves()]
    flags = _open_flags(plan, open_results, len(leaves))
    annotations = annotation_of(root, leaves, plan.shardy) if isinstance(root.op, Tuple) else None
    for k, (source, leaf) in enumerate(zip(plan.cells.of[root], leaves, strict=True)):
        cell = Cell.of(leaf)
        annotation = annotations[k] if annotations and leaf.is_array else None
        if flags[k] and annotation is not None and not any(annotation.sub_axes or ()) and not annotation.unreduced:
            annotation = None  # `replicated` stands for no annotation here
        if annotation is not None and _is_followed(leaf, annotation):
            placement = placement_of(annotation, leaf, plan.mesh)
            if placement is None:
                plan.irregular_results[k] = annotation
            placement = placement or Placement.replicated(leaf.rank)
            cell.set(placement.spec, [False] * leaf.rank, placement.unreduced)
        cell.unreduced_closed = True
        plan.results.append(cell)
        plan.cells.connect([source], [cell])


def _open_flags(plan: Plan, given: Sequence[bool] | None, count: int) -> list[bool]:
    """Returns for each result whether `replicated` may stand for the absence of an annotation."""
    root = plan.module.entry.root
    if given is not None:
        return _flags(given, count, "results")
    if not plan.shardy.meshes or len(root.operands) != count:
        return [False] * count
    return [marker(operand) != "xla.sdy.FuncResultSharding" for operand in root.operands]


def _flags(given: Sequence[bool], count: int, what: str) -> list[bool]:
    """Returns a flag for each parameter or result; a single given flag holds for all."""
    if len(given) not in (1, count):
        raise ArgumentError(f"the program has {count} {what}, got {len(given)} flags for open ones")
    return [*given] * count if len(given) == 1 else [*given]


def _visit(plan: Plan, computation: Computation, parameters: Sequence[list[Cell]]) -> None:
    """Creates the cells of every value of a computation, and links them."""
    cells = plan.cells
    for instruction in computation.instructions:
        op = instruction.op
        if isinstance(op, Parameter):
            cells.of[instruction] = parameters[op.number]
        elif marker(instruction):
            _visit_marker(plan, instruction)
        elif isinstance(op, While):
            state = cells.new(instruction)
            _visit(plan, op.body, [state])
            _visit(plan, op.condition, [state])
            cells.connect(cells.operands(instruction), state)
            cells.connect(cells.of[op.body.root], state)
        elif isinstance(op, Conditional):
            result = cells.new(instruction)
            for branch, operand in zip(op.branch_computations, instruction.operands[1:], strict=True):
                _visit(plan, branch, [cells.of[operand]])
                cells.connect(cells.of[branch.root], result)
        elif inspector_of(instruction):
            cells.of[instruction] = cells.operands(instruction)
        elif is_local(instruction):
            cells.new(instruction)
        elif partitioner_of(instruction):
            cells.new(instruction)
            cells.follow(instruction, sharding_rule(instruction))
        elif not cells.share(instruction):
            cells.new(instruction)
            plan.rules[instruction] = rule_of(instruction)
            cells.follow(instruction, plan.rules[instruction])


def _visit_marker(plan: Plan, instruction: Instruction) -> None:
    """Creates the cells of a marker's results, and links them to the operands as the marker demands."""
    cells, target = plan.cells, marker(instruction)
    operands = cells.operands(instruction)
    if target in GROUPS:
        _join_group(plan, instruction.frontend_attributes.get("xla.sdy.sharding_group_id", ""), operands)
        cells.of[instruction] = []
        return
    results = cells.new(instruction)
    if target in CONSTRAINTS:
        annotations = annotation_of(instruction, [cell.shape for cell in results], plan.shardy)
        for cell, annotation in zip(results, annotations or ()):
            _constrain(cell, annotation, plan.mesh)
        group = re.search(r"shard_(?:as|like) (\d{1,18})\b", instruction.sharding.extra if instruction.sharding else "")
        if group:
            _join_group(plan, group[1], results)
        cells.connect(operands, results)
        for result in results if len(results) == 1 else ():
            keep_unreduced(instruction.operands[0], result.unreduced, cells, plan.rules)
    elif target in ENTRIES | EXITS:
        plan.boundaries[instruction] = _boundaries(plan, instruction)
        for source, result, boundary in zip(operands, results, plan.boundaries[instruction], strict=True):
            _link_boundary(plan, source, result, boundary, plan.manual[instruction], entering=target in ENTRIES)
        for operand, boundary in zip(instruction.operands, plan.boundaries[instruction]) if target in ENTRIES else ():
            if isinstance(boundary, Placement):
                keep_unreduced(operand, boundary.unreduced, cells, plan.rules)


def _join_group(plan: Plan, group: str, cells: Sequence[Cell]) -> None:
    """Links values of a sharding group, which are sharded alike."""
    members = plan.groups.setdefault(group, [])
    for cell in cells:
        if members:
            plan.cells.align([members[0]], [cell])
        members.append(cell)


def _group_specs(plan: Plan) -> list[tuple[Cell, list[Axes]]]:
    """Returns the spec with the smallest blocks for members of a sharding group that still differ."""
    found = []
    for members in plan.groups.values():
        best = max(members, key=lambda cell: plan.mesh.shard_count(sum(cell.spec, ())))
        used = sum(best.spec, ())
        free = [cell for cell in members if not any(cell.closed) and {*cell.unreduced}.isdisjoint(used)]
        if any(cell.spec != best.spec for cell in free):
            found += [(cell, [*best.spec]) for cell in free]
    return found


# Manual regions


def _boundary_annotations(instruction: Instruction, shardy: Shardy) -> list[tuple[Annotation, Annotation]]:
    """The annotations of each value that enters or leaves a manual region.

    The first of each pair is the sharding outside of the region, the second one has the manual sub-axes.
    """
    entering = marker(instruction) in ENTRIES
    outside = flatten(instruction.operand_shapes) if entering else [*instruction.shape.leaves()]
    key = "xla.sdy.in_shardings" if entering else "xla.sdy.out_shardings"
    text = instruction.frontend_attributes.get(key)
    if text is not None:
        names = instruction.frontend_attributes.get("xla.sdy.manual_axes", "")
        manual = tuple(shardy.manual(names, text))
        whole = replicated(0, shardy.count)
        inside = Annotation(whole.assignment, whole.sub_axes, (), manual)
        return [(annotation, inside) for annotation in shardy.read(text, outside)]
    full, part = (instruction.operands[0], instruction) if entering else (instruction, instruction.operands[0])
    full_annotations = annotation_of(full, [full.shape], shardy)
    part_annotations = annotation_of(part, [part.shape], shardy)
    if full_annotations is None or part_annotations is None:
        raise ArgumentError(
            f"{marker(instruction)} needs the sharding of the whole array on %{full.name}, and the manual sharding of "
            f"the block on %{part.name}"
        ).at(repr(instruction))
    return [(full_annotations[0], part_annotations[0])]


def _boundaries(plan: Plan, instruction: Instruction) -> list[Placement | Annotation]:
    """The placement of each value along the manual axes; records these axes in `plan.manual`."""
    found: list[Placement | Annotation] = []
    results, operands = [*instruction.shape.leaves()], flatten(instruction.operand_shapes)
    outer, inner = (operands, results) if marker(instruction) in ENTRIES else (results, operands)
    sides = _boundary_annotations(instruction, plan.shardy)
    plan.manual[instruction] = frozenset()
    for (outside, inside), block, whole in zip(sides, inner, outer, strict=True):
        manual = axes_of(plan.mesh, inside.manual)
        placement = placement_of(outside, whole, plan.mesh)
        if manual is None or placement is None:
            found.append(outside)
            continue
        plan.manual[instruction] |= {*manual}
        manual_spec = tuple(tuple(axis for axis in axes if axis in manual) for axes in placement.spec)
        block_shape = plan.mesh.local_shape(whole, manual_spec)
        if block_shape.dimensions != block.dimensions:
            raise ArgumentError(
                f"the manual axes shard {whole} into blocks of {block_shape}, but the region has {block}"
            ).at(repr(instruction))
        found.append(Placement(manual_spec, tuple(axis for axis in placement.unreduced if axis in manual)))
    return found


def _link_boundary(
    plan: Plan, source: Cell, result: Cell, boundary: Placement | Annotation, manual: frozenset[int], entering: bool
) -> None:
    """Links a value outside of a manual region to that inside: outside, the manual axes precede all others."""
    outer, inner = (source, result) if entering else (result, source)
    if isinstance(boundary, Annotation):
        outer.closed, inner.closed = ([True] * cell.shape.rank for cell in (outer, inner))
        return
    labels = tuple(range(outer.shape.rank))
    none = ((),) * outer.shape.rank
    if entering:
        plan.cells.links.append(Link((Port(outer, labels, boundary.spec, manual),), (Port(inner, labels, none),)))
        for d, axes in enumerate(boundary.spec):
            outer.extend(d, axes, plan.mesh)
    else:
        outer.set(boundary.spec, [True] * outer.shape.rank, boundary.unreduced)
        plan.cells.links.append(Link((Port(inner, labels, none),), (Port(outer, labels, boundary.spec, manual),)))
