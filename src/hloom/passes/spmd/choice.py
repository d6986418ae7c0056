"""Chooses the axes along which an operation is sharded, where its operands and results disagree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.passes.spmd.planning.propagation import Cell, usable_prefix
from hloom.passes.spmd.planning.rules import Label, Labels, Rule
from hloom.passes.spmd.shardings.mesh import Axes, Mesh, Spec
from hloom.passes.spmd.shardings.resharding import resharding_cost

Assignment = dict[Label, Axes]

MEMORY_COST = 0.25
"""The cost of a byte that an operation reads or writes, relative to that of a byte received from another partition."""


def choose_assignment(
    rule: Rule, operands: Sequence[Cell], results: Sequence[Cell], mesh: Mesh, excluded: Iterable[int]
) -> Assignment:
    """Returns the cheapest of three assignments of axes to the labels of a rule.

    The first gives precedence to the shardings of the results, the second to those of the operands, larger operands
    before smaller ones, and the third to dimensions that are summed over. Axes in `excluded` are not used.
    """
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
    """The labels of operands that no result has: the dimensions that the operation reduces."""
    kept = {label for labels in rule.results for label in labels}
    return frozenset(label for labels in rule.operands for label in labels if label is not None and label not in kept)


def summed_axes(rule: Rule, assignment: Assignment) -> Axes:
    """The axes along which partitions hold partial sums of the result."""
    return sum((assignment.get(label, ()) for label in sorted(reduced_labels(rule), key=str)), ())


def reduce_scatter_axes(produced: Spec, wanted: Spec, summed: Axes) -> tuple[int, Axes]:
    """Finds a dimension of the result that is to be sharded along axes that are summed over, and returns both.

    A reduce-scatter then sums and shards at once. The axes are empty if there is no such dimension.
    """
    for d, (have, want) in enumerate(zip(produced, wanted, strict=True)):
        tail = want[len(have) :]
        if tail and want[: len(have)] == have and {*tail} <= {*summed}:
            return d, tail
    return 0, ()


def spec_of_labels(labels: Labels, assignment: Assignment) -> Spec:
    """The spec of an array whose dimensions have these labels."""
    return tuple(assignment.get(label, ()) if label is not None else () for label in labels)


def _assign(
    order: Sequence[tuple[Labels, Cell]],
    mesh: Mesh,
    unshardable: frozenset[Label],
    excluded: frozenset[int],
    preferred: frozenset[Label] = frozenset(),
) -> Assignment:
    """Assigns to each label the axes of the first array in `order` that is sharded along its dimension.

    An axis is assigned to one label only. Labels in `preferred` choose before the others; labels in `unshardable` and
    axes in `excluded` are left out.
    """
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
    """Estimates the cost of an assignment: the bytes that a partition receives, and a fraction of those it reads and
    writes.
    """
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
