"""Choosing how an operation is cut: which axes each label of its rule gets, where operands and results disagree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.passes.spmd.mesh import Axes, Mesh, Spec
from hloom.passes.spmd.propagation import Cell, usable
from hloom.passes.spmd.resharding import cost
from hloom.passes.spmd.rules import Label, Labels, Rule

Assignment = dict[Label, Axes]

MEMORY_COST = 0.25
"""What a byte that an operation reads or writes costs, where a byte that is received costs 1."""


def choose(
    rule: Rule, operands: Sequence[Cell], results: Sequence[Cell], mesh: Mesh, barred: Iterable[int] = ()
) -> Assignment:
    """The cheapest of three assignments: what the results want first, what the operands have first, larger ones
    before smaller ones, and what is summed over first. Axes that are `barred` cut nothing."""
    bars = frozenset(barred)
    sides = [*zip(rule.operands, operands, strict=True)]
    sides.sort(key=lambda side: -side[1].shape.byte_size)
    ends = [*zip(rule.results, results, strict=True)]
    if not any(any(cell.spec) for _, cell in (*sides, *ends)):
        return {}
    sums = reduced_labels(rule)
    never = sums if rule.monoid is None else frozenset[Label]()
    candidates = [_assign([*ends, *sides], mesh, never, bars), _assign([*sides, *ends], mesh, never, bars)]
    if sums - never:
        candidates.append(_assign([*sides, *ends], mesh, never, bars, sums))
    distinct = [c for k, c in enumerate(candidates) if c not in candidates[:k]]
    return distinct[0] if len(distinct) == 1 else min(distinct, key=lambda c: _cost(rule, c, operands, results, mesh))


def reduced_labels(rule: Rule) -> frozenset[Label]:
    """The labels that the results lack."""
    kept = {label for labels in rule.results for label in labels}
    return frozenset(label for labels in rule.operands for label in labels if label is not None and label not in kept)


def summed_axes(rule: Rule, assignment: Assignment) -> Axes:
    """The axes along which partitions have partial sums of the result."""
    return sum((assignment.get(label, ()) for label in sorted(reduced_labels(rule), key=str)), ())


def scattered(made: Spec, wanted: Spec, summed: Axes) -> tuple[int, Axes]:
    """A dimension in which the result is to be cut by axes that are summed over, and these axes: a reduce-scatter does
    both at once. No axes where there is none."""
    for d, (have, want) in enumerate(zip(made, wanted, strict=True)):
        tail = want[len(have) :]
        if tail and want[: len(have)] == have and {*tail} <= {*summed}:
            return d, tail
    return 0, ()


def spec(labels: Labels, assignment: Assignment) -> Spec:
    """How an array is cut under an assignment."""
    return tuple(assignment.get(label, ()) if label is not None else () for label in labels)


def _assign(
    order: Sequence[tuple[Labels, Cell]],
    mesh: Mesh,
    never: frozenset[Label],
    barred: frozenset[int],
    first: frozenset[Label] = frozenset(),
) -> Assignment:
    """Labels get the axes of the first array in the order that cuts them, unless another label has these; an axis
    serves one label, those `barred` none. Labels in `first` choose before the others, those in `never` get nothing."""
    sizes: dict[Label, list[int]] = {}
    wishes: list[tuple[Label, Axes]] = []
    for labels, cell in order:
        for label, size, axes in zip(labels, cell.shape.dimensions, cell.spec, strict=True):
            sizes.setdefault(label, []).append(size)
            if axes and label is not None and label not in never:
                wishes.append((label, axes))
    wishes.sort(key=lambda wish: wish[0] not in first)
    found: Assignment = {}
    used = {*barred}
    for label, axes in wishes:
        taken = () if label in found else usable(axes, used, sizes[label], mesh)
        if taken:
            found[label] = taken
            used |= {*taken}
    return found


def _cost(rule: Rule, assignment: Assignment, operands: Sequence[Cell], results: Sequence[Cell], mesh: Mesh) -> float:
    """About how many bytes a partition receives for the operation, and a part of those that it reads and writes."""
    total = work = 0.0
    for cell, labels in zip(operands, rule.operands, strict=True):
        total += cost(mesh, cell.shape, tuple(cell.spec), spec(labels, assignment))
        work += cell.shape.byte_size
    summed = summed_axes(rule, assignment)
    for cell, labels in zip(results, rule.results, strict=True):
        made = spec(labels, assignment)
        total += cost(mesh, cell.shape, made, tuple(cell.spec))
        if summed:
            _, tail = scattered(made, tuple(cell.spec), summed)
            size = cell.shape.byte_size / mesh.ways(sum(made, ()))
            total += size * (bool(tail) + 2 * (len(summed) > len(tail)) / mesh.ways(tail))
        work += cell.shape.byte_size
    return total + MEMORY_COST * work / mesh.ways(sum(assignment.values(), ()))
