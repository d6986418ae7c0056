"""Computations that are applied to elements: map, reduce, scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.analysis.monoids import CombinerPart, independent_parts
from hloom.ir import Computation, Instruction
from hloom.ops.reduce import Map, Reduce
from hloom.ops.scan import Scan
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol, leaf_types
from hloom.prove.terms.functions import apply
from hloom.prove.terms.term import Combination, Term, array_of, constant
from hloom.values import Array

Row = list[Term]
"""An element of each operand, at one index."""


@RULES.rule(Map)
def _map(op: Map, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    sizes = operands[0].shape
    rows = zip(*(operand.reshape(-1) for operand in operands), strict=True)
    return array_of([evaluator.scalars(op.computation, row)[0] for row in rows], sizes)


@RULES.rule(Reduce)
def _reduce(op: Reduce, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    half = len(operands) // 2
    initial = [operand[()] for operand in operands[half:]]
    kept = [d for d in range(operands[0].ndim) if d not in op.dimensions]
    sizes = tuple(operands[0].shape[d] for d in kept)
    order = [*kept, *sorted(op.dimensions)]
    count = int(np.prod([operands[0].shape[d] for d in op.dimensions], dtype=np.int64))
    wide = [operand.transpose(order).reshape(-1, count) if count else None for operand in operands[:half]]
    found = []
    for k in range(int(np.prod(sizes, dtype=np.int64))):
        rows = [[array[k, i] for array in wide if array is not None] for i in range(count)]
        found.append(combined(evaluator, op.computation, initial, rows))
    return results_of(found, half, sizes)


def results_of(rows: Sequence[Row], count: int, sizes: tuple[int, ...]) -> Symbol:
    """Returns the results whose elements are the columns of rows: an array, or a tuple of several."""
    arrays = tuple(array_of([row[k] for row in rows], sizes) for k in range(count))
    return arrays if count > 1 else arrays[0]


def combined(evaluator: Evaluator, combiner: Computation, initial: Row, rows: list[Row]) -> Row:
    """Combines an initial value and elements: the initial value on the left, and a balanced tree of the others.

    The order is open (GEN-13): sums of floats are one function of all their terms.
    """
    if not rows:
        return initial
    found: dict[int, Term] = {}
    for part in independent_parts(combiner):
        found |= zip(part.accumulators, _part(evaluator, combiner, part, initial, rows), strict=True)
    return [found[k] for k in range(len(initial))]


def _part(evaluator: Evaluator, combiner: Computation, part: CombinerPart, initial: Row, rows: list[Row]) -> Row:
    """Combines the initial values and elements of a part of a combiner."""
    first, count = part.accumulators[0], len(initial)
    shapes = [*combiner.result_shape.leaves()][first], *combiner.parameter_shapes[first::count]
    if part.monoid is not None and {shape.element_type for shape in shapes} == {rows[0][first].type}:
        combined_by = Combination(part.monoid())
        terms = combination(combined_by, [row[first] for row in rows])
        return [combination(combined_by, [initial[first], terms])]
    while len(rows) > 1:
        pairs = [evaluator.scalars(combiner, [*rows[k], *rows[k + 1]]) for k in range(0, len(rows) - 1, 2)]
        rows = [*pairs, *rows[len(rows) & ~1 :]]
    row = evaluator.scalars(combiner, [*initial, *rows[0]])
    return [row[k] for k in part.accumulators]


def combination(combined_by: Combination, terms: Sequence[Term]) -> Term:
    """Returns the sum of terms in any order; a term alone is its own sum."""
    return apply(combined_by, terms[0].type, terms) if len(terms) > 1 else terms[0]


@RULES.rule(Scan)
def _scan(op: Scan, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    d, count = op.scan_dimension, len(operands) - op.num_carries
    inputs, carries = operands[:count], list(operands[count:])
    order = range(inputs[0].shape[d])
    stacked: list[Sequence[Array]] = []
    for step in reversed(order) if op.is_reverse else order:
        value = evaluator.run(op.computation, [*(_slice(array, step, d) for array in inputs), *carries])
        results = value if isinstance(value, tuple) else (value,)
        stacked.append(results[: len(results) - op.num_carries])
        carries = list(results[len(results) - op.num_carries :])
    if op.is_reverse:
        stacked.reverse()
    shapes = list(instruction.shape.leaves())
    outputs = [
        np.stack([step[k] for step in stacked], d) if stacked else _zeros(shape.dimensions, leaf_types(instruction)[k])
        for k, shape in enumerate(shapes[: len(shapes) - op.num_carries])
    ]
    values = (*outputs, *carries)
    return values if instruction.shape.is_tuple else values[0]


def _slice(array: Array, step: int, dimension: int) -> Array:
    part = np.moveaxis(array, dimension, 0)
    return part[step : step + 1].reshape(part.shape[1:])  # an index would unwrap a scalar


def _zeros(sizes: tuple[int, ...], type: object) -> Array:
    return array_of([constant(type, 0)] * int(np.prod(sizes)), sizes)  # type: ignore[arg-type]
