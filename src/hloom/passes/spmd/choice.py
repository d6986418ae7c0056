"""Choosing how an operation is cut: which axes each label of its rule gets, where operands and results disagree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.passes.spmd.mesh import Axes, Mesh, Spec
from hloom.passes.spmd.propagation import Cell, usable_prefix
from hloom.passes.spmd.resharding import resharding_cost
from hloom.passes.spmd.rules import Label, Labels, Rule

Assignment = dict[Label, Axes]

MEMORY_COST = 0.25
"""What a byte that an operation reads or writes costs, where a byte that is received costs 1."""


def choose_assignment(
    rule: Rule, operands: Sequence[Cell], results: Sequence[Cell], mesh: Mesh, excluded: Iterable[int] = ()
) -> Assignment:
    """The cheapest of three assignments: what the results want first, what the operands have first, larger ones
    before smaller ones, and what is summed over first. Axes that are `excluded` cut nothing."""
    excluded_axes = frozenset(excluded)
    operand_sides = [*zip(rule.operands, operands, strict=True)]
    operand_sides.sort(key=lambda side: -side[1].shape.byte_size)
    result_sides = [*zip(rule.results, results, strict=True)]
    if not any(any(cell.spec) for _, cell in (*operand_sides, *result_sides)):
        return {}
    sums = reduced_labels(rule)
    unshardable = sums if rule.monoid is None else frozenset[Label]()
    candidates = [
        _assign([*result_sides, *operand_sides], mesh, unshardable, excluded_axes),
        _assign([*operand_sides, *result_sides], mesh, unshardable, excluded_axes),
    ]
    if sums - unshardable:
        candidates.append(_assign([*operand_sides, *result_sides], mesh, unshardable, excluded_axes, sums))
    distinct = [c for k, c in enumerate(candidates) if c not in candidates[:k]]
    return distinct[0] if len(distinct) == 1 else min(distinct, key=lambda c: _cost(rule, c, operands, results, mesh))


def reduced_labels(rule: Rule) -> frozenset[Label]:
    """The labels that the results lack."""
    kept = {label for labels in rule.results for label in labels}
    return frozenset(label for labels in rule.operands for label in labels if label is not None and label not in kept)


def summed_axes(rule: Rule, assignment: Assignment) -> Axes:
    """The axes along which partitions have partial sums of the result."""
    return sum((assignment.get(label, ()) for label in sorted(reduced_labels(rule), key=str)), ())


def reduce_scatter_axes(produced: Spec, wanted: Spec, summed: Axes) -> tuple[int, Axes]:
    """A dimension in which the result is to be cut by axes that are summed over, and these axes: a reduce-scatter does
    both at once. No axes where there is none."""
    for d, (have, want) in enumerate(zip(produced, wanted, strict=True)):
        tail = want[len(have) :]
        if tail and want[: len(have)] == have and {*tail} <= {*summed}:
            return d, tail
    return 0, ()


def spec_of_labels(labels: Labels, assignment: Assignment) -> Spec:
    """How an array is cut under an assignment."""
    return tuple(assignment.get(label, ()) if label is not None else () for label in labels)


def _assign(
    order: Sequence[tuple[Labels, Cell]],
    mesh: Mesh,
    unshardable: frozenset[Label],
    excluded: frozenset[int],
    preferred: frozenset[Label] = frozenset(),
) -> Assignment:
    """Labels get the axes of the first array in the order that cuts them, unless another label has these; an axis
    serves one label, those `excluded` none. Labels in `preferred` choose before the others, those in `unshardable` get
    nothing."""
    sizes: dict[Label, list[int]] = {}
    requests: list[tuple[Label, Axes]] = []
    for labels, cell in order:
        for label, size, axes in zip(labels, cell.shape.dimensions, cell.spec, strict=True):
            sizes.setdefault(label, []).append(size)
            if axes and label is not None and label not in unshardable:
                requests.append((label, axes))
    requests.sort(key=lambda request: request[0] not in preferred)
    found: Assignment = {}
    used = {*excluded}
    for label, axes in requests:
        taken = () if label in found else usable_prefix(axes, used, sizes[label], mesh)
        if taken:
            found[label] = taken
            used |= {*taken}
    return found


def _cost(rule: Rule, assignment: Assignment, operands: Sequence[Cell], results: Sequence[Cell], mesh: Mesh) -> float:
    """About how many bytes a partition receives for the operation, and a part of those that it reads and writes."""
    total = work = 0.0
    for cell, labels in zip(operands, rule.operands, strict=True):
        total += resharding_cost(mesh, cell.shape, tuple(cell.spec), spec_of_labels(labels, assignment))
        work += cell.shape.byte_size
    summed = summed_axes(rule, assignment)
    for cell, labels in zip(results, rule.results, strict=True):
        produced = spec_of_labels(labels, assignment)
        total += resharding_cost(mesh, cell.shape, produced, tuple(cell.spec))
        if summed:
            _, tail = reduce_scatter_axes(produced, tuple(cell.spec), summed)
            size = cell.shape.byte_size / mesh.shard_count(sum(produced, ()))
            total += size * (bool(tail) + 2 * (len(summed) > len(tail)) / mesh.shard_count(tail))
        work += cell.shape.byte_size
    return total + MEMORY_COST * work / mesh.shard_count(sum(assignment.values(), ()))
