"""Loop transformations that keep what a nest computes: collapsing and splitting of loops, and substitution."""

from __future__ import annotations

from dataclasses import replace

from hloom.affine import Index, Quotient, Remainder, Variable
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.nest import Nest, Store

MIN_SPLIT = 16
"""The smallest extent of an inner loop that is worth a split by itself."""


def collapse(nest: Nest, space: ExpressionSpace) -> Nest:
    """Collapses adjacent loops that traverse every buffer like a single one: (i < 4, j < 8) with 8 i + j -> ij < 32."""
    loops = list(nest.loops)
    position = len(loops) - 2
    while position >= 0:
        outer, inner = loops[position], loops[position + 1]
        if all(_can_collapse(index, outer, inner) for index in nest.indices):
            joint = space.indices.variable(inner.name, outer.extent * inner.extent)
            values = {outer: space.indices.constant(0), inner: space.indices.of(joint)}
            nest = substitute(nest, space, values)
            loops[position : position + 2] = [joint]
            nest = nest.with_loops(loops)
        position -= 1
    return nest


def collapse_reductions(nest: Nest, space: ExpressionSpace) -> Nest:
    """Collapses adjacent loops of reductions, under the condition of `collapse`."""
    for reduction in nest.reductions:
        over = list(reduction.over)
        for position in range(len(over) - 2, -1, -1):
            outer, inner = over[position], over[position + 1]
            if outer in nest.loops or inner in nest.loops:
                continue
            others = [f for f in nest.reductions if (outer in f.over) != (inner in f.over)]
            if others or not all(_can_collapse(index, outer, inner) for index in nest.indices):
                continue
            joint = space.indices.variable(inner.name, outer.extent * inner.extent)
            nest = substitute(nest, space, {outer: space.indices.constant(0), inner: space.indices.of(joint)})
            over[position : position + 2] = [joint]
    return nest


def _can_collapse(index: Index, outer: Variable, inner: Variable) -> bool:
    """Whether an index has one stride through the iterations of both loops."""
    if outer not in index.variables and inner not in index.variables:
        return True
    if not (index.is_affine_in(outer) and index.is_affine_in(inner)):
        return False
    return index.coefficient(outer) == index.coefficient(inner) * inner.extent


def split_at_divisors(nest: Nest, space: ExpressionSpace) -> Nest:
    """Splits loops so that quotients become loop variables: (i < 32) with i // 8 and i mod 8 -> (j < 4, k < 8).

    Inner loops shorter than MIN_SPLIT are made only if they collapse with the loops inside them.
    """
    position = 0
    while position < len(nest.loops):
        loop = nest.loops[position]
        factors = sorted(_split_factors(nest, loop), reverse=True)
        split = next((new for factor in factors if (new := _split_by(nest, space, loop, factor)) is not None), None)
        if split is None:
            position += 1
        else:
            nest = split
    return nest


def _split_by(nest: Nest, space: ExpressionSpace, loop: Variable, factor: int) -> Nest | None:
    """The nest with the loop split by a factor; None if that does not pay."""
    new, *_ = split_loop(nest, space, loop, factor, f"{loop.name}o")
    if factor >= MIN_SPLIT:
        return new
    collapsed = collapse(new, space)
    return collapsed if len(collapsed.loops) <= len(nest.loops) else None


def split_loop(
    nest: Nest, space: ExpressionSpace, loop: Variable, factor: int, outer_name: str
) -> tuple[Nest, Variable, Variable]:
    """Splits a loop in two, the inner one of extent `factor`, which must divide the old extent.

    Returns the new nest, the outer and the inner loop.
    """
    outer = space.indices.variable(outer_name, loop.extent // factor)
    inner = space.indices.variable(loop.name, factor)
    counter = space.indices.linear([space.indices.of(outer), space.indices.of(inner)], [factor, 1])
    position = nest.loops.index(loop)
    loops = (*nest.loops[:position], outer, inner, *nest.loops[position + 1 :])
    return replace(substitute(nest, space, {loop: counter}), loops=loops), outer, inner


def _split_factors(nest: Nest, loop: Variable) -> set[int]:
    """The divisors of the loop's counter in quotients and remainders that also divide the loop's extent."""
    atoms = {atom for index in nest.indices for atom, _ in index.terms if loop in atom.variables}
    divisors = {
        atom.divisor for atom in atoms if isinstance(atom, (Quotient, Remainder)) and atom.operand.is_atom(loop)
    }
    return {d for d in divisors if d < loop.extent and loop.extent % d == 0}


def substitute(nest: Nest, space: ExpressionSpace, values: dict[Variable, Index]) -> Nest:
    """Replaces loop variables by indices in all stores; the loops of the nest stay."""
    roots = space.substitute(nest.values, values)
    stores = tuple(
        Store(store.buffer, space.substitute_index(store.index, values), root)
        for store, root in zip(nest.stores, roots, strict=True)
    )
    return replace(nest, stores=stores)
